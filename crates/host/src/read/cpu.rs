//! Reads facts about cpu.
