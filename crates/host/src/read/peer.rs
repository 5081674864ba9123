//! Reads facts about peer.
