//! Reads facts about path.
