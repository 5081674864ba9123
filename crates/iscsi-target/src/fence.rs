//! Fencing: which tasks may still change a disk.
//!
//! The tasks of one I_T nexus at one logical unit belong to an [`Epoch`]. A task enters its epoch before it changes
//! the disk; an abort ends the epoch and waits until no task is inside it. From then on no task of that epoch can change
//! the disk, wherever it waits: for its data, in a queue, on another thread, or with a lost connection. This module alone
//! makes a reset, an abort, a preemption and the end of a session final; dropping tasks and cancelling disk operations
//! only makes them faster.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use scsi::UnitAttention;

use crate::lock::lock;
use crate::planted::{Bug, is_planted};

/// The period between two aborts of the tasks of an I_T nexus at a logical unit.
#[derive(Debug)]
pub(crate) struct Epoch {
    number: u64,
    is_aborted: AtomicBool,
    /// The number of tasks that are changing the disk now.
    working: AtomicUsize,
    /// The unit attention for an initiator that loses tasks by the abort.
    attention: Mutex<Option<UnitAttention>>,
}

/// A guard: while it is held, its task may change the disk.
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

    /// Returns its number, unique in the process.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether its tasks are aborted.
    #[inline]
    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Acquire)
    }

    /// Enters the epoch to change the disk; `None` when its tasks are aborted.
    #[inline]
    pub(crate) fn enter<E: Deref<Target = Self>>(epoch: E) -> Option<Working<E>> {
        // SeqCst: either this load sees the abort, or the aborting thread sees the incremented count. With weaker ordering
        // both could miss each other and an aborted task could write.
        epoch.working.fetch_add(1, Ordering::SeqCst);
        let working = Working(epoch);
        let is_aborted = working.0.is_aborted.load(Ordering::SeqCst);
        (!is_aborted || is_planted(Bug::WritesAfterAbort)).then_some(working)
    }

    /// Returns whether it is aborted and no task is inside it.
    pub(crate) fn is_over(&self) -> bool {
        self.is_aborted.load(Ordering::SeqCst) && self.working.load(Ordering::SeqCst) == 0
    }

    /// Takes the unit attention for the loss of tasks: reported once per nexus, not once per connection.
    pub(crate) fn take_attention(&self) -> Option<UnitAttention> {
        lock(&self.attention).take()
    }

    pub(crate) fn abort(&self, attention: Option<UnitAttention>) {
        *lock(&self.attention) = attention;
        self.is_aborted.store(true, Ordering::SeqCst);
    }
}

/// The session that tasks belong to.
pub(crate) trait TaskOwner: fmt::Debug + Send + Sync {
    /// [`scsi::Nexus::name`].
    fn nexus_name(&self) -> &str;
    /// Unique among the sessions of a target.
    fn instance(&self) -> u64;
    /// Makes its connections drop tasks of ended epochs.
    fn sweep(&self);
}

/// The tasks of a session at a logical unit.
#[derive(Debug)]
pub(crate) struct NexusTasks {
    nexus: String,
    instance: u64,
    owner: Weak<dyn TaskOwner>,
    epochs: Mutex<Epochs>,
    is_closed: AtomicBool,
    /// Epochs of earlier sessions of the same nexus that had not ended when this session joined.
    before: Vec<Arc<Epoch>>,
}

#[derive(Debug)]
struct Epochs {
    current: Arc<Epoch>,
    /// Aborted epochs that may still have tasks inside: later aborts wait for these too.
    ending: Vec<Arc<Epoch>>,
}

impl Epochs {
    /// Ends the current epoch; returns all epochs with tasks still inside.
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
    /// Returns the epoch for new tasks; `None` once the session may no longer use the logical unit.
    pub(crate) fn current(&self) -> Option<Arc<Epoch>> {
        let epochs = lock(&self.epochs);
        (!self.is_closed.load(Ordering::Relaxed)).then(|| Arc::clone(&epochs.current))
    }

    /// Returns whether a write of an earlier session of this nexus may still land. Such a write must not overwrite data
    /// of the new session.
    #[inline]
    pub(crate) fn has_predecessor_writes(&self) -> bool {
        !is_planted(Bug::ForgetsPredecessor)
            && !self.before.is_empty()
            && self.before.iter().any(|epoch| !epoch.is_over())
    }

    /// Aborts its tasks; returns the epochs to wait for. Connections that lose tasks establish `attention`.
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

    /// Aborts its tasks and admits no new ones; returns the epochs to wait for.
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

    /// Returns the epochs with tasks still inside, if it is closed.
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
    /// Registers a session that begins to use the logical unit.
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

    /// Aborts the tasks of the nexuses that `aborts` selects by name; returns the epochs to wait for.
    pub(crate) fn abort(
        &self,
        aborts: impl Fn(&str) -> bool,
        attention: impl Fn(u64) -> Option<UnitAttention>,
    ) -> Vec<Arc<Epoch>> {
        let all: Vec<Arc<NexusTasks>> = lock(&self.0).clone();
        let chosen = all.iter().filter(|tasks| aborts(&tasks.nexus));
        chosen.flat_map(|tasks| tasks.abort(attention(tasks.instance))).collect()
    }

    /// Closes the logical unit for all sessions: it was removed.
    pub(crate) fn close(&self) {
        let all: Vec<Arc<NexusTasks>> = lock(&self.0).clone();
        all.iter().for_each(|tasks| drop(tasks.close()));
    }
}
