//! The paper's CPU-bound run, for service times: a full queue without the wire's rate limit. Threads that wait for the wire sleep between
//! operations, and their work includes the wake-ups.

use analysis::{CpuCost, Evidence};
use serde::{Deserialize, Serialize};

use crate::error::StudyError;
use crate::place::{Disturbance, Place};
use crate::plan::Plan;
use crate::point::{Observe, PointKey, disturbances, run};
use crate::traced::TracedRun;

/// What was measured without the wire's rate limit: a bare run, and a traced one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unlimited {
    cpu: CpuCost,
    disturbance: Disturbance,
    traced: TracedRun,
}

impl Unlimited {
    /// Measures it.
    pub(crate) fn measure(
        place: &Place,
        plan: &Plan,
        point: PointKey,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Self, StudyError> {
        let (run, traced) = place.unlimited(|| {
            let run = run(place, plan, point, Observe::Nothing, stop)?;
            let traced = TracedRun::measure(place, plan, point, stop)?;
            Ok((run, traced))
        })?;
        if stop() {
            return Err(StudyError::Interrupted);
        }
        Ok(Self { cpu: run.accounts.cpu, disturbance: run.accounts.disturbance, traced })
    }

    /// CPU work per operation.
    pub(crate) fn service(&self) -> CpuCost {
        self.traced.divide(self.cpu)
    }

    /// What all observers saw of its traced run.
    pub(crate) fn evidence(&self) -> Option<&Evidence> {
        self.traced.evidence().ok()
    }

    /// What disturbed its runs.
    pub(crate) fn disturbances(&self) -> Vec<String> {
        let mut all = disturbances(self.disturbance);
        all.extend_from_slice(self.traced.disturbances());
        all.iter_mut().for_each(|why| why.push_str(" (without the wire's rate limit)"));
        all
    }
}
