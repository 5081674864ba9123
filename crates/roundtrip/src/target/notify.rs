//! What a service manager is told (sd_notify(3)). The socket is connected before the sandbox closes, which allows no new one: that is why
//! no library does this here.

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// Longest time that the manager may take to make room for a message with descriptors.
const STORES: Duration = Duration::from_secs(2);

/// The way to a service manager, if one has started the process.
#[derive(Debug, Default)]
pub(super) struct Notify {
    socket: Option<UnixDatagram>,
    /// How often it wants to hear that the process lives.
    alive_every: Option<Duration>,
    alive_at: Option<Instant>,
}

impl Notify {
    /// Connects to the socket of NOTIFY_SOCKET.
    ///
    /// # Errors
    /// When there is one that cannot be reached: the manager would end the process later.
    pub(super) fn connect() -> std::io::Result<Self> {
        let Some(path) = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Ok(Self::default());
        };
        let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
        let address = match bytes.split_first() {
            Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(&path)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.set_nonblocking(true)?;
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|_| is_ours).map(Duration::from_micros);
        // Half of the time, as sd_watchdog_enabled(3) recommends.
        Ok(Self { socket: Some(socket), alive_every: watchdog.map(|time| time / 2), alive_at: None })
    }

    fn send(&self, text: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(text.as_bytes())
        {
            tracing::warn!("cannot tell the service manager {text:?}: {error}");
        }
    }

    /// Most descriptors in a message (SCM_MAX_FD is 253).
    pub(super) const DESCRIPTORS_MAX: usize = 200;

    /// Whether there is a service manager.
    pub(super) fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Gives descriptors to the store of the manager under a name.
    ///
    /// # Errors
    /// When the message cannot be sent.
    pub(super) fn store(&self, name: &str, descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        self.send_with(&format!("FDSTORE=1\nFDNAME={name}"), descriptors)
    }

    /// Has the manager close what its store has under a name.
    pub(super) fn forget(&self, name: &str) {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"));
    }

    /// Gives the manager a descriptor that it closes once it has acted upon everything before.
    ///
    /// # Errors
    /// When the message cannot be sent.
    pub(super) fn barrier(&self, descriptor: BorrowedFd<'_>) -> std::io::Result<()> {
        self.send_with("BARRIER=1", &[descriptor])
    }

    fn send_with(&self, text: &str, descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        let Some(socket) = &self.socket else { return Err(std::io::ErrorKind::NotConnected.into()) };
        // Nothing else is left to do, and a full queue empties: it waits.
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(STORES))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(Self::DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let is_pushed = control.push(SendAncillaryMessage::ScmRights(descriptors));
        debug_assert!(is_pushed, "more descriptors than there is room for");
        let parts = [std::io::IoSlice::new(text.as_bytes())];
        rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The target serves.
    pub(super) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// The configuration is read again; [`Notify::ready`] follows.
    pub(super) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let us = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
    }

    /// The target ends.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// The main thread works: tells it as often as the manager wants to hear it.
    pub(super) fn alive(&mut self) {
        let Some(every) = self.alive_every else { return };
        let now = Instant::now();
        if self.alive_at.is_none_or(|at| now >= at) {
            self.send("WATCHDOG=1");
            self.alive_at = Some(now + every);
        }
    }
}
