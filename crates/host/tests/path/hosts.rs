//! Healthy hosts, as facts: no rule has anything to say about them. The false alarm is the worse fault.

use std::collections::BTreeMap;

use host::facts::Facts;
use host::facts::cpu::{
    ClockFacts, CpuFacts, IdleStateFacts, InterruptFacts, NodeFacts, PlacementFacts, QueueFacts, SwitchFacts,
    WatchedFacts,
};
use host::facts::initiator::{DiskFacts, InitiatorFacts, SessionFacts};
use host::facts::path::{DatagramFacts, HopFacts, PathFacts, RttFacts, RttSource, SegmentFacts};
use host::facts::tcp::{RouteOptions, TcpFacts};

use crate::ids;

const GIGABIT: u64 = 1_000_000_000;

/// The kernel's defaults on Debian 12, with the memory of the machine in GiB.
fn tcp(memory_gib: u64) -> TcpFacts {
    let values = [
        ("net.core.busy_poll", "0"),
        ("net.core.busy_read", "0"),
        ("net.core.default_qdisc", "fq_codel"),
        ("net.core.netdev_budget", "300"),
        ("net.core.netdev_max_backlog", "1000"),
        ("net.core.rmem_max", "212992"),
        ("net.core.somaxconn", "4096"),
        ("net.core.wmem_max", "212992"),
        ("net.ipv4.tcp_autocorking", "1"),
        ("net.ipv4.tcp_available_congestion_control", "reno cubic"),
        ("net.ipv4.tcp_congestion_control", "cubic"),
        ("net.ipv4.tcp_moderate_rcvbuf", "1"),
        ("net.ipv4.tcp_mtu_probing", "0"),
        ("net.ipv4.tcp_notsent_lowat", "4294967295"),
        ("net.ipv4.tcp_sack", "1"),
        ("net.ipv4.tcp_slow_start_after_idle", "1"),
        ("net.ipv4.tcp_timestamps", "1"),
        ("net.ipv4.tcp_window_scaling", "1"),
    ];
    let mut sysctls: BTreeMap<String, String> =
        values.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    // A 128th of the free memory, which is somewhat less than all.
    let limit = |most: u64| (memory_gib << 30).saturating_sub(200 << 20).div_ceil(128).min(most);
    sysctls.insert("net.ipv4.tcp_rmem".to_owned(), format!("4096 131072 {}", limit(6 << 20).max(131_072)));
    sysctls.insert("net.ipv4.tcp_wmem".to_owned(), format!("4096 16384 {}", limit(4 << 20).max(65_536)));
    TcpFacts { sysctls, memory_bytes: Some(memory_gib << 30), watched_ms: 2000, ..TcpFacts::default() }
}

/// What moves on a host that works: a little of everything.
fn moved(counters: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counters.iter().map(|(name, by)| ((*name).to_owned(), *by)).collect()
}

fn cpus(count: u32) -> Vec<u32> {
    (0..count).collect()
}

fn state(index: u32, name: &str, latency_us: u32, residency_us: u32, count: u32) -> IdleStateFacts {
    IdleStateFacts { index, name: name.to_owned(), latency_us, residency_us, enabled_cpus: cpus(count) }
}

/// Idle states of a Xeon of the Skylake generation.
fn skylake(count: u32) -> Vec<IdleStateFacts> {
    vec![
        state(0, "POLL", 0, 0, count),
        state(1, "C1", 2, 2, count),
        state(2, "C1E", 10, 20, count),
        state(3, "C6", 133, 600, count),
    ]
}

fn clock(driver: &str, governor: &str, min_khz: u64, max_khz: u64) -> ClockFacts {
    ClockFacts {
        path: "devices/system/cpu/cpufreq/policy0".to_owned(),
        cpus: vec![0],
        driver: Some(driver.to_owned()),
        governor: Some(governor.to_owned()),
        available_governors: ["performance", "schedutil", "ondemand", "powersave"]
            .map(str::to_owned)
            .to_vec(),
        energy_preference: Some("balance_performance".to_owned()),
        min_khz: Some(min_khz),
        max_khz: Some(max_khz),
        hardware_min_khz: Some(min_khz),
        hardware_max_khz: Some(max_khz),
    }
}

fn watched(cpu: u32, softirq_share: f64) -> WatchedFacts {
    WatchedFacts {
        cpu,
        softirq_share,
        idle_share: 0.9 - softirq_share,
        packets: 4000,
        squeezed: 1,
        ..WatchedFacts::default()
    }
}

fn queue(name: String) -> QueueFacts {
    QueueFacts { name, ..QueueFacts::default() }
}

/// A card with queues, each with an interrupt to a processor of its own.
fn card(interface: &str, node: Option<u32>, to: &[u32]) -> PlacementFacts {
    let interrupt = |(index, cpu): (usize, &u32)| InterruptFacts {
        number: 60 + index as u32,
        name: format!("{interface}-TxRx-{index}"),
        allowed_cpus: vec![*cpu],
        effective_cpus: vec![*cpu],
        moved: 900,
        total: 1_000_000,
    };
    PlacementFacts {
        interface: interface.to_owned(),
        node,
        receive_queues: (0..to.len()).map(|index| queue(format!("rx-{index}"))).collect(),
        transmit_queues: (0..to.len()).map(|index| queue(format!("tx-{index}"))).collect(),
        interrupts: to.iter().enumerate().map(interrupt).collect(),
    }
}

/// A path that carries what its ends send.
pub(crate) fn path(bits_per_second: Option<u64>, mtu_bytes: u32, rtt_us: f64) -> PathFacts {
    let hop = |ttl, address: &str, is_peer| HopFacts {
        ttl,
        address: Some(address.to_owned()),
        rtt_us: Some(rtt_us),
        largest_answered_bytes: Some(mtu_bytes),
        is_peer,
        ..HopFacts::default()
    };
    PathFacts {
        peer: "array:3260".to_owned(),
        address: "10.0.0.2".to_owned(),
        port: Some(3260),
        interface: Some("eth0".to_owned()),
        interface_mtu_bytes: Some(mtu_bytes),
        bits_per_second,
        route_mtu_bytes: Some(mtu_bytes),
        rtt: Some(RttFacts { min_us: rtt_us, median_us: rtt_us * 1.2, samples: 7, by: RttSource::Handshake }),
        datagrams: Some(DatagramFacts {
            largest_answered_bytes: Some(mtu_bytes),
            ..DatagramFacts::default()
        }),
        segments: Some(SegmentFacts {
            full_bytes: mtu_bytes,
            largest_delivered_bytes: Some(mtu_bytes),
            smallest_lost_bytes: None,
        }),
        hops: vec![hop(1, "10.0.1.1", false), hop(2, "10.0.0.2", true)],
        probes: 6,
    }
}

/// What open-iscsi and a target with RFC 7143's defaults agree on.
pub(crate) fn initiator() -> InitiatorFacts {
    let settings = [
        ("node.session.iscsi.InitialR2T", "No"),
        ("node.session.iscsi.ImmediateData", "Yes"),
        ("node.session.iscsi.FirstBurstLength", "262144"),
        ("node.session.iscsi.MaxBurstLength", "16776192"),
        ("node.conn[0].iscsi.MaxRecvDataSegmentLength", "262144"),
        ("node.conn[0].iscsi.MaxXmitDataSegmentLength", "0"),
        ("node.conn[0].iscsi.DataDigest", "None"),
        ("node.conn[0].tcp.window_size", "524288"),
        ("node.session.cmds_max", "128"),
        ("node.session.queue_depth", "32"),
        ("node.session.timeo.replacement_timeout", "120"),
    ];
    InitiatorFacts {
        target: "iqn.2026-11.example:disk".to_owned(),
        portal: "10.0.0.2:3260".to_owned(),
        file: Some("/etc/iscsi/nodes/iqn.2026-11.example:disk/10.0.0.2,3260,1/default".to_owned()),
        settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        session: Some(SessionFacts {
            name: "session1".to_owned(),
            state: Some("LOGGED_IN".to_owned()),
            initial_r2t: Some(false),
            immediate_data: Some(true),
            first_burst_bytes: Some(65_536),
            max_burst_bytes: Some(262_144),
            receive_segment_bytes: Some(262_144),
            send_segment_bytes: Some(262_144),
            header_digest: Some(false),
            data_digest: Some(false),
            replacement_timeout_s: Some(120),
            disks: vec![disk()],
        }),
    }
}

pub(crate) fn disk() -> DiskFacts {
    DiskFacts {
        name: "sdb".to_owned(),
        queue_depth: Some(32),
        scheduler: Some("mq-deadline".to_owned()),
        available_schedulers: ["none", "mq-deadline", "bfq"].map(str::to_owned).to_vec(),
        requests: Some(256),
        max_request_kib: Some(1280),
        hardware_max_request_kib: Some(32_767),
        read_ahead_kib: Some(128),
        is_rotational: Some(true),
        completion_affinity: Some(1),
        merge_limit: Some(0),
        is_multipath: false,
    }
}

/// A server with Debian 12 as it is installed, and an iSCSI disk over 1 Gb/s.
pub(crate) fn debian_server() -> Facts {
    let mut cpu = CpuFacts {
        online: cpus(8),
        nodes: vec![NodeFacts { node: 0, cpus: cpus(8) }],
        clocks: vec![clock("intel_pstate", "powersave", 800_000, 3_600_000)],
        boost: Some(SwitchFacts {
            path: "devices/system/cpu/intel_pstate/no_turbo".to_owned(),
            is_on: true,
            on_value: "0".to_owned(),
        }),
        idle_driver: Some("intel_idle".to_owned()),
        idle_governor: Some("menu".to_owned()),
        idle_states: skylake(8),
        interfaces: vec![card("eth0", Some(0), &[0, 1, 2, 3])],
        flow_entries: Some(0),
        watched_ms: 2000,
        watched: cpus(8).into_iter().map(|cpu| watched(cpu, 0.05)).collect(),
        ..CpuFacts::default()
    };
    // The network's configuration interrupt never came.
    cpu.interfaces[0].interrupts.push(InterruptFacts {
        number: 59,
        name: "eth0".to_owned(),
        effective_cpus: vec![7],
        ..InterruptFacts::default()
    });
    let tcp = TcpFacts {
        moved: moved(&[
            ("OutSegs", 9000),
            ("RetransSegs", 4),
            ("TCPTimeouts", 1),
            ("TCPDSACKRecv", 1),
            ("TCPAutoCorking", 30),
            ("TCPOrigDataSent", 8000),
        ]),
        ..tcp(32)
    };
    Facts {
        cpu,
        tcp,
        path: Some(path(Some(GIGABIT), 1500, 180.0)),
        initiators: vec![initiator()],
        ..Facts::default()
    }
}

/// A laptop on battery and wireless, which talks to hosts that are down, over a tunnel with a smaller MTU that is announced.
fn laptop() -> Facts {
    let cpu = CpuFacts {
        online: cpus(4),
        clocks: vec![ClockFacts {
            energy_preference: Some("balance_power".to_owned()),
            ..clock("intel_pstate", "powersave", 400_000, 4_200_000)
        }],
        idle_states: vec![
            state(0, "POLL", 0, 0, 4),
            state(1, "C1_ACPI", 1, 1, 4),
            state(2, "C3_ACPI", 1048, 3144, 4),
        ],
        interfaces: vec![card("wlp3s0", None, &[2])],
        watched_ms: 2000,
        watched: cpus(4).into_iter().map(|cpu| watched(cpu, 0.02)).collect(),
        ..CpuFacts::default()
    };
    let mut path = path(None, 1280, 9000.0);
    path.interface_mtu_bytes = Some(1500);
    path.hops[0].announced_mtu_bytes = Some(1280);
    let tcp = TcpFacts {
        moved: moved(&[
            ("OutSegs", 300),
            ("RetransSegs", 25),
            ("TCPSynRetrans", 24),
            ("TCPTimeouts", 12),
            ("ListenDrops", 0),
        ]),
        ..tcp(8)
    };
    Facts { cpu, tcp, path: Some(path), ..Facts::default() }
}

/// A small virtual machine: one queue, no clock to set, no rate of its interface, a moment of steal.
fn virtual_machine() -> Facts {
    let mut card = card("eth0", None, &[1]);
    card.interrupts[0].moved = 40_000;
    let cpu = CpuFacts {
        online: cpus(2),
        idle_driver: Some("haltpoll".to_owned()),
        idle_states: vec![state(0, "POLL", 0, 0, 2), state(1, "haltpoll idle", 1, 1, 2)],
        guest_halt_poll_ns: Some(200_000),
        interfaces: vec![card],
        watched_ms: 2000,
        // Busy, and so is its other processor: steering would gain nothing.
        watched: vec![
            WatchedFacts { cpu: 0, idle_share: 0.1, steal_share: 0.03, ..WatchedFacts::default() },
            WatchedFacts { cpu: 1, softirq_share: 0.6, ..WatchedFacts::default() },
        ],
        ..CpuFacts::default()
    };
    Facts { cpu, tcp: tcp(1), path: Some(path(None, 1500, 400.0)), ..Facts::default() }
}

/// A storage server of two nodes with 25 Gb/s and jumbo frames, tuned by hand.
pub(crate) fn storage_server() -> Facts {
    let mut tcp = tcp(256);
    for (name, value) in [
        ("net.ipv4.tcp_rmem", "4096 131072 33554432"),
        ("net.ipv4.tcp_wmem", "4096 131072 33554432"),
        ("net.ipv4.tcp_slow_start_after_idle", "0"),
        ("net.core.busy_read", "50"),
        ("net.core.rmem_max", "33554432"),
        ("net.ipv4.tcp_notsent_lowat", "131072"),
    ] {
        tcp.sysctls.insert(name.to_owned(), value.to_owned());
    }
    tcp.routes = vec![RouteOptions {
        route: "10.0.0.0/24 dev eth0".to_owned(),
        rto_min_ms: Some(5),
        is_quick_ack: true,
        ..RouteOptions::default()
    }];
    let cpu = CpuFacts {
        online: cpus(32),
        isolated: vec![30, 31],
        nodes: vec![
            NodeFacts { node: 0, cpus: (0..16).collect() },
            NodeFacts { node: 1, cpus: (16..32).collect() },
        ],
        clocks: vec![clock("intel_pstate", "performance", 800_000, 3_700_000)],
        idle_states: skylake(32),
        resume_latency_limit_us: Some(2),
        interfaces: vec![card("eth0", Some(1), &[16, 17, 18, 19, 20, 21, 22, 23])],
        flow_entries: Some(32_768),
        watched_ms: 2000,
        watched: cpus(32).into_iter().map(|cpu| watched(cpu, 0.7)).collect(),
        ..CpuFacts::default()
    };
    Facts {
        cpu,
        tcp,
        path: Some(path(Some(25 * GIGABIT), 9000, 45.0)),
        initiators: vec![initiator()],
        ..Facts::default()
    }
}

/// A container: its own network namespace, no processors to see, few parameters.
fn container() -> Facts {
    let mut tcp = tcp(4);
    tcp.sysctls.retain(|name, _| name.starts_with("net.ipv4.") || name == "net.core.somaxconn");
    tcp.memory_bytes = None;
    Facts { tcp, path: Some(path(None, 1500, 60.0)), ..Facts::default() }
}

/// A desktop with an AMD processor whose governor is the driver's default, and a switch port of 2.5 Gb/s.
fn desktop() -> Facts {
    let cpu = CpuFacts {
        online: cpus(16),
        clocks: vec![
            clock("acpi-cpufreq", "schedutil", 2_200_000, 3_700_000),
            clock("amd-pstate-epp", "powersave", 400_000, 5_000_000),
        ],
        boost: Some(SwitchFacts {
            path: "devices/system/cpu/cpufreq/boost".to_owned(),
            is_on: true,
            on_value: "1".to_owned(),
        }),
        idle_states: vec![state(0, "POLL", 0, 0, 16), state(1, "C1", 1, 2, 16), state(2, "C2", 18, 36, 16)],
        interfaces: vec![card("enp5s0", None, &[3])],
        ..CpuFacts::default()
    };
    Facts { cpu, tcp: tcp(64), path: Some(path(Some(2_500_000_000), 1500, 300.0)), ..Facts::default() }
}

#[test]
fn healthy_hosts_have_no_finding() {
    let hosts = [
        ("Debian server", debian_server()),
        ("laptop", laptop()),
        ("virtual machine", virtual_machine()),
        ("storage server", storage_server()),
        ("container", container()),
        ("desktop", desktop()),
        ("nothing seen", Facts::default()),
    ];
    for (name, facts) in hosts {
        assert_eq!(ids(&facts), [""; 0], "{name}: {:#?}", host::check::findings(&facts));
        // A recorded host is judged as the one that was read.
        let json = serde_json::to_string(&facts).expect("JSON");
        let again: Facts = serde_json::from_str(&json).expect("facts");
        assert_eq!(again, facts, "{name}");
    }
}
