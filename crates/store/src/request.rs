//! Asynchronous operations: requests that begin now and end later, on a disk or across a network.

use std::fmt;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::operation::Operation;
use crate::{Buffer, Store, StoreError};

/// An operation on a store. It owns its memory until it ends.
#[derive(Debug)]
pub enum Request {
    /// Fill the buffer from `offset` on.
    Read {
        /// First byte.
        offset: u64,
        /// The memory to fill; its length is the length of the read.
        buffer: Buffer,
    },
    /// Write all of `data` from `offset` on.
    Write {
        /// First byte.
        offset: u64,
        /// The data to write.
        data: Buffer,
        /// It is on stable storage when it ends.
        is_stable: bool,
    },
    /// Make a range read as zeros, and give its memory back.
    Discard {
        /// First byte.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// Make a range read as zeros, and keep its memory.
    Zero {
        /// First byte.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// Write `data` where `expected` is, in one step for all users of the data; at most [`crate::Limits::step_bytes`].
    CompareAndWrite {
        /// First byte.
        offset: u64,
        /// What must be there; as long as the data.
        expected: Vec<u8>,
        /// The data to write.
        data: Buffer,
    },
    /// Bring all earlier writes to stable storage.
    Flush,
}

impl Request {
    /// Its kind.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self {
            Self::Read { .. } => Operation::Read,
            Self::Write { .. } | Self::CompareAndWrite { .. } => Operation::Write,
            Self::Discard { .. } | Self::Zero { .. } => Operation::Discard,
            Self::Flush => Operation::Flush,
        }
    }

    /// Whether it changes data.
    #[must_use]
    pub fn writes(&self) -> bool {
        !matches!(self, Self::Read { .. } | Self::Flush)
    }

    /// Whether data are read into its memory, or written from it.
    #[must_use]
    pub fn moves_data(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Write { .. } | Self::CompareAndWrite { .. })
    }

    /// Its range: first byte, and how many.
    #[must_use]
    pub fn place(&self) -> (u64, u64) {
        match self {
            Self::Read { offset, buffer } => (*offset, buffer.len() as u64),
            Self::Write { offset, data, .. } | Self::CompareAndWrite { offset, data, .. } => {
                (*offset, data.len() as u64)
            }
            Self::Discard { offset, length } | Self::Zero { offset, length } => (*offset, *length),
            Self::Flush => (0, 0),
        }
    }

    /// Carries it out on this thread, by the blocking methods of the store.
    #[must_use]
    pub fn carry_out(mut self, store: &(impl Store + ?Sized)) -> Ended {
        let outcome = match &mut self {
            Self::Read { offset, buffer } => store.read_at(*offset, buffer),
            Self::Write { offset, data, is_stable: true } => store.write_stable_at(*offset, data),
            Self::Write { offset, data, is_stable: false } => store.write_at(*offset, data),
            Self::Discard { offset, length } => store.discard(*offset, *length),
            Self::Zero { offset, length } => store.zero(*offset, *length),
            Self::CompareAndWrite { offset, expected, data } => {
                store.compare_and_write(*offset, expected, data)
            }
            Self::Flush => store.flush(),
        };
        Ended::new(outcome, self)
    }
}

/// The end of a request.
#[derive(Debug)]
pub struct Ended {
    /// The result; after [`StoreError::Cancelled`] all, none or part of it may have been done.
    pub outcome: Result<(), StoreError>,
    /// The memory of the request; after a successful read, the data.
    pub buffer: Option<Buffer>,
}

impl Ended {
    /// The end of a request, with its memory.
    #[must_use]
    pub fn new(outcome: Result<(), StoreError>, request: Request) -> Self {
        let buffer = match request {
            Request::Read { buffer, .. }
            | Request::Write { data: buffer, .. }
            | Request::CompareAndWrite { data: buffer, .. } => Some(buffer),
            Request::Discard { .. } | Request::Zero { .. } | Request::Flush => None,
        };
        Self { outcome, buffer }
    }
}

/// The callback for the end of a request: called exactly once, on any thread, possibly before [`Store::begin`] returns.
/// It must not block.
pub type Done = Box<dyn FnOnce(Ended) + Send>;

/// A request in flight. Dropping it does not cancel the request.
#[derive(Clone, Default)]
pub struct Ticket(Option<Arc<dyn Fn() + Send + Sync>>);

impl Ticket {
    /// A ticket that can be cancelled.
    #[must_use]
    pub fn new(cancel: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(cancel)))
    }

    /// Asks for an early end. The request still ends exactly once, complete or not.
    pub fn cancel(&self) {
        if let Some(cancel) = &self.0 {
            cancel();
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ticket").field(&self.0.is_some()).finish()
    }
}

/// Begins a request and waits for its end: the blocking methods of a store that is asynchronous.
#[must_use]
pub fn wait_for(store: &(impl Store + ?Sized), request: Request) -> Ended {
    let slot = Arc::new((Mutex::new(None), Condvar::new()));
    let filled = Arc::clone(&slot);
    store.begin(
        request,
        Box::new(move |ended| {
            *filled.0.lock() = Some(ended);
            filled.1.notify_one();
        }),
    );
    let mut ended = slot.0.lock();
    loop {
        if let Some(ended) = ended.take() {
            return ended;
        }
        slot.1.wait(&mut ended);
    }
}
