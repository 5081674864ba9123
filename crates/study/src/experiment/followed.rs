//! A run whose operations are followed through all capture points, and their structure.

use std::time::Duration;

use analysis::modes::{self, Point};
use record::{Op, OpKind, Side};

use super::Case;
use super::cases::Run;
use super::result::Structure;
use crate::client::{BenchDone, Job};
use crate::error::StudyError;
use crate::place::Place;
use crate::result::Observation;

/// Time limit for the target to notice that a session has ended.
const CLOSE_PATIENCE: Duration = Duration::from_secs(3);

/// The operations of a run, in the order of their requests.
pub(super) struct Followed {
    pub(super) ops: Vec<Op>,
    pub(super) structure: Structure,
}

impl Run<'_> {
    /// Follows the operations of a run of an iSCSI case.
    pub(super) fn followed(&self, case: &Case) -> Result<Followed, StudyError> {
        let place = self.place;
        let stamped = (place.observation == Observation::SocketStamps).then(|| place.operations_max());
        let target = self.target(case, stamped)?;
        let watches = place.watch(target.address().port())?;
        let mut job = self.iscsi_job(case, &target)?;
        job.spec.record_ops = place.operations_max();
        job.stamp_operations = stamped;
        job.watch = place.is_remote() && place.may_trace();
        let job = Job::Iscsi(Box::new(job));
        let performed = self.beside(case, || place.perform(&job, &|_| (), self.stop))?;
        let BenchDone { bench, watched } = performed.reply.done.bench()?;
        // The session's last stamps are published when its thread ends.
        if !target.wait_until_idle(CLOSE_PATIENCE) {
            tracing::warn!("a session did not end in time; its last operations may be missing");
        }
        let (mut client, mut server) = (bench.seen.clone(), target.take_ops());
        target.stop();
        for side in Place::stop_watching(watches)?.into_iter().flat_map(|report| report.sides) {
            match side.side {
                Side::Client => client.extend(side.ops),
                Side::Server => server.extend(side.ops),
            }
        }
        client.extend(watched.into_iter().flat_map(|watched| watched.seen));
        // Commands of the login are not operations of the load.
        client.retain(|op| op.kind != OpKind::Other);
        server.retain(|op| op.kind != OpKind::Other);
        let (begin, end) = bench.window;
        let mut ops = record::join(&bench.ops, &client, &server).ops;
        ops.retain(|op| op.finish >= begin && op.finish <= end);
        ops.sort_by_key(|op| op.c1);
        let points: Vec<Point> = ops.iter().filter_map(|op| Point::of(op, place.has_one_clock())).collect();
        let structure = Structure { operations: points.len() as u64, findings: modes::find(&points) };
        Ok(Followed { ops, structure })
    }
}
