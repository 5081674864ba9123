//! Many simulations, on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::op::SimOp;
use crate::result::RunResult;
use crate::setup::Setup;
use crate::world::{Observer, simulate};

/// Ends a run when `stop` returns true.
struct Stopping<'a>(&'a (dyn Fn() -> bool + Sync));

impl Observer for Stopping<'_> {
    fn op(&mut self, _: &SimOp) {}

    fn tick(&mut self, _: u64) -> bool {
        !(self.0)()
    }
}

/// Simulates all setups, each on one core. Results are in the order of the setups. `begins` is called with the index of a
/// setup before it is simulated. When `stop` returns true, running simulations end early and no other begins: the
/// results of those that did not begin are `None`.
pub fn sweep(
    setups: &[Setup],
    begins: &(dyn Fn(usize) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Vec<Option<RunResult>> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(vec![None; setups.len()]);
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(setups.len());
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !stop() {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(setup) = setups.get(index) else { break };
                    begins(index);
                    let result = simulate(setup, &mut Stopping(stop));
                    let mut results = results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    results[index] = Some(result);
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
