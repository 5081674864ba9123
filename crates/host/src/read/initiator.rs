//! Reads open-iscsi's records and its sessions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::text::{names, number, text};
use super::{Roots, Wanted};
use crate::facts::Unseen;
use crate::facts::initiator::{DiskFacts, InitiatorFacts, SessionFacts};

/// Settings of a record that rules judge. Only these are taken: a record also holds CHAP's user names and secrets.
const SETTINGS: [&str; 15] = [
    "node.conn[0].iscsi.DataDigest",
    "node.conn[0].iscsi.HeaderDigest",
    "node.conn[0].iscsi.MaxRecvDataSegmentLength",
    "node.conn[0].iscsi.MaxXmitDataSegmentLength",
    "node.conn[0].tcp.window_size",
    "node.conn[0].timeo.noop_out_interval",
    "node.conn[0].timeo.noop_out_timeout",
    "node.session.cmds_max",
    "node.session.iscsi.FirstBurstLength",
    "node.session.iscsi.ImmediateData",
    "node.session.iscsi.InitialR2T",
    "node.session.iscsi.MaxBurstLength",
    "node.session.nr_sessions",
    "node.session.queue_depth",
    "node.session.timeo.replacement_timeout",
];

/// At most this many records and sessions are read.
const LIMIT: usize = 1024;

/// Reads the defaults, the records and the sessions. A session without a record has one of its own in the result.
pub fn read(roots: &Roots, wanted: &Wanted, unseen: &mut Vec<Unseen>) -> Vec<InitiatorFacts> {
    let _ = wanted;
    let mut all: Vec<InitiatorFacts> = defaults(roots).into_iter().chain(records(roots, unseen)).collect();
    let sessions = roots.sys.join("class/iscsi_session");
    for name in names(&sessions).into_iter().take(LIMIT) {
        let folder = sessions.join(&name);
        let target = text(&folder.join("targetname")).unwrap_or_default();
        let portal = portal(&roots.sys, &name).unwrap_or_default();
        let session = session(&roots.sys, &folder, name);
        let own = |i: &&mut InitiatorFacts| i.target == target && i.portal == portal && i.session.is_none();
        match all.iter_mut().find(own) {
            Some(known) => known.session = Some(session),
            // Several sessions may share a record.
            None => {
                let (file, settings) = all
                    .iter()
                    .find(|i| i.target == target && i.portal == portal)
                    .map(|i| (i.file.clone(), i.settings.clone()))
                    .unwrap_or_default();
                all.push(InitiatorFacts { target, portal, file, settings, session: Some(session) });
            }
        }
    }
    all
}

/// The settings that a new record takes.
fn defaults(roots: &Roots) -> Option<InitiatorFacts> {
    let file = roots.etc.join("iscsi/iscsid.conf");
    let settings = parse_settings(&text(&file)?);
    Some(InitiatorFacts { file: Some(file.display().to_string()), settings, ..InitiatorFacts::default() })
}

/// Records: files `TARGET/ADDRESS,PORT,GROUP/INTERFACE`, or `TARGET/ADDRESS,PORT` of old versions.
fn records(roots: &Roots, unseen: &mut Vec<Unseen>) -> Vec<InitiatorFacts> {
    let var = roots.etc.parent().unwrap_or(Path::new("/")).join("var/lib/iscsi/nodes");
    let mut all = Vec::new();
    for nodes in [roots.etc.join("iscsi/nodes"), var] {
        if let Err(error) = std::fs::read_dir(&nodes)
            && error.kind() == std::io::ErrorKind::PermissionDenied
        {
            let why = format!("{} may be read by root alone", nodes.display());
            unseen.push(Unseen { what: "records of open-iscsi".to_owned(), why });
        }
        for target in names(&nodes) {
            for place in names(&nodes.join(&target)) {
                let path = nodes.join(&target).join(&place);
                let files: Vec<PathBuf> = if path.is_dir() {
                    names(&path).iter().map(|name| path.join(name)).collect()
                } else {
                    vec![path]
                };
                all.extend(files.iter().filter_map(|file| record(&target, &place, file)));
                all.truncate(LIMIT);
            }
        }
    }
    all
}

fn record(target: &str, place: &str, file: &Path) -> Option<InitiatorFacts> {
    let mut parts = place.split(',');
    let (address, port) = (parts.next()?, parts.next().unwrap_or("3260"));
    Some(InitiatorFacts {
        target: target.to_owned(),
        portal: join_portal(address, port),
        file: Some(file.display().to_string()),
        settings: parse_settings(&text(file)?),
        session: None,
    })
}

/// `10.0.0.2:3260`, `[fd00::2]:3260`.
fn join_portal(address: &str, port: &str) -> String {
    if address.contains(':') && !address.starts_with('[') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}

/// Lines `name = value`; those that no rule judges are left out.
fn parse_settings(text: &str) -> BTreeMap<String, String> {
    let line = |line: &str| {
        let (name, value) = line.split_once('=')?;
        let name = name.trim();
        SETTINGS.contains(&name).then(|| (name.to_owned(), value.trim().to_owned()))
    };
    text.lines().filter(|text| !text.trim_start().starts_with('#')).filter_map(line).collect()
}

/// The folder of a session's first connection: `connection1:0` of `session1`.
fn connection(sys: &Path, session: &str) -> Option<PathBuf> {
    let id = session.strip_prefix("session")?;
    let all = sys.join("class/iscsi_connection");
    let prefix = format!("connection{id}:");
    names(&all).into_iter().find(|name| name.starts_with(&prefix)).map(|name| all.join(name))
}

fn portal(sys: &Path, session: &str) -> Option<String> {
    let folder = connection(sys, session)?;
    let address = text(&folder.join("persistent_address")).or_else(|| text(&folder.join("address")))?;
    let port = text(&folder.join("persistent_port")).or_else(|| text(&folder.join("port")))?;
    Some(join_portal(&address, &port))
}

fn session(sys: &Path, folder: &Path, name: String) -> SessionFacts {
    let connection = connection(sys, &name).unwrap_or_else(|| folder.join("absent"));
    let flag = |path: PathBuf| match text(&path)?.as_str() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    };
    SessionFacts {
        state: text(&folder.join("state")),
        initial_r2t: flag(folder.join("initial_r2t")),
        immediate_data: flag(folder.join("immediate_data")),
        first_burst_bytes: number(&folder.join("first_burst_len")),
        max_burst_bytes: number(&folder.join("max_burst_len")),
        receive_segment_bytes: number(&connection.join("max_recv_dlength")),
        send_segment_bytes: number(&connection.join("max_xmit_dlength")),
        header_digest: flag(connection.join("header_digest")),
        data_digest: flag(connection.join("data_digest")),
        replacement_timeout_s: number(&folder.join("recovery_tmo")),
        disks: disks(sys, folder),
        name,
    }
}

/// The disks of a session: `device/target1:0:0/1:0:0:0/block/sdb` below its folder.
fn disks(sys: &Path, session: &Path) -> Vec<DiskFacts> {
    let device = session.join("device");
    let mut all = Vec::new();
    for target in names(&device).iter().filter(|name| name.starts_with("target")) {
        for unit in names(&device.join(target)) {
            let blocks = device.join(target).join(&unit).join("block");
            all.extend(names(&blocks).into_iter().map(|name| disk(sys, &blocks.join(&name), name)));
            all.truncate(LIMIT);
        }
    }
    all
}

fn disk(sys: &Path, folder: &Path, name: String) -> DiskFacts {
    let queue = folder.join("queue");
    let schedulers = text(&queue.join("scheduler")).unwrap_or_default();
    let chosen = schedulers.split_whitespace().find_map(|s| s.strip_prefix('[')?.strip_suffix(']'));
    let multipath = |holder: &String| {
        text(&sys.join("block").join(holder).join("dm/uuid")).is_some_and(|uuid| uuid.starts_with("mpath-"))
    };
    DiskFacts {
        queue_depth: number(&folder.join("device/queue_depth")),
        scheduler: chosen.map(str::to_owned),
        available_schedulers: schedulers
            .split_whitespace()
            .map(|s| s.trim_matches(['[', ']']).to_owned())
            .collect(),
        requests: number(&queue.join("nr_requests")),
        max_request_kib: number(&queue.join("max_sectors_kb")),
        hardware_max_request_kib: number(&queue.join("max_hw_sectors_kb")),
        read_ahead_kib: number(&queue.join("read_ahead_kb")),
        is_rotational: number::<u8>(&queue.join("rotational")).map(|value| value != 0),
        completion_affinity: number(&queue.join("rq_affinity")),
        merge_limit: number(&queue.join("nomerges")),
        is_multipath: names(&folder.join("holders")).iter().any(multipath),
        name,
    }
}
