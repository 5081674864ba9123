//! The logical units that an initiator sees.

use std::fmt;
use std::sync::Arc;

use iscsi::Bhs;
use iscsi::opcode::initiator as opcode;
use scsi::cdb::Extent;
use scsi::{Disk, Lun, Luns, UnitAttention};

use crate::config::{Access, Shown};
use crate::effects::SharedEffects;
use crate::unit::Unit;

/// Disks by LUN: all of a target's, or those that an initiator sees. Immutable; a change creates a new table.
pub(crate) struct Table {
    pub(crate) luns: Luns,
    /// Indexed by LUN, up to the highest one.
    pub(crate) units: Vec<Option<Arc<Unit>>>,
    pub(crate) effects: Arc<SharedEffects>,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("luns", &self.luns.0.keys()).finish_non_exhaustive()
    }
}

impl Table {
    pub(crate) fn unit(&self, lun: Lun) -> Option<&Arc<Unit>> {
        self.units.get(usize::from(lun.0))?.as_ref()
    }

    /// Tells the store of a read or a write that will be executed soon. The PDU has not been checked: it need not be one.
    #[inline]
    pub(crate) fn foresee(&self, bhs: &Bhs) {
        if bhs.opcode() == opcode::SCSI_COMMAND
            && let Some(lun) = Lun::decode(bhs.lun())
            && let Some(cdb) = bhs.0.last_chunk()
            && let Some(extent) = Extent::of_read(cdb).or_else(|| Extent::of_write(cdb))
            && let Some(disk) = self.luns.0.get(&lun)
            && let Some(unit) = self.unit(lun)
        {
            let block_bytes = u64::from(disk.block_bytes);
            let length = u64::from(extent.blocks).saturating_mul(block_bytes);
            unit.store.foresee(
                extent.lba.saturating_mul(block_bytes),
                usize::try_from(length).unwrap_or(usize::MAX),
            );
        }
    }

    /// Returns a table of no disks.
    pub(crate) fn empty(effects: Arc<SharedEffects>) -> Self {
        Self { luns: Luns::default(), units: Vec::new(), effects }
    }

    /// Returns the disks as an initiator sees them. Those that see all of them as they are share the table: a session costs
    /// little.
    pub(crate) fn view(self: &Arc<Self>, access: Option<&Access>, initiator: &str) -> Arc<Self> {
        let Some(access) = access else { return Arc::clone(self) };
        let shown: Vec<(Shown, &Disk)> = (self.luns.0.iter())
            .filter_map(|(lun, disk)| Some((access.shows(initiator, lun.0)?, disk)))
            .collect();
        let is_same = |(shown, _): &(Shown, &Disk)| shown.number == shown.disk && !shown.read_only;
        if shown.len() == self.luns.0.len() && shown.iter().all(is_same) {
            return Arc::clone(self);
        }
        let mut view = Self::empty(Arc::clone(&self.effects));
        for (Shown { number, disk: own, read_only }, disk) in shown {
            let is_restricted = read_only;
            let read_only = disk.read_only || read_only;
            view.luns.0.insert(Lun(number), Disk { read_only, is_restricted, ..disk.clone() });
            let index = usize::from(number);
            if view.units.len() <= index {
                view.units.resize_with(index + 1, || None);
            }
            view.units[index] = self.unit(Lun(own)).cloned();
        }
        Arc::new(view)
    }

    /// Returns the unit attentions due to an initiator that has seen `before`, for the logical units of this table.
    pub(crate) fn changes_since(&self, before: &Table) -> Vec<(Lun, UnitAttention)> {
        let (old, new) = (&before.luns.0, &self.luns.0);
        let is_same = |lun: &Lun| match (old.get(lun), new.get(lun)) {
            (Some(a), Some(b)) => Arc::ptr_eq(&a.shared, &b.shared),
            _ => false,
        };
        let mut changes = Vec::new();
        if old.len() != new.len() || !new.keys().all(is_same) {
            changes.extend(new.keys().map(|&lun| (lun, UnitAttention::LunsChanged)));
        }
        let resized = new.iter().filter(|(lun, disk)| is_same(lun) && old[lun].blocks != disk.blocks);
        changes.extend(resized.map(|(&lun, _)| (lun, UnitAttention::CapacityChanged)));
        changes
    }
}
