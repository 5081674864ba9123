//! Ceph's client libraries, loaded when the first image is opened: a target without one needs neither of them.

#![allow(unsafe_code, reason = "functions of a C library")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use libloading::Library;
use parking_lot::Mutex;

type Cluster = *mut c_void;
type Context = *mut c_void;
type Image = *mut c_void;
pub(super) type Completion = *mut c_void;
/// What a completion calls.
pub(super) type Complete = unsafe extern "C" fn(Completion, *mut c_void);
/// What is called when the header of an image has changed.
type Update = unsafe extern "C" fn(*mut c_void);
/// What is called for each extent of a difference: offset, length, whether it exists, argument.
type Each = unsafe extern "C" fn(u64, usize, c_int, *mut c_void) -> c_int;

struct Libraries {
    librados: Library,
    librbd: Library,
}

/// Functions of librados and librbd, by their names there (librados.h, librbd.h).
macro_rules! functions {
    ($($library:ident: fn $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        pub(super) struct Api {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            // The functions are valid as long as these are loaded: until the process ends.
            _libraries: Libraries,
        }

        impl Api {
            fn new() -> Result<Self, libloading::Error> {
                // SAFETY: initialisers of the libraries may run at any time; they start no thread.
                let libraries = unsafe {
                    Libraries { librados: Library::new("librados.so.2")?, librbd: Library::new("librbd.so.1")? }
                };
                $(
                    // SAFETY: the type is that of the function in the header of this major version.
                    let $name = *unsafe { libraries.$library.get(concat!(stringify!($name), "\0").as_bytes())? };
                )*
                Ok(Self { $($name,)* _libraries: libraries })
            }
        }
    };
}

functions! {
    librados: fn rados_create(*mut Cluster, *const c_char) -> c_int;
    librados: fn rados_conf_read_file(Cluster, *const c_char) -> c_int;
    librados: fn rados_conf_set(Cluster, *const c_char, *const c_char) -> c_int;
    librados: fn rados_connect(Cluster) -> c_int;
    librados: fn rados_shutdown(Cluster);
    librados: fn rados_cluster_fsid(Cluster, *mut c_char, usize) -> c_int;
    librados: fn rados_ioctx_create(Cluster, *const c_char, *mut Context) -> c_int;
    librados: fn rados_ioctx_destroy(Context);
    librados: fn rados_ioctx_set_namespace(Context, *const c_char);
    librados: fn rados_ioctx_get_id(Context) -> i64;
    librbd: fn rbd_open(Context, *const c_char, *mut Image, *const c_char) -> c_int;
    librbd: fn rbd_open_read_only(Context, *const c_char, *mut Image, *const c_char) -> c_int;
    librbd: fn rbd_close(Image) -> c_int;
    librbd: fn rbd_get_size(Image, *mut u64) -> c_int;
    librbd: fn rbd_get_id(Image, *mut c_char, usize) -> c_int;
    librbd: fn rbd_diff_iterate2(Image, *const c_char, u64, u64, u8, u8, Each, *mut c_void) -> c_int;
    librbd: fn rbd_aio_create_completion(*mut c_void, Complete, *mut Completion) -> c_int;
    librbd: fn rbd_aio_release(Completion);
    librbd: fn rbd_aio_get_return_value(Completion) -> isize;
    librbd: fn rbd_aio_read(Image, u64, usize, *mut c_char, Completion) -> c_int;
    librbd: fn rbd_aio_write(Image, u64, usize, *const c_char, Completion) -> c_int;
    librbd: fn rbd_aio_write_zeroes(Image, u64, usize, Completion, c_int, c_int) -> c_int;
    librbd: fn rbd_aio_compare_and_write(Image, u64, usize, *const c_char, *const c_char, Completion, *mut u64, c_int) -> isize;
    librbd: fn rbd_aio_flush(Image, Completion) -> c_int;
    librbd: fn rbd_update_watch(Image, *mut u64, Update, *mut c_void) -> c_int;
    librbd: fn rbd_update_unwatch(Image, u64) -> c_int;
}

impl Api {
    /// The libraries, loaded when they are not yet.
    pub(super) fn get() -> Result<Arc<Self>, String> {
        static API: Mutex<Option<Arc<Api>>> = Mutex::new(None);
        let mut api = API.lock();
        if let Some(api) = &*api {
            return Ok(Arc::clone(api));
        }
        let new = Self::new().map_err(|error| {
            format!("Ceph's libraries cannot be loaded ({error}); on Debian: apt-get install librbd1")
        })?;
        Ok(Arc::clone(api.insert(Arc::new(new))))
    }
}

/// An image that is open, with its connection to the cluster.
pub(super) struct Opened {
    pub(super) api: Arc<Api>,
    cluster: Cluster,
    context: Context,
    pub(super) image: Image,
    /// The last known size, bytes.
    pub(super) size_bytes: AtomicU64,
    /// The watch, and what its callback gets.
    watch: Mutex<Option<(u64, Box<Weak<Opened>>)>>,
}

// SAFETY: librados and librbd say that their handles may be used by any thread at the same time.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

/// How an image is opened.
pub(super) struct How<'a> {
    pub(super) conf: &'a str,
    pub(super) id: &'a str,
    pub(super) pool: &'a str,
    pub(super) namespace: &'a str,
    pub(super) image: &'a str,
    pub(super) snapshot: Option<&'a str>,
    pub(super) read_only: bool,
}

fn text(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| format!("'{text}' contains a zero byte"))
}

/// The reason of a negative result.
pub(super) fn reason(result: isize) -> String {
    std::io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EIO)).to_string()
}

fn check(what: impl FnOnce() -> String, result: c_int) -> Result<(), String> {
    if result < 0 { Err(format!("{}: {}", what(), reason(result as isize))) } else { Ok(()) }
}

impl Opened {
    /// Connects to the cluster and opens the image.
    pub(super) fn new(how: &How<'_>) -> Result<Self, String> {
        let api = Api::get()?;
        let (conf, id, pool, namespace) =
            (text(how.conf)?, text(how.id)?, text(how.pool)?, text(how.namespace)?);
        let (name, snapshot) = (text(how.image)?, how.snapshot.map(text).transpose()?);
        // Dropped on each way out with what it has by then.
        let mut opened = Self {
            api: Arc::clone(&api),
            cluster: null_mut(),
            context: null_mut(),
            image: null_mut(),
            size_bytes: AtomicU64::new(0),
            watch: Mutex::new(None),
        };
        // SAFETY: the texts live through the calls, the handles are those of the calls before, and the results are written to places
        // of their types.
        unsafe {
            check(|| "rados_create".to_owned(), (api.rados_create)(&raw mut opened.cluster, id.as_ptr()))?;
            check(|| how.conf.to_owned(), (api.rados_conf_read_file)(opened.cluster, conf.as_ptr()))?;
            // No cache, so that an acknowledged write is stable; no messages on the terminal; and a limit for connecting.
            for (key, value) in [
                (c"rbd_cache", c"false"),
                (c"log_to_stderr", c"false"),
                (c"err_to_stderr", c"false"),
                (c"client_mount_timeout", c"10"),
                (c"rados_mon_op_timeout", c"10"),
            ] {
                let set = (api.rados_conf_set)(opened.cluster, key.as_ptr(), value.as_ptr());
                check(|| key.to_string_lossy().into_owned(), set)?;
            }
            check(
                || format!("no connection to the cluster as client.{}", how.id),
                (api.rados_connect)(opened.cluster),
            )?;
            // From here on slow monitors are waited for.
            let _ = (api.rados_conf_set)(opened.cluster, c"rados_mon_op_timeout".as_ptr(), c"0".as_ptr());
            let made = (api.rados_ioctx_create)(opened.cluster, pool.as_ptr(), &raw mut opened.context);
            check(|| format!("pool '{}'", how.pool), made)?;
            (api.rados_ioctx_set_namespace)(opened.context, namespace.as_ptr());
            let snapshot = snapshot.as_ref().map_or(null(), |text| text.as_ptr());
            let open = if how.read_only { api.rbd_open_read_only } else { api.rbd_open };
            let outcome = open(opened.context, name.as_ptr(), &raw mut opened.image, snapshot);
            if outcome < 0 {
                opened.image = null_mut();
            }
            check(|| format!("image '{}'", how.image), outcome)?;
        }
        Ok(opened)
    }

    /// Its size, bytes.
    fn size(&self) -> Result<u64, String> {
        let mut size = 0;
        // SAFETY: the image is open, and the size is written to a place of its type.
        let result = unsafe { (self.api.rbd_get_size)(self.image, &raw mut size) };
        check(|| "its size".to_owned(), result).map(|()| size)
    }

    /// Asks for the size, and again whenever the image changes.
    pub(super) fn watch(self: &Arc<Self>) -> Result<(), String> {
        unsafe extern "C" fn changed(argument: *mut c_void) {
            // SAFETY: the argument is what was given with the watch, and is freed after the watch has ended.
            let opened = unsafe { &*argument.cast::<Weak<Opened>>() };
            let Some(opened) = opened.upgrade() else { return };
            // The library calls this on the thread that it needs to answer: the size is asked for on another one.
            let asked =
                std::thread::Builder::new().name("rbd size".to_owned()).spawn(move || match opened.size() {
                    Ok(size) => opened.size_bytes.store(size, Ordering::Relaxed),
                    Err(error) => tracing::warn!("an image has changed, and its size is not known: {error}"),
                });
            if let Err(error) = asked {
                tracing::warn!("an image has changed, and its size is not asked for: {error}");
            }
        }
        let argument = Box::new(Arc::downgrade(self));
        let mut handle = 0;
        let place = (&raw const *argument).cast_mut().cast();
        // SAFETY: the image is open; the argument is kept until the watch has ended, and does not move.
        let result = unsafe { (self.api.rbd_update_watch)(self.image, &raw mut handle, changed, place) };
        check(|| "watching it".to_owned(), result)?;
        *self.watch.lock() = Some((handle, argument));
        self.size_bytes.store(self.size()?, Ordering::Relaxed);
        Ok(())
    }

    /// A name of the image that no other one has: of cluster, pool and image.
    pub(super) fn identity(&self) -> Option<String> {
        let (mut cluster, mut image) = ([0 as c_char; 64], [0 as c_char; 128]);
        // SAFETY: the handles are open, and at most so many bytes are written, zeros at the end included.
        let (has_cluster, has_image, pool) = unsafe {
            (
                (self.api.rados_cluster_fsid)(self.cluster, cluster.as_mut_ptr(), cluster.len()) > 0,
                (self.api.rbd_get_id)(self.image, image.as_mut_ptr(), image.len()) >= 0,
                (self.api.rados_ioctx_get_id)(self.context),
            )
        };
        if !has_cluster || !has_image {
            return None;
        }
        cluster[63] = 0;
        image[127] = 0;
        // SAFETY: both end with a zero.
        let texts = unsafe { [CStr::from_ptr(cluster.as_ptr()), CStr::from_ptr(image.as_ptr())] };
        let [cluster, image] = texts.map(|text| text.to_string_lossy().into_owned());
        Some(format!("rbd {cluster}:{pool}:{image}"))
    }

    /// The first extent that exists in a range: offset and length.
    pub(super) fn first_extent(&self, offset: u64, length: u64) -> Result<Option<(u64, u64)>, String> {
        // Extents come in ascending order; those that touch are one.
        unsafe extern "C" fn each(offset: u64, length: usize, exists: c_int, found: *mut c_void) -> c_int {
            // SAFETY: the argument is the place below, which lives through the call, and is used by this thread alone.
            let found = unsafe { &mut *found.cast::<Option<(u64, u64)>>() };
            match found {
                _ if exists == 0 => {}
                None => *found = Some((offset, length as u64)),
                Some((start, run)) if *start + *run == offset => *run += length as u64,
                Some(_) => {}
            }
            0
        }
        let mut found: Option<(u64, u64)> = None;
        // SAFETY: the image is open; the callback is called on this thread before the call returns.
        let result = unsafe {
            (self.api.rbd_diff_iterate2)(
                self.image,
                null(),
                offset,
                length,
                1,
                1,
                each,
                (&raw mut found).cast(),
            )
        };
        check(|| "its allocation".to_owned(), result).map(|()| found)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: each handle is open or null, and nothing uses it any more: whoever has a request in flight has a reference.
        unsafe {
            if let Some((handle, argument)) = self.watch.get_mut().take() {
                (self.api.rbd_update_unwatch)(self.image, handle);
                drop(argument);
            }
            if !self.image.is_null() {
                (self.api.rbd_close)(self.image);
            }
            if !self.context.is_null() {
                (self.api.rados_ioctx_destroy)(self.context);
            }
            if !self.cluster.is_null() {
                (self.api.rados_shutdown)(self.cluster);
            }
        }
    }
}
