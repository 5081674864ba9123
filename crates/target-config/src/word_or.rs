//! A key whose value is a keyword, or a table or list: `access = "open"`.

use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A word, or a table or list.
///
/// An untagged enum would do the same, but its errors name no key.
#[derive(Clone, Debug)]
pub(crate) enum WordOr<T> {
    /// A string.
    Word(String),
    /// A table or list.
    Value(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for WordOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = WordOr<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word, a table or a list")
            }

            fn visit_str<E>(self, word: &str) -> Result<Self::Value, E> {
                Ok(WordOr::Word(word.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(WordOr::Value)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                T::deserialize(SeqAccessDeserializer::new(list)).map(WordOr::Value)
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
    }
}

impl<T: Serialize> Serialize for WordOr<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Word(word) => serializer.serialize_str(word),
            Self::Value(value) => value.serialize(serializer),
        }
    }
}

impl<T: JsonSchema> JsonSchema for WordOr<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("WordOr{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "string" }, generator.subschema_for::<T>()] })
    }
}
