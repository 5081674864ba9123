//! Plans: what is left to do for a command once the logical unit has decided it.

use crate::command::LogSense;
use crate::lun::Lun;
use crate::nexus::UnitAttention;
use crate::reservations::Effects;
use crate::sense::Sense;

/// What is left to do for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The parameter data was appended, cut to ALLOCATION LENGTH; the status is GOOD.
    Data,
    /// No data; this status.
    Status(u8),
    /// CHECK CONDITION with this sense.
    Check(Sense),
    /// Read this range for the initiator.
    Read {
        /// Which logical unit.
        lun: Lun,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        length_bytes: u64,
    },
    /// Write this range from the initiator's data.
    Write {
        /// Which logical unit.
        lun: Lun,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        length_bytes: u64,
        /// Not to be acknowledged before it is on stable storage (FUA).
        fua: bool,
    },
    /// Take this much data from the initiator, then call [`crate::Luns::finish`] with it.
    Take {
        /// Which logical unit.
        lun: Lun,
        /// How many bytes, at most [`crate::limits::TAKEN_BYTES_MAX`].
        length_bytes: u64,
    },
    /// Change or compare the medium; GOOD when that is done.
    Medium {
        /// Which logical unit.
        lun: Lun,
        /// What to do.
        action: Action,
    },
    /// A change of reservations: apply the effects first, then answer with the status.
    Reserved {
        /// Which logical unit.
        lun: Lun,
        /// The status, once the effects are complete.
        status: u8,
        /// Unit attentions for other nexuses, and nexuses whose tasks are aborted.
        effects: Effects,
    },
    /// GOOD, and a unit attention for every other initiator.
    Changed {
        /// Which logical unit.
        lun: Lun,
        /// The unit attention.
        attention: UnitAttention,
    },
    /// Report which blocks from this one on are mapped (GET LBA STATUS).
    MappedStatus {
        /// Which logical unit.
        lun: Lun,
        /// First byte.
        offset_bytes: u64,
        /// Logical block length, bytes.
        block_bytes: u32,
        /// Most bytes of the answer.
        allocation: usize,
    },
    /// Report a log page (LOG SENSE), with what was read and written so far.
    Log {
        /// Which logical unit.
        lun: Lun,
        /// The request, which is valid.
        request: LogSense,
    },
    /// Copy these ranges one after the other, then record the result (EXTENDED COPY).
    Copy {
        /// The logical unit that received the command.
        lun: Lun,
        /// The ranges, all of them on disks that the initiator sees.
        segments: Vec<Segment>,
        /// The identifier under which the result is kept, if the command asks for that.
        list_identifier: Option<u8>,
    },
    /// Bring everything written to stable storage.
    Flush {
        /// Which logical unit.
        lun: Lun,
    },
}

/// What to do to a disk's bytes, all of it inside the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write the same block repeatedly (WRITE SAME).
    Fill {
        /// First byte.
        offset_bytes: u64,
        /// How many; a multiple of the block.
        length_bytes: u64,
        /// The block.
        block: Vec<u8>,
    },
    /// These ranges need not be kept: they read as zeros afterwards.
    Unmap {
        /// The ranges.
        ranges: Vec<ByteRange>,
    },
    /// Write only if the medium is as expected, atomically (COMPARE AND WRITE).
    CompareAndWrite {
        /// First byte.
        offset_bytes: u64,
        /// What must be there.
        expected: Vec<u8>,
        /// What replaces it.
        data: Vec<u8>,
        /// Not to be acknowledged before it is on stable storage (FUA).
        fua: bool,
    },
    /// Compare the medium (VERIFY with BYTCHK).
    Compare {
        /// First byte.
        offset_bytes: u64,
        /// How many; with a single block in `expected`, that block repeatedly.
        length_bytes: u64,
        /// What must be there.
        expected: Vec<u8>,
    },
    /// Write atomically: no other command sees a part of it (WRITE ATOMIC).
    WriteAtomic {
        /// First byte.
        offset_bytes: u64,
        /// The data.
        data: Vec<u8>,
        /// Not to be acknowledged before it is on stable storage (FUA).
        fua: bool,
    },
    /// Read these ranges for the default self-test (SEND DIAGNOSTIC).
    SelfTest {
        /// The ranges.
        ranges: [ByteRange; 2],
    },
    /// Set bits, atomically (ORWRITE).
    Or {
        /// First byte.
        offset_bytes: u64,
        /// The bits.
        data: Vec<u8>,
        /// Not to be acknowledged before it is on stable storage (FUA).
        fua: bool,
    },
}

/// A range of a disk's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub offset_bytes: u64,
    /// How many.
    pub length_bytes: u64,
}

/// A range to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it is copied from.
    pub from: Place,
    /// Where it is copied to.
    pub to: Place,
    /// How many bytes.
    pub length_bytes: u64,
}

/// Where a range begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The logical unit.
    pub lun: Lun,
    /// Its first byte.
    pub offset_bytes: u64,
}
