//! The medium of a removable disk, and prevention of its removal (SBC-3 5.12, 5.25).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::nexus::Nexus;
use crate::sense::Sense;

/// Whether the medium is loaded, for all that see the disk. Initially it is.
#[derive(Debug, Default)]
pub struct Loading {
    is_ejected: AtomicBool,
    /// The I_T nexuses that prevent a removal, and which session each belongs to.
    preventing: Mutex<Vec<(String, u64)>>,
}

impl Loading {
    fn lock(&self) -> MutexGuard<'_, Vec<(String, u64)>> {
        self.preventing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the medium is ejected.
    #[inline]
    #[must_use]
    pub fn is_ejected(&self) -> bool {
        self.is_ejected.load(Ordering::Relaxed)
    }

    /// Whether it is as it was initially.
    #[must_use]
    pub fn is_initial(&self) -> bool {
        !self.is_ejected() && self.lock().is_empty()
    }

    /// PREVENT ALLOW MEDIUM REMOVAL.
    pub fn prevent(&self, nexus: &Nexus, prevents: bool) {
        let mut preventing = self.lock();
        preventing.retain(|(name, _)| name != nexus.name());
        if prevents {
            preventing.push((nexus.name().to_owned(), nexus.instance()));
        }
    }

    /// Loads or ejects the medium. Returns whether that changed anything.
    ///
    /// # Errors
    /// MEDIUM REMOVAL PREVENTED, if it would change something and a nexus prevents it.
    pub fn load(&self, is_loaded: bool) -> Result<bool, Sense> {
        let preventing = self.lock();
        if self.is_ejected() != is_loaded {
            return Ok(false);
        }
        if !preventing.is_empty() {
            return Err(Sense::REMOVAL_PREVENTED);
        }
        self.is_ejected.store(!is_loaded, Ordering::Relaxed);
        Ok(true)
    }

    /// Ends the preventions that `keeps` rejects, by I_T nexus and session.
    pub fn forget(&self, keeps: impl Fn(&str, u64) -> bool) {
        self.lock().retain(|(name, instance)| keeps(name, *instance));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prevention_must_end_before_a_removal() {
        let (a, b) = (Nexus::new("a", 1, 1), Nexus::new("b", 1, 2));
        let loading = Loading::default();
        loading.prevent(&a, true);
        loading.prevent(&b, true);
        assert_eq!(loading.load(true), Ok(false), "it is loaded already");
        assert_eq!(loading.load(false), Err(Sense::REMOVAL_PREVENTED));
        loading.prevent(&a, false);
        assert_eq!(loading.load(false), Err(Sense::REMOVAL_PREVENTED));
        loading.forget(|_, instance| instance != 2);
        assert_eq!(loading.load(false), Ok(true));
        assert!(loading.is_ejected());
        loading.prevent(&a, true);
        assert_eq!(loading.load(true), Err(Sense::REMOVAL_PREVENTED));
    }
}
