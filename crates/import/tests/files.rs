//! Files of other targets are imported, and the result is read as the target reads it.

use import::{FILE_BYTES_MAX, ImportError, Imported};
use iscsi_target::{Access, ActsFor, Shown};
use proptest::prelude::*;
use target_config::{NodeFile, TargetFile, file};

const LIO: &str = include_str!("fixtures/saveconfig.json");
const TGT: &str = include_str!("fixtures/targets.conf");
/// What tgt-admin 1.0.85 printed.
const TGT_DUMP: &str = include_str!("fixtures/tgt-dump.conf");
const CTL: &str = include_str!("fixtures/ctl.conf");

fn read(imported: &Imported) -> TargetFile {
    let read = file::parse(&imported.toml).unwrap_or_else(|error| panic!("{error:#}\n{}", imported.toml));
    read.check_masks().unwrap_or_else(|error| panic!("{error:#}\n{}", imported.toml));
    read
}

/// Returns the notes of a place, one a line.
fn notes(imported: &Imported, place: &str) -> String {
    let all = imported.notes.iter().filter(|note| note.place.contains(place));
    all.map(|note| format!("{}: {}\n", note.place, note.text)).collect()
}

fn node<'a>(file: &'a TargetFile, end: &str) -> &'a NodeFile {
    file.nodes.iter().find(|node| node.name().ends_with(end)).unwrap_or_else(|| panic!("{end} is missing"))
}

fn access(node: &NodeFile) -> &Access {
    node.access.as_ref().expect("rules")
}

fn is_closed(node: &NodeFile) -> bool {
    !node.is_open_access
        && node.access.as_ref().is_some_and(|access| !access.is_reached_from([192, 0, 2, 1].into()))
}

/// Returns the number of a disk, its store, and serial number, NAA identifier, T10 identifier, vendor, product and revision.
fn disks(node: &NodeFile) -> Vec<String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let disk = |(number, disk): &(u16, target_config::DiskSpec)| {
        let names = &disk.names;
        let naa =
            names.naa.as_ref().map(|naa| naa.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        [
            number.to_string(),
            disk.text.clone(),
            text(&names.serial),
            text(&naa),
            text(&names.t10),
            text(&names.vendor),
            text(&names.product),
            text(&names.revision),
        ]
        .join("|")
    };
    let mut all: Vec<_> = node.luns.iter().collect();
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(disk).collect()
}

/// Returns the portals through which a target is reached.
fn portals(file: &TargetFile, node: &NodeFile) -> Vec<String> {
    let is_its = |group: &u16| node.groups.as_ref().is_none_or(|groups| groups.contains(group));
    let its = file.portals.iter().filter(|portal| is_its(&portal.group));
    let mut all: Vec<String> = its.map(|portal| portal.listen.to_string()).collect();
    all.sort();
    all
}

#[test]
fn lio_keeps_names_of_disks_and_demands_of_initiators() {
    let imported = import::targetcli(LIO).expect("imported");
    let file = read(&imported);
    let names: Vec<&str> =
        file.nodes.iter().map(|node| node.name().rsplit('.').next().expect("a part")).collect();
    assert_eq!(names, ["chap", "demo", "closed", "paths", "again"], "{:#?}", imported.notes);

    let chap = node(&file, "sn.chap");
    assert_eq!(
        disks(chap),
        [
            "0|dev:/dev/vg/data,direct|00000001-0b7e-4a7e-9a44-6f1f6f2b8d10|6001405000000010b7e4a7e9a446f1f6|data:00000001-0b7e-4a7e-9a44-6f1f6f2b8d10|LIO-ORG|data|4.0",
            "1|file:/srv/images,size=1073741824,bs=512|00000002-0b7e-4a7e-9a44-6f1f6f2b8d10|6001405000000020b7e4a7e9a446f1f6|images-of-the-cl:00000002-0b7e-4a7e-9a44-6f1f6f2b8d10|LIO-ORG|images-of-the-cl|4.0",
            "2|file:/srv/journal,size=1048576,bs=4k,direct|00000003-0b7e-4a7e-9a44-6f1f6f2b8d10|6001405000000030b7e4a7e9a446f1f6|FILEIO:00000003-0b7e-4a7e-9a44-6f1f6f2b8d10|LIO-ORG|FILEIO|4.0",
        ]
    );
    let rules = access(chap);
    assert!(rules.discovery);
    let admitted: Vec<&str> = rules.initiators.iter().map(|initiator| &*initiator.name).collect();
    // Bob's secret is too short, Carol has none, and Erin needs none.
    assert_eq!(admitted, ["iqn.1993-08.org.debian:01:alice", "iqn.1993-08.org.debian:01:dave"]);
    let alice = [Shown::same(0), Shown { number: 7, disk: 1, read_only: true }];
    assert_eq!(rules.initiators[0].luns.as_deref(), Some(&alice[..]));
    assert_eq!(rules.users.len(), 1, "one secret is one user");
    let bound = ["iqn.1993-08.org.debian:01:alice", "iqn.1993-08.org.debian:01:dave"].map(str::to_owned);
    assert_eq!(rules.users[0].acts_for, ActsFor::Names(bound.to_vec()));
    assert_eq!(rules.users[0].own.as_ref().map(|own| &*own.name), Some("storage"));
    let text = notes(&imported, "sn.chap");
    for word in [
        "iSER",
        "5 bytes",
        "carol",
        "need not authenticate",
        "pscsi",
        "'user'",
        "512 nor 4096",
        "write-through",
        "emulate_tpu=0",
        "15 characters",
        "is left out: its disk",
    ] {
        assert!(text.contains(word), "{word}:\n{text}");
    }
    assert!(notes(&imported, "fabric module iscsi").contains("credentials for discovery"));

    let demo = node(&file, "sn.demo");
    assert!(demo.is_open_access && demo.luns.iter().all(|(_, disk)| disk.store.read_only));
    assert!(disks(demo)[2].starts_with("2|zero:67108864,bs=512,readonly|"));
    let text = notes(&imported, "sn.demo");
    assert!(text.contains("cache_dynamic_acls=1") && text.contains("demo_mode_write_protect"), "{text}");

    assert!(is_closed(node(&file, "sn.closed")));
    assert!(notes(&imported, "sn.disabled").contains("not enabled"));
    assert!(notes(&imported, "naa.5001405a1b2c3d4e").contains("'loopback'"));
    assert!(notes(&imported, "backstore fileio/spare").contains("not used"));

    // Its equal TPGs are groups; the third differs.
    let paths = node(&file, "sn.paths");
    assert_eq!(portals(&file, paths), ["192.0.2.11:3260", "192.0.2.12:3260"]);
    assert_eq!(paths.groups.as_ref().map(Vec::len), Some(2));
    assert!(notes(&imported, "sn.paths, TPG 3").contains("differ"));
    // A second target on the same backstore does not serve it under another name.
    assert!(node(&file, "sn.again").is_diskless, "{}", notes(&imported, "sn.again"));
    assert_eq!(portals(&file, chap), ["192.0.2.1:3260", "[2001:db8::1]:3260"]);
    assert_eq!(portals(&file, demo), ["192.0.2.1:3260"]);
}

#[test]
fn tgt_keeps_names_of_disks_and_demands_of_initiators() {
    let imported = import::tgt(TGT).expect("imported");
    let file = read(&imported);
    assert_eq!(portals(&file, node(&file, ":a")), ["0.0.0.0:3260"]);
    assert_eq!(
        disks(node(&file, ":a")),
        [
            "1|dev:/dev/sdq|-|60000000000000000e00000000010001|-|-|-|-",
            "2|file:/srv/tgt/d3,bs=512|beaf12|60000000000000000e00000000010002|00010002|IET|VIRTUAL-DISK|0001",
            "3|file:/srv/tgt/d2,direct,bs=4k,readonly,removable|CUSTOMSN|60000000000000000e000000deadbeef|deadbeef|IET|THING|9",
        ],
        "{:#?}",
        imported.notes
    );
    let b: Vec<String> = disks(node(&file, ":b"))
        .iter()
        .map(|disk| disk.split('|').take(3).collect::<Vec<_>>().join("|"))
        .collect();
    assert_eq!(
        b,
        [
            "1|dev:/dev/vg/m,bs=512|beaf21",
            "2|file:/srv/tgt/a,bs=512|beaf22",
            "3|file:/srv/tgt/z,bs=512|beaf23"
        ]
    );
    assert!(disks(node(&file, ":c"))[0].contains("|beaf101|60000000000000000e000000000a0001|"));

    let rules = access(node(&file, ":b"));
    assert!(!rules.discovery);
    assert_eq!(rules.users.iter().map(|user| &*user.credentials.name).collect::<Vec<_>>(), ["alice"]);
    assert_eq!(rules.own.as_ref().map(|own| &*own.name), Some("storage"));
    let addresses: Vec<String> = rules.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["192.0.2.0/24", "2001:db8::7/128"]);
    let rules = access(node(&file, ":a"));
    assert!(rules.addresses.is_empty() && rules.initiators.len() == 1 && rules.users.is_empty());
    // It has no rules, but an included file may have some for it.
    assert!(is_closed(node(&file, ":c")));
    let alone = import::tgt(&TGT.replace("include /etc/tgt/conf.d/*.conf", "")).expect("without the include");
    assert!(node(&read(&alone), ":c").is_open_access);
    assert!(is_closed(node(&file, ":d")));
    assert!(file.nodes.iter().all(|node| !node.name().ends_with(":e")));
    for (place, word) in [
        ("line 2", "not followed"),
        (":b", "192.0.2.77/24"),
        (":b", "'bob' is left out"),
        (":b", "MaxConnections"),
        (":b", "write-cache off"),
        (":a", "rbd"),
        (":a", "'params'"),
        (":a", "direct-store"),
        (":d", "not followed"),
        (":e", "'iser'"),
    ] {
        let text = notes(&imported, place);
        assert!(text.contains(word), "{word}:\n{text}");
    }
}

#[test]
fn dump_of_tgt_has_no_secrets_and_admits_nobody_by_those_it_prints() {
    let imported = import::tgt(TGT_DUMP).expect("imported");
    let file = read(&imported);
    assert!(!imported.toml.contains("PLEASE_CORRECT_THE_PASSWORD"));
    assert!(is_closed(node(&file, ":b")));
    assert_eq!(access(node(&file, ":a")).initiators.len(), 1);
    assert!(notes(&imported, ":b").contains("does not contain its secret"));
    assert!(notes(&imported, ":b").contains("write initiator-address"));
    // The dump does not tell that d2 was LUN 3: names made of a wrong number would be those of another disk.
    assert_eq!(disks(node(&file, ":a"))[0], "1|file:/srv/tgt/d2,bs=512|-|-|-|IET|VIRTUAL-DISK|0001");
    assert!(notes(&imported, "the file").contains("it is a dump"));
    let open = "default-driver iscsi\n\n<target iqn.a:b>\n\tbacking-store /srv/z\n\tbacking-store /srv/a\n</target>\n\n";
    let imported = import::tgt(open).expect("imported");
    assert_eq!(disks(&read(&imported).nodes[0])[0].split('|').nth(1), Some("file:/srv/z,bs=512"));
    assert!(notes(&imported, "the file").contains("it is a dump"));
}

#[test]
fn ctl_keeps_names_of_disks_and_demands_of_initiators() {
    let imported = import::ctl(CTL).expect("imported");
    let file = read(&imported);
    let mutual = node(&file, ":mutual");
    assert_eq!(
        disks(mutual),
        [
            "0|dev:/dev/zvol/tank/example,bs=512|FBSD0001|60015178f369f0936a2b3c4d5e6f7081|FREEBSD example|FREEBSD|CTLDISK|0001",
            "1|file:/tank/file,size=4294967296,bs=4k,removable,readonly|-|-|-|ACME|A product of lon|7",
            "2|ram:67108864,bs=512|-|-|-|FREEBSD|CTLDISK|0001",
        ],
        "{:#?}",
        imported.notes
    );
    assert_eq!(
        (portals(&file, mutual), &mutual.groups),
        (vec!["192.0.2.1:3264".to_owned(), "[2001:db8::1]:3261".into()], &Some(vec![5]))
    );
    let rules = access(mutual);
    assert_eq!(
        (rules.users.len(), rules.initiators.len(), rules.addresses.len(), rules.discovery),
        (1, 1, 2, false)
    );
    assert_eq!(rules.users[0].own.as_ref().map(|own| &*own.name), Some("storage"));
    let names = node(&file, ":names");
    assert_eq!(
        names.luns.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
        [1],
        "its first disk is one of another target"
    );
    assert!(access(names).users.is_empty() && access(names).initiators.len() == 1);
    assert_eq!(portals(&file, names), ["0.0.0.0:3260"]);
    assert!(node(&file, ":open").is_open_access);
    assert!(access(node(&file, ":inline")).discovery);
    assert!(is_closed(node(&file, ":closed")));
    for (place, word) in [
        (":mutual", "alias"),
        (":mutual", "isp0"),
        (":mutual", "pg-away"),
        (":mutual", "'bob' is left out"),
        (":mutual", "option writecache 'off'"),
        (":mutual", "ctl-lun"),
        (":mutual", "'2048'"),
        (":mutual", "ctladm devlist"),
        (":names", "left out"),
        ("portal-group pg-one", "[::]:3262"),
        ("portal-group pg-one", "[fe80::1]:3264"),
        ("portal-group pg-one", "iSER"),
        ("portal-group pg-one", "discovery-filter"),
        ("portal-group pg-away", "redirects"),
        ("portal-group default", "IPv4 only"),
        ("line 2", "pidfile"),
        ("line 3", "timeout"),
    ] {
        let text = notes(&imported, place);
        assert!(text.contains(word), "{word} at {place}:\n{text}");
    }
}

#[test]
fn lio_demo_mode_is_never_wider_than_it_was() {
    let import = |attributes: &str, acls: &str, more: &str| {
        let text = format!(
            r#"{{ "storage_objects": [{{ "plugin": "fileio", "name": "a", "dev": "/srv/a", "size": 1048576, "write_back": true, "wwn": "1" }}],
            "targets": [{{ "fabric": "iscsi", "wwn": "iqn.2024-01.org.example:a", "tpgs": [{{ "tag": 1, "enable": true, {more}
            "attributes": {{ {attributes} }}, "node_acls": [{acls}],
            "luns": [{{ "index": 0, "storage_object": "/backstores/fileio/a" }}],
            "portals": [{{ "ip_address": "0.0.0.0", "port": 3260 }}] }}] }}] }}"#
        );
        import::targetcli(&text).expect(&text)
    };
    let acl = |name: &str, luns: &str, more: &str| {
        format!(r#"{{ "node_wwn": "iqn.a:{name}", "mapped_luns": [{luns}] {more} }}"#)
    };
    let (whole, secret) = (
        r#"{ "index": 0, "tpg_lun": 0, "write_protect": false }"#,
        r#", "chap_userid": "u", "chap_password": "twelve bytes""#,
    );
    let own = r#""chap_userid": "all", "chap_password": "thirteen bytes","#;
    let demo = r#""authentication": 0, "generate_node_acls": 1, "demo_mode_write_protect": 0"#;
    let chap_demo = r#""authentication": 1, "generate_node_acls": 1, "demo_mode_write_protect": 0"#;
    // No attributes: authentication is demanded, and initiators need an ACL.
    assert!(is_closed(&read(&import("", "", "")).nodes[0]));
    assert!(is_closed(&read(&import("", &acl("b", whole, ""), "")).nodes[0]));
    assert!(read(&import(demo, "", "")).nodes[0].is_open_access);
    assert!(read(&import(demo, &acl("b", whole, ""), "")).nodes[0].is_open_access);
    // An ACL with other disks excludes initiators without one.
    let file = read(&import(demo, &acl("b", "", ""), ""));
    assert_eq!(access(&file.nodes[0]).initiators[0].luns, Some(vec![]));
    let file = read(&import(chap_demo, &acl("b", whole, secret), own));
    let rules = access(&file.nodes[0]);
    assert!(rules.initiators.is_empty() && rules.users.len() == 2 && rules.users[1].acts_for == ActsFor::Any);
    assert!(
        rules.may_act_for("u", "iqn.a:b")
            && !rules.may_act_for("all", "iqn.a:b")
            && rules.may_act_for("all", "iqn.a:c")
    );
    // Names that differ in case are one: the second ACL is left out, with its user.
    let second = acl("B", "", r#", "chap_userid": "v", "chap_password": "fourteen bytes""#);
    let file = read(&import("", &format!("{}, {second}", acl("b", whole, secret)), ""));
    assert_eq!((access(&file.nodes[0]).users.len(), access(&file.nodes[0]).initiators.len()), (1, 1));
    // Without a user of its own, b must not come in as another.
    assert!(is_closed(&read(&import(chap_demo, &acl("b", whole, ""), own)).nodes[0]));
    assert!(is_closed(&read(&import(chap_demo, "", "")).nodes[0]), "no user");
    // CHAP of the parameters counts, too.
    let parameters = format!(r#""parameters": {{ "AuthMethod": "CHAP" }}, {own}"#);
    assert_eq!(access(&read(&import(demo, "", &parameters)).nodes[0]).users.len(), 1);
    // Secrets without authentication.
    let imported = import(r#""authentication": 0"#, &acl("b", whole, secret), "");
    assert!(access(&read(&imported).nodes[0]).users.is_empty());
    assert!(notes(&imported, "target").contains("proves nothing"));
    let protected = r#""authentication": 0, "prod_mode_write_protect": 1"#;
    let file = read(&import(protected, &acl("b", whole, ""), ""));
    assert!(access(&file.nodes[0]).initiators[0].luns.as_ref().is_some_and(|luns| luns[0].read_only));
}

#[test]
fn values_are_quoted() {
    let text = "<target iqn.2024-01.org.example:a>\nbacking-store /srv/\"a'\\\\b\nincominguser a\"b]] \"secret'''\\\\pass\n</target>";
    let imported = import::tgt(text).expect("imported");
    let file = read(&imported);
    assert_eq!(file.nodes[0].luns[0].1.text, "file:/srv/\"a'\\b,bs=512");
    assert_eq!(access(&file.nodes[0]).users[0].credentials.secret, b"\"secret'''\\pass");
}

#[test]
fn files_without_targets_serve_nothing_to_nobody() {
    let closed = [
        import::tgt("").expect("empty"),
        import::ctl("").expect("empty"),
        import::targetcli("{\"targets\": []}").expect("empty"),
        import::tgt("<target disk>\n</target>").expect("no iSCSI name"),
    ];
    for imported in closed {
        let file = read(&imported);
        assert!(
            file.nodes.len() == 1 && file.nodes[0].is_diskless && is_closed(&file.nodes[0]),
            "{}",
            imported.toml
        );
        assert!(notes(&imported, "the file").contains("no target was imported"));
    }
}

#[test]
fn other_files_are_refused() {
    assert!(matches!(import::targetcli("{\n\"a\": }"), Err(ImportError::Json { line: 2, .. })));
    assert!(matches!(import::targetcli("[]"), Err(ImportError::Kind(_))));
    assert!(matches!(import::targetcli("{}"), Err(ImportError::Kind(_))));
    let large = " ".repeat(FILE_BYTES_MAX + 1);
    for import in [import::targetcli, import::tgt, import::ctl] {
        assert!(matches!(import(&large), Err(ImportError::Size(_))));
    }
    let deep = "[".repeat(FILE_BYTES_MAX);
    assert!(matches!(import::targetcli(&deep), Err(ImportError::Json { .. })));
}

/// Imports a text as every kind. A result is always one that the target accepts.
fn import_all(text: &str) {
    for import in [import::targetcli, import::tgt, import::ctl] {
        match import(text) {
            Ok(imported) => {
                read(&imported);
                let is_plain = |text: &str| !text.contains(char::is_control);
                assert!(imported.notes.iter().all(|note| is_plain(&note.place) && is_plain(&note.text)));
            }
            Err(ImportError::Refused(why)) => panic!("{why}"),
            Err(_) => {}
        }
    }
}

/// A fixture with some of its parts removed, repeated or replaced.
fn mutated() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        "[ -~]{0,12}",
        Just("\"".into()),
        Just("{".into()),
        Just("}".into()),
        Just("null".into()),
        Just("<target a>".into()),
        Just("\u{0}é".into())
    ];
    let change = (any::<prop::sample::Index>(), 0_usize..60, word);
    let base = prop::sample::select(vec![LIO, TGT, TGT_DUMP, CTL]);
    (base, prop::collection::vec(change, 1..6)).prop_map(|(base, changes)| {
        let mut text: Vec<char> = base.chars().collect();
        for (at, length, word) in changes {
            let start = at.index(text.len() + 1);
            let end = (start + length).min(text.len());
            text.splice(start..end, word.chars());
        }
        text.into_iter().collect()
    })
}

/// LIO's file with one value replaced: it stays JSON.
fn other_values() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("null"),
        Just("-1"),
        Just("true"),
        Just("\"\""),
        Just("[]"),
        Just("{}"),
        Just("[[1]]"),
        Just("1e300"),
        Just("99999999999"),
        Just("\"iqn.a:b\"")
    ];
    let change = (any::<prop::sample::Index>(), value);
    prop::collection::vec(change, 1..8).prop_map(|changes| {
        let mut lines: Vec<String> = LIO.lines().map(str::to_owned).collect();
        for (at, value) in changes {
            let line = at.get_mut(&mut lines[..]);
            if let Some((key, old)) = line.split_once(": ").filter(|(_, old)| !old.ends_with(['{', '['])) {
                let comma = if old.ends_with(',') { "," } else { "" };
                *line = format!("{key}: {value}{comma}");
            }
        }
        lines.join("\n")
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_text_panics(text in any::<String>()) {
        import_all(&text);
    }

    #[test]
    fn no_mutated_file_panics_or_gives_a_refused_one(text in mutated()) {
        import_all(&text);
    }

    #[test]
    fn no_other_value_gives_a_refused_file(text in other_values()) {
        prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
        import_all(&text);
    }
}
