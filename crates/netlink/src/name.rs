//! Names of interfaces in requests.

use crate::error::Error;

/// Bytes of an interface's name with its terminating zero (IFNAMSIZ).
const SIZE: usize = 16;

/// Refuses what the kernel would cut or read as another name.
pub(crate) fn check(what: &str, interface: &str) -> Result<(), Error> {
    if interface.is_empty() || interface.len() >= SIZE || interface.bytes().any(|byte| byte == 0) {
        let why = format!("{interface:?} is no interface name: it has 1 to {} bytes", SIZE - 1);
        return Err(Error::Unusable { what: what.to_owned(), why });
    }
    Ok(())
}
