//! Reads facts about tcp.
