//! Notes on encrypted connections: whose they are, and why they were not decrypted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use analysis::verdict::Evidence;
use record::units::counted;
use record::{Encryption, Tls};

/// Servers, and names of one, that are told.
const SERVERS_TOLD: usize = 5;
const NAMES_TOLD: usize = 4;

/// The notes.
pub(crate) fn notes(evidence: &Evidence) -> Vec<String> {
    let all: Vec<(SocketAddr, Tls)> =
        evidence.connections().filter_map(|(_, facts)| Some((facts.server, facts.tls?))).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let mut notes = names(&all, evidence);
    let mut whys: BTreeMap<Encryption, u64> = BTreeMap::new();
    all.iter().for_each(|(_, tls)| *whys.entry(tls.encryption).or_default() += 1);
    notes.extend(whys.iter().filter_map(|(why, count)| text(*why, *count, all.len() as u64)));
    let early = all.iter().filter(|(_, tls)| tls.has_early_data).count() as u64;
    if early > 0 {
        notes.push(format!(
            "{} sent early data (0-RTT), which is not decrypted",
            counted(early, "TLS connection")
        ));
    }
    notes
}

/// Which names the clients have asked for.
fn names(all: &[(SocketAddr, Tls)], evidence: &Evidence) -> Vec<String> {
    let mut by_server: BTreeMap<SocketAddr, BTreeSet<&str>> = BTreeMap::new();
    for (server, tls) in all {
        let name = evidence.services.name_of(tls.name);
        if !name.is_empty() {
            by_server.entry(*server).or_default().insert(name);
        }
    }
    let more = by_server.len().saturating_sub(SERVERS_TOLD);
    let line = |(server, names): (&SocketAddr, &BTreeSet<&str>)| {
        let told: Vec<&str> = names.iter().copied().take(NAMES_TOLD).collect();
        let more = names.len() - told.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{server} is asked for {} by TLS{more}", told.join(", "))
    };
    let mut notes: Vec<String> = by_server.iter().take(SERVERS_TOLD).map(line).collect();
    if more > 0 {
        notes.push(format!("{more} more servers are asked for names by TLS"));
    }
    notes
}

/// Why some connections were not decrypted.
fn text(why: Encryption, count: u64, all: u64) -> Option<String> {
    let of = format!("{count} of {}", counted(all, "TLS connection"));
    let rest = "times are per turn, not per request";
    Some(match why {
        Encryption::Decrypted => return None,
        Encryption::NoKeyLog => format!(
            "{of}: encrypted, {rest}; --keylog FILE decrypts them (SSLKEYLOGFILE of the client or the server)"
        ),
        Encryption::NoSecret => format!("{of}: the key log has no secret for them; {rest}"),
        Encryption::WrongSecret => {
            format!("{of}: the secrets of the key log do not open their records; {rest} from there on")
        }
        Encryption::Suite(number) => {
            format!("{of}: {}, which is not decrypted; {rest}", suite(number))
        }
        Encryption::NoHandshake => format!(
            "{of}: their handshake is not in the capture, so that no secret can be found for them; {rest}"
        ),
    })
}

/// The name of a suite that cannot be decrypted.
fn suite(number: u16) -> String {
    let kind = match number {
        0x1304 | 0x1305 | 0xc09c..=0xc0af => "AES-CCM",
        0x0004 | 0x0005 | 0xc007 | 0xc011 => "RC4",
        0x000a | 0x0016 | 0xc008 | 0xc012 => "3DES",
        0x0001 | 0x0002 | 0x003b | 0xc006 | 0xc010 => "without encryption",
        0x002f..=0x0040 | 0x0067..=0x006d | 0xc004..=0xc02a => "AES-CBC",
        0x0041..=0x0046 | 0x0084..=0x0089 | 0xc072..=0xc09b => "Camellia",
        _ => "unknown",
    };
    format!("cipher suite {number:#06x} ({kind})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_words() {
        let of = |why| text(why, 3, 5).unwrap_or_default();
        assert_eq!(of(Encryption::Decrypted), "");
        assert!(of(Encryption::NoSecret).starts_with("3 of 5 TLS connections: the key log has no secret"));
        assert!(of(Encryption::Suite(0xc013)).contains("cipher suite 0xc013 (AES-CBC)"));
        assert!(of(Encryption::NoKeyLog).contains("--keylog"));
        assert!(of(Encryption::NoHandshake).contains("not in the capture"));
        assert!(of(Encryption::WrongSecret).contains("do not open"));
    }
}
