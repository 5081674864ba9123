//! Numbers of requests that a client may repeat.
//!
//! Some clients give all requests the same number, which their protocols permit where one is in flight, or do not forbid. These have their
//! answers in order. Others take the lowest number that is free, which may be that of the request before. A request that is sent behind
//! a silence, with the number of one that is open, shows that the client has given up that one.

use super::{Asked, Of, Requests};

/// Silence behind which a client that asks again has given up its last request, nanoseconds: clients wait for some tenths of a second or
/// for seconds, and pipelines are never so long still.
const SILENCE_NS: u64 = 200_000_000;

/// The numbers of one connection.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// The number of the last request.
    last: Option<u64>,
    /// The number of the requests in order.
    repeated: Option<u64>,
    /// When the last message passed.
    last_ns: u64,
    /// Requests may have no answer that is seen.
    has_excused: bool,
}

impl Numbers {
    /// The message at hand is a whole request with this number.
    pub(super) fn ask(&mut self, number: u64, asked: &Asked<'_>, requests: &mut Requests) -> Of {
        let id = Of::Id(number);
        requests.begins_numbered();
        let is_behind_silence = self.pass(requests) >= SILENCE_NS;
        let is_repeated = self.last.replace(number) == Some(number);
        if let Some(repeated) = self.repeated
            && (repeated != number || !is_repeated || is_behind_silence)
            && (is_behind_silence || !requests.number_order(repeated))
        {
            requests.give_up(Of::Order);
        }
        if !is_repeated || is_behind_silence {
            // Not repeated, it is used again long after its request.
            requests.give_up(id);
        }
        self.repeated = self.repeated.filter(|&repeated| repeated != number);
        if is_repeated {
            self.repeated = Some(number);
        }
        let of = if is_repeated { Of::Order } else { id };
        requests.ask(of, asked);
        requests.asked(of);
        of
    }

    /// The request needs no answer.
    pub(super) fn excuse(&mut self, of: Of, requests: &mut Requests) {
        requests.excuse(of);
        self.has_excused |= of != Of::Order;
    }

    /// The request that the message at hand answers, which has this number and an operation that it may be of.
    pub(super) fn answer(
        &mut self,
        number: u64,
        may_be_of: impl Fn(&str) -> bool,
        requests: &mut Requests,
    ) -> Option<Of> {
        self.pass(requests);
        let id = Of::Id(number);
        if self.repeated == Some(number) && !requests.is_open(id) {
            if !requests.skip_to(|name, _| may_be_of(name)) {
                requests.answered_none();
                return None;
            }
            requests.answer(Of::Order);
            return Some(Of::Order);
        }
        if requests.operation(id).is_some_and(|operation| !may_be_of(operation.as_str())) {
            requests.counted.unmatched += 1;
            return None;
        }
        if self.has_excused {
            self.has_excused = requests.forget_excused_before(id);
        }
        requests.answer(id);
        Some(id)
    }

    /// Answers are in a hole.
    pub(super) fn lost_answers(&mut self, requests: &mut Requests) {
        if let Some(repeated) = self.repeated {
            // It is older than those in order with its number: the first of the missing answers is its own.
            requests.abandon(Of::Id(repeated));
        }
        requests.excuse_all();
        self.has_excused = true;
        if self.repeated.is_some() && requests.is_pipelining() {
            requests.lost_answers();
        }
    }

    /// Nanoseconds since the message before.
    fn pass(&mut self, requests: &Requests) -> u64 {
        let now_ns = requests.now().ns;
        now_ns.saturating_sub(std::mem::replace(&mut self.last_ns, now_ns))
    }
}
