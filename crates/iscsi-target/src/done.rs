//! The outcomes of jobs.

use scsi::Sense;
use store::Buffer;

/// How a command ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The next chunk of a [`crate::read::Read`].
    Data(Buffer),
    /// A read that has failed.
    Failed(Sense),
    /// Parameter data.
    Answer(Vec<u8>),
    /// Status, sense data and the number of bytes transferred.
    Status(u8, Vec<u8>, u64),
    /// The task was aborted before the job began: no response is sent.
    Aborted,
}

/// A completed job.
#[derive(Debug)]
pub(crate) struct Done {
    /// The id of the job.
    pub(crate) id: u64,
    pub(crate) outcome: Outcome,
}

impl Done {
    /// Returns an example for tests.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        Self { id: 0, outcome: Outcome::Aborted }
    }
}
