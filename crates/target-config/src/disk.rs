//! A disk as the file and the command line describe it.

use std::fmt;

use iscsi_target::DiskNames;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::StoreSpec;

use crate::word_or::WordOr;

/// A disk: its store, and the names by which hosts identify it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSpec {
    /// The store as it was written.
    pub text: String,
    /// The store.
    pub store: StoreSpec,
    /// Its names.
    pub names: DiskNames,
}

impl std::str::FromStr for DiskSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let store = text.parse().map_err(|error: store::SpecError| error.to_string())?;
        Ok(Self { text: text.to_owned(), store, names: DiskNames::default() })
    }
}

impl fmt::Display for DiskSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A disk with names, as a table of the file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedDisk {
    /// The store, such as file:/srv/disk,size=10G.
    store: String,
    /// Unit serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    serial: Option<String>,
    /// NAA designator, 16 or 32 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    naa: Option<String>,
    /// Vendor specific identifier of the T10 vendor ID designator.
    #[serde(skip_serializing_if = "Option::is_none")]
    t10: Option<String>,
    /// T10 vendor identification.
    #[serde(skip_serializing_if = "Option::is_none")]
    vendor: Option<String>,
    /// Product identification.
    #[serde(skip_serializing_if = "Option::is_none")]
    product: Option<String>,
    /// Product revision level.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
}

/// A disk of the file: its store, or a table with its names.
pub(crate) type DiskEntry = WordOr<NamedDisk>;

/// Parses a disk of the file.
///
/// # Errors
/// Names the invalid part and the valid values.
pub(crate) fn parse(entry: DiskEntry) -> Result<DiskSpec, String> {
    let named = match entry {
        WordOr::Word(text) => return text.parse(),
        WordOr::Value(named) => named,
    };
    let NamedDisk { store, serial, naa, t10, vendor, product, revision } = named;
    let names = DiskNames { serial, naa: None, t10, vendor, product, revision };
    DiskSpec::named(&store, names, naa.as_deref())
}

impl DiskSpec {
    /// Parses a disk with names: those that are given.
    ///
    /// # Errors
    /// Names the invalid part and the valid values.
    pub fn named(store: &str, names: DiskNames, naa: Option<&str>) -> Result<Self, String> {
        let names = DiskNames { naa: naa.map(self::naa).transpose()?, ..names };
        names.check()?;
        Ok(Self { names, ..store.parse()? })
    }
}

/// Writes a disk as the file has it.
pub(crate) fn entry(spec: &DiskSpec) -> DiskEntry {
    let DiskNames { serial, naa, t10, vendor, product, revision } = spec.names.clone();
    if spec.names == DiskNames::default() {
        return WordOr::Word(spec.text.clone());
    }
    let naa = naa.map(|naa| naa.iter().map(|byte| format!("{byte:02x}")).collect());
    WordOr::Value(NamedDisk { store: spec.text.clone(), serial, naa, t10, vendor, product, revision })
}

/// Reads an NAA designator: hexadecimal digits, with or without `naa.` or `0x` before them.
fn naa(text: &str) -> Result<Vec<u8>, String> {
    let digits = text.strip_prefix("naa.").or_else(|| text.strip_prefix("0x")).unwrap_or(text);
    let wrong = || format!("naa '{text}': write 16 or 32 hexadecimal digits");
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return Err(wrong());
    }
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong());
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// Parses a disk, `NUMBER=STORE`.
///
/// # Errors
/// Names the invalid part and the valid values.
pub fn lun(text: &str) -> Result<(u16, DiskSpec), String> {
    let (number, spec) = text.split_once('=').ok_or("write NUMBER=STORE, such as 0=ram:1G")?;
    Ok((self::number(number)?, spec.parse()?))
}

/// Parses a disk's number.
///
/// # Errors
/// Names the valid numbers.
pub fn number(text: &str) -> Result<u16, String> {
    let number = text.parse().map_err(|_| format!("'{text}' is not a LUN; use 0 to 255"))?;
    if number > 255 {
        return Err(format!("LUN {number}: use 0 to 255"));
    }
    Ok(number)
}
