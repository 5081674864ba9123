//! Frames with the same segment in every encapsulation, built by hand.

/// The payload of the segment.
pub(super) const PAYLOAD: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
/// Its sequence number.
pub(super) const SEQ: u32 = 0x0102_0304;

/// Headers one after the other.
pub(super) fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn sized(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).expect("short").to_be_bytes()
}

/// A segment from port 40000 to port 80.
pub(super) fn tcp() -> Vec<u8> {
    let header = [0x9c, 0x40, 0, 80, 1, 2, 3, 4, 0, 0, 0, 9, 0x50, 0x18, 1, 0, 0, 0, 0, 0];
    join(&[&header, PAYLOAD])
}

/// A packet of IPv4 with a flags-and-offset field.
pub(super) fn part(protocol: u8, place: u16, payload: &[u8]) -> Vec<u8> {
    let head =
        join(&[&[0x45, 0], &sized(20 + payload.len()), &[0, 7], &place.to_be_bytes(), &[64, protocol]]);
    join(&[&head, &[0, 0, 10, 0, 0, 1, 10, 0, 0, 2], payload])
}

/// A packet of IPv4.
pub(super) fn ip4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    part(protocol, 0x4000, payload)
}

/// A packet of IPv6.
pub(super) fn ip6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    join(&[&[0x60, 0, 0, 0], &sized(payload.len()), &[protocol, 64], &[0xfd; 16], &[0xfe; 16], payload])
}

/// A datagram to a port.
pub(super) fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    from(0xc001, port, payload)
}

/// A datagram from a port to another one.
pub(super) fn from(port: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&port.to_be_bytes(), &to.to_be_bytes(), &sized(8 + payload.len()), &[0, 0], payload])
}

/// A frame of Ethernet.
pub(super) fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &ether_type.to_be_bytes(), payload])
}

/// What is behind the EtherType of a tag.
pub(super) fn vlan(id: u16, ether_type: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&id.to_be_bytes(), &ether_type.to_be_bytes(), payload])
}

/// What is behind the header of a datagram of VXLAN.
pub(super) fn vxlan(network: u8, payload: &[u8]) -> Vec<u8> {
    join(&[&[8, 0, 0, 0, 0, 0, network, 0], payload])
}

/// A label; the last one of its stack or not.
pub(super) fn label(number: u32, is_last: bool) -> [u8; 4] {
    (number << 12 | u32::from(is_last) << 8 | 64).to_be_bytes()
}

/// A packet of GTP-U.
pub(super) fn gtp(session: u32, extensions: &[u8], payload: &[u8]) -> Vec<u8> {
    let flags = if extensions.is_empty() { 0x30 } else { 0x34 };
    let length = sized(extensions.len() + payload.len());
    join(&[&[flags, 0xff], &length, &session.to_be_bytes(), extensions, payload])
}

/// A session of PPP over Ethernet, without Ethernet's header.
pub(super) fn pppoe(protocol: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&[0x11, 0, 0, 7], &sized(2 + payload.len()), &protocol.to_be_bytes(), payload])
}

/// A frame with data of IEEE 802.11, of this subtype with these flags, and more header bytes.
pub(super) fn wireless(subtype: u8, flags: u8, more: &[u8], payload: &[u8]) -> Vec<u8> {
    let snap = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
    join(&[&[subtype << 4 | 8, flags, 0, 0], &[2; 18], &[0x10, 0], more, &snap, payload])
}

/// A field of NFLOG as a little-endian host writes it.
fn field(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).expect("short");
    let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
    join(&[&length.to_le_bytes(), &kind.to_le_bytes(), value, &padding])
}

/// The same with the other byte order.
fn swapped_field(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = field(kind, value);
    bytes[..4].reverse();
    bytes.swap(0, 2);
    bytes.swap(1, 3);
    bytes
}

/// A frame and where it is from.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) link: u32,
    pub(super) bytes: Vec<u8>,
}

/// Every encapsulation that is read.
pub(super) fn all() -> Vec<Case> {
    let mut cases = tunnels();
    cases.extend(links());
    cases
}

fn tunnels() -> Vec<Case> {
    let four = ip4(6, &tcp());
    let six = ip6(6, &tcp());
    let inner = ethernet(0x0800, &four);
    let tagged = ethernet(0x8100, &vlan(5, 0x0800, &four));
    let over = |protocol: u8, payload: &[u8]| ethernet(0x0800, &ip4(protocol, payload));
    let datagram = |port: u16, payload: &[u8]| over(17, &udp(port, payload));
    let gre = |flags: [u8; 2], kind: u16, more: &[u8], payload: &[u8]| {
        over(47, &join(&[&flags, &kind.to_be_bytes(), more, payload]))
    };
    let mpls =
        |labels: &[[u8; 4]], payload: &[u8]| ethernet(0x8847, &join(&[labels.as_flattened(), payload]));
    let three = vlan(5, 0x8100, &vlan(6, 0x8100, &vlan(7, 0x86dd, &six)));
    let erspan_2 = [0x10, 7, 0x18, 9, 0, 0, 0, 1];
    let erspan_3 = [0x20, 7, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0];
    let erspan_3_platform = [0x20, 7, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1, 0x0c, 0, 0, 1, 0, 0, 0, 1];
    let snap = join(&[&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &four]);
    let bridged_snap = join(&[&[0xaa, 0xaa, 3, 0, 0, 0xf8, 8, 0], &four]);
    // A header whose type is that of the PDU session container (5G), of one word.
    let container = [0, 0, 0, 0x85, 1, 0, 0, 0];
    let two_extensions = [0, 0, 0, 0x85, 1, 0, 0, 0xc0, 1, 0, 0, 0];
    let next_protocol = [0x0c, 0, 0, 1, 0, 0, 9, 0];
    let authentication = join(&[&[6, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1], &[7; 12], &tcp()]);
    [
        ("Ethernet", inner.clone()),
        ("802.1Q", tagged.clone()),
        ("three tags", ethernet(0x88a8, &three)),
        ("five tags", ethernet(0x88a8, &vlan(4, 0x8100, &vlan(3, 0x8100, &three)))),
        ("tag of the old kind", ethernet(0x9100, &vlan(4, 0x0800, &four))),
        ("VXLAN", datagram(4789, &vxlan(9, &inner))),
        ("VXLAN over IPv6 around a tag", ethernet(0x86dd, &ip6(17, &udp(4789, &vxlan(9, &tagged))))),
        ("VXLAN in VXLAN", datagram(4789, &vxlan(9, &datagram(4789, &vxlan(8, &inner))))),
        ("VXLAN-GPE", datagram(4790, &join(&[&next_protocol, &four]))),
        ("Geneve", datagram(6081, &join(&[&[0, 0, 0x65, 0x58, 0, 0, 9, 0], &inner]))),
        (
            "Geneve with options",
            datagram(6081, &join(&[&[2, 0, 0x65, 0x58, 0, 0, 9, 0], &[0, 1, 1, 1, 0, 0, 0, 7], &inner])),
        ),
        ("Geneve around IPv6", datagram(6081, &join(&[&[0, 0, 0x86, 0xdd, 0, 0, 9, 0], &six]))),
        ("GRE", gre([0, 0], 0x0800, &[], &four)),
        ("GRE with checksum, key and sequence", gre([0xb0, 0], 0x0800, &[0; 12], &four)),
        ("GRE over IPv6", ethernet(0x86dd, &ip6(47, &join(&[&[0, 0, 0x86, 0xdd], &six])))),
        ("NVGRE", gre([0x20, 0], 0x6558, &[0, 0, 9, 1], &inner)),
        ("GRE around MPLS", gre([0, 0], 0x8847, &label(99, true), &four)),
        (
            "PPTP",
            gre(
                [0x30, 0x81],
                0x880b,
                &[0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1],
                &join(&[&[0xff, 3, 0, 0x21], &four]),
            ),
        ),
        ("ERSPAN type I", gre([0, 0], 0x88be, &[], &inner)),
        ("ERSPAN type II", gre([0x10, 0], 0x88be, &join(&[&[0, 0, 0, 1], &erspan_2]), &inner)),
        ("ERSPAN type III", gre([0x10, 0], 0x22eb, &join(&[&[0, 0, 0, 1], &erspan_3]), &inner)),
        (
            "ERSPAN type III of a platform",
            gre([0x10, 0], 0x22eb, &join(&[&[0, 0, 0, 1], &erspan_3_platform]), &inner),
        ),
        ("WCCP", gre([0, 0], 0x883e, &[0, 0, 0, 0], &four)),
        ("WCCP version 1", gre([0, 0], 0x883e, &[], &four)),
        ("4 in 4", over(4, &four)),
        ("6 in 4", over(41, &six)),
        ("4 in 6", ethernet(0x86dd, &ip6(4, &four))),
        ("6 in 6", ethernet(0x86dd, &ip6(41, &six))),
        ("EtherIP", over(97, &join(&[&[0x30, 0], &inner]))),
        ("authentication header", over(51, &authentication)),
        ("authentication header of IPv6", ethernet(0x86dd, &ip6(51, &authentication))),
        ("atomic fragment", ethernet(0x86dd, &ip6(44, &join(&[&[6, 0, 0, 0, 0, 0, 0, 1], &tcp()])))),
        ("GTP-U", datagram(2152, &gtp(9, &[], &four))),
        ("GTP-U with an extension", datagram(2152, &gtp(9, &container, &six))),
        ("GTP-U with two extensions", datagram(2152, &gtp(9, &two_extensions, &four))),
        ("GTP-U to another port", over(17, &from(2152, 40_000, &gtp(9, &[], &four)))),
        ("PPPoE", ethernet(0x8864, &pppoe(0x21, &four))),
        ("PPPoE in a tag, IPv6", ethernet(0x8100, &vlan(7, 0x8864, &pppoe(0x57, &six)))),
        ("MPLS", mpls(&[label(99, false), label(98, true)], &four)),
        ("MPLS around IPv6", mpls(&[label(99, true)], &six)),
        ("pseudowire with a control word", mpls(&[label(700, true)], &join(&[&[0, 0, 0, 1], &inner]))),
        ("pseudowire without one", mpls(&[label(701, true)], &inner)),
        ("MPLS in UDP", datagram(6635, &join(&[&label(99, true), &four]))),
        ("MPLS in IP", over(137, &join(&[&label(99, true), &four]))),
        ("SNAP", ethernet(u16::try_from(snap.len()).expect("short"), &snap)),
        ("SNAP of a bridge", ethernet(u16::try_from(snap.len()).expect("short"), &bridged_snap)),
    ]
    .map(|(name, bytes)| Case { name, link: 1, bytes })
    .into()
}

fn links() -> Vec<Case> {
    let four = ip4(6, &tcp());
    let six = ip6(6, &tcp());
    let snap = join(&[&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &four]);
    let cooked = |ether_type: u16, payload: &[u8]| {
        join(&[&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0], &ether_type.to_be_bytes(), payload])
    };
    let nflog = |family: u8, fields: &[Vec<u8>]| join(&[&[family, 0, 0, 5], &fields.concat()]);
    let plain = wireless(0, 1, &[], &four);
    // A clock, flags that state padding, and a rate.
    let radiotap = [0, 0, 18, 0, 7, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x20, 12];
    // Another word of fields follows the first one, and then the clock at a multiple of eight bytes.
    let two_antennas = [0, 0, 26, 0, 3, 0, 0, 0x80, 0, 0, 0, 0];
    let inner = ethernet(0x0800, &four);
    let pflog: Vec<u8> = join(&[&[61, 2, 0, 0], &[0; 60]]);
    vec![
        (0, "BSD loopback", join(&[&[2, 0, 0, 0], &four])),
        (108, "OpenBSD loopback", join(&[&[0, 0, 0, 24], &six])),
        (101, "raw IP", six.clone()),
        (228, "raw IPv4", four.clone()),
        (229, "raw IPv6", six.clone()),
        (
            113,
            "cooked, three tags",
            cooked(0x8100, &vlan(5, 0x8100, &vlan(6, 0x8100, &vlan(7, 0x0800, &four)))),
        ),
        (113, "cooked, 802.2", cooked(4, &snap)),
        (9, "PPP", join(&[&[0xff, 3, 0, 0x21], &four])),
        (9, "PPP without address, IPv6", join(&[&[0, 0x57], &six])),
        (9, "PPP with a short protocol", join(&[&[0x21], &four])),
        (50, "PPP on a serial line", join(&[&[0xff, 3, 0, 0x21], &four])),
        (50, "HDLC on a serial line", join(&[&[0x0f, 0, 8, 0], &four])),
        (51, "PPPoE", pppoe(0x21, &four)),
        (204, "PPP with direction", join(&[&[1, 0xff, 3, 0, 0x21], &four])),
        (166, "PPP of pppd", join(&[&[1, 3, 0, 0x21], &four])),
        (104, "Cisco HDLC", join(&[&[0x0f, 0, 0x86, 0xdd], &six])),
        (107, "frame relay", join(&[&[0x18, 0x41, 3, 0xcc], &four])),
        (107, "frame relay with SNAP", join(&[&[0x18, 0x41, 3, 0, 0x80, 0, 0, 0, 8, 0], &four])),
        (107, "frame relay of Cisco", join(&[&[0x18, 0x41, 8, 0], &four])),
        (107, "frame relay with Ethernet", join(&[&[0x18, 0x41, 3, 0, 0x80, 0, 0x80, 0xc2, 0, 7], &inner])),
        (100, "ATM with 802.2", snap.clone()),
        (100, "802.2 of IP", join(&[&[6, 6, 3], &four])),
        (105, "802.11", plain.clone()),
        (105, "802.11 with quality of service", wireless(8, 1, &[0, 0], &four)),
        (105, "802.11 between bridges", wireless(8, 3, &[2, 2, 2, 2, 2, 2, 0, 0], &four)),
        (105, "802.11 with throughput control", wireless(8, 0x81, &[0, 0, 1, 2, 3, 4], &four)),
        (127, "radiotap with padding", join(&[&radiotap, &wireless(8, 1, &[0, 0, 0, 0], &four)])),
        (127, "radiotap", join(&[&[0, 0, 8, 0, 0, 0, 0, 0], &plain])),
        (
            127,
            "radiotap of two antennas",
            join(&[&two_antennas, &[0; 12], &[0x20, 0], &wireless(8, 1, &[0, 0, 0, 0], &four)]),
        ),
        (192, "PPI", join(&[&[0, 0, 8, 0, 105, 0, 0, 0], &plain])),
        (239, "NFLOG", nflog(2, &[field(1, &[8, 0, 1, 0]), field(10, b"to web\0"), field(9, &four)])),
        (
            239,
            "NFLOG of a big-endian host",
            nflog(10, &[swapped_field(10, b"log\0"), swapped_field(9, &six)]),
        ),
        (117, "PFLOG", join(&[&pflog, &four])),
        (109, "ENC", join(&[&[2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], &four])),
    ]
    .into_iter()
    .map(|(link, name, bytes)| Case { name, link, bytes })
    .collect()
}
