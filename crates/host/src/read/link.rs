//! Reads facts about link.
