//! Sizes, times and rates at their limits, and wires of unusual sizes.

use record::Wire;
use record::units::{UnitError, format_bit_rate, format_size, parse_bit_rate, parse_size, parse_time_ns};
use record::wire::{Link, Messages};

#[test]
fn every_unit_of_size_is_a_power_of_1024() {
    for (power, names) in
        [(0, "|b|B"), (1, "k|kb|KiB"), (2, "m|MB|MiB"), (3, "g|gb|GiB"), (4, "T|tb|TiB"), (5, "P|pb|PiB")]
    {
        for name in names.split('|') {
            assert_eq!(parse_size(&format!("3{name}")), Ok(3 * 1024_u64.pow(power)), "{name}");
            assert_eq!(parse_size(&format!(" 3 {name} ")), Ok(3 * 1024_u64.pow(power)), "with spaces");
        }
    }
}

#[test]
fn a_size_is_within_a_signed_offset() {
    // Offsets in files are signed numbers of 64 bits (off_t).
    assert_eq!(parse_size("9223372036854775807"), Ok(i64::MAX as u64));
    for text in ["9223372036854775808", "8192P", "99999999999999999999"] {
        assert!(matches!(parse_size(text), Err(UnitError::OutOfRange { .. })), "{text}");
    }
}

#[test]
fn errors_name_the_fault_and_the_allowed_form() {
    let size = parse_size("4x").unwrap_err().to_string();
    assert!(size.contains("'x' in '4x'") && size.contains("k, M, G, T or P"), "{size}");
    let time = parse_time_ns("4h").unwrap_err().to_string();
    assert!(time.contains("'h' in '4h'") && time.contains("ns, us, ms, s or m"), "{time}");
    let rate = parse_bit_rate("1gb").unwrap_err().to_string();
    assert!(rate.contains("'gb' in '1gb'") && rate.contains("gbit"), "{rate}");
    let none = parse_time_ns("ms").unwrap_err().to_string();
    assert!(none.contains("'ms'") && none.contains("500ms"), "{none}");
    assert!(matches!(parse_bit_rate("1.2.3gbit"), Err(UnitError::NoNumber { .. })));
    assert!(matches!(parse_size("1.5k"), Err(UnitError::OutOfRange { .. })), "no size is rounded");
}

#[test]
fn every_unit_of_time_and_of_rate() {
    for (text, ns) in [
        ("388ns", 388),
        ("2us", 2_000),
        ("3ms", 3_000_000),
        ("4s", 4_000_000_000),
        ("2m", 120_000_000_000),
        ("2min", 120_000_000_000),
        ("0s", 0),
        ("0.6ns", 1),
    ] {
        assert_eq!(parse_time_ns(text), Ok(ns), "{text}");
    }
    for (text, bits) in [
        ("1bit", 1),
        ("2kbit", 2_000),
        ("3mbit", 3_000_000),
        ("4GBIT", 4_000_000_000),
        ("5tbit", 5_000_000_000_000),
    ] {
        assert_eq!(parse_bit_rate(text), Ok(bits), "{text}");
    }
}

#[test]
fn times_and_rates_have_a_largest() {
    assert_eq!(parse_time_ns("3200000000s"), Ok(3_200_000_000_000_000_000));
    assert!(matches!(parse_time_ns("3200000001s"), Err(UnitError::OutOfRange { .. })));
    assert_eq!(parse_bit_rate("1000tbit"), Ok(1_000_000_000_000_000));
    assert!(matches!(parse_bit_rate("1001tbit"), Err(UnitError::OutOfRange { .. })));
    assert!(matches!(parse_bit_rate("0.9bit"), Err(UnitError::OutOfRange { .. })), "less than a bit");
}

#[test]
fn quantities_are_written_in_the_largest_unit_that_is_exact() {
    for (bytes, text) in [
        (0, "0"),
        (1023, "1023"),
        (1024, "1k"),
        (1025, "1025"),
        (1536, "1536"),
        (3 << 20, "3M"),
        (5 << 30, "5G"),
        (1 << 40, "1T"),
        (7 << 50, "7P"),
    ] {
        assert_eq!(format_size(bytes), text);
    }
    for (bits, text) in [
        (999, "999bit"),
        (1_000, "1kbit"),
        (1_500_000, "1.5mbit"),
        (1_000_000_000, "1gbit"),
        (2_000_000_000_000, "2tbit"),
        (1_234_567, "1.235mbit"),
    ] {
        assert_eq!(format_bit_rate(bits), text);
    }
}

#[test]
fn a_packet_carries_at_least_a_byte_whatever_the_sizes_say() {
    // An MTU smaller than the headers is meaningless, but must not cause a division by zero.
    let small = Wire { mtu_bytes: 40, ..Wire::ethernet(1_000_000_000, 1500) };
    assert_eq!((small.payload_bytes(), small.own_packets(3)), (1, 3));
    assert_eq!(small.own_packets(0), 1, "an ACK is a packet too");
    assert_eq!(small.messages_per_packet(0), 1.0);
}

#[test]
fn data_is_padded_to_words_and_travels_one_way() {
    // RFC 7143 11.2: the data segment is padded to whole words; a digest covers the padding and takes four bytes.
    let read = Messages::read(510);
    assert_eq!((read.request_bytes(), read.response_bytes()), (48, 560));
    let write = Messages { write: true, data_digest: true, ..read };
    assert_eq!((write.request_bytes(), write.response_bytes()), (564, 48));
    let headers = Messages { header_digest: true, ..read };
    assert_eq!((headers.request_bytes(), headers.response_bytes()), (52, 564));
}

#[test]
fn a_link_keeps_its_rate_and_its_mtu() {
    let link =
        Link { bits_per_second: 25_000_000_000, mtu_bytes: 9000, ipv6: true, timestamps: false, vlan: true };
    let wire = Wire { bits_per_second: 25_000_000_000, mtu_bytes: 9000, tcpip_bytes: 60, mac_bytes: 42 };
    assert_eq!(link.wire(), wire);
}
