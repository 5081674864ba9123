//! What initiator and target agreed on at login (RFC 7143 13), and what the record asks for.

use super::super::draft::{Draft as _, bandwidth_delay_bytes, finding, time};
use super::super::shell::word;
use crate::facts::Facts;
use crate::facts::initiator::InitiatorFacts;
use crate::finding::{Finding, Severity};

/// RFC 7143's default FirstBurstLength (13.14), bytes. Less is a choice.
const FIRST_BURST_BYTES: u64 = 65_536;

/// RFC 7143's default MaxBurstLength (13.13), bytes.
const MAX_BURST_BYTES: u64 = 262_144;

/// Data segments below this cost a header and a call for every few packets, bytes.
const SEGMENT_BYTES: u64 = 65_536;

/// Without multipath, I/O should wait for a session at least this long, seconds; with it, at most the second.
const WAIT_S: i64 = 15;
const WAIT_MULTIPATH_S: i64 = 30;

pub(super) fn findings(facts: &Facts, initiator: &InitiatorFacts) -> Vec<Finding> {
    let rules = [
        initial_r2t(facts, initiator),
        immediate_data(initiator),
        first_burst(facts, initiator),
        max_burst(facts, initiator),
        receive_segment(initiator),
        send_segment(initiator),
        digest(initiator),
        commands(initiator),
        replacement(initiator),
        window(facts, initiator),
    ];
    rules.into_iter().flatten().collect()
}

/// `iqn... at 10.0.0.2:3260`, or the file of the defaults.
pub(super) fn subject(initiator: &InitiatorFacts) -> String {
    if initiator.target.is_empty() {
        initiator.file.clone().unwrap_or_default()
    } else {
        format!("{} at {}", initiator.target, initiator.portal)
    }
}

/// The commands that give a setting a value: in the record, which the next login takes, or in the defaults.
fn set(draft: Finding, initiator: &InitiatorFacts, name: &str, value: &str) -> Finding {
    if initiator.target.is_empty() {
        let file = initiator.file.as_deref().unwrap_or("/etc/iscsi/iscsid.conf");
        return draft.command(format!(
            "sed -i 's|^#*\\s*{}\\s*=.*|{name} = {value}|' {}",
            escaped(name),
            word(file)
        ));
    }
    let (target, portal) = (word(&initiator.target), word(&initiator.portal));
    let draft =
        draft.command(format!("iscsiadm -m node -T {target} -p {portal} -o update -n '{name}' -v {value}"));
    if initiator.session.is_none() {
        return draft;
    }
    // A session keeps what was agreed at its login.
    draft.command(format!(
        "iscsiadm -m node -T {target} -p {portal} -u && iscsiadm -m node -T {target} -p {portal} -l  # with its disks unmounted"
    ))
}

/// A name of a setting in a regular expression.
fn escaped(name: &str) -> String {
    name.replace('.', "\\.").replace('[', "\\[").replace(']', "\\]")
}

/// A setting of the record that is yes or no.
fn yes(initiator: &InitiatorFacts, name: &str) -> Option<bool> {
    match initiator.settings.get(name)?.to_ascii_lowercase().as_str() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

fn number(initiator: &InitiatorFacts, name: &str) -> Option<u64> {
    initiator.settings.get(name)?.parse().ok()
}

/// The round trip time to this target, where it is the peer that was measured.
fn rtt_us(facts: &Facts, initiator: &InitiatorFacts) -> Option<f64> {
    let path = facts.path.as_ref()?;
    let host = initiator.portal.rsplit_once(':').map_or(initiator.portal.as_str(), |(host, _)| host);
    (host.trim_matches(['[', ']']) == path.address).then_some(path.rtt?.min_us)
}

/// Each write that has no or not all of its data with the command waits for a round trip.
fn waits(draft: Finding, facts: &Facts, initiator: &InitiatorFacts) -> Finding {
    match rtt_us(facts, initiator) {
        Some(us) => draft.adds_us(us),
        None => draft,
    }
}

fn initial_r2t(facts: &Facts, initiator: &InitiatorFacts) -> Option<Finding> {
    let name = "node.session.iscsi.InitialR2T";
    let asked = yes(initiator, name);
    let agreed = initiator.session.as_ref().and_then(|session| session.initial_r2t);
    if !agreed.or(asked)? {
        return None;
    }
    let why = "A write sends no data after its command until the target's R2T has come: a round trip for each write that is larger \
               than its immediate data.";
    let draft =
        finding("iscsi-initial-r2t", Severity::Slow, &subject(initiator), "InitialR2T=Yes".to_owned(), why);
    let draft = waits(draft, facts, initiator);
    if asked == Some(false) {
        // The result is Yes if either side asks for it (RFC 7143 13.10).
        return Some(draft.other_end(
            "the target asks for it: set InitialR2T=No there (LIO: 'set parameter InitialR2T=No' in the TPG)",
        ));
    }
    Some(set(draft, initiator, name, "No"))
}

fn immediate_data(initiator: &InitiatorFacts) -> Option<Finding> {
    let name = "node.session.iscsi.ImmediateData";
    let asked = yes(initiator, name);
    let agreed = initiator.session.as_ref().and_then(|session| session.immediate_data);
    if agreed.or(asked)? {
        return None;
    }
    let why = "A command carries no data: a small write takes two PDUs instead of one, and waits for an R2T where InitialR2T=Yes.";
    let draft = finding(
        "iscsi-immediate-data-off",
        Severity::Slow,
        &subject(initiator),
        "ImmediateData=No".to_owned(),
        why,
    );
    if asked == Some(true) {
        return Some(draft.other_end("the target refuses it: set ImmediateData=Yes there"));
    }
    Some(set(draft, initiator, name, "Yes"))
}

/// A length that was agreed on is the smaller of what both sides asked for.
struct Length<'a> {
    id: &'a str,
    key: &'a str,
    name: &'a str,
    agreed: Option<u64>,
    least: u64,
    value: &'a str,
    why: &'a str,
}

fn length(facts: &Facts, initiator: &InitiatorFacts, length: &Length<'_>) -> Option<Finding> {
    let asked = number(initiator, length.name);
    let bytes = length.agreed.or(asked).filter(|bytes| *bytes < length.least)?;
    let measured = format!("{}={bytes}; RFC 7143's default is {}", length.key, length.least);
    let draft = finding(length.id, Severity::Slow, &subject(initiator), measured, length.why);
    let draft = waits(draft, facts, initiator);
    if asked.is_some_and(|asked| asked >= length.least) {
        return Some(
            draft.other_end(&format!("the target offers {bytes}: set {}={} there", length.key, length.value)),
        );
    }
    Some(set(draft, initiator, length.name, length.value))
}

fn first_burst(facts: &Facts, initiator: &InitiatorFacts) -> Option<Finding> {
    length(
        facts,
        initiator,
        &Length {
            id: "iscsi-first-burst-small",
            key: "FirstBurstLength",
            name: "node.session.iscsi.FirstBurstLength",
            agreed: initiator.session.as_ref().and_then(|session| session.first_burst_bytes),
            least: FIRST_BURST_BYTES,
            value: "262144",
            why: "A larger write waits for an R2T after this many bytes: a round trip.",
        },
    )
}

fn max_burst(facts: &Facts, initiator: &InitiatorFacts) -> Option<Finding> {
    length(
        facts,
        initiator,
        &Length {
            id: "iscsi-max-burst-small",
            key: "MaxBurstLength",
            name: "node.session.iscsi.MaxBurstLength",
            agreed: initiator.session.as_ref().and_then(|session| session.max_burst_bytes),
            least: MAX_BURST_BYTES,
            value: "16776192",
            why: "A large write needs an R2T, and a round trip, for each burst of this size; a large read is cut into as many sequences.",
        },
    )
}

fn receive_segment(initiator: &InitiatorFacts) -> Option<Finding> {
    let name = "node.conn[0].iscsi.MaxRecvDataSegmentLength";
    let agreed = initiator.session.as_ref().and_then(|session| session.receive_segment_bytes);
    let bytes = agreed.or_else(|| number(initiator, name)).filter(|bytes| *bytes < SEGMENT_BYTES)?;
    let why =
        "Data of reads comes in PDUs of this size, each with a header of 48 bytes and work at both ends.";
    let measured = format!("MaxRecvDataSegmentLength={bytes}");
    let draft = finding("iscsi-receive-segment-small", Severity::Note, &subject(initiator), measured, why);
    Some(set(draft, initiator, name, "262144"))
}

fn send_segment(initiator: &InitiatorFacts) -> Option<Finding> {
    let agreed = initiator.session.as_ref().and_then(|session| session.send_segment_bytes);
    let bytes = agreed.filter(|bytes| *bytes < SEGMENT_BYTES)?;
    let why = "Data of writes leaves in PDUs of this size, each with a header of 48 bytes and work at both ends; it also limits \
               immediate data.";
    let measured = format!("MaxRecvDataSegmentLength={bytes} of the target");
    let draft = finding("iscsi-send-segment-small", Severity::Note, &subject(initiator), measured, why);
    let name = "node.conn[0].iscsi.MaxXmitDataSegmentLength";
    // 0 takes what the target declares.
    match number(initiator, name).filter(|own| *own > 0 && *own <= bytes) {
        Some(_) => Some(set(draft, initiator, name, "0")),
        None => Some(draft.other_end("the target declares it: set MaxRecvDataSegmentLength=262144 there")),
    }
}

fn digest(initiator: &InitiatorFacts) -> Option<Finding> {
    let name = "node.conn[0].iscsi.DataDigest";
    let asked = initiator.settings.get(name).map(|value| value.starts_with("CRC32C"));
    let agreed = initiator.session.as_ref().and_then(|session| session.data_digest);
    // The defaults ask for it, or the session has it: a record alone may never be used.
    if !agreed.or(asked.filter(|_| initiator.target.is_empty()))? {
        return None;
    }
    let why = "Each byte of data passes a CRC at both ends, and reads cannot be checked by the card. It finds errors that TCP's \
               checksum misses: keep it unless the path is protected otherwise.";
    let draft = finding(
        "iscsi-data-digest",
        Severity::Note,
        &subject(initiator),
        "DataDigest=CRC32C".to_owned(),
        why,
    );
    Some(set(draft, initiator, name, "None"))
}

/// cmds_max limits a session, queue_depth each of its disks.
fn commands(initiator: &InitiatorFacts) -> Option<Finding> {
    let (limit, depth) =
        (number(initiator, "node.session.cmds_max")?, number(initiator, "node.session.queue_depth")?);
    if limit >= depth {
        return None;
    }
    let measured = format!("cmds_max {limit}, queue_depth {depth}");
    let why = "The session takes fewer commands than one of its disks could have under way.";
    let draft =
        finding("iscsi-commands-below-queue-depth", Severity::Note, &subject(initiator), measured, why);
    // A power of two from 2 to 2048 (iscsid.conf).
    let value = depth.saturating_mul(4).clamp(2, 2048).next_power_of_two().min(2048);
    Some(set(draft, initiator, "node.session.cmds_max", &value.to_string()))
}

fn replacement(initiator: &InitiatorFacts) -> Option<Finding> {
    let name = "node.session.timeo.replacement_timeout";
    let session = initiator.session.as_ref()?;
    let seconds = session.replacement_timeout_s?;
    let is_multipath = session.disks.iter().any(|disk| disk.is_multipath);
    // Negative values wait for ever, 0 not at all (open-iscsi's README).
    if is_multipath && !(0..=WAIT_MULTIPATH_S).contains(&seconds) {
        let measured = format!("replacement_timeout {seconds} s, with multipath");
        let why = "When this path fails, I/O waits this long for its session before multipath may send it by another.";
        let draft =
            finding("iscsi-replacement-timeout-long", Severity::Slow, &subject(initiator), measured, why);
        return Some(set(draft, initiator, name, "5"));
    }
    if !is_multipath && (0..WAIT_S).contains(&seconds) && !session.disks.is_empty() {
        let measured = format!("replacement_timeout {seconds} s, without multipath");
        let why = "A short interruption of the network becomes an I/O error: file systems turn read-only.";
        let draft =
            finding("iscsi-replacement-timeout-short", Severity::Broken, &subject(initiator), measured, why);
        return Some(set(draft, initiator, name, "120"));
    }
    None
}

/// open-iscsi sets SO_RCVBUF and SO_SNDBUF to window_size, which ends autotuning.
fn window(facts: &Facts, initiator: &InitiatorFacts) -> Option<Finding> {
    let name = "node.conn[0].tcp.window_size";
    let asked = number(initiator, name)?;
    let us = rtt_us(facts, initiator)?;
    let bits = facts.path.as_ref()?.bits_per_second?;
    let need = bandwidth_delay_bytes(bits, us);
    // The kernel limits the request by rmem_max, and then doubles it (socket(7)).
    let limit =
        facts.tcp.number("net.core.rmem_max").and_then(|limit| u64::try_from(limit).ok()).unwrap_or(asked);
    let granted = asked.min(limit).saturating_mul(2);
    if granted as f64 >= need {
        return None;
    }
    let measured = format!(
        "window_size {asked}, net.core.rmem_max {limit}: a buffer of {granted} bytes; {need:.0} fill the link at a round trip of {}",
        time(us)
    );
    let why = "open-iscsi gives its sockets buffers of a fixed size: a session has at most that under way.";
    let draft = finding("iscsi-window-small", Severity::Slow, &subject(initiator), measured, why)
        .carries_at_most(super::super::draft::window_rate(granted, us));
    let wanted = (need as u64).next_power_of_two();
    let draft = if wanted > limit {
        let value = wanted.to_string();
        draft.sysctl("net.core.rmem_max", &value).sysctl("net.core.wmem_max", &value)
    } else {
        draft
    };
    Some(set(draft, initiator, name, &wanted.to_string()))
}
