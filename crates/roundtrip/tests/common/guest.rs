//! A Linux guest whose kernel and programs are Debian's (scripts/linux-guest.sh).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};

use super::succeed;

/// Longest that one line may take in a guest that is emulated.
const LINE_LIMIT: Duration = Duration::from_secs(120);

/// A guest that runs.
pub struct Guest {
    child: Child,
    console: ChildStdin,
    lines: Receiver<String>,
    begun: Instant,
}

impl Guest {
    /// Boots the guest of `make test-linux`, with a network card at each of the taps: with KVM
    /// if available, otherwise emulated.
    pub fn boot(taps: &[&str]) -> Self {
        for (accelerator, limit) in [("kvm", Duration::from_secs(20)), ("tcg,thread=multi", LINE_LIMIT)] {
            let mut guest = Self::start(accelerator, taps);
            match guest.until(limit, |line| line.ends_with("is ready")) {
                Ok((_, said)) => {
                    eprintln!("{said} ({accelerator})");
                    return guest;
                }
                Err(said) => eprintln!("not with {accelerator}: {said} {:?}", guest.child.try_wait()),
            }
        }
        panic!("the guest does not boot");
    }

    fn start(accelerator: &str, taps: &[&str]) -> Self {
        let folder = std::env::var("ROUNDTRIP_GUEST").expect("ROUNDTRIP_GUEST names the guest's folder");
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-machine", "q35", "-accel", accelerator, "-cpu", "max", "-m", "1536", "-smp", "2"]);
        command.args(["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"]);
        command.args(["-kernel", &format!("{folder}/vmlinuz"), "-initrd", &format!("{folder}/initrd")]);
        command.args(["-append", "console=ttyS0 quiet panic=-1 nvme_core.multipath=N"]);
        for (index, tap) in taps.iter().enumerate() {
            command.args(["-netdev", &format!("tap,id=n{index},ifname={tap},script=no,downscript=no")]);
            command.args(["-device", &format!("virtio-net-pci,netdev=n{index},romfile=")]);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("qemu");
        let (console, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, console, lines, begun: Instant::now() }
    }

    /// The guest's output up to a line that `ends`, and that line; or all output until its end or until the time
    /// limit.
    fn until(&self, limit: Duration, ends: impl Fn(&str) -> bool) -> Result<(String, String), String> {
        let (deadline, mut said) = (Instant::now() + limit, String::new());
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if ends(&line) => return Ok((said, line)),
                Ok(line) => said = said + &line + "\n",
                Err(RecvTimeoutError::Timeout) => return Err(said + "(no further output)"),
                Err(RecvTimeoutError::Disconnected) => return Err(said + "(the guest has ended)"),
            }
        }
    }

    pub fn send(&mut self, line: &str) {
        self.console.write_all(line.as_bytes()).expect("the guest runs");
        self.console.write_all(b"\n").expect("the guest runs");
    }

    /// Runs a line of shell and returns its exit code and output.
    pub fn run(&mut self, line: &str) -> (i32, String) {
        self.send(line);
        let said = self.until(LINE_LIMIT, |line| line.starts_with("guest: exit "));
        let (said, end) = said.unwrap_or_else(|said| panic!("{line}\n{said}"));
        (end["guest: exit ".len()..].parse().expect("a number"), said)
    }

    /// Runs a line of shell that must succeed.
    #[track_caller]
    pub fn ok(&mut self, line: &str) -> String {
        let (code, said) = self.run(line);
        assert_eq!(code, 0, "{line}\n{said}");
        said
    }

    /// Runs a line of shell that must fail.
    #[track_caller]
    pub fn fails(&mut self, line: &str) -> String {
        let (code, said) = self.run(line);
        assert_ne!(code, 0, "{line}\n{said}");
        said
    }

    pub fn part(&self, name: &str) {
        eprintln!("{:5.1} s  {name}", self.begun.elapsed().as_secs_f64());
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A network namespace with wires to the guest, for this thread and what it starts. It ends with them.
pub fn wires(count: u32) {
    unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace; run as root");
    succeed("ip", &["link", "set", "lo", "up"]);
    for n in 1..=count {
        let tap = format!("tap{n}");
        succeed("ip", &["tuntap", "add", &tap, "mode", "tap"]);
        succeed("ip", &["address", "add", &format!("10.99.{n}.1/24"), "dev", &tap]);
        succeed("ip", &["link", "set", &tap, "up"]);
    }
}
