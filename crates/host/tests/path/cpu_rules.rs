//! Processors: trees of files of machines with planted faults, and rules on facts.

use std::time::Duration;

use host::facts::Facts;
use host::facts::cpu::WatchedFacts;
use host::finding::Severity;
use host::read::{Roots, Wanted};

use crate::hosts::{debian_server, storage_server};
use crate::tree::Tree;
use crate::{changes, ids, only};

fn read(tree: &Tree) -> Facts {
    let mut unseen = Vec::new();
    let cpu = host::read::cpu::read(&tree.roots(), &Wanted::default(), &mut unseen);
    Facts { cpu, unseen, ..Facts::default() }
}

/// Two processors, two policies, two idle states, a card of virtio and one of PCI.
fn machine() -> Tree {
    let tree = Tree::new();
    tree.write(
        "sys/devices/system/cpu/online: 0-1
         sys/devices/system/cpu/isolated:
         sys/devices/system/cpu/cpufreq/boost: 1
         sys/devices/system/cpu/cpuidle/current_driver: intel_idle
         sys/devices/system/cpu/cpuidle/current_governor_ro: menu
         sys/devices/system/node/node0/cpulist: 0
         sys/devices/system/node/node1/cpulist: 1
         sys/module/haltpoll/parameters/guest_halt_poll_ns: 200000
         sys/class/net/eth0/device/numa_node: 0
         sys/class/net/eth0/device/msi_irqs/30: msix
         sys/class/net/eth0/device/msi_irqs/31: msix
         sys/class/net/eth0/queues/rx-0/rps_cpus: 2
         sys/class/net/eth0/queues/rx-0/rps_flow_cnt: 2048
         sys/class/net/eth0/queues/tx-0/xps_cpus: 1
         sys/class/net/lo/mtu: 65536
         proc/irq/30/smp_affinity_list: 0-1
         proc/irq/30/effective_affinity_list: 0
         proc/irq/31/smp_affinity_list: 0-1
         proc/irq/31/effective_affinity_list:
         proc/sys/net/core/rps_sock_flow_entries: 32768
         proc/7/comm: bash",
    );
    tree.file(
        "proc/interrupts",
        "      CPU0  CPU1\n 30:   5   7  PCI-MSIX 1-edge  eth0-config\n 31:   0   0  PCI-MSIX 2-edge  eth0-rx\nNMI: 1 1 NMI\n",
    );
    for cpu in 0..2 {
        tree.write(&format!(
            "sys/devices/system/cpu/cpufreq/policy{cpu}/affected_cpus: {cpu}
             sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_driver: acpi-cpufreq
             sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_governor: schedutil
             sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_available_governors: performance powersave schedutil
             sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_min_freq: 1200000
             sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_max_freq: 3000000
             sys/devices/system/cpu/cpufreq/policy{cpu}/cpuinfo_min_freq: 1200000
             sys/devices/system/cpu/cpufreq/policy{cpu}/cpuinfo_max_freq: 3000000
             sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us: 0
             sys/devices/system/cpu/cpu{cpu}/cpuidle/state0/name: POLL
             sys/devices/system/cpu/cpu{cpu}/cpuidle/state0/latency: 0
             sys/devices/system/cpu/cpu{cpu}/cpuidle/state0/residency: 0
             sys/devices/system/cpu/cpu{cpu}/cpuidle/state0/disable: 0
             sys/devices/system/cpu/cpu{cpu}/cpuidle/state1/name: C6
             sys/devices/system/cpu/cpu{cpu}/cpuidle/state1/latency: 133
             sys/devices/system/cpu/cpu{cpu}/cpuidle/state1/residency: 600
             sys/devices/system/cpu/cpu{cpu}/cpuidle/state1/disable: {cpu}"
        ));
    }
    tree
}

#[test]
fn everything_in_the_files_is_read() {
    let tree = machine();
    let cpu = read(&tree).cpu;
    assert_eq!((cpu.online, cpu.isolated, cpu.nodes[1].cpus.clone()), (vec![0, 1], vec![], vec![1]));
    assert_eq!((cpu.clocks.len(), cpu.clocks[1].cpus.clone()), (2, vec![1]));
    assert_eq!(cpu.clocks[0].path, "devices/system/cpu/cpufreq/policy0");
    assert_eq!((cpu.clocks[0].min_khz, cpu.clocks[0].hardware_max_khz), (Some(1_200_000), Some(3_000_000)));
    assert_eq!(cpu.boost.map(|boost| (boost.is_on, boost.on_value)), Some((true, "1".to_owned())));
    assert_eq!(
        (cpu.idle_driver.as_deref(), cpu.idle_governor.as_deref()),
        (Some("intel_idle"), Some("menu"))
    );
    let states: Vec<_> = cpu
        .idle_states
        .iter()
        .map(|s| (s.name.as_str(), s.latency_us, s.residency_us, s.enabled_cpus.len()))
        .collect();
    assert_eq!(states, [("POLL", 0, 0, 2), ("C6", 133, 600, 1)]);
    assert_eq!((cpu.resume_latency_limit_us, cpu.guest_halt_poll_ns), (None, Some(200_000)));
    let [card] = &cpu.interfaces[..] else { panic!("{:?}", cpu.interfaces) };
    assert_eq!((card.interface.as_str(), card.node), ("eth0", Some(0)));
    assert_eq!((card.receive_queues[0].cpus.clone(), card.receive_queues[0].flows), (vec![1], 2048));
    assert_eq!(card.transmit_queues[0].cpus, [0]);
    let interrupts: Vec<_> =
        card.interrupts.iter().map(|i| (i.number, i.total, i.effective_cpus.clone())).collect();
    assert_eq!(interrupts, [(30, 12, vec![0]), (31, 0, vec![0, 1])]);
    assert_eq!(card.interrupts[0].name, "eth0-config");
    assert_eq!((cpu.flow_entries, cpu.runs_irqbalance), (Some(32_768), false));
    assert_eq!(ids(&read(&tree)), [""; 0]);
}

#[test]
fn a_governor_that_holds_the_lowest_clock_is_named() {
    let tree = machine();
    for policy in 0..2 {
        tree.file(&format!("sys/devices/system/cpu/cpufreq/policy{policy}/scaling_governor"), "powersave\n");
    }
    let found = only(&read(&tree), "governor");
    assert_eq!((found.severity, found.subject.as_str()), (Severity::Slow, "CPU 0-1"));
    assert_eq!(found.measured, "governor powersave of acpi-cpufreq: 1200 of 3000 MHz");
    let path = |policy| format!("devices/system/cpu/cpufreq/policy{policy}/scaling_governor");
    assert_eq!(changes(&found), [0, 1].map(|policy| format!("/sys/{} = schedutil", path(policy))));
    assert_eq!(found.commands[0], format!("echo schedutil > '/sys/{}'", path(0)));
    // Done as it says, nothing is left to say.
    for change in &found.changes {
        let host::change::Setting::Sysfs { path } = &change.setting else { panic!("{change:?}") };
        tree.file(&format!("sys/{path}"), &change.value);
    }
    assert_eq!(ids(&read(&tree)), [""; 0]);
    // With intel_pstate the governor of this name follows the load.
    for policy in 0..2 {
        tree.file(&format!("sys/devices/system/cpu/cpufreq/policy{policy}/scaling_governor"), "powersave\n");
        tree.file(&format!("sys/devices/system/cpu/cpufreq/policy{policy}/scaling_driver"), "intel_pstate\n");
    }
    assert_eq!(ids(&read(&tree)), [""; 0]);
}

#[test]
fn many_processors_are_one_command() {
    let mut facts = debian_server();
    let clock = facts.cpu.clocks[0].clone();
    facts.cpu.clocks = (0..64)
        .map(|policy| host::facts::cpu::ClockFacts {
            path: format!("devices/system/cpu/cpufreq/policy{policy}"),
            cpus: vec![policy],
            driver: Some("acpi-cpufreq".to_owned()),
            ..clock.clone()
        })
        .collect();
    let found = only(&facts, "governor");
    assert_eq!((found.subject.as_str(), found.changes.len(), found.commands.len()), ("CPU 0-63", 64, 1));
    let begin = "echo schedutil | tee /sys/devices/system/cpu/cpufreq/policy0/scaling_governor /sys/devices";
    assert!(found.commands[0].starts_with(begin), "{}", found.commands[0]);
}

#[test]
fn clocks_below_the_hardwares_are_named() {
    let tree = machine();
    tree.write(
        "sys/devices/system/cpu/cpufreq/policy1/scaling_max_freq: 2000000
         sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference: power
         sys/devices/system/cpu/cpufreq/boost: 0",
    );
    let facts = read(&tree);
    let found = only(&facts, "cpu-clock-capped");
    assert_eq!(
        (found.subject.as_str(), found.measured.as_str()),
        ("CPU 1", "at most 2000 MHz; the hardware has 3000")
    );
    assert_eq!(changes(&found), ["/sys/devices/system/cpu/cpufreq/policy1/scaling_max_freq = 3000000"]);
    assert_eq!(changes(&only(&facts, "cpu-boost-off")), ["/sys/devices/system/cpu/cpufreq/boost = 1"]);
    assert_eq!(only(&facts, "cpu-energy-preference-power").subject, "CPU 0");
    assert_eq!(ids(&facts).len(), 3);
    let tree = machine();
    std::fs::remove_file(tree.folder().join("sys/devices/system/cpu/cpufreq/boost")).expect("the file");
    tree.write("sys/devices/system/cpu/intel_pstate/no_turbo: 1");
    assert_eq!(
        changes(&only(&read(&tree), "cpu-boost-off")),
        ["/sys/devices/system/cpu/intel_pstate/no_turbo = 0"]
    );
}

#[test]
fn limits_of_the_wake_up_are_read() {
    let tree = machine();
    let limit = |values: [&str; 2]| {
        for (cpu, value) in values.iter().enumerate() {
            tree.file(&format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"), value);
        }
        read(&tree).cpu.resume_latency_limit_us
    };
    assert_eq!(limit(["0", "0"]), None);
    assert_eq!(limit(["10", "0"]), None);
    assert_eq!(limit(["10", "30"]), Some(30));
    assert_eq!(limit(["n/a", "n/a"]), Some(0));
}

#[test]
fn virtio_interrupts_are_those_of_the_device_above() {
    let tree = machine();
    std::fs::remove_dir_all(tree.folder().join("sys/class/net/eth0/device")).expect("the folder");
    tree.write("sys/devices/pci/virtio2/vendor: 1\nsys/devices/pci/msi_irqs/31: msix");
    tree.link("sys/class/net/eth0/device", "../../../devices/pci/virtio2");
    let of =
        |tree: &Tree| read(tree).cpu.interfaces[0].interrupts.iter().map(|i| i.number).collect::<Vec<_>>();
    assert_eq!(of(&tree), [31]);
    // Without a list they are known by their names.
    std::fs::remove_dir_all(tree.folder().join("sys/devices/pci/msi_irqs")).expect("the folder");
    assert_eq!(of(&tree), [30, 31]);
    assert_eq!(read(&tree).cpu.interfaces[0].node, None);
}

#[test]
fn a_running_irqbalance_is_seen() {
    let tree = machine();
    tree.write("proc/812/comm: irqbalance");
    assert!(read(&tree).cpu.runs_irqbalance);
}

#[test]
fn files_without_sense_are_no_facts() {
    let tree = Tree::new();
    tree.write(
        "sys/devices/system/cpu/online: 0-99999999999
         proc/stat: cpu0 x y
         proc/interrupts: nothing",
    );
    let facts = read(&tree);
    assert!(facts.cpu.online.is_empty() && facts.unseen.iter().any(|unseen| unseen.what == "processors"));
    assert_eq!(ids(&facts), [""; 0]);
}

#[test]
fn what_moves_while_it_is_watched_is_read_from_this_kernel() {
    let wanted = Wanted { watch: Duration::from_millis(20), ..Wanted::default() };
    let cpu = host::read::cpu::read(&Roots::default(), &wanted, &mut Vec::new());
    assert_eq!((cpu.watched_ms, cpu.watched.len()), (20, cpu.online.len()));
    assert!(
        cpu.watched
            .iter()
            .all(|w| (0.0..=1.0).contains(&w.idle_share) && (0.0..=1.0).contains(&w.softirq_share))
    );
}

#[test]
fn deep_idle_states_cost_their_wake_up() {
    let mut facts = debian_server();
    let rtt = |facts: &mut Facts, us: f64| {
        if let Some(rtt) = facts.path.as_mut().and_then(|path| path.rtt.as_mut()) {
            rtt.min_us = us;
        }
    };
    // C1E wakes up in 10 us, C6 needs a sleep of 600.
    rtt(&mut facts, 80.0);
    let found = only(&facts, "deep-c-states");
    assert_eq!(found.severity, Severity::Note);
    assert_eq!(
        found.measured,
        "C1E: 10 us to wake up, entered for 20 us and longer; the round trip takes 80.0 us"
    );
    assert_eq!(found.cost.and_then(|cost| cost.us_per_round_trip), Some(10.0));
    // That state and the deeper one, of eight processors.
    assert_eq!(changes(&found).len(), 16);
    assert_eq!(changes(&found)[0], "/sys/devices/system/cpu/cpu0/cpuidle/state2/disable = 1");
    assert_eq!(
        found.commands,
        [2, 3].map(|state| format!(
            "for c in 0 1 2 3 4 5 6 7; do echo 1 > /sys/devices/system/cpu/cpu$c/cpuidle/state{state}/disable; done"
        ))
    );
    rtt(&mut facts, 700.0);
    let found = only(&facts, "deep-c-states");
    assert_eq!(found.cost.and_then(|cost| cost.us_per_round_trip), Some(133.0));
    facts.cpu.idle_states[3].latency_us = 400;
    assert_eq!(only(&facts, "deep-c-states").severity, Severity::Slow);
    facts.cpu.resume_latency_limit_us = Some(20);
    assert_eq!(ids(&facts), [""; 0]);
    facts.cpu.resume_latency_limit_us = None;
    facts.cpu.idle_states[3].enabled_cpus.clear();
    assert_eq!(ids(&facts), [""; 0]);
    // Without a round trip time nothing is known about the sleep.
    facts.cpu.idle_states[3].enabled_cpus = vec![0];
    facts.path = None;
    assert_eq!(ids(&facts), [""; 0]);
}

#[test]
fn interrupts_on_the_far_node_are_named() {
    let mut facts = storage_server();
    for interrupt in &mut facts.cpu.interfaces[0].interrupts[..3] {
        interrupt.effective_cpus = vec![2];
    }
    facts.cpu.runs_irqbalance = true;
    let found = only(&facts, "interrupts-on-far-node");
    assert_eq!(found.measured, "3 of 8 interrupts go to CPU 2; the card is at NUMA node 1 with CPU 16-31");
    assert!(found.commands[0].starts_with("systemctl disable --now irqbalance"), "{:?}", found.commands);
    assert_eq!(
        found.commands[1..],
        [
            "echo 16 > /proc/irq/60/smp_affinity_list",
            "echo 17 > /proc/irq/61/smp_affinity_list",
            "echo 18 > /proc/irq/62/smp_affinity_list"
        ]
    );
    assert_eq!(changes(&found), [""; 0], "irqbalance would move them back");
    facts.cpu.runs_irqbalance = false;
    let found = only(&facts, "interrupts-on-far-node");
    assert_eq!(
        changes(&found),
        [
            "processors of interrupt 60 = 16",
            "processors of interrupt 61 = 17",
            "processors of interrupt 62 = 18"
        ]
    );
    // An interrupt that never came is not one of packets; a card that does not say where it is is not far.
    for interrupt in &mut facts.cpu.interfaces[0].interrupts[..3] {
        interrupt.total = 0;
    }
    assert_eq!(ids(&facts), [""; 0]);
    let mut facts = storage_server();
    facts.cpu.interfaces[0].interrupts[0].effective_cpus = vec![2];
    facts.cpu.interfaces[0].node = None;
    assert_eq!(ids(&facts), [""; 0]);
}

#[test]
fn interrupts_on_isolated_processors_are_noted() {
    let mut facts = storage_server();
    facts.cpu.interfaces[0].interrupts[0].effective_cpus = vec![31];
    facts.cpu.interfaces[0].receive_queues[2].cpus = vec![30];
    let found = only(&facts, "interrupts-on-isolated-cpu");
    assert_eq!(found.measured, "1 interrupts and 1 steered queues on isolated CPU 30-31");
}

#[test]
fn steering_by_half_is_noted() {
    let mut facts = debian_server();
    facts.cpu.interfaces[0].receive_queues[0].flows = 3000;
    let found = only(&facts, "flow-steering-incomplete");
    assert_eq!(found.measured, "queues have 3000 flows, net.core.rps_sock_flow_entries is 0");
    assert_eq!(changes(&found), ["net.core.rps_sock_flow_entries = 4096"]);
    facts.cpu.flow_entries = Some(4096);
    assert_eq!(ids(&facts), [""; 0]);
}

/// A card with one queue whose processor is busy receiving.
fn saturated() -> Facts {
    let mut facts = debian_server();
    let card = &mut facts.cpu.interfaces[0];
    card.receive_queues.truncate(1);
    card.interrupts.truncate(1);
    card.interrupts[0].moved = 40_000;
    facts.cpu.watched[0] =
        WatchedFacts { cpu: 0, softirq_share: 0.8, idle_share: 0.1, ..WatchedFacts::default() };
    facts
}

#[test]
fn one_busy_processor_for_a_card_is_named() {
    let found = only(&saturated(), "receive-on-one-cpu");
    assert_eq!(found.measured, "1 receive queue on CPU 0, which spends 80 % of its time in softirqs");
    assert_eq!(changes(&found), ["/sys/class/net/eth0/queues/rx-0/rps_cpus = fe"]);
    let mut steered = saturated();
    steered.cpu.interfaces[0].receive_queues[0].cpus = vec![1, 2];
    assert_eq!(ids(&steered), [""; 0]);
    let mut other = saturated();
    other.cpu.interfaces[0].interrupts[0].moved = 100;
    assert_eq!(ids(&other), [""; 0]);
    let mut full = saturated();
    for watched in &mut full.cpu.watched {
        watched.idle_share = 0.1;
    }
    assert_eq!(ids(&full), [""; 0]);
    let mut several = saturated();
    several.cpu.interfaces[0].receive_queues = debian_server().cpu.interfaces[0].receive_queues.clone();
    assert_eq!(only(&several, "receive-on-one-cpu").commands, ["echo 0 > /proc/irq/60/smp_affinity_list"]);
}

#[test]
fn packets_that_processors_drop_or_leave_are_named() {
    let mut facts = debian_server();
    facts.cpu.watched[3].dropped = 5;
    facts.cpu.watched[4].dropped = 2;
    let found = only(&facts, "receive-backlog-drops");
    assert_eq!(found.severity, Severity::Broken);
    assert_eq!(
        found.measured,
        "packets dropped before TCP saw them: 7 in 2.0 s; net.core.netdev_max_backlog is 1000"
    );
    assert_eq!(changes(&found), ["net.core.netdev_max_backlog = 4000"]);
    let mut facts = debian_server();
    facts.cpu.watched[3].squeezed = 20;
    assert_eq!(ids(&facts), [""; 0]);
    facts.cpu.watched[3].softirq_share = 0.6;
    let found = only(&facts, "softirq-squeezed");
    assert_eq!(found.subject, "CPU 3");
    assert_eq!(
        found.measured,
        "softirqs that stopped with packets left: 20 in 2.0 s; 60 % of the time in softirqs"
    );
    assert_eq!(changes(&found), ["net.core.netdev_budget = 600"]);
    facts.cpu.watched[3].squeezed = 19;
    assert_eq!(ids(&facts), [""; 0]);
}

#[test]
fn time_that_the_hypervisor_takes_is_named() {
    let mut facts = debian_server();
    facts.cpu.watched[5].steal_share = 0.25;
    let found = only(&facts, "cpu-stolen");
    assert_eq!(
        (found.subject.as_str(), found.measured.as_str()),
        ("CPU 5", "25 % of the time taken by the hypervisor")
    );
}
