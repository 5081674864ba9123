//! Reads facts about system.
