//! Text requests: SendTargets.

use std::net::SocketAddr;

use iscsi::login::SessionType;
use iscsi::text;

use crate::error::ConnectionEnd;
use crate::session::SessionKey;
use crate::shared::{Shared, may_log_in};

/// Answers the keys of a text request: SendTargets, and NotUnderstood for all others.
pub(super) fn answer(
    shared: &Shared,
    keys: &[u8],
    who: &SessionKey,
    session_type: SessionType,
    local: Option<SocketAddr>,
) -> Result<Vec<u8>, ConnectionEnd> {
    let mut answer = Vec::new();
    // The target is hidden from initiators that may not use it.
    let is_hidden = shared.access().is_some_and(|access| !may_log_in(&access, who));
    for (key, value) in text::parse(keys).map_err(iscsi::Fault::from)? {
        match (key, value) {
            // "All" is for discovery; a normal session may ask about its own target (RFC 7143 C).
            ("SendTargets", _) if is_hidden => {}
            ("SendTargets", "All") if session_type == SessionType::Discovery => {
                describe(shared, local, &mut answer);
            }
            ("SendTargets", "All") => text::push(&mut answer, key, "Reject"),
            ("SendTargets", name) if name.is_empty() && session_type == SessionType::Normal => {
                describe(shared, local, &mut answer);
            }
            ("SendTargets", name) if name.eq_ignore_ascii_case(&shared.config.iqn) => {
                describe(shared, local, &mut answer);
            }
            ("SendTargets", _) => {}
            _ => text::push(&mut answer, key, "NotUnderstood"),
        }
    }
    Ok(answer)
}

/// Appends the name and the portals of the target. A portal on the wildcard address is reported with the address that
/// this initiator connected to.
fn describe(shared: &Shared, local: Option<SocketAddr>, answer: &mut Vec<u8>) {
    text::push(answer, "TargetName", &shared.config.iqn);
    let mut named = Vec::new();
    for portal in &shared.portals {
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
