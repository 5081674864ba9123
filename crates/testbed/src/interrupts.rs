//! The interrupts of a network card, and the CPUs that they go to.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// An interrupt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// The CPUs that it may go to, as the kernel lists them: `0-3,8`.
    pub cpus: String,
}

/// The interrupts of a card. Interfaces without hardware have none.
pub(crate) fn of(interface: &str) -> Vec<Interrupt> {
    below(Path::new("/"), interface)
}

fn below(root: &Path, interface: &str) -> Vec<Interrupt> {
    let device = root.join("sys/class/net").join(interface).join("device");
    let messages = std::fs::read_dir(device.join("msi_irqs")).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> =
        messages.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    if numbers.is_empty() {
        let one =
            std::fs::read_to_string(device.join("irq")).ok().and_then(|text| text.trim().parse::<u32>().ok());
        numbers.extend(one.filter(|number| *number > 0));
    }
    numbers.sort_unstable();
    let cpus = |number| std::fs::read_to_string(root.join(affinity(number))).ok();
    numbers
        .into_iter()
        .filter_map(|number| Some(Interrupt { number, cpus: cpus(number)?.trim().to_owned() }))
        .collect()
}

fn affinity(number: u32) -> String {
    format!("proc/irq/{number}/smp_affinity_list")
}

/// Moves all of them to one CPU. Those that the kernel manages itself stay.
pub(crate) fn steer(all: &[Interrupt], cpu: usize) {
    for interrupt in all {
        let _ = std::fs::write(Path::new("/").join(affinity(interrupt.number)), cpu.to_string());
    }
}

/// Restores their CPUs.
pub(crate) fn give_back(all: &[Interrupt]) {
    for interrupt in all {
        let _ = std::fs::write(Path::new("/").join(affinity(interrupt.number)), &interrupt.cpus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sysfs tree of a card with two interrupts, which test machines do not have.
    #[test]
    fn interrupts_of_a_card_are_found_with_their_cpus() {
        let root = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        file("sys/class/net/eth4/device/msi_irqs/31", "");
        file("sys/class/net/eth4/device/msi_irqs/30", "");
        file("proc/irq/30/smp_affinity_list", "0-3\n");
        file("proc/irq/31/smp_affinity_list", "2\n");
        let of = |number, cpus: &str| Interrupt { number, cpus: cpus.into() };
        assert_eq!(below(root.path(), "eth4"), [of(30, "0-3"), of(31, "2")]);
        assert_eq!(below(root.path(), "lo"), []);
        file("sys/class/net/old/device/irq", "31\n");
        assert_eq!(below(root.path(), "old"), [of(31, "2")]);
    }
}
