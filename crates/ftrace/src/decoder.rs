//! The tracepoints of a round trip, and their events as [`KernelEvent`]s.

use record::{KernelEvent, KernelEventKind, Side, Softirq};

use crate::error::TraceError;
use crate::format::{Field, Format};

/// The network devices of the two sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    /// The client's.
    pub client: String,
    /// The server's.
    pub server: String,
}

/// A tracepoint that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tracepoint {
    Queue,
    Dequeue,
    Transmit,
    Arrive,
    Send,
    SendExit,
    SendMessage,
    SendMessageExit,
    ReceiveExit,
    ReceiveMessageExit,
    SoftirqEntry,
    SoftirqExit,
    Waking,
    Switch,
    InterruptSend,
    InterruptEntry,
    InterruptExit,
    WakeIdle,
    TimerEntry,
    TimerExit,
    Idle,
}

impl Tracepoint {
    pub(crate) const ALL: [Self; 21] = [
        Self::Queue,
        Self::Dequeue,
        Self::Transmit,
        Self::Arrive,
        Self::Send,
        Self::SendExit,
        Self::SendMessage,
        Self::SendMessageExit,
        Self::ReceiveExit,
        Self::ReceiveMessageExit,
        Self::SoftirqEntry,
        Self::SoftirqExit,
        Self::Waking,
        Self::Switch,
        Self::InterruptSend,
        Self::InterruptEntry,
        Self::InterruptExit,
        Self::WakeIdle,
        Self::TimerEntry,
        Self::TimerExit,
        Self::Idle,
    ];

    /// Its folder below `events`.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Queue => "net/net_dev_queue",
            Self::Dequeue => "qdisc/qdisc_dequeue",
            Self::Transmit => "net/net_dev_start_xmit",
            Self::Arrive => "net/netif_receive_skb",
            Self::Send => "syscalls/sys_enter_sendto",
            Self::SendExit => "syscalls/sys_exit_sendto",
            Self::SendMessage => "syscalls/sys_enter_sendmsg",
            Self::SendMessageExit => "syscalls/sys_exit_sendmsg",
            Self::ReceiveExit => "syscalls/sys_exit_recvfrom",
            Self::ReceiveMessageExit => "syscalls/sys_exit_recvmsg",
            Self::SoftirqEntry => "irq/softirq_entry",
            Self::SoftirqExit => "irq/softirq_exit",
            Self::Waking => "sched/sched_waking",
            Self::Switch => "sched/sched_switch",
            Self::InterruptSend => "ipi/ipi_send_cpu",
            Self::InterruptEntry => "irq_vectors/call_function_single_entry",
            Self::InterruptExit => "irq_vectors/call_function_single_exit",
            Self::WakeIdle => "sched/sched_wake_idle_without_ipi",
            Self::TimerEntry => "irq_vectors/local_timer_entry",
            Self::TimerExit => "irq_vectors/local_timer_exit",
            Self::Idle => "power/cpu_idle",
        }
    }

    /// Whether stages can be counted without it.
    pub(crate) fn is_optional(self) -> bool {
        self == Self::Dequeue || self.is_of_interrupts()
    }

    /// The condition for its events, if only some are of use: a queue is asked for packets also when it is empty.
    pub(crate) fn filter(self) -> Option<&'static str> {
        (self == Self::Dequeue).then_some("skbaddr != 0")
    }

    /// Whether it shows interrupts and idle states. Those between CPUs exist by these names on x86 since Linux 6.4 only.
    fn is_of_interrupts(self) -> bool {
        matches!(
            self,
            Self::InterruptSend
                | Self::InterruptEntry
                | Self::InterruptExit
                | Self::WakeIdle
                | Self::TimerEntry
                | Self::TimerExit
                | Self::Idle
        )
    }

    /// Its fields that are read; empty names are unused.
    fn fields(self) -> [&'static str; 3] {
        let [first, second] = match self {
            Self::Transmit => return ["name", "len", "skbaddr"],
            Self::Queue | Self::Arrive => ["name", "len"],
            Self::Dequeue => ["skbaddr", ""],
            Self::SendExit | Self::SendMessageExit | Self::ReceiveExit | Self::ReceiveMessageExit => {
                ["ret", ""]
            }
            Self::SoftirqEntry | Self::SoftirqExit => ["vec", ""],
            Self::Waking => ["pid", ""],
            Self::Switch => ["next_pid", ""],
            Self::InterruptSend | Self::WakeIdle => ["cpu", ""],
            Self::Idle => ["state", ""],
            Self::Send
            | Self::SendMessage
            | Self::InterruptEntry
            | Self::InterruptExit
            | Self::TimerEntry
            | Self::TimerExit => ["", ""],
        };
        [first, second, ""]
    }
}

/// A tracepoint with the places of its fields.
#[derive(Clone, Copy, Debug)]
struct Known {
    id: u16,
    tracepoint: Tracepoint,
    thread: Field,
    fields: [Option<Field>; 3],
}

/// Turns the bytes of events into [`KernelEvent`]s.
#[derive(Clone, Debug)]
pub struct Decoder {
    devices: Devices,
    known: Vec<Known>,
}

/// NET_RX in `enum` of include/linux/interrupt.h.
const NET_RX: u64 = 3;

/// The state of power:cpu_idle that stands for none (PWR_EVENT_EXIT).
const IDLE_EXIT: u64 = u32::MAX as u64;

impl Decoder {
    /// A decoder of the tracepoints whose description `format_of` returns, by their folders below `events`.
    ///
    /// # Errors
    /// When a tracepoint or one of its fields is missing.
    pub fn new(devices: Devices, format_of: &dyn Fn(&str) -> Option<String>) -> Result<Self, TraceError> {
        let mut known = Vec::new();
        for tracepoint in Tracepoint::ALL {
            let name = tracepoint.path();
            let Some(text) = format_of(name) else {
                if tracepoint.is_optional() {
                    continue;
                }
                return Err(TraceError::Missing { name });
            };
            let unexpected =
                |why: &str| TraceError::Unexpected { file: format!("events/{name}/format"), why: why.into() };
            let format = Format::read(&text).ok_or_else(|| unexpected("no ID"))?;
            let field = |name: &'static str| match name {
                "" => Ok(None),
                name => format.field(name).map(Some).ok_or_else(|| unexpected(&format!("no field {name}"))),
            };
            let [first, second, third] = tracepoint.fields();
            let thread = format.field("common_pid").ok_or_else(|| unexpected("no field common_pid"))?;
            let fields = [field(first)?, field(second)?, field(third)?];
            known.push(Known { id: format.id, tracepoint, thread, fields });
        }
        Ok(Self { devices, known })
    }

    /// Whether interrupts and idle states are seen.
    #[must_use]
    pub fn sees_interrupts(&self) -> bool {
        let of = |wanted: &Tracepoint| self.known.iter().any(|known| known.tracepoint == *wanted);
        Tracepoint::ALL.iter().filter(|tracepoint| tracepoint.is_of_interrupts()).all(of)
    }

    /// Its tracepoints.
    pub(crate) fn tracepoints(&self) -> impl Iterator<Item = Tracepoint> {
        self.known.iter().map(|known| known.tracepoint)
    }

    /// The events of a CPU.
    #[must_use]
    pub fn of_cpu(&self, cpu: u16) -> CpuDecoder<'_> {
        CpuDecoder { decoder: self, cpu, dequeued: None }
    }
}

/// Turns the events of one CPU, in their order, into [`KernelEvent`]s.
#[derive(Clone, Debug)]
pub struct CpuDecoder<'a> {
    decoder: &'a Decoder,
    cpu: u16,
    /// The packet that left a queue and is about to be transmitted: when, and its place in the kernel's memory.
    dequeued: Option<(u64, u64)>,
}

impl CpuDecoder<'_> {
    /// The event of these bytes; `None` for another tracepoint or another device's packet.
    ///
    /// A packet is transmitted when it leaves its queue, or, without one, at `net_dev_start_xmit`. Captures stamp and copy it between
    /// the two.
    pub fn decode(&mut self, at_ns: u64, bytes: &[u8]) -> Option<KernelEvent> {
        let id = u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]);
        let known = self.decoder.known.iter().find(|known| known.id == id)?;
        let [first, second, third] = known.fields;
        let number = || first?.number(bytes);
        let signed = || first?.signed(bytes);
        let thread = |value: i64| i32::try_from(value).ok();
        let packet = || -> Option<(Side, u32)> {
            let name = first?.string(bytes)?;
            let side = match name {
                _ if name == self.decoder.devices.client.as_bytes() => Side::Client,
                _ if name == self.decoder.devices.server.as_bytes() => Side::Server,
                _ => return None,
            };
            Some((side, u32::try_from(second?.number(bytes)?).ok()?))
        };
        let softirq = || -> Option<Softirq> {
            Some(if number()? == NET_RX { Softirq::Receive } else { Softirq::Other })
        };
        let mut at_ns = at_ns;
        let kind = match known.tracepoint {
            Tracepoint::Dequeue => {
                self.dequeued = Some((at_ns, number()?));
                return None;
            }
            Tracepoint::Queue => packet().map(|(side, bytes)| KernelEventKind::Queued(side, bytes))?,
            Tracepoint::Transmit => {
                let place = third?.number(bytes)?;
                let given_ns = at_ns;
                if let Some((left_ns, _)) = self.dequeued.take().filter(|(_, dequeued)| *dequeued == place) {
                    at_ns = left_ns;
                }
                let taps_ns = u32::try_from(given_ns.saturating_sub(at_ns)).unwrap_or(u32::MAX);
                packet().map(|(side, bytes)| KernelEventKind::Transmitted { side, bytes, taps_ns })?
            }
            Tracepoint::Arrive => packet().map(|(side, bytes)| KernelEventKind::Arrived(side, bytes))?,
            Tracepoint::Send | Tracepoint::SendMessage => KernelEventKind::SendBegan,
            Tracepoint::SendExit | Tracepoint::SendMessageExit => KernelEventKind::Sent(signed()?),
            Tracepoint::ReceiveExit | Tracepoint::ReceiveMessageExit => KernelEventKind::Received(signed()?),
            Tracepoint::SoftirqEntry => KernelEventKind::SoftirqBegan(softirq()?),
            Tracepoint::SoftirqExit => KernelEventKind::SoftirqEnded(softirq()?),
            Tracepoint::Waking => KernelEventKind::Woken(thread(signed()?)?),
            Tracepoint::Switch => KernelEventKind::Switched(thread(signed()?)?),
            Tracepoint::InterruptSend | Tracepoint::WakeIdle => {
                KernelEventKind::InterruptSent(u16::try_from(number()?).ok()?)
            }
            Tracepoint::InterruptEntry => KernelEventKind::InterruptBegan,
            Tracepoint::TimerEntry => KernelEventKind::TimerBegan,
            Tracepoint::InterruptExit | Tracepoint::TimerExit => KernelEventKind::InterruptEnded,
            Tracepoint::Idle if number()? == IDLE_EXIT => KernelEventKind::IdleEnded,
            Tracepoint::Idle => KernelEventKind::IdleBegan,
        };
        Some(KernelEvent { at_ns, cpu: self.cpu, thread: thread(known.thread.signed(bytes)?)?, kind })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A description with the fields of every tracepoint, and the tracepoint's place in the list as its number.
    fn format_of(path: &str) -> Option<String> {
        let id = 100 + Tracepoint::ALL.iter().position(|t| t.path() == path)?;
        Some(format!(
            "ID: {id}\n field:int common_pid; offset:4; size:4;\n field:__data_loc char[] name; offset:8; size:4;\n\
             field:unsigned int len; offset:12; size:4;\n field:long ret; offset:16; size:8;\n field:unsigned int vec; offset:24; size:4;\n\
             field:pid_t pid; offset:24; size:4;\n field:pid_t next_pid; offset:28; size:4;\n field:unsigned int cpu; offset:24; size:4;\n\
             field:u32 state; offset:24; size:4;\n field:void * skbaddr; offset:16; size:8;\n"
        ))
    }

    fn devices() -> Devices {
        Devices { client: "client0".into(), server: "server0".into() }
    }

    fn event(tracepoint: Tracepoint, device: &[u8], len: u32, ret: i64, number: u32, next: i32) -> Vec<u8> {
        let id = 100 + Tracepoint::ALL.iter().position(|t| *t == tracepoint).unwrap() as u16;
        let place = 32 | (device.len() as u32 + 1) << 16;
        [
            &id.to_ne_bytes()[..],
            &[0, 0],
            &77_i32.to_ne_bytes(),
            &place.to_ne_bytes(),
            &len.to_ne_bytes(),
            &ret.to_ne_bytes(),
            &number.to_ne_bytes(),
            &next.to_ne_bytes(),
            device,
            &[0],
        ]
        .concat()
    }

    #[test]
    fn events_are_decoded_by_their_descriptions() {
        let decoder = Decoder::new(devices(), &format_of).unwrap();
        let mut cpu = decoder.of_cpu(1);
        let mut decode = |bytes: &[u8]| cpu.decode(5, bytes);
        let mut kind = |bytes: &[u8]| decode(bytes).map(|event| event.kind);
        let packet = event(Tracepoint::Queue, b"server0", 114, 0, 0, 0);
        let whole =
            KernelEvent { at_ns: 5, cpu: 1, thread: 77, kind: KernelEventKind::Queued(Side::Server, 114) };
        assert_eq!(decoder.of_cpu(1).decode(5, &packet), Some(whole));
        assert_eq!(kind(&event(Tracepoint::Arrive, b"eth0", 114, 0, 0, 0)), None, "another device");
        assert_eq!(kind(&event(Tracepoint::SendExit, b"", 0, -11, 0, 0)), Some(KernelEventKind::Sent(-11)));
        assert_eq!(
            kind(&event(Tracepoint::SoftirqEntry, b"", 0, 0, 3, 0)),
            Some(KernelEventKind::SoftirqBegan(Softirq::Receive))
        );
        assert_eq!(
            kind(&event(Tracepoint::SoftirqExit, b"", 0, 0, 1, 0)),
            Some(KernelEventKind::SoftirqEnded(Softirq::Other))
        );
        assert_eq!(kind(&event(Tracepoint::Switch, b"", 0, 0, 0, 42)), Some(KernelEventKind::Switched(42)));
        assert_eq!(kind(&event(Tracepoint::Idle, b"", 0, 0, u32::MAX, 0)), Some(KernelEventKind::IdleEnded));
        assert_eq!(kind(&event(Tracepoint::Idle, b"", 0, 0, 1, 0)), Some(KernelEventKind::IdleBegan));
        assert_eq!(
            kind(&event(Tracepoint::WakeIdle, b"", 0, 0, 1, 0)),
            Some(KernelEventKind::InterruptSent(1))
        );
        assert_eq!(kind(&event(Tracepoint::Waking, b"", 0, 0, 43, 0)), Some(KernelEventKind::Woken(43)));
        assert_eq!(kind(&[7, 0, 0, 0]), None, "an unknown number");
    }

    /// A packet leaves its queue before the capture points see it, and is given to the driver after them.
    #[test]
    fn a_packet_is_transmitted_when_it_leaves_its_queue() {
        let decoder = Decoder::new(devices(), &format_of).unwrap();
        let (dequeue, transmit) = (
            |place| event(Tracepoint::Dequeue, b"", 0, place, 0, 0),
            |device: &[u8], place| event(Tracepoint::Transmit, device, 114, place, 0, 0),
        );
        let mut cpu = decoder.of_cpu(0);
        let mut at = |given_ns, bytes: &[u8]| {
            let event = cpu.decode(given_ns, bytes)?;
            let KernelEventKind::Transmitted { taps_ns, .. } = event.kind else { panic!("{event:?}") };
            assert_eq!(event.at_ns + u64::from(taps_ns), given_ns);
            Some(event.at_ns)
        };
        assert_eq!(at(10, &dequeue(7)), None);
        assert_eq!(at(12, &transmit(b"client0", 7)), Some(10));
        assert_eq!(
            at(20, &transmit(b"client0", 7)),
            Some(20),
            "the next one has no queue, and the same place"
        );
        assert_eq!(at(30, &dequeue(7)), None);
        assert_eq!(at(31, &transmit(b"client0", 8)), Some(31), "another packet");
        assert_eq!(
            at(32, &transmit(b"client0", 7)),
            Some(32),
            "a packet is transmitted right after it leaves"
        );
        assert_eq!(at(40, &dequeue(7)), None);
        assert_eq!(at(41, &transmit(b"eth0", 7)), None, "another device's");
        assert_eq!(at(42, &transmit(b"client0", 7)), Some(42));
    }

    #[test]
    fn only_interrupts_and_queues_may_be_missing() {
        let without =
            |missing: &'static str| move |path: &str| if path == missing { None } else { format_of(path) };
        let decoder = Decoder::new(devices(), &without("ipi/ipi_send_cpu")).unwrap();
        assert!(!decoder.sees_interrupts());
        assert!(Decoder::new(devices(), &format_of).unwrap().sees_interrupts());
        // Without the events of queues, transmissions are seen a little later.
        assert!(Decoder::new(devices(), &without("qdisc/qdisc_dequeue")).unwrap().sees_interrupts());
        let error = Decoder::new(devices(), &without("net/net_dev_queue")).unwrap_err();
        assert!(error.to_string().contains("net/net_dev_queue"), "{error}");
        let no_field = |path: &str| format_of(path).map(|text| text.replace("next_pid", "other"));
        assert!(Decoder::new(devices(), &no_field).unwrap_err().to_string().contains("next_pid"));
    }

    proptest! {
        #[test]
        fn no_event_makes_the_decoder_panic(id in 95_u16..120, bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let decoder = Decoder::new(devices(), &format_of).unwrap();
            let _ = decoder.of_cpu(0).decode(0, &[&id.to_ne_bytes()[..], &bytes].concat());
        }
    }
}
