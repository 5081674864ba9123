//! The open loop: operations are due at scheduled times.

use socket::clock;

use super::{Loop, Next};
use crate::arrivals::Arrivals;
use crate::initiator::bench::Phase;
use crate::initiator::error::InitiatorError;
use crate::initiator::session::Session;
use crate::pattern::Submit;

/// Distinguishes the random numbers of arrivals from those of addresses.
const ARRIVAL_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

impl Loop<'_> {
    /// Runs an open loop of `rate` operations a second. An operation that finds no free slot at its scheduled time is issued
    /// later, and its round trip counts from the scheduled time.
    pub(super) fn run_open(
        &mut self,
        session: &mut Session,
        observe: Option<&(dyn Fn(Phase) + Sync)>,
        stop: &(dyn Fn() -> bool + Sync),
        rate: f64,
    ) -> Result<(), InitiatorError> {
        let start = (self.now)();
        let begin_at = start + self.spec.ramp.as_nanos() as u64;
        self.ramp_end_ns = begin_at;
        let end_at = begin_at + self.spec.runtime.as_nanos() as u64;
        // Another stream of random numbers than the workload's.
        let seed = self.spec.seed.wrapping_add(u64::from(self.connection)) ^ ARRIVAL_SEED;
        let mut arrivals = Arrivals::new(self.spec.arrival, rate, seed);
        let mut free: Vec<u32> = (0..self.spec.queue_depth).rev().collect();
        let mut begun = false;
        loop {
            let now = (self.now)();
            if !begun && now >= begin_at {
                begun = true;
                if let Some(observe) = observe {
                    observe(Phase::Begin);
                }
                (self.window_ns.0, self.cpu_ns.0) = ((self.now)(), clock::thread_cpu_ns());
            }
            while start + arrivals.next_ns() <= now
                && let Some(slot) = free.pop()
            {
                self.issue(slot, start + arrivals.take(), session)?;
                if self.spec.submit == Submit::Each {
                    session.flush()?;
                }
            }
            session.flush()?;
            if begun && (now >= end_at || stop()) {
                // Operations that were due but found no free slot.
                self.behind = arrivals.overdue(now - start);
                break;
            }
            let until = if free.is_empty() { end_at.max(begin_at) } else { start + arrivals.next_ns() };
            if session.wait(std::time::Duration::from_nanos(until.saturating_sub((self.now)())))? {
                session.receive()?;
            }
            self.drain(session, Next::Free(&mut free), begun)?;
        }
        self.end(session, observe)
    }
}
