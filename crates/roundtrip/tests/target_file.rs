//! `roundtrip target --config`: disks and access that change while the target serves, as real clients see it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::{Target, random_file, succeed};

/// The logical units that a client finds, once there are `count` of them.
fn luns(target: &Target, count: usize) -> String {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let text = succeed("iscsi-ls", &["-s", &format!("iscsi://{}", target.address)]);
        if text.matches("Lun:").count() == count {
            return text;
        }
        assert!(Instant::now() < deadline, "{count} are to be there: {text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_file_that_is_read_again_changes_disks_and_a_wrong_one_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("target.toml");
    let disk = folder.path().join("disk").display().to_string();
    let write =
        |luns: &str| std::fs::write(&file, format!("state = '{disk}.state'\n[luns]\n{luns}")).unwrap();
    write("0 = 'ram:1M'\n");
    let target = Target::start(&["--config", file.to_str().unwrap(), "--limit", "sessions=16"]);
    luns(&target, 1);
    write(&format!("0 = 'ram:2M'\n3 = 'file:{disk},size=8M'\n"));
    target.hang_up();
    let text = luns(&target, 2);
    assert!(text.contains("Lun:3"), "{text}");
    let capacity = succeed("iscsi-readcapacity16", &[&target.url(0)]);
    assert!(capacity.contains("Total size:2097152"), "{capacity}");
    // A file keeps what is written to it.
    let image = folder.path().join("image");
    random_file(&image, 8 << 20);
    let image = image.to_str().unwrap();
    succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", image, &target.url(3)]);
    write("3 = 'floppy:1M'\n");
    target.hang_up();
    std::thread::sleep(Duration::from_millis(300));
    luns(&target, 2);
    let said = target.stop();
    assert!(said.contains("floppy"), "{said}");
    assert!(std::fs::read(&disk).unwrap() == std::fs::read(image).unwrap());
}

#[test]
fn a_limit_that_does_not_exist_is_named() {
    let output =
        common::roundtrip().args(["target", "--lun", "0=ram:1M", "--limit", "sesions=1"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("'sesions' is no limit") && said.contains("connections_per_address"), "{said}");
}
