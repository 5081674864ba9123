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
    /// Everything written is brought to stable storage.
    Flush,
    /// Which bytes are allocated is asked for; layers do not see it.
    Map,
}
