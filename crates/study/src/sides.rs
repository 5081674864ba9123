//! A value for each side.

use serde::{Deserialize, Serialize};

/// A value of the client and one of the server. Files contain it as a pair in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(T, T)", into = "(T, T)")]
pub struct Sides<T: Clone> {
    /// The client's.
    pub client: T,
    /// The server's.
    pub server: T,
}

impl<T: Clone> From<(T, T)> for Sides<T> {
    fn from((client, server): (T, T)) -> Self {
        Self { client, server }
    }
}

impl<T: Clone> From<Sides<T>> for (T, T) {
    fn from(sides: Sides<T>) -> Self {
        (sides.client, sides.server)
    }
}
