//! The disks of a target, and their replacement while sessions continue.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use scsi::ports::{AccessState, Ports};
use scsi::{Disk, Identity, Lun, Luns, Provisioning, UnitAttention};

use crate::config::LunConfig;
use crate::effects::{Attentions, SharedEffects};
use crate::error::TargetError;
use crate::lock::lock;
use crate::state::StateFolder;
use crate::table::Table;
use crate::unit::Unit;

/// All disks of a target.
pub(crate) struct Disks {
    iqn: String,
    groups: Vec<u16>,
    table: Mutex<Arc<Table>>,
    effects: Arc<SharedEffects>,
}

impl Disks {
    pub(crate) fn new(
        configs: &[LunConfig],
        iqn: &str,
        groups: Vec<u16>,
        sessions: Arc<dyn Attentions>,
        state: Option<StateFolder>,
    ) -> Result<Self, TargetError> {
        let effects = Arc::new(SharedEffects::new(sessions, state));
        let empty = Table { luns: Luns::default(), units: Vec::new(), effects: Arc::clone(&effects) };
        let disks = Self { iqn: iqn.to_owned(), groups, table: Mutex::new(Arc::new(empty)), effects };
        disks.set(configs)?;
        Ok(disks)
    }

    /// Returns the current disks.
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&lock(&self.table))
    }

    /// Replaces the disks. A disk with the same number and store keeps its reservations, mode pages and tasks.
    ///
    /// # Errors
    /// When a disk is invalid; nothing has changed then.
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
                // Sessions whose view still has the removed disk can no longer change it.
                unit.nexuses.close();
            }
        }
        Ok(())
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

    /// Sets the ALUA state of a portal group for all disks; returns whether the group exists.
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

/// Derives a serial number from the target name and the LUN, stable over restarts.
fn serial(iqn: &str, number: u16) -> u64 {
    scsi::disk::fnv_1a(iqn.bytes().chain(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use store::Ram;

    use super::*;
    use store::Store;

    use crate::config::{Access, Initiator};

    fn lun(number: u16, store: &Arc<dyn Store>) -> LunConfig {
        LunConfig::new(number, Arc::clone(store))
    }

    #[test]
    fn unchanged_disk_keeps_its_state_and_changes_concern_sessions_that_see_them() {
        let (a, b): (Arc<dyn Store>, Arc<dyn Store>) =
            (Arc::new(Ram::new(1 << 20)), Arc::new(Ram::new(1 << 20)));
        let sessions = Arc::new(crate::sessions::Sessions::default());
        let disks =
            Disks::new(&[lun(0, &a), lun(1, &b)], "iqn.2026-11.example:t", vec![1], sessions, None).unwrap();
        let masked = Access {
            initiators: vec![Initiator { name: "iqn.2026-11.example:i".into(), luns: Some(vec![1]) }],
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
        disks.set(&[lun(1, &b)]).unwrap();
        assert!(view().changes_since(&before).is_empty());
        assert!(Arc::ptr_eq(&view().luns.0[&Lun(1)].shared, &shared));
        assert_eq!(disks.table().changes_since(&all), [(Lun(1), UnitAttention::LunsChanged)]);
        // Another store under the same number is another disk.
        disks.set(&[lun(1, &a)]).unwrap();
        assert_eq!(view().changes_since(&before), [(Lun(1), UnitAttention::LunsChanged)]);
        assert!(matches!(disks.set(&[lun(1, &a), lun(1, &b)]), Err(TargetError::DuplicateLun(1))));
        assert!(view().luns.0.contains_key(&Lun(1)));
    }
}
