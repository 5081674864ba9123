//! The disks of a target: which there are, which an initiator sees, and what changes while they are served.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use parking_lot::{ArcRwLockReadGuard, RawRwLock, RwLock};
use scsi::ports::{AccessState, Ports};
use scsi::{Disk, Durable, Identity, Lun, Luns, Provisioning, Sense, UnitAttention};
use store::Store;

use crate::config::{Access, LunConfig};
use crate::error::TargetError;
use crate::fence::Nexuses;
use crate::sessions::{Session, Sessions, lock};
use crate::state::StateFolder;

/// All disks of a target.
pub(crate) struct Disks {
    iqn: String,
    groups: Vec<u16>,
    table: Mutex<Arc<Table>>,
    effects: Arc<SharedEffects>,
}

/// Disks by number: all of a target's, or those that one initiator sees. It never changes; a change is a new
/// table.
pub(crate) struct Table {
    pub(crate) luns: Luns,
    /// By number; as many places as the highest number needs.
    units: Vec<Option<Arc<Unit>>>,
    pub(crate) effects: Arc<SharedEffects>,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("luns", &self.luns.0.keys()).finish_non_exhaustive()
    }
}

/// A disk's bytes, what keeps its writes apart from atomic operations, and who has tasks there.
pub(crate) struct Unit {
    /// Tells it from every other of the process.
    pub(crate) id: u64,
    pub(crate) store: Arc<dyn Store>,
    /// Held shared while data is read or written, and alone while it is changed atomically.
    pub(crate) atomic_lock: Arc<RwLock<()>>,
    /// The I_T nexuses that use it, and the epochs of their tasks.
    pub(crate) nexuses: Nexuses,
}

impl fmt::Debug for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unit")
            .field("id", &self.id)
            .field("store", &self.store.kind())
            .finish_non_exhaustive()
    }
}

/// While it is held nobody changes the disk in an atomic operation.
pub(crate) type Shared = ArcRwLockReadGuard<RawRwLock, ()>;

impl Unit {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { id, store, atomic_lock: Arc::default(), nexuses: Nexuses::default() }
    }

    /// Keeps atomic operations away until it is dropped, on whatever thread; nothing while there is one.
    pub(crate) fn try_share(&self) -> Option<Shared> {
        self.atomic_lock.try_read_arc()
    }
}

/// What commands do beyond their disk: other sessions learn of changes, and what is to be kept is saved.
pub(crate) struct SharedEffects {
    sessions: Arc<Sessions>,
    state: Option<StateFolder>,
}

impl SharedEffects {
    /// Establishes a unit attention at every session that sees the logical unit, and that `tells` chooses.
    pub(crate) fn raise(&self, lun: Lun, attention: UnitAttention, tells: impl Fn(&Session) -> bool) {
        self.sessions.raise(lun, attention, tells);
    }

    /// Saves what is to be kept of a disk, before it is in force.
    ///
    /// # Errors
    /// INTERNAL TARGET FAILURE, where it cannot be: the initiator must not believe that it is.
    pub(crate) fn save(&self, disk: &Disk, durable: &Durable) -> Result<(), Sense> {
        let Some(state) = &self.state else { return Ok(()) };
        state.save(&disk.identity.serial, durable).map_err(|error| {
            tracing::error!("cannot save reservations or mode parameters: {error}");
            Sense::INTERNAL_FAILURE
        })
    }
}

impl Table {
    pub(crate) fn unit(&self, lun: Lun) -> Option<&Arc<Unit>> {
        self.units.get(usize::from(lun.0))?.as_ref()
    }

    /// The part of it that an initiator sees.
    pub(crate) fn view(&self, access: Option<&Access>, initiator: &str) -> Table {
        let is_shown = |number: u16| access.is_none_or(|access| access.shows(initiator, number));
        let luns = self.luns.0.iter().filter(|(lun, _)| is_shown(lun.0));
        let units = self.units.iter().zip(0_u16..).map(|(unit, n)| unit.clone().filter(|_| is_shown(n)));
        Table {
            luns: Luns(luns.map(|(lun, disk)| (*lun, disk.clone())).collect()),
            units: units.collect(),
            effects: Arc::clone(&self.effects),
        }
    }

    /// What an initiator that has seen `before` is to be told: at which of today's logical units, and what.
    pub(crate) fn news(&self, before: &Table) -> Vec<(Lun, UnitAttention)> {
        let (old, new) = (&before.luns.0, &self.luns.0);
        let is_same = |lun: &Lun| match (old.get(lun), new.get(lun)) {
            (Some(a), Some(b)) => Arc::ptr_eq(&a.shared, &b.shared),
            _ => false,
        };
        let mut news = Vec::new();
        if old.len() != new.len() || !new.keys().all(is_same) {
            news.extend(new.keys().map(|&lun| (lun, UnitAttention::LunsChanged)));
        }
        let resized = new.iter().filter(|(lun, disk)| is_same(lun) && old[lun].blocks != disk.blocks);
        news.extend(resized.map(|(&lun, _)| (lun, UnitAttention::CapacityChanged)));
        news
    }
}

impl Disks {
    pub(crate) fn new(
        configs: &[LunConfig],
        iqn: &str,
        groups: Vec<u16>,
        (sessions, state): (&Arc<Sessions>, Option<StateFolder>),
    ) -> Result<Self, TargetError> {
        let effects = Arc::new(SharedEffects { sessions: Arc::clone(sessions), state });
        let empty = Table { luns: Luns::default(), units: Vec::new(), effects: Arc::clone(&effects) };
        let disks = Self { iqn: iqn.to_owned(), groups, table: Mutex::new(Arc::new(empty)), effects };
        disks.set(configs)?;
        Ok(disks)
    }

    /// All disks as they are now.
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&lock(&self.table))
    }

    /// These are the disks from now on. A disk whose number and store stay keeps what initiators know of it.
    ///
    /// # Errors
    /// When one of them is not possible; nothing has changed then.
    pub(crate) fn set(&self, configs: &[LunConfig]) -> Result<(), TargetError> {
        let mut table = lock(&self.table);
        let (mut luns, mut units) = (BTreeMap::new(), Vec::new());
        for config in configs {
            let lun = Lun(config.number);
            let mut disk = self.disk(config)?;
            let mut unit = Arc::new(Unit::new(Arc::clone(&config.store)));
            let there = table.units.get(usize::from(lun.0)).cloned().flatten();
            match (table.luns.0.get(&lun), there) {
                (Some(old), Some(there)) if Arc::ptr_eq(&there.store, &config.store) => {
                    disk.shared = Arc::clone(&old.shared);
                    disk.ports = Arc::clone(&old.ports);
                    unit = there;
                }
                _ => {
                    if let Some(state) = &self.effects.state {
                        disk.shared.restore(&state.load(&disk.identity.serial)?);
                    }
                }
            }
            if luns.insert(lun, disk).is_some() {
                return Err(TargetError::DuplicateLun(config.number));
            }
            let index = usize::from(config.number);
            if units.len() <= index {
                units.resize_with(index + 1, || None);
            }
            units[index] = Some(unit);
        }
        let now = Arc::new(Table { luns: Luns(luns), units, effects: Arc::clone(&self.effects) });
        let before = std::mem::replace(&mut *table, now);
        for (unit, lun) in before.units.iter().zip(0..) {
            if let Some(unit) =
                unit.as_ref().filter(|unit| !table.unit(Lun(lun)).is_some_and(|now| Arc::ptr_eq(now, unit)))
            {
                // Whoever still has it in a view changes nothing there any more.
                unit.nexuses.close();
            }
        }
        Ok(())
    }

    /// A disk as it presents itself.
    fn disk(&self, config: &LunConfig) -> Result<Disk, TargetError> {
        let wrong = |reason: String| TargetError::Lun { number: config.number, reason };
        if config.number > Lun::MAX {
            return Err(wrong(format!("numbers go from 0 to {}", Lun::MAX)));
        }
        let (size, block) = (config.store.size_bytes(), u64::from(config.block_bytes));
        if !matches!(block, 512 | 4096) || size == 0 || !size.is_multiple_of(block) {
            return Err(wrong(format!("{size} B is not a multiple of its logical block of {block} B")));
        }
        Ok(Disk {
            identity: Identity {
                vendor: "RNDTRIP".to_owned(),
                product: format!("{} disk", config.store.kind()),
                revision: env!("CARGO_PKG_VERSION").split('.').take(2).collect::<Vec<_>>().join("."),
                serial: format!("{:016x}", serial(&self.iqn, config.number)),
                target_name: self.iqn.clone(),
            },
            block_bytes: config.block_bytes,
            blocks: size / block,
            read_only: config.store.is_read_only(),
            removable: config.removable,
            is_rotational: config.store.geometry().is_some_and(|geometry| geometry.is_rotational),
            is_durable: self.effects.state.is_some(),
            write_cache: config.store.has_volatile_cache(),
            provisioning: config
                .store
                .granularity_bytes()
                .map(|granularity_bytes| Provisioning { granularity_bytes }),
            physical_exponent: (config.physical_bytes / config.block_bytes).max(1).ilog2() as u8,
            ports: Arc::new(Ports::new(&self.groups)),
            shared: Arc::default(),
        })
    }

    /// The target changes how its disks are reached through a portal group; whether there is such a group.
    pub(crate) fn set_access_state(&self, group: u16, state: AccessState) -> bool {
        let table = self.table();
        for (&lun, disk) in &table.luns.0 {
            if disk.ports.set(group, state) {
                self.effects.raise(lun, UnitAttention::AccessStateChanged, |_| true);
            }
        }
        self.groups.contains(&group)
    }
}

/// A serial number that stays the same while name and number do.
fn serial(iqn: &str, number: u16) -> u64 {
    scsi::disk::fnv_1a(iqn.bytes().chain(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use store::Ram;

    use super::*;
    use crate::config::Initiator;

    fn lun(number: u16, store: &Arc<dyn Store>) -> LunConfig {
        LunConfig::new(number, Arc::clone(store))
    }

    #[test]
    fn a_disk_that_stays_keeps_what_is_known_and_each_change_is_news_to_who_sees_it() {
        let (a, b): (Arc<dyn Store>, Arc<dyn Store>) =
            (Arc::new(Ram::new(1 << 20)), Arc::new(Ram::new(1 << 20)));
        let disks =
            Disks::new(&[lun(0, &a), lun(1, &b)], "iqn.2026-11.example:t", vec![1], (&Arc::default(), None))
                .unwrap();
        let masked = Access {
            initiators: vec![Initiator { name: "iqn.2026-11.example:i".into(), luns: Some(vec![1]) }],
            ..Access::default()
        };
        let view = || disks.table().view(Some(&masked), "IQN.2026-11.example:i");
        let before = view();
        assert_eq!(before.luns.0.keys().collect::<Vec<_>>(), [&Lun(1)]);
        assert!(before.unit(Lun(0)).is_none() && before.unit(Lun(1)).is_some());
        let shared = Arc::clone(&before.luns.0[&Lun(1)].shared);
        // Disk 0 goes: no news to who never saw it.
        let all = disks.table();
        disks.set(&[lun(1, &b)]).unwrap();
        assert!(view().news(&before).is_empty());
        assert!(Arc::ptr_eq(&view().luns.0[&Lun(1)].shared, &shared));
        assert_eq!(disks.table().news(&all), [(Lun(1), UnitAttention::LunsChanged)]);
        // Another store under the same number is another disk.
        disks.set(&[lun(1, &a)]).unwrap();
        assert_eq!(view().news(&before), [(Lun(1), UnitAttention::LunsChanged)]);
        assert!(matches!(disks.set(&[lun(1, &a), lun(1, &b)]), Err(TargetError::DuplicateLun(1))));
        assert!(view().luns.0.contains_key(&Lun(1)));
    }
}
