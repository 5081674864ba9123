//! Linux's own initiator in a guest: open-iscsi, ext4, dm-multipath and sg3-utils against the target. `make
//! test-linux` makes the guest and runs this; `cargo test` alone lists it as ignored.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use common::guest::{Guest, wires};
use common::manager::Manager;
use common::{IQN, succeed};

/// A target in a process of its own, that can be killed and started again with the same disks.
struct Served {
    arguments: Vec<String>,
    child: Child,
}

impl Served {
    fn start(arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
        let child = Self::spawn(&arguments);
        Self { arguments, child }
    }

    fn spawn(arguments: &[String]) -> Child {
        let mut child = common::roundtrip()
            .args(["target", "--iqn", IQN])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the target starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready "), "{line}");
        child
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn start_again(&mut self) {
        self.child = Self::spawn(&self.arguments);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const FIRST: &str = "10.99.1.1:3260";
const SECOND: &str = "10.99.2.1:3260";
const GUEST_NAME: &str = "iqn.2026-11.example.roundtrip:guest";

/// Network, names and secrets of the guest.
fn prepare(guest: &mut Guest) {
    for module in ["virtio_pci", "virtio_net", "iscsi_tcp", "sd_mod", "sg", "ext4", "dm_multipath"] {
        guest.ok(&format!("modprobe {module}"));
    }
    guest.run(
        "modprobe dm_service_time; modprobe dm_round_robin; modprobe scsi_dh_alua; modprobe crc32c_intel",
    );
    guest.ok("ip link set lo up");
    for n in [1, 2] {
        let eth = format!("eth{}", n - 1);
        guest.ok(&format!("ip addr add 10.99.{n}.2/24 dev {eth} && ip link set {eth} up"));
    }
    guest.ok("mkdir -p /etc/iscsi /run/lock/iscsi /var/lock /etc/multipath /var/lib/iscsi");
    guest.ok(&format!("echo InitiatorName={GUEST_NAME} > /etc/iscsi/initiatorname.iscsi"));
    let conf = [
        "node.startup = manual",
        "node.session.auth.authmethod = CHAP",
        "node.session.auth.username = alice",
        "node.session.auth.password = wonderland-12",
        "node.session.auth.username_in = target",
        "node.session.auth.password_in = looking-glass",
        "discovery.sendtargets.auth.authmethod = CHAP",
        "discovery.sendtargets.auth.username = alice",
        "discovery.sendtargets.auth.password = wonderland-12",
        "discovery.sendtargets.auth.username_in = target",
        "discovery.sendtargets.auth.password_in = looking-glass",
        "node.conn[0].iscsi.HeaderDigest = CRC32C",
        "node.conn[0].iscsi.DataDigest = CRC32C",
        "node.session.timeo.replacement_timeout = 120",
        "node.conn[0].timeo.noop_out_interval = 1",
        "node.conn[0].timeo.noop_out_timeout = 2",
        "node.session.iscsi.InitialR2T = No",
        "node.session.iscsi.ImmediateData = Yes",
    ];
    guest.ok(&format!("printf '%s\\n' '{}' > /etc/iscsi/iscsid.conf", conf.join("' '")));
    guest.ok("/usr/lib/systemd/systemd-udevd --daemon && udevadm trigger && udevadm settle");
    guest.ok("iscsid");
}

/// The block device of a logical unit, seen through a portal.
fn device(guest: &mut Guest, portal: &str, lun: u16) -> String {
    let (address, port) = portal.split_once(':').unwrap();
    let of_session = format!(
        "for s in /sys/class/iscsi_session/session*; do \
         c=$(cat $s/device/connection*/iscsi_connection/*/persistent_address); \
         p=$(cat $s/device/connection*/iscsi_connection/*/persistent_port); \
         [ $c = {address} ] && [ $p = {port} ] && ls -d $s/device/target*/*:{lun}/block/*; done | head -n 1"
    );
    let path = guest.ok(&of_session);
    let name = path.trim().rsplit('/').next().unwrap_or_default().to_owned();
    assert!(!name.is_empty(), "LUN {lun} at {portal}: {path}");
    format!("/dev/{name}")
}

#[test]
#[ignore = "needs a guest: make test-linux"]
fn linux_agrees() {
    wires(2);
    let folder = tempfile::tempdir().unwrap();
    let access = folder.path().join("access.toml");
    std::fs::write(
        &access,
        "[[chap]]\nname = 'alice'\nsecret = 'wonderland-12'\ninitiators = 'any'\n[mutual]\nname = 'target'\nsecret = 'looking-glass'\n",
    )
    .unwrap();
    let disk = |name: &str| folder.path().join(name).display().to_string();
    let mut target = Served::start(&[
        "--portal",
        &format!("{FIRST},group=1"),
        "--portal",
        &format!("{SECOND},group=2"),
        "--access",
        access.to_str().unwrap(),
        "--state",
        &disk("state"),
        "--lun",
        &format!("0=file:{},size=256M", disk("ext4")),
        "--lun",
        "1=ram:64M",
        "--lun",
        "2=ram:64M",
    ]);
    let mut guest = Guest::boot(&["tap1", "tap2"]);
    prepare(&mut guest);
    logs_in(&mut guest);
    makes_a_file_system(&mut guest, Path::new(&disk("ext4")));
    sg_tools_agree(&mut guest);
    survives_a_cut_portal(&mut guest);
    survives_a_killed_target(&mut guest, &mut target);
    drop(target);
    goes_on_over_restarts(&mut guest, &access, &disk("ext4"));
    guest.part("all done");
    guest.send("poweroff -f");
}

/// Discovery and login, CHAP in both directions, both digests.
fn logs_in(guest: &mut Guest) {
    let found = guest.ok(&format!("iscsiadm -m discovery -t sendtargets -p {FIRST}"));
    assert!(
        found.contains(&format!("{FIRST},1 {IQN}")) && found.contains(&format!("{SECOND},2 {IQN}")),
        "{found}"
    );
    let node = format!("iscsiadm -m node -T {IQN} -p {FIRST}");
    guest.ok(&format!("{node} --op update -n node.session.auth.password -v wrong-secret-1"));
    guest.fails(&format!("{node} --login"));
    guest.ok(&format!("{node} --op update -n node.session.auth.password -v wonderland-12"));
    guest.ok(&format!("{node} --op update -n node.session.auth.password_in -v false-target-12"));
    guest.fails(&format!("{node} --login"));
    guest.ok(&format!("{node} --op update -n node.session.auth.password_in -v looking-glass"));
    guest.ok(&format!("{node} --login"));
    let session = guest.ok("iscsiadm -m session -P 2");
    for agreed in ["HeaderDigest: CRC32C", "DataDigest: CRC32C", "InitialR2T: No", "ImmediateData: Yes"] {
        assert!(session.contains(agreed), "{agreed}: {session}");
    }
    guest.ok("udevadm settle");
    guest.part("logged in: CHAP in both directions, header and data digests");
}

/// ext4: made, written, checked, trimmed.
fn makes_a_file_system(guest: &mut Guest, file: &Path) {
    let disk = device(guest, FIRST, 0);
    // The cache that the disk admits to, switched off and on again (MODE SELECT of the caching page).
    let cache = format!("/sys/block/{}/device/scsi_disk/*/cache_type", disk.trim_start_matches("/dev/"));
    assert_eq!(guest.ok(&format!("cat {cache}")).trim(), "write back");
    guest.ok(&format!("for f in {cache}; do echo 'write through' > $f; done"));
    assert_eq!(guest.ok(&format!("cat {cache}")).trim(), "write through");
    guest.ok(&format!("for f in {cache}; do echo 'write back' > $f; done"));
    assert_eq!(guest.ok(&format!("cat {cache}")).trim(), "write back");
    guest.ok(&format!("mke2fs -q -t ext4 {disk} && mkdir -p /mnt && mount -t ext4 {disk} /mnt"));
    guest.ok("dd if=/dev/urandom of=/tmp/data bs=1M count=48 2>/dev/null && cp /tmp/data /mnt/data && sync");
    guest.ok(&format!("umount /mnt && e2fsck -f -n {disk}"));
    guest.ok("echo 3 > /proc/sys/vm/drop_caches");
    guest.ok(&format!("mount -t ext4 {disk} /mnt && cmp /tmp/data /mnt/data"));
    // What the file takes on the host, MiB.
    let taken = || std::fs::metadata(file).unwrap().blocks() / 2048;
    let before = taken();
    guest.ok("rm /mnt/data && sync");
    let trimmed = guest.ok("fstrim -v /mnt");
    assert!(trimmed.contains("trimmed"), "{trimmed}");
    guest.ok(&format!("umount /mnt && e2fsck -f -n {disk}"));
    let after = taken();
    assert!(before >= 48 && after + 40 < before, "{before} MiB before, {after} MiB after the trim");
    guest.part(&format!("ext4: made, written, checked; its trim left {after} of {before} MiB in the file"));
}

/// sg3-utils, each a second opinion on commands that ext4 never sends.
fn sg_tools_agree(guest: &mut Guest) {
    let disk = device(guest, FIRST, 1);
    let inquiry = guest.ok(&format!("sg_inq {disk}"));
    assert!(inquiry.contains("Vendor identification: RNDTRIP") && inquiry.contains("TPGS=3"), "{inquiry}");
    for (page, words) in [
        ("sv", "Third party copy"),
        ("di", "Target port group: 0x1"),
        ("bl", "Maximum atomic transfer length"),
        ("lbpv", "Thin provisioned"),
        ("bdc", "Non-rotating medium"),
        ("mpp", "Mode page policy"),
        ("sp", "Relative port=2"),
        ("tpc", "Supported commands"),
        ("ei", "SIMPSUP=1"),
    ] {
        let text = guest.ok(&format!("sg_vpd -p {page} {disk}"));
        assert!(text.to_lowercase().contains(&words.to_lowercase()), "{page}: {text}");
    }
    let codes = guest.ok(&format!("sg_opcodes {disk}"));
    for name in ["Compare and write", "Extended copy", "Write atomic(16)", "Set target port groups"] {
        assert!(codes.to_lowercase().contains(&name.to_lowercase()), "{name}: {codes}");
    }
    guest.ok(&format!("sg_opcodes --tmf {disk}"));
    let groups = guest.ok(&format!("sg_rtpg -d {disk}"));
    assert!(groups.matches("active/optimized").count() >= 2, "{groups}");
    guest.ok(&format!("sg_luns {disk} && sg_readcap --16 {disk} && sg_requests {disk}"));
    // Persistent reservations, kept over a restart (APTPL).
    let persist = |guest: &mut Guest, what: &str| guest.ok(&format!("sg_persist {what} {disk}"));
    persist(guest, "--out --register --param-sark=0xabc --param-aptpl");
    persist(guest, "--out --reserve --param-rk=0xabc --prout-type=5");
    assert!(persist(guest, "--in --read-keys").contains("0xabc"));
    assert!(persist(guest, "--in --read-reservation").contains("Write Exclusive, registrants only"));
    let status = persist(guest, "--in --read-full-status");
    assert!(status.contains(GUEST_NAME) && status.contains("Relative port address: 0x1"), "{status}");
    assert!(persist(guest, "--in --report-capabilities").contains("(PTPL_C): 1"));
    persist(guest, "--out --release --param-rk=0xabc --prout-type=5");
    persist(guest, "--out --register --param-rk=0xabc --param-sark=0");
    // Blocks: written the same, compared and written, unmapped, copied.
    let block = |guest: &mut Guest, at: u32| {
        guest.ok(&format!(
            "dd if={disk} bs=512 skip={at} count=1 iflag=direct 2>/dev/null | md5sum | cut -c1-32"
        ))
    };
    guest.ok("dd if=/dev/urandom of=/tmp/one bs=512 count=1 2>/dev/null; dd if=/dev/urandom of=/tmp/two bs=512 count=1 2>/dev/null");
    let sums: Vec<String> =
        ["/tmp/one", "/tmp/two"].iter().map(|f| guest.ok(&format!("md5sum {f} | cut -c1-32"))).collect();
    guest.ok(&format!("sg_write_same --16 --in=/tmp/one --lba=8 --num=16 {disk}"));
    assert_eq!(block(guest, 23), sums[0]);
    guest.ok("cat /tmp/one /tmp/two > /tmp/both; cat /tmp/two /tmp/one > /tmp/wrong");
    guest.ok(&format!("sg_compare_and_write --in=/tmp/both --lba=10 --num=1 --xferlen=1024 {disk}"));
    assert_eq!(block(guest, 10), sums[1]);
    guest.fails(&format!("sg_compare_and_write --in=/tmp/both --lba=10 --num=1 --xferlen=1024 {disk}"));
    guest.ok(&format!("sg_xcopy if={disk} of={disk} skip=8 seek=40000 count=16 bs=512 --on_src"));
    assert_eq!((block(guest, 40_002), block(guest, 40_000)), (sums[1].clone(), sums[0].clone()));
    guest.ok(&format!("sg_unmap --lba=0 --num=128 {disk}"));
    let zero = guest.ok("dd if=/dev/zero bs=512 count=1 2>/dev/null | md5sum | cut -c1-32");
    assert_eq!(block(guest, 10), zero);
    guest
        .part("sg3-utils: inquiry, pages, opcodes, reservations, write same, compare and write, copy, unmap");
}

/// Two portals under dm-multipath, one of them cut while data is written.
fn survives_a_cut_portal(guest: &mut Guest) {
    guest.ok(&format!("iscsiadm -m node -T {IQN} -p {SECOND} --login && udevadm settle"));
    let paths = [device(guest, FIRST, 2), device(guest, SECOND, 2)];
    assert_ne!(paths[0], paths[1]);
    let conf = [
        "defaults {",
        "find_multipaths no",
        "user_friendly_names no",
        "polling_interval 1",
        "max_polling_interval 1",
        "}",
        "overrides {",
        "no_path_retry queue",
        "path_grouping_policy multibus",
        "path_checker tur",
        "fast_io_fail_tmo 2",
        "}",
    ];
    guest.ok(&format!("printf '%s\\n' '{}' > /etc/multipath.conf", conf.join("' '")));
    guest.ok("multipathd && for i in 1 2 3 4 5 6 7 8 9 10; do multipath -ll | grep -q 'RNDTRIP' && break; sleep 1; done");
    // The name that udev gives the disk: the same on both paths.
    let [wwid, other] = paths.map(|path| {
        guest.ok(&format!("udevadm info -q property -n {path} | sed -n 's/^ID_SERIAL=//p'")).trim().to_owned()
    });
    assert!(!wwid.is_empty() && wwid == other, "{wwid} {other}");
    let map = format!("/dev/mapper/{wwid}");
    let shown = guest.ok("multipath -ll");
    assert!(shown.contains(&wwid), "{wwid} {shown}");
    // Both paths are used.
    assert_eq!(guest.ok(&format!("multipath -ll {wwid} | grep -c 'active ready'")).trim(), "2", "{shown}");
    guest.ok("dd if=/dev/urandom of=/tmp/data bs=1M count=40 2>/dev/null");
    guest.ok(&format!(
        "(for i in 1 2 3 4 5 6; do dd if=/tmp/data of={map} bs=64k oflag=direct conv=notrunc || exit 1; done; \
         echo done) > /tmp/load 2>&1 &"
    ));
    std::thread::sleep(Duration::from_secs(1));
    guest.fails("grep -q done /tmp/load");
    succeed("ip", &["link", "set", "tap1", "down"]);
    guest.part("portal 1 is cut");
    let wait = "for i in $(seq 100); do grep -q done /tmp/load && break; sleep 1; done";
    guest.ok(&format!("{wait}; cat /tmp/load; grep -q done /tmp/load"));
    let shown = guest.ok(&format!("multipath -ll {wwid}"));
    assert!(shown.contains("failed"), "{shown}");
    guest.ok(&format!("echo 3 > /proc/sys/vm/drop_caches; dd if={map} bs=1M count=40 iflag=direct 2>/dev/null | cmp - /tmp/data"));
    succeed("ip", &["link", "set", "tap1", "up"]);
    let ready = format!("[ $(multipath -ll {wwid} | grep -c 'active ready') = 2 ]");
    guest.ok(&format!("for i in $(seq 60); do {ready} && break; sleep 1; done; {ready}"));
    guest.ok("killall multipathd; sleep 1; multipath -F");
    guest.ok(&format!("iscsiadm -m node -T {IQN} -p {SECOND} --logout"));
    guest.part("dm-multipath: written through the other portal, and both paths are back");
}

/// The target is killed and started again while a file system is written.
fn survives_a_killed_target(guest: &mut Guest, target: &mut Served) {
    let (disk, reserved) = (device(guest, FIRST, 0), device(guest, FIRST, 1));
    guest.ok(&format!("sg_persist --out --register --param-sark=0xfeed --param-aptpl {reserved}"));
    // Linux gives up a read ahead at once when the connection breaks, and ext4 takes a bitmap that it wanted ahead, after it was mounted,
    // for lost.
    guest.ok(&format!("mount -t ext4 -o no_prefetch_block_bitmaps {disk} /mnt"));
    guest.ok("dd if=/dev/urandom of=/tmp/data bs=1M count=24 2>/dev/null");
    guest.ok(
        "(for i in 1 2 3 4 5 6; do dd if=/tmp/data of=/mnt/data$i bs=64k conv=fsync || exit 1; done; echo done) \
         > /tmp/load 2>&1 &",
    );
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(700));
        guest.fails("grep -q done /tmp/load");
        target.kill();
        guest.part("the target is killed");
        std::thread::sleep(Duration::from_millis(1500));
        target.start_again();
    }
    let wait = "for i in $(seq 100); do grep -q done /tmp/load && break; sleep 1; done";
    guest.ok(&format!("{wait}; cat /tmp/load; grep -q done /tmp/load"));
    guest.ok("for i in 1 2 3 4 5 6; do cmp /tmp/data /mnt/data$i || exit 1; done");
    guest.ok("umount /mnt && echo 3 > /proc/sys/vm/drop_caches");
    guest.ok(&format!("e2fsck -f -n {disk} && mount -t ext4 {disk} /mnt"));
    guest.ok("for i in 1 2 3 4 5 6; do cmp /tmp/data /mnt/data$i || exit 1; done; umount /mnt");
    assert!(
        guest
            .ok(&format!("sg_requests {reserved} > /dev/null; sg_persist --in --read-keys {reserved}"))
            .contains("0xfeed"),
        "kept (APTPL)"
    );
    guest.ok(&format!("iscsiadm -m node -T {IQN} -p {FIRST} --logout"));
    guest.part("I/O went on, every checksum is right, the file system is clean");
}

/// A mounted file system on a target that is restarted under its service manager (service.py; `make test-package` has the real one): the
/// initiator sees no error of its connection, and does not log in again.
fn goes_on_over_restarts(guest: &mut Guest, access: &Path, disk: &str) {
    let lun = format!("0=file:{disk}");
    let options = ["--keep-sessions", "--iqn", IQN, "--access", access.to_str().unwrap(), "--lun", &lun];
    let mut manager = Manager::start(FIRST, &options);
    guest.ok(&format!("iscsiadm -m node -T {IQN} -p {FIRST} --login && udevadm settle"));
    let disk = device(guest, FIRST, 0);
    let sessions = "ls /sys/class/iscsi_session";
    let errors = "dmesg | grep -ciE 'detected conn error|I/O error|timing out|power on' || true";
    let before = (guest.ok(sessions), guest.ok(errors));
    guest.ok(&format!("mount -t ext4 {disk} /mnt && rm -f /mnt/data*"));
    guest.ok("dd if=/dev/urandom of=/tmp/data bs=1M count=24 2>/dev/null");
    guest.ok(
        "(for i in 1 2 3 4 5 6; do dd if=/tmp/data of=/mnt/kept$i bs=64k conv=fsync || exit 1; done; echo done) \
         > /tmp/load 2>&1 &",
    );
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(700));
        guest.fails("grep -q done /tmp/load");
        assert_eq!(manager.restart("restart"), 2, "its socket and the state");
    }
    let wait = "for i in $(seq 100); do grep -q done /tmp/load && break; sleep 1; done";
    guest.ok(&format!("{wait}; cat /tmp/load; grep -q done /tmp/load"));
    guest.ok("umount /mnt && echo 3 > /proc/sys/vm/drop_caches");
    guest.ok(&format!("e2fsck -f -n {disk} && mount -t ext4 {disk} /mnt"));
    guest.ok("for i in 1 2 3 4 5 6; do cmp /tmp/data /mnt/kept$i || exit 1; done; umount /mnt");
    assert_eq!((guest.ok(sessions), guest.ok(errors)), before);
    guest.ok(&format!("iscsiadm -m node -T {IQN} -p {FIRST} --logout"));
    manager.stop();
    guest.part("the session went on over three restarts under load: no error, no login");
}
