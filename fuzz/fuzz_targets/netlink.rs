//! Any bytes as netlink datagrams, and as the attributes of each kind of answer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use netlink::ethtool::parse;
use netlink::{message, route};

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Some((message, next)) = message::split_first(rest) {
        let _ = message.meaning();
        assert!(next.len() < rest.len());
        rest = next;
    }
    let _ = route::parse_link(data);
    let _ = route::parse_route(data);
    let _ = route::parse_address(data);
    let names = parse::strings(data, 9);
    let _ = parse::link_modes(data, &names);
    let _ = parse::features(data, &names);
    let _ = parse::fec(data, &names);
    let _ = (parse::port(data), parse::link_state(data), parse::rings(data), parse::coalescing(data));
    let _ = (parse::channels(data), parse::pause(data), parse::eee(data), parse::statistics(data));
});
