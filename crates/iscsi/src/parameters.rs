//! Operational parameters and how two sides agree on them (RFC 7143 13).

use crate::digest::Digests;

/// The negotiated parameters of a connection, from the owner's point of view.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Parameters {
    /// Largest data segment that *we* take, bytes (our MaxRecvDataSegmentLength).
    pub max_recv_bytes: u32,
    /// Largest data segment that the *peer* takes, bytes (its MaxRecvDataSegmentLength).
    pub max_send_bytes: u32,
    /// Most data of one Data-In or solicited Data-Out sequence, bytes.
    pub max_burst_bytes: u32,
    /// Most unsolicited data of one command, immediate data included, bytes.
    pub first_burst_bytes: u32,
    /// Unsolicited Data-Out must wait for an R2T.
    pub initial_r2t: bool,
    /// Data may travel with the command.
    pub immediate_data: bool,
    /// Most R2Ts outstanding per task.
    pub max_outstanding_r2t: u32,
    /// Digests of the full feature phase.
    pub digests: Digests,
    /// Seconds an initiator waits before it reconnects.
    pub time2wait: u16,
    /// Seconds that task state outlives a connection.
    pub time2retain: u16,
    /// Most connections of the session.
    pub max_connections: u16,
    /// ErrorRecoveryLevel, 0 to 2.
    pub error_recovery_level: u8,
}

impl Default for Parameters {
    /// The default values (RFC 7143 13).
    fn default() -> Self {
        Self {
            max_recv_bytes: 8192,
            max_send_bytes: 8192,
            max_burst_bytes: 262_144,
            first_burst_bytes: 65_536,
            initial_r2t: true,
            immediate_data: true,
            max_outstanding_r2t: 1,
            digests: Digests::default(),
            time2wait: 2,
            time2retain: 20,
            max_connections: 1,
            error_recovery_level: 0,
        }
    }
}

/// The preferred values of this side; the result of each key depends on the peer too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// MaxRecvDataSegmentLength that we declare, bytes.
    pub max_recv_bytes: u32,
    /// Largest data segment that we send, bytes, however much the peer takes.
    pub max_send_bytes: u32,
    /// MaxBurstLength, bytes.
    pub max_burst_bytes: u32,
    /// FirstBurstLength, bytes.
    pub first_burst_bytes: u32,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u32,
    /// MaxConnections.
    pub max_connections: u16,
    /// ErrorRecoveryLevel, 0 to 2.
    pub error_recovery_level: u8,
}

impl Default for Wishes {
    /// Chosen for fast networks: a 256 KiB write is one command PDU or one R2T, not 32.
    fn default() -> Self {
        Self {
            max_recv_bytes: 1 << 20,
            max_send_bytes: 256 << 10,
            max_burst_bytes: 1 << 20,
            first_burst_bytes: 256 << 10,
            initial_r2t: false,
            immediate_data: true,
            max_outstanding_r2t: 32,
            max_connections: 8,
            error_recovery_level: 2,
        }
    }
}

/// The answer to one offered key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The negotiated value, to be sent back.
    Value(String),
    /// A declaration that wants no answer.
    Silence,
}

const LENGTHS: std::ops::RangeInclusive<u32> = 512..=0x00ff_ffff;

/// Reads a number as the standard writes it: decimal or 0x hex.
fn number(value: &str) -> Option<u32> {
    match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => value.parse().ok(),
    }
}

fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

fn yes_no(value: bool) -> String {
    if value { "Yes" } else { "No" }.to_owned()
}

/// The answer to a value that is not allowed (RFC 7143 6.2.2).
fn reject() -> Answer {
    Answer::Value("Reject".to_owned())
}

/// Answers one operational key that the peer offered and applies the outcome; nothing when the key is not
/// an operational one (the login stage, or the unknown-key rule, answers it then).
pub fn answer(parameters: &mut Parameters, wishes: &Wishes, key: &str, value: &str) -> Option<Answer> {
    let lesser_of = |own: u32, allowed: std::ops::RangeInclusive<u32>, place: &mut u32| {
        number(value).filter(|n| allowed.contains(n)).map_or_else(reject, |n| {
            *place = n.min(own);
            Answer::Value(place.to_string())
        })
    };
    Some(match key {
        "HeaderDigest" | "DataDigest" => {
            // The first supported value of the peer's list, which is in order of preference (RFC 7143 6.2.1).
            let digests = &mut parameters.digests;
            let place = if key == "HeaderDigest" { &mut digests.header } else { &mut digests.data };
            match value.split(',').find(|v| matches!(*v, "None" | "CRC32C")) {
                Some(chosen) => {
                    *place = chosen == "CRC32C";
                    Answer::Value(chosen.to_owned())
                }
                None => reject(),
            }
        }
        "MaxRecvDataSegmentLength" => match number(value).filter(|n| LENGTHS.contains(n)) {
            Some(n) => {
                parameters.max_send_bytes = n;
                Answer::Silence
            }
            None => reject(),
        },
        "MaxBurstLength" => lesser_of(wishes.max_burst_bytes, LENGTHS, &mut parameters.max_burst_bytes),
        "FirstBurstLength" => lesser_of(wishes.first_burst_bytes, LENGTHS, &mut parameters.first_burst_bytes),
        "InitialR2T" => boolean(value).map_or_else(reject, |theirs| {
            parameters.initial_r2t = theirs || wishes.initial_r2t;
            Answer::Value(yes_no(parameters.initial_r2t))
        }),
        "ImmediateData" => boolean(value).map_or_else(reject, |theirs| {
            parameters.immediate_data = theirs && wishes.immediate_data;
            Answer::Value(yes_no(parameters.immediate_data))
        }),
        "MaxOutstandingR2T" => {
            lesser_of(wishes.max_outstanding_r2t, 1..=65535, &mut parameters.max_outstanding_r2t)
        }
        "MaxConnections" => number(value).filter(|n| (1..=65535).contains(n)).map_or_else(reject, |n| {
            parameters.max_connections = wishes.max_connections.min(n as u16).max(1);
            Answer::Value(parameters.max_connections.to_string())
        }),
        "ErrorRecoveryLevel" => number(value).filter(|n| *n <= 2).map_or_else(reject, |n| {
            parameters.error_recovery_level = wishes.error_recovery_level.min(n as u8);
            Answer::Value(parameters.error_recovery_level.to_string())
        }),
        "DefaultTime2Wait" => number(value).filter(|n| *n <= 3600).map_or_else(reject, |n| {
            // The greater of both wishes.
            parameters.time2wait = parameters.time2wait.max(n as u16);
            Answer::Value(parameters.time2wait.to_string())
        }),
        "DefaultTime2Retain" => number(value).filter(|n| *n <= 3600).map_or_else(reject, |n| {
            // The lesser; with ErrorRecoveryLevel 0 no task outlives its connection anyway.
            parameters.time2retain = parameters.time2retain.min(n as u16);
            Answer::Value(parameters.time2retain.to_string())
        }),
        // Data in order, always: OR, and our wish is Yes.
        "DataPDUInOrder" | "DataSequenceInOrder" => {
            boolean(value).map_or_else(reject, |_| Answer::Value(yes_no(true)))
        }
        // Markers are obsolete (RFC 7143 13.25); older initiators accept No.
        "IFMarker" | "OFMarker" => Answer::Value(yes_no(false)),
        "IFMarkInt" | "OFMarkInt" => Answer::Value("Irrelevant".to_owned()),
        "iSCSIProtocolLevel" => lesser_of(1, 0..=31, &mut 0),
        "TaskReporting" => {
            if value.split(',').any(|v| v == "RFC3720") {
                Answer::Value("RFC3720".to_owned())
            } else {
                reject()
            }
        }
        _ => return None,
    })
}

/// Applies the target's answer to a key that we, the initiator, offered.
///
/// Answers that a peer may not give (a higher maximum than offered) leave the offered value in force.
pub fn accept(parameters: &mut Parameters, key: &str, value: &str) {
    let lower = |place: &mut u32| {
        if let Some(n) = number(value) {
            *place = n.min(*place).max(1);
        }
    };
    match key {
        "MaxRecvDataSegmentLength" => {
            if let Some(n) = number(value).filter(|n| LENGTHS.contains(n)) {
                parameters.max_send_bytes = n;
            }
        }
        "MaxBurstLength" => lower(&mut parameters.max_burst_bytes),
        "FirstBurstLength" => lower(&mut parameters.first_burst_bytes),
        "MaxOutstandingR2T" => lower(&mut parameters.max_outstanding_r2t),
        "InitialR2T" => parameters.initial_r2t |= boolean(value).unwrap_or(true),
        "ImmediateData" => parameters.immediate_data &= boolean(value).unwrap_or(false),
        "HeaderDigest" => parameters.digests.header = value == "CRC32C",
        "DataDigest" => parameters.digests.data = value == "CRC32C",
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(parameters: &mut Parameters, key: &str, value: &str) -> String {
        match answer(parameters, &Wishes::default(), key, value) {
            Some(Answer::Value(v)) => v,
            Some(Answer::Silence) => "(silence)".into(),
            None => "(unknown)".into(),
        }
    }

    #[test]
    fn negotiates_each_result_function() {
        let p = &mut Parameters::default();
        assert_eq!(ask(p, "InitialR2T", "No"), "No");
        assert_eq!(ask(p, "InitialR2T", "Yes"), "Yes");
        assert_eq!(ask(p, "ImmediateData", "No"), "No");
        assert_eq!(ask(p, "MaxBurstLength", "16776192"), "1048576");
        assert_eq!(ask(p, "MaxBurstLength", "0x1000"), "4096");
        assert_eq!(ask(p, "MaxRecvDataSegmentLength", "262144"), "(silence)");
        assert_eq!(p.max_send_bytes, 262_144);
        assert_eq!(ask(p, "MaxConnections", "16"), "8");
        assert_eq!(ask(p, "ErrorRecoveryLevel", "1"), "1");
        assert_eq!(ask(p, "HeaderDigest", "MD5,CRC32C,None"), "CRC32C");
        assert_eq!(ask(p, "DataDigest", "None,CRC32C"), "None");
        assert_eq!(p.digests, Digests { header: true, data: false });
        assert_eq!(ask(p, "DataPDUInOrder", "No"), "Yes");
        assert_eq!(ask(p, "DefaultTime2Wait", "5"), "5");
        assert_eq!(ask(p, "DefaultTime2Retain", "0"), "0");
        assert_eq!(ask(p, "X-com.example", "1"), "(unknown)");
    }

    #[test]
    fn invalid_values_are_rejected_and_change_nothing() {
        for (key, value) in [
            ("MaxBurstLength", "511"),
            ("MaxBurstLength", "16777216"),
            ("MaxBurstLength", "-1"),
            ("InitialR2T", "yes"),
            ("MaxOutstandingR2T", "0"),
            ("HeaderDigest", "MD5"),
            ("MaxRecvDataSegmentLength", "1"),
            ("ErrorRecoveryLevel", "3"),
        ] {
            let p = &mut Parameters::default();
            assert_eq!(ask(p, key, value), "Reject", "{key}={value}");
            assert_eq!(*p, Parameters::default());
        }
    }

    #[test]
    fn a_target_cannot_raise_an_offered_value() {
        let mut p = Parameters { max_burst_bytes: 65536, ..Parameters::default() };
        accept(&mut p, "MaxBurstLength", "1048576");
        assert_eq!(p.max_burst_bytes, 65536);
        accept(&mut p, "ImmediateData", "nonsense");
        assert!(!p.immediate_data);
    }
}
