//! What a capture point knows of a connection's encryption.

use crate::Key;

/// Whether what is in the records of TLS was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encryption {
    /// It was.
    Decrypted,
    /// No secrets were given.
    NoKeyLog,
    /// None of the secrets is of this connection.
    NoSecret,
    /// The secrets do not open the records.
    WrongSecret,
    /// The cipher suite of this number is not one that can be decrypted.
    Suite(u16),
    /// The hellos are not in the capture.
    #[default]
    NoHandshake,
}

/// A connection with TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Whether its records were decrypted.
    pub encryption: Encryption,
    /// The server that the client has asked for, and the protocols that it can speak.
    pub name: Key,
    /// The client has sent data before the server's answer, which are not decrypted.
    pub has_early_data: bool,
}
