//! Text requests: SendTargets.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use iscsi::login::SessionType;
use iscsi::text;

use crate::error::ConnectionEnd;
use crate::node::Node;
use crate::session::Session;
use crate::shared::Shared;

/// Answers the keys of a text request: SendTargets, and NotUnderstood for all others.
pub(super) fn answer(
    shared: &Shared,
    keys: &[u8],
    session: &Session,
    session_type: SessionType,
    peer: IpAddr,
    local: Option<SocketAddr>,
) -> Result<Vec<u8>, ConnectionEnd> {
    let mut answer = Vec::new();
    // A normal session is told about its own target alone, whatever it asks for (RFC 7143 C). libiscsi's suite expects an answer
    // to "All" there, and a rejection of what is no name.
    let is_discovery = session_type == SessionType::Discovery;
    for (key, value) in text::parse(keys).map_err(iscsi::Fault::from)? {
        if key != "SendTargets" {
            text::push(&mut answer, key, "NotUnderstood");
            continue;
        }
        if !(matches!(value, "All" | "") || is_name(value)) {
            text::push(&mut answer, key, "Reject");
            continue;
        }
        for node in shared.nodes.all().iter() {
            let is_asked = match value {
                "All" => true,
                "" => !is_discovery,
                name => node.has_name(name),
            };
            let is_own = is_discovery || session.node.as_ref().is_some_and(|own| Arc::ptr_eq(own, node));
            // A target is hidden from initiators that may not use it.
            if is_asked && is_own && is_shown(node, session, peer) {
                describe(shared, node, local, &mut answer);
            }
        }
    }
    Ok(answer)
}

/// Returns whether a value has the form of an iSCSI name (RFC 7143 4.2.7), whose type is not case-sensitive.
fn is_name(value: &str) -> bool {
    let kind = value.get(..4).unwrap_or_default().to_ascii_lowercase();
    matches!(&*kind, "iqn." | "eui." | "naa.")
}

/// Returns whether an initiator may know of a target: without discovery authentication, its name decides.
fn is_shown(node: &Node, session: &Session, peer: IpAddr) -> bool {
    let Some(access) = node.access() else { return true };
    let name = &session.key.initiator_name;
    if session.node.is_none() && !access.discovery {
        return access.is_reached_from(peer) && access.lists(name);
    }
    // Another target's user of the same name has another secret.
    let is_known = session.node.is_some()
        || session.proven.as_ref().is_none_or(|proven| {
            access.users.is_empty() || access.users_for(name).any(|user| user.credentials == *proven)
        });
    is_known && access.admits(name, peer, session.key.user.as_deref())
}

/// Appends the name and the portals of a target. A portal on the wildcard address is reported with the address that this initiator
/// connected to.
fn describe(shared: &Shared, node: &Node, local: Option<SocketAddr>, answer: &mut Vec<u8>) {
    text::push(answer, "TargetName", &node.iqn);
    let mut named = Vec::new();
    for portal in shared.portals.iter().filter(|portal| node.groups.contains(&portal.group)) {
        let listens = portal.listen;
        let reached = local.map(|here| (here.ip(), listens.port()).into());
        let address =
            portal.advertise.or(if listens.ip().is_unspecified() { reached } else { Some(listens) });
        if let Some(address) = address.filter(|address| !named.contains(address)) {
            text::push(answer, "TargetAddress", format!("{address},{}", portal.group));
            named.push(address);
        }
    }
}
