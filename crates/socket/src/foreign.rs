//! Sockets of other processes: their options, read and set on a duplicate of the descriptor (pidfd_getfd(2)).
//!
//! A process is pinned by a pidfd, so that a pid that is used again cannot redirect a change: the start time is read after the
//! pidfd was opened, and the duplicate proves that the process still ran.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;

use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use rustix::net::sockopt as options;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde::{Deserialize, Serialize};

/// Options that nix lacks.
mod more {
    use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};

    /// TCP_NOTSENT_LOWAT of include/uapi/linux/tcp.h, which libc lacks.
    const TCP_NOTSENT_LOWAT: libc::c_int = 25;

    sockopt_impl!(
        /// Unsent bytes above which the socket is not writable.
        NotSentLowWater, Both, libc::IPPROTO_TCP, TCP_NOTSENT_LOWAT, u32
    );
    sockopt_impl!(
        /// Which buffer sizes the program has set: bit 0 the send buffer, bit 1 the receive buffer. Since Linux 5.14.
        BufferLock, Both, libc::SOL_SOCKET, libc::SO_BUF_LOCK, u32
    );
}

/// Bits of SO_BUF_LOCK.
const SEND_LOCKED: u32 = 1;
const RECEIVE_LOCKED: u32 = 2;

/// A running process.
pub struct Process {
    handle: OwnedFd,
    pid: u32,
    start_ticks: u64,
}

impl Process {
    /// Opens a process. Needs Linux 5.3.
    ///
    /// # Errors
    /// When there is no such process, or a filter forbids it.
    pub fn open(pid: u32) -> io::Result<Self> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let handle = pidfd_open(number, PidfdFlags::empty())?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let start_ticks = start_ticks(&stat)
            .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has no start time")))?;
        Ok(Self { handle, pid, start_ticks })
    }

    /// When it started, in clock ticks since boot. With the pid it names a process until the next boot.
    #[must_use]
    pub fn start_ticks(&self) -> u64 {
        self.start_ticks
    }

    /// A duplicate of one of its sockets, whose option flags both share. While the duplicate is open, the connection stays open if
    /// the process closes its own descriptor. Needs Linux 5.6, and the right to trace the process: the same user, or root.
    ///
    /// # Errors
    /// When the process has ended, the descriptor is no socket, or the right is missing.
    pub fn socket(&self, fd: i32) -> io::Result<ForeignSocket> {
        let handle = pidfd_getfd(&self.handle, fd, PidfdGetfdFlags::empty())?;
        let stat = rustix::fs::fstat(&handle)?;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::Socket {
            let other = NotASocket { fd, pid: self.pid };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, other));
        }
        Ok(ForeignSocket { handle, inode: stat.st_ino })
    }
}

/// A descriptor that is open, for something else.
#[derive(Debug, thiserror::Error)]
#[error("descriptor {fd} of process {pid} is not a socket")]
pub struct NotASocket {
    /// The descriptor.
    pub fd: i32,
    /// The process.
    pub pid: u32,
}

impl NotASocket {
    /// Whether this is the reason.
    #[must_use]
    pub fn is_reason_of(error: &io::Error) -> bool {
        error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Self>)
    }
}

/// Field 22 of /proc/PID/stat. The name in field 2 may hold spaces and brackets.
#[must_use]
pub fn start_ticks(stat: &str) -> Option<u64> {
    let behind_name = stat.rsplit_once(')')?.1;
    behind_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// A socket of another process.
pub struct ForeignSocket {
    handle: OwnedFd,
    inode: u64,
}

impl AsFd for ForeignSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// Options of a TCP socket that netlink does not report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveOptions {
    /// Whether Nagle's algorithm is off.
    pub nodelay: bool,
    /// Whether TCP_CORK is set.
    pub cork: bool,
    /// Whether the next acknowledgement is not delayed, as far as the kernel knows now.
    pub quick_ack: bool,
    /// Unsent bytes above which the socket is not writable; `None` for the system's value.
    pub not_sent_low_water: Option<u32>,
    /// Whether the program has set SO_SNDBUF, which ends its autotuning; `None` before Linux 5.14.
    pub is_send_buffer_locked: Option<bool>,
    /// Whether the program has set SO_RCVBUF.
    pub is_receive_buffer_locked: Option<bool>,
}

/// A name of an option that can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OptionName {
    /// TCP_NODELAY.
    Nodelay,
    /// TCP_QUICKACK.
    Quickack,
    /// TCP_CORK.
    Cork,
    /// SO_SNDBUF, bytes.
    Sndbuf,
    /// SO_RCVBUF, bytes.
    Rcvbuf,
    /// TCP_NOTSENT_LOWAT, bytes; 0 for the system's value.
    NotsentLowat,
    /// TCP_CONGESTION.
    Congestion,
}

impl OptionName {
    /// All options.
    pub const ALL: [Self; 7] = [
        Self::Nodelay,
        Self::Quickack,
        Self::Cork,
        Self::Sndbuf,
        Self::Rcvbuf,
        Self::NotsentLowat,
        Self::Congestion,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nodelay => "nodelay",
            Self::Quickack => "quickack",
            Self::Cork => "cork",
            Self::Sndbuf => "sndbuf",
            Self::Rcvbuf => "rcvbuf",
            Self::NotsentLowat => "notsent-lowat",
            Self::Congestion => "congestion",
        }
    }
}

impl fmt::Display for OptionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value of an option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OptionValue {
    /// On or off.
    Switch(bool),
    /// A limit of a buffer, bytes, as the kernel counts it: twice what a program sets.
    Buffer {
        /// The limit.
        bytes: u32,
        /// Whether it is fixed, rather than autotuned; `None` before Linux 5.14.
        is_locked: Option<bool>,
    },
    /// Bytes.
    Bytes(u32),
    /// A name.
    Name(String),
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(true) => f.write_str("on"),
            Self::Switch(false) => f.write_str("off"),
            Self::Buffer { bytes, is_locked: Some(false) } => write!(f, "{bytes} bytes, autotuned"),
            Self::Buffer { bytes, .. } | Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// An option and the value that it is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The option.
    pub option: OptionName,
    /// Its value: `on`, `off`, bytes, or a name.
    pub value: String,
}

impl FromStr for Wish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("{text}: expected OPTION=VALUE"))?;
        let names = || OptionName::ALL.map(OptionName::name).join(", ");
        let option = OptionName::ALL.into_iter().find(|option| option.name() == name);
        let option = option.ok_or_else(|| format!("{name}: unknown option; the options are {}", names()))?;
        let value = match option {
            OptionName::Nodelay | OptionName::Quickack | OptionName::Cork => match value {
                "on" | "off" => value.to_owned(),
                _ => return Err(format!("{name}={value}: the value is on or off")),
            },
            OptionName::Sndbuf | OptionName::Rcvbuf | OptionName::NotsentLowat => {
                let bytes = record::units::parse_size(value).map_err(|error| error.to_string())?;
                // The kernel doubles the size of a buffer, and counts in a signed integer.
                let limit = u64::from(u32::MAX) / 4;
                if bytes > limit || (bytes == 0 && option != OptionName::NotsentLowat) {
                    return Err(format!("{name}={value}: expected 1 to {limit} bytes"));
                }
                bytes.to_string()
            }
            OptionName::Congestion => {
                if value.is_empty() || value.len() > 15 {
                    return Err(format!("{name}={value}: expected a name of at most 15 characters"));
                }
                value.to_owned()
            }
        };
        Ok(Self { option, value })
    }
}

impl ForeignSocket {
    /// Its inode, as `/proc/PID/fd` shows it. A later socket may get the same number.
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// The kernel's cookie of the socket, which no other socket gets until the next boot (SO_COOKIE).
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn cookie(&self) -> io::Result<u64> {
        Ok(options::socket_cookie(self)?)
    }

    /// Reads options that netlink does not report.
    ///
    /// # Errors
    /// When it is not a TCP socket.
    pub fn options(&self) -> io::Result<LiveOptions> {
        let locks = getsockopt(self, more::BufferLock).ok();
        Ok(LiveOptions {
            nodelay: options::tcp_nodelay(self)?,
            cork: options::tcp_cork(self)?,
            quick_ack: options::tcp_quickack(self)?,
            not_sent_low_water: getsockopt(self, more::NotSentLowWater).ok().filter(|bytes| *bytes != 0),
            is_send_buffer_locked: locks.map(|locks| locks & SEND_LOCKED != 0),
            is_receive_buffer_locked: locks.map(|locks| locks & RECEIVE_LOCKED != 0),
        })
    }

    /// Reads one option.
    ///
    /// # Errors
    /// When it is not a TCP socket.
    pub fn value(&self, option: OptionName) -> io::Result<OptionValue> {
        let locked = |bit: u32| getsockopt(self, more::BufferLock).ok().map(|locks| locks & bit != 0);
        Ok(match option {
            OptionName::Nodelay => OptionValue::Switch(options::tcp_nodelay(self)?),
            OptionName::Quickack => OptionValue::Switch(options::tcp_quickack(self)?),
            OptionName::Cork => OptionValue::Switch(options::tcp_cork(self)?),
            OptionName::Sndbuf => {
                let bytes = u32::try_from(options::socket_send_buffer_size(self)?).unwrap_or(u32::MAX);
                OptionValue::Buffer { bytes, is_locked: locked(SEND_LOCKED) }
            }
            OptionName::Rcvbuf => {
                let bytes = u32::try_from(options::socket_recv_buffer_size(self)?).unwrap_or(u32::MAX);
                OptionValue::Buffer { bytes, is_locked: locked(RECEIVE_LOCKED) }
            }
            OptionName::NotsentLowat => OptionValue::Bytes(getsockopt(self, more::NotSentLowWater)?),
            OptionName::Congestion => OptionValue::Name(options::tcp_congestion(self)?),
        })
    }

    /// Sets an option as a program would: the kernel doubles the size of a buffer and ends its autotuning.
    ///
    /// # Errors
    /// When the kernel rejects the value.
    pub fn set(&self, wish: &Wish) -> io::Result<()> {
        let is_on = wish.value == "on";
        let bytes = || wish.value.parse::<u32>().map_err(io::Error::other);
        match wish.option {
            OptionName::Nodelay => options::set_tcp_nodelay(self, is_on)?,
            OptionName::Quickack => options::set_tcp_quickack(self, is_on)?,
            OptionName::Cork => options::set_tcp_cork(self, is_on)?,
            OptionName::Sndbuf => self.set_send_buffer(bytes()? as usize)?,
            OptionName::Rcvbuf => self.set_receive_buffer(bytes()? as usize)?,
            OptionName::NotsentLowat => setsockopt(self, more::NotSentLowWater, &bytes()?)?,
            OptionName::Congestion => {
                setsockopt(self, sockopt::TcpCongestion, &OsString::from(&wish.value))?;
            }
        }
        Ok(())
    }

    /// Gives an option a value that [`Self::value`] returned, with the autotuning of a buffer.
    ///
    /// # Errors
    /// When the kernel rejects the value.
    pub fn restore(&self, option: OptionName, value: &OptionValue) -> io::Result<()> {
        let text = match value {
            OptionValue::Switch(is_on) => if *is_on { "on" } else { "off" }.to_owned(),
            OptionValue::Buffer { bytes, .. } => (bytes / 2).to_string(),
            OptionValue::Bytes(bytes) => bytes.to_string(),
            OptionValue::Name(name) => name.clone(),
        };
        self.set(&Wish { option, value: text })?;
        if let OptionValue::Buffer { is_locked: Some(false), .. } = value {
            let bit = if option == OptionName::Sndbuf { SEND_LOCKED } else { RECEIVE_LOCKED };
            let locks = getsockopt(self, more::BufferLock)?;
            setsockopt(self, more::BufferLock, &(locks & !bit))?;
        }
        Ok(())
    }

    /// Sets SO_SNDBUF, beyond net.core.wmem_max where the caller may (CAP_NET_ADMIN).
    fn set_send_buffer(&self, bytes: usize) -> io::Result<()> {
        match options::set_socket_send_buffer_size_force(self, bytes) {
            Err(rustix::io::Errno::PERM) => Ok(options::set_socket_send_buffer_size(self, bytes)?),
            outcome => Ok(outcome?),
        }
    }

    fn set_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        match options::set_socket_recv_buffer_size_force(self, bytes) {
            Err(rustix::io::Errno::PERM) => Ok(options::set_socket_recv_buffer_size(self, bytes)?),
            outcome => Ok(outcome?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_read_behind_any_program_name() {
        let stat = |name: &str| {
            format!("4711 ({name}) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987654 20 21\n")
        };
        for name in ["python3", "a b", "x) S 1 1 1 (", "))"] {
            assert_eq!(start_ticks(&stat(name)), Some(987_654), "{name}");
        }
        assert_eq!(start_ticks("4711 (python3) S 1"), None);
        assert_eq!(start_ticks(""), None);
    }

    #[test]
    fn a_descriptor_that_is_no_socket_is_refused() {
        let file = std::fs::File::open("/proc/self/stat").expect("procfs");
        let process = Process::open(std::process::id()).expect("this process");
        let error =
            process.socket(std::os::fd::AsRawFd::as_raw_fd(&file)).err().expect("refused").to_string();
        assert!(error.contains("is not a socket"), "{error}");
        assert!(process.socket(1_000_000).is_err());
        assert!(Process::open(0).is_err() && Process::open(u32::MAX).is_err());
    }
}
