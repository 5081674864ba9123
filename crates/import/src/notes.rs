//! Notes about what was not mapped as it was.

/// Something that was not mapped, or was mapped with a change of meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Where it stands: a target, a disk, an initiator or a line.
    pub place: String,
    /// What is different, and what to do.
    pub text: String,
}

/// The notes of an import.
#[derive(Debug, Default)]
pub(crate) struct Notes(Vec<Note>);

impl Notes {
    /// Adds a note. Secrets do not belong into it.
    pub(crate) fn add(&mut self, place: &str, text: impl AsRef<str>) {
        self.0.push(Note { place: plain(place), text: plain(text.as_ref()) });
    }

    pub(crate) fn into_all(self) -> Vec<Note> {
        self.0
    }
}

/// Returns a text without control characters: notes are shown on terminals, and names come from the file.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
