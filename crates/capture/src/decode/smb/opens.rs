//! Which files are open, by their numbers.

use std::collections::VecDeque;
use std::sync::Arc;

/// The number of a file (MS-SMB2 2.2.14.1).
pub(super) type Number = [u8; 16];
/// Stands for the file of the request before, in a chain.
pub(super) const CHAINED: Number = [0xff; 16];

/// Most files that are known, and most CREATE requests whose files are to come: beyond that the oldest is forgotten.
const OPENS_MAX: usize = 256;
const CREATES_MAX: usize = 64;

/// The files of a connection.
#[derive(Debug, Default)]
pub(super) struct Opens {
    files: VecDeque<(Number, Arc<str>)>,
    creates: VecDeque<(u64, Arc<str>)>,
}

impl Opens {
    /// A key, with the memory of an equal one.
    pub(super) fn shared(&self, key: String) -> Arc<str> {
        let known = self.files.iter().rev().map(|(_, known)| known).find(|known| ***known == *key);
        known.map_or_else(|| key.into(), Arc::clone)
    }

    /// A file is to be opened.
    pub(super) fn create(&mut self, message: u64, key: Arc<str>) {
        self.forget_create(message);
        if self.creates.len() >= CREATES_MAX {
            self.creates.pop_front();
        }
        self.creates.push_back((message, key));
    }

    /// It has been opened, unless it has not.
    pub(super) fn created(&mut self, message: u64, file: Option<Number>) {
        let place = self.creates.iter().position(|(own, _)| *own == message);
        let Some((_, key)) = place.and_then(|place| self.creates.remove(place)) else { return };
        let Some(file) = file else { return };
        self.close(&file);
        if self.files.len() >= OPENS_MAX {
            self.files.pop_front();
        }
        self.files.push_back((file, key));
    }

    pub(super) fn forget_create(&mut self, message: u64) {
        self.creates.retain(|(own, _)| *own != message);
    }

    pub(super) fn forget_creates(&mut self) {
        self.creates.clear();
    }

    pub(super) fn key(&self, file: &Number) -> Option<Arc<str>> {
        self.files.iter().rev().find(|(own, _)| own == file).map(|(_, key)| Arc::clone(key))
    }

    pub(super) fn close(&mut self, file: &Number) {
        if let Some(place) = self.files.iter().position(|(own, _)| own == file) {
            self.files.remove(place);
        }
    }
}
