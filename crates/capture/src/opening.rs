//! The beginning of a connection: SYNs and their repetition, the handshake, what passes before the first request, and
//! refusals. And its end by a reset, or by a server that leaves requests without a response.

use record::{Greeting, Refusal, Setup, Side, Stamp};

use crate::packet::{At, Segment};

/// Copies of a packet in one capture are this close, nanoseconds. SYNs are repeated after a second (RFC 6298 2.1).
const COPY_NS: u64 = 5_000_000;
/// Segments with data after which a greeting is not followed any more.
const GREETING_MAX: u32 = 64;
/// Time of a host to react, beyond the round trip, nanoseconds.
const PROMPT_NS: u64 = 4_000_000;

/// A side's packet, with what the reset of a connection concerns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a, 'p> {
    pub(crate) segment: &'a Segment<'p>,
    pub(crate) side: Side,
    pub(crate) at: At,
    /// Requests without a response.
    pub(crate) awaited: u32,
}

/// Follows the beginning of one connection.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    setup: Setup,
    /// Sequence number of the client's first data, if its SYN was seen.
    first_data: u32,
    last_syn_ns: u64,
    last_syn_ack_ns: u64,
    last_first_data_ns: u64,
    has_client_data: bool,
    /// The server acknowledged data of the client, or sent some.
    is_accepted: bool,
    /// When the server's last data passed, and the number of segments with data.
    server_data: Stamp,
    segments: u32,
    /// When the client first sent a FIN.
    client_fin: Stamp,
    is_reset: bool,
}

impl Opening {
    /// The facts so far.
    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    /// When the client closed its side.
    pub(crate) fn client_fin(&self) -> Stamp {
        self.client_fin
    }

    /// Whether packets without SYN, FIN or RST are still of interest.
    #[inline]
    pub(crate) fn is_under_way(&self) -> bool {
        self.setup.syn.is_known() && !(self.is_accepted && self.setup.ready.is_known())
    }

    /// Whether the server dropped the end of the handshake and has not accepted the connection since.
    pub(crate) fn is_dropped(&self) -> bool {
        !self.is_accepted && self.setup.was_dropped_after_handshake()
    }

    /// Counts an exchange that began before the connection was ready. True if it is the first request behind the set-up.
    pub(crate) fn exchange(&mut self, began: Stamp, ended: Stamp) -> bool {
        let setup = &mut self.setup;
        if !setup.syn.is_known() {
            return false;
        }
        let is_greeting =
            setup.greeting != Greeting::None && (!setup.ready.is_known() || began < setup.ready);
        if is_greeting {
            setup.greeting_exchanges += 1;
            let ns = ended.since(began).and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0);
            setup.greeting_in_flight_ns = setup.greeting_in_flight_ns.saturating_add(ns);
        }
        !is_greeting
    }

    /// Processes a packet that has SYN, FIN or RST, or any while the set-up is under way.
    pub(crate) fn packet(&mut self, packet: Packet<'_, '_>) {
        let Packet { segment, side, at, .. } = packet;
        if segment.flags & Segment::RST != 0 {
            self.reset(packet);
            return;
        }
        if segment.flags & Segment::SYN != 0 {
            match side {
                Side::Client => self.syn(segment, at),
                Side::Server => self.syn_ack(at),
            }
        }
        if segment.flags & Segment::FIN != 0 && side == Side::Client && !self.client_fin.is_known() {
            self.client_fin = Stamp::at(at.ns);
        }
        if !self.is_under_way() {
            return;
        }
        match side {
            Side::Client => self.of_client(segment, at),
            Side::Server => self.of_server(segment, at),
        }
    }

    fn syn(&mut self, segment: &Segment<'_>, at: At) {
        let setup = &mut self.setup;
        if !setup.syn.is_known() {
            setup.syn = Stamp::at(at.ns);
            (setup.syns, setup.frames[0]) = (1, at.frame);
            self.first_data = segment.seq.wrapping_add(1);
        } else if at.ns.saturating_sub(self.last_syn_ns) >= COPY_NS && !setup.syn_ack.is_known() {
            setup.syns += 1;
            setup.frames[1] = at.frame;
            setup.waited_ns = setup.syn.ns().map_or(0, |first| at.ns.saturating_sub(first));
        } else if setup.syn_ack.is_known() {
            // Repeated although it was answered: the answer was lost.
            return;
        }
        self.last_syn_ns = at.ns;
    }

    fn syn_ack(&mut self, at: At) {
        let setup = &mut self.setup;
        if !setup.syn_ack.is_known() {
            setup.syn_ack = Stamp::at(at.ns);
            setup.frames[2] = at.frame;
        } else if setup.established.is_known() && at.ns.saturating_sub(self.last_syn_ack_ns) >= COPY_NS {
            setup.syn_acks_again += 1;
        }
        self.last_syn_ack_ns = at.ns;
    }

    fn of_client(&mut self, segment: &Segment<'_>, at: At) {
        let is_answer = segment.flags & (Segment::ACK | Segment::SYN) == Segment::ACK;
        if is_answer && !self.setup.established.is_known() {
            self.setup.established = Stamp::at(at.ns);
        }
        if segment.payload_bytes == 0 {
            return;
        }
        self.segments += 1;
        if !self.has_client_data {
            self.has_client_data = true;
            self.setup.greeting = greeting(segment.payload, self.server_data.is_known());
        } else if segment.seq == self.first_data
            && !self.is_accepted
            && at.ns.saturating_sub(self.last_first_data_ns) >= COPY_NS
        {
            self.setup.first_data_again += 1;
        }
        if segment.seq == self.first_data {
            self.last_first_data_ns = at.ns;
        }
        let setup = &mut self.setup;
        if setup.ready.is_known() {
            return;
        }
        match setup.greeting {
            Greeting::None => setup.ready = setup.established,
            Greeting::Tls => {
                if has_application_data(segment.payload) {
                    setup.ready = Stamp::at(at.ns);
                }
            }
            Greeting::PostgreSql => match segment.payload.first() {
                // Encryption was agreed on.
                Some(&TLS_HANDSHAKE) => setup.greeting = Greeting::Tls,
                // A start-up message has no type, an answer about a password has this one. Anything else is a request.
                Some(&(0 | b'p')) | None => {}
                Some(_) => setup.ready = self.server_data,
            },
            // Encryption was agreed on.
            Greeting::ServerFirst if matches!(segment.payload, [TLS_HANDSHAKE, TLS_MAJOR, ..]) => {
                setup.greeting = Greeting::Tls;
            }
            Greeting::ServerFirst => {}
        }
        if self.segments > GREETING_MAX && !setup.ready.is_known() {
            (setup.ready, setup.greeting) = (setup.established, Greeting::None);
        }
    }

    fn of_server(&mut self, segment: &Segment<'_>, at: At) {
        let is_syn = segment.flags & Segment::SYN != 0;
        let has_acknowledged =
            segment.flags & Segment::ACK != 0 && segment.ack.wrapping_sub(self.first_data).cast_signed() > 0;
        self.is_accepted |=
            !is_syn && (segment.payload_bytes > 0 || (self.has_client_data && has_acknowledged));
        if segment.payload_bytes == 0 {
            return;
        }
        self.segments += 1;
        self.server_data = Stamp::at(at.ns);
        let is_over = match self.setup.greeting {
            Greeting::ServerFirst => self.has_client_data,
            Greeting::PostgreSql => segment.payload.ends_with(READY_FOR_QUERY),
            Greeting::None | Greeting::Tls => false,
        };
        if is_over && !self.setup.ready.is_known() {
            self.setup.ready = self.server_data;
        }
    }

    /// The server has sent its FIN behind everything else, with so many requests without a whole response: they get none.
    pub(crate) fn closed_by_server(&mut self, awaited: u32, at: At) {
        if awaited > 0 && !self.is_reset && !self.client_fin.is_known() {
            self.setup.requests_closed = awaited;
            self.setup.frames[2] = at.frame;
        }
    }

    fn reset(&mut self, packet: Packet<'_, '_>) {
        let Packet { side, at, awaited, .. } = packet;
        let setup = &mut self.setup;
        // A client may reset what it does not need any more; after the first reset there is no connection.
        if side == Side::Client || std::mem::replace(&mut self.is_reset, true) {
            return;
        }
        if awaited > 0 && !self.client_fin.is_known() {
            // They are those that it had left when it closed its side, and perhaps more.
            (setup.requests_reset, setup.requests_closed) = (awaited, 0);
            setup.frames[2] = at.frame;
            return;
        }
        if !setup.syn.is_known() || self.is_accepted {
            return;
        }
        let since = setup.established.ns().or(setup.syn_ack.ns());
        let round_trip_ns = setup.syn_ack.ns().map_or(0, |ns| ns.saturating_sub(self.last_syn_ns));
        let refusal = match since {
            None => Some(Refusal::AtSyn),
            Some(ns)
                if !self.client_fin.is_known()
                    && at.ns.saturating_sub(ns) <= 2 * round_trip_ns + PROMPT_NS =>
            {
                Some(Refusal::AfterHandshake)
            }
            Some(_) => None,
        };
        if refusal.is_some() {
            (setup.refusal, setup.frames[2]) = (refusal, at.frame);
        }
    }
}

/// Content types of TLS records (RFC 8446 5.1), and the version that they all begin with.
const TLS_HANDSHAKE: u8 = 22;
const TLS_APPLICATION_DATA: u8 = 23;
const TLS_MAJOR: u8 = 3;

/// PostgreSQL's requests at the front of a connection, behind their length: protocol 3.0, and encryption.
const POSTGRESQL: [[u8; 4]; 2] = [[0, 3, 0, 0], [4, 210, 22, 47]];
/// PostgreSQL's ReadyForQuery outside of a transaction.
const READY_FOR_QUERY: &[u8] = b"Z\0\0\0\x05I";

/// What the client's first data begins.
fn greeting(payload: &[u8], server_was_first: bool) -> Greeting {
    match payload {
        [TLS_HANDSHAKE, TLS_MAJOR, ..] => Greeting::Tls,
        [_, _, _, _, a, b, c, d, ..] if POSTGRESQL.contains(&[*a, *b, *c, *d]) => Greeting::PostgreSql,
        _ if server_was_first => Greeting::ServerFirst,
        _ => Greeting::None,
    }
}

/// Whether a segment of TLS records has one with application data.
fn has_application_data(payload: &[u8]) -> bool {
    let mut rest = payload;
    while let [kind, TLS_MAJOR, _, high, low, behind @ ..] = rest {
        if *kind == TLS_APPLICATION_DATA {
            return true;
        }
        rest = behind.get(usize::from(u16::from_be_bytes([*high, *low]))..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests;
