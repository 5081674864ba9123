//! Commands carried out: plans against stores.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use iscsi::pdu::ScsiCommand;
use iscsi::target::TargetConnection;
use iscsi::{TransmitBuffer, status};
use scsi::cdb::Cdb;
use scsi::{Disk, Identity, Lun, Luns, Nexus, Plan, Provisioning, Sense, UnitAttention};
use store::{Store, StoreError};

use crate::config::LunConfig;
use crate::error::TargetError;
use crate::medium;
use crate::sessions::lock;

/// The disks of a target: how each presents itself, and its bytes.
pub(crate) struct Disks {
    pub(crate) luns: Luns,
    /// By number; as many places as the highest number needs.
    stores: Vec<Option<Unit>>,
    /// Changes that other initiators are to be told of, and whether there are any.
    announcements: Mutex<Vec<(Lun, UnitAttention)>>,
    has_announcements: AtomicBool,
}

/// A disk's bytes, and what keeps its writes apart from steps that must be whole.
struct Unit {
    store: Arc<dyn Store>,
    /// Held shared while data is written, and alone while it is compared and written in one step.
    step: RwLock<()>,
}

/// A command whose data is gathered before anything is done.
#[derive(Debug)]
struct Taken {
    cdb: Cdb,
    lun: Lun,
    data: Vec<u8>,
}

/// The commands of a connection whose data is gathered.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    taken: HashMap<u32, Taken>,
    bytes: usize,
}

/// Most bytes that a connection gathers at a time.
const GATHERED_BYTES_MAX: usize = 16 << 20;

impl Gathering {
    /// Forgets the commands that are no longer in progress.
    pub(crate) fn prune(&mut self, connection: &TargetConnection) {
        self.taken.retain(|&tag, _| connection.is_in_progress(tag));
        self.bytes = self.taken.values().map(|taken| taken.data.len()).sum();
    }
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
                provisioning: config
                    .store
                    .granularity_bytes()
                    .map(|granularity_bytes| Provisioning { granularity_bytes }),
                physical_exponent: (config.physical_bytes / config.block_bytes).max(1).ilog2() as u8,
                write_protected: Arc::default(),
                reservations: Arc::default(),
            };
            if luns.insert(Lun(config.number), disk).is_some() {
                return Err(TargetError::DuplicateLun(config.number));
            }
            let index = usize::from(config.number);
            if stores.len() <= index {
                stores.resize_with(index + 1, || None);
            }
            stores[index] = Some(Unit { store: Arc::clone(&config.store), step: RwLock::new(()) });
        }
        Ok(Self {
            luns: Luns(luns),
            stores,
            announcements: Mutex::default(),
            has_announcements: AtomicBool::new(false),
        })
    }

    pub(crate) fn store(&self, lun: Lun) -> Option<&dyn Store> {
        self.unit(lun).map(|unit| &*unit.store)
    }

    /// What other initiators are to be told of, once.
    #[inline]
    pub(crate) fn take_announcements(&self) -> Vec<(Lun, UnitAttention)> {
        // Asked after every command: one load.
        if !self.has_announcements.load(Ordering::Relaxed) {
            return Vec::new();
        }
        self.has_announcements.store(false, Ordering::Relaxed);
        std::mem::take(&mut *lock(&self.announcements))
    }

    /// Frees what RESERVE took: on one logical unit or on all, of one initiator port or of everybody.
    pub(crate) fn forget_reservations(&self, lun: Option<Lun>, port: Option<&str>) {
        for (_, disk) in self.luns.0.iter().filter(|(number, _)| lun.is_none_or(|lun| lun == **number)) {
            disk.reservations.forget(port);
        }
    }

    fn unit(&self, lun: Lun) -> Option<&Unit> {
        self.stores.get(usize::from(lun.0))?.as_ref()
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
        (scratch, gathering): (&mut Vec<u8>, &mut Gathering),
        out: &mut TransmitBuffer,
    ) -> bool {
        scratch.clear();
        if command.read && command.write_data {
            // Bidirectional commands: no command here moves data both ways.
            let sense = Sense::INVALID_FIELD.encode();
            connection.respond_status(command, status::CHECK_CONDITION, &sense, 0, 0, out);
            return true;
        }
        let plan = self.luns.plan(command.lun, &command.cdb, nexus, scratch);
        match plan {
            Plan::Take { lun, length_bytes } => self.begin_taking(
                command,
                immediate,
                (lun, length_bytes),
                (connection, nexus),
                gathering,
                out,
            ),
            Plan::Medium { .. } | Plan::Changed { .. } => {
                let (status, sense) = self.conclude(plan);
                connection.respond_status(command, status, &sense, 0, 0, out);
                true
            }
            Plan::MappedStatus { lun, offset_bytes, block_bytes, allocation } => {
                let Some(store) = self.store(lun) else { return no_lun(command, connection, out) };
                mapped_status(store, offset_bytes, block_bytes, scratch);
                scratch.truncate(allocation);
                respond_data(command, scratch, connection, out);
                true
            }
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
                respond_data(command, scratch, connection, out);
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
        let Some(Unit { store, step }) = self.unit(lun) else { return no_lun(command, connection, out) };
        let Ok(begun) =
            connection.begin_write(command, immediate.len(), offset_bytes, length_bytes, fua, out)
        else {
            return true;
        };
        let data = &immediate[..begun.useful_bytes];
        let mut outcome = write(store, step, offset_bytes, data);
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
        (tag, lun, store_offset): (u32, [u8; 8], u64),
        data: &[u8],
        (connection, nexus): (&mut TargetConnection, &Nexus),
        gathering: &mut Gathering,
        out: &mut TransmitBuffer,
    ) -> bool {
        if let Some(taken) = gathering.taken.get_mut(&tag) {
            let place = store_offset as usize..(store_offset as usize).saturating_add(data.len());
            if let Some(place) = taken.data.get_mut(place) {
                place.copy_from_slice(data);
            }
            if !connection.has_all_data(tag) {
                return connection.data_taken(tag, Ok(()), out);
            }
            let Some(taken) = gathering.taken.remove(&tag) else { return false };
            gathering.bytes = gathering.bytes.saturating_sub(taken.data.len());
            let (status, sense) = self.conclude(self.luns.finish(taken.lun, &taken.cdb, &taken.data, nexus));
            connection.end_write(tag, status, &sense, out);
            return true;
        }
        let Some(Unit { store, step }) = Lun::decode(lun).and_then(|lun| self.unit(lun)) else {
            return connection.data_taken(tag, Err(Sense::NO_SUCH_LUN.encode()), out);
        };
        let mut outcome = write(store, step, store_offset, data);
        if connection.must_be_stable(tag) {
            outcome = outcome.and_then(|()| store.flush());
        }
        connection.data_taken(tag, outcome.map_err(|error| write_sense(&error).encode()), out)
    }
}

impl Disks {
    /// Begins to gather a command's data. True when the command is over.
    fn begin_taking(
        &self,
        command: &ScsiCommand,
        immediate: &[u8],
        (lun, length_bytes): (Lun, u64),
        (connection, nexus): (&mut TargetConnection, &Nexus),
        gathering: &mut Gathering,
        out: &mut TransmitBuffer,
    ) -> bool {
        gathering.prune(connection);
        if length_bytes > 0 && length_bytes != u64::from(command.expected_bytes) {
            // Half a list of parameters, or more than there can be, is none.
            let sense = Sense::PARAMETER_LENGTH.encode();
            connection.respond_status(command, status::CHECK_CONDITION, &sense, 0, 0, out);
            return true;
        }
        if length_bytes == 0 {
            let surplus = command.expected_bytes > 0;
            let (status, sense) = if surplus {
                (status::CHECK_CONDITION, Sense::INVALID_FIELD.encode())
            } else {
                (status::GOOD, Vec::new())
            };
            connection.respond_status(command, status, &sense, 0, 0, out);
            return true;
        }
        // What the initiator does not send is not there: a shorter transfer brings less.
        let length =
            length_bytes.min(command.expected_bytes.into()).min(scsi::medium::TAKEN_BYTES_MAX) as usize;
        if gathering.bytes + length > GATHERED_BYTES_MAX {
            connection.respond_status(command, status::TASK_SET_FULL, &[], 0, 0, out);
            return true;
        }
        let Ok(begun) = connection.begin_write(command, immediate.len(), 0, length_bytes, false, out) else {
            return true;
        };
        let mut data = vec![0; length];
        let here = begun.useful_bytes.min(length);
        data[..here].copy_from_slice(&immediate[..here]);
        if begun.complete {
            let (status, sense) = self.conclude(self.luns.finish(lun, &command.cdb, &data, nexus));
            connection.respond_status(command, status, &sense, length_bytes, 0, out);
            return true;
        }
        gathering.bytes += length;
        gathering.taken.insert(command.tag, Taken { cdb: command.cdb, lun, data });
        false
    }

    /// Carries out a plan that needs no more data: status and sense.
    fn conclude(&self, plan: Plan) -> (u8, Vec<u8>) {
        let failed = |sense: Sense| (status::CHECK_CONDITION, sense.encode());
        match plan {
            Plan::Medium { lun, action } => match self.unit(lun) {
                Some(Unit { store, step }) => match medium::act(&**store, step, action) {
                    Ok(()) => (status::GOOD, Vec::new()),
                    Err(sense) => failed(sense),
                },
                None => failed(Sense::NO_SUCH_LUN),
            },
            Plan::Status(status) => (status, Vec::new()),
            Plan::Changed { lun, attention } => {
                lock(&self.announcements).push((lun, attention));
                self.has_announcements.store(true, Ordering::Release);
                (status::GOOD, Vec::new())
            }
            Plan::Check(sense) => failed(sense),
            _ => failed(Sense::INVALID_FIELD),
        }
    }
}

/// Writes data, apart from steps that must be whole.
#[inline]
fn write(store: &Arc<dyn Store>, step: &RwLock<()>, offset: u64, data: &[u8]) -> Result<(), StoreError> {
    if data.is_empty() {
        return Ok(());
    }
    let _shared = step.read().unwrap_or_else(PoisonError::into_inner);
    store.write_at(offset, data)
}

/// Answers with data that lies in memory, so reading it cannot fail.
fn respond_data(
    command: &ScsiCommand,
    data: &[u8],
    connection: &mut TargetConnection,
    out: &mut TransmitBuffer,
) {
    let _ = connection.respond_read(command, data.len() as u64, out, |at, buffer| {
        let from = at as usize;
        data.get(from..from + buffer.len()).map(|piece| buffer.copy_from_slice(piece)).ok_or(())
    });
}

/// GET LBA STATUS parameter data (SBC-3 5.6.2): runs of mapped and unmapped blocks.
fn mapped_status(store: &dyn Store, offset_bytes: u64, block_bytes: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; 8]);
    let (mut at, block) = (offset_bytes, u64::from(block_bytes.max(1)));
    for _ in 0..MAPPED_RUNS_MAX {
        if at >= store.size_bytes() {
            break;
        }
        let (is_mapped, run_bytes) = store.is_mapped(at);
        let blocks = (run_bytes / block).clamp(1, u64::from(u32::MAX));
        out.extend_from_slice(&(at / block).to_be_bytes());
        out.extend_from_slice(&(blocks as u32).to_be_bytes());
        // 0: mapped; 1: deallocated.
        out.extend_from_slice(&[u8::from(!is_mapped), 0, 0, 0]);
        at += blocks * block;
    }
    let length = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&length.to_be_bytes());
}

/// Most runs of one answer.
const MAPPED_RUNS_MAX: usize = 64;

fn no_lun(command: &ScsiCommand, connection: &mut TargetConnection, out: &mut TransmitBuffer) -> bool {
    connection.respond_status(command, status::CHECK_CONDITION, &Sense::NO_SUCH_LUN.encode(), 0, 0, out);
    true
}

pub(crate) fn read_sense(error: &StoreError) -> Sense {
    tracing::warn!(%error, "a read failed");
    Sense::READ_ERROR
}

pub(crate) fn write_sense(error: &StoreError) -> Sense {
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
