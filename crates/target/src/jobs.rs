//! Work that a disk takes its time for, done beside the thread of the connection that asks for it: many commands
//! of one connection are then under way at a time, and none of them holds the connection up. A store that begins
//! operations by itself is given them; threads wait for the others.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use iscsi::CommandSequence;
use iscsi::pdu::ScsiCommand;

use store::{Buffer, Ended, Request, Ticket};

use crate::disks::{Shared, Unit};
use crate::sessions::{Mailbox, lock};

/// A thread without work ends after this.
const IDLE: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

/// The threads that wait for disks, shared by all connections of a target.
pub(crate) struct Pool {
    queue: Mutex<Queue>,
    ready: Condvar,
    threads_max: usize,
    /// Bytes of commands that nobody waits for any more, and that the disk has not ended yet.
    abandoned_bytes: AtomicUsize,
    abandoned_bytes_max: usize,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    threads: usize,
    idle: usize,
}

impl Pool {
    pub(crate) fn new(threads_max: usize, abandoned_bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::default(),
            ready: Condvar::new(),
            threads_max: threads_max.max(1),
            abandoned_bytes: AtomicUsize::new(0),
            abandoned_bytes_max,
        })
    }

    /// Has it done by one of the threads. What waits is bounded by the commands that connections may have under way.
    fn run(self: &Arc<Self>, work: Work) {
        let mut queue = lock(&self.queue);
        queue.work.push_back(work);
        let is_enough = queue.idle >= queue.work.len() || queue.threads >= self.threads_max;
        if is_enough {
            self.ready.notify_one();
            return;
        }
        queue.threads += 1;
        drop(queue);
        let pool = Arc::clone(self);
        let begun = std::thread::Builder::new().name("disk".to_owned()).spawn(move || pool.serve());
        if let Err(error) = begun {
            tracing::warn!("a thread for slow disks: {error}");
            let mut queue = lock(&self.queue);
            queue.threads -= 1;
            if queue.threads == 0 {
                // Nobody else will do it.
                let work = std::mem::take(&mut queue.work);
                drop(queue);
                work.into_iter().for_each(|work| work());
            }
        }
    }

    fn serve(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(work) = queue.work.pop_front() {
                drop(queue);
                work();
                queue = lock(&self.queue);
                continue;
            }
            queue.idle += 1;
            let waited = self.ready.wait_timeout(queue, IDLE);
            let (guard, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
            queue = guard;
            queue.idle -= 1;
            if timeout.timed_out() && queue.work.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// With data for the initiator, as far as it expects any, and how many bytes the command would transfer.
    Data(Buffer, u64),
    /// With status and sense; this many bytes were moved.
    Status(u8, Vec<u8>, u64),
    /// It was given up, and nobody is told.
    GivenUp,
}

/// Bytes that a command counts at least, for what there is besides its data.
const JOB_BYTES_MIN: usize = 4096;

/// A command's share of the target, held by whoever works for it.
struct Claim {
    pool: Arc<Pool>,
    bytes: usize,
    has_begun: AtomicBool,
    /// Nobody wants it any more: where it has not begun, it is not to begin.
    is_given_up: AtomicBool,
}

impl Claim {
    /// Whether it may begin, which it has then.
    fn begins(&self) -> bool {
        // Either this is seen by who gives it up, or that is seen here.
        self.has_begun.store(true, Ordering::SeqCst);
        !self.is_given_up.load(Ordering::SeqCst)
    }

    /// Gives it up; whether it is under way.
    fn give_up(&self) -> bool {
        if !self.is_given_up.swap(true, Ordering::SeqCst) {
            self.pool.abandoned_bytes.fetch_add(self.bytes, Ordering::Relaxed);
        }
        self.has_begun.load(Ordering::SeqCst)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if *self.is_given_up.get_mut() {
            self.pool.abandoned_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// A job that is done.
#[derive(Debug)]
pub(crate) struct Done {
    id: u64,
    outcome: Outcome,
}

/// A command whose job is under way.
pub(crate) struct Running {
    pub(crate) command: ScsiCommand,
    /// R2Ts that were sent for it.
    pub(crate) r2ts: u32,
    bytes: usize,
    claim: Arc<Claim>,
    ticket: Ticket,
}

/// The jobs of one connection.
pub(crate) struct Jobs {
    pool: Arc<Pool>,
    mailbox: Arc<Mailbox>,
    sequence: Arc<CommandSequence>,
    running: HashMap<u64, Running>,
    /// What was given up while it was under way.
    leaving: Vec<Weak<Claim>>,
    next: u64,
    bytes: usize,
    bytes_max: usize,
    /// None is to begin: everything is done at once.
    pub(crate) is_shut: bool,
}

impl Jobs {
    pub(crate) fn new(
        pool: Arc<Pool>,
        mailbox: Arc<Mailbox>,
        sequence: Arc<CommandSequence>,
        bytes_max: usize,
    ) -> Self {
        Self {
            pool,
            mailbox,
            sequence,
            running: HashMap::new(),
            leaving: Vec::new(),
            next: 0,
            bytes: 0,
            bytes_max,
            is_shut: false,
        }
    }

    /// Whether another job that holds so many bytes may begin.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        !self.is_shut && (self.bytes as u64).saturating_add(bytes) <= self.bytes_max as u64
    }

    /// Whether so much that was given up is still with the disks that they should be asked for nothing more.
    #[inline]
    pub(crate) fn is_burdened(&self) -> bool {
        self.pool.abandoned_bytes.load(Ordering::Relaxed) > self.pool.abandoned_bytes_max
    }

    fn enter(&mut self, (command, r2ts): (&ScsiCommand, u32), bytes: u64) -> (u64, Arc<Claim>) {
        let (id, bytes) = (self.next, bytes as usize);
        self.next += 1;
        self.bytes += bytes;
        let claim = Arc::new(Claim {
            pool: Arc::clone(&self.pool),
            bytes: bytes.max(JOB_BYTES_MIN),
            has_begun: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
        });
        let ticket = Ticket::default();
        let running = Running { command: *command, r2ts, bytes, claim: Arc::clone(&claim), ticket };
        self.running.insert(id, running);
        self.sequence.unfinished(1);
        (id, claim)
    }

    /// Begins a job for a command, which keeps its place in the window until it is done.
    pub(crate) fn begin(
        &mut self,
        command: (&ScsiCommand, u32),
        bytes: u64,
        work: impl FnOnce() -> Outcome + Send + 'static,
    ) {
        let (id, claim) = self.enter(command, bytes);
        let mailbox = Arc::clone(&self.mailbox);
        self.pool.run(Box::new(move || {
            if claim.begins() {
                mailbox.done(Done { id, outcome: work() });
            }
        }));
    }

    /// Begins a request of a disk for a command: by the store itself where it takes it, by a thread elsewhere.
    /// `bytes` is what the command holds.
    pub(crate) fn ask(
        &mut self,
        command: (&ScsiCommand, u32),
        bytes: u64,
        (unit, request): (&Arc<Unit>, Request),
        finish: impl FnOnce(Ended) -> Outcome + Send + 'static,
    ) {
        let taken = unit.store.takes(&request).then(|| unit.try_share()).flatten();
        let Some(shared) = taken else {
            let (unit, resets) = (Arc::clone(unit), unit.resets());
            return self.begin(command, bytes, move || {
                let _shared = unit.step.read();
                if unit.resets() != resets {
                    return Outcome::GivenUp;
                }
                finish(request.carry_out(&*unit.store))
            });
        };
        let (id, claim) = self.enter(command, bytes);
        claim.begins();
        let mailbox = Arc::clone(&self.mailbox);
        let told = move |ended| Self::told(&mailbox, (shared, claim), id, finish(ended));
        let ticket = unit.store.begin(request, Box::new(told));
        if let Some(running) = self.running.get_mut(&id) {
            running.ticket = ticket;
        }
    }

    /// A request of a disk has ended, and what it held is let go.
    fn told(mailbox: &Mailbox, _held: (Shared, Arc<Claim>), id: u64, outcome: Outcome) {
        mailbox.done(Done { id, outcome });
    }

    /// The command of a job that is done; nothing when it was aborted meanwhile.
    pub(crate) fn end(&mut self, done: Done) -> Option<(Running, Outcome)> {
        let running = self.running.remove(&done.id)?;
        self.bytes -= running.bytes;
        self.sequence.unfinished(-1);
        Some((running, done.outcome))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Gives up the jobs of the commands that `aborts` chooses: those that have not begun never do, the others are
    /// cancelled where the store can, and nobody is told how they end. How many.
    pub(crate) fn abort(&mut self, mut aborts: impl FnMut(&ScsiCommand) -> bool) -> usize {
        let before = self.running.len();
        let mut cancelled = Vec::new();
        self.running.retain(|_, running| {
            let stays = !aborts(&running.command);
            if !stays {
                if running.claim.give_up() {
                    self.leaving.push(Arc::downgrade(&running.claim));
                    cancelled.push(std::mem::take(&mut running.ticket));
                }
                self.bytes -= running.bytes;
            }
            stays
        });
        cancelled.iter().for_each(Ticket::cancel);
        let aborted = before - self.running.len();
        self.sequence.unfinished(-(aborted as i32));
        aborted
    }

    /// Waits until what was given up while it was under way has ended, at most so long; how much has not.
    pub(crate) fn wait_for_leaving(&mut self, until: Instant) -> usize {
        loop {
            self.leaving.retain(|claim| claim.strong_count() > 0);
            if self.leaving.is_empty() || Instant::now() >= until {
                return std::mem::take(&mut self.leaving).len();
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        // Who is gone is told nothing either.
        self.abort(|_| true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_before_it_begins_never_begins() {
        let (mailbox, sequence) = (Arc::new(Mailbox::new().unwrap()), Arc::new(CommandSequence::new(0, 8)));
        // One thread, and that is busy.
        let mut jobs = Jobs::new(Pool::new(1, 1 << 20), Arc::clone(&mailbox), sequence, 1000);
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let (begun, has_begun) = std::sync::mpsc::channel::<u32>();
        let command = |tag| ScsiCommand { tag, ..ScsiCommand::default() };
        jobs.begin((&command(1), 0), 0, move || {
            let _ = wait.recv();
            Outcome::Status(0, Vec::new(), 0)
        });
        for tag in 2..=3 {
            let begun = begun.clone();
            jobs.begin((&command(tag), 0), 0, move || {
                let _ = begun.send(tag);
                Outcome::Status(0, Vec::new(), 0)
            });
        }
        assert_eq!(jobs.abort(|command| command.tag == 2), 1);
        release.send(()).unwrap();
        assert_eq!(has_begun.recv_timeout(Duration::from_secs(5)), Ok(3));
        assert!(has_begun.try_recv().is_err());
    }

    #[test]
    fn jobs_end_in_any_order_and_keep_their_places_until_then() {
        let (mailbox, sequence) = (Arc::new(Mailbox::new().unwrap()), Arc::new(CommandSequence::new(0, 8)));
        let mut jobs = Jobs::new(Pool::new(4, 1 << 20), Arc::clone(&mailbox), Arc::clone(&sequence), 1000);
        let command = |tag| ScsiCommand { tag, ..ScsiCommand::default() };
        let (release, wait) = std::sync::mpsc::channel::<()>();
        jobs.begin((&command(1), 0), 600, move || {
            let _ = wait.recv();
            Outcome::Data(Buffer::new(1), 1)
        });
        jobs.begin((&command(2), 0), 400, || Outcome::Status(0, Vec::new(), 2));
        assert!(!jobs.has_room(1) && sequence.open_window() == 6);
        let next = || loop {
            if let Some(done) = mailbox.take_done().pop() {
                break done;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let (second, _) = jobs.end(next()).unwrap();
        assert_eq!((second.command.tag, jobs.has_room(400), sequence.open_window()), (2, true, 7));
        assert_eq!(jobs.abort(|command| command.tag == 1), 1);
        release.send(()).unwrap();
        assert!(jobs.end(next()).is_none(), "it was given up");
        assert!(jobs.is_idle() && sequence.open_window() == 8);
    }
}
