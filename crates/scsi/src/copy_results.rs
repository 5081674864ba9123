//! RECEIVE COPY RESULTS (SPC-4 6.24), and the results that it reports.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::limits::{CONCURRENT_COPIES_MAX, COPY_BYTES_MAX, CSCDS_MAX, DESCRIPTORS_BYTES_MAX, SEGMENTS_MAX};
use crate::nexus::Nexus;
use crate::plan::Segment;
use crate::sense::Sense;

/// Segment descriptor: block device to block device.
pub(crate) const BLOCK_TO_BLOCK: u8 = 0x02;
/// Segment descriptor: block device to block device with offsets in bytes.
pub(crate) const BLOCK_TO_BLOCK_OFFSETS: u8 = 0x0a;
/// CSCD descriptor: identification.
pub(crate) const IDENTIFICATION: u8 = 0xe4;
/// The supported descriptor types, ascending.
pub(crate) const DESCRIPTOR_TYPES: [u8; 3] = [BLOCK_TO_BLOCK, BLOCK_TO_BLOCK_OFFSETS, IDENTIFICATION];

/// The results of the copies that a disk was asked for.
#[derive(Debug, Default)]
pub struct Copies(Mutex<VecDeque<CopyResult>>);

/// The result of a copy, as another process takes it over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyResult {
    nexus: String,
    list_identifier: u8,
    segments: u16,
    bytes: u64,
    is_complete: bool,
}

/// Most results that are kept; the oldest are dropped first.
const RESULTS_MAX: usize = 256;

impl Copies {
    /// Returns what the next process takes over.
    #[must_use]
    pub(crate) fn carried(&self) -> Vec<CopyResult> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Takes over the results of the process before.
    pub(crate) fn carry(&self, results: &[CopyResult]) {
        let results = results.iter().take(RESULTS_MAX).cloned().collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = results;
    }

    /// Records the end of a copy, in place of an earlier one of this nexus with the same identifier.
    pub fn ended(&self, nexus: &Nexus, list_identifier: u8, copied: &[Segment], is_complete: bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|result| result.nexus != nexus.name() || result.list_identifier != list_identifier);
        if all.len() == RESULTS_MAX {
            all.pop_front();
        }
        all.push_back(CopyResult {
            nexus: nexus.name().to_owned(),
            list_identifier,
            segments: copied.len() as u16,
            bytes: copied.iter().map(|segment| segment.length_bytes).sum(),
            is_complete,
        });
    }

    /// COPY STATUS (LID1): appends a result and drops it.
    fn status(&self, nexus: &Nexus, list_identifier: u8, out: &mut Vec<u8>) -> Result<(), Sense> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all
            .iter()
            .position(|result| result.nexus == nexus.name() && result.list_identifier == list_identifier);
        let result = found.and_then(|place| all.remove(place)).ok_or(Sense::invalid_field(2))?;
        let [high, low] = result.segments.to_be_bytes();
        // In bytes, or in KiB where those do not fit.
        let (unit, count) = match u32::try_from(result.bytes) {
            Ok(bytes) => (0, bytes),
            Err(_) => (1, u32::try_from(result.bytes >> 10).unwrap_or(u32::MAX)),
        };
        out.extend_from_slice(&[0, 0, 0, 8, if result.is_complete { 1 } else { 2 }, high, low, unit]);
        out.extend_from_slice(&count.to_be_bytes());
        Ok(())
    }

    /// RECEIVE COPY RESULTS: appends the parameter data of COPY STATUS (LID1) or OPERATING PARAMETERS.
    ///
    /// # Errors
    /// The sense of an unsupported service action, or of an identifier without a result.
    pub(crate) fn report(
        &self,
        action: u8,
        list_identifier: u8,
        nexus: &Nexus,
        block_bytes: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), Sense> {
        match action {
            0 => self.status(nexus, list_identifier, out),
            3 => {
                operating_parameters(block_bytes, out);
                Ok(())
            }
            _ => Err(Sense::invalid_bit(1, 4)),
        }
    }
}

fn operating_parameters(block_bytes: u32, out: &mut Vec<u8>) {
    let mut data = [0_u8; 44];
    data[3] = (44 + DESCRIPTOR_TYPES.len() - 4) as u8;
    // SNLID: the list identifier may be left out.
    data[4] = 1;
    data[8..10].copy_from_slice(&CSCDS_MAX.to_be_bytes());
    data[10..12].copy_from_slice(&SEGMENTS_MAX.to_be_bytes());
    data[12..16].copy_from_slice(&DESCRIPTORS_BYTES_MAX.to_be_bytes());
    data[16..20].copy_from_slice(&COPY_BYTES_MAX.to_be_bytes());
    data[34..36].copy_from_slice(&u16::from(CONCURRENT_COPIES_MAX).to_be_bytes());
    data[36] = CONCURRENT_COPIES_MAX;
    // DATA SEGMENT GRANULARITY, as a power of two.
    data[37] = block_bytes.max(1).ilog2() as u8;
    data[43] = DESCRIPTOR_TYPES.len() as u8;
    out.extend_from_slice(&data);
    out.extend_from_slice(&DESCRIPTOR_TYPES);
}
