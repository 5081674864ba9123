//! Linux's own NVMe/TCP target and host in a guest: `analyze` shows each command that its block layer has counted. `make test-linux`
//! makes the guest and runs this; `cargo test` alone lists it as ignored.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;

use common::guest::{Guest, wires};
use common::live::analyze;

const NQN: &str = "nqn.2026-11.example.roundtrip:test";
/// How long the slow namespace takes at least, nanoseconds.
const SLOW_NS: f64 = 20e6;

/// Two namespaces of the kernel's null devices at 127.0.0.1:4420, the second one slow.
fn serve(guest: &mut Guest) {
    for module in ["virtio_pci", "virtio_net", "af_packet", "nvmet_tcp", "nvme_tcp", "null_blk nr_devices=0"]
    {
        guest.ok(&format!("modprobe {module}"));
    }
    guest.run("modprobe crc32c_intel");
    guest.ok("ip link set lo up && ip addr add 10.99.1.2/24 dev eth0 && ip link set eth0 up");
    guest.ok("mount -t configfs none /sys/kernel/config");
    let subsystem = format!("/sys/kernel/config/nvmet/subsystems/{NQN}");
    guest.ok(&format!("mkdir {subsystem} && echo 1 > {subsystem}/attr_allow_any_host"));
    for (number, device, settings) in [
        (1, "fast", "echo 0 > irqmode"),
        (2, "slow", &*format!("echo 2 > irqmode && echo {SLOW_NS} > completion_nsec")),
    ] {
        let folder = format!("/sys/kernel/config/nullb/{device}");
        guest.ok(&format!(
            "mkdir {folder} && cd {folder} && echo 64 > size && echo 1 > memory_backed && {settings} && echo 1 > power"
        ));
        let namespace = format!("{subsystem}/namespaces/{number}");
        guest.ok(&format!(
            "mkdir {namespace} && printf /dev/{device} > {namespace}/device_path && echo 1 > {namespace}/enable"
        ));
    }
    let port = "/sys/kernel/config/nvmet/ports/1";
    guest.ok(&format!(
        "mkdir {port} && cd {port} && echo tcp > addr_trtype && echo ipv4 > addr_adrfam && \
         echo 127.0.0.1 > addr_traddr && echo 4420 > addr_trsvcid && ln -s {subsystem} subsystems/"
    ));
}

/// Captures what `work` makes the guest send, and brings it to a file. The host has a queue for each of two processors.
fn captured(guest: &mut Guest, file: &Path, options: &str, work: impl FnOnce(&mut Guest)) {
    guest.ok(
        "(tcpdump -Z root -i lo -s 0 -B 262144 -U -w /tmp/capture port 4420 > /tmp/tcpdump 2>&1 & echo $! > /tmp/id); \
         for i in $(seq 100); do grep -q listening /tmp/tcpdump && exit 0; sleep 0.1; done; exit 1",
    );
    guest.ok(&format!("nvme connect -t tcp -a 127.0.0.1 -s 4420 -n {NQN} -i 2 {options}"));
    guest.ok("for i in $(seq 100); do [ -b /dev/nvme0n1 ] && [ -b /dev/nvme0n2 ] && exit 0; sleep 0.1; done; exit 1");
    work(guest);
    guest.ok(&format!("nvme disconnect -n {NQN}"));
    guest.ok(
        "sleep 1; kill $(cat /tmp/id); while kill -0 $(cat /tmp/id); do sleep 0.1; done 2>/dev/null; true",
    );
    let said = guest.ok("cat /tmp/tcpdump");
    assert!(said.contains("\n0 packets dropped by kernel"), "{said}");
    let listener = TcpListener::bind("10.99.1.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut out = std::fs::File::create(file).unwrap();
    let copying = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::copy(&mut stream, &mut out).unwrap()
    });
    guest.ok(&format!("nc 10.99.1.1 {port} < /tmp/capture"));
    let bytes = copying.join().unwrap();
    assert_eq!(bytes.to_string(), guest.ok("stat -c %s /tmp/capture").trim());
}

/// What the block layer has counted of a namespace: operations and milliseconds.
#[derive(Debug)]
struct Stat {
    reads: (u64, f64),
    writes: (u64, f64),
    discards: u64,
}

fn stat(guest: &mut Guest, namespace: u32) -> Stat {
    let text = guest.ok(&format!("cat /sys/block/nvme0n{namespace}/stat"));
    let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let timed = |at: usize| (numbers[at], numbers[at + 3] as f64);
    Stat { reads: timed(0), writes: timed(4), discards: numbers[11] }
}

/// Operations of one kind.
#[derive(Debug, Default)]
struct Sums {
    operations: u64,
    /// Their times, milliseconds.
    all_ms: f64,
    least_ms: f64,
}

/// The operations of a capture, by queue, operation, size and status.
#[derive(Debug, Default)]
struct Seen(BTreeMap<(u32, String, String, String), Sums>);

impl Seen {
    /// How many there are of an operation on the queues of I/O.
    fn of(&self, operation: &str) -> u64 {
        let all = self.0.iter().filter(|((queue, name, ..), _)| *queue > 0 && name == operation);
        all.map(|(_, sums)| sums.operations).sum()
    }

    /// The good ones of a size, and the only queue that has them.
    #[track_caller]
    fn sized(&self, operation: &str, size: &str) -> (u32, &Sums) {
        let mut all = self.0.iter().filter(|((_, name, key, _), _)| name == operation && key == size);
        let (Some(((queue, .., status), sums)), None) = (all.next(), all.next()) else {
            panic!("{operation} {size}: {self:#?}");
        };
        assert_eq!(status, "ok");
        (*queue, sums)
    }
}

/// What `analyze --ops` shows. Queues are numbered as their connections are: the administration's is the first.
fn seen(file: &Path) -> Seen {
    let ops = file.with_extension("csv");
    let result = analyze(&[file.to_str().unwrap(), "--ops", ops.to_str().unwrap()]);
    for counter in ["unmatched", "abandoned", "unanswered", "mistaken", "boundaries_lost", "skipped_bytes"] {
        assert_eq!(result["streams"][counter], 0, "{counter}: {}", result["streams"]);
    }
    let text = std::fs::read_to_string(&ops).unwrap();
    let mut lines = text.lines();
    let heading: Vec<&str> = lines.next().unwrap().split(',').collect();
    let rows: Vec<BTreeMap<&str, &str>> =
        lines.map(|line| heading.iter().copied().zip(line.split(',')).collect()).collect();
    let number = |text: &str| text.parse::<u64>().unwrap();
    let mut connections: Vec<u64> = rows.iter().map(|row| number(row["connection"])).collect();
    connections.sort_unstable();
    connections.dedup();
    assert_eq!(connections.len(), 3, "a connection for each queue");
    let mut seen = Seen::default();
    for row in rows {
        let queue = connections.binary_search(&number(row["connection"])).unwrap() as u32;
        let ended = number([row["c2_ns"], row["s2_ns"]].iter().find(|text| **text != "0").unwrap());
        let ms = (ended - number(row["request_began_ns"])) as f64 / 1e6;
        let [operation, key, status] = ["operation", "key", "status"].map(|column| row[column].to_owned());
        let sums = seen.0.entry((queue, operation, key, status)).or_default();
        sums.least_ms = if sums.operations == 0 { ms } else { sums.least_ms.min(ms) };
        sums.operations += 1;
        sums.all_ms += ms;
    }
    seen
}

/// Reads or writes blocks, one at a time, from one processor: its queue has them.
fn dd(processor: u32, namespace: u32, writes: bool, size: &str, count: u32) -> String {
    let [input, output, flag] = match writes {
        true => ["/dev/zero".to_owned(), format!("/dev/nvme0n{namespace}"), "oflag=direct".to_owned()],
        false => [format!("/dev/nvme0n{namespace}"), "/dev/null".to_owned(), "iflag=direct".to_owned()],
    };
    format!("taskset {} dd if={input} of={output} bs={size} count={count} {flag}", 1 << processor)
}

#[test]
#[ignore = "needs a guest: make test-linux"]
fn linux_nvme_agrees() {
    wires(1);
    let folder = tempfile::tempdir().unwrap();
    let mut guest = Guest::boot(&["tap1"]);
    serve(&mut guest);
    counts_each_command(&mut guest, &folder.path().join("plain.pcap"));
    counts_with_digests(&mut guest, &folder.path().join("digests.pcap"));
    counts_without_responses(&mut guest, &folder.path().join("success.pcap"));
    guest.part("all done");
    guest.send("poweroff -f");
}

/// Reads, writes with their data in the capsule (16 KiB) and behind R2T, and others; a command that fails.
fn counts_each_command(guest: &mut Guest, file: &Path) {
    let mut counted = Vec::new();
    captured(guest, file, "", |guest| {
        guest.ok(&dd(0, 1, false, "8k", 300));
        guest.ok(&dd(1, 1, true, "16k", 100));
        guest.ok(&dd(1, 1, true, "64k", 50));
        guest.ok(&dd(1, 2, false, "12k", 60));
        guest.ok("blkdiscard -f -o 0 -l 65536 /dev/nvme0n1");
        // What passes by the block layer, which does not count it.
        guest.ok("nvme flush /dev/ng0n1 -n 1 && nvme write-zeroes /dev/ng0n1 -n 1 -s 0 -c 7");
        guest.fails("nvme read /dev/ng0n1 -n 1 -s 99999999 -c 0 -z 512");
        counted = vec![stat(guest, 1), stat(guest, 2)];
    });
    let seen = seen(file);
    for (operation, size, queue, count) in
        [("Read", "8k", 1, 300), ("Write", "16k", 2, 100), ("Write", "64k", 2, 50), ("Read", "12k", 2, 60)]
    {
        let (on, sums) = seen.sized(operation, size);
        assert_eq!((on, sums.operations), (queue, count), "{operation} {size}: {seen:#?}");
    }
    let sum = |of: fn(&Stat) -> u64| counted.iter().map(of).sum::<u64>();
    assert_eq!(seen.of("Read"), sum(|stat| stat.reads.0) + 1, "{seen:#?} {counted:?}");
    assert_eq!(seen.of("Write"), sum(|stat| stat.writes.0), "{seen:#?} {counted:?}");
    assert_eq!(seen.of("DatasetMgmt"), sum(|stat| stat.discards), "{seen:#?} {counted:?}");
    assert_eq!((seen.of("Flush"), seen.of("WriteZeroes"), seen.of("Connect")), (1, 1, 2), "{seen:#?}");
    let failed: Vec<_> = seen.0.keys().filter(|(queue, .., status)| *queue > 0 && status != "ok").collect();
    assert!(matches!(failed[..], [(_, name, ..)] if name == "Read"), "{failed:?}");
    // A command takes as long as its device at least, and no longer than the block layer waits for it.
    let (_, slow) = seen.sized("Read", "12k");
    let waited_ms = counted[1].reads.1 + 1.0;
    assert!(slow.least_ms >= SLOW_NS / 1e6 && slow.all_ms <= waited_ms, "{slow:?} {counted:?}");
    let mean = slow.all_ms / slow.operations as f64;
    let least = waited_ms / counted[1].reads.0 as f64;
    guest.part(&format!("every command is counted; one of the slow namespace takes {mean:.2} ms, with the block layer {least:.2} ms"));
}

/// CRC32C of headers and data, reads and writes at once.
fn counts_with_digests(guest: &mut Guest, file: &Path) {
    let mut counted = None;
    captured(guest, file, "--hdr-digest --data-digest", |guest| {
        let (read, write) = (dd(0, 1, false, "64k", 40), dd(1, 1, true, "32k", 40));
        guest.ok(&format!("for i in 1 2 3; do {read} & {write} & done; wait"));
        counted = Some(stat(guest, 1));
    });
    let (seen, counted) = (seen(file), counted.unwrap());
    let [(of_reads, reads), (of_writes, writes)] = [seen.sized("Read", "64k"), seen.sized("Write", "32k")];
    assert_eq!((of_reads, reads.operations, of_writes, writes.operations), (1, 120, 2, 120), "{seen:#?}");
    assert_eq!((counted.writes.0, seen.of("Write")), (120, 120));
    guest.part("every command is counted with digests");
}

/// Without flow control of the submission queue, the last data of a read are its completion.
fn counts_without_responses(guest: &mut Guest, file: &Path) {
    let mut counted = Vec::new();
    captured(guest, file, "--disable-sqflow", |guest| {
        let read = dd(0, 1, false, "128k", 50);
        guest.ok(&format!("for i in 1 2 3 4; do {read} & done; wait"));
        counted = vec![stat(guest, 1), stat(guest, 2)];
    });
    let seen = seen(file);
    let (queue, reads) = seen.sized("Read", "128k");
    assert_eq!((queue, reads.operations), (1, 200), "{seen:#?}");
    assert_eq!(seen.of("Read"), counted.iter().map(|stat| stat.reads.0).sum::<u64>(), "{seen:#?}");
    guest.part("every command is counted where reads have no response");
}
