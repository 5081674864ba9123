//! The logical units that a connection has entered.

use std::sync::Arc;

use scsi::Lun;

use crate::fence::{Epoch, NexusTasks};
use crate::session::Session;
use crate::unit::Unit;

/// The entered logical units of a connection with their tasks, and the epoch that the connection last saw at each.
#[derive(Debug, Default)]
pub(crate) struct OpenUnits(Vec<Option<OpenUnit>>);

#[derive(Debug)]
struct OpenUnit {
    tasks: Arc<NexusTasks>,
    epoch: Arc<Epoch>,
}

/// An ended epoch whose tasks must be dropped.
pub(crate) struct Swept {
    pub(crate) lun: Lun,
    pub(crate) epoch: Arc<Epoch>,
}

impl OpenUnits {
    /// Returns the epoch for new tasks at a logical unit, if it was entered.
    #[inline]
    pub(crate) fn epoch(&self, lun: Lun) -> Option<Arc<Epoch>> {
        self.get(lun).map(|unit| Arc::clone(&unit.epoch))
    }

    /// As [`OpenUnits::epoch`], without cloning the reference.
    pub(crate) fn epoch_ref(&self, lun: Lun) -> Option<&Arc<Epoch>> {
        self.get(lun).map(|unit| &unit.epoch)
    }

    #[inline]
    fn get(&self, lun: Lun) -> Option<&OpenUnit> {
        self.0.get(usize::from(lun.0))?.as_ref()
    }

    /// Returns whether a logical unit was entered and its epoch has not ended, so that commands may begin.
    #[inline]
    pub(crate) fn is_open(&self, lun: Lun) -> bool {
        self.get(lun).is_some_and(|unit| !unit.epoch.is_aborted())
    }

    /// Returns whether writes of an earlier session of the nexus may still land.
    #[inline]
    pub(crate) fn has_predecessor_writes(&self, lun: Lun) -> bool {
        self.get(lun).is_some_and(|unit| unit.tasks.has_predecessor_writes())
    }

    /// Enters a logical unit; returns whether the session may use it.
    pub(crate) fn open(&mut self, lun: Lun, unit: &Arc<Unit>, session: &Arc<Session>) -> bool {
        let entry = session.tasks_at(lun, unit).and_then(|tasks| {
            let epoch = tasks.current()?;
            Some(OpenUnit { tasks, epoch })
        });
        let (is_open, index) = (entry.is_some(), usize::from(lun.0));
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = entry;
        is_open
    }

    /// Moves to the current epochs; returns those that have ended.
    pub(crate) fn sweep(&mut self) -> Vec<Swept> {
        let mut swept = Vec::new();
        for (place, lun) in self.0.iter_mut().zip(0..) {
            let Some(entry) = place.as_mut().filter(|unit| unit.epoch.is_aborted()) else { continue };
            let next = entry.tasks.current();
            swept.push(Swept { lun: Lun(lun), epoch: Arc::clone(&entry.epoch) });
            match next {
                Some(next) => entry.epoch = next,
                None => *place = None,
            }
        }
        swept
    }

    /// Returns whether this is the current epoch of a logical unit.
    #[inline]
    pub(crate) fn is_current(&self, lun: Lun, epoch: u64) -> bool {
        self.get(lun).is_some_and(|unit| unit.epoch.number() == epoch)
    }
}
