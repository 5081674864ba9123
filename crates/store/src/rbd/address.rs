//! Names of images: `pool[/namespace]/image[@snapshot]`, as Ceph's tools write them.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// An image, or a snapshot of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageAddress {
    /// Its pool.
    pub pool: String,
    /// Its namespace; empty for the default one.
    pub namespace: String,
    /// Its name.
    pub image: String,
    /// The snapshot that is served, read-only.
    pub snapshot: Option<String>,
}

/// A name that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not an image; write rbd:POOL[/NAMESPACE]/IMAGE[@SNAPSHOT], such as rbd:rbd/disk")]
pub struct ImageAddressError(pub String);

impl FromStr for ImageAddress {
    type Err = ImageAddressError;

    fn from_str(text: &str) -> Result<Self, ImageAddressError> {
        let wrong = || ImageAddressError(text.to_owned());
        let (path, snapshot) = match text.split_once('@') {
            Some((path, snapshot)) => (path, Some(snapshot.to_owned())),
            None => (text, None),
        };
        let parts: Vec<&str> = path.split('/').collect();
        let (pool, namespace, image) = match parts[..] {
            [pool, image] => (pool, "", image),
            [pool, namespace, image] if !namespace.is_empty() => (pool, namespace, image),
            _ => return Err(wrong()),
        };
        let is_whole = !pool.is_empty() && !image.is_empty();
        // A second @ or / would name something else than what is meant.
        let has_snapshot =
            snapshot.as_deref().is_none_or(|name| !name.is_empty() && !name.contains(['@', '/']));
        if !is_whole || !has_snapshot || text.contains('\0') {
            return Err(wrong());
        }
        Ok(Self { pool: pool.to_owned(), namespace: namespace.to_owned(), image: image.to_owned(), snapshot })
    }
}

impl fmt::Display for ImageAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rbd:{}/", self.pool)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.image)?;
        self.snapshot.as_ref().map_or(Ok(()), |snapshot| write!(f, "@{snapshot}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_form_and_refuses_others() {
        for text in ["p/i", "p/n/i", "p/i@s", "p/n/i@s"] {
            assert_eq!(text.parse::<ImageAddress>().unwrap().to_string(), format!("rbd:{text}"));
        }
        let full: ImageAddress = "p/n/i@s".parse().unwrap();
        assert_eq!(
            (&*full.pool, &*full.namespace, &*full.image, full.snapshot.as_deref()),
            ("p", "n", "i", Some("s"))
        );
        for text in ["", "i", "/i", "p/", "p//i", "p/n/x/i", "p/i@", "p/i@s@t", "p/i@a/b"] {
            assert!(text.parse::<ImageAddress>().is_err(), "{text}");
        }
    }
}
