//! Jobs: disk operations that may block, executed outside the connection's thread, so that many commands of a connection
//! are in flight at a time and none blocks it. Stores with asynchronous operations receive them directly; a thread pool
//! executes the others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use iscsi::CommandSequence;
use iscsi::pdu::ScsiCommand;
use store::{Ended, Request, Ticket};

use crate::done::{Done, Outcome};
use crate::fence::{Epoch, Working};
use crate::lock::lock;
use crate::mailbox::Mailbox;
use crate::memory::{Memory, Share};
use crate::unit::Unit;

/// A pool thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

/// The thread pool for blocking disk operations, shared by all connections of a target. Each disk has its own queue and
/// its own thread limit, and the queues are served round-robin: a hung disk occupies its share of threads and cannot
/// starve another disk.
pub(crate) struct Pool {
    queue: Mutex<Queue>,
    ready: Condvar,
    threads_max: usize,
    /// Most threads that one disk may occupy.
    disk_threads_max: usize,
    /// The pool has no threads; the owner runs queued work with [`Pool::run_one`]. For deterministic tests.
    is_manual: bool,
    /// Bytes of abandoned commands that disks have not completed yet.
    abandoned_bytes: AtomicUsize,
    abandoned_bytes_max: usize,
}

#[derive(Default)]
struct Queue {
    disks: BTreeMap<u64, Disk>,
    /// Disks with queued work, in round-robin order.
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
    /// Takes the next work of a disk below its thread limit, starting at the `skip`th such disk.
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

    /// Creates a pool without threads.
    #[cfg(test)]
    pub(crate) fn manual(abandoned_bytes_max: usize) -> Arc<Self> {
        let Ok(pool) = Arc::try_unwrap(Self::new(64, abandoned_bytes_max)) else { unreachable!("it is new") };
        Arc::new(Self { is_manual: true, ..pool })
    }

    /// Runs one queued job of a pool without threads, of the `choice`th disk with work; returns whether there was one.
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

    /// Queues work of a disk for a pool thread. The command windows of the connections bound the queue.
    fn run(self: &Arc<Self>, id: u64, work: Work) {
        let mut queue = lock(&self.queue);
        let disk = queue.disks.entry(id).or_default();
        disk.work.push_back(work);
        let (running, is_first) = (disk.running, disk.work.len() == 1);
        if is_first {
            queue.turns.push_back(id);
        }
        // A disk without a thread always gets one, even above `threads_max`; the number of disks bounds the excess.
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
                // No pool thread is left to run it.
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

/// Least number of bytes that a command is charged for, to cover its bookkeeping.
const JOB_BYTES_MIN: usize = 4096;

/// The resources of a command, held by the job that executes it.
#[derive(Debug)]
pub(crate) struct Claim {
    pool: Arc<Pool>,
    bytes: usize,
    has_begun: AtomicBool,
    /// A job that has not begun must not begin.
    is_abandoned: AtomicBool,
    /// Its share of the memory budget; `None` when the command holds the share itself.
    _share: Option<Share>,
}

impl Claim {
    /// Marks the job as begun; returns false when it is abandoned.
    fn try_begin(&self) -> bool {
        // SeqCst: either `abandon` sees `has_begun`, or this load sees `is_abandoned`.
        self.has_begun.store(true, Ordering::SeqCst);
        !self.is_abandoned.load(Ordering::SeqCst)
    }

    /// Abandons the job; returns whether it has begun.
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

/// The command of a job.
#[derive(Clone)]
pub(crate) struct Job {
    /// The command that is answered when the job ends.
    pub(crate) command: ScsiCommand,
    /// R2Ts sent for it.
    pub(crate) r2ts: u32,
    /// The epoch of its task.
    pub(crate) epoch: Arc<Epoch>,
    /// Whether it changes the disk: an abort of its task waits for it.
    pub(crate) changes: bool,
    /// Whether it reads a chunk of a response whose command is counted as unfinished already. Counting it twice would
    /// shrink the announced command window, and commands sent within it would be ignored.
    pub(crate) is_piece: bool,
}

/// The disk of a job and the resources that it holds.
pub(crate) struct Room<'a> {
    /// The disk.
    pub(crate) unit: &'a Arc<Unit>,
    /// Its share of the memory budget; `None` when the command holds the share itself.
    pub(crate) share: Option<Share>,
    /// Bytes charged to the job limit of its connection.
    pub(crate) bytes: u64,
}

impl Job {
    /// Enters the epoch if the job changes the disk; `None` when the task is aborted.
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
    begun: Instant,
}

/// The jobs of one connection.
pub(crate) struct Jobs {
    pool: Arc<Pool>,
    memory: Arc<Memory>,
    /// One operation outside the budget, without which a connection would wait for the others to read what they asked for.
    spare: Arc<Memory>,
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
        let (spare, running) = (Memory::new(1), BTreeMap::new());
        Self { pool, memory, spare, mailbox, sequence, running, next: 0, bytes: 0, bytes_max }
    }

    /// Claims memory for a job of `bytes` bytes; `None` when the connection or the target is at its limit.
    pub(crate) fn room(&self, bytes: u64) -> Option<Share> {
        let sum = (self.bytes as u64).saturating_add(bytes);
        (sum <= self.bytes_max as u64).then(|| self.memory.claim(bytes as usize)).flatten()
    }

    /// Claims the one operation of the connection that the budget need not cover; `None` until the one before has ended, and its
    /// data have been sent.
    pub(crate) fn spare(&self) -> Option<Share> {
        self.spare.claim(1)
    }

    /// Claims memory for gathered data; `None` when the target is at its limit.
    pub(crate) fn claim(&self, bytes: usize) -> Option<Share> {
        self.memory.claim(bytes)
    }

    /// Claims memory for what can be done without, from the first half of the budget: it must not keep others from what they need.
    pub(crate) fn claim_dispensable(&self, bytes: usize) -> Option<Share> {
        self.memory.claim_dispensable(bytes)
    }

    /// Returns whether the disks hold more abandoned bytes than the limit and should get no new operations.
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
        let begun = Instant::now();
        let running = Running { job, bytes, claim: Arc::clone(&claim), ticket: Ticket::default(), begun };
        self.running.insert(id, running);
        (id, claim)
    }

    /// Queues `work` for a pool thread. The command occupies its window slot until the job ends; `work` runs inside the
    /// epoch of the task.
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
            // Release the resources first: the connection may start a new command as soon as it sees the completion.
            drop(claim);
            mailbox.done(Done { id, outcome });
        };
        self.pool.run(unit.id, Box::new(run));
    }

    /// Submits a store request for a command: asynchronously if the store supports it, else to a pool thread. Returns the
    /// id of the job.
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
            // Release the resources first: the connection may start a new command as soon as it sees the completion.
            drop((shared, claim, working));
            mailbox.done(Done { id, outcome });
        };
        let ticket = unit.store.begin(request, Box::new(done));
        if let Some(running) = self.running.get_mut(&id) {
            running.ticket = ticket;
        }
        id
    }

    /// Removes a completed job and returns it and when it began; `None` when it was aborted.
    pub(crate) fn end(&mut self, done: Done) -> Option<(u64, Job, Outcome, Instant)> {
        let running = self.running.remove(&done.id)?;
        self.bytes -= running.bytes;
        self.sequence.unfinished(-i32::from(!running.job.is_piece));
        Some((done.id, running.job, done.outcome, running.begun))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Returns whether a job serves a command that `has` selects.
    pub(crate) fn any(&self, has: impl Fn(&ScsiCommand) -> bool) -> bool {
        self.running.values().any(|running| has(&running.job.command))
    }

    /// Abandons the jobs that `aborts` selects: queued jobs never run, running ones are cancelled if the store supports
    /// it, and their commands get no response. Returns how many, and the claims of jobs that may still change the disk.
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
        // A single, busy thread.
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
        let (_, second, _, _) = bench.jobs.end(done).unwrap();
        assert_eq!((second.command.tag, bench.sequence.open_window()), (2, 7));
        assert!(bench.jobs.room(400).is_some());
        let (aborted, begun) = bench.jobs.abort(|job| job.command.tag == 1);
        assert_eq!((aborted, begun.len(), begun[0].strong_count()), (1, 1, 1));
        release.send(()).unwrap();
        let done = bench.next();
        assert_eq!(begun[0].strong_count(), 0, "resources are released before the completion is reported");
        assert!(bench.jobs.end(done).is_none(), "it was abandoned");
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
