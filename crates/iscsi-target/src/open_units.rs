//! The logical units that a connection has entered.

use std::sync::Arc;

use scsi::Lun;

use crate::fence::{Epoch, NexusTasks};
use crate::session::Session;
use crate::unit::Unit;

/// The session's tasks at the logical units that a connection uses, and their epochs as last seen.
#[derive(Debug, Default)]
pub(crate) struct OpenUnits(Vec<Option<OpenUnit>>);

#[derive(Debug)]
struct OpenUnit {
    tasks: Arc<NexusTasks>,
    epoch: Arc<Epoch>,
}

/// An epoch that has ended, whose tasks are to be dropped.
pub(crate) struct Swept {
    pub(crate) lun: Lun,
    pub(crate) epoch: Arc<Epoch>,
}

impl OpenUnits {
    /// The epoch of tasks that begin now at a logical unit, if it was entered.
    #[inline]
    pub(crate) fn epoch(&self, lun: Lun) -> Option<Arc<Epoch>> {
        self.get(lun).map(|unit| Arc::clone(&unit.epoch))
    }

    /// As [`OpenUnits::epoch`], without a count of references.
    pub(crate) fn epoch_ref(&self, lun: Lun) -> Option<&Arc<Epoch>> {
        self.get(lun).map(|unit| &unit.epoch)
    }

    #[inline]
    fn get(&self, lun: Lun) -> Option<&OpenUnit> {
        self.0.get(usize::from(lun.0))?.as_ref()
    }

    /// Whether a command may begin at a logical unit as things are: it was entered, and its epoch goes on.
    #[inline]
    pub(crate) fn is_open(&self, lun: Lun) -> bool {
        self.get(lun).is_some_and(|unit| !unit.epoch.is_aborted())
    }

    /// Whether writes of an earlier session of the nexus may still land.
    #[inline]
    pub(crate) fn has_predecessor_writes(&self, lun: Lun) -> bool {
        self.get(lun).is_some_and(|unit| unit.tasks.has_predecessor_writes())
    }

    /// Enters a logical unit; whether the session may use it.
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

    /// Goes over to the epochs that are current now; those that have ended.
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

    /// Whether this is the epoch that goes on.
    #[inline]
    pub(crate) fn is_current(&self, lun: Lun, epoch: u64) -> bool {
        self.get(lun).is_some_and(|unit| unit.epoch.number() == epoch)
    }
}
