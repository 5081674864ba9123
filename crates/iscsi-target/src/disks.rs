//! The disks of a target, and their replacement while sessions continue.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use scsi::ports::Ports;
use scsi::{Disk, Identity, Lun, Luns, Provisioning};

use crate::config::LunConfig;
use crate::effects::SharedEffects;
use crate::error::TargetError;
use crate::kept::KeptDisk;
use crate::lock::lock;
use crate::table::Table;
use crate::unit::Unit;

/// All disks of a target.
pub(crate) struct Disks {
    iqn: String,
    groups: Vec<u16>,
    table: Mutex<Arc<Table>>,
    effects: Arc<SharedEffects>,
}

/// Disks that are checked, and not served yet.
pub(crate) struct Prepared(Table);

impl Prepared {
    /// Returns the SCSI disks.
    pub(crate) fn disks(&self) -> impl Iterator<Item = &Disk> {
        self.0.luns.0.values()
    }
}

impl Disks {
    pub(crate) fn new(iqn: &str, groups: Vec<u16>, effects: Arc<SharedEffects>) -> Self {
        let table = Mutex::new(Arc::new(Table::empty(Arc::clone(&effects))));
        Self { iqn: iqn.to_owned(), groups, table, effects }
    }

    /// Returns the current disks.
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&lock(&self.table))
    }

    /// Checks new disks. A disk with the same number, store and names keeps its reservations, mode pages and tasks.
    ///
    /// # Errors
    /// When a disk is invalid.
    pub(crate) fn prepare(&self, configs: &[LunConfig]) -> Result<Prepared, TargetError> {
        let table = self.table();
        let (mut luns, mut units) = (BTreeMap::new(), Vec::new());
        for config in configs {
            let lun = Lun(config.number);
            let mut disk = self.disk(config)?;
            let mut unit = Arc::new(Unit::new(Arc::clone(&config.store)));
            let there = table.units.get(usize::from(lun.0)).cloned().flatten();
            match (table.luns.0.get(&lun), there) {
                (Some(old), Some(there))
                    if Arc::ptr_eq(&there.store, &config.store) && old.identity == disk.identity =>
                {
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
        Ok(Prepared(Table { luns: Luns(luns), units, effects: Arc::clone(&self.effects) }))
    }

    /// Serves disks that were prepared since the last change.
    pub(crate) fn replace(&self, Prepared(now): Prepared) {
        let mut table = lock(&self.table);
        let before = std::mem::replace(&mut *table, Arc::new(now));
        for (unit, lun) in before.units.iter().zip(0..) {
            if let Some(unit) =
                unit.as_ref().filter(|unit| !table.unit(Lun(lun)).is_some_and(|now| Arc::ptr_eq(now, unit)))
            {
                // Sessions whose view still has the removed disk can no longer change it.
                unit.nexuses.close();
            }
        }
    }

    /// Returns the state of the disks that the next process takes over: those whose data outlive this one.
    pub(crate) fn carried(&self) -> Vec<KeptDisk> {
        let table = self.table();
        let of = |(&lun, disk): (&Lun, &Disk)| {
            let store = table.unit(lun)?.store.lasting_name()?;
            Some(KeptDisk { store, serial: disk.identity.serial.clone(), state: disk.shared.carried() })
        };
        table.luns.0.iter().filter_map(of).collect()
    }

    /// Takes over the state of the disks from the process before.
    pub(crate) fn carry(&self, kept: &[KeptDisk]) {
        let table = self.table();
        for (&lun, disk) in &table.luns.0 {
            let Some(store) = table.unit(lun).and_then(|unit| unit.store.lasting_name()) else { continue };
            let own = kept.iter().find(|one| one.serial == disk.identity.serial && one.store == store);
            own.inspect(|one| disk.shared.carry(&one.state));
        }
    }

    /// Serves no disks.
    pub(crate) fn clear(&self) {
        self.replace(Prepared(Table::empty(Arc::clone(&self.effects))));
    }

    /// Builds the SCSI disk of a configuration.
    fn disk(&self, config: &LunConfig) -> Result<Disk, TargetError> {
        let wrong = |reason: String| TargetError::Lun { number: config.number, reason };
        if config.number > Lun::MAX {
            return Err(wrong(format!("use 0 to {}", Lun::MAX)));
        }
        let (size, block) = (config.store.size_bytes(), u64::from(config.block_bytes));
        if !matches!(block, 512 | 4096) || size == 0 || !size.is_multiple_of(block) {
            return Err(wrong(format!("{size} B is not a multiple of its logical block of {block} B")));
        }
        let names = config.names.clone();
        names.check().map_err(wrong)?;
        let version = || env!("CARGO_PKG_VERSION").split('.').take(2).collect::<Vec<_>>().join(".");
        let limits = config.store.limits();
        Ok(Disk {
            identity: Identity {
                vendor: names.vendor.unwrap_or_else(|| "RNDTRIP".to_owned()),
                product: names.product.unwrap_or_else(|| format!("{} disk", config.store.kind())),
                revision: names.revision.unwrap_or_else(version),
                serial: names.serial.unwrap_or_else(|| format!("{:016x}", serial(&self.iqn, config.number))),
                target_name: self.iqn.clone(),
                naa: names.naa,
                t10: names.t10,
            },
            block_bytes: config.block_bytes,
            blocks: size / block,
            read_only: config.store.is_read_only(),
            is_restricted: false,
            removable: config.removable,
            is_rotational: config.store.geometry().is_some_and(|geometry| geometry.is_rotational),
            is_durable: self.effects.state.is_some(),
            write_cache: config.store.has_volatile_cache(),
            provisioning: limits
                .granularity_bytes
                .map(|granularity_bytes| Provisioning { granularity_bytes }),
            step_bytes: limits.step_bytes,
            best_bytes: limits.best_bytes,
            physical_exponent: (config.physical_bytes / config.block_bytes).max(1).ilog2() as u8,
            ports: Arc::new(Ports::new(&self.groups)),
            shared: Arc::default(),
        })
    }
}

/// Derives a serial number from the target name and the LUN, stable over restarts.
fn serial(iqn: &str, number: u16) -> u64 {
    scsi::disk::fnv_1a(iqn.bytes().chain(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use store::Ram;

    use super::*;
    use store::Store;

    use scsi::UnitAttention;

    use crate::config::{Access, Initiator, Shown};

    fn lun(number: u16, store: &Arc<dyn Store>) -> LunConfig {
        LunConfig::new(number, Arc::clone(store))
    }

    #[test]
    fn unchanged_disk_keeps_its_state_and_changes_concern_sessions_that_see_them() {
        let (a, b): (Arc<dyn Store>, Arc<dyn Store>) =
            (Arc::new(Ram::new(1 << 20)), Arc::new(Ram::new(1 << 20)));
        let sessions = Arc::new(crate::sessions::Sessions::default());
        let effects = Arc::new(SharedEffects::new(sessions, None));
        let disks = Disks::new("iqn.2026-11.example:t", vec![1], effects);
        let set = |luns: &[LunConfig]| disks.prepare(luns).map(|prepared| disks.replace(prepared));
        set(&[lun(0, &a), lun(1, &b)]).unwrap();
        let masked = Access {
            initiators: vec![Initiator {
                luns: Some(vec![Shown::same(1)]),
                ..Initiator::new("iqn.2026-11.example:i")
            }],
            ..Access::default()
        };
        let view = || disks.table().view(Some(&masked), "IQN.2026-11.example:i");
        let before = view();
        assert!(
            Arc::ptr_eq(&disks.table().view(None, "any"), &disks.table()),
            "those that see all share one"
        );
        assert_eq!(before.luns.0.keys().collect::<Vec<_>>(), [&Lun(1)]);
        assert!(before.unit(Lun(0)).is_none() && before.unit(Lun(1)).is_some());
        let shared = Arc::clone(&before.luns.0[&Lun(1)].shared);
        // Removing disk 0 concerns only sessions that saw it.
        let all = disks.table();
        set(&[lun(1, &b)]).unwrap();
        assert!(view().changes_since(&before).is_empty());
        assert!(Arc::ptr_eq(&view().luns.0[&Lun(1)].shared, &shared));
        assert_eq!(disks.table().changes_since(&all), [(Lun(1), UnitAttention::LunsChanged)]);
        // Another store under the same number is another disk.
        set(&[lun(1, &a)]).unwrap();
        assert_eq!(view().changes_since(&before), [(Lun(1), UnitAttention::LunsChanged)]);
        assert!(matches!(set(&[lun(1, &a), lun(1, &b)]), Err(TargetError::DuplicateLun(1))));
        assert!(view().luns.0.contains_key(&Lun(1)));
    }
}
