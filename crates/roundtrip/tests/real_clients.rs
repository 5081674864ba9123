//! Third-party clients against the target: libiscsi's programs and QEMU's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{
    IQN, PREVENT_TWO_NEXUSES, Target, UNMAP_SINGLE, UNMAP_UNTIL_END, random_file, succeed, suite_passes_but,
};

const LUNS: [&str; 4] = ["--lun", "0=ram:64M", "--lun", "1=zero:1T,bs=4k"];

fn with_policy(policy: &str) -> Target {
    Target::start(&[&LUNS[..], &["--send", policy]].concat())
}

#[test]
fn iscsi_ls_finds_the_target_and_its_disks() {
    let target = with_policy("nodelay");
    let text = succeed("iscsi-ls", &["-s", &format!("iscsi://{}", target.address)]);
    assert!(text.contains(&format!("Target:{IQN} Portal:{},1", target.address)), "{text}");
    assert!(text.contains("Lun:0") && text.contains("Lun:1") && text.contains("DIRECT_ACCESS"), "{text}");
}

#[test]
fn iscsi_inq_reads_the_standard_data_and_every_page() {
    let target = with_policy("nodelay");
    let text = succeed("iscsi-inq", &[&target.url(0)]);
    assert!(text.contains("Vendor:RNDTRIP") && text.contains("Product:ram disk"), "{text}");
    // All but 86h, which this program cannot decode from any target.
    for page in ["0", "128", "131", "176", "177", "178"] {
        succeed("iscsi-inq", &["-e", "1", "-c", page, &target.url(0)]);
    }
    let text = succeed("iscsi-inq", &["-e", "1", "-c", "131", &target.url(0)]);
    assert!(text.contains(IQN), "the target's name is among its designators: {text}");
}

#[test]
fn iscsi_readcapacity16_reads_both_geometries() {
    let target = with_policy("nodelay");
    let text = succeed("iscsi-readcapacity16", &[&target.url(0)]);
    assert!(text.contains("Total size:67108864") && text.contains("BYTES:512"), "{text}");
    let text = succeed("iscsi-readcapacity16", &[&target.url(1)]);
    assert!(text.contains("Total size:1099511627776") && text.contains("BYTES:4096"), "{text}");
}

#[test]
fn iscsi_perf_runs_with_both_send_policies() {
    for policy in ["nodelay", "nagle"] {
        let target = with_policy(policy);
        for random in [&["-r"][..], &[]] {
            let url = target.url(0);
            let arguments = [&["-t", "1", "-m", "16", "-b", "8"], random, &[url.as_str()]].concat();
            let text = succeed("iscsi-perf", &arguments);
            assert!(text.contains("iops average"), "{text}");
        }
    }
}

#[test]
fn qemu_img_copies_an_image_there_and_back() {
    let directory = tempfile::tempdir().unwrap();
    let (image, back) = (directory.path().join("image"), directory.path().join("back"));
    random_file(&image, 64 << 20);
    let (image, back) = (image.to_str().unwrap(), back.to_str().unwrap());
    for policy in ["nodelay", "nagle"] {
        let target = with_policy(policy);
        let url = target.url(0);
        succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", image, &url]);
        let text = succeed("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &url]);
        assert!(text.contains("Images are identical"), "{text}");
        succeed("qemu-img", &["convert", "-f", "raw", "-O", "raw", &url, back]);
        assert!(std::fs::read(image).unwrap() == std::fs::read(back).unwrap());
    }
}

#[test]
fn qemu_io_reads_back_unaligned_writes() {
    let target = with_policy("nodelay");
    let url = target.url(0);
    let text = succeed(
        "qemu-io",
        &[
            "-f",
            "raw",
            "-c",
            "write -P 7 1M 3M",
            "-c",
            "write -P 9 512 1536",
            "-c",
            "flush",
            "-c",
            "read -P 7 1M 3M",
            "-c",
            "read -P 9 512 1536",
            "-c",
            "read -P 0 0 512",
            &url,
        ],
    );
    assert!(!text.contains("failed"), "{text}");
}

#[test]
fn a_read_only_disk_refuses_writes_and_keeps_the_session() {
    let target = Target::start(&["--lun", "0=ram:1M,readonly"]);
    let output = common::tool("qemu-io", &["-f", "raw", "-c", "write 0 512", &target.url(0)]);
    assert!(!output.status.success(), "a write to a read-only disk must fail");
    succeed("qemu-io", &["-r", "-f", "raw", "-c", "read -P 0 0 512", &target.url(0)]);
}

#[track_caller]
fn suite_passes(family: &str, urls: &[&str]) -> usize {
    suite_passes_but(&[], family, urls)
}

/// The whole suite, on disks with all features and over two paths. docs/compliance.md lists the skipped tests and the reasons.
#[test]
fn the_libiscsi_suite_finds_nothing_wrong() {
    let run = |disk: &'static str, family: &str, contradict: &[&str]| -> usize {
        let target = Target::start(&["--lun", disk]);
        let url = target.url(0);
        suite_passes_but(contradict, family, &[&url, &url])
    };
    // Each on a target of its own, because a cold reset affects all.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run("0=ram:64M", "iSCSI", &[]);
            assert_eq!(run("0=ram:64M,readonly", "SCSI.ReadOnly", &[]), 0);
            let skipped = run(
                "0=ram:64M,removable,pbs=4k",
                "SCSI",
                &[UNMAP_SINGLE, PREVENT_TWO_NEXUSES, UNMAP_UNTIL_END],
            );
            assert!(skipped <= 8, "{skipped} tests are skipped");
        });
        scope.spawn(|| {
            // Tests skipped with these geometries run with the other.
            run("0=ram:64M,removable", "SCSI", &[PREVENT_TWO_NEXUSES, UNMAP_UNTIL_END]);
            assert_eq!(run("0=ram:64M,removable", "SCSI.PreventAllow.2ITNexuses", &[]), 0);
            run("0=ram:64M,bs=4k", "SCSI", &[UNMAP_UNTIL_END]);
        });
    });
}

/// libiscsi and the target authenticate each other; initiators without the secret are rejected.
#[test]
fn chap_admits_only_initiators_with_the_secret() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.toml");
    std::fs::write(
        &file,
        "[[chap]]\nname = 'alice'\nsecret = 'wonderland-12'\ninitiators = 'any'\n\
         [mutual]\nname = 'target'\nsecret = 'looking-glass'\n",
    )
    .unwrap();
    let target = Target::start(&["--lun", "0=ram:1M", "--access", file.to_str().unwrap()]);
    let url = |user: &str, more: &str| format!("iscsi://{user}{}/{}/0{more}", target.address, common::IQN);
    let log_in = |user: &str, more: &str| common::tool("iscsi-inq", &[&url(user, more)]).status.success();
    assert!(log_in("alice%wonderland-12@", ""));
    assert!(log_in("alice%wonderland-12@", "?target_user=target&target_password=looking-glass"));
    assert!(!log_in("alice%wonderland-13@", ""), "a wrong secret");
    assert!(!log_in("bob%wonderland-12@", ""), "an unknown name");
    assert!(!log_in("", ""), "no authentication");
    assert!(
        !log_in("alice%wonderland-12@", "?target_user=target&target_password=another-glass"),
        "a false target"
    );
    // Discovery needs the same authentication.
    let discover = |user: &str| {
        common::tool("iscsi-ls", &[&format!("iscsi://{user}{}", target.address)]).status.success()
    };
    assert!(discover("alice%wonderland-12@") && !discover(""));
    // libiscsi's own tests of CHAP need a target that asks for it.
    suite_passes("iSCSI", &[&url("alice%wonderland-12@", "")]);
}

/// An initiator that can authenticate but is not on the list.
#[test]
fn only_initiators_on_the_list_may_use_the_target() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.toml");
    let list = |name: &str| {
        format!(
            "initiators = ['{name}']\n[[chap]]\nname = 'alice'\nsecret = 'wonderland-12'\ninitiators = 'any'\n"
        )
    };
    for (name, is_let_in) in
        [("iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-inq", true), ("iqn.2000-01.other", false)]
    {
        std::fs::write(&file, list(name)).unwrap();
        let target = Target::start(&["--lun", "0=ram:1M", "--access", file.to_str().unwrap()]);
        let url = format!("iscsi://alice%wonderland-12@{}/{}/0", target.address, common::IQN);
        assert_eq!(common::tool("iscsi-inq", &[&url]).status.success(), is_let_in, "{name}");
    }
}

/// libiscsi with both digests: each side verifies the other's.
#[test]
fn digests_are_agreed_on_and_right_in_both_directions() {
    let target = Target::start(&["--lun", "0=ram:64M"]);
    let folder = tempfile::tempdir().unwrap();
    let (source, back) = (folder.path().join("source"), folder.path().join("back"));
    random_file(&source, 3 << 20);
    for digests in ["header_digest=crc32c", "header_digest=none", "header_digest=crc32c&data_digest=crc32c"] {
        let url = format!("{}?{digests}", target.url(0));
        succeed("iscsi-inq", &[&url]);
        suite_passes("SCSI.Read10", &[&url]);
        suite_passes("SCSI.WriteSame16", &[&url]);
    }
    // QEMU takes the setting as an option of its own.
    let image = format!(
        "driver=iscsi,transport=tcp,portal={},target={},lun=0,header-digest=crc32c",
        target.address,
        common::IQN
    );
    let [source, back] = [&source, &back].map(|path| path.to_str().unwrap());
    succeed("qemu-img", &["convert", "-n", "--target-image-opts", "-f", "raw", source, &image]);
    succeed("qemu-img", &["convert", "--image-opts", "-O", "raw", &image, back]);
    let (wrote, read) = (std::fs::read(source).unwrap(), std::fs::read(back).unwrap());
    assert!(wrote == read[..wrote.len()], "what was written with digests reads back");
}
