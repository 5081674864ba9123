//! The system calls that the process may make: a seccomp allow-list for all threads.
//!
//! Other calls fail with EPERM and do not kill the process, so that a C library that tries a newer call falls back or
//! reports an error. The list has the calls that the target uses (from strace, with all disks, engines and options), their
//! equivalents in musl and newer versions of glibc, and the calls of their allocators and threads.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Compare, SeccompCondition,
    SeccompFilter, SeccompRule,
};

use crate::Servers;

/// The later use of io_uring by the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    /// None.
    None,
    /// The process uses an existing ring.
    Existing,
    /// The process may create a ring.
    New,
}

/// Allowed with any arguments.
const PLAIN: &[libc::c_long] = &[
    // Files that are open, and their data.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_sendfile,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    CACHESTAT,
    // Files by path; Landlock decides which.
    libc::SYS_openat,
    libc::SYS_newfstatat,
    libc::SYS_faccessat,
    FACCESSAT2,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_getdents64,
    // Connections. No call creates, binds or connects a socket, except to servers of disks (below).
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    // Waiting.
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_restart_syscall,
    // Memory; the rules for executable memory are below.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mincore,
    // Threads; their creation is below.
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_futex,
    FUTEX_WAITV,
    libc::SYS_membarrier,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_getcpu,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals to the process itself.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // About the process and the machine.
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// The same by their older numbers, which other architectures lack.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_unlink,
    libc::SYS_dup2,
    libc::SYS_poll,
    libc::SYS_epoll_wait,
    libc::SYS_time,
    libc::SYS_getrlimit,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[libc::c_long] = &[];

/// Call numbers that are equal on every architecture and missing from some C libraries' headers.
const FACCESSAT2: libc::c_long = 439;
const FUTEX_WAITV: libc::c_long = 449;
const CACHESTAT: libc::c_long = 451;

/// `ioctl` requests: nonblocking sockets, and the test for a terminal.
const REQUESTS: [u64; 6] = [FIONBIO, FIOCLEX, FIONREAD, TCGETS, TCGETS2, TIOCGWINSZ];
const FIONBIO: u64 = 0x5421;
const FIOCLEX: u64 = 0x5451;
const FIONREAD: u64 = 0x541b;
const TCGETS: u64 = 0x5401;
const TCGETS2: u64 = 0x802c_542a;
const TIOCGWINSZ: u64 = 0x5413;

/// `prctl` operations: names of threads and of memory.
const OPERATIONS: [u64; 3] = [libc::PR_SET_NAME as u64, libc::PR_GET_NAME as u64, PR_SET_VMA];
const PR_SET_VMA: u64 = 0x5356_4d41;

/// Installs the filter on all threads and returns the number of allowed calls.
pub(crate) fn restrict(ring: Ring, servers: &Servers) -> Result<usize, String> {
    let (fallback, list) = programs(ring, servers, std::process::id()).map_err(|error| error.to_string())?;
    // The first filter is required for the second.
    for program in [&fallback, &list.0] {
        seccompiler::apply_filter_all_threads(program).map_err(|error| match error {
            seccompiler::Error::Seccomp(error) | seccompiler::Error::Prctl(error) => error.to_string(),
            error => error.to_string(),
        })?;
    }
    Ok(list.1)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The filter that makes `clone3` fail as on a kernel without it, and the allow-list with its length.
fn programs(
    ring: Ring,
    servers: &Servers,
    pid: u32,
) -> Result<(BpfProgram, (BpfProgram, usize)), seccompiler::BackendError> {
    let architecture = std::env::consts::ARCH.try_into()?;
    let refuse = |errno: i32| SeccompAction::Errno(errno.unsigned_abs());
    // Its flags are in memory, which a filter cannot read: the C library uses `clone` instead.
    let clone3 = Rules::from([(libc::SYS_clone3, Vec::new())]);
    let fallback =
        SeccompFilter::new(clone3, SeccompAction::Allow, refuse(libc::ENOSYS), architecture)?.try_into()?;
    let rules = allowed(ring, servers, pid)?;
    let count = rules.len();
    let list = SeccompFilter::new(rules, refuse(libc::EPERM), SeccompAction::Allow, architecture)?;
    Ok((fallback, (list.try_into()?, count)))
}

fn allowed(ring: Ring, servers: &Servers, pid: u32) -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = PLAIN.iter().chain(OLDER).map(|&call| (call, Vec::new())).collect();
    let rings: &[libc::c_long] = match ring {
        Ring::None => &[],
        Ring::Existing => &[libc::SYS_io_uring_enter],
        Ring::New => &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register],
    };
    rules.extend(rings.iter().map(|&call| (call, Vec::new())));
    let is = |index, value| SeccompCondition::new(index, Length::Dword, Compare::Eq, value);
    let has = |index, bits: i32, value: i32| {
        let (bits, value) = (u64::from(bits.unsigned_abs()), u64::from(value.unsigned_abs()));
        SeccompCondition::new(index, Length::Qword, Compare::MaskedEq(bits), value)
    };
    let one_of = |values: &[u64]| -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
        values.iter().map(|&value| SeccompRule::new(vec![is(0, value)?])).collect()
    };
    if !servers.is_empty() {
        // Streams of the families in use; Landlock names the ports.
        let internet = [libc::AF_INET, libc::AF_INET6].into_iter().filter(|_| !servers.ports.is_empty());
        let families = internet.chain(servers.has_unix.then_some(libc::AF_UNIX));
        let stream = |family: i32| {
            let kind =
                SeccompCondition::new(1, Length::Dword, Compare::MaskedEq(0xf), libc::SOCK_STREAM as u64)?;
            SeccompRule::new(vec![is(0, u64::from(family.unsigned_abs()))?, kind])
        };
        rules.insert(libc::SYS_socket, families.map(stream).collect::<Result<_, _>>()?);
        rules.insert(libc::SYS_connect, Vec::new());
    }
    rules.insert(libc::SYS_prctl, one_of(&OPERATIONS)?);
    let requests = REQUESTS.iter().map(|&value| SeccompRule::new(vec![is(1, value)?]));
    rules.insert(libc::SYS_ioctl, requests.collect::<Result<_, _>>()?);
    // Threads only, no processes.
    let threads = SeccompRule::new(vec![has(0, libc::CLONE_THREAD, libc::CLONE_THREAD)?])?;
    rules.insert(libc::SYS_clone, vec![threads]);
    // No new code.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![SeccompRule::new(vec![has(2, libc::PROT_EXEC, 0)?])?]);
    }
    // abort() signals its own process.
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![is(0, pid.into())?])?]);
    // Reading its own limits only: the new value is a null pointer.
    let reads = SeccompCondition::new(2, Length::Qword, Compare::Eq, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![is(0, 0)?, reads])?]);
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_made_only_for_servers_of_disks() {
        let of = |ports: &[u16], has_unix| {
            allowed(Ring::None, &Servers { ports: ports.to_vec(), has_unix }, 1).unwrap()
        };
        let families = |rules: &Rules| rules.get(&libc::SYS_socket).map(Vec::len);
        assert_eq!(families(&of(&[], false)), None);
        assert!(!of(&[], false).contains_key(&libc::SYS_connect));
        // IPv4 and IPv6; Unix; all three. No rule at all would allow every family.
        for (rules, count) in [(of(&[10809], false), 2), (of(&[], true), 1), (of(&[1], true), 3)] {
            assert_eq!(families(&rules), Some(count));
            assert!(rules.contains_key(&libc::SYS_connect) && !rules.contains_key(&libc::SYS_bind));
        }
    }

    #[test]
    fn rejects_calls_that_a_target_never_makes() {
        let rules = allowed(Ring::New, &Servers::default(), 1).unwrap();
        for call in [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_socket,
            libc::SYS_socketpair,
            libc::SYS_bind,
            libc::SYS_connect,
            libc::SYS_listen,
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_chroot,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_request_key,
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_delete_module,
            libc::SYS_kexec_load,
            libc::SYS_kexec_file_load,
            libc::SYS_reboot,
            libc::SYS_setuid,
            libc::SYS_setresuid,
            libc::SYS_capset,
            libc::SYS_kill,
            libc::SYS_pidfd_getfd,
            libc::SYS_memfd_create,
            libc::SYS_userfaultfd,
        ] {
            assert!(!rules.contains_key(&call), "call {call}");
        }
        for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_register] {
            assert!(rules.contains_key(&call));
            assert!(
                !allowed(Ring::Existing, &Servers::default(), 1).unwrap().contains_key(&call),
                "call {call}"
            );
        }
        assert!(
            !allowed(Ring::None, &Servers::default(), 1).unwrap().contains_key(&libc::SYS_io_uring_enter)
        );
    }
}
