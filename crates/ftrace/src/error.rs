//! Why tracepoints cannot be recorded.

use std::io;

/// Why tracepoints cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// This process may not trace, or the kernel has no tracefs.
    #[error(
        "this process may not use the kernel's tracepoints ({what}: {source}); root with CAP_SYS_ADMIN may"
    )]
    NotPermitted {
        /// The file or call.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel lacks a tracepoint.
    #[error("this kernel has no tracepoint {name}")]
    Missing {
        /// `group/name`.
        name: &'static str,
    },
    /// A file of tracefs is not as expected.
    #[error("unexpected contents of tracefs's {file}: {why}")]
    Unexpected {
        /// The file.
        file: String,
        /// What is unexpected.
        why: String,
    },
    /// Anything else.
    #[error("{what}: {source}")]
    Io {
        /// The file or call.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl TraceError {
    /// The error of a file or call.
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        let what = what.into();
        let closed =
            [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::NotFound];
        if closed.contains(&source.kind())
            || source.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
        {
            Self::NotPermitted { what, source }
        } else {
            Self::Io { what, source }
        }
    }
}
