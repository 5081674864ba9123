//! A request on its way to the cluster.

#![allow(unsafe_code, reason = "a C library keeps the request, and gives it back to a callback")]

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::panic::AssertUnwindSafe;
use std::ptr::null_mut;
use std::sync::Arc;

use super::library::{Completion, Opened, reason};
use crate::{Done, Ended, Request, StoreError};

/// A request, and what it needs until it ends.
pub(super) struct Flight {
    opened: Arc<Opened>,
    name: String,
    request: Request,
    done: Done,
    /// Where a comparison found the first difference.
    mismatch: u64,
}

impl Flight {
    /// Begins a request; `done` is called when it ends.
    pub(super) fn begin(opened: &Arc<Opened>, name: &str, request: Request, done: Done) {
        let api = Arc::clone(&opened.api);
        let flight =
            Box::new(Self { opened: Arc::clone(opened), name: name.to_owned(), request, done, mismatch: 0 });
        let flight = Box::into_raw(flight);
        let (image, mut completion): (_, Completion) = (opened.image, null_mut());
        // SAFETY: the flight lives until the completion calls back, which takes it. Its memory (buffers, texts, the place of a
        // mismatch) does not move until then. When the library refuses a request, it does not call back, and the flight is ours again.
        unsafe {
            let made = (api.rbd_aio_create_completion)(flight.cast(), complete, &raw mut completion);
            if made < 0 {
                Box::from_raw(flight).end(made as isize);
                return;
            }
            let mismatch = &raw mut (*flight).mismatch;
            // The parts are read before the call, during which the flight may end.
            let request: *mut Request = &raw mut (*flight).request;
            let result = match &mut *request {
                Request::Read { offset, buffer } => {
                    let length = buffer.len();
                    (api.rbd_aio_read)(image, *offset, length, buffer.as_mut_ptr().cast(), completion)
                        as isize
                }
                Request::Write { offset, data, .. } => {
                    (api.rbd_aio_write)(image, *offset, data.len(), data.as_ptr().cast(), completion) as isize
                }
                Request::Discard { offset, length } | Request::Zero { offset, length } => {
                    // A discard of librbd may leave parts of objects as they are; this one reads as zeros in any case.
                    (api.rbd_aio_write_zeroes)(image, *offset, *length as usize, completion, 0, 0) as isize
                }
                Request::CompareAndWrite { offset, expected, data } => (api.rbd_aio_compare_and_write)(
                    image,
                    *offset,
                    data.len(),
                    expected.as_ptr().cast(),
                    data.as_ptr().cast(),
                    completion,
                    mismatch,
                    0 as c_int,
                ),
                Request::Flush => (api.rbd_aio_flush)(image, completion) as isize,
            };
            if result < 0 {
                (api.rbd_aio_release)(completion);
                Box::from_raw(flight).end(result);
            }
        }
    }

    /// Ends it with a result of the library.
    fn end(self, result: isize) {
        let Self { opened, name, request, done, mismatch } = self;
        let outcome = match (&request, result) {
            // Fewer bytes than asked for: the image has become shorter. Holes are read as zeros.
            (Request::Read { buffer, .. }, read @ 0..) if (read as usize) < buffer.len() => {
                let error = format!(
                    "{read} of {} bytes could be read; the image may have become shorter",
                    buffer.len()
                );
                Err(StoreError::Io { name, error })
            }
            (_, 0..) => Ok(()),
            (Request::CompareAndWrite { .. }, result) if result == -(libc::EILSEQ as isize) => {
                Err(StoreError::Miscompare(mismatch))
            }
            (_, result) => Err(failed(name, result)),
        };
        done(Ended::new(outcome, request));
        // The last user closes the image, which waits for this thread: not here. Of several that end at once, one is the last.
        if let Some(last) = Arc::into_inner(opened) {
            let last = ManuallyDrop::new(last);
            let closing = std::thread::Builder::new().name("rbd close".to_owned());
            // Where there is no thread for it, the image stays open.
            if let Err(error) = closing.spawn(move || drop(ManuallyDrop::into_inner(last))) {
                tracing::warn!("an image stays open, as no thread can close it: {error}");
            }
        }
    }
}

/// The error of a negative result.
fn failed(name: String, result: isize) -> StoreError {
    match i32::try_from(-result).unwrap_or(libc::EIO) {
        libc::ENOSPC | libc::EDQUOT => StoreError::NoSpace(name),
        libc::EROFS => StoreError::ReadOnly,
        // EBLOCKLISTED: another gateway has taken over, and fenced this one.
        libc::ESHUTDOWN => StoreError::Fenced(name),
        _ => StoreError::Io { name, error: reason(result) },
    }
}

/// Called by the library on a thread of its own when a request has ended.
unsafe extern "C" fn complete(completion: Completion, flight: *mut c_void) {
    // SAFETY: the argument is the flight that was given with the completion, which calls once.
    let flight = unsafe { Box::from_raw(flight.cast::<Flight>()) };
    let api = Arc::clone(&flight.opened.api);
    // SAFETY: the completion is complete, and not used afterwards.
    let result = unsafe {
        let result = (api.rbd_aio_get_return_value)(completion);
        (api.rbd_aio_release)(completion);
        result
    };
    // A panic must not reach the library.
    if std::panic::catch_unwind(AssertUnwindSafe(|| flight.end(result))).is_err() {
        tracing::error!("the completion of a disk request panicked");
    }
}
