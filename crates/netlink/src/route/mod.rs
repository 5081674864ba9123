//! Links, addresses and routes over rtnetlink.

mod addresses;
mod links;
mod routes;

use std::net::IpAddr;

pub use addresses::{Address, parse_address};
pub use links::{Counters, Link, OperationalState, parse_link};
pub use routes::{Route, RouteMetrics, parse_route};

use crate::connection::{Connection as Netlink, Protocol};
use crate::error::Error;

/// Types of requests.
const GET_LINK: u16 = 18;
const SET_LINK: u16 = 19;
const GET_ADDRESS: u16 = 22;
const GET_ROUTE: u16 = 26;

/// A connection to the kernel's tables of links, addresses and routes, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Connection {
    netlink: Netlink,
}

impl Connection {
    /// Opens a connection.
    ///
    /// # Errors
    /// When the socket cannot be opened.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { netlink: Netlink::open(Protocol::Route)? })
    }

    /// All links.
    ///
    /// # Errors
    /// As [`Error`].
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let parts = self.netlink.dump("reading links", GET_LINK, &links::all())?;
        Ok(parts.iter().filter_map(|part| parse_link(&part.payload)).collect())
    }

    /// One link.
    ///
    /// # Errors
    /// As [`Error`]; [`Error::is_missing`] when there is none of this name.
    pub fn link(&mut self, interface: &str) -> Result<Link, Error> {
        let what = format!("reading link {interface}");
        let parts = self.netlink.request(&what, GET_LINK, 0, &links::named(&what, interface)?)?;
        let link = parts.iter().find_map(|part| parse_link(&part.payload));
        link.ok_or_else(|| Error::Malformed { what, why: "it has no link".to_owned() })
    }

    /// Changes the MTU of an interface, bytes.
    ///
    /// # Errors
    /// As [`Error`]; the kernel refuses an MTU beyond the driver's limits.
    pub fn set_mtu(&mut self, interface: &str, mtu: u32) -> Result<(), Error> {
        let what = format!("setting the MTU of {interface} to {mtu}");
        let request = links::with_mtu(&what, interface, mtu)?;
        self.netlink.request(&what, SET_LINK, 0, &request).map(drop)
    }

    /// All addresses of all interfaces.
    ///
    /// # Errors
    /// As [`Error`].
    pub fn addresses(&mut self) -> Result<Vec<Address>, Error> {
        let parts = self.netlink.dump("reading addresses", GET_ADDRESS, &[0; 8])?;
        Ok(parts.iter().filter_map(|part| parse_address(&part.payload)).collect())
    }

    /// All routes of IPv4 and IPv6 in all tables, without those to this host's own and to broadcast addresses.
    ///
    /// # Errors
    /// As [`Error`].
    pub fn routes(&mut self) -> Result<Vec<Route>, Error> {
        let mut all = Vec::new();
        for request in routes::all() {
            let parts = self.netlink.dump("reading routes", GET_ROUTE, &request)?;
            all.extend(parts.iter().flat_map(|part| parse_route(&part.payload)));
        }
        Ok(all)
    }

    /// The route that packets to an address take.
    ///
    /// # Errors
    /// As [`Error`]; the kernel answers `Network is unreachable` where there is none.
    pub fn route_to(&mut self, destination: IpAddr) -> Result<Route, Error> {
        let what = format!("reading the route to {destination}");
        let parts = self.netlink.request(&what, GET_ROUTE, 0, &routes::to(destination))?;
        let route = parts.iter().flat_map(|part| parse_route(&part.payload)).next();
        route.ok_or_else(|| Error::Malformed { what, why: "it has no route".to_owned() })
    }
}
