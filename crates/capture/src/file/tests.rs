use std::io::{Cursor, Write};

use proptest::prelude::*;

use super::*;

/// A frame read from a file: interface, time, direction, data, length on the wire.
type Seen = (u32, u64, Option<bool>, Vec<u8>, u32);

fn read(bytes: &[u8]) -> Result<(Vec<Seen>, CaptureFile), FileError> {
    let mut file = CaptureFile::read("test", Box::new(Cursor::new(bytes.to_vec())))?;
    let mut all = Vec::new();
    while let Some(f) = file.next_frame()? {
        assert_eq!(f.number, all.len() as u64 + 1);
        all.push((f.interface, f.time_ns, f.outgoing, f.data.to_vec(), f.wire_bytes));
    }
    Ok((all, file))
}

fn frames() -> Vec<Seen> {
    (0..20_u64)
        .map(|i| {
            let data: Vec<u8> = (0..i * 7 % 90).map(|b| b as u8).collect();
            let wire = data.len() as u32 + (i % 3) as u32 * 100;
            (
                (i % 2) as u32,
                1_700_000_000_000_000_000 + i * 1_001,
                [None, Some(true), Some(false)][i as usize % 3],
                data,
                wire,
            )
        })
        .collect()
}

fn pcapng(frames: &[Seen]) -> Vec<u8> {
    let mut writer = PcapngWriter::new(Vec::new(), "test").unwrap();
    for name in ["c", "s"] {
        let rate = Some(1_000_000_000);
        let interface = InterfaceDescription {
            name: name.into(),
            link: 1,
            bits_per_second: rate,
            ..InterfaceDescription::default()
        };
        writer.interface(&interface).unwrap();
    }
    for (interface, ns, outgoing, data, wire) in frames {
        writer.frame(*interface, *ns, *outgoing, data, *wire, Some("why")).unwrap();
    }
    writer.statistics(1, 5, 100, 7).unwrap();
    writer.finish().unwrap()
}

/// A classic file.
fn pcap(frames: &[Seen], big: bool, nano: bool) -> Vec<u8> {
    let word = |w: u32| if big { w.to_be_bytes() } else { w.to_le_bytes() };
    let mut out = Vec::new();
    out.extend(word(if nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }));
    out.extend([0; 16]);
    out.extend(word(0x1400_0071));
    for (_, ns, _, data, wire) in frames {
        let fraction = ns % 1_000_000_000 / if nano { 1 } else { 1000 };
        for w in [(ns / 1_000_000_000) as u32, fraction as u32, data.len() as u32, *wire] {
            out.extend(word(w));
        }
        out.extend(data);
    }
    out
}

/// A block of secrets.
fn secrets(kind: u32, log: &[u8]) -> Vec<u8> {
    let padded = log.len().next_multiple_of(4);
    let length = (20 + padded) as u32;
    let mut block: Vec<u8> =
        [10, length, kind, log.len() as u32].iter().flat_map(|w| w.to_le_bytes()).collect();
    block.extend(log);
    block.resize(16 + padded, 0);
    block.extend(length.to_le_bytes());
    block
}

#[test]
fn secrets_of_a_file_are_known_and_wrong_ones_cost_no_frame() {
    const TLS: u32 = 0x544c_534b;
    let log = format!("CLIENT_RANDOM {} {}\n", "ab".repeat(32), "cd".repeat(48));
    let whole = pcapng(&frames());
    let section = u32::from_le_bytes(whole[4..8].try_into().unwrap()) as usize;
    let mut long = secrets(TLS, log.as_bytes());
    long[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    for (block, count) in [
        (secrets(TLS, log.as_bytes()), 1),
        (secrets(0x5747_4b4c, log.as_bytes()), 0),
        (secrets(TLS, b"\xff\0 no log"), 0),
        (secrets(TLS, b""), 0),
        (long, 0),
    ] {
        let bytes = [&whole[..section], &block, &whole[section..]].concat();
        let (seen, file) = read(&bytes).unwrap();
        assert_eq!((seen, file.complaint()), (frames(), None));
        assert_eq!(file.keys.count(), count);
    }
}

#[test]
fn written_files_read_back() {
    let (seen, file) = read(&pcapng(&frames())).unwrap();
    assert_eq!(seen, frames());
    let names: Vec<_> = file.interfaces().iter().map(|i| i.name.as_deref()).collect();
    assert_eq!(names, [Some("c"), Some("s")]);
    assert_eq!(file.interfaces()[0].bits_per_second, Some(1_000_000_000));
    assert_eq!((file.interfaces()[0].drops, file.interfaces()[1].drops), (None, Some(7)));
    assert_eq!((file.ending(), file.complaint()), (Some(&Ending::Complete), None));
}

#[test]
fn a_damaged_time_ends_the_file_there() {
    let latest = 1 << 62;
    for (ns, kept) in
        [(latest, 20), (latest + 1, 12), (u64::MAX, 12), (1_700_000_000_000_000_000 | 1 << 63, 12)]
    {
        let mut all = frames();
        all[12].1 = ns;
        let (seen, file) = read(&pcapng(&all)).unwrap();
        assert_eq!(seen, all[..kept], "{ns}");
        let complaint = file.complaint();
        assert_eq!(complaint.is_some_and(|text| text.contains("beyond the year 2116")), kept < 20);
    }
}

#[test]
fn classic_files_of_every_kind_are_read() {
    for (big, nano) in [(false, false), (false, true), (true, false), (true, true)] {
        let (seen, file) = read(&pcap(&frames(), big, nano)).unwrap();
        assert_eq!(file.interfaces()[0].link, 0x71);
        for (got, put) in seen.iter().zip(frames()) {
            let ns = if nano { put.1 } else { put.1 / 1000 * 1000 };
            assert_eq!((got.1, &got.3, got.4), (ns, &put.3, put.4));
        }
        assert_eq!(seen.len(), 20);
    }
}

#[test]
fn a_big_endian_section_behind_a_little_endian_one_has_its_own_interfaces_and_clocks() {
    let mut file = pcapng(&frames()[..2]);
    let mut block = |kind: u32, body: &[u8]| {
        let length = body.len() as u32 + 12;
        file.extend(kind.to_be_bytes());
        file.extend(length.to_be_bytes());
        file.extend(body);
        file.extend(length.to_be_bytes());
    };
    block(0x0a0d_0d0a, &[0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
    // Stamps in units of 2^-10 s, ten seconds later.
    block(1, &[0, 101, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0x8a, 0, 0, 0, 0, 14, 0, 8, 0, 0, 0, 0, 0, 0, 0, 10]);
    block(0xbad, &[1, 2, 3, 4]);
    block(6, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 2, 0, 0, 0, 9, 0xab, 0xcd, 0, 0]);
    block(3, &[0, 0, 0, 3, 1, 2, 3, 0]);
    let (seen, file) = read(&file).unwrap();
    assert_eq!(seen[2], (2, 11_000_000_000, None, vec![0xab, 0xcd], 9));
    assert_eq!(seen[3], (2, 0, None, vec![1, 2, 3], 3));
    assert_eq!(file.interfaces()[2].link, 101);
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    // A skippable frame, then two frames of raw blocks (RFC 8878).
    let mut out = vec![0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    for half in bytes.chunks(bytes.len() / 2 + 1) {
        out.extend([0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58]);
        let mut blocks = half.chunks(1000).peekable();
        while let Some(block) = blocks.next() {
            let header = (block.len() as u32) << 3 | u32::from(blocks.peek().is_none());
            out.extend(&header.to_le_bytes()[..3]);
            out.extend(block);
        }
    }
    out
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for half in bytes.chunks(bytes.len() / 2 + 1) {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(half).unwrap();
        out.extend(encoder.finish().unwrap());
    }
    out
}

#[test]
fn compressed_files_of_several_members_are_read_and_damaged_ones_as_far_as_they_go() {
    let plain = pcapng(&frames());
    for compressed in [gzip(&plain), zstd(&plain)] {
        let (seen, file) = read(&compressed).unwrap();
        assert_eq!((seen.len(), file.complaint()), (20, None));
        let (seen, file) = read(&compressed[..compressed.len() - 60]).unwrap();
        assert!(seen.len() >= 8 && seen.len() < 20, "{}", seen.len());
        let complaint = file.complaint().unwrap();
        assert!(
            complaint.contains("middle of the compressed") || complaint.contains("cut off"),
            "{complaint}"
        );
    }
}

#[test]
fn a_truncated_file_yields_the_frames_before_the_cut() {
    for whole in [pcapng(&frames()), pcap(&frames(), true, true)] {
        let mut last = 0;
        for cut in 0..whole.len() {
            let Ok((seen, file)) = read(&whole[..cut]) else {
                assert!(cut < 28, "a header at least is needed");
                continue;
            };
            assert!(seen.len() >= last && seen.len() <= 20);
            last = seen.len();
            for (got, put) in seen.iter().zip(frames()) {
                assert_eq!(got.3, put.3);
            }
            match file.ending() {
                Some(Ending::Truncated { offset, .. }) => assert!(*offset <= cut as u64),
                Some(Ending::Complete) => {}
                other => panic!("{other:?} at {cut}"),
            }
        }
    }
}

#[test]
fn other_files_are_refused_with_their_kind() {
    let error = read(b"%PDF-1.7 and so on and so on").unwrap_err().to_string();
    assert!(error.contains("it is a PDF document") && error.contains("pcapng"), "{error}");
    assert!(read(b"").is_err());
}

proptest! {
    #[test]
    fn damaged_files_never_panic(ng: bool, places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6), tail in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut bytes = if ng { pcapng(&frames()) } else { pcap(&frames(), false, false) };
        for (place, value) in places {
            let at = place.index(bytes.len());
            bytes[at] = value;
        }
        bytes.extend(tail);
        if let Ok((seen, file)) = read(&bytes) {
            prop_assert!(seen.len() <= 40 && file.ending().is_some());
        }
    }

    #[test]
    fn no_bytes_can_panic(kind in 0_usize..6, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let magic: &[u8] = [&b""[..], &[0xd4, 0xc3, 0xb2, 0xa1], &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a],
            &[0x1f, 0x8b, 8, 0], &[0x28, 0xb5, 0x2f, 0xfd], &[0x50, 0x2a, 0x4d, 0x18]][kind];
        let _ = read(&[magic, &bytes].concat());
    }
}
