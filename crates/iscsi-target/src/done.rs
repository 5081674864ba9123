//! How a job of a command ended.

use scsi::Sense;
use store::Buffer;

/// How a command ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A piece of what a read answers with, which goes on as [`crate::reads::Read`]s do.
    Data(Buffer),
    /// A read that has failed.
    Failed(Sense),
    /// With status and sense; this many bytes were moved.
    Status(u8, Vec<u8>, u64),
    /// Its task was aborted before it began: there is no response.
    Aborted,
}

/// A job that is done.
#[derive(Debug)]
pub(crate) struct Done {
    /// The job.
    pub(crate) id: u64,
    pub(crate) outcome: Outcome,
}

impl Done {
    /// One for tests.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        Self { id: 0, outcome: Outcome::Aborted }
    }
}
