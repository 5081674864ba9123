//! Answers that are errors, by service.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use record::{AnswerError, Exchange};

/// Most services, kinds of errors of one service, and frames of one service that are kept.
const SERVICES_MAX: usize = 256;
const KINDS_MAX: usize = 16;
const FRAMES_MAX: usize = 1000;

/// The errors of one service.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) count: u64,
    pub(super) kinds: BTreeMap<AnswerError, u64>,
    /// The frames of the first requests and their answers.
    pub(super) frames: Vec<[u64; 3]>,
}

/// All errors.
#[derive(Debug, Default)]
pub(super) struct Errors {
    services: BTreeMap<SocketAddr, Answers>,
}

impl Errors {
    /// Adds the error that a service answered.
    pub(super) fn add(&mut self, service: Option<SocketAddr>, error: AnswerError, exchange: &Exchange) {
        let Some(service) = service else { return };
        if self.services.len() >= SERVICES_MAX && !self.services.contains_key(&service) {
            return;
        }
        let answers = self.services.entry(service).or_default();
        answers.count += 1;
        if answers.kinds.len() < KINDS_MAX || answers.kinds.contains_key(&error) {
            *answers.kinds.entry(error).or_default() += 1;
        }
        if answers.frames.len() < FRAMES_MAX {
            answers.frames.push([exchange.request.first_frame, 0, exchange.response.first_frame]);
        }
    }

    /// The services with errors.
    pub(super) fn services(&self) -> impl Iterator<Item = (SocketAddr, &Answers)> {
        self.services.iter().map(|(&service, answers)| (service, answers))
    }
}
