//! What requests of one purpose have in common.

/// The name of a group of requests, such as a path without its numbers, as a hash: requests are compared by it, and their names
/// are told apart from them. Groups whose hashes collide are one, which harms nothing but a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(u64);

impl Key {
    /// Of requests without a name.
    pub const NONE: Key = Key(0);

    /// The key with this hash of its name.
    #[must_use]
    pub fn new(hash: u64) -> Self {
        Self(hash.max(1))
    }
}
