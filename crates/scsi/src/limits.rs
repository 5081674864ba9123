//! Limits that commands check and vital product data pages report.

/// Most blocks of one UNMAP: what takes a few milliseconds to free.
pub(crate) const UNMAP_BLOCKS_MAX: u32 = 1 << 20;
/// Most ranges of one UNMAP.
pub(crate) const UNMAP_RANGES_MAX: u32 = 256;
/// Most data of one WRITE ATOMIC, bytes.
pub(crate) const ATOMIC_BYTES_MAX: u32 = 1 << 20;
/// Most parameters of one PERSISTENT RESERVE OUT, bytes: the TransportID of the longest iSCSI name (223 bytes) with its
/// ISID takes 248 behind the 24 of the list.
pub(crate) const RESERVE_OUT_BYTES_MAX: u64 = 512;
/// Most data that is gathered for one command, bytes.
pub const TAKEN_BYTES_MAX: u64 = 4 << 20;

/// Most CSCD descriptors (copy sources and copy destinations) of one EXTENDED COPY.
pub(crate) const CSCDS_MAX: u16 = 16;
/// Most segment descriptors of one EXTENDED COPY.
pub(crate) const SEGMENTS_MAX: u16 = 32;
/// Most bytes of all descriptors of one EXTENDED COPY.
pub(crate) const DESCRIPTORS_BYTES_MAX: u32 = 2048;
/// Most bytes that one EXTENDED COPY copies: what is done in a fraction of a second.
pub(crate) const COPY_BYTES_MAX: u32 = 256 << 20;
/// Copies that can run at a time: more than sessions need.
pub(crate) const CONCURRENT_COPIES_MAX: u8 = 255;
