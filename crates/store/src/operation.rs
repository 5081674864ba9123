//! Kinds of operations.

/// The kind of an operation on a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// Bytes need not be kept.
    Discard,
    /// Which bytes are allocated is asked for.
    Map,
    /// Everything written is brought to stable storage.
    Flush,
}
