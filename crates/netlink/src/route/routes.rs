//! Routes and their options.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::Parseable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteNextHop, RouteType,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attributes::Builder;

/// Bytes of the header of a request.
const HEADER: usize = 12;
const INET: u8 = 2;
const INET6: u8 = 10;
const DESTINATION: u16 = 1;

/// The table that routes are in unless a rule says otherwise.
const MAIN: u32 = 254;

/// A route. One with several next hops is several routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Route {
    /// The first address of the network.
    pub destination: IpAddr,
    /// Bits of the address that the network shares; 0 for the default route.
    pub prefix_length: u8,
    /// The next router, where there is one.
    pub gateway: Option<IpAddr>,
    /// Index of the interface; none for a route that refuses.
    pub interface: Option<u32>,
    /// The sender's address that the kernel chooses.
    pub source: Option<IpAddr>,
    /// The table; 254 is the main one.
    pub table: u32,
    /// The route with the smallest number wins among those to one network.
    pub priority: u32,
    /// Options that were set; the rest is the system's.
    pub metrics: RouteMetrics,
}

/// Options of a route (ip-route(8)); what was not set is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RouteMetrics {
    /// `mtu`, bytes.
    pub mtu: Option<u32>,
    /// `advmss`, bytes.
    pub advmss: Option<u32>,
    /// `rto_min`, milliseconds.
    pub rto_min_ms: Option<u32>,
    /// `quickack`: whether each segment is acknowledged at once.
    pub quickack: Option<bool>,
    /// `initcwnd`, segments.
    pub initcwnd: Option<u32>,
    /// `initrwnd`, segments.
    pub initrwnd: Option<u32>,
    /// `window`, bytes.
    pub window: Option<u32>,
    /// `congctl`: the congestion control.
    pub congestion_control: Option<String>,
}

impl Route {
    /// Whether it is a default route of the main table.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.prefix_length == 0 && self.table == MAIN && self.interface.is_some()
    }
}

impl fmt::Display for Route {
    /// As `ip route` names it, without the interface and options: `10.0.0.0/24`, `default via 10.0.0.1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.destination.is_ipv4() { 32 } else { 128 };
        match self.prefix_length {
            0 => f.write_str("default")?,
            length if length == whole => write!(f, "{}", self.destination)?,
            length => write!(f, "{}/{length}", self.destination)?,
        }
        match self.gateway {
            Some(gateway) => write!(f, " via {gateway}"),
            None => Ok(()),
        }
    }
}

/// Requests for all routes.
pub(super) fn all() -> [Vec<u8>; 2] {
    [INET, INET6].map(|family| header(family, 0))
}

/// A request for the route to an address.
pub(super) fn to(destination: IpAddr) -> Vec<u8> {
    let (mut bytes, address) = match destination {
        IpAddr::V4(address) => (header(INET, 32), address.octets().to_vec()),
        IpAddr::V6(address) => (header(INET6, 128), address.octets().to_vec()),
    };
    bytes.extend(Builder::new().bytes(DESTINATION, &address).finish());
    bytes
}

fn header(family: u8, prefix_length: u8) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    (bytes[0], bytes[1]) = (family, prefix_length);
    bytes
}

/// The routes in a message: one for each next hop; none where it cannot be parsed, or is no route for packets to other hosts.
#[must_use]
pub fn parse_route(payload: &[u8]) -> Vec<Route> {
    let Ok(message) = RouteMessage::parse(payload) else { return Vec::new() };
    let unspecified: IpAddr = match message.header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return Vec::new(),
    };
    let is_lookup = message.header.flags.contains(RouteFlags::Cloned);
    let is_local = matches!(message.header.kind, RouteType::Local);
    let is_unicast = matches!(message.header.kind, RouteType::Unicast);
    // The answer to a look-up may be this host itself; tables are read for the way to others.
    if !(is_unicast || is_local && is_lookup) {
        return Vec::new();
    }
    let route = Route {
        destination: unspecified,
        prefix_length: message.header.destination_prefix_length,
        gateway: None,
        interface: None,
        source: None,
        table: u32::from(message.header.table),
        priority: 0,
        metrics: RouteMetrics::default(),
    };
    let (route, hops) = read(route, &message.attributes);
    if hops.is_empty() {
        return vec![route];
    }
    let each = hops.iter().map(|hop| {
        let one = Route { interface: Some(hop.interface_index), ..route.clone() };
        read(one, &hop.attributes).0
    });
    each.collect()
}

fn read(mut route: Route, attributes: &[RouteAttribute]) -> (Route, &[RouteNextHop]) {
    let mut hops: &[RouteNextHop] = &[];
    for attribute in attributes {
        match attribute {
            RouteAttribute::Destination(address) => {
                route.destination = ip(address).unwrap_or(route.destination);
            }
            RouteAttribute::Gateway(address) => route.gateway = ip(address),
            RouteAttribute::PrefSource(address) => route.source = ip(address),
            RouteAttribute::Oif(index) => route.interface = Some(*index),
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Priority(priority) => route.priority = *priority,
            RouteAttribute::Metrics(metrics) => route.metrics = read_metrics(metrics),
            RouteAttribute::MultiPath(several) => hops = several,
            _ => {}
        }
    }
    (route, hops)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn read_metrics(metrics: &[RouteMetric]) -> RouteMetrics {
    let mut read = RouteMetrics::default();
    for metric in metrics {
        match metric {
            RouteMetric::Mtu(bytes) => read.mtu = Some(*bytes),
            RouteMetric::Advmss(bytes) => read.advmss = Some(*bytes),
            RouteMetric::RtoMin(ms) => read.rto_min_ms = Some(*ms),
            RouteMetric::QuickAck(on) => read.quickack = Some(*on != 0),
            RouteMetric::InitCwnd(segments) => read.initcwnd = Some(*segments),
            RouteMetric::InitRwnd(segments) => read.initrwnd = Some(*segments),
            RouteMetric::Window(bytes) => read.window = Some(*bytes),
            RouteMetric::CcAlgo(name) => read.congestion_control = Some(name.clone()),
            _ => {}
        }
    }
    read
}
