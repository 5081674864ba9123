//! Block queues of iSCSI disks.

use super::super::draft::{Draft as _, finding};
use super::super::shell::word;
use super::session::subject;
use crate::facts::Facts;
use crate::facts::initiator::{DiskFacts, InitiatorFacts};
use crate::finding::{Finding, Severity};

/// A disk with fewer commands at once cannot hide its round trips; open-iscsi's default is 32.
const QUEUE_DEPTH: u64 = 8;

/// The kernel's default read-ahead is 128 KiB.
const READ_AHEAD_KIB: u64 = 64;

/// Requests below this are cut; the kernel's default is 1280 KiB or what the device allows.
const REQUEST_KIB: u64 = 128;

pub(super) fn findings(facts: &Facts, initiator: &InitiatorFacts) -> Vec<Finding> {
    let disks = initiator.session.iter().flat_map(|session| &session.disks);
    let rules = |disk| {
        [
            queue_depth(initiator, disk),
            scheduler(initiator, disk),
            read_ahead(initiator, disk),
            request(initiator, disk),
            requests(initiator, disk),
            merges(initiator, disk),
            affinity(facts, initiator, disk),
        ]
    };
    disks.flat_map(rules).flatten().collect()
}

/// A finding about a disk, and the file of its queue that mends it.
struct Queue<'a> {
    id: &'a str,
    severity: Severity,
    measured: String,
    why: &'a str,
    file: &'a str,
    value: String,
}

fn queue(initiator: &InitiatorFacts, disk: &DiskFacts, queue: Queue<'_>) -> Finding {
    let subject = format!("{} ({})", disk.name, subject(initiator));
    let draft = finding(queue.id, queue.severity, &subject, queue.measured, queue.why);
    draft.sysfs(&format!("block/{}/{}", disk.name, queue.file), &queue.value)
}

fn queue_depth(initiator: &InitiatorFacts, disk: &DiskFacts) -> Option<Finding> {
    let depth = disk.queue_depth.filter(|depth| *depth < QUEUE_DEPTH)?;
    let draft = queue(
        initiator,
        disk,
        Queue {
            id: "iscsi-queue-depth-low",
            severity: Severity::Slow,
            measured: format!("queue depth {depth}"),
            why: "At most this many commands are under way: the disk does no more operations in a second than this, divided by the \
              round trip time.",
            file: "device/queue_depth",
            value: "32".to_owned(),
        },
    );
    let (target, portal) = (word(&initiator.target), word(&initiator.portal));
    Some(draft.command(format!(
        "iscsiadm -m node -T {target} -p {portal} -o update -n node.session.queue_depth -v 32  # for the next login"
    )))
}

fn scheduler(initiator: &InitiatorFacts, disk: &DiskFacts) -> Option<Finding> {
    let slow = disk.scheduler.as_deref().filter(|name| ["bfq", "cfq"].contains(name))?;
    let better = ["none", "noop", "mq-deadline", "deadline"];
    let value =
        better.into_iter().find(|name| disk.available_schedulers.iter().any(|known| known == name))?;
    Some(queue(
        initiator,
        disk,
        Queue {
            id: "iscsi-disk-scheduler",
            severity: Severity::Slow,
            measured: format!("scheduler {slow}"),
            why: "The scheduler keeps the disk idle in the hope of a neighbouring request, and orders requests for a head that this \
              host does not have: the target orders them.",
            file: "queue/scheduler",
            value: value.to_owned(),
        },
    ))
}

fn read_ahead(initiator: &InitiatorFacts, disk: &DiskFacts) -> Option<Finding> {
    let kib = disk.read_ahead_kib.filter(|kib| *kib < READ_AHEAD_KIB)?;
    Some(queue(
        initiator,
        disk,
        Queue {
            id: "iscsi-read-ahead-small",
            severity: Severity::Note,
            measured: format!("read-ahead {kib} KiB"),
            why: "A program that reads a file from its beginning to its end waits a round trip for each part of this size. Random and \
              direct reads do not use it.",
            file: "queue/read_ahead_kb",
            value: "128".to_owned(),
        },
    ))
}

fn request(initiator: &InitiatorFacts, disk: &DiskFacts) -> Option<Finding> {
    let (kib, hardware) = (disk.max_request_kib?, disk.hardware_max_request_kib?);
    if kib >= REQUEST_KIB || hardware <= kib {
        return None;
    }
    Some(queue(
        initiator,
        disk,
        Queue {
            id: "iscsi-request-size-small",
            severity: Severity::Note,
            measured: format!("requests of at most {kib} KiB; the device allows {hardware}"),
            why: "Larger reads and writes are cut into several commands, each with its own round trip and work at both ends.",
            file: "queue/max_sectors_kb",
            value: hardware.min(1280).to_string(),
        },
    ))
}

fn requests(initiator: &InitiatorFacts, disk: &DiskFacts) -> Option<Finding> {
    let (requests, depth) = (disk.requests?, disk.queue_depth?);
    if requests >= depth {
        return None;
    }
    Some(queue(
        initiator,
        disk,
        Queue {
            id: "iscsi-requests-below-queue-depth",
            severity: Severity::Note,
            measured: format!("nr_requests {requests}, queue depth {depth}"),
            why: "The block queue takes fewer requests than the disk could have under way.",
            file: "queue/nr_requests",
            value: depth.to_string(),
        },
    ))
}

fn merges(initiator: &InitiatorFacts, disk: &DiskFacts) -> Option<Finding> {
    disk.merge_limit.filter(|limit| *limit == 2)?;
    Some(queue(
        initiator,
        disk,
        Queue {
            id: "iscsi-merges-off",
            severity: Severity::Note,
            measured: "nomerges 2".to_owned(),
            why: "Neighbouring requests stay apart: each takes a command and a round trip of its own.",
            file: "queue/nomerges",
            value: "0".to_owned(),
        },
    ))
}

fn affinity(facts: &Facts, initiator: &InitiatorFacts, disk: &DiskFacts) -> Option<Finding> {
    disk.completion_affinity.filter(|affinity| *affinity == 0)?;
    if facts.cpu.online.len() < 2 {
        return None;
    }
    Some(queue(
        initiator,
        disk,
        Queue {
            id: "iscsi-completion-affinity-off",
            severity: Severity::Note,
            measured: "rq_affinity 0".to_owned(),
            why: "A request is completed on the processor that received the answer, with cold caches, and all on one where the card \
              has one queue; the kernel's default is 1.",
            file: "queue/rq_affinity",
            value: "1".to_owned(),
        },
    ))
}
