//! What all decoders keep to, whatever passes.

use proptest::prelude::*;
use record::Side;

use super::play::Play;
use super::*;

#[test]
fn names_are_unique() {
    for entry in PROTOCOLS {
        assert_eq!(protocol_named(entry.name), Some(entry));
    }
}

proptest! {
    /// No bytes make a decoder panic, invent more than they hold, or tell an exchange that ends before it begins.
    #[test]
    fn any_bytes_are_survived(
        place in 0..PROTOCOLS.len(),
        middle: bool,
        said in proptest::collection::vec(
            (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..200), 0_u64..4000, 0_u8..8),
            0..40,
        ),
    ) {
        let entry = &PROTOCOLS[place];
        let mut play = Play::of(entry, Shown::default(), middle);
        let mut bytes = 0;
        for (from_client, text, lost, kind) in said {
            let side = if from_client { Side::Client } else { Side::Server };
            bytes += text.len() + lost as usize;
            match kind {
                0 => play.lose(side, lost),
                _ => play.say(side, text),
            };
        }
        let told = play.end();
        prop_assert!(told.exchanges.len() <= bytes);
        for exchange in told.exchanges {
            let took = exchange.response.ended.since(exchange.request.began);
            prop_assert!(took.is_some_and(|ns| ns >= 0), "{exchange:?}");
        }
    }
}

/// Two captures of a connection tell one request by it, wherever each of them begins.
#[test]
fn a_request_begins_at_its_number_in_the_clients_stream() {
    let mut play = Play::of(protocol_named("postgres").unwrap(), Shown::default(), true);
    let query = b"Q\0\0\0\x0dSELECT 1\0";
    for _ in 0..3 {
        play.say(Side::Client, query).say(Side::Server, b"C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I");
    }
    let told = play.end();
    let begins: Vec<u32> = told.exchanges.iter().filter_map(|e| e.request_begin_seq).collect();
    assert_eq!(begins, [1000, 1014, 1028]);
}
