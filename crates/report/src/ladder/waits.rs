//! The waits of operations: which reason each part of an operation's time has, and where it passed.

use std::collections::HashMap;

use record::Side;
use tcpsim::{Part, SimOp};

use super::{Arrow, Wait};

/// Parts that are no waits: work, and bits on the wire.
const WORK: [Part; 6] = [Part::Work, Part::Send, Part::Transmit, Part::Wire, Part::Softirq, Part::Take];

/// The parts of a message's time in their order.
const ORDER: [Part; Part::COUNT] = [
    Part::Work,
    Part::Gather,
    Part::Buffer,
    Part::Send,
    Part::Nagle,
    Part::Cork,
    Part::Congestion,
    Part::Window,
    Part::Device,
    Part::Transmit,
    Part::Lost,
    Part::WireStart,
    Part::WireQueue,
    Part::Wire,
    Part::Delay,
    Part::Interrupt,
    Part::Softirq,
    Part::Start,
    Part::Queue,
    Part::Take,
];

/// An acknowledgement without data that is sent so long after the data counts as delayed, nanoseconds.
const DELAYED_FROM_NS: u64 = 1_000_000;

/// The name of a wait.
fn name(part: Part) -> &'static str {
    match part {
        Part::Gather => "gathering",
        Part::Buffer => "send buffer full",
        Part::Nagle => "Nagle",
        Part::Cork => "cork",
        Part::Congestion => "congestion window",
        Part::Window => "receive window",
        Part::Device => "device queue",
        Part::WireStart => "transmit latency",
        Part::WireQueue => "queue of the wire",
        Part::Delay => "propagation",
        Part::Lost => "loss",
        Part::Interrupt => "interrupt",
        Part::Start => "scheduling",
        Part::Queue => "queue of the thread",
        Part::Work | Part::Send | Part::Transmit | Part::Wire | Part::Softirq | Part::Take => part.name(),
    }
}

/// Where a part of a message from this side passes; `None`: on the wire.
fn place(part: Part, sender: Side) -> Option<Side> {
    match part {
        Part::WireStart | Part::WireQueue | Part::Wire | Part::Delay | Part::Lost => None,
        Part::Interrupt | Part::Softirq | Part::Start | Part::Queue | Part::Take => Some(sender.peer()),
        _ => Some(sender),
    }
}

/// The waits of an operation.
pub(super) fn of(op: &SimOp) -> Vec<Wait> {
    let Some(mut at) = op.op.start.ns() else { return Vec::new() };
    let mut waits = Vec::new();
    for (parts, sender) in [(&op.request, Side::Client), (&op.response, Side::Server)] {
        for part in ORDER {
            let (from_ns, to_ns) = (at, at + parts[part as usize]);
            at = to_ns;
            if to_ns > from_ns && !WORK.contains(&part) {
                waits.push(Wait { side: place(part, sender), name: name(part), from_ns, to_ns });
            }
        }
    }
    waits
}

/// The acknowledgements without data that a side sent long after the data had arrived.
pub(super) fn delayed_acks(arrows: &[Arrow]) -> Vec<Wait> {
    let mut waits = Vec::new();
    // What each side has acknowledged of each session.
    let mut acknowledged: HashMap<(u32, bool), u64> = HashMap::new();
    let mut sent: Vec<&Arrow> = arrows.iter().collect();
    sent.sort_by_key(|arrow| arrow.left);
    for ack in sent {
        let (session, side) = (ack.segment.session, ack.segment.sender);
        let before = acknowledged.entry((session, side == Side::Client)).or_default();
        let owed = arrows.iter().filter(|data| {
            let own = &data.segment;
            let end = own.seq + u64::from(own.bytes);
            own.session == session
                && own.sender != side
                && own.bytes > 0
                && end > *before
                && end <= ack.segment.ack
        });
        let since = owed.filter_map(|data| data.arrived.filter(|at| *at <= ack.left)).min();
        *before = (*before).max(ack.segment.ack);
        if let Some(from_ns) =
            since.filter(|from| ack.segment.bytes == 0 && ack.left - from >= DELAYED_FROM_NS)
        {
            waits.push(Wait { side: Some(side), name: "delayed ACK", from_ns, to_ns: ack.left });
        }
    }
    waits
}

#[cfg(test)]
mod tests {
    use record::{Op, Stamp};

    use super::*;

    #[test]
    fn waits_follow_one_another_from_the_start_to_the_finish() {
        let mut op = SimOp {
            op: Op { start: Stamp::at(1_000), ..Op::default() },
            request: [0; 20],
            response: [0; 20],
        };
        op.request[Part::Work as usize] = 10;
        op.request[Part::Interrupt as usize] = 200;
        op.request[Part::Start as usize] = 30;
        op.response[Part::Nagle as usize] = 4_000;
        op.response[Part::Queue as usize] = 5;
        let wait = |side, name, from_ns, to_ns| Wait { side: Some(side), name, from_ns, to_ns };
        assert_eq!(
            of(&op),
            [
                wait(Side::Server, "interrupt", 1_010, 1_210),
                wait(Side::Server, "scheduling", 1_210, 1_240),
                wait(Side::Server, "Nagle", 1_240, 5_240),
                wait(Side::Client, "queue of the thread", 5_240, 5_245),
            ]
        );
    }

    fn arrow(sender: Side, bytes: u32, seq: u64, ack: u64, left: u64) -> Arrow {
        let segment = super::super::Identity { session: 0, sender, seq, bytes, ack, retransmitted: false };
        Arrow { segment, left, arrived: Some(left + 5_000) }
    }

    #[test]
    fn acknowledgements_are_delayed_from_the_arrival_of_the_oldest_data() {
        let ms = 1_000_000;
        let arrows = [
            arrow(Side::Server, 48, 0, 0, 10 * ms),
            arrow(Side::Server, 100, 48, 0, 20 * ms),
            arrow(Side::Client, 0, 0, 148, 50 * ms),
            // At once, and with data: neither is delayed.
            arrow(Side::Server, 48, 148, 0, 60 * ms),
            arrow(Side::Client, 0, 0, 196, 60 * ms + 20_000),
            arrow(Side::Server, 48, 196, 0, 70 * ms),
            arrow(Side::Client, 48, 0, 244, 90 * ms),
        ];
        let expected =
            Wait { side: Some(Side::Client), name: "delayed ACK", from_ns: 10 * ms + 5_000, to_ns: 50 * ms };
        assert_eq!(delayed_acks(&arrows), [expected]);
        assert_eq!(delayed_acks(&[]), []);
    }

    #[test]
    fn the_order_has_every_part_once() {
        assert!(Part::ALL.iter().all(|part| ORDER.iter().filter(|other| *other == part).count() == 1));
    }
}
