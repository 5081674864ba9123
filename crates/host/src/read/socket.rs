//! Reads facts about socket.
