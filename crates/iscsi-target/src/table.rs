//! The logical units that an initiator sees.

use std::fmt;
use std::sync::Arc;

use iscsi::Bhs;
use iscsi::opcode::initiator as opcode;
use scsi::cdb::Extent;
use scsi::{Lun, Luns, UnitAttention};

use crate::config::Access;
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

    /// Returns the part of the table that an initiator sees. Those that see all share it: a session costs little.
    pub(crate) fn view(self: &Arc<Self>, access: Option<&Access>, initiator: &str) -> Arc<Self> {
        let is_shown = |number: u16| access.is_none_or(|access| access.shows(initiator, number));
        if self.luns.0.keys().all(|lun| is_shown(lun.0)) {
            return Arc::clone(self);
        }
        let luns = self.luns.0.iter().filter(|(lun, _)| is_shown(lun.0));
        let units = self.units.iter().zip(0_u16..).map(|(unit, n)| unit.clone().filter(|_| is_shown(n)));
        Arc::new(Self {
            luns: Luns(luns.map(|(lun, disk)| (*lun, disk.clone())).collect()),
            units: units.collect(),
            effects: Arc::clone(&self.effects),
        })
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
