//! An iSCSI session over one TCP connection.

mod establish;
mod options;
mod transfer;

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use iscsi::initiator::{Direction, Event, InitiatorConnection, Request};
use iscsi::login::SessionType;
use iscsi::{Cut, Framer, ReceiveBuffer, TransmitBuffer};
use record::Writes;
use socket::stamps::Stamps;
use socket::tape::Tape;

use self::establish::Portal;
pub use self::options::SessionOptions;
use crate::failure::SenseCodes;
use crate::initiator::commands;
use crate::initiator::error::InitiatorError;
use crate::initiator::parts::Parts;
use crate::initiator::url::IscsiUrl;

/// How many unit attentions a command is repeated after: those of a new session, and some that come meanwhile.
const ATTENTIONS: usize = 100;

/// The size of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Logical blocks.
    pub blocks: u64,
    /// Logical block length, bytes.
    pub block_bytes: u32,
}

/// A session in its full feature phase.
#[derive(Debug)]
pub struct Session {
    address: String,
    socket: TcpStream,
    /// The protocol state.
    pub(crate) connection: InitiatorConnection,
    /// Bytes to send.
    pub(crate) outgoing: TransmitBuffer,
    incoming: ReceiveBuffer,
    framer: Framer,
    patience: Duration,
    busy_poll: Duration,
    quick_ack: bool,
    writes: Writes,
    parts: Parts,
    stamps: Option<Stamps>,
    tape: Option<Tape>,
    /// The logical unit that commands address.
    pub(crate) lun: [u8; 8],
    /// The local TCP port: identifies the connection in records.
    pub port: u16,
}

impl Session {
    /// Connects and logs in.
    ///
    /// # Errors
    /// When the connection or the login fails.
    pub fn open(url: &IscsiUrl, options: &SessionOptions) -> Result<Self, InitiatorError> {
        if !matches!(options.writes, Writes::One | Writes::Apart | Writes::More) {
            return Err(InitiatorError::Spec(format!(
                "writes = {}: use one, apart or more for an iSCSI session",
                options.writes.name()
            )));
        }
        let portal = Portal { host: url.host.clone(), port: url.port };
        Self::log_in(portal, SessionType::Normal, &url.iqn, url.lun, options)
    }

    /// Discovers the targets of a portal, with their addresses.
    ///
    /// # Errors
    /// When the connection or the discovery session fails.
    pub fn discover(
        host: &str,
        port: u16,
        options: &SessionOptions,
    ) -> Result<Vec<Discovered>, InitiatorError> {
        let portal = Portal { host: host.to_owned(), port };
        let mut session = Self::log_in(portal, SessionType::Discovery, "", 0, options)?;
        session.connection.text(b"SendTargets=All\0", &mut session.outgoing);
        let mut answer = None;
        while answer.is_none() {
            session.exchange(&mut |_, _| (), |event| {
                if let Event::Text(text) = event {
                    answer = Some(text);
                }
                Ok(None)
            })?;
        }
        let mut found: Vec<Discovered> = Vec::new();
        let pairs = answer.unwrap_or_default();
        for (key, value) in iscsi::text::parse(&pairs).map_err(|e| session.fault(e.into()))? {
            match (key, found.last_mut()) {
                ("TargetName", _) => found.push(Discovered { iqn: value.to_owned(), portals: Vec::new() }),
                ("TargetAddress", Some(target)) => target.portals.push(value.to_owned()),
                _ => {}
            }
        }
        session.close()?;
        Ok(found)
    }

    /// Runs a command, and again after unit attentions (power on, reset, changed disks), which are told once each and may come at any time.
    ///
    /// # Errors
    /// When the session fails.
    pub(crate) fn attentive(&mut self, cdb: [u8; 16], direction: Direction) -> Result<Reply, InitiatorError> {
        let mut reply = self.command(cdb, direction)?;
        for _ in 0..ATTENTIONS {
            if !SenseCodes::read(&reply.sense).is_some_and(SenseCodes::is_unit_attention) {
                break;
            }
            reply = self.command(cdb, direction)?;
        }
        Ok(reply)
    }

    /// Reads the capacity of the disk.
    ///
    /// # Errors
    /// When the command or the session fails.
    pub fn capacity(&mut self) -> Result<Capacity, InitiatorError> {
        let reply = self.attentive(commands::read_capacity_16(), Direction::In(32))?;
        let fields =
            (reply.data.first_chunk::<8>(), reply.data.get(8..12).and_then(|b| b.first_chunk::<4>()));
        match fields {
            (Some(last), Some(length)) if reply.status == 0 => Ok(Capacity {
                blocks: u64::from_be_bytes(*last).saturating_add(1),
                block_bytes: u32::from_be_bytes(*length),
            }),
            _ => Err(InitiatorError::Command {
                address: self.address.clone(),
                command: "READ CAPACITY (16)",
                status: reply.status,
                sense: commands::describe_sense(&reply.sense),
            }),
        }
    }

    /// Issues a command and waits for its end. It sends zeros as write data.
    ///
    /// # Errors
    /// When the session fails. A command that ends with a status other than GOOD is returned as a [`Reply`].
    pub fn command(&mut self, cdb: [u8; 16], data: Direction) -> Result<Reply, InitiatorError> {
        self.run(cdb, data, |_, piece| piece.fill(0))
    }

    /// Issues a command with write data and waits for its end.
    ///
    /// # Errors
    /// As for [`Self::command`].
    pub fn write(&mut self, cdb: [u8; 16], data: &[u8]) -> Result<Reply, InitiatorError> {
        self.run(cdb, Direction::Out(data.len() as u32), |at, piece| {
            piece.copy_from_slice(&data[at as usize..][..piece.len()]);
        })
    }

    fn run(
        &mut self,
        cdb: [u8; 16],
        data: Direction,
        mut fill: impl FnMut(u32, &mut [u8]),
    ) -> Result<Reply, InitiatorError> {
        let request = Request { lun: self.lun, cdb, data, user: u32::MAX };
        self.connection.issue(&request, &mut self.outgoing, &mut fill);
        let (mut got, mut reply) = (Vec::new(), None);
        while reply.is_none() {
            self.exchange(&mut fill, |event| {
                let end = match event {
                    Event::Data { data, end, .. } => {
                        got.extend_from_slice(data);
                        end
                    }
                    Event::End(end) => Some(end),
                    Event::Wanted { r2t, .. } => return Ok(Some(r2t)),
                    _ => None,
                };
                if let Some(end) = end {
                    reply = Some((end.status, end.sense.to_vec()));
                }
                Ok(None)
            })?;
        }
        let (status, sense) = reply.unwrap_or_default();
        Ok(Reply { status, data: got, sense })
    }

    /// Sends pending bytes, receives (waiting if nothing is available), and passes events to `on_event`. An R2T that
    /// `on_event` returns is answered with data from `fill`.
    fn exchange(
        &mut self,
        fill: &mut dyn FnMut(u32, &mut [u8]),
        mut on_event: impl FnMut(Event<'_>) -> Result<Option<iscsi::pdu::R2t>, InitiatorError>,
    ) -> Result<(), InitiatorError> {
        self.flush()?;
        self.receive()?;
        while let Some(total) = self.whole_frame()? {
            let Ok(Cut::Frame(frame)) = self.framer.next(self.incoming.unread()) else { break };
            let event = self
                .connection
                .receive(&frame, &mut self.outgoing)
                .map_err(|source| InitiatorError::Fault { address: self.address.clone(), source })?;
            if let Event::Rejected(reason) = event {
                return Err(InitiatorError::Rejected { address: self.address.clone(), reason });
            }
            if let Some(r2t) = on_event(event)? {
                self.connection.send_data(&r2t, &mut self.outgoing, &mut *fill);
            }
            self.incoming.take(total);
        }
        Ok(())
    }

    /// Logs out and waits for the response; returns the operations with kernel timestamps, if recorded.
    ///
    /// # Errors
    /// When the session fails before the response arrives.
    pub fn close(mut self) -> Result<Vec<record::Op>, InitiatorError> {
        self.connection.logout(&mut self.outgoing);
        let mut out = false;
        while !out {
            match self.exchange(&mut |_, _| (), |event| {
                out = out || event == Event::LoggedOut;
                Ok(None)
            }) {
                // A target may close right after its Logout Response, or instead of it.
                Err(InitiatorError::Closed { in_flight: 0, .. }) => break,
                other => other?,
            }
        }
        self.read_stamps()?;
        Ok(self.tape.as_ref().map(|tape| tape.ops(self.port.into())).unwrap_or_default())
    }

    pub(crate) fn fault(&self, source: iscsi::Fault) -> InitiatorError {
        InitiatorError::Fault { address: self.address.clone(), source }
    }

    pub(crate) fn rejected(&self, reason: u8) -> InitiatorError {
        InitiatorError::Rejected { address: self.address.clone(), reason }
    }

    fn closed(&self) -> InitiatorError {
        InitiatorError::Closed { address: self.address.clone(), in_flight: self.connection.in_flight() }
    }

    fn stalled(&self) -> InitiatorError {
        InitiatorError::Stalled {
            address: self.address.clone(),
            waited: self.patience,
            in_flight: self.connection.in_flight(),
        }
    }

    fn socket_error(&self, what: &'static str, source: io::Error) -> InitiatorError {
        InitiatorError::Socket { address: self.address.clone(), what, source }
    }
}

/// A target reported by a portal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// TargetName.
    pub iqn: String,
    /// TargetAddress, each as `address:port,group`.
    pub portals: Vec<String>,
}

/// The result of a single command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// SCSI status.
    pub status: u8,
    /// Data from the target.
    pub data: Vec<u8>,
    /// Sense data.
    pub sense: Vec<u8>,
}
