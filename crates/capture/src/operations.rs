//! Pairs requests with responses: one connection's operations as one side sees them.

use std::collections::HashMap;

use iscsi::opcode;
use iscsi::pdu::{DataIn, ScsiCommand};
use ring::{OpKind, Sighting, Stamp};

use crate::follow::Pdu;

/// Operations in flight on one connection, and those that have ended.
#[derive(Debug, Default)]
pub struct Operations {
    connection: u32,
    in_flight: HashMap<u32, Sighting>,
    /// Responses whose request was not seen.
    pub unmatched: u64,
    /// Requests that were given up because too many were in flight, or because their tag was used again.
    pub abandoned: u64,
}

impl Operations {
    /// Most operations in flight that are followed.
    pub const IN_FLIGHT_MAX: usize = 65_536;

    /// The operations of a connection with this number.
    #[must_use]
    pub fn new(connection: u32) -> Self {
        Self { connection, ..Self::default() }
    }

    /// How many requests have passed whose response has not.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// A PDU of the initiator has passed.
    #[inline]
    pub fn request(&mut self, pdu: &Pdu) {
        let tag = pdu.bhs.initiator_task_tag();
        match pdu.bhs.opcode() {
            opcode::initiator::SCSI_COMMAND => {
                let command = ScsiCommand::read(&pdu.bhs);
                let kind = match (command.read, command.write_data) {
                    (true, false) if scsi::cdb::reads_the_medium(&command.cdb) => OpKind::Read,
                    (false, true) => OpKind::Write,
                    _ => OpKind::Other,
                };
                if self.in_flight.len() >= Self::IN_FLIGHT_MAX {
                    self.abandoned += self.in_flight.len() as u64;
                    self.in_flight.clear();
                }
                let sighting = Sighting {
                    connection: self.connection,
                    tag,
                    kind,
                    data_bytes: command.expected_bytes,
                    request_bytes: pdu.bytes as u32,
                    response_bytes: 0,
                    request: Stamp::at(pdu.ended_ns),
                    response: Stamp::MISSING,
                };
                if self.in_flight.insert(tag, sighting).is_some() {
                    self.abandoned += 1;
                }
            }
            // Data phases belong to the operation: the request has passed with its command, what follows an
            // R2T is part of the server's time.
            opcode::initiator::DATA_OUT => {
                if let Some(sighting) = self.in_flight.get_mut(&tag) {
                    sighting.request_bytes = sighting.request_bytes.saturating_add(pdu.bytes as u32);
                }
            }
            _ => {}
        }
    }

    /// A PDU of the target has passed; the operation that it ends, if any.
    #[inline]
    pub fn response(&mut self, pdu: &Pdu) -> Option<Sighting> {
        let tag = pdu.bhs.initiator_task_tag();
        let ends = match pdu.bhs.opcode() {
            opcode::target::SCSI_RESPONSE => true,
            opcode::target::DATA_IN => DataIn::read(&pdu.bhs).has_status,
            _ => return None,
        };
        if !ends {
            if let Some(sighting) = self.in_flight.get_mut(&tag) {
                sighting.response_bytes = sighting.response_bytes.saturating_add(pdu.bytes as u32);
            }
            return None;
        }
        let Some(mut sighting) = self.in_flight.remove(&tag) else {
            self.unmatched += 1;
            return None;
        };
        sighting.response_bytes = sighting.response_bytes.saturating_add(pdu.bytes as u32);
        sighting.response = Stamp::at(pdu.ended_ns);
        Some(sighting)
    }
}

#[cfg(test)]
mod tests {
    use iscsi::pdu::ScsiResponse;

    use super::*;

    fn pdu(bhs: iscsi::Bhs, bytes: u64, ended_ns: u64) -> Pdu {
        Pdu { bhs, bytes, offset: 0, began_ns: ended_ns, ended_ns }
    }

    #[test]
    fn a_read_in_two_segments_is_one_operation() {
        let mut operations = Operations::new(7);
        let mut command = ScsiCommand {
            read: true,
            is_final: true,
            tag: 3,
            expected_bytes: 1024,
            ..ScsiCommand::default()
        };
        command.cdb[0] = 0x28;
        operations.request(&pdu(command.write(), 48, 10));
        let first = DataIn { tag: 3, ..DataIn::default() };
        assert_eq!(operations.response(&pdu(first.write(), 560, 20)), None);
        let last = DataIn { tag: 3, has_status: true, ..DataIn::default() };
        let seen = operations.response(&pdu(last.write(), 560, 30)).unwrap();
        assert_eq!((seen.connection, seen.kind, seen.response_bytes), (7, OpKind::Read, 1120));
        assert_eq!((seen.request, seen.response), (Stamp::at(10), Stamp::at(30)));
    }

    #[test]
    fn answers_without_requests_and_tags_used_twice_are_counted() {
        let mut operations = Operations::new(0);
        let response = ScsiResponse { tag: 3, ..ScsiResponse::default() }.write();
        assert_eq!(operations.response(&pdu(response, 48, 1)), None);
        assert_eq!(operations.unmatched, 1);
        let command = ScsiCommand { tag: 3, write_data: true, ..ScsiCommand::default() }.write();
        operations.request(&pdu(command, 48, 2));
        operations.request(&pdu(command, 48, 3));
        assert_eq!(operations.abandoned, 1);
    }
}
