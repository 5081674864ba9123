//! Why a wire could not be made.

use std::io;

use thiserror::Error;

/// A wire that could not be made.
#[derive(Debug, Error)]
pub enum WireError {
    /// The process may not make network namespaces.
    #[error("making a network namespace needs CAP_SYS_ADMIN: run as root")]
    NotPermitted,
    /// A program is missing.
    #[error("'{program}' is not installed; on Debian: apt-get install {package}")]
    MissingTool {
        /// Which.
        program: &'static str,
        /// Where it comes from.
        package: &'static str,
    },
    /// A program refused.
    #[error("{command}: {message}")]
    Tool {
        /// The whole command.
        command: String,
        /// What it said.
        message: String,
    },
    /// The kernel refused.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Its reason.
        source: io::Error,
    },
    /// There is no wire of that name.
    #[error("there is no wire '{name}'; `roundtrip wire show` lists those that are up")]
    NoWire {
        /// Which.
        name: String,
    },
    /// A card must not be moved.
    #[error("{interface}: {why}")]
    Nic {
        /// Which.
        interface: String,
        /// Why not.
        why: &'static str,
    },
    /// The configuration is impossible.
    #[error("{key} = {given}: {allowed}")]
    Config {
        /// Which setting.
        key: &'static str,
        /// What was given.
        given: String,
        /// What is possible.
        allowed: &'static str,
    },
}
