//! The parameters of a simulation.

mod host;
mod values;

use policy::{SendPolicy, Sending};
use record::wire::Link;
use record::{OpKind, Verb, Word};
use serde::Deserialize;
use thiserror::Error;

pub use self::host::Host;
use self::values::{rate, size, some_size, time};
use crate::Ns;
use crate::tcp::Options;

/// A setup that cannot be simulated.
#[derive(Debug, Error)]
pub enum SetupError {
    /// The text is not TOML of this form.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// A value is out of its range.
    #[error("{key}: {why}")]
    Value {
        /// Its key.
        key: &'static str,
        /// What is wrong, and what is possible.
        why: String,
    },
}

/// The client, and how it loads the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Load {
    /// Successors of the responses of one receive call are sent together.
    pub batch: bool,
    /// Nagle's algorithm on the client's side.
    pub nagle: bool,
    /// Time between the first operations of a session. The limit cycle that a ring settles in may depend on it.
    #[serde(deserialize_with = "time")]
    pub stagger: Ns,
}

/// The parts of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Message {
    /// Header, bytes.
    pub header: u32,
    /// Data, bytes.
    #[serde(deserialize_with = "size")]
    pub data: u64,
}

impl Default for Message {
    fn default() -> Self {
        Self { header: record::wire::ISCSI_HEADER_BYTES, data: 0 }
    }
}

impl Message {
    /// Header and data, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.header) + self.data
    }
}

/// The wire, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cable {
    /// Bits a second; 0: no limit.
    #[serde(deserialize_with = "rate")]
    pub bandwidth: u64,
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// Segments carry TCP timestamps: 12 bytes each.
    pub timestamps: bool,
    /// Size of the token bucket that keeps the rate: up to this much is sent without pacing (Linux TBF); 0: a cable.
    #[serde(deserialize_with = "size")]
    pub burst: u64,
    /// Propagation delay.
    #[serde(deserialize_with = "time")]
    pub delay: Ns,
    /// Share of the segments that are lost, 0 to 1.
    pub loss: f64,
    /// Share of the segments that are overtaken, 0 to 1.
    pub reorder: f64,
    /// Longest additional delay of an overtaken segment.
    #[serde(deserialize_with = "time")]
    pub reorder_delay: Ns,
    /// Size of the queue in front of the wire, which drops what exceeds it; 0: no limit.
    #[serde(deserialize_with = "size")]
    pub queue: u64,
}

impl Default for Cable {
    fn default() -> Self {
        Self {
            bandwidth: 1_000_000_000,
            mtu: 9000,
            timestamps: true,
            burst: 0,
            delay: 0,
            loss: 0.0,
            reorder: 0.0,
            reorder_delay: 50_000,
            queue: 0,
        }
    }
}

impl Cable {
    /// Its rate and the bytes around a segment's data.
    #[must_use]
    pub fn wire(&self) -> record::Wire {
        let link = Link::ethernet(self.bandwidth.max(1), self.mtu);
        Link { timestamps: self.timestamps, ..link }.wire()
    }
}

/// All parameters of a run: the same setup gives the same run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Setup {
    /// Operations in flight in each session.
    pub queue_depth: u32,
    /// Connections.
    pub sessions: u32,
    /// Requests.
    pub request: Message,
    /// Responses.
    pub response: Message,
    /// Data of the responses of every second session, if it is not that of `response`.
    #[serde(deserialize_with = "some_size")]
    pub second_response: Option<u64>,
    /// The server's send policy.
    pub policy: SendPolicy,
    /// With Nagle's algorithm on, held data is flushed when the server's thread becomes idle.
    pub flush: bool,
    /// The initiator.
    pub client: Host,
    /// The target.
    pub server: Host,
    /// The client's load.
    pub load: Load,
    /// The wire.
    pub wire: Cable,
    /// Greatest variation of service times and latencies in either direction, as a share.
    pub jitter: f64,
    /// Share of the operations at which other work delays the thread, 0 to 1: a ring that is disturbed now and then visits
    /// all its limit cycles.
    pub disturbed: f64,
    /// Longest such delay.
    #[serde(deserialize_with = "time")]
    pub disturbance: Ns,
    /// Seed of everything random.
    pub seed: u64,
    /// Measured operations, all sessions together.
    pub operations: u64,
    /// Operations before the measurement.
    pub warm_up: u64,
    /// Simulated time after which a run ends early.
    #[serde(deserialize_with = "time")]
    pub time_limit: Ns,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            queue_depth: 1,
            sessions: 1,
            request: Message::default(),
            response: Message { data: 512, ..Message::default() },
            second_response: None,
            policy: SendPolicy::Nodelay,
            flush: true,
            client: Host::default(),
            server: Host::default(),
            load: Load::default(),
            wire: Cable::default(),
            jitter: 0.0,
            disturbed: 0.0,
            disturbance: 200_000,
            seed: 1,
            operations: 100_000,
            warm_up: 2_000,
            time_limit: 600_000_000_000,
        }
    }
}

/// Greatest queue depth, number of sessions, message and number of CPUs of a side.
const QUEUE_DEPTH_MAX: u32 = 4096;
const SESSIONS_MAX: u32 = 1024;
const MESSAGE_MAX: u64 = 16 << 20;
const CPUS_MAX: usize = 256;

impl Setup {
    /// Reads a setup from TOML; missing keys have their defaults.
    ///
    /// # Errors
    /// Unknown keys and malformed values, with their line, and the first value out of its range.
    pub fn read(text: &str) -> Result<Self, SetupError> {
        let setup: Self = toml::from_str(text)?;
        setup.check()?;
        Ok(setup)
    }

    /// As [`Setup::read`], with other values for some keys, such as `server.service=5us`.
    ///
    /// # Errors
    /// As [`Setup::read`], and a setting without `=`.
    pub fn read_with(text: &str, others: &[String]) -> Result<Self, SetupError> {
        let mut table: toml::Table = toml::from_str(text)?;
        for other in others {
            let wrong = |why: &str| SetupError::Value { key: "KEY=VALUE", why: format!("{other}: {why}") };
            let (key, value) = other.split_once('=').ok_or_else(|| wrong("write KEY=VALUE"))?;
            // Numbers and booleans keep their type; everything else is a string.
            let value =
                value.parse::<toml::Value>().ok().filter(|value| !value.is_str() && !value.is_datetime());
            let text = || toml::Value::String(other[key.len() + 1..].to_owned());
            let mut names: Vec<&str> = key.split('.').collect();
            let last = names.pop().unwrap_or_default();
            let mut at = &mut table;
            for name in names {
                let inner = at.entry(name).or_insert_with(|| toml::Value::Table(toml::Table::new()));
                at = inner.as_table_mut().ok_or_else(|| wrong("is not a group of keys"))?;
            }
            at.insert(last.to_owned(), value.unwrap_or_else(text));
        }
        let setup: Self = table.try_into()?;
        setup.check()?;
        Ok(setup)
    }

    /// The responses of the second session, or of the first where there is one.
    #[must_use]
    pub fn second(&self) -> Message {
        self.response_of(u32::from(self.sessions > 1))
    }

    /// The responses of a session.
    #[must_use]
    pub fn response_of(&self, session: u32) -> Message {
        let data = self.second_response.filter(|_| session % 2 == 1).unwrap_or(self.response.data);
        Message { data, ..self.response }
    }

    /// Data of an operation of a session: that of its request or of its response.
    #[must_use]
    pub fn data_of(&self, session: u32) -> u64 {
        self.request.data.max(self.response_of(session).data)
    }

    /// Checks the range of every value.
    ///
    /// # Errors
    /// The first value out of its range.
    pub fn check(&self) -> Result<(), SetupError> {
        let within = |key, is_right: bool, why: String| {
            if is_right { Ok(()) } else { Err(SetupError::Value { key, why }) }
        };
        let share = |key, value: f64| {
            within(key, (0.0..=0.9).contains(&value), format!("{value} is not between 0 and 0.9"))
        };
        within(
            "queue-depth",
            (1..=QUEUE_DEPTH_MAX).contains(&self.queue_depth),
            format!("{} is not between 1 and {QUEUE_DEPTH_MAX}", self.queue_depth),
        )?;
        within(
            "sessions",
            (1..=SESSIONS_MAX).contains(&self.sessions),
            format!("{} is not between 1 and {SESSIONS_MAX}", self.sessions),
        )?;
        let second = self.response_of(1);
        let messages = [("request", self.request), ("response", self.response), ("second-response", second)];
        for (key, message) in messages {
            within(
                key,
                message.header > 0 && message.bytes() <= MESSAGE_MAX,
                format!("a message has a header and at most {MESSAGE_MAX} bytes"),
            )?;
        }
        within(
            "second-response",
            self.second_response.is_none_or(|data| (data > 0) == (self.response.data > 0)),
            "responses of all sessions have data, or none has".into(),
        )?;
        within(
            "wire.mtu",
            (576..=65_535).contains(&self.wire.mtu),
            format!("{} is not between 576 and 65535", self.wire.mtu),
        )?;
        share("wire.loss", self.wire.loss)?;
        share("wire.reorder", self.wire.reorder)?;
        share("jitter", self.jitter)?;
        share("disturbed", self.disturbed)?;
        for (key, host) in [("client", self.client), ("server", self.server)] {
            let cpus = host.thread_cpu.saturating_add(host.thread_cpus).max(host.softirq_cpu);
            within(key, host.thread_cpus > 0 && cpus < CPUS_MAX, format!("CPUs are 0 to {}", CPUS_MAX - 1))?;
            within(
                key,
                host.send_buffer >= 4096 && host.receive_buffer >= 4096,
                "send-buffer and receive-buffer are 4k at the least".into(),
            )?;
            within(
                key,
                (1..=64).contains(&host.offload_segments)
                    && host.initial_window > 0
                    && host.receive_bytes > 0,
                "offload-segments is 1 to 64, initial-window and receive-bytes are not 0".into(),
            )?;
            let why = host.timer_error();
            within(key, why.is_none(), why.unwrap_or_default())?;
        }
        within("operations", self.operations > 0, "0 is not possible".into())
    }

    /// This setup with other ways to send. A client that has Nagle's algorithm on keeps it.
    #[must_use]
    pub fn with_sending(&self, sending: Sending) -> Self {
        let load = Load { nagle: self.load.nagle || sending.client_nagle, ..self.load };
        Self { policy: sending.policy, load, ..self.clone() }
    }

    /// How both sides send. Nagle's algorithm without a flush is a policy of its own.
    #[must_use]
    pub fn sending(&self) -> Sending {
        let policy = match self.policy {
            SendPolicy::Nagle if !self.flush => SendPolicy::NAGLE_UNFLUSHED,
            policy => policy,
        };
        Sending { policy, client_nagle: self.load.nagle }
    }

    /// The kind of operation, by the direction of its data.
    #[must_use]
    pub fn kind(&self) -> OpKind {
        match (self.request.data, self.response.data.max(self.second().data)) {
            (0, 0) => OpKind::Other,
            (0, _) => OpKind::Read,
            _ => OpKind::Write,
        }
    }

    /// What its operations are in a capture: SCSI commands where the messages have iSCSI's header and whole words
    /// of data, HTTP requests otherwise.
    #[must_use]
    pub fn verb(&self) -> Verb {
        let is_iscsi = [self.request, self.response, self.second()].iter().all(|message| {
            message.header == record::wire::ISCSI_HEADER_BYTES && message.data.is_multiple_of(4)
        });
        match (is_iscsi, self.kind()) {
            (true, OpKind::Other) => Verb::Scsi(0x00),
            (true, OpKind::Read) => Verb::Scsi(0x28),
            (true, OpKind::Write) => Verb::Scsi(0x2a),
            (false, OpKind::Write) => Verb::Http(Word::new(b"POST")),
            (false, _) => Verb::Http(Word::new(b"GET")),
        }
    }

    /// Largest payload of a segment.
    #[must_use]
    pub fn mss_bytes(&self) -> u32 {
        self.wire.wire().payload_bytes()
    }

    /// The TCP options of a side.
    #[must_use]
    pub fn options(&self, host: &Host) -> Options {
        Options {
            mss_bytes: self.mss_bytes(),
            // An offload is one IP packet: at most 65535 bytes with its headers.
            offload_segments: host.offload_segments.min(65_483 / self.mss_bytes()).max(1),
            timestamps: self.wire.timestamps,
            send_buffer_bytes: host.send_buffer,
            receive_buffer_bytes: host.receive_buffer,
            initial_window: host.initial_window,
            ..Options::default()
        }
    }
}
