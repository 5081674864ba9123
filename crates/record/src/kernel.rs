//! Events of the kernel's tracepoints on a request's way round the ring: an observer that shares nothing with the capture
//! points and the CPU accounts, and can therefore contradict them.

use crate::op::Side;

/// An event of a tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelEvent {
    /// When, nanoseconds since the epoch, on the clock of [`crate::Stamp`].
    pub at_ns: u64,
    /// The CPU on which it occurred.
    pub cpu: u16,
    /// The thread that the CPU was running; 0 for its idle thread.
    pub thread: i32,
    /// What occurred.
    pub kind: KernelEventKind,
}

/// What occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelEventKind {
    /// A packet was given to the queue of a side's network device (`net:net_dev_queue`); its bytes with the link header.
    Queued(Side, u32),
    /// A packet left that queue (`qdisc:qdisc_dequeue`, or `net:net_dev_start_xmit` without a queue).
    Transmitted {
        /// The side of its device.
        side: Side,
        /// Its bytes with the link header.
        bytes: u32,
        /// Time until the driver got it (`net:net_dev_start_xmit`), nanoseconds: captures see the packet, and copy it, meanwhile.
        taps_ns: u32,
    },
    /// A packet arrived at a side's device (`net:netif_receive_skb`); its bytes without the link header.
    Arrived(Side, u32),
    /// A thread began to send (`sys_enter_sendto`, `sys_enter_sendmsg`).
    SendBegan,
    /// It has sent so many bytes (`sys_exit_...`); negative for an error.
    Sent(i64),
    /// A thread has received so many bytes (`sys_exit_recvfrom`, `sys_exit_recvmsg`); negative for an error.
    Received(i64),
    /// A softirq began (`irq:softirq_entry`).
    SoftirqBegan(Softirq),
    /// A softirq ended (`irq:softirq_exit`).
    SoftirqEnded(Softirq),
    /// A thread was woken and will be runnable (`sched:sched_waking`).
    Woken(i32),
    /// A CPU changes from its thread to this one, 0 for idle (`sched:sched_switch`).
    Switched(i32),
    /// An interrupt was sent to this CPU (`ipi:ipi_send_cpu`), or it was told by its flags because it polls while idle
    /// (`sched:sched_wake_idle_without_ipi`).
    InterruptSent(u16),
    /// An interrupt of another CPU arrived (`irq_vectors:call_function_single_entry`).
    InterruptBegan,
    /// An interrupt of the CPU's own timer arrived (`irq_vectors:local_timer_entry`).
    TimerBegan,
    /// An interrupt of either kind was handled.
    InterruptEnded,
    /// The CPU entered an idle state (`power:cpu_idle`).
    IdleBegan,
    /// It left that state.
    IdleEnded,
}

/// The softirqs that matter to a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Softirq {
    /// NET_RX: packets that have arrived; also the interrupt that hands packets to another CPU.
    Receive,
    /// Any other: timers, RCU, scheduler, NET_TX.
    Other,
}
