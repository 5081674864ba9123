//! Rules about cpu.

use crate::facts::Facts;
use crate::finding::Finding;

pub(super) fn findings(_facts: &Facts) -> Vec<Finding> {
    Vec::new()
}
