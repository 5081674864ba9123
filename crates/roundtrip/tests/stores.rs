//! Every store under third-party clients: copied data reads back, and libiscsi's suite passes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use common::{Target, UNMAP_UNTIL_END, random_file, succeed};

/// A loop device over a file; detached when dropped. `None` if it cannot be created.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Option<Self> {
        let output = common::tool("losetup", &["--find", "--show", file.to_str().unwrap()]);
        if !testing::require("a loop device (root, and the loop driver)", output.status.success()) {
            return None;
        }
        Some(Self(String::from_utf8(output.stdout).unwrap().trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        common::tool("losetup", &["--detach", &self.0]);
    }
}

fn comes_back(disk: &str, contradict: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let (image, back) = (folder.path().join("image"), folder.path().join("back"));
    random_file(&image, 16 << 20);
    let [image, back] = [&image, &back].map(|path| path.to_str().unwrap());
    let target = Target::start(&["--lun", disk]);
    let url = target.url(0);
    succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", image, &url]);
    succeed("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &url]);
    succeed("qemu-img", &["convert", "-f", "raw", "-O", "raw", &url, back]);
    assert!(std::fs::read(image).unwrap() == std::fs::read(back).unwrap(), "{disk}");
    let commands =
        ["write -P 7 1M 3M", "write -P 9 512 1536", "discard 2M 64k", "flush", "read -P 9 512 1536"];
    let arguments: Vec<&str> = commands.iter().flat_map(|command| ["-c", command]).collect();
    let text = succeed("qemu-io", &[&["-f", "raw"], &arguments[..], &[&url]].concat());
    assert!(!text.contains("failed"), "{disk}: {text}");
    // A disk is for one target at a time.
    target.stop();
    // The whole of libiscsi's suite, over two paths, on a target of its own: a cold reset is seen by all.
    for (family, contradict) in [("SCSI", contradict), ("iSCSI", &[][..])] {
        let target = Target::start(&["--lun", disk]);
        let url = target.url(0);
        common::suite_passes_but(contradict, family, &[&url, &url]);
    }
}

/// Sessions over a restart would go on with what another file holds.
#[test]
fn a_device_that_is_attached_anew_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["a", "b"].map(|name| {
        random_file(&folder.path().join(name), 1 << 20);
        folder.path().join(name)
    });
    let Some(device) = Loop::over(&files[0]) else { return };
    let name = || {
        let spec: store::StoreSpec = format!("dev:{}", device.0).parse().unwrap();
        spec.open().unwrap().lasting_name().unwrap()
    };
    let first = name();
    assert_eq!(name(), first);
    for file in [&files[1], &files[0]] {
        assert!(common::tool("losetup", &["--detach", &device.0]).status.success());
        assert!(common::tool("losetup", &[&device.0, file.to_str().unwrap()]).status.success());
        assert_ne!(name(), first);
    }
}

#[test]
fn data_copied_to_any_store_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    comes_back("0=ram:16M", &[UNMAP_UNTIL_END]);
    comes_back(&format!("0=file:{},size=16M", file("buffered")), &[UNMAP_UNTIL_END]);
    comes_back(&format!("0=file:{},size=16M,engine=threads", file("threads")), &[UNMAP_UNTIL_END]);
    comes_back("0=ram:16M,delay=10us,iops=100000,bandwidth=1G,stats,log", &[UNMAP_UNTIL_END]);
}

#[test]
fn data_copied_with_direct_io_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    comes_back(&format!("0=file:{},size=16M,direct", file("direct")), &[UNMAP_UNTIL_END]);
    comes_back(&format!("0=file:{},size=16M,direct,engine=threads", file("threads")), &[UNMAP_UNTIL_END]);
}

#[test]
fn serves_a_block_device_with_its_properties() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    std::fs::File::create(&path).unwrap().set_len(16 << 20).unwrap();
    let Some(device) = Loop::over(&path) else { return };
    // Linux does not tell which blocks of a device are mapped, so all are, also after an erase.
    let contradict = ["Sanitize.BlockErase", UNMAP_UNTIL_END];
    comes_back(&format!("0=dev:{}", device.0), &contradict);
    comes_back(&format!("0=dev:{},direct", device.0), &contradict);
    let output =
        common::roundtrip().args(["target", "--lun", &format!("0=file:{}", device.0)]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stderr.contains("dev:PATH"), "{stderr}");
}

/// Starts a target that must refuse its disks, and returns its stderr.
fn refused(arguments: &[&str]) -> String {
    let mut command = common::roundtrip();
    command.args(["target", "--portal", "127.0.0.1:0"]).args(arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    common::wait(&mut child, Duration::from_secs(10));
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    stderr
}

#[test]
fn rejects_one_file_as_two_disks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let lun = |number: u16, options: &str| format!("{number}=file:{}{options}", path.display());
    let stderr = refused(&["--lun", &lun(0, ",size=1M"), "--lun", &lun(3, "")]);
    assert!(stderr.contains("LUN 3") && stderr.contains("in use by LUN 0"), "{stderr}");
    let target = Target::start(&["--lun", &lun(0, ",size=1M")]);
    for options in ["", ",readonly", ",direct", ",engine=threads", ",shared=yes"] {
        let stderr = refused(&["--lun", &lun(0, options)]);
        assert!(stderr.contains("in use by process") && stderr.contains("(roundtrip)"), "{stderr}");
    }
    target.stop();
    let shared = Target::start(&["--lun", &lun(0, ",shared=yes"), "--lun", &lun(1, ",shared=yes")]);
    let other = Target::start(&["--lun", &lun(0, ",shared=yes")]);
    refused(&["--lun", &lun(0, "")]);
    other.stop();
    shared.stop();
}

#[test]
fn rejects_one_state_folder_for_two_targets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let mut target = Target::start(&["--lun", "0=ram:1M", "--state", path]);
    let stderr = refused(&["--lun", "0=ram:1M", "--state", path]);
    assert!(stderr.contains(path) && stderr.contains("in use by another target"), "{stderr}");
    target.kill();
    Target::start(&["--lun", "0=ram:1M", "--state", path]).stop();
}
