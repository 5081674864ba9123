//! Real NBD servers: nbdkit, and QEMU's storage daemon.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A server on a Unix socket of its own; killed when dropped.
pub struct Server {
    program: &'static str,
    arguments: Vec<String>,
    socket: PathBuf,
    child: Child,
}

impl Server {
    /// nbdkit with a plugin and its parameters.
    pub fn nbdkit(folder: &Path, arguments: &[&str]) -> Self {
        let socket = folder.join("nbdkit");
        let own = ["-f", "-U", socket.to_str().unwrap()];
        let arguments = own.iter().chain(arguments).map(|&word| word.to_owned()).collect();
        Self::start("nbdkit", arguments, socket)
    }

    /// QEMU's storage daemon with an image.
    pub fn qemu(folder: &Path, format: &str, image: &Path) -> Self {
        let socket = folder.join("qemu");
        let arguments = vec![
            "--blockdev".to_owned(),
            format!("driver=file,filename={},node-name=file,cache.direct=off", image.display()),
            "--blockdev".to_owned(),
            format!("driver={format},file=file,node-name=disk,discard=unmap"),
            "--nbd-server".to_owned(),
            format!("addr.type=unix,addr.path={}", socket.display()),
            "--export".to_owned(),
            "type=nbd,id=export,node-name=disk,name=disk,writable=on".to_owned(),
        ];
        Self::start("qemu-storage-daemon", arguments, socket)
    }

    fn start(program: &'static str, arguments: Vec<String>, socket: PathBuf) -> Self {
        let child = Self::spawn(program, &arguments, &socket);
        Self { program, arguments, socket, child }
    }

    fn spawn(program: &str, arguments: &[String], socket: &Path) -> Child {
        let _ = std::fs::remove_file(socket);
        let mut child = Command::new(program).args(arguments).stdout(Stdio::null()).spawn().expect(program);
        let until = Instant::now() + Duration::from_secs(20);
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "{program} {arguments:?} has ended");
            assert!(Instant::now() < until, "{program} {arguments:?} does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }

    /// The disk of an export.
    pub fn disk(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Kills it (SIGKILL).
    pub fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.child.wait().unwrap();
    }

    /// Starts it again.
    pub fn restart(&mut self) {
        self.child = Self::spawn(self.program, &self.arguments, &self.socket);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
