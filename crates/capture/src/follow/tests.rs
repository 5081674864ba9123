use iscsi::pdu::{DataIn, LoginResponse, ScsiCommand};
use proptest::prelude::*;

use super::*;

fn at(ns: u64) -> At {
    At { ns, frame: 0 }
}

fn data_in(tag: u32, data: usize) -> Vec<u8> {
    let mut bhs = DataIn { tag, is_final: true, has_status: true, ..DataIn::default() }.write();
    bhs.set_data_bytes(data);
    let mut pdu = bhs.0.to_vec();
    // Data that does not resemble a header.
    pdu.extend((0..data + padding(data)).map(|i| 0x80 | (i as u8)));
    pdu
}

fn tags(follower: &mut Follower, chunks: &[&[u8]]) -> Vec<(u32, u64)> {
    let mut all = Vec::new();
    for (ns, chunk) in chunks.iter().enumerate() {
        follower.bytes(chunk, at(ns as u64), |pdu| all.push((pdu.bhs.initiator_task_tag(), pdu.ended.ns)));
    }
    all
}

#[test]
fn a_pdu_ends_with_the_packet_of_its_last_byte() {
    let stream = [data_in(1, 512), data_in(2, 512)].concat();
    let mut follower = Follower::new(Flow::Responses, false, Digests::default());
    assert_eq!(tags(&mut follower, &[&stream[..559], &stream[559..600], &stream[600..]]), [(1, 1), (2, 2)]);
}

#[test]
fn a_pdu_knows_where_and_when_it_began() {
    let stream = [data_in(1, 512), data_in(2, 512)].concat();
    let (mut follower, mut all) = (Follower::new(Flow::Responses, false, Digests::default()), Vec::new());
    for (ns, segment) in [&stream[..20], &stream[20..600], &stream[600..]].into_iter().enumerate() {
        follower.bytes(segment, at(ns as u64), |pdu| all.push((pdu.offset, pdu.began.ns, pdu.ended.ns)));
    }
    assert_eq!(all, [(0, 0, 1), (560, 1, 2)]);
}

#[test]
fn tolerates_missing_data_and_resynchronises_after_a_missing_header() {
    let stream = [data_in(1, 512), data_in(2, 512), data_in(3, 512)].concat();
    let mut all = Vec::new();
    let mut follower = Follower::new(Flow::Responses, false, Digests::default());
    let mut take = |pdu: &Pdu| all.push(pdu.bhs.initiator_task_tag());
    follower.bytes(&stream[..100], at(0), &mut take);
    follower.missing(460, at(1), &mut take);
    follower.bytes(&stream[560..1000], at(2), &mut take);
    follower.missing(130, at(3), &mut take);
    follower.bytes(&stream[1130..], at(4), &mut take);
    follower.bytes(&data_in(4, 0), at(5), &mut take);
    assert_eq!(all, [1, 2, 4], "the third PDU's header was in the hole");
    assert_eq!(follower.lost(), 1);
    assert_eq!(follower.skipped_bytes(), (560 - 130 + 120) as u64 + 10);
}

/// Pseudo-random bytes, the same in every run.
fn noise(count: usize, seed: u64) -> impl Iterator<Item = u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(move || random.u8(..)).take(count)
}

fn data_in_noise(tag: u32, data: usize) -> Vec<u8> {
    let mut pdu = data_in(tag, data);
    pdu.truncate(BHS_BYTES);
    pdu.extend(noise(data + padding(data), tag.into()));
    pdu
}

/// Feeds PDUs with noise for data in segments of `segment_bytes`, one in `lose` of them lost.
fn with_losses(segment_bytes: usize, lose: usize) {
    const PDUS: u32 = 400;
    let stream: Vec<u8> = (0..PDUS).flat_map(|tag| data_in_noise(tag, 65_536)).collect();
    let mut follower = Follower::new(Flow::Responses, false, Digests::default());
    let (mut found, mut found_bytes) = (Vec::new(), 0);
    // PDUs with a loss in their header are gone, and so may be the data up to the next one.
    let mut headers_hit = 0;
    for (i, segment) in stream.chunks(segment_bytes).enumerate() {
        let mut take = |pdu: &Pdu| {
            found.push(pdu.bhs.initiator_task_tag());
            found_bytes += pdu.bytes;
        };
        if i % lose == lose / 2 {
            let begin = i * segment_bytes;
            let pdu_bytes = BHS_BYTES + 65_536;
            headers_hit += (begin..begin + segment.len())
                .filter(|at| at % pdu_bytes == 0 || at % pdu_bytes == BHS_BYTES - 1)
                .count();
            follower.missing(segment.len() as u64, at(0), &mut take);
        } else {
            follower.bytes(segment, at(0), &mut take);
        }
    }
    assert!(found.is_sorted() && found.iter().all(|&tag| tag < PDUS), "only what was sent: {found:?}");
    assert!(found.len() + 2 * headers_hit >= PDUS as usize, "{} of {PDUS}, {headers_hit} hit", found.len());
    assert_eq!(found_bytes + follower.skipped_bytes(), stream.len() as u64, "every byte is accounted for");
}

#[test]
fn does_not_mistake_data_for_headers_after_a_loss() {
    with_losses(1448, 97);
    with_losses(8948, 31);
}

#[test]
fn a_boundary_is_found_again_when_segments_are_no_multiples_of_four() {
    with_losses(65_483, 9);
}

#[test]
fn a_header_in_the_data_of_another_is_refuted() {
    let mut fake = data_in(77, 512);
    fake.truncate(BHS_BYTES);
    let data = [fake, noise(4000, 3).collect()].concat();
    let mut follower = Follower::new(Flow::Responses, true, Digests::default());
    let real = [data_in(1, 512), data_in(2, 512)].concat();
    assert_eq!(tags(&mut follower, &[&data[..1000], &data[1000..], &real]), [(1, 2), (2, 2)]);
    assert_eq!(follower.skipped_bytes(), data.len() as u64);
}

#[test]
fn finds_headers_at_segment_fronts_despite_a_snap_length() {
    // Two PDUs to a segment, of which the first 76 bytes are captured.
    let mut follower = Follower::new(Flow::Responses, false, Digests::default());
    let mut found = Vec::new();
    for i in 0..10 {
        let segment = [data_in(2 * i, 512), data_in(2 * i + 1, 512)].concat();
        let mut take = |pdu: &Pdu| found.push(pdu.bhs.initiator_task_tag());
        follower.bytes(&segment[..76], at(0), &mut take);
        follower.missing((segment.len() - 76) as u64, at(0), &mut take);
    }
    assert_eq!(found, (0..20).step_by(2).collect::<Vec<_>>());
    assert_eq!(follower.skipped_bytes(), 10 * 560);
}

#[test]
fn digests_apply_after_the_login() {
    let mut login = LoginResponse { transit: true, tag: 9, ..LoginResponse::default() }.write();
    login.set_data_bytes(6);
    let mut stream = [login.0.as_slice(), &[b'x'; 8]].concat();
    for (tag, data) in [(1, 512_usize), (2, 0), (3, 5)] {
        let pdu = data_in(tag, data);
        stream.extend_from_slice(&pdu[..BHS_BYTES]);
        stream.extend_from_slice(&[0xcc; 4]);
        stream.extend_from_slice(&pdu[BHS_BYTES..]);
        stream.extend_from_slice(if data > 0 { &[0xcc; 4] } else { &[] });
    }
    let mut follower = Follower::new(Flow::Responses, false, Digests { header: true, data: true });
    let mut found = Vec::new();
    follower.bytes(&stream, at(0), |pdu| found.push((pdu.bhs.initiator_task_tag(), pdu.bytes)));
    assert_eq!(found, [(9, 56), (1, 568), (2, 52), (3, 64)]);
    assert_eq!(follower.lost(), 0);
}

proptest! {
    #[test]
    fn segmentation_does_not_change_the_pdus_found(sizes in prop::collection::vec(0_usize..3000, 1..20), cuts in prop::collection::vec(1_usize..2000, 1..40)) {
        let stream: Vec<u8> = sizes.iter().enumerate().flat_map(|(i, &n)| data_in(i as u32, n)).collect();
        let (mut follower, mut found, mut rest, mut cut) = (Follower::new(Flow::Responses, false, Digests::default()), Vec::new(), &stream[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let n = (*cut.next().unwrap()).min(rest.len());
            follower.bytes(&rest[..n], at(0), |pdu| found.push((pdu.bhs.initiator_task_tag(), pdu.bytes)));
            rest = &rest[n..];
        }
        let expected: Vec<_> = sizes.iter().enumerate().map(|(i, &n)| (i as u32, (48 + n + padding(n)) as u64)).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn no_bytes_can_panic(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20), flow: bool, middle: bool) {
        let mut follower = Follower::new(if flow { Flow::Requests } else { Flow::Responses }, middle, Digests::default());
        for chunk in &chunks {
            follower.bytes(chunk, at(0), |_| ());
            follower.missing(chunk.len() as u64, at(0), |_| ());
        }
        follower.finish(|_| ());
        let seen: usize = chunks.iter().map(|c| 2 * c.len()).sum();
        prop_assert!(follower.skipped_bytes() <= seen as u64);
    }
}

#[test]
fn resynchronises_a_capture_that_begins_in_the_middle() {
    let command = ScsiCommand { is_final: true, read: true, tag: 5, ..ScsiCommand::default() }.write().0;
    let mut follower = Follower::new(Flow::Requests, true, Digests::default());
    assert_eq!(tags(&mut follower, &[&[0xff; 30], &command]), [(5, 1)]);
}
