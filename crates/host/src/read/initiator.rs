//! Reads facts about initiator.
