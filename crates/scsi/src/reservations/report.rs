//! PERSISTENT RESERVE IN (SPC-4 6.15).

use super::{Registration, Reservations, State};
use crate::nexus::ports_of;
use crate::ports::Ports;
use crate::sense::Sense;

impl Reservations {
    /// Appends the parameter data of a service action. `is_durable` says whether registrations can survive a power loss
    /// (PTPL_C).
    ///
    /// # Errors
    /// The sense of an unsupported service action.
    pub(crate) fn report(
        &self,
        ports: &Ports,
        is_durable: bool,
        action: u8,
        out: &mut Vec<u8>,
    ) -> Result<(), Sense> {
        let state = self.lock();
        let start = out.len();
        out.extend_from_slice(&state.generation.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        match action {
            // READ KEYS.
            0 => state.registrations.iter().for_each(|r| out.extend_from_slice(&r.key.to_be_bytes())),
            // READ RESERVATION.
            1 => {
                if let Some(reservation) = &state.reservation {
                    let key = if reservation.kind.is_all_registrants() {
                        0
                    } else {
                        state.key_of(&reservation.port).unwrap_or(0)
                    };
                    out.extend_from_slice(&key.to_be_bytes());
                    out.extend_from_slice(&[0, 0, 0, 0, 0, reservation.kind.code(), 0, 0]);
                }
            }
            // REPORT CAPABILITIES.
            2 => {
                out.truncate(start);
                // PTPL_C; TMV, PTPL_A, and the mask of the six types.
                let (can, does) = (u8::from(is_durable), u8::from(state.is_durable));
                out.extend_from_slice(&[0, 8, can, 0x80 | does, 0xea, 0x01, 0, 0]);
                return Ok(());
            }
            // READ FULL STATUS.
            3 => state.registrations.iter().for_each(|r| state.full_status(ports, r, out)),
            _ => {
                out.truncate(start);
                return Err(Sense::invalid_bit(1, 4));
            }
        }
        let length = (out.len() - start - 8) as u32;
        out[start + 4..start + 8].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}

impl State {
    /// Appends a full status descriptor (SPC-4 6.15.5) with its TransportID (7.6.4.6).
    fn full_status(&self, ports: &Ports, registration: &Registration, out: &mut Vec<u8>) {
        let holds = self.holds(&registration.port);
        let scope_type = self.reservation.as_ref().filter(|_| holds).map_or(0, |r| r.kind.code());
        let (port, tag) = ports_of(&registration.port);
        let [high, low] = ports.relative(tag).to_be_bytes();
        let mut name = port.as_bytes()[..port.len().min(250)].to_vec();
        name.push(0);
        name.resize(name.len().next_multiple_of(4).max(20), 0);
        out.extend_from_slice(&registration.key.to_be_bytes());
        out.extend_from_slice(&[0, 0, 0, 0, u8::from(holds), scope_type, 0, 0, 0, 0, high, low]);
        out.extend_from_slice(&(name.len() as u32 + 4).to_be_bytes());
        // An iSCSI initiator port name.
        out.extend_from_slice(&[0x45, 0]);
        out.extend_from_slice(&(name.len() as u16).to_be_bytes());
        out.extend_from_slice(&name);
    }
}
