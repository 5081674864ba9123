//! The sessions of a target by what a login asks for: TSIH and nexus.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::session::{NexusKey, Session, SessionKey};

/// All sessions, of which no two have one nexus or one TSIH. Ordered maps keep simulation runs deterministic.
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// By instance.
    all: BTreeMap<u64, Arc<Session>>,
    tsihs: BTreeMap<u16, u64>,
    nexuses: BTreeMap<NexusKey, u64>,
}

impl Registry {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<Session>> {
        self.all.values()
    }

    pub(super) fn with_tsih(&self, tsih: u16) -> Option<&Arc<Session>> {
        self.all.get(self.tsihs.get(&tsih)?)
    }

    pub(super) fn has_tsih(&self, tsih: u16) -> bool {
        self.tsihs.contains_key(&tsih)
    }

    /// The session of a key's nexus, whoever its user is.
    pub(super) fn of_nexus(&self, key: &SessionKey) -> Option<&Arc<Session>> {
        self.all.get(self.nexuses.get(&key.nexus())?)
    }

    /// A TSIH that no session has, the one of this instance where it is free. TSIH 0 requests a new session (RFC 7143
    /// 11.12.6).
    pub(super) fn free_tsih(&self, instance: u64) -> Option<u16> {
        let first = (instance as u16).max(1);
        (first..=u16::MAX).chain(1..first).find(|tsih| !self.tsihs.contains_key(tsih))
    }

    pub(super) fn insert(&mut self, session: Arc<Session>) {
        self.tsihs.insert(session.tsih, session.instance);
        self.nexuses.insert(session.key.nexus(), session.instance);
        self.all.insert(session.instance, session);
    }

    pub(super) fn remove(&mut self, instance: u64) -> Option<Arc<Session>> {
        let session = self.all.remove(&instance)?;
        self.tsihs.remove(&session.tsih);
        self.nexuses.remove(&session.key.nexus());
        Some(session)
    }
}
