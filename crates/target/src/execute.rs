//! Commands carried out: plans against stores.

use std::collections::BTreeMap;
use std::sync::Arc;

use iscsi::pdu::ScsiCommand;
use iscsi::target::TargetConnection;
use iscsi::{TransmitBuffer, status};
use scsi::{Disk, Identity, Lun, Luns, Nexus, Plan, Sense};
use store::{Store, StoreError};

use crate::config::LunConfig;
use crate::error::TargetError;

/// The disks of a target: how each presents itself, and its bytes.
pub(crate) struct Disks {
    pub(crate) luns: Luns,
    /// By number; as many places as the highest number needs.
    stores: Vec<Option<Arc<dyn Store>>>,
}

impl Disks {
    pub(crate) fn new(configs: &[LunConfig], iqn: &str, portal_group_tag: u16) -> Result<Self, TargetError> {
        let (mut luns, mut stores) = (BTreeMap::new(), Vec::new());
        for config in configs {
            let wrong = |reason: String| TargetError::Lun { number: config.number, reason };
            if config.number > Lun::MAX {
                return Err(wrong(format!("numbers go from 0 to {}", Lun::MAX)));
            }
            let (size, block) = (config.store.size_bytes(), u64::from(config.block_bytes));
            if !matches!(block, 512 | 4096) || size == 0 || !size.is_multiple_of(block) {
                return Err(wrong(format!("{size} B is no multiple of its logical block of {block} B")));
            }
            let disk = Disk {
                identity: Identity {
                    vendor: "RNDTRIP".to_owned(),
                    product: format!("{} disk", config.store.kind()),
                    revision: env!("CARGO_PKG_VERSION").split('.').take(2).collect::<Vec<_>>().join("."),
                    serial: format!("{:016x}", serial(iqn, config.number)),
                    target_name: iqn.to_owned(),
                    portal_group_tag,
                },
                block_bytes: config.block_bytes,
                blocks: size / block,
                read_only: config.store.is_read_only(),
                write_cache: config.store.has_volatile_cache(),
            };
            if luns.insert(Lun(config.number), disk).is_some() {
                return Err(TargetError::DuplicateLun(config.number));
            }
            let index = usize::from(config.number);
            if stores.len() <= index {
                stores.resize(index + 1, None);
            }
            stores[index] = Some(Arc::clone(&config.store));
        }
        Ok(Self { luns: Luns(luns), stores })
    }

    pub(crate) fn store(&self, lun: Lun) -> Option<&dyn Store> {
        self.stores.get(usize::from(lun.0))?.as_deref()
    }

    /// Plans and carries out one command; everything it answers is appended to `out`. True when the command
    /// is over, false when more data must come.
    #[inline]
    pub(crate) fn execute(
        &self,
        command: &ScsiCommand,
        immediate: &[u8],
        connection: &mut TargetConnection,
        nexus: &mut Nexus,
        scratch: &mut Vec<u8>,
        out: &mut TransmitBuffer,
    ) -> bool {
        scratch.clear();
        if command.read && command.write_data {
            // Bidirectional commands: no command here moves data both ways.
            let sense = Sense::INVALID_FIELD.encode();
            connection.respond_status(command, status::CHECK_CONDITION, &sense, 0, 0, out);
            return true;
        }
        match self.luns.plan(command.lun, &command.cdb, nexus, scratch) {
            Plan::Read { lun, offset_bytes, length_bytes } => {
                let Some(store) = self.store(lun) else { return no_lun(command, connection, out) };
                let read = connection.respond_read(command, length_bytes, out, |at, buffer| {
                    store.read_at(offset_bytes + at, buffer)
                });
                if let Err(failed) = read {
                    let sense = read_sense(&failed.error).encode();
                    connection.respond_status(
                        command,
                        status::CHECK_CONDITION,
                        &sense,
                        0,
                        failed.data_pdus,
                        out,
                    );
                }
                true
            }
            Plan::Write { lun, offset_bytes, length_bytes, fua } => {
                self.begin_write(command, immediate, (lun, offset_bytes, length_bytes, fua), connection, out)
            }
            Plan::Data => {
                // The data lies in memory, so reading it cannot fail.
                let _ = connection.respond_read(command, scratch.len() as u64, out, |at, buffer| {
                    let from = at as usize;
                    scratch
                        .get(from..from + buffer.len())
                        .map(|piece| buffer.copy_from_slice(piece))
                        .ok_or(())
                });
                true
            }
            Plan::Status(status) => {
                connection.respond_status(command, status, &[], 0, 0, out);
                true
            }
            Plan::Check(sense) => {
                connection.respond_status(command, status::CHECK_CONDITION, &sense.encode(), 0, 0, out);
                true
            }
            Plan::Flush { lun } => {
                match self.store(lun).map(Store::flush) {
                    Some(Ok(())) => connection.respond_status(command, status::GOOD, &[], 0, 0, out),
                    Some(Err(error)) => {
                        let sense = write_sense(&error).encode();
                        connection.respond_status(command, status::CHECK_CONDITION, &sense, 0, 0, out);
                    }
                    None => return no_lun(command, connection, out),
                }
                true
            }
        }
    }

    fn begin_write(
        &self,
        command: &ScsiCommand,
        immediate: &[u8],
        (lun, offset_bytes, length_bytes, fua): (Lun, u64, u64, bool),
        connection: &mut TargetConnection,
        out: &mut TransmitBuffer,
    ) -> bool {
        let Some(store) = self.store(lun) else { return no_lun(command, connection, out) };
        let Ok(begun) =
            connection.begin_write(command, immediate.len(), offset_bytes, length_bytes, fua, out)
        else {
            return true;
        };
        let data = &immediate[..begun.useful_bytes];
        let mut outcome = if data.is_empty() { Ok(()) } else { store.write_at(offset_bytes, data) };
        if begun.complete && fua {
            outcome = outcome.and_then(|()| store.flush());
        }
        let sense = outcome.map_err(|error| write_sense(&error).encode());
        match (begun.complete, sense) {
            (true, Ok(())) => connection.respond_write(command, length_bytes, out),
            (true, Err(sense)) => {
                connection.respond_status(command, status::CHECK_CONDITION, &sense, 0, 0, out);
            }
            (false, Ok(())) => {}
            (false, Err(sense)) => connection.fail_write(command.tag, sense),
        }
        begun.complete
    }

    /// Writes the data of a Data-Out PDU and goes on with its task. True when the command is over.
    pub(crate) fn write_data(
        &self,
        tag: u32,
        lun: [u8; 8],
        store_offset: u64,
        data: &[u8],
        connection: &mut TargetConnection,
        out: &mut TransmitBuffer,
    ) -> bool {
        let Some(store) = Lun::decode(lun).and_then(|lun| self.store(lun)) else {
            return connection.data_taken(tag, Err(Sense::NO_SUCH_LUN.encode()), out);
        };
        let mut outcome = if data.is_empty() { Ok(()) } else { store.write_at(store_offset, data) };
        if connection.must_be_stable(tag) {
            outcome = outcome.and_then(|()| store.flush());
        }
        connection.data_taken(tag, outcome.map_err(|error| write_sense(&error).encode()), out)
    }
}

fn no_lun(command: &ScsiCommand, connection: &mut TargetConnection, out: &mut TransmitBuffer) -> bool {
    connection.respond_status(command, status::CHECK_CONDITION, &Sense::NO_SUCH_LUN.encode(), 0, 0, out);
    true
}

fn read_sense(error: &StoreError) -> Sense {
    tracing::warn!(%error, "a read failed");
    Sense::READ_ERROR
}

fn write_sense(error: &StoreError) -> Sense {
    tracing::warn!(%error, "a write failed");
    match error {
        StoreError::ReadOnly => Sense::WRITE_PROTECTED,
        StoreError::NoMemory(_) => Sense::SPACE_ALLOCATION_FAILED,
        StoreError::OutOfRange { .. } => Sense::WRITE_ERROR,
    }
}

/// A serial number that stays the same while name and number do (FNV-1a).
fn serial(iqn: &str, number: u16) -> u64 {
    iqn.bytes()
        .chain(number.to_be_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}
