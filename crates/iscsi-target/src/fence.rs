//! Which tasks may still change a disk.
//!
//! The tasks of one I_T nexus at one logical unit belong to an [`Epoch`]. Whoever is about to change the disk enters
//! the epoch of its task; whoever aborts the tasks ends the epoch and waits until nobody is inside it. From then on
//! no task of that epoch can change the disk, wherever it waits: for its data, in a queue, on another thread, or
//! with a lost connection. This is the one place where a reset, an abort, a preemption and the end of a session are
//! made final; everything else (dropping the tasks, cancelling what a disk does) only makes it quicker.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use scsi::UnitAttention;

use crate::lock::lock;
use crate::planted::{Bug, is_planted};

/// A time between two aborts of the tasks of an I_T nexus at a logical unit.
#[derive(Debug)]
pub(crate) struct Epoch {
    number: u64,
    is_aborted: AtomicBool,
    /// Tasks that are changing the disk.
    working: AtomicUsize,
    /// What the initiator is to learn, where it loses tasks by the abort.
    attention: Mutex<Option<UnitAttention>>,
}

/// While it is held its task may change the disk.
#[derive(Debug)]
pub(crate) struct Working<E: Deref<Target = Epoch>>(E);

impl<E: Deref<Target = Epoch>> Drop for Working<E> {
    fn drop(&mut self) {
        self.0.working.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Epoch {
    pub(crate) fn new() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            is_aborted: AtomicBool::new(false),
            working: AtomicUsize::new(0),
            attention: Mutex::new(None),
        })
    }

    /// A number that no other epoch of the process has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether its tasks are aborted.
    #[inline]
    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Acquire)
    }

    /// Enters it, to change the disk; nothing when its tasks are aborted.
    #[inline]
    pub(crate) fn enter<E: Deref<Target = Self>>(epoch: E) -> Option<Working<E>> {
        // Either the abort is seen here, or this is seen by who waits for the end (both are sequentially consistent).
        epoch.working.fetch_add(1, Ordering::SeqCst);
        let working = Working(epoch);
        let is_aborted = working.0.is_aborted.load(Ordering::SeqCst);
        (!is_aborted || is_planted(Bug::WritesAfterAbort)).then_some(working)
    }

    /// Whether nothing of it can change the disk any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_aborted.load(Ordering::SeqCst) && self.working.load(Ordering::SeqCst) == 0
    }

    /// The unit attention of a connection that lost tasks by the abort: once for all of the nexus.
    pub(crate) fn take_attention(&self) -> Option<UnitAttention> {
        lock(&self.attention).take()
    }

    pub(crate) fn abort(&self, attention: Option<UnitAttention>) {
        *lock(&self.attention) = attention;
        self.is_aborted.store(true, Ordering::SeqCst);
    }
}

/// The session that tasks belong to, as far as fencing needs it.
pub(crate) trait TaskOwner: fmt::Debug + Send + Sync {
    /// [`scsi::Nexus::name`].
    fn nexus_name(&self) -> &str;
    /// Differs between the sessions of a target.
    fn instance(&self) -> u64;
    /// Has its connections drop the tasks whose epoch has ended.
    fn sweep(&self);
}

/// The tasks of one I_T nexus, as one session has them, at one logical unit.
#[derive(Debug)]
pub(crate) struct NexusTasks {
    nexus: String,
    instance: u64,
    owner: Weak<dyn TaskOwner>,
    epochs: Mutex<Epochs>,
    is_closed: AtomicBool,
    /// What earlier sessions of the same nexus still had at the disk when this one came.
    before: Vec<Arc<Epoch>>,
}

#[derive(Debug)]
struct Epochs {
    current: Arc<Epoch>,
    /// Epochs that were ended and may still last: whoever aborts waits for these too.
    ending: Vec<Arc<Epoch>>,
}

impl Epochs {
    /// Ends the current epoch; all that may still last.
    fn end(&mut self, attention: Option<UnitAttention>) -> Vec<Arc<Epoch>> {
        self.current.abort(attention);
        self.ending.retain(|epoch| !epoch.is_over());
        if !self.current.is_over() && !self.ending.iter().any(|epoch| Arc::ptr_eq(epoch, &self.current)) {
            self.ending.push(Arc::clone(&self.current));
        }
        self.ending.clone()
    }
}

impl NexusTasks {
    /// The epoch of tasks that come now; nothing once the session may not use the logical unit any more.
    pub(crate) fn current(&self) -> Option<Arc<Epoch>> {
        let epochs = lock(&self.epochs);
        (!self.is_closed.load(Ordering::Relaxed)).then(|| Arc::clone(&epochs.current))
    }

    /// Whether a write of an earlier session of this nexus may still land: what the initiator sends now must not be
    /// overtaken by what it believes to be gone.
    #[inline]
    pub(crate) fn has_predecessor_writes(&self) -> bool {
        !is_planted(Bug::ForgetsPredecessor)
            && !self.before.is_empty()
            && self.before.iter().any(|epoch| !epoch.is_over())
    }

    /// Aborts its tasks; the epochs that may still last, to be waited for. Connections that lose tasks by it are to
    /// learn `attention`.
    pub(crate) fn abort(&self, attention: Option<UnitAttention>) -> Vec<Arc<Epoch>> {
        let ending = {
            let mut epochs = lock(&self.epochs);
            let ending = epochs.end(attention);
            if !self.is_closed.load(Ordering::Relaxed) {
                epochs.current = Epoch::new();
            }
            ending
        };
        self.notify();
        ending
    }

    /// Aborts its tasks, and lets none come any more; the epochs that may still last.
    pub(crate) fn close(&self) -> Vec<Arc<Epoch>> {
        let ending = {
            let mut epochs = lock(&self.epochs);
            self.is_closed.store(true, Ordering::Relaxed);
            epochs.end(None)
        };
        self.notify();
        ending
    }

    fn notify(&self) {
        if let Some(owner) = self.owner.upgrade() {
            owner.sweep();
        }
    }

    /// What may still land, where no task comes any more.
    fn ending_epochs(&self) -> Vec<Arc<Epoch>> {
        if self.is_closed.load(Ordering::Relaxed) { lock(&self.epochs).end(None) } else { Vec::new() }
    }

    fn is_over(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed) && self.ending_epochs().is_empty()
    }
}

/// The nexuses that use a logical unit.
#[derive(Debug, Default)]
pub(crate) struct Nexuses(Mutex<Vec<Arc<NexusTasks>>>);

impl Nexuses {
    /// A session begins to use the logical unit.
    pub(crate) fn join<S: TaskOwner + 'static>(&self, session: &Arc<S>) -> Arc<NexusTasks> {
        let mut all = lock(&self.0);
        all.retain(|tasks| !tasks.is_over());
        let same = all.iter().filter(|tasks| tasks.nexus == session.nexus_name());
        let before = same.flat_map(|tasks| tasks.ending_epochs()).collect();
        let tasks = Arc::new(NexusTasks {
            nexus: session.nexus_name().to_owned(),
            instance: session.instance(),
            owner: Arc::<S>::downgrade(session),
            epochs: Mutex::new(Epochs { current: Epoch::new(), ending: Vec::new() }),
            is_closed: AtomicBool::new(false),
            before,
        });
        all.push(Arc::clone(&tasks));
        tasks
    }

    /// Aborts the tasks of the nexuses that `aborts` chooses by name; the epochs that have ended.
    pub(crate) fn abort(
        &self,
        aborts: impl Fn(&str) -> bool,
        attention: impl Fn(u64) -> Option<UnitAttention>,
    ) -> Vec<Arc<Epoch>> {
        let all: Vec<Arc<NexusTasks>> = lock(&self.0).clone();
        let chosen = all.iter().filter(|tasks| aborts(&tasks.nexus));
        chosen.flat_map(|tasks| tasks.abort(attention(tasks.instance))).collect()
    }

    /// Lets no session use the logical unit any more: it is gone.
    pub(crate) fn close(&self) {
        let all: Vec<Arc<NexusTasks>> = lock(&self.0).clone();
        all.iter().for_each(|tasks| drop(tasks.close()));
    }
}
