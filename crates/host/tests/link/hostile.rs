//! Any bytes as frames and answers: no parser panics.

use host::lldp::parse_frame;
use netlink::ethtool::parse;
use netlink::{message, route};
use proptest::prelude::*;

/// Attributes with small types and lengths that are often right, so that parsers are reached in depth.
fn attributes() -> impl Strategy<Value = Vec<u8>> {
    let value = prop::collection::vec(any::<u8>(), 0..24);
    let attribute = (0u16..12, value, -3i32..4).prop_map(|(kind, value, wrong)| {
        let length = (4 + value.len() as i32 + wrong.min(0)).max(0) as u16;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    });
    let flat = prop::collection::vec(attribute, 0..6).prop_map(|all| all.concat());
    flat.prop_recursive(3, 64, 4, |inner| {
        prop::collection::vec((0u16..6, inner), 1..4).prop_map(|all| {
            let wrap = |(kind, bytes): (u16, Vec<u8>)| {
                let mut whole = (4 + bytes.len() as u16).to_ne_bytes().to_vec();
                whole.extend((kind | 0x8000).to_ne_bytes());
                whole.extend(bytes);
                whole.resize(whole.len().next_multiple_of(4), 0);
                whole
            };
            all.into_iter().flat_map(wrap).collect()
        })
    })
}

fn parse_all(data: &[u8]) {
    let mut rest = data;
    while let Some((message, next)) = message::split_first(rest) {
        let _ = message.meaning();
        assert!(next.len() < rest.len());
        rest = next;
    }
    let _ = (route::parse_link(data), route::parse_route(data), route::parse_address(data));
    for header in [8, 12, 16] {
        let with_header = [&vec![0; header][..], data].concat();
        let _ = (route::parse_link(&with_header), route::parse_address(&with_header));
        for family in [2, 10] {
            let mut with_family = with_header.clone();
            with_family[0] = family;
            let _ = route::parse_route(&with_family);
        }
    }
    let names = parse::strings(data, 9);
    assert!(names.len() <= 4096);
    let _ = (parse::link_modes(data, &names), parse::features(data, &names), parse::fec(data, &names));
    let _ = (parse::port(data), parse::link_state(data), parse::rings(data), parse::coalescing(data));
    let _ = (parse::channels(data), parse::pause(data), parse::eee(data), parse::statistics(data));
}

proptest! {
    #[test]
    fn any_attributes_are_parsed_without_a_panic(data in attributes()) {
        parse_all(&data);
    }

    #[test]
    fn any_bytes_are_parsed_without_a_panic(data in prop::collection::vec(any::<u8>(), 0..256)) {
        parse_all(&data);
        let _ = parse_frame(&data);
        let mut frame = vec![0; 12];
        frame.extend(host::lldp::ETHERTYPE.to_be_bytes());
        frame.extend(&data);
        let _ = parse_frame(&frame);
    }
}
