//! Errors of wires.

use std::io;

use thiserror::Error;

/// The reason for which a wire could not be made or changed.
#[derive(Debug, Error)]
pub enum WireError {
    /// The process may not make network namespaces.
    #[error("making a network namespace needs CAP_SYS_ADMIN: run as root")]
    NotPermitted,
    /// A program is missing.
    #[error("'{program}' is not installed; on Debian: apt-get install {package}")]
    MissingTool {
        /// The program.
        program: &'static str,
        /// Its package.
        package: &'static str,
    },
    /// A program refused.
    #[error("{command}: {message}")]
    Tool {
        /// The whole command.
        command: String,
        /// Its error message.
        message: String,
    },
    /// The kernel refused.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// There is no wire of that name.
    #[error("there is no wire '{name}'; `roundtrip wire show` lists those that are up")]
    NoWire {
        /// The name.
        name: String,
    },
    /// A card must not be moved.
    #[error("{interface}: {why}")]
    Nic {
        /// The interface.
        interface: String,
        /// The reason.
        why: &'static str,
    },
    /// The configuration is impossible.
    #[error("{key} = {given}: {allowed}")]
    Config {
        /// The setting.
        key: &'static str,
        /// The given value.
        given: String,
        /// The possible values.
        allowed: &'static str,
    },
}
