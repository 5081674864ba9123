use proptest::prelude::*;

use super::*;
use crate::link::Link;
use frames::{
    PAYLOAD, SEQ, all, ethernet, from, gtp, ip4, ip6, join, label, part, pppoe, tcp, udp, vlan, vxlan,
    wireless,
};

mod against_tshark;
mod frames;

fn read(link: u32, bytes: &[u8]) -> Result<Segment<'_>, NotTcp> {
    Link::by_number(link).expect("a link layer").decode(bytes, bytes.len() as u32).map(|(segment, _)| segment)
}

/// The name under which a frame without a segment is counted.
fn name(link: u32, bytes: &[u8]) -> String {
    let link = Link::by_number(link).expect("a link layer");
    let reason = link.decode(bytes, bytes.len() as u32).expect_err("no segment");
    link.unread(reason, bytes).to_string()
}

#[test]
fn the_segment_is_found_in_every_encapsulation() {
    for case in all() {
        let segment =
            read(case.link, &case.bytes).unwrap_or_else(|reason| panic!("{}: {reason:?}", case.name));
        assert_eq!(
            (segment.seq, segment.payload, segment.payload_bytes),
            (SEQ, PAYLOAD, PAYLOAD.len()),
            "{}",
            case.name
        );
        // What follows the packet is the link layer's: padding or a checksum.
        let padded = join(&[&case.bytes, &[0xee; 9]]);
        let segment = read(case.link, &padded).unwrap_or_else(|reason| panic!("{}: {reason:?}", case.name));
        assert_eq!(segment.payload, PAYLOAD, "{} with padding", case.name);
        // Of a snap length that keeps the headers, the payload's length is still known.
        let cut = &case.bytes[..case.bytes.len() - 20];
        let (segment, _) = Link::by_number(case.link).unwrap().decode(cut, case.bytes.len() as u32).unwrap();
        let kept = segment.payload.len() + 20;
        // NFLOG pads its fields.
        let padding = if case.link == 239 { 3 } else { 0 };
        assert!((PAYLOAD.len()..=PAYLOAD.len() + padding).contains(&kept), "{}: {kept}", case.name);
        assert_eq!(segment.payload_bytes, PAYLOAD.len(), "{}", case.name);
    }
}

#[test]
fn a_frame_that_ends_within_its_headers_is_truncated() {
    for case in all() {
        // Padding may follow the payload.
        let headers = case.bytes.windows(PAYLOAD.len()).position(|bytes| bytes == PAYLOAD).unwrap();
        for length in 0..headers {
            let found =
                Link::by_number(case.link).unwrap().decode(&case.bytes[..length], case.bytes.len() as u32);
            let reason = found.map(|_| ()).expect_err(case.name);
            assert_eq!(reason, NotTcp::Truncated, "{} at {length}", case.name);
        }
    }
}

#[test]
fn frames_without_a_segment_have_names() {
    let inner = |ether_type: u16, payload: &[u8]| {
        ethernet(0x0800, &ip4(17, &udp(4789, &vxlan(9, &ethernet(ether_type, payload)))))
    };
    let over = |protocol: u8, payload: &[u8]| ethernet(0x0800, &ip4(protocol, payload));
    let container = join(&[&[0, 0, 0, 0x85, 0, 0, 0, 0], &ip4(6, &tcp())]);
    let labels: Vec<u8> = (0..20).flat_map(|number| label(number, false)).collect();
    for (bytes, expected) in [
        (over(17, &udp(53, &[0; 12])), "UDP"),
        (over(17, &udp(4789, &[0; 60])), "UDP"),
        (over(50, &[1; 40]), "ESP (encrypted)"),
        (over(17, &udp(4500, &[1; 40])), "ESP (encrypted)"),
        (over(17, &from(4500, 40_000, &[1; 40])), "ESP (encrypted)"),
        (over(17, &from(4500, 40_000, &[0; 40])), "UDP"),
        (over(17, &udp(4500, &[0; 40])), "UDP"),
        (over(108, &[1; 40]), "IPComp (compressed)"),
        (over(99, &[1; 40]), "other IP protocols"),
        (over(1, &[3, 4, 0, 0]), "ICMP"),
        (ethernet(0x88e5, &[0; 40]), "MACsec (encrypted)"),
        (ethernet(0x0806, &[0; 28]), "ARP"),
        (ethernet(0x8863, &[0; 28]), "PPPoE discovery"),
        (ethernet(0x1234, &[0; 28]), "other network protocols"),
        (ethernet(38, &[0x42, 0x42, 3, 0, 0, 0]), "802.3 LLC"),
        (ethernet(0x8100, &vlan(5, 0x0806, &[0; 28])), "ARP"),
        (inner(0x0806, &[0; 28]), "ARP in VXLAN"),
        (inner(0x0800, &ip4(17, &udp(53, &[0; 12]))), "UDP in VXLAN"),
        (inner(0x1234, &[0; 28]), "VXLAN with an unknown inner type"),
        (inner(0x0800, &[0; 28]), "VXLAN with an unknown inner type"),
        (over(47, &[0, 0, 0x12, 0x34, 0]), "GRE with an unknown inner type"),
        (over(47, &[0x40, 0, 8, 0, 0]), "GRE with an unknown inner type"),
        (over(17, &udp(2152, &[0x32, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0])), "GTP-U signalling"),
        (over(17, &udp(2152, &gtp(9, &[], &[0x12; 30]))), "GTP-U with an unknown inner type"),
        (ethernet(0x8864, &pppoe(0xc021, &[0; 8])), "control packets in PPPoE"),
        (ethernet(0x8864, &pppoe(0x0053, &[0; 8])), "packets (encrypted) in PPPoE"),
        (ethernet(0x8847, &labels), "more than 16 headers in MPLS"),
        (ethernet(0x8847, &join(&[&label(99, true), &[0x50; 40]])), "MPLS with an unknown inner type"),
        (over(6, &part(6, 0, &[])), "TCP with an invalid header"),
        (over(17, &udp(2152, &gtp(9, &container, &[]))), "truncated frames"),
    ] {
        assert_eq!(name(1, &bytes), expected);
    }
    assert_eq!(name(105, &wireless(0, 0x41, &[], &ip4(6, &tcp()))), "802.11 (encrypted)");
    assert_eq!(name(105, &wireless(8, 1, &[0x80, 0], &ip4(6, &tcp()))), "802.11 aggregates");
    assert_eq!(name(105, &wireless(4, 1, &[], &[])), "802.11 management and control");
    assert_eq!(name(105, &wireless(0, 5, &[], &ip4(6, &tcp()))), "fragments of 802.11");
    assert_eq!(read(1, &over(1, &[3, 4, 0, 0])).unwrap_err(), NotTcp::TooBig);
    assert_eq!(read(1, &inner(0x86dd, &ip6(58, &[2, 0, 0, 0]))).unwrap_err(), NotTcp::TooBig);
}

const OTHER_FRAGMENTS: &str = "fragments of other IP protocols";

#[test]
fn a_first_fragment_of_a_tunnel_is_read_and_other_fragments_are_named() {
    let whole = udp(4789, &vxlan(9, &ethernet(0x0800, &ip4(6, &tcp()))));
    let (first, second) = whole.split_at(whole.len() - 8);
    let frame = |protocol: u8, place: u16, payload: &[u8]| ethernet(0x0800, &part(protocol, place, payload));
    let bytes = frame(17, 0x2000, first);
    let segment = read(1, &bytes).unwrap();
    assert_eq!((segment.payload, segment.payload_bytes), (&PAYLOAD[..PAYLOAD.len() - 8], PAYLOAD.len()));
    let later = (whole.len() as u16 - 8) / 8;
    for (bytes, expected) in [
        (frame(17, later, second), "fragments of UDP"),
        (frame(17, 0x2000, &udp(53, &[0; 1472])), "fragments of UDP"),
        // Where it ends is not known before the last fragment has come.
        (frame(6, 0x2000, &tcp()), "fragments of TCP"),
        (frame(6, 5, &tcp()), "fragments of TCP"),
        (frame(1, 5, &[0; 8]), "fragments of ICMP"),
        (frame(99, 5, &[0; 8]), OTHER_FRAGMENTS),
        (ethernet(0x86dd, &ip6(44, &join(&[&[47, 0, 1, 0, 0, 0, 0, 1], &[0; 8]]))), "fragments of GRE"),
        (ethernet(0x86dd, &ip6(44, &join(&[&[6, 0, 0, 1, 0, 0, 0, 1], &tcp()]))), "fragments of TCP"),
        // What a later fragment begins with is no header, whatever the fragments begin with.
        (ethernet(0x86dd, &ip6(44, &join(&[&[60, 0, 1, 0, 0, 0, 0, 1], &[6; 40]]))), OTHER_FRAGMENTS),
        (ethernet(0x8864, &pppoe(0x21, &part(6, 5, &tcp()))), "fragments of TCP in PPPoE"),
    ] {
        assert_eq!((read(1, &bytes).unwrap_err(), name(1, &bytes).as_str()), (NotTcp::Fragment, expected));
    }
}

#[test]
fn nested_tunnels_end() {
    let mut bytes = ip4(6, &tcp());
    let mut depth = 0;
    while bytes.len() < 60_000 {
        bytes = ip4(4, &bytes);
        depth += 1;
        let found = read(101, &bytes);
        // The TCP packet and each one around it is a header.
        assert_eq!(found.is_ok(), depth < HEADERS_MAX, "{depth} packets around it");
    }
    assert_eq!(name(101, &bytes), "more than 16 headers in IP in IP");
    let mut tags = vec![0x81, 0x00];
    for _ in 0..10_000 {
        tags.extend_from_slice(&[0, 5, 0x81, 0]);
    }
    assert_eq!(name(1, &join(&[&[0; 12], &tags])), "more than 16 headers");
}

#[test]
fn each_identifier_makes_another_tag() {
    let inner = ethernet(0x0800, &ip4(6, &tcp()));
    let four = ip4(6, &tcp());
    let vxlan = |network| ethernet(0x0800, &ip4(17, &udp(4789, &vxlan(network, &inner))));
    let keyed = |key| ethernet(0x0800, &ip4(47, &join(&[&[0x20, 0, 8, 0, 0, 0, 0, key], &four])));
    let gtp = |session| ethernet(0x0800, &ip4(17, &udp(2152, &gtp(session, &[], &four))));
    let stack = |number| ethernet(0x8847, &join(&[&label(number, true), &four]));
    let tagged = |id| ethernet(0x8100, &vlan(id, 0x0800, &four));
    let session = |id: u8| {
        let mut bytes = ethernet(0x8864, &pppoe(0x21, &four));
        bytes[17] = id;
        bytes
    };
    let mirror = |id| {
        let header = [0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, id, 0, 9, 0, 0, 0, 1];
        ethernet(0x0800, &ip4(47, &join(&[&header, &inner])))
    };
    let double = |one, other| ethernet(0x88a8, &vlan(one, 0x8100, &vlan(other, 0x0800, &four)));
    let frames = [
        vxlan(7),
        vxlan(8),
        keyed(7),
        keyed(8),
        gtp(7),
        gtp(8),
        session(7),
        session(8),
        mirror(7),
        mirror(8),
        stack(77),
        stack(78),
        tagged(7),
        tagged(8),
        double(7, 8),
        double(8, 7),
        double(7, 7),
        ethernet(0x0800, &ip4(4, &four)),
        ethernet(0x0800, &ip4(4, &ip4(4, &four))),
    ];
    let tags: std::collections::BTreeSet<Tag> =
        frames.iter().map(|bytes| read(1, bytes).unwrap().tag).collect();
    assert_eq!(tags.len(), frames.len());
    assert!(!tags.contains(&Tag::NONE));
    // A tag with a priority only is none; both directions of a tunnel have one tag, whatever their ports.
    assert_eq!(read(1, &tagged(0x2000)).unwrap().tag, Tag::NONE);
    let mut back = vxlan(7);
    let (source, destination) = (back[26..30].to_vec(), back[30..34].to_vec());
    back[26..30].copy_from_slice(&destination);
    back[30..34].copy_from_slice(&source);
    back[34] ^= 0x55;
    assert_eq!(read(1, &back).unwrap().tag, read(1, &vxlan(7)).unwrap().tag);
}

#[test]
fn what_changes_within_a_connection_is_no_part_of_its_tag() {
    let four = ip4(6, &tcp());
    // The length of a packet of PPTP is in its key.
    let pptp = |bytes: u8| {
        let header = [0x30, 1, 0x88, 0x0b, 0, bytes, 0, 9, 0, 0, 0, bytes, 0, 0x21];
        ethernet(0x0800, &ip4(47, &join(&[&header, &four])))
    };
    assert_eq!(read(1, &pptp(60)).unwrap().tag, read(1, &pptp(70)).unwrap().tag);
    // The ends of a tunnel of GTP-U, when its user moves.
    let here = ethernet(0x0800, &ip4(17, &udp(2152, &gtp(9, &[], &four))));
    let mut there = here.clone();
    there[14 + 19] = 77;
    assert_eq!(read(1, &here).unwrap().tag, read(1, &there).unwrap().tag);
    // Labels that state a kind of packet.
    assert_eq!(read(1, &ethernet(0x8847, &join(&[&label(0, true), &four]))).unwrap().tag, Tag::NONE);
}

const LINKS: [u32; 27] = [
    0, 1, 9, 12, 14, 50, 51, 100, 101, 104, 105, 107, 108, 109, 113, 117, 127, 166, 192, 204, 228, 229, 239,
    276, 1, 1, 1,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever the bytes, and wherever a valid frame is changed.
    #[test]
    fn no_bytes_can_panic(
        link in 0..LINKS.len(),
        random in prop::collection::vec(any::<u8>(), 0..200),
        which in 0_usize..1000,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        wire: u32,
    ) {
        let cases = all();
        let case = &cases[which % cases.len()];
        let mut changed = case.bytes.clone();
        for (place, byte) in changes {
            *place.get_mut(&mut changed) = byte;
        }
        let cut = cut.index(changed.len() + 1);
        for (number, bytes) in [(LINKS[link], random.as_slice()), (case.link, &changed), (case.link, &changed[..cut])] {
            let link = Link::by_number(number).unwrap();
            match link.decode(bytes, wire) {
                Ok((segment, _)) => prop_assert!(segment.payload.len() <= segment.payload_bytes),
                Err(reason) => prop_assert!(link.unread(reason, bytes).to_string().len() < 96),
            }
        }
    }
}
