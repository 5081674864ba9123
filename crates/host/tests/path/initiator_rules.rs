//! iSCSI initiators: open-iscsi's files and sessions in a tree, and rules on facts.

use host::facts::Facts;
use host::facts::initiator::InitiatorFacts;
use host::finding::Severity;
use host::read::Wanted;

use crate::hosts::{debian_server, initiator};
use crate::tree::Tree;
use crate::{changes, ids, only};

const TARGET: &str = "iqn.2026-11.example:disk";

/// A host with a record, its session and a disk.
fn machine() -> Tree {
    let tree = Tree::new();
    tree.file(
        &format!("etc/iscsi/nodes/{TARGET}/10.0.0.2,3260,1/default"),
        "# BEGIN RECORD 2.1.8\nnode.name = iqn\nnode.session.auth.username = alice\nnode.session.auth.password = hunter2\n\
         node.session.iscsi.InitialR2T = No\nnode.session.iscsi.ImmediateData = Yes\nnode.session.iscsi.FirstBurstLength = 262144\n\
         node.session.iscsi.MaxBurstLength = 16776192\nnode.session.cmds_max = 128\nnode.session.queue_depth = 32\n\
         node.conn[0].iscsi.MaxRecvDataSegmentLength = 262144\n# END RECORD\n",
    );
    tree.file(
        "etc/iscsi/iscsid.conf",
        "# node.session.queue_depth = 1\nnode.session.queue_depth = 32\nnode.session.cmds_max = 128\n",
    );
    let session = "sys/devices/platform/host3/session1";
    let unit = format!("{session}/target3:0:0/3:0:0:0");
    tree.write(&format!(
        "{session}/iscsi_session/session1/targetname: {TARGET}
         {session}/iscsi_session/session1/state: LOGGED_IN
         {session}/iscsi_session/session1/initial_r2t: 0
         {session}/iscsi_session/session1/immediate_data: 1
         {session}/iscsi_session/session1/first_burst_len: 65536
         {session}/iscsi_session/session1/max_burst_len: 262144
         {session}/iscsi_session/session1/recovery_tmo: 120
         {session}/connection1:0/iscsi_connection/connection1:0/persistent_address: 10.0.0.2
         {session}/connection1:0/iscsi_connection/connection1:0/persistent_port: 3260
         {session}/connection1:0/iscsi_connection/connection1:0/max_recv_dlength: 262144
         {session}/connection1:0/iscsi_connection/connection1:0/max_xmit_dlength: 262144
         {session}/connection1:0/iscsi_connection/connection1:0/header_digest: 0
         {session}/connection1:0/iscsi_connection/connection1:0/data_digest: 0
         {unit}/queue_depth: 32
         {unit}/block/sdb/queue/scheduler: none [mq-deadline] bfq
         {unit}/block/sdb/queue/nr_requests: 256
         {unit}/block/sdb/queue/max_sectors_kb: 1280
         {unit}/block/sdb/queue/max_hw_sectors_kb: 32767
         {unit}/block/sdb/queue/read_ahead_kb: 128
         {unit}/block/sdb/queue/rotational: 1
         {unit}/block/sdb/queue/rq_affinity: 1
         {unit}/block/sdb/queue/nomerges: 0"
    ));
    tree.link(&format!("{unit}/block/sdb/device"), "../..");
    tree.link(&format!("{session}/iscsi_session/session1/device"), "../..");
    tree.link(
        "sys/class/iscsi_session/session1",
        "../../devices/platform/host3/session1/iscsi_session/session1",
    );
    tree.link(
        "sys/class/iscsi_connection/connection1:0",
        "../../devices/platform/host3/session1/connection1:0/iscsi_connection/connection1:0",
    );
    tree
}

fn read(tree: &Tree) -> Facts {
    let mut unseen = Vec::new();
    let initiators = host::read::initiator::read(&tree.roots(), &Wanted::default(), &mut unseen);
    Facts { initiators, unseen, ..Facts::default() }
}

#[test]
fn a_record_its_session_and_its_disk_are_read() {
    let tree = machine();
    let facts = read(&tree);
    let [defaults, node] = &facts.initiators[..] else { panic!("{facts:#?}") };
    assert!(defaults.target.is_empty() && defaults.session.is_none());
    assert_eq!(defaults.settings["node.session.queue_depth"], "32");
    assert_eq!((node.target.as_str(), node.portal.as_str()), (TARGET, "10.0.0.2:3260"));
    assert_eq!(node.settings["node.session.iscsi.FirstBurstLength"], "262144");
    let session = node.session.as_ref().expect("a session");
    assert_eq!((session.name.as_str(), session.state.as_deref()), ("session1", Some("LOGGED_IN")));
    assert_eq!((session.initial_r2t, session.immediate_data), (Some(false), Some(true)));
    assert_eq!((session.first_burst_bytes, session.max_burst_bytes), (Some(65_536), Some(262_144)));
    assert_eq!((session.receive_segment_bytes, session.send_segment_bytes), (Some(262_144), Some(262_144)));
    assert_eq!(
        (session.header_digest, session.data_digest, session.replacement_timeout_s),
        (Some(false), Some(false), Some(120))
    );
    assert_eq!(session.disks, [crate::hosts::disk()]);
    assert_eq!(ids(&facts), [""; 0]);
}

#[test]
fn no_secret_is_read() {
    let tree = machine();
    tree.file(
        "etc/iscsi/iscsid.conf",
        "node.session.auth.password_in = geheim\ndiscovery.sendtargets.auth.password = geheim\n",
    );
    let json = serde_json::to_string(&read(&tree)).expect("JSON");
    for secret in ["hunter2", "geheim", "alice", "password"] {
        assert!(!json.contains(secret), "{secret} in {json}");
    }
}

#[test]
fn multipath_disks_are_recognised_by_their_holder() {
    let tree = machine();
    let unit = "sys/devices/platform/host3/session1/target3:0:0/3:0:0:0";
    tree.write(&format!("{unit}/block/sdb/holders/dm-0/dm: x\nsys/block/dm-0/dm/uuid: mpath-36001405"));
    let found = only(&read(&tree), "iscsi-replacement-timeout-long");
    assert_eq!(found.measured, "replacement_timeout 120 s, with multipath");
    tree.write("sys/block/dm-0/dm/uuid: LVM-abc");
    assert_eq!(ids(&read(&tree)), [""; 0]);
}

#[test]
fn sessions_without_a_record_are_seen() {
    let tree = machine();
    std::fs::remove_dir_all(tree.folder().join("etc/iscsi/nodes")).expect("the folder");
    let facts = read(&tree);
    assert_eq!(facts.initiators.len(), 2);
    assert_eq!(
        (facts.initiators[1].portal.as_str(), facts.initiators[1].settings.len()),
        ("10.0.0.2:3260", 0)
    );
    // Old versions have a file for a portal, in another folder.
    tree.file(&format!("var/lib/iscsi/nodes/{TARGET}/fd00::2,3261"), "node.session.queue_depth = 64\n");
    let facts = read(&tree);
    assert!(
        facts
            .initiators
            .iter()
            .any(|i| i.portal == "[fd00::2]:3261" && i.settings["node.session.queue_depth"] == "64")
    );
}

#[test]
fn a_planted_bad_record_is_named_with_commands() {
    let tree = machine();
    let node = format!("etc/iscsi/nodes/{TARGET}/10.0.0.2,3260,1/default");
    tree.file(&node, "node.session.iscsi.InitialR2T = Yes\nnode.session.iscsi.ImmediateData = No\nnode.session.cmds_max = 8\nnode.session.queue_depth = 32\n");
    let session = "sys/devices/platform/host3/session1/iscsi_session/session1";
    tree.write(&format!(
        "{session}/initial_r2t: 1\n{session}/immediate_data: 0\n{session}/first_burst_len: 4096"
    ));
    let facts = read(&tree);
    let mut found = ids(&facts);
    found.sort();
    assert_eq!(
        found,
        [
            "iscsi-commands-below-queue-depth",
            "iscsi-first-burst-small",
            "iscsi-immediate-data-off",
            "iscsi-initial-r2t"
        ]
    );
    let r2t = only(&facts, "iscsi-initial-r2t");
    assert_eq!(
        r2t.commands[0],
        format!(
            "iscsiadm -m node -T {TARGET} -p 10.0.0.2:3260 -o update -n 'node.session.iscsi.InitialR2T' -v No"
        )
    );
    assert!(r2t.commands[1].contains("-u && iscsiadm") && r2t.other_end.is_none(), "{r2t:?}");
    assert_eq!(r2t.subject, format!("{TARGET} at 10.0.0.2:3260"));
}

fn with(change: impl FnOnce(&mut InitiatorFacts)) -> Facts {
    let mut facts = debian_server();
    change(&mut facts.initiators[0]);
    facts
}

fn session(change: impl FnOnce(&mut host::facts::initiator::SessionFacts)) -> Facts {
    with(|initiator| change(initiator.session.as_mut().expect("a session")))
}

#[test]
fn what_the_target_insists_on_is_the_other_ends_matter() {
    let found = only(&session(|s| s.initial_r2t = Some(true)), "iscsi-initial-r2t");
    assert!(found.commands.is_empty() && found.other_end.is_some(), "{found:?}");
    // The peer that was measured is this target: each write waits for its round trip.
    assert_eq!(found.cost.and_then(|cost| cost.us_per_round_trip), Some(180.0));
    let found = only(&session(|s| s.immediate_data = Some(false)), "iscsi-immediate-data-off");
    assert!(found.other_end.is_some_and(|text| text.contains("ImmediateData=Yes")));
    let found = only(&session(|s| s.send_segment_bytes = Some(8192)), "iscsi-send-segment-small");
    assert_eq!(
        (found.severity, found.measured.as_str()),
        (Severity::Note, "MaxRecvDataSegmentLength=8192 of the target")
    );
    let found = only(&session(|s| s.max_burst_bytes = Some(65_536)), "iscsi-max-burst-small");
    assert_eq!(found.measured, "MaxBurstLength=65536; RFC 7143's default is 262144");
    assert!(found.other_end.is_some_and(|text| text.contains("offers 65536")));
    // A measurement of another host says nothing about this one.
    let mut facts = session(|s| s.initial_r2t = Some(true));
    facts.path.as_mut().expect("a path").address = "10.0.0.3".to_owned();
    assert_eq!(only(&facts, "iscsi-initial-r2t").cost, None);
}

#[test]
fn what_the_record_asks_for_is_mended_in_the_record() {
    let set = |name: &str, value: &str| {
        with(|initiator| {
            initiator.settings.insert(name.to_owned(), value.to_owned());
            initiator.session = None;
        })
    };
    let cases = [
        ("node.session.iscsi.InitialR2T", "Yes", "iscsi-initial-r2t", "No"),
        ("node.session.iscsi.ImmediateData", "No", "iscsi-immediate-data-off", "Yes"),
        ("node.session.iscsi.FirstBurstLength", "8192", "iscsi-first-burst-small", "262144"),
        ("node.session.iscsi.MaxBurstLength", "65536", "iscsi-max-burst-small", "16776192"),
        ("node.conn[0].iscsi.MaxRecvDataSegmentLength", "8192", "iscsi-receive-segment-small", "262144"),
        ("node.session.cmds_max", "16", "iscsi-commands-below-queue-depth", "128"),
    ];
    for (name, value, id, better) in cases {
        let facts = set(name, value);
        assert_eq!(ids(&facts), [id]);
        let command =
            format!("iscsiadm -m node -T {TARGET} -p 10.0.0.2:3260 -o update -n '{name}' -v {better}");
        assert_eq!(only(&facts, id).commands, [command]);
        assert_eq!(ids(&set(name, better)), [""; 0]);
    }
}

#[test]
fn the_defaults_are_mended_in_their_file() {
    let tree = machine();
    let conf = tree.folder().join("etc/iscsi/iscsid.conf");
    tree.file(
        "etc/iscsi/iscsid.conf",
        "# a comment\nnode.conn[0].iscsi.DataDigest = CRC32C,None\nnode.session.iscsi.InitialR2T = Yes\n",
    );
    let facts = read(&tree);
    assert_eq!(ids(&facts).len(), 2);
    for id in ["iscsi-data-digest", "iscsi-initial-r2t"] {
        let found = only(&facts, id);
        assert_eq!(found.subject, conf.display().to_string());
        let done = std::process::Command::new("sh").args(["-c", &found.commands[0]]).status().expect("sh");
        assert!(done.success());
    }
    let text = std::fs::read_to_string(&conf).expect("the file");
    assert_eq!(
        text,
        "# a comment\nnode.conn[0].iscsi.DataDigest = None\nnode.session.iscsi.InitialR2T = No\n"
    );
    assert_eq!(ids(&read(&tree)), [""; 0]);
}

#[test]
fn timeouts_fit_the_number_of_paths() {
    let timeout = |seconds, multipath| {
        session(|s| {
            s.replacement_timeout_s = Some(seconds);
            s.disks[0].is_multipath = multipath;
        })
    };
    assert_eq!(only(&timeout(120, true), "iscsi-replacement-timeout-long").severity, Severity::Slow);
    assert_eq!(
        only(&timeout(-1, true), "iscsi-replacement-timeout-long").measured,
        "replacement_timeout -1 s, with multipath"
    );
    assert_eq!(only(&timeout(5, false), "iscsi-replacement-timeout-short").severity, Severity::Broken);
    for (seconds, multipath) in [(5, true), (120, false), (-1, false), (15, false), (30, true)] {
        assert_eq!(ids(&timeout(seconds, multipath)), [""; 0], "{seconds} {multipath}");
    }
}

#[test]
fn fixed_windows_below_bandwidth_times_delay_are_named() {
    let mut facts = with(|initiator| {
        initiator.settings.insert("node.conn[0].tcp.window_size".to_owned(), "524288".to_owned());
    });
    // rmem_max of 212992 grants 425984 bytes: 18 ms at 1 Gb/s need 2.25 MB.
    facts.path.as_mut().expect("a path").rtt.as_mut().expect("a time").min_us = 18_000.0;
    let found = only(&facts, "iscsi-window-small");
    assert!(found.measured.contains("a buffer of 425984 bytes; 2250000 fill the link"), "{}", found.measured);
    let most = found.cost.and_then(|cost| cost.bits_per_second_at_most).expect("a cost");
    assert!((most - 425_984.0 * 8.0 / 0.018).abs() < 1.0, "{most}");
    assert_eq!(changes(&found), ["net.core.rmem_max = 4194304", "net.core.wmem_max = 4194304"]);
    assert!(
        found
            .commands
            .iter()
            .any(|command| command.ends_with("-n 'node.conn[0].tcp.window_size' -v 4194304"))
    );
    assert_eq!(ids(&debian_server()), [""; 0]);
}

/// Plants a fault in a disk's queue.
type Plant = fn(&mut host::facts::initiator::DiskFacts);

#[test]
fn block_queues_that_slow_are_named_with_their_file() {
    let with_disk = |change: fn(&mut host::facts::initiator::DiskFacts)| session(|s| change(&mut s.disks[0]));
    let cases: [(Plant, &str, &str, &str); 7] = [
        (|d| d.queue_depth = Some(1), "iscsi-queue-depth-low", "queue depth 1", "device/queue_depth = 32"),
        (
            |d| d.scheduler = Some("bfq".to_owned()),
            "iscsi-disk-scheduler",
            "scheduler bfq",
            "queue/scheduler = none",
        ),
        (
            |d| d.read_ahead_kib = Some(0),
            "iscsi-read-ahead-small",
            "read-ahead 0 KiB",
            "queue/read_ahead_kb = 128",
        ),
        (
            |d| d.max_request_kib = Some(64),
            "iscsi-request-size-small",
            "requests of at most 64 KiB; the device allows 32767",
            "queue/max_sectors_kb = 1280",
        ),
        (
            |d| d.requests = Some(16),
            "iscsi-requests-below-queue-depth",
            "nr_requests 16, queue depth 32",
            "queue/nr_requests = 32",
        ),
        (|d| d.merge_limit = Some(2), "iscsi-merges-off", "nomerges 2", "queue/nomerges = 0"),
        (
            |d| d.completion_affinity = Some(0),
            "iscsi-completion-affinity-off",
            "rq_affinity 0",
            "queue/rq_affinity = 1",
        ),
    ];
    for (change, id, measured, file) in cases {
        let facts = with_disk(change);
        assert_eq!(ids(&facts), [id]);
        let found = only(&facts, id);
        assert_eq!(
            (found.measured.as_str(), changes(&found)),
            (measured, vec![format!("/sys/block/sdb/{file}")])
        );
        assert_eq!(found.subject, format!("sdb ({TARGET} at 10.0.0.2:3260)"));
    }
    assert_eq!(ids(&with_disk(|d| d.queue_depth = Some(8))), [""; 0]);
    // A device that allows no more, and a disk whose scheduler has no better one, cannot be mended here.
    assert_eq!(
        ids(&with_disk(|d| (d.max_request_kib, d.hardware_max_request_kib) = (Some(64), Some(64)))),
        [""; 0]
    );
    let mut target = initiator();
    target.session = None;
    assert_eq!(ids(&Facts { initiators: vec![target], ..Facts::default() }), [""; 0]);
}
