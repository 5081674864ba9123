//! An instance of ftrace: its own buffer, tracepoints and clock.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

use record::KernelEvent;

use crate::decoder::{Decoder, Devices};
use crate::error::TraceError;
use crate::page::Page;
use crate::tracefs::Tracefs;

/// Begins the name of an instance; the number of its process follows.
const PREFIX: &str = "roundtrip-";

/// Records the tracepoints of a round trip on some CPUs.
#[derive(Debug)]
pub struct Recorder {
    tracefs: Tracefs,
    /// `instances/NAME`.
    instance: String,
    decoder: Decoder,
    page: Page,
    cpus: Vec<usize>,
    /// Held open, so that nobody else removes the instance.
    pipes: Vec<File>,
}

/// What was recorded.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// The events of all CPUs in the order of their times.
    pub events: Vec<KernelEvent>,
    /// Events that the kernel dropped because a buffer was full.
    pub lost: u64,
    /// Whether interrupts between CPUs are among the events.
    pub sees_interrupts: bool,
}

impl Recorder {
    /// Makes an instance that records packets of two devices and the work of `cpus`, with a buffer of `buffer_bytes` for each of
    /// them, and does not begin to record. The buffers are allocated here.
    ///
    /// If the process ends without dropping the recorder, recording ends with it, and the next recorder removes the instance.
    ///
    /// # Errors
    /// When this process may not trace, or the kernel lacks a tracepoint.
    pub fn open(devices: Devices, cpus: &[usize], buffer_bytes: usize) -> Result<Self, TraceError> {
        let tracefs = Tracefs::open()?;
        remove_abandoned(&tracefs);
        let process = std::process::id();
        let format_of = |name: &str| tracefs.read(&format!("events/{name}/format")).ok();
        let header = tracefs.read("events/header_page")?;
        let page = Page::read(&header).ok_or_else(|| TraceError::Unexpected {
            file: "events/header_page".into(),
            why: "a field is missing".into(),
        })?;
        let decoder = Decoder::new(devices, &format_of)?;
        let instance = make_instance(&tracefs, process)?;
        let mut recorder = Self { tracefs, instance, decoder, page, cpus: cpus.to_vec(), pipes: Vec::new() };
        recorder.prepare(process, buffer_bytes)?;
        Ok(recorder)
    }

    fn prepare(&mut self, process: u32, buffer_bytes: usize) -> Result<(), TraceError> {
        self.write("tracing_on", "0")?;
        self.write("trace_clock", "mono")?;
        // A full buffer drops later events and counts them.
        self.write("options/overwrite", "0")?;
        self.write("tracing_cpumask", &mask(&self.cpus))?;
        let kilobytes = buffer_bytes.div_ceil(1024).to_string();
        for cpu in self.cpus.clone() {
            self.write(&format!("per_cpu/cpu{cpu}/buffer_size_kb"), &kilobytes)?;
            let name = format!("{}/per_cpu/cpu{cpu}/trace_pipe_raw", self.instance);
            let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
            let pipe = OpenOptions::new().read(true).custom_flags(flags).open(self.tracefs.path(&name));
            self.pipes
                .push(pipe.map_err(|source| TraceError::io(format!("opening tracefs's {name}"), source))?);
        }
        // Ends the recording with the process, even if that is killed. A kernel without this trigger records on until the
        // next recorder removes the instance.
        let trigger = format!("traceoff if pid == {process}");
        if let Err(error) = self.write("events/sched/sched_process_exit/trigger", &trigger) {
            tracing::debug!(%error, "no trigger at the end of the process");
        }
        for tracepoint in self.decoder.tracepoints() {
            let path = tracepoint.path();
            if let Some(filter) = tracepoint.filter() {
                self.write(&format!("events/{path}/filter"), filter)?;
            }
            self.write(&format!("events/{path}/enable"), "1")?;
        }
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Result<(), TraceError> {
        self.tracefs.write(&format!("{}/{name}", self.instance), text)
    }

    /// Begins to record.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn begin(&self) -> Result<(), TraceError> {
        self.write("tracing_on", "1")
    }

    /// Stops recording.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn end(&self) -> Result<(), TraceError> {
        self.write("tracing_on", "0")
    }

    /// Takes what was recorded out of the buffers. Times are on the clock of packets ([`socket::clock::realtime_ns`]); a step of that
    /// clock between recording and this call shifts them.
    ///
    /// # Errors
    /// When a buffer cannot be read, or a page is malformed.
    pub fn events(&mut self) -> Result<Recorded, TraceError> {
        let to_real = socket::clock::realtime_ns().wrapping_sub(socket::clock::monotonic_ns());
        let mut recorded =
            Recorded { sees_interrupts: self.decoder.sees_interrupts(), ..Recorded::default() };
        let mut bytes = vec![0; self.page.bytes()];
        for (cpu, pipe) in self.cpus.iter().zip(&mut self.pipes) {
            let mut decoder = self.decoder.of_cpu(*cpu as u16);
            loop {
                let got = match pipe.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(got) => got,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(source) => return Err(TraceError::io("reading the trace buffer", source)),
                };
                let mut take = |time: u64, event: &[u8]| {
                    recorded.events.extend(decoder.decode(time.wrapping_add(to_real), event));
                };
                let page = self.page.events(&bytes[..got], &mut take);
                page.map_err(|error| TraceError::Unexpected {
                    file: "trace_pipe_raw".into(),
                    why: error.to_string(),
                })?;
            }
            let stats = self.tracefs.read(&format!("{}/per_cpu/cpu{cpu}/stats", self.instance))?;
            recorded.lost += lost(&stats);
        }
        // Of equal times the order on a CPU is kept.
        recorded.events.sort_by_key(|event| event.at_ns);
        Ok(recorded)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.write("tracing_on", "0");
        self.pipes.clear();
        let _ = self.write("events/sched/sched_process_exit/trigger", "!traceoff");
        if let Err(error) = fs::remove_dir(self.tracefs.path(&self.instance)) {
            tracing::warn!("cannot remove the trace instance {}: {error}", self.instance);
        }
    }
}

/// Makes an instance of this process.
fn make_instance(tracefs: &Tracefs, process: u32) -> Result<String, TraceError> {
    let mut number = 0;
    loop {
        let instance = format!("instances/{PREFIX}{process}-{number}");
        match fs::create_dir(tracefs.path(&instance)) {
            Ok(()) => return Ok(instance),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 64 => number += 1,
            Err(source) => return Err(TraceError::io(format!("making tracefs's {instance}"), source)),
        }
    }
}

/// Removes instances whose process has ended. One that is in use cannot be removed.
fn remove_abandoned(tracefs: &Tracefs) {
    let Ok(entries) = fs::read_dir(tracefs.path("instances")) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if process.is_some_and(|process| !std::path::Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// CPUs as a mask in hexadecimal, in groups of 32 bits.
fn mask(cpus: &[usize]) -> String {
    let groups = cpus.iter().max().map_or(1, |most| most / 32 + 1);
    let group = |number: usize| {
        let bits =
            cpus.iter().filter(|cpu| *cpu / 32 == number).fold(0_u32, |bits, cpu| bits | 1 << (cpu % 32));
        format!("{bits:08x}")
    };
    (0..groups).rev().map(group).collect::<Vec<_>>().join(",")
}

/// Dropped events in a buffer's `stats`.
fn lost(stats: &str) -> u64 {
    let of = |name: &str| {
        let value = stats.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        value.unwrap_or(0)
    };
    of("overrun:") + of("commit overrun:") + of("dropped events:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_groups_of_32_cpus() {
        assert_eq!(mask(&[0, 1]), "00000003");
        assert_eq!(mask(&[1, 33]), "00000002,00000002");
        assert_eq!(mask(&[]), "00000000");
    }

    #[test]
    fn instances_of_dead_processes_are_removed_and_those_of_others_stay() {
        let tracefs = match Tracefs::open() {
            Ok(tracefs) => tracefs,
            Err(error) => {
                let _ = testing::require(&format!("tracepoints ({error})"), false);
                return;
            }
        };
        let make = |process: u32| {
            let place = tracefs.path(&format!("instances/{PREFIX}{process}-77"));
            fs::create_dir(&place).unwrap();
            place
        };
        // The number of a process that has ended.
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let (dead, alive) = (make(ended.id()), make(std::process::id()));
        let devices = Devices { client: "lo".into(), server: "none".into() };
        let recorder = Recorder::open(devices, &[0], 1 << 16).unwrap();
        let own = tracefs.path(&recorder.instance);
        assert!(!dead.exists() && alive.exists() && own.exists());
        drop(recorder);
        assert!(alive.exists() && !own.exists());
        fs::remove_dir(alive).unwrap();
    }

    #[test]
    fn every_kind_of_loss_counts() {
        let stats =
            "entries: 7\noverrun: 1\ncommit overrun: 2\nbytes: 9\ndropped events: 4\nread events: 0\n";
        assert_eq!(lost(stats), 7);
        assert_eq!(lost(""), 0);
    }
}
