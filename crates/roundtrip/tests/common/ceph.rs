//! A Ceph cluster of one monitor and one object store in memory, on 127.0.0.1, under a folder of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A cluster; killed when dropped.
pub struct Cluster {
    folder: tempfile::TempDir,
    monitor: Child,
    pub store: Child,
}

impl Cluster {
    /// Starts a cluster with the pool `rbd`, whose object store holds so many bytes.
    pub fn start(bytes: u64) -> Self {
        // The paths of sockets are short.
        let folder = tempfile::Builder::new().prefix("ceph").tempdir_in("/tmp").unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = folder.path().display();
        let fsid = "6f9a2a7e-6a3c-4a44-9d0c-0d8a5d2f1b11";
        let conf = format!(
            "[global]\nfsid = {fsid}\nmon host = v2:127.0.0.1:{port}/0\npublic addr = 127.0.0.1\ncluster addr = 127.0.0.1\n\
             ms bind msgr1 = false\nauth cluster required = none\nauth service required = none\nauth client required = none\n\
             run dir = {at}\nadmin socket = {at}/$name.$pid.asok\nlog file = {at}/$name.log\nmon cluster log file = {at}/cluster.log\n\
             keyring = {at}/keyring\npid file = {at}/$name.pid\ncrash dir = {at}\nsetuser match path = {at}/never\n\
             osd pool default size = 1\nosd pool default min size = 1\nosd pool default pg num = 8\nosd crush chooseleaf type = 0\n\
             osd pool default pg autoscale mode = off\n\
             [client]\nlog file =\nadmin socket =\n\
             [mon]\nmon data = {at}/mon\nmon allow pool delete = true\nmon allow pool size one = true\nmon warn on pool no redundancy = false\n\
             paxos propose interval = 0.05\nmon tick interval = 1\nmon data avail warn = 1\nmon data avail crit = 1\n\
             [osd]\nosd data = {at}/osd\nosd objectstore = memstore\nmemstore device bytes = {bytes}\nosd heartbeat interval = 1\n\
             osd heartbeat grace = 6\nosd memory target = 939524096\nosd class load list = *\nosd class default list = *\n\
             osd op num shards = 2\nosd op num threads per shard = 1\nosd fast shutdown = true\n"
        );
        std::fs::write(folder.path().join("ceph.conf"), conf).unwrap();
        std::fs::write(folder.path().join("keyring"), "").unwrap();
        for name in ["mon", "osd"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let file = |name: &str| folder.path().join(name).display().to_string();
        let monitors = format!("[v2:127.0.0.1:{port}]");
        let map = file("monmap");
        run(Command::new("monmaptool").args([
            "--create",
            "--fsid",
            fsid,
            "--addv",
            "a",
            &monitors,
            "--enable-all-features",
            &map,
        ]));
        let conf = file("ceph.conf");
        run(Command::new("ceph-mon").args(["-c", &conf, "-i", "a", "--mkfs", "--monmap", &map]));
        let monitor = begin(Command::new("ceph-mon").args(["-c", &conf, "-i", "a", "-f"]));
        let uuid = "0d8a5d2f-1b11-4a44-9d0c-6f9a2a7e6a3c";
        until("a monitor", || ask(&conf, &["mon", "stat"]).is_some());
        until("a place for an object store", || ask(&conf, &["osd", "new", uuid, "0"]).is_some());
        run(Command::new("ceph-osd").args(["-c", &conf, "-i", "0", "--mkfs", "--osd-uuid", uuid]));
        let store = begin(Command::new("ceph-osd").args(["-c", &conf, "-i", "0", "-f"]));
        let cluster = Self { folder, monitor, store };
        until("an object store", || ask(&conf, &["osd", "stat"]).is_some_and(|text| text.contains(" 1 up")));
        until("a pool", || ask(&conf, &["osd", "pool", "create", "rbd", "8", "8"]).is_some());
        until("the pool's use", || {
            ask(&conf, &["osd", "pool", "application", "enable", "rbd", "rbd"]).is_some()
        });
        until("an image", || cluster.try_rbd(&["create", "--size", "4", "rbd/probe"]));
        cluster
    }

    pub fn conf(&self) -> PathBuf {
        self.folder.path().join("ceph.conf")
    }

    fn try_rbd(&self, arguments: &[&str]) -> bool {
        let conf = self.conf();
        let output = limited("rbd").arg("-c").arg(conf).args(arguments).output().unwrap();
        output.status.success()
    }

    /// Runs `rbd`.
    pub fn rbd(&self, arguments: &[&str]) {
        run(limited("rbd").arg("-c").arg(self.conf()).args(arguments));
    }

    /// Runs `rbd`, and returns what it says.
    pub fn rbd_says(&self, arguments: &[&str]) -> String {
        let output = limited("rbd").arg("-c").arg(self.conf()).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs `ceph`, and returns what it says.
    pub fn ceph(&self, arguments: &[&str]) -> String {
        ask(self.conf().to_str().unwrap(), arguments).unwrap_or_else(|| panic!("ceph {arguments:?}"))
    }

    /// Makes an image of so many MiB, without features that need a lock, and returns its disk.
    pub fn image(&self, name: &str, mebibytes: u32) -> String {
        self.rbd(&[
            "create",
            "--size",
            &mebibytes.to_string(),
            "--image-feature",
            "layering",
            &format!("rbd/{name}"),
        ]);
        self.disk(name)
    }

    /// The disk of an image.
    pub fn disk(&self, name: &str) -> String {
        format!("rbd:rbd/{name},conf={}", self.conf().display())
    }

    /// Kills the monitor, and starts it again.
    pub fn restart_monitor(&mut self) {
        self.monitor.kill().unwrap();
        self.monitor.wait().unwrap();
        self.monitor = begin(Command::new("ceph-mon").arg("-c").arg(self.conf()).args(["-i", "a", "-f"]));
    }

    pub fn signal_store(&self, signal: Signal) {
        kill(Pid::from_raw(self.store.id() as i32), signal).unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in [&mut self.store, &mut self.monitor] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A program that ends after 20 seconds: clients of a cluster that does not answer wait for ever.
fn limited(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["20", program]);
    command
}

fn ask(conf: &str, arguments: &[&str]) -> Option<String> {
    let output =
        limited("ceph").args(["-c", conf, "--connect-timeout", "5"]).args(arguments).output().unwrap();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn begin(command: &mut Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn until(what: &str, mut is_there: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_there() {
        assert!(Instant::now() < end, "{what}: not within 60 s");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Whether Ceph's programs are there.
pub fn is_installed() -> bool {
    ["ceph-mon", "ceph-osd", "ceph", "rbd", "monmaptool"].iter().all(|program| {
        ["/usr/bin", "/usr/sbin"].iter().any(|folder| Path::new(folder).join(program).exists())
    })
}
