//! The commands that a simulation sends.

use fastrand::Rng;

/// The kind of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandKind {
    Read,
    BigRead,
    Write,
    WriteAtomic,
    ModeSelect,
    Test,
    Register,
    Reserve,
    Preempt,
    PreemptAndAbort,
    Clear,
}

impl CommandKind {
    pub(super) fn any(random: &mut Rng, has_shared_effects: bool) -> Self {
        match random.u8(..100) {
            0..=19 => CommandKind::Read,
            20..=24 => CommandKind::BigRead,
            25..=69 => CommandKind::Write,
            70..=74 => CommandKind::WriteAtomic,
            75..=79 => CommandKind::Test,
            _ if !has_shared_effects => CommandKind::Read,
            80..=84 => CommandKind::ModeSelect,
            85..=90 => CommandKind::Register,
            91..=93 => CommandKind::Reserve,
            94..=95 => CommandKind::Preempt,
            96..=98 => CommandKind::PreemptAndAbort,
            _ => CommandKind::Clear,
        }
    }
}
