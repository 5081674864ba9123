//! Addresses of interfaces.

use std::net::IpAddr;

use netlink_packet_core::Parseable;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Address {
    /// Index of the interface.
    pub interface: u32,
    /// The address.
    pub address: IpAddr,
    /// Bits of the address that the network shares.
    pub prefix_length: u8,
}

/// An address in an answer; none where it cannot be parsed or is none of IP.
#[must_use]
pub fn parse_address(payload: &[u8]) -> Option<Address> {
    let message = AddressMessage::parse(payload).ok()?;
    // On a point-to-point link the address is the peer's, and the local one is ours.
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    Some(Address {
        interface: message.header.index,
        address: local.or(address)?,
        prefix_length: message.header.prefix_len,
    })
}
