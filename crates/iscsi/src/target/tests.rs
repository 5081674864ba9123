//! The target's half against the initiator's half, and against what no initiator should send.

use proptest::prelude::*;

use super::*;
use crate::bhs::Bhs;
use crate::frame::Framer;
use crate::initiator::{Direction, Event, InitiatorConnection, Request};
use crate::login::initiator::Established;

fn logged_in(parameters: Parameters, session_type: SessionType) -> LoggedIn {
    LoggedIn {
        initiator_name: "iqn.i".into(),
        user: None,
        proven: None,
        target_name: "iqn.t".into(),
        session_type,
        isid: [0; 6],
        tsih: 1,
        cid: 0,
        parameters,
        exp_cmd_sn: 1,
        stat_sn: 1,
    }
}

fn pair(parameters: &Parameters) -> (TargetConnection, InitiatorConnection) {
    let target = TargetConnection::new(&logged_in(parameters.clone(), SessionType::Normal), 8);
    let initiator = InitiatorConnection::new(&Established {
        parameters: parameters.clone(),
        cmd_sn: 1,
        exp_stat_sn: 1,
        max_cmd_sn: 8,
        tsih: 1,
    });
    (target, initiator)
}

fn to(cdb_bytes: u64) -> WriteOrder {
    WriteOrder { cdb_bytes, ..WriteOrder::default() }
}

fn frames(bytes: &[u8]) -> Vec<Frame<'_>> {
    let framer = Framer::new(1 << 20);
    let (mut at, mut all) = (0, Vec::new());
    while at < bytes.len() {
        let frame = framer.next(&bytes[at..]).unwrap().frame().unwrap();
        at += frame.total_bytes;
        all.push(frame);
    }
    all
}

fn take(buffer: &mut TransmitBuffer) -> Vec<u8> {
    let bytes = buffer.pending().to_vec();
    buffer.sent(bytes.len());
    bytes
}

/// Runs one write of `data` through both halves; returns what reached the store and the final status.
fn write_through(parameters: &Parameters, data: &[u8]) -> (Vec<u8>, u8) {
    let (mut target, mut initiator) = pair(parameters);
    let mut store = vec![0; data.len()];
    let (mut to_target, mut to_initiator) = (TransmitBuffer::new(), TransmitBuffer::new());
    let fill = |at: u32, piece: &mut [u8]| piece.copy_from_slice(&data[at as usize..][..piece.len()]);
    let request = Request { lun: [0; 8], cdb: [0; 16], data: Direction::Out(data.len() as u32), user: 42 };
    initiator.issue(&request, &mut to_target, fill).unwrap();
    for _ in 0..10_000 {
        for frame in frames(&take(&mut to_target)) {
            match target.receive(&frame, &mut to_initiator).unwrap() {
                Incoming::Command { command, data: immediate } => {
                    let begun = target
                        .begin_write(&command, immediate.len(), to(data.len() as u64), &mut to_initiator)
                        .unwrap();
                    store[..begun.useful_bytes].copy_from_slice(&immediate[..begun.useful_bytes]);
                    if begun.complete {
                        target.respond_write(&command, data.len() as u64, &mut to_initiator);
                    }
                }
                Incoming::Data { tag, store_offset, data: piece, .. } => {
                    store[store_offset as usize..][..piece.len()].copy_from_slice(piece);
                    target.data_taken(tag, Ok(()), &mut to_initiator);
                }
                other => panic!("{other:?}"),
            }
        }
        for frame in frames(&take(&mut to_initiator)) {
            match initiator.receive(&frame, &mut to_target).unwrap() {
                Event::Wanted { user: 42, r2t } => initiator.send_data(&r2t, &mut to_target, fill),
                Event::End(end) => return (store, end.status),
                other => panic!("{other:?}"),
            }
        }
    }
    panic!("the write never ended");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn writes_are_complete_under_any_parameters(
        bytes in 1_usize..20_000, max_recv in 512_u32..4096, max_burst in 512_u32..8192, first_burst in 512_u32..8192,
        initial_r2t: bool, immediate_data: bool, max_outstanding_r2t in 1_u32..4,
    ) {
        let parameters = Parameters { max_recv_bytes: max_recv, max_send_bytes: max_recv, max_burst_bytes: max_burst,
            first_burst_bytes: first_burst.min(max_burst), initial_r2t, immediate_data, max_outstanding_r2t, ..Parameters::default() };
        let data: Vec<u8> = (0..bytes).map(|i| (i * 7) as u8).collect();
        let (store, status) = write_through(&parameters, &data);
        prop_assert_eq!(status, status::GOOD);
        prop_assert_eq!(store, data);
    }

    #[test]
    fn reads_are_complete_in_segments_of_the_negotiated_length(length in 1_u64..40_000, max_send in 512_u32..9000, max_burst in 512_u32..20_000) {
        let parameters = Parameters { max_send_bytes: max_send, max_burst_bytes: max_burst, ..Parameters::default() };
        let (mut target, mut initiator) = pair(&parameters);
        let (mut to_target, mut to_initiator) = (TransmitBuffer::new(), TransmitBuffer::new());
        let request = Request { lun: [0; 8], cdb: [0; 16], data: Direction::In(length as u32), user: 1 };
        initiator.issue(&request, &mut to_target, |_, _| ()).unwrap();
        let bytes = take(&mut to_target);
        let Incoming::Command { command, .. } = target.receive(&frames(&bytes)[0], &mut to_initiator).unwrap() else { panic!() };
        target.respond_read(&command, length, &mut to_initiator, |at, data| {
            for (i, b) in data.iter_mut().enumerate() { *b = (at as usize + i) as u8; }
            Ok::<(), ()>(())
        }).unwrap();
        let bytes = take(&mut to_initiator);
        let mut got = Vec::new();
        let mut ended = false;
        for frame in frames(&bytes) {
            prop_assert!(frame.data.len() <= max_send as usize);
            let Event::Data { data, end, .. } = initiator.receive(&frame, &mut to_target).unwrap() else { panic!() };
            got.extend_from_slice(data);
            ended = end.is_some_and(|e| e.status == status::GOOD);
        }
        prop_assert!(ended);
        prop_assert_eq!(got, (0..length as usize).map(|i| i as u8).collect::<Vec<_>>());
    }

    /// Any 48 bytes with any data are answered, ignored, or end the connection; nothing panics and nothing
    /// is kept without bound.
    #[test]
    fn no_frames_can_panic(all in prop::collection::vec((prop::collection::vec(any::<u8>(), 48), prop::collection::vec(any::<u8>(), 0..600)), 1..40), lead in 0_u8..8) {
        let level = lead % 3;
        let (mut target, mut initiator) = pair(&Parameters {
            initial_r2t: false,
            error_recovery_level: level,
            max_connections: 1 + u16::from(level),
            ..Parameters::default()
        });
        let mut out = TransmitBuffer::new();
        for (header, data) in &all {
            let mut bhs = Bhs([0; 48]);
            bhs.0.copy_from_slice(header);
            // Half of the cases: opcodes that exist, so that the deeper branches are met.
            if header[1] & 1 == 0 { bhs.0[0] = lead | (header[0] & 0x40); bhs.0[24..28].copy_from_slice(&1_u32.to_be_bytes()); }
            let frame = Frame { bhs, ahs: &[], data, total_bytes: 0, is_damaged: header[2] & 15 == 0 };
            if let Ok(Incoming::Command { command, data }) = target.receive(&frame, &mut out) {
                let _ = target.begin_write(&command, data.len(), to(4096), &mut out);
            }
            while let Some(held) = target.take_held() {
                let _ = target.receive(&held.frame(), &mut out);
            }
            target.sent(out.pending(), out.digests());
            prop_assert!(target.tasks() <= 8);
            out.sent(out.pending().len());
            let _ = initiator.receive(&frame, &mut out);
            out.sent(out.pending().len());
        }
    }
}

#[test]
fn commands_outside_the_window_are_ignored_and_a_gap_is_a_fault() {
    let (mut target, _) = pair(&Parameters::default());
    let mut out = TransmitBuffer::new();
    let mut send = |cmd_sn: u32| {
        let bhs = ScsiCommand { is_final: true, tag: cmd_sn, cmd_sn, ..ScsiCommand::default() }.write();
        let frame = Frame { bhs, ahs: &[], data: &[], total_bytes: 48, is_damaged: false };
        target.receive(&frame, &mut out).map(|i| matches!(i, Incoming::Command { .. }))
    };
    assert_eq!(send(1), Ok(true));
    assert_eq!(send(1), Ok(false), "a duplicate");
    assert_eq!(send(10), Ok(false), "behind the window");
    assert_eq!(send(4), Err(Fault::CommandGap { got: 4, expected: 2 }));
}

#[test]
fn immediate_writes_in_progress_are_limited() {
    let (mut target, mut initiator) = pair(&Parameters::default());
    let mut out = TransmitBuffer::new();
    for tag in 0..20 {
        let bhs = ScsiCommand {
            immediate: true,
            is_final: true,
            write_data: true,
            tag,
            expected_bytes: 4096,
            ..ScsiCommand::default()
        }
        .write();
        let frame = Frame { bhs, ahs: &[], data: &[], total_bytes: 48, is_damaged: false };
        if let Incoming::Command { command, .. } = target.receive(&frame, &mut out).unwrap() {
            target.begin_write(&command, 0, to(4096), &mut out).unwrap();
        }
    }
    assert_eq!(target.tasks(), 8);
    let bytes = take(&mut out);
    let last = *frames(&bytes).last().unwrap();
    let event = initiator.receive(&last, &mut out).unwrap();
    assert_eq!(event, Event::Rejected(RejectReason::ImmediateCommandReject as u8));
}

#[test]
fn an_unknown_opcode_is_rejected_with_its_header() {
    let (mut target, mut initiator) = pair(&Parameters::default());
    let mut out = TransmitBuffer::new();
    let frame = Frame { bhs: Bhs::new(0x1c), ahs: &[], data: &[], total_bytes: 48, is_damaged: false };
    assert!(matches!(target.receive(&frame, &mut out), Ok(Incoming::Nothing)));
    let bytes = take(&mut out);
    let reject = frames(&bytes)[0];
    assert_eq!(reject.data, frame.bhs.0);
    let event = initiator.receive(&reject, &mut out).unwrap();
    assert_eq!(event, Event::Rejected(RejectReason::CommandNotSupported as u8));
}

#[test]
fn residuals_are_exact() {
    assert_eq!(residual(512, 512), (false, false, 0));
    assert_eq!(residual(512, 4096), (false, true, 3584));
    assert_eq!(residual(4096, 512), (true, false, 3584));
    assert_eq!(residual(u64::MAX, 0), (true, false, u32::MAX));
}

#[test]
fn a_discovery_session_rejects_commands() {
    let mut target = TargetConnection::new(&logged_in(Parameters::default(), SessionType::Discovery), 8);
    let mut out = TransmitBuffer::new();
    let bhs = ScsiCommand { is_final: true, cmd_sn: 1, ..ScsiCommand::default() }.write();
    assert!(
        target
            .receive(&Frame { bhs, ahs: &[], data: &[], total_bytes: 48, is_damaged: false }, &mut out)
            .is_err()
    );
}

#[test]
fn a_long_text_response_is_sent_in_parts() {
    let (mut target, mut initiator) = pair(&Parameters { max_send_bytes: 512, ..Parameters::default() });
    let (mut to_target, mut to_initiator) = (TransmitBuffer::new(), TransmitBuffer::new());
    let answer: Vec<u8> = (0..2000).map(|i| b'a' + (i % 26) as u8).collect();
    initiator.text(b"SendTargets=All\0", &mut to_target);
    for _ in 0..10 {
        for frame in frames(&take(&mut to_target)) {
            if let Incoming::Text { request, text } = target.receive(&frame, &mut to_initiator).unwrap() {
                assert_eq!(text, b"SendTargets=All\0");
                target.respond_text(&request, answer.clone(), &mut to_initiator);
            }
        }
        for frame in frames(&take(&mut to_initiator)) {
            if let Event::Text(text) = initiator.receive(&frame, &mut to_target).unwrap() {
                assert_eq!(text, answer);
                return;
            }
        }
    }
    panic!("the answer never came");
}

/// Found by the fuzzer: a number that came twice before its turn, with more data the second time.
#[test]
fn a_duplicate_early_command_is_held_once() {
    let parameters = Parameters { max_connections: 2, ..Parameters::default() };
    let (mut target, _) = pair(&parameters);
    let mut out = TransmitBuffer::new();
    let mut send = |target: &mut TargetConnection, cmd_sn: u32, data: &[u8]| {
        let bhs = ScsiCommand { is_final: true, tag: cmd_sn, cmd_sn, ..ScsiCommand::default() }.write();
        let frame = Frame { bhs, ahs: &[], data, total_bytes: 48, is_damaged: false };
        matches!(target.receive(&frame, &mut out), Ok(Incoming::Command { .. }))
    };
    assert!(!send(&mut target, 2, &[]) && !send(&mut target, 2, &[1; 100]));
    assert!(target.sequence().is_waited_for() && target.take_held().is_none());
    assert!(send(&mut target, 1, &[]));
    let held = target.take_held().unwrap();
    assert!(held.frame().data.is_empty(), "the first that came");
    assert!(!target.sequence().is_waited_for() && target.take_held().is_none());
    // Held here, and taken by another connection of the session.
    assert!(!send(&mut target, 4, &[1; 100]));
    assert_eq!([2, 3, 4].map(|sn| target.sequence().take_turn(sn)), [Turn::Now; 3]);
    assert!(target.take_held().is_none() && !target.sequence().is_waited_for());
}
