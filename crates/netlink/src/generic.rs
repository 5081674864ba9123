//! Generic netlink: families by name.

use crate::attributes::{Attributes, Builder};
use crate::connection::{Connection, Part, Protocol};
use crate::error::Error;

/// The family that resolves names (GENL_ID_CTRL), its version, its request and the attributes.
const CONTROLLER: u16 = 16;
const CONTROLLER_VERSION: u8 = 2;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// Bytes of the header: command, version, reserved.
const HEADER: usize = 4;

/// A connection to one family.
#[derive(Debug)]
pub(crate) struct Family {
    connection: Connection,
    id: u16,
    version: u8,
}

impl Family {
    /// Opens a connection to a family.
    pub(crate) fn open(name: &'static str, version: u8) -> Result<Self, Error> {
        let mut connection = Connection::open(Protocol::Generic)?;
        let what = format!("resolving the generic netlink family {name}");
        let payload = payload(GET_FAMILY, CONTROLLER_VERSION, Builder::new().text(FAMILY_NAME, name));
        let parts = connection.request(&what, CONTROLLER, 0, &payload).map_err(|error| {
            if error.is_missing() {
                Error::NoFamily { what: what.clone(), family: name, source: Box::new(error) }
            } else {
                error
            }
        })?;
        let id = parts.iter().find_map(|part| attributes(part).u16(FAMILY_ID));
        let id = id.ok_or_else(|| Error::Malformed { what, why: "no family id".to_owned() })?;
        Ok(Self { connection, id, version })
    }

    /// Sends a command; the parts of its answer.
    pub(crate) fn request(&mut self, what: &str, command: u8, inner: Builder) -> Result<Vec<Part>, Error> {
        let payload = payload(command, self.version, inner);
        self.connection.request(what, self.id, 0, &payload)
    }
}

fn payload(command: u8, version: u8, attributes: Builder) -> Vec<u8> {
    let mut bytes = vec![command, version, 0, 0];
    bytes.extend(attributes.finish());
    bytes
}

/// The attributes of an answer, behind its header.
pub(crate) fn attributes(part: &Part) -> Attributes<'_> {
    Attributes::new(part.payload.get(HEADER..).unwrap_or_default())
}
