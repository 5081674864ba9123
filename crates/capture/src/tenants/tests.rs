use super::Tenants;
use crate::encapsulation::Tag;
use crate::link::Link;
use crate::observer::seen::Seen;
use crate::packet::{At, Endpoint};
use crate::vantage::{Selection, Vantage};

/// A connection between the same ends as every other one.
struct Talk {
    sent: [u32; 2],
    id: u16,
}

const SYN: u8 = 2;
const ACK: u8 = 16;
const CLIENT: usize = 0;
const SERVER: usize = 1;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

impl Talk {
    fn new(client: u32, server: u32) -> Self {
        Self { sent: [client, server], id: 1 }
    }

    /// The next packet of one end, in IP; `id` 0 as senders that do not count.
    fn packet(&mut self, from: usize, flags: u8, payload: &[u8]) -> Vec<u8> {
        let ports: [[u8; 2]; 2] = [[0x9c, 0x40], [0, 80]];
        let addresses = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let to = 1 - from;
        let total = (40 + payload.len()) as u16;
        let ack = if flags & ACK == 0 { 0 } else { self.sent[to] };
        let packet = [
            &[0x45, 0][..],
            &total.to_be_bytes(),
            &self.id.to_be_bytes(),
            &[0x40, 0, 64, 6, 0, 0],
            &addresses[from],
            &addresses[to],
            &ports[from],
            &ports[to],
            &self.sent[from].to_be_bytes(),
            &ack.to_be_bytes(),
            &[0x50, flags, 1, 0, 0, 0, 0, 0],
            payload,
        ]
        .concat();
        let takes = u32::from(flags & SYN != 0) + payload.len() as u32;
        self.sent[from] = self.sent[from].wrapping_add(takes);
        self.id += u16::from(self.id != 0);
        packet
    }

    fn handshake(&mut self) -> Vec<Vec<u8>> {
        vec![
            self.packet(CLIENT, SYN, b""),
            self.packet(SERVER, SYN | ACK, b""),
            self.packet(CLIENT, ACK, b""),
        ]
    }

    /// One request, its response, and the acknowledgement.
    fn exchange(&mut self) -> Vec<Vec<u8>> {
        vec![
            self.packet(CLIENT, ACK, REQUEST),
            self.packet(SERVER, ACK, RESPONSE),
            self.packet(CLIENT, ACK, b""),
        ]
    }
}

fn plain(packet: &[u8]) -> Vec<u8> {
    [&[0; 12][..], &[8, 0], packet].concat()
}

fn vlan(id: u8, packet: &[u8]) -> Vec<u8> {
    [&[0; 12][..], &[0x81, 0, 0, id, 8, 0], packet].concat()
}

fn vxlan(network: u8, packet: &[u8]) -> Vec<u8> {
    let inner = plain(packet);
    let total = (36 + inner.len()) as u16;
    let ip = [&[0x45, 0][..], &total.to_be_bytes(), &[0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]]
        .concat();
    plain(&[&ip[..], &[0xc0, 1, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, network, 0], &inner].concat())
}

fn is_from_client(packet: &[u8]) -> bool {
    packet[15] == 1
}

/// Passes frames, ten microseconds apart.
fn pass(frames: impl IntoIterator<Item = Vec<u8>>) -> Seen {
    let (mut vantage, mut seen) = (Vantage::new(Selection::default()), Seen::default());
    for (number, frame) in (1..).zip(frames) {
        let at = At { ns: number * 10_000, frame: number };
        vantage.frame(Link::Ethernet, at, &frame, frame.len() as u32, &mut seen);
    }
    vantage.finish(&mut seen);
    seen
}

fn exchanges(seen: &Seen) -> Vec<u64> {
    seen.facts.iter().map(|facts| facts.exchanges).collect()
}

fn retransmitted(seen: &Seen) -> u64 {
    seen.facts.iter().map(|f| f.client_conduct.retransmitted + f.server_conduct.retransmitted).sum()
}

#[test]
fn tenants_with_the_same_addresses_and_ports_are_apart() {
    for around in [vlan, vxlan] {
        for with_handshake in [true, false] {
            let (mut one, mut other) = (Talk::new(1000, 5_000_000), Talk::new(3_000_000_000, 2_000_000_000));
            let mut frames = Vec::new();
            let both = |a: Vec<Vec<u8>>, b: Vec<Vec<u8>>| {
                a.into_iter().zip(b).flat_map(|(a, b)| [around(7, &a), around(8, &b)]).collect::<Vec<_>>()
            };
            let hands = both(one.handshake(), other.handshake());
            frames.extend(hands.into_iter().filter(|_| with_handshake));
            for _ in 0..20 {
                frames.extend(both(one.exchange(), other.exchange()));
            }
            let seen = pass(frames);
            assert_eq!((exchanges(&seen), seen.exchanges.len(), seen.holes.len()), (vec![20, 20], 40, 0));
            assert_eq!(retransmitted(&seen), 0);
        }
    }
}

#[test]
fn a_plain_tenant_and_a_tagged_one_are_apart() {
    let (mut one, mut other) = (Talk::new(1000, 5_000_000), Talk::new(3_000_000_000, 2_000_000_000));
    let mut frames = Vec::new();
    for _ in 0..20 {
        for (a, b) in one.exchange().into_iter().zip(other.exchange()) {
            frames.extend([vxlan(7, &a), plain(&b)]);
        }
    }
    assert_eq!(exchanges(&pass(frames)), [20, 20]);
}

#[test]
fn tenants_whose_numbers_are_close_in_one_direction_are_apart() {
    for [client, server] in [[2000, 2_000_000_000], [3_000_000_000, 5_001_000]] {
        let (mut one, mut other) = (Talk::new(1000, 5_000_000), Talk::new(client, server));
        // Both directions of one are known when the other begins.
        let mut frames: Vec<_> = one.exchange().iter().map(|packet| vxlan(7, packet)).collect();
        for _ in 0..20 {
            for (a, b) in one.exchange().into_iter().zip(other.exchange()) {
                frames.extend([vxlan(7, &a), vxlan(8, &b)]);
            }
        }
        let mut exchanges = exchanges(&pass(frames));
        exchanges.sort_unstable();
        assert_eq!(exchanges, [20, 21], "{client} {server}");
    }
}

#[test]
fn a_connection_with_another_tag_in_each_direction_is_one() {
    for with_handshake in [true, false] {
        let mut talk = Talk::new(u32::MAX - 50, 77);
        let mut packets = if with_handshake { talk.handshake() } else { Vec::new() };
        packets.extend((0..20).flat_map(|_| talk.exchange()));
        let frames = packets.iter().map(|packet| vlan(if is_from_client(packet) { 10 } else { 20 }, packet));
        let seen = pass(frames);
        assert_eq!((exchanges(&seen), seen.holes.len(), seen.facts[0].duplicates), (vec![20], 0, 0));
    }
}

#[test]
fn ports_that_are_used_again_begin_a_new_connection_in_each_direction() {
    let mut packets = Vec::new();
    for round in 1..4 {
        let mut talk = Talk::new(round * 1_000_000_000, round * 77_000_000);
        packets.extend(talk.handshake());
        packets.extend((0..5).flat_map(|_| talk.exchange()));
    }
    let frames = packets.iter().map(|packet| vxlan(if is_from_client(packet) { 10 } else { 20 }, packet));
    let seen = pass(frames);
    assert_eq!((exchanges(&seen), seen.holes.len()), (vec![5, 5, 5], 0));
}

#[test]
fn ports_are_used_again_where_the_capture_began_with_the_other_direction() {
    let mut old = Talk::new(1_000_000_000, 77_000_000);
    let mut packets: Vec<_> = (0..5).flat_map(|_| old.exchange()).skip(1).collect();
    let mut new = Talk::new(2_000_000_000, 3_000_000_000);
    packets.extend(new.handshake());
    packets.extend((0..7).flat_map(|_| new.exchange()));
    let seen = pass(packets.iter().map(|packet| vxlan(if is_from_client(packet) { 10 } else { 20 }, packet)));
    assert_eq!((seen.facts.len(), seen.facts[1].exchanges), (2, 7), "{:?}", exchanges(&seen));
}

#[test]
fn the_end_of_a_connection_on_another_path_is_no_copy() {
    const FIN: u8 = 1;
    const RST: u8 = 4;
    for last in [FIN | ACK, RST | ACK] {
        let mut talk = Talk::new(9, 99);
        let packets = talk.handshake().into_iter().chain(talk.exchange());
        let mut frames: Vec<_> = packets.map(|packet| vlan(10, &packet)).collect();
        for from in [CLIENT, SERVER] {
            frames.push(vlan(20, &talk.packet(from, last, b"")));
        }
        let seen = pass(frames);
        assert_eq!((seen.facts.len(), seen.facts[0].has_ended, seen.facts[0].duplicates), (1, true, 0));
    }
}

#[test]
fn a_connection_that_is_over_leaves_nothing() {
    let end = |port| Endpoint { address: 1, port };
    let key = |tag| (end(80), end(40_000), tag);
    let (plain, tag) = (Tag::NONE, Tag::NONE.vlan(7));
    for own in [plain, tag] {
        let mut tenants = Tenants::default();
        tenants.begin(&key(own));
        tenants.join(&key(Tag::NONE.vlan(8)), &key(own));
        assert_eq!(tenants.known(&key(Tag::NONE.vlan(8))), Some(key(own)));
        tenants.forget(&key(own));
        assert!(tenants.is_empty());
    }
}

#[test]
fn a_packet_that_passes_plain_and_in_a_tunnel_counts_once() {
    // Senders that count their packets, and that do not; copies one by one, and of several packets together.
    for id in [1, 0] {
        for together in [1, 2, 3, 6] {
            for tunnel_first in [false, true] {
                let mut talk = Talk { sent: [9, 99], id };
                let mut packets = talk.handshake();
                packets.extend((0..20).flat_map(|_| talk.exchange()));
                let mut frames = Vec::new();
                for few in packets.chunks(together) {
                    let bare: Vec<_> = few.iter().map(|packet| plain(packet)).collect();
                    let inside: Vec<_> = few.iter().map(|packet| vxlan(7, packet)).collect();
                    let (first, second) = if tunnel_first { (inside, bare) } else { (bare, inside) };
                    frames.extend(first.into_iter().chain(second));
                }
                let copies = packets.len() as u64;
                let seen = pass(frames);
                let name = format!("id {id}, {together} together");
                assert_eq!(
                    (exchanges(&seen), seen.exchanges.len(), seen.holes.len()),
                    (vec![20], 20, 0),
                    "{name}"
                );
                assert_eq!(retransmitted(&seen), 0, "{name}");
                assert_eq!(seen.facts[0].duplicates, copies, "{name}");
            }
        }
    }
}

#[test]
fn a_connection_that_moves_to_another_path_is_one_and_its_losses_count() {
    let mut talk = Talk::new(9, 99);
    let mut frames: Vec<_> = talk.handshake().iter().map(|packet| vlan(10, packet)).collect();
    for round in 0..20 {
        let id = if round < 10 { 10 } else { 20 };
        let packets = talk.exchange();
        // An acknowledgement is the first packet on the other path.
        let last_id = if round < 9 { 10 } else { 20 };
        frames.extend(packets.iter().zip([id, id, last_id]).map(|(packet, id)| vlan(id, packet)));
        if round == 15 {
            // The response again, on its own path: not a copy.
            let mut again = packets[1].clone();
            again[5] ^= 0x80;
            frames.push(vlan(id, &again));
        }
    }
    let seen = pass(frames);
    assert_eq!((exchanges(&seen), seen.holes.len(), seen.facts[0].duplicates), (vec![20], 0, 0));
    assert_eq!(retransmitted(&seen), 1);
}

#[test]
fn thousands_of_tags_between_the_same_ends_take_bounded_work() {
    // Each begins a connection of its own; beyond the table's limit the oldest ones go.
    let frames = (0..20_000_u32).map(|number| {
        let mut talk = Talk::new(number.wrapping_mul(0x9e37_79b1), number.wrapping_mul(0x85eb_ca6b));
        let inner = vlan((number % 256) as u8, &talk.packet(CLIENT, ACK, REQUEST)[..]);
        let mut tagged = inner[..12].to_vec();
        tagged.extend([0x88, 0xa8, (number >> 16 & 0x0f) as u8, (number >> 8) as u8]);
        tagged.extend(&inner[12..]);
        tagged
    });
    assert!(pass(frames).facts.len() > 15_000);
}
