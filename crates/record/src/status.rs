//! How a server answered a request.

use crate::exchange::AnswerError;
use crate::word::Word;

/// The status of an answer, as its protocol states it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// Its protocol has none, or it was not seen.
    #[default]
    Unknown,
    /// A success that has no number.
    Good,
    /// An HTTP status (RFC 9110 15).
    Http(u16),
    /// A gRPC status.
    Grpc(u8),
    /// The stream was reset with this HTTP/2 error code (RFC 9113 7).
    Reset(u32),
    /// An error code of five characters (SQLSTATE).
    Sql([u8; 5]),
    /// A number of the protocol.
    Code(u32),
    /// An error's name.
    Error(Word),
    /// The name of an answer that is neither an error nor a plain success: what was asked for does not exist, or goes on.
    Answer(Word),
    /// The alert with which TLS ended a connection (RFC 8446 6).
    Alert(u8),
}

/// Error numbers of MySQL and MariaDB: disk and files, memory, connections, shutdown, a full table, threads, a limit of a user, a server
/// that may only read, statements that were ended.
const MYSQL_FAILURES: &[u32] = &[
    1021, 1023, 1024, 1026, 1030, 1037, 1038, 1040, 1041, 1053, 1114, 1135, 1203, 1226, 1290, 1317, 1927,
    1969, 3024,
];

impl Status {
    /// Its text, for tables; empty if it is unknown.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Status::Unknown => String::new(),
            Status::Good => "ok".to_owned(),
            Status::Http(code) => code.to_string(),
            Status::Grpc(code) => format!("grpc {code}"),
            Status::Reset(code) => format!("reset {code}"),
            Status::Sql(code) => Word::new(&code).to_string(),
            Status::Code(code) => code.to_string(),
            Status::Error(name) | Status::Answer(name) => name.to_string(),
            Status::Alert(code) => match alert(code) {
                Some(name) => format!("tls {name}"),
                None => format!("tls alert {code}"),
            },
        }
    }

    /// The error with which a service failed to do what it was asked. Answers about the request itself are none: a missing page, a
    /// wrong statement, a missing key.
    #[must_use]
    pub fn error(self) -> Option<AnswerError> {
        let is_failure = match self {
            Status::Http(code) => {
                let is_failure = code == 429 || (500..600).contains(&code);
                return is_failure.then_some(AnswerError::Http(code));
            }
            // UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE, DATA_LOSS.
            Status::Grpc(code) => matches!(code, 2 | 4 | 8 | 13 | 14 | 15),
            // MySQL's errors of the system, its resources, its operator and its time limits; other protocols' numbers are smaller.
            Status::Code(code) => MYSQL_FAILURES.contains(&code),
            // INTERNAL_ERROR, REFUSED_STREAM, ENHANCE_YOUR_CALM.
            Status::Reset(code) => matches!(code, 2 | 7 | 11),
            // Connections, resources, what an operator did, the system and internal errors (PostgreSQL, appendix A).
            Status::Sql(code) => {
                // What a client cancelled is no failure.
                code != *b"57014"
                    && matches!(code, [b'0', b'8', ..] | [b'5', b'3' | b'7' | b'8', ..] | [b'X', b'X', ..])
            }
            Status::Error(name) => is_of_service(name.as_str()),
            // There is no connection, whoever is to blame.
            Status::Alert(_) => true,
            Status::Unknown | Status::Good | Status::Answer(_) => false,
        };
        is_failure.then_some(AnswerError::Other(self))
    }
}

/// The name of an alert.
fn alert(code: u8) -> Option<&'static str> {
    Some(match code {
        10 => "unexpected_message",
        20 => "bad_record_mac",
        22 => "record_overflow",
        40 => "handshake_failure",
        42 => "bad_certificate",
        43 => "unsupported_certificate",
        44 => "certificate_revoked",
        45 => "certificate_expired",
        46 => "certificate_unknown",
        47 => "illegal_parameter",
        48 => "unknown_ca",
        49 => "access_denied",
        50 => "decode_error",
        51 => "decrypt_error",
        70 => "protocol_version",
        71 => "insufficient_security",
        80 => "internal_error",
        86 => "inappropriate_fallback",
        109 => "missing_extension",
        110 => "unsupported_extension",
        112 => "unrecognized_name",
        113 => "bad_certificate_status_response",
        115 => "unknown_psk_identity",
        116 => "certificate_required",
        120 => "no_application_protocol",
        _ => return None,
    })
}

/// Whether an error's name says that the service cannot do what it is asked.
fn is_of_service(name: &str) -> bool {
    // Of the medium and of the path to it (NVMe).
    if name.starts_with("MEDIA_") || name.starts_with("PATH_") {
        return true;
    }
    matches!(
        name,
        // PostgreSQL.
        "57014/timeout"
        // Redis and memcached.
        | "LOADING" | "BUSY" | "OOM" | "MISCONF" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "SERVER_ERROR"
            | "READONLY" | "NOREPLICAS" | "MAXCLIENTS"
            // NVMe and WebSocket; the latter's own.
            | "INTERNAL" | "NOT_READY" | "RESTART" | "TRY_LATER" | "BAD_GATEWAY"
            // NFS and RPC. That another client's delegation is recalled first (DELAY) is no failure.
            | "IO" | "NOSPC" | "SERVERFAULT" | "GRACE" | "RESOURCE" | "SYSTEM_ERR"
            // DNS and LDAP.
            | "SERVFAIL"
            | "operationsError" | "timeLimit" | "busy" | "unavailable" | "unwilling" | "other"
            // MQTT: its state, and limits like HTTP's 429.
            | "SERVER_UNAVAIL" | "SERVER_BUSY" | "SHUTTING_DOWN" | "QUOTA_EXCEEDED" | "RATE_TOO_HIGH"
            | "CONNECTION_RATE"
            // SMB.
            | "NO_RESOURCES" | "NO_MEMORY" | "DISK_FULL" | "IO_DEVICE_ERROR" | "IO_ERROR" | "IO_TIMEOUT" | "DATA_ERROR"
            | "CRC_ERROR" | "CORRUPT" | "DISMOUNTED" | "NO_MEDIA" | "NO_SUCH_DEVICE" | "INTERNAL_ERROR" | "UNSUCCESSFUL"
            | "TOO_MANY_FILES" | "NOT_ACCEPTED" | "UNAVAILABLE" | "NOT_AVAILABLE" | "NO_LOGON_SERVER"
            // Modbus: the device, its memory, and the way from a gateway to it.
            | "DEVICE_FAILURE" | "DEVICE_BUSY" | "PARITY_ERROR" | "GATEWAY_PATH" | "GATEWAY_TARGET"
            // AMQP: a message that the broker did not take, and what its operator or its resources ended.
            | "NACK" | "FORCED" | "RESOURCE_ERROR"
            // MongoDB, as far as a word holds the names: its state, its resources, other members, time limits.
            | "InternalError" | "ShutdownInProgr" | "InterruptedAtSh" | "InterruptedDueT" | "NotWritablePrim"
            | "NotPrimaryNoSec" | "NotPrimaryOrSec" | "PrimarySteppedD" | "HostUnreachable" | "NetworkTimeout"
            | "WriteConcernFai" | "FailedToSatisfy" | "ExceededMemoryL" | "QueryExceededMe" | "OutOfDiskSpace"
            | "MaxTimeMSExpire" | "ExceededTimeLim" | "TemporarilyUnav"
            // EtherNet/IP: of a device, and of the way to it.
            | "TIMEOUT" | "CONNECTION_LOST" | "STORE_FAILURE"
            // S7: of a controller's parts.
            | "HARDWARE_FAULT" | "SUPPLIES"
            // Kafka: brokers, replicas, disks and quotas.
            | "NO_LEADER" | "TIMED_OUT" | "NO_BROKER" | "NO_REPLICA" | "NETWORK" | "NO_COORDINATOR" | "FEW_REPLICAS"
            | "STORAGE" | "THROTTLED"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_service_failed_to_do_is_its_error() {
        for good in [Status::Http(200), Status::Http(404), Status::Grpc(5), Status::Grpc(0), Status::Good] {
            assert_eq!(good.error(), None, "{good:?}");
        }
        assert_eq!(Status::Http(503).error(), Some(AnswerError::Http(503)));
        for bad in [
            Status::Code(1040),
            Status::Grpc(14),
            Status::Sql(*b"53300"),
            Status::Sql(*b"57P01"),
            Status::Error(Word::new(b"57014/timeout")),
            Status::Error(Word::new(b"OOM")),
            Status::Reset(7),
            Status::Error(Word::new(b"MEDIA_81")),
            Status::Error(Word::new(b"GRACE")),
            Status::Error(Word::new(b"SERVFAIL")),
            Status::Error(Word::new(b"unavailable")),
            Status::Error(Word::new(b"SERVER_BUSY")),
            Status::Error(Word::new(b"DISK_FULL")),
            Status::Error(Word::new(b"GATEWAY_TARGET")),
            Status::Error(Word::new(b"NACK")),
            Status::Error(Word::new(b"NotWritablePrimary")),
        ] {
            assert_eq!(bad.error(), Some(AnswerError::Other(bad)));
        }
        for asked in [
            Status::Code(1064),
            Status::Code(3),
            Status::Sql(*b"42P01"),
            Status::Sql(*b"57014"),
            Status::Error(Word::new(b"WRONGTYPE")),
            Status::Error(Word::new(b"NOENT")),
            Status::Answer(Word::new(b"NXDOMAIN")),
            Status::Error(Word::new(b"NOT_AUTHORIZED")),
            Status::Error(Word::new(b"ILLEGAL_ADDRESS")),
            Status::Reset(8),
        ] {
            assert_eq!(asked.error(), None, "{asked:?}");
        }
        assert_eq!(Status::Sql(*b"57014").text(), "57014");
    }
}
