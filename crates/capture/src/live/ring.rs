//! The ring that the kernel writes packets into (packet(7), Documentation/networking/packet_mmap.rst).
//!
//! The only file of this crate with `unsafe`: socket options that nix does not know, and memory shared with
//! the kernel.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::SocketError;

use super::{LiveConfig, LiveStatistics, Packet, filter};
use crate::error::CaptureError;

/// Size of one block of the ring, bytes; any packet fits, also one of a loopback interface.
const BLOCK_BYTES: usize = 1 << 20;
/// The kernel releases a block when it is full or this old, milliseconds.
const RETIRE_MS: u32 = 20;

/// An open capture.
#[derive(Debug)]
pub struct LiveCapture {
    interface: String,
    socket: OwnedFd,
    memory: *mut u8,
    blocks: usize,
    next: usize,
    statistics: LiveStatistics,
}

// SAFETY: the memory belongs to this value alone, and all access to it goes through `&mut self`.
unsafe impl Send for LiveCapture {}

impl LiveCapture {
    /// Opens a capture on an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// When the process may not capture, the interface does not exist, or memory is short.
    pub fn open(config: &LiveConfig) -> Result<Self, CaptureError> {
        let interface = config.interface.clone();
        let failed = |what: &'static str| {
            let source = io::Error::last_os_error();
            if matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES)) {
                return CaptureError::NotPermitted { interface: interface.clone() };
            }
            CaptureError::Io { interface: interface.clone(), what, source }
        };
        // Protocol 0: nothing arrives before the filter is in place and the socket is bound.
        // SAFETY: plain system call; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(failed("opening a packet socket"));
        }
        // SAFETY: fd was just opened and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let index = if_nametoindex(config.interface.as_str())
            .map_err(|_| CaptureError::NoInterface { interface: interface.clone() })?;

        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)
            .map_err(|()| failed("choosing TPACKET_V3"))?;
        let mut program = filter::tcp_port(config.port, config.snap_bytes);
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY of the pointer inside: the kernel copies the program before setsockopt returns.
        set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
            .map_err(|()| failed("attaching the filter"))?;
        let blocks = config.ring_bytes.div_ceil(BLOCK_BYTES).max(2);
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: 2048,
            tp_frame_nr: (BLOCK_BYTES / 2048 * blocks) as u32,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
            .map_err(|()| failed("creating the ring"))?;
        // SAFETY: maps exactly the ring that was just made; the result is checked.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                blocks * BLOCK_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(failed("mapping the ring"));
        }
        let capture = Self {
            interface: interface.clone(),
            socket,
            memory: memory.cast(),
            blocks,
            next: 0,
            statistics: LiveStatistics::default(),
        };
        // SAFETY: all zeros is a valid sockaddr_ll; its size is given with it.
        let bound = unsafe {
            let mut address: libc::sockaddr_ll = zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
            address.sll_ifindex = index as i32;
            libc::bind(
                capture.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        if bound < 0 {
            return Err(failed("binding to the interface"));
        }
        Ok(capture)
    }

    /// Passes every packet of the next full block to `take`; waits at most `patience` for one. False if
    /// none came.
    ///
    /// # Errors
    /// When the interface went down or was removed; packets captured before have been delivered.
    pub fn poll(
        &mut self,
        patience: Duration,
        mut take: impl FnMut(&Packet<'_>),
    ) -> Result<bool, CaptureError> {
        let block = self.next;
        let Some(status) = self.block_status(block) else { return Ok(false) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN | PollFlags::POLLERR)];
            let limit = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
            // An interrupted wait counts as a short one.
            let _ = poll(&mut fds, limit);
            let has_failed = fds[0].revents().is_some_and(|r| r.contains(PollFlags::POLLERR));
            if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                // An error that stays in the socket would end every further wait at once.
                return if has_failed { self.failure().map_or(Ok(false), Err) } else { Ok(false) };
            }
        }
        // SAFETY: by its status the block belongs to user space until it is written back; offsets were written by
        // the kernel and are still checked against the block's length.
        let bytes = unsafe { std::slice::from_raw_parts(self.memory.add(block * BLOCK_BYTES), BLOCK_BYTES) };
        walk(bytes, &mut take);
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (block + 1) % self.blocks;
        Ok(true)
    }

    /// The pending error of the socket: ENETDOWN when the interface went down or was removed.
    fn failure(&self) -> Option<CaptureError> {
        let source = match getsockopt(&self.socket, SocketError) {
            Ok(0) => return None,
            Ok(errno) => io::Error::from_raw_os_error(errno),
            Err(errno) => errno.into(),
        };
        Some(CaptureError::Io { interface: self.interface.clone(), what: "waiting for packets", source })
    }

    /// Number of blocks in the ring.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// The status word of a block.
    fn block_status(&self, block: usize) -> Option<&AtomicU32> {
        // struct tpacket_block_desc: version u32, offset_to_priv u32, then tpacket_hdr_v1 with block_status
        // first.
        let at = block.checked_mul(BLOCK_BYTES)? + 8;
        // SAFETY: inside the mapping (block < blocks), aligned to 4, shared with the kernel through atomics
        // only. The mapping lives as long as `self`: it is unmapped in drop.
        (block < self.blocks).then(|| unsafe { &*self.memory.add(at).cast::<AtomicU32>() })
    }

    /// Packets and drops since the capture was opened.
    pub fn statistics(&mut self) -> LiveStatistics {
        // SAFETY: all zeros is valid, and the kernel writes at most the given length.
        let (result, counted) = unsafe {
            let mut counted: libc::tpacket_stats_v3 = zeroed();
            let mut length = size_of::<libc::tpacket_stats_v3>() as u32;
            let result = libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut counted).cast(),
                &raw mut length,
            );
            (result, counted)
        };
        if result == 0 {
            // Reading resets the kernel's counters.
            self.statistics.packets += u64::from(counted.tp_packets);
            self.statistics.drops += u64::from(counted.tp_drops);
        }
        self.statistics
    }

    /// The interface's name.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface
    }
}

impl Drop for LiveCapture {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `open` with this length and is not used any more.
        unsafe {
            libc::munmap(self.memory.cast(), self.blocks * BLOCK_BYTES);
        }
    }
}

/// Passes the packets of one block to `take`.
fn walk(block: &[u8], take: &mut impl FnMut(&Packet<'_>)) {
    // struct tpacket_hdr_v1 behind version and offset_to_priv: block_status, num_pkts, offset_to_first_pkt.
    let count = u32_at(block, 12).unwrap_or(0);
    let mut at = u32_at(block, 16).unwrap_or(0) as usize;
    for _ in 0..count {
        // struct tpacket3_hdr: next_offset, sec, nsec, snaplen, len, status: u32 each; mac, net: u16 each;
        // the address of the sender follows the aligned header.
        let fields = (|| {
            let next = u32_at(block, at)? as usize;
            let (sec, nsec) = (u32_at(block, at + 4)?, u32_at(block, at + 8)?);
            let (kept, wire) = (u32_at(block, at + 12)? as usize, u32_at(block, at + 16)?);
            let mac = usize::from(u16_at(block, at + 24)?);
            let address = at + TPACKET_ALIGNED_HEADER;
            // struct sockaddr_ll: family u16, protocol u16, ifindex i32, hatype u16, pkttype u8.
            let packet_type = *block.get(address + 10)?;
            let data = block.get(at + mac..at + mac + kept)?;
            let time_ns = u64::from(sec) * 1_000_000_000 + u64::from(nsec);
            let outgoing = packet_type == libc::PACKET_OUTGOING;
            Some((next, Packet { time_ns, outgoing, data, wire_bytes: wire }))
        })();
        let Some((next, packet)) = fields else { return };
        take(&packet);
        if next == 0 {
            return;
        }
        at += next;
    }
}

/// sizeof(struct tpacket3_hdr) rounded up to TPACKET_ALIGNMENT.
const TPACKET_ALIGNED_HEADER: usize =
    size_of::<libc::tpacket3_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_ne_bytes(*b))
}

/// setsockopt with a value of the kernel's own layout; the error is in errno.
fn set<T>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> Result<(), ()> {
    // SAFETY: the pointer and the length describe `value`, which lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as u32,
        )
    };
    if result == 0 { Ok(()) } else { Err(()) }
}
