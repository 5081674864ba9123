//! Rules about processors.

use crate::facts::Facts;
use crate::finding::Finding;

mod clocks;
mod idle;
mod placement;
mod receive;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut all = clocks::findings(&facts.cpu);
    all.extend(idle::findings(facts));
    all.extend(placement::findings(&facts.cpu));
    all.extend(receive::findings(facts));
    all
}

/// Processors in words: `0-3,8`.
fn list(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let range =
        |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.into_iter().map(range).collect::<Vec<_>>().join(",")
}

/// Processors as a mask of sysfs, words of 32 bits: `1,0000000f`.
fn mask(cpus: &[u32]) -> String {
    let words = cpus.iter().max().map_or(1, |highest| highest / 32 + 1);
    let word = |index: u32| {
        cpus.iter().filter(|cpu| **cpu / 32 == index).fold(0_u32, |bits, cpu| bits | 1 << (cpu % 32))
    };
    let mut text = format!("{:x}", word(words - 1));
    for index in (0..words - 1).rev() {
        text.push_str(&format!(",{:08x}", word(index)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{list, mask};

    #[test]
    fn lists_and_masks_are_those_of_the_kernel() {
        assert_eq!(list(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(list(&[]), "");
        assert_eq!(mask(&[0, 1, 3]), "b");
        assert_eq!(mask(&[0, 31, 32]), "1,80000001");
        assert_eq!(mask(&[64]), "1,00000000,00000000");
        assert_eq!(mask(&[]), "0");
    }
}
