//! The commands that a simulation sends.

use fastrand::Rng;

/// What kinds of commands there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kinds {
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

impl Kinds {
    pub(super) fn any(random: &mut Rng, tells_others: bool) -> Self {
        match random.u8(..100) {
            0..=19 => Kinds::Read,
            20..=24 => Kinds::BigRead,
            25..=69 => Kinds::Write,
            70..=74 => Kinds::WriteAtomic,
            75..=79 => Kinds::Test,
            _ if !tells_others => Kinds::Read,
            80..=84 => Kinds::ModeSelect,
            85..=90 => Kinds::Register,
            91..=93 => Kinds::Reserve,
            94..=95 => Kinds::Preempt,
            96..=98 => Kinds::PreemptAndAbort,
            _ => Kinds::Clear,
        }
    }
}
