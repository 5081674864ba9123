//! Work that a disk takes its time for, done beside the thread of the connection that asks for it: many commands
//! of one connection are then in flight at a time, and none of them holds the connection up. A store that begins
//! operations by itself is given them; threads wait for the others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use iscsi::CommandSequence;
use iscsi::pdu::ScsiCommand;
use store::{Ended, Request, Ticket};

use crate::done::{Done, Outcome};
use crate::fence::{Epoch, Working};
use crate::lock::lock;
use crate::mailbox::Mailbox;
use crate::memory::{Memory, Share};
use crate::unit::Unit;

/// A thread without work ends after this.
const IDLE: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

/// The threads that wait for disks, shared by all connections of a target. Each disk has its own queue and its own
/// bound on threads, and the queues take turns: a disk that hangs holds some of the threads, and never the last one
/// that another disk needs.
pub(crate) struct Pool {
    queue: Mutex<Queue>,
    ready: Condvar,
    threads_max: usize,
    /// Threads that one disk may hold.
    disk_threads_max: usize,
    /// It has no threads: whoever owns it runs what waits ([`Pool::run_one`]). For tests that replay.
    is_manual: bool,
    /// Bytes of commands that were given up, and that the disk has not ended yet.
    abandoned_bytes: AtomicUsize,
    abandoned_bytes_max: usize,
}

#[derive(Default)]
struct Queue {
    disks: BTreeMap<u64, Disk>,
    /// Disks with work that waits, the one whose turn is next first.
    turns: VecDeque<u64>,
    threads: usize,
    idle: usize,
}

/// The work of one disk.
#[derive(Default)]
struct Disk {
    work: VecDeque<Work>,
    running: usize,
}

impl Queue {
    /// The next work whose disk may have another thread, from the `skip`th such disk on.
    fn take(&mut self, disk_threads_max: usize, mut skip: usize) -> Option<(u64, Work)> {
        for _ in 0..self.turns.len() {
            let id = self.turns.pop_front()?;
            let Some(disk) = self.disks.get_mut(&id) else { continue };
            if disk.running >= disk_threads_max || skip > 0 {
                skip = skip.saturating_sub(usize::from(disk.running < disk_threads_max));
                self.turns.push_back(id);
                continue;
            }
            let Some(work) = disk.work.pop_front() else { continue };
            disk.running += 1;
            if !disk.work.is_empty() {
                self.turns.push_back(id);
            }
            return Some((id, work));
        }
        None
    }

    fn ended(&mut self, id: u64) {
        if let Some(disk) = self.disks.get_mut(&id) {
            disk.running -= 1;
            if disk.running == 0 && disk.work.is_empty() {
                self.disks.remove(&id);
            }
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads_max", &self.threads_max).finish_non_exhaustive()
    }
}

impl Pool {
    pub(crate) fn new(threads_max: usize, abandoned_bytes_max: usize) -> Arc<Self> {
        let threads_max = threads_max.max(1);
        Arc::new(Self {
            queue: Mutex::default(),
            ready: Condvar::new(),
            threads_max,
            disk_threads_max: (threads_max / 4).max(1),
            is_manual: false,
            abandoned_bytes: AtomicUsize::new(0),
            abandoned_bytes_max,
        })
    }

    /// A pool without threads.
    #[cfg(test)]
    pub(crate) fn manual(abandoned_bytes_max: usize) -> Arc<Self> {
        let Ok(pool) = Arc::try_unwrap(Self::new(64, abandoned_bytes_max)) else { unreachable!("it is new") };
        Arc::new(Self { is_manual: true, ..pool })
    }

    /// Runs one piece of work of a pool without threads, of the `choice`th disk that has some; whether there was any.
    #[cfg(test)]
    pub(crate) fn run_one(&self, choice: usize) -> bool {
        let taken = {
            let mut queue = lock(&self.queue);
            let choice = choice % queue.turns.len().max(1);
            queue.take(usize::MAX, choice)
        };
        let Some((id, work)) = taken else { return false };
        work();
        lock(&self.queue).ended(id);
        true
    }

    /// Has work of a disk done by one of the threads. What waits is bounded by the commands that connections may have
    /// in flight.
    fn run(self: &Arc<Self>, id: u64, work: Work) {
        let mut queue = lock(&self.queue);
        let disk = queue.disks.entry(id).or_default();
        disk.work.push_back(work);
        let (running, is_first) = (disk.running, disk.work.len() == 1);
        if is_first {
            queue.turns.push_back(id);
        }
        // A disk without a thread gets one, however many the others hold: disks bound how many there are.
        let is_enough = queue.idle > 0
            || running >= self.disk_threads_max
            || (queue.threads >= self.threads_max && running > 0);
        if is_enough || self.is_manual {
            self.ready.notify_one();
            return;
        }
        queue.threads += 1;
        drop(queue);
        let pool = Arc::clone(self);
        let begun = std::thread::Builder::new().name("disk".to_owned()).spawn(move || pool.serve());
        if let Err(error) = begun {
            tracing::warn!("cannot start a thread for slow disks: {error}");
            let mut queue = lock(&self.queue);
            queue.threads -= 1;
            if queue.threads == 0 {
                // No other thread will do it.
                while let Some((id, work)) = queue.take(usize::MAX, 0) {
                    drop(queue);
                    work();
                    queue = lock(&self.queue);
                    queue.ended(id);
                }
            }
        }
    }

    fn serve(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some((id, work)) = queue.take(self.disk_threads_max, 0) {
                drop(queue);
                work();
                queue = lock(&self.queue);
                queue.ended(id);
                continue;
            }
            queue.idle += 1;
            let waited = self.ready.wait_timeout(queue, IDLE);
            let (guard, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
            queue = guard;
            queue.idle -= 1;
            if timeout.timed_out() && queue.turns.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}

/// Bytes that a command counts at least, for what there is besides its data.
const JOB_BYTES_MIN: usize = 4096;

/// A command's share of the target, held by whoever works for it.
#[derive(Debug)]
pub(crate) struct Claim {
    pool: Arc<Pool>,
    bytes: usize,
    has_begun: AtomicBool,
    /// Where it has not begun, it is not to begin.
    is_abandoned: AtomicBool,
    /// What it holds of the memory of all; nothing where its command holds that itself.
    _share: Option<Share>,
}

impl Claim {
    /// Whether it may begin, which it has then.
    fn try_begin(&self) -> bool {
        // Either this is seen by who gives it up, or that is seen here.
        self.has_begun.store(true, Ordering::SeqCst);
        !self.is_abandoned.load(Ordering::SeqCst)
    }

    /// Gives it up; whether it has begun.
    fn abandon(&self) -> bool {
        if !self.is_abandoned.swap(true, Ordering::SeqCst) {
            self.pool.abandoned_bytes.fetch_add(self.bytes, Ordering::Relaxed);
        }
        self.has_begun.load(Ordering::SeqCst)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if *self.is_abandoned.get_mut() {
            self.pool.abandoned_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// What a job is for.
#[derive(Clone)]
pub(crate) struct Job {
    /// The command, which is answered when the job ends.
    pub(crate) command: ScsiCommand,
    /// R2Ts that were sent for it.
    pub(crate) r2ts: u32,
    /// The epoch of its task.
    pub(crate) epoch: Arc<Epoch>,
    /// It changes the disk: whoever aborts its task waits for it.
    pub(crate) changes: bool,
    /// It reads a piece for an answer: the command is counted as unfinished already. Counted twice it would take back
    /// a part of the window that was announced, and what came there would be ignored.
    pub(crate) is_piece: bool,
}

/// Where a job works, and what it holds meanwhile.
pub(crate) struct Room<'a> {
    /// The disk.
    pub(crate) unit: &'a Arc<Unit>,
    /// Its part of the memory of all; nothing where its command holds that itself.
    pub(crate) share: Option<Share>,
    /// Bytes that count against the limit of its connection.
    pub(crate) bytes: u64,
}

impl Job {
    /// Enters the epoch, where the disk is changed; nothing when the task is aborted.
    fn enter(&self) -> Option<Option<Working<Arc<Epoch>>>> {
        if self.changes {
            return Epoch::enter(Arc::clone(&self.epoch)).map(Some);
        }
        (!self.epoch.is_aborted()).then_some(None)
    }
}

/// A job in flight.
pub(crate) struct Running {
    pub(crate) job: Job,
    bytes: usize,
    claim: Arc<Claim>,
    ticket: Ticket,
}

/// The jobs of one connection.
pub(crate) struct Jobs {
    pool: Arc<Pool>,
    memory: Arc<Memory>,
    mailbox: Arc<Mailbox>,
    sequence: Arc<CommandSequence>,
    running: BTreeMap<u64, Running>,
    next: u64,
    bytes: usize,
    bytes_max: usize,
}

impl Jobs {
    pub(crate) fn new(
        pool: Arc<Pool>,
        memory: Arc<Memory>,
        mailbox: Arc<Mailbox>,
        sequence: Arc<CommandSequence>,
        bytes_max: usize,
    ) -> Self {
        Self { pool, memory, mailbox, sequence, running: BTreeMap::new(), next: 0, bytes: 0, bytes_max }
    }

    /// Room for another job that holds so many bytes; nothing where this connection or the target has none.
    pub(crate) fn room(&self, bytes: u64) -> Option<Share> {
        let sum = (self.bytes as u64).saturating_add(bytes);
        (sum <= self.bytes_max as u64).then(|| self.memory.claim(bytes as usize)).flatten()
    }

    /// Memory for data that is gathered; nothing where the target has none.
    pub(crate) fn claim(&self, bytes: usize) -> Option<Share> {
        self.memory.claim(bytes)
    }

    /// Whether so much that was given up is still with the disks that they should be asked for nothing more.
    #[inline]
    pub(crate) fn is_over_limit(&self) -> bool {
        self.pool.abandoned_bytes.load(Ordering::Relaxed) > self.pool.abandoned_bytes_max
    }

    fn enter(&mut self, job: Job, share: Option<Share>, bytes: u64) -> (u64, Arc<Claim>) {
        let (id, bytes) = (self.next, bytes as usize);
        self.next += 1;
        self.bytes += bytes;
        let claim = Arc::new(Claim {
            pool: Arc::clone(&self.pool),
            bytes: bytes.max(JOB_BYTES_MIN),
            has_begun: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
            _share: share,
        });
        self.sequence.unfinished(i32::from(!job.is_piece));
        let running = Running { job, bytes, claim: Arc::clone(&claim), ticket: Ticket::default() };
        self.running.insert(id, running);
        (id, claim)
    }

    /// Begins a job, whose command keeps its place in the window until it is done. `work` changes the disk only while
    /// the epoch of the task lasts.
    pub(crate) fn begin(
        &mut self,
        job: Job,
        room: Room<'_>,
        work: impl FnOnce() -> Outcome + Send + 'static,
    ) {
        let Room { unit, share, bytes } = room;
        let (id, claim) = self.enter(job.clone(), share, bytes);
        let mailbox = Arc::clone(&self.mailbox);
        let run = move || {
            let mut outcome = Outcome::Aborted;
            if claim.try_begin()
                && let Some(_working) = job.enter()
            {
                outcome = work();
            }
            // What it held is free before its end is reported.
            drop(claim);
            mailbox.done(Done { id, outcome });
        };
        self.pool.run(unit.id, Box::new(run));
    }

    /// Begins a request of a disk for a command: by the store itself where it takes it, by a thread elsewhere.
    /// Returns the id of the job.
    pub(crate) fn submit(
        &mut self,
        job: Job,
        room: Room<'_>,
        request: Request,
        finish: impl FnOnce(Ended) -> Outcome + Send + 'static,
    ) -> u64 {
        let id = self.next;
        let Room { unit, share, bytes } = room;
        let taken = unit.store.takes(&request).then(|| unit.try_share()).flatten();
        let Some(shared) = taken else {
            let disk = Arc::clone(unit);
            self.begin(job, Room { unit, share, bytes }, move || {
                let _shared = disk.atomic_lock.read();
                finish(request.carry_out(&*disk.store))
            });
            return id;
        };
        let (id, claim) = self.enter(job.clone(), share, bytes);
        claim.try_begin();
        let mailbox = Arc::clone(&self.mailbox);
        let Some(working) = job.enter() else {
            mailbox.done(Done { id, outcome: Outcome::Aborted });
            return id;
        };
        let done = move |ended| {
            let outcome = finish(ended);
            // What it held is free before its end is reported.
            drop((shared, claim, working));
            mailbox.done(Done { id, outcome });
        };
        let ticket = unit.store.begin(request, Box::new(done));
        if let Some(running) = self.running.get_mut(&id) {
            running.ticket = ticket;
        }
        id
    }

    /// The job that is done; nothing when it was aborted meanwhile.
    pub(crate) fn end(&mut self, done: Done) -> Option<(u64, Job, Outcome)> {
        let running = self.running.remove(&done.id)?;
        self.bytes -= running.bytes;
        self.sequence.unfinished(-i32::from(!running.job.is_piece));
        Some((done.id, running.job, done.outcome))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether a job serves a command that `has` chooses.
    pub(crate) fn any(&self, has: impl Fn(&ScsiCommand) -> bool) -> bool {
        self.running.values().any(|running| has(&running.job.command))
    }

    /// Gives up the jobs that `aborts` chooses: those that have not begun never do, the others are cancelled where
    /// the store can, and their commands get no response. How many, and what of them may still change the disk.
    pub(crate) fn abort(&mut self, mut aborts: impl FnMut(&Job) -> bool) -> (usize, Vec<Weak<Claim>>) {
        let (before, mut begun, mut cancelled) = (self.running.len(), Vec::new(), Vec::new());
        let mut uncounted = 0;
        let bytes = &mut self.bytes;
        self.running.retain(|_, running| {
            let stays = !aborts(&running.job);
            if !stays {
                uncounted += i32::from(!running.job.is_piece);
                if running.claim.abandon() {
                    if running.job.changes {
                        begun.push(Arc::downgrade(&running.claim));
                    }
                    cancelled.push(std::mem::take(&mut running.ticket));
                }
                *bytes -= running.bytes;
            }
            stays
        });
        cancelled.iter().for_each(Ticket::cancel);
        let aborted = before - self.running.len();
        self.sequence.unfinished(-uncounted);
        (aborted, begun)
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        let _ = self.abort(|_| true);
    }
}

#[cfg(test)]
mod tests {
    use store::{Buffer, Ram};

    use super::*;

    struct Bench {
        jobs: Jobs,
        mailbox: Arc<Mailbox>,
        sequence: Arc<CommandSequence>,
        epoch: Arc<Epoch>,
        unit: Arc<Unit>,
    }

    impl Bench {
        fn new(pool: &Arc<Pool>) -> Self {
            let (mailbox, sequence) =
                (Arc::new(Mailbox::new().unwrap()), Arc::new(CommandSequence::new(0, 8)));
            let memory = Memory::new(1 << 20);
            let jobs = Jobs::new(Arc::clone(pool), memory, Arc::clone(&mailbox), Arc::clone(&sequence), 1000);
            let unit = Arc::new(Unit::new(Arc::new(Ram::new(1 << 20))));
            Self { jobs, mailbox, sequence, epoch: Epoch::new(), unit }
        }

        fn begin(&mut self, tag: u32, bytes: u64, work: impl FnOnce() -> Outcome + Send + 'static) {
            let command = ScsiCommand { tag, ..ScsiCommand::default() };
            let job =
                Job { command, r2ts: 0, epoch: Arc::clone(&self.epoch), changes: true, is_piece: false };
            let share = self.jobs.room(bytes).expect("room");
            self.jobs.begin(job, Room { unit: &self.unit, share: Some(share), bytes }, work);
        }

        fn next(&self) -> Done {
            loop {
                if let Some(done) = self.mailbox.take_done().pop() {
                    return done;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn good() -> Outcome {
        Outcome::Status(0, Vec::new(), 0)
    }

    #[test]
    fn job_abandoned_in_the_queue_never_runs() {
        // One thread, and that is busy.
        let mut bench = Bench::new(&Pool::new(1, 1 << 20));
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let (begun, has_begun) = std::sync::mpsc::channel::<u32>();
        bench.begin(1, 0, move || {
            let _ = wait.recv();
            good()
        });
        for tag in 2..=3 {
            let begun = begun.clone();
            bench.begin(tag, 0, move || {
                let _ = begun.send(tag);
                good()
            });
        }
        assert_eq!(bench.jobs.abort(|job| job.command.tag == 2).0, 1);
        release.send(()).unwrap();
        assert_eq!(has_begun.recv_timeout(Duration::from_secs(5)), Ok(3));
        assert!(has_begun.try_recv().is_err());
    }

    #[test]
    fn jobs_complete_in_any_order_and_hold_their_window_slots_until_then() {
        let mut bench = Bench::new(&Pool::new(8, 1 << 20));
        let (release, wait) = std::sync::mpsc::channel::<()>();
        bench.begin(1, 600, move || {
            let _ = wait.recv();
            Outcome::Data(Buffer::new(1))
        });
        bench.begin(2, 400, good);
        assert!(bench.jobs.room(1).is_none() && bench.sequence.open_window() == 6);
        let done = bench.next();
        let (_, second, _) = bench.jobs.end(done).unwrap();
        assert_eq!((second.command.tag, bench.sequence.open_window()), (2, 7));
        assert!(bench.jobs.room(400).is_some());
        let (aborted, begun) = bench.jobs.abort(|job| job.command.tag == 1);
        assert_eq!((aborted, begun.len(), begun[0].strong_count()), (1, 1, 1));
        release.send(()).unwrap();
        let done = bench.next();
        assert_eq!(begun[0].strong_count(), 0, "what it held is free when its end is told");
        assert!(bench.jobs.end(done).is_none(), "it was given up");
        assert!(bench.jobs.is_idle() && bench.sequence.open_window() == 8);
    }

    #[test]
    fn hung_disk_leaves_threads_for_others() {
        let pool = Pool::new(4, 1 << 20);
        let (mut hanging, mut other) = (Bench::new(&pool), Bench::new(&pool));
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        for tag in 0..8 {
            let wait = Arc::clone(&wait);
            hanging.begin(tag, 0, move || {
                let _ = lock(&wait).recv();
                good()
            });
        }
        for tag in 0..50 {
            other.begin(tag, 0, good);
            let done = other.next();
            assert!(other.jobs.end(done).is_some(), "job {tag} of the other disk");
        }
        assert!(hanging.mailbox.take_done().is_empty());
        drop(release);
    }

    #[test]
    fn disks_take_turns() {
        let pool = Pool::manual(1 << 20);
        let (mut many, mut few) = (Bench::new(&pool), Bench::new(&pool));
        for tag in 0..8 {
            many.begin(tag, 0, good);
        }
        few.begin(0, 0, good);
        assert!(pool.run_one(0) && pool.run_one(0));
        assert_eq!((many.mailbox.take_done().len(), few.mailbox.take_done().len()), (1, 1));
    }

    #[test]
    fn job_of_an_ended_epoch_does_not_run() {
        let pool = Pool::manual(1 << 20);
        let mut bench = Bench::new(&pool);
        let (begun, has_begun) = std::sync::mpsc::channel::<()>();
        bench.begin(1, 0, move || {
            let _ = begun.send(());
            good()
        });
        bench.epoch.abort(None);
        assert!(pool.run_one(0) && has_begun.recv().is_err());
        assert!(matches!(bench.next().outcome, Outcome::Aborted));
    }
}
