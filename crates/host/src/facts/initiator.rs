//! An iSCSI initiator of this host and its disks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A target that open-iscsi on this host knows: its record, its session, its disks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InitiatorFacts {
    /// Name of the target; empty for the defaults of iscsid.conf, which new records take.
    pub target: String,
    /// Address and port of its portal: `10.0.0.2:3260`.
    pub portal: String,
    /// The file with its settings.
    pub file: Option<String>,
    /// Settings that matter here, by their names in the record: `node.session.iscsi.InitialR2T`. No user, no secret.
    pub settings: BTreeMap<String, String>,
    /// Its session, where there is one.
    pub session: Option<SessionFacts>,
}

/// A session as both ends agreed on it (RFC 7143 13).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionFacts {
    /// Its name below /sys/class/iscsi_session: `session1`.
    pub name: String,
    /// Its state: `LOGGED_IN`.
    pub state: Option<String>,
    /// InitialR2T: a write waits for the target's R2T before its first unsolicited data.
    pub initial_r2t: Option<bool>,
    /// ImmediateData: a command carries the beginning of its data.
    pub immediate_data: Option<bool>,
    /// FirstBurstLength, bytes.
    pub first_burst_bytes: Option<u64>,
    /// MaxBurstLength, bytes.
    pub max_burst_bytes: Option<u64>,
    /// MaxRecvDataSegmentLength of this host, bytes.
    pub receive_segment_bytes: Option<u64>,
    /// MaxRecvDataSegmentLength of the target, bytes.
    pub send_segment_bytes: Option<u64>,
    /// HeaderDigest is CRC32C.
    pub header_digest: Option<bool>,
    /// DataDigest is CRC32C.
    pub data_digest: Option<bool>,
    /// For how long I/O waits for a lost session, seconds.
    pub replacement_timeout_s: Option<i64>,
    /// Its disks.
    pub disks: Vec<DiskFacts>,
}

/// A disk of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskFacts {
    /// Its name: `sdb`.
    pub name: String,
    /// Commands that it takes at once.
    pub queue_depth: Option<u64>,
    /// Its scheduler.
    pub scheduler: Option<String>,
    /// Schedulers to choose from.
    pub available_schedulers: Vec<String>,
    /// Requests that its queue takes.
    pub requests: Option<u64>,
    /// The largest request, KiB.
    pub max_request_kib: Option<u64>,
    /// The largest request that the device allows, KiB.
    pub hardware_max_request_kib: Option<u64>,
    /// Read-ahead, KiB.
    pub read_ahead_kib: Option<u64>,
    /// Whether the kernel takes it for one with turning platters.
    pub is_rotational: Option<bool>,
    /// rq_affinity: 0, a completion runs anywhere; 1, near the processor that asked; 2, on it.
    pub completion_affinity: Option<u8>,
    /// nomerges: 0, all merges; 1, simple ones; 2, none.
    pub merge_limit: Option<u8>,
    /// Whether it is a path of a multipath device.
    pub is_multipath: bool,
}
