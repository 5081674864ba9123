//! tgt's `targets.conf`, and what `tgt-admin --dump` prints.
//!
//! The syntax is that of Perl's Config::General: blocks, keys and values, comments after `#` and between `/*` and `*/`.
//! tgt-admin numbers targets in the order of their names, and disks without a number in the order of their paths. tgtd makes
//! the names of a disk of these two numbers (`usr/spc.c`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::IpNet;
use iscsi::login::is_iscsi_name;

use crate::disks::{Backing, Disk, Disks, cut, is_device, path_store};
use crate::notes::Notes;
use crate::portals::bare_ip;
use crate::rules::{self, Credential, Demands, Initiator, User};
use crate::written::{self, Target};
use crate::{DEPTH_MAX, ImportError, Imported};

/// What `tgt-admin --dump` prints in place of a secret, which is no secret at all.
const NO_SECRET: &str = "PLEASE_CORRECT_THE_PASSWORD";

/// A key with its value.
#[derive(Clone)]
struct Entry {
    line: usize,
    key: String,
    value: String,
}

/// A block: `<kind name> ... </kind>`.
#[derive(Default)]
struct Block {
    line: usize,
    kind: String,
    name: String,
    entries: Vec<Entry>,
    blocks: Vec<Block>,
}

impl Block {
    fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |entry| entry.key == key)
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.entries.iter().rfind(|entry| entry.key == key).map(|entry| entry.value.as_str())
    }

    fn has_include(&self) -> bool {
        self.entries.iter().any(is_include)
    }
}

fn is_include(entry: &Entry) -> bool {
    matches!(entry.key.to_ascii_lowercase().as_str(), "include" | "includeoptional")
}

/// Settings of a disk. Those of a target are the defaults of its disks.
const DISK_KEYS: &[&str] = &[
    "allow-in-use",
    "block-size",
    "bs-type",
    "bsoflags",
    "bsopts",
    "device-type",
    "la_lba",
    "lbppbe",
    "lun",
    "mode_page",
    "online",
    "optimal_xfer_gran",
    "optimal_xfer_len",
    "params",
    "path",
    "product_id",
    "product_rev",
    "readonly",
    "removable",
    "scsi_id",
    "scsi_sn",
    "sense_format",
    "vendor_id",
    "write-cache",
];

/// Settings of a target that are read.
const TARGET_KEYS: &[&str] = &[
    "backing-store",
    "controller_tid",
    "direct-store",
    "driver",
    "incominguser",
    "initiator-address",
    "initiator-name",
    "outgoinguser",
    "state",
];

pub(crate) fn import(text: &str) -> Result<Imported, ImportError> {
    let root = parse(text)?;
    let mut notes = Notes::default();
    let is_dump = is_dump(text, &root);
    if is_dump {
        notes.add(
            "the file",
            "it is a dump, which has neither the numbers of targets and disks nor names and block lengths: disks are numbered from 1 and have names of their own, so hosts see other disks. Import targets.conf, or add them as `tgtadm --mode target --op show` prints them",
        );
    }
    let default_driver = root.value("default-driver").unwrap_or("iscsi");
    for entry in &root.entries {
        let place = format!("line {}", entry.line);
        match entry.key.as_str() {
            "default-driver" => {}
            _ if is_include(entry) => notes.add(
                &place,
                format!(
                    "'{} {}' is not followed: import these files too; what they add to targets of this file, rules among it, is missing",
                    entry.key, entry.value
                ),
            ),
            "incomingdiscoveryuser" | "outgoingdiscoveryuser" => notes.add(
                &place,
                format!(
                    "'{}' is not mapped: an initiator discovers a target with the credentials that it logs in with, and without any a target that demands none",
                    entry.key
                ),
            ),
            key => notes.add(&place, format!("'{key}' is not mapped")),
        }
    }
    let discovery = root.all("incomingdiscoveryuser").next().is_some();
    let mut named: BTreeMap<&str, Vec<&Block>> = BTreeMap::new();
    for block in &root.blocks {
        if block.kind == "target" {
            named.entry(&block.name).or_default().push(block);
        } else {
            notes.add(
                &format!("line {}", block.line),
                format!("the block <{}> is not mapped: it is not known", block.kind),
            );
        }
    }
    let (mut disks, mut accounts, mut targets, mut next_tid) =
        (Disks::default(), BTreeMap::new(), Vec::new(), 0_u32);
    for (name, blocks) in named {
        let block = merged(name, &blocks);
        let place = format!("target {name}");
        // As tgt-admin counts.
        next_tid = next_tid.wrapping_add(1);
        if let Some(text) = block.value("controller_tid") {
            match text.parse() {
                Ok(tid) => next_tid = tid,
                Err(_) => {
                    notes
                        .add(&place, format!("controller_tid '{text}' is not a number; {next_tid} is taken"));
                }
            }
        }
        let driver = block.value("driver").unwrap_or(default_driver);
        if driver != "iscsi" {
            notes.add(
                &place,
                format!("left out: its driver is '{driver}', and only iSCSI over TCP is served"),
            );
            continue;
        }
        if block.value("state").is_some_and(|state| state != "ready") {
            notes.add(&place, "left out: its state is not 'ready'");
            continue;
        }
        let mut rules = admission(&place, &block, discovery, &mut accounts, &mut notes);
        if root.has_include() && matches!(rules, rules::Rules::Open) {
            let why = "the file includes others, which may hold rules for it; insert them and import again";
            rules = rules::nobody(&place, why, &mut notes);
        }
        let own = target_disks(&place, &block, (!is_dump).then_some(next_tid), &mut disks, &mut notes);
        targets.push(Target { place, iqn: name.to_owned(), groups: None, disks: own, rules });
    }
    if !targets.is_empty() {
        notes.add(
            "portal 0.0.0.0:3260",
            "tgt's portals are options of tgtd (--iscsi portal=), not of the file; this is its default for IPv4. Change it to what tgtd listens on",
        );
        if !is_dump {
            notes.add(
                "the file",
                "the names of disks follow from the numbers that tgt-admin gives targets and disks when tgtd starts; compare them with `tgtadm --mode target --op show` before a host uses them, since under the name of another disk it would be written to as that",
            );
        }
    }
    let portals = [((Ipv4Addr::UNSPECIFIED, 3260).into(), 1)];
    let portals = if targets.is_empty() { &portals[..0] } else { &portals };
    written::file("tgt's targets.conf", portals, targets, notes)
}

/// Joins the blocks of one target, as tgt-admin does.
fn merged(name: &str, blocks: &[&Block]) -> Block {
    let mut all = Block { name: name.to_owned(), kind: "target".to_owned(), ..Block::default() };
    for block in blocks {
        all.entries.extend(block.entries.iter().cloned());
        for inner in &block.blocks {
            all.blocks.push(Block {
                line: inner.line,
                kind: inner.kind.clone(),
                name: inner.name.clone(),
                entries: inner.entries.clone(),
                blocks: Vec::new(),
            });
        }
    }
    all
}

/// Returns the rules of a target. An initiator must match an address and, where there are names, a name (`ip_acl` and
/// `iqn_acl` of `usr/iscsi/target.c`). Without addresses tgt-admin admits all.
fn admission(
    place: &str,
    block: &Block,
    discovery: bool,
    accounts: &mut BTreeMap<String, String>,
    notes: &mut Notes,
) -> rules::Rules {
    for entry in &block.entries {
        let key = entry.key.as_str();
        if !TARGET_KEYS.contains(&key) && !DISK_KEYS.contains(&key) && !is_include(entry) {
            notes.add(place, format!("'{key}' (line {}) is not mapped", entry.line));
        }
    }
    if block.has_include() {
        return rules::nobody(
            place,
            "it includes a file, which is not followed and may hold rules; insert the file and import again",
            notes,
        );
    }
    let mut users = Vec::new();
    let mut must_authenticate = false;
    for entry in block.all("incominguser") {
        must_authenticate = true;
        if let Some(credential) = credential(place, entry, accounts, notes) {
            users.push(User { credential, initiators: None, mutual: None });
        }
    }
    let mut mutual = None;
    for (index, entry) in block.all("outgoinguser").enumerate() {
        if index == 0 {
            mutual = credential(place, entry, accounts, notes);
        } else {
            notes.add(
                place,
                format!("a further outgoinguser (line {}) is left out: tgt uses the first", entry.line),
            );
        }
    }
    let given: Vec<&Entry> = block.all("initiator-address").collect();
    let is_every = given.is_empty() || given.iter().any(|entry| entry.value == "ALL");
    if is_every && given.len() > 1 {
        notes.add(place, "initiator-address ALL admits every address; its other addresses have no effect");
    }
    let addresses = (!is_every).then(|| {
        let mut written = Vec::new();
        for entry in given {
            match network(&entry.value) {
                Ok(text) => written.push(text),
                Err(why) => {
                    notes.add(place, format!("initiator-address '{}' is left out: {why}", entry.value));
                }
            }
        }
        written
    });
    let names: Vec<&Entry> = block.all("initiator-name").collect();
    for entry in &names {
        let text = entry.value.as_str();
        if !is_iscsi_name(text)
            && (text == "ALL" || text.starts_with(|c: char| c.is_ascii_digit() || c == '['))
        {
            notes.add(
                place,
                format!("initiator-name '{text}' matches no name. A dump writes some addresses so: write initiator-address instead, and import again"),
            );
        }
    }
    let listed = names.iter().map(|entry| Initiator { name: entry.value.clone(), luns: None });
    let initiators = (!names.is_empty()).then(|| listed.collect());
    rules::rules(
        place,
        Demands { must_authenticate, discovery, users, mutual, initiators, addresses, reserved: Vec::new() },
        notes,
    )
}

/// Reads a user's name and secret.
fn credential(
    place: &str,
    entry: &Entry,
    accounts: &mut BTreeMap<String, String>,
    notes: &mut Notes,
) -> Option<Credential> {
    let words: Vec<&str> = entry.value.split_whitespace().collect();
    let [name, secret] = words[..] else {
        notes.add(
            place,
            format!(
                "{} (line {}) is left out: write a name and a secret without spaces",
                entry.key, entry.line
            ),
        );
        return None;
    };
    if secret == NO_SECRET {
        notes.add(
            place,
            format!("{} '{name}' (line {}) is left out: a dump does not contain its secret; write it, and import again", entry.key, entry.line),
        );
        return None;
    }
    if secret.contains('"') || name.contains('"') {
        notes.add(
            place,
            format!(
                "the quotation marks of {} '{name}' (line {}) belong to it, as for tgt",
                entry.key, entry.line
            ),
        );
    }
    let first = accounts.entry(name.to_owned()).or_insert_with(|| secret.to_owned());
    if first != secret {
        notes.add(
            place,
            format!("the account '{name}' has another secret (line {}) than in a target before it; tgt used the first for both", entry.line),
        );
    }
    Some(Credential { name: name.to_owned(), secret: secret.to_owned() })
}

/// Reads an address or a network as tgtd matches it: a network with bits behind its length, or of all bits, matches nothing.
fn network(text: &str) -> Result<String, String> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let ip = bare_ip(address).ok_or_else(|| "it is not a numeric address".to_owned())?;
    let Some(length) = length else { return Ok(ip.to_string()) };
    let never = |why: &str| format!("tgt matches no initiator with it, {why}");
    if length.starts_with('0') || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("write the length of the network as a decimal number from 1".to_owned());
    }
    let length: u8 = length.parse().map_err(|_| "its length is not a number of bits".to_owned())?;
    if length > if ip.is_ipv4() { 31 } else { 127 } {
        return Err(never("since its length is too large; leave it away for one address"));
    }
    let network = IpNet::new(ip, length).map_err(|error| error.to_string())?;
    if ip.is_ipv4() && network.network() != ip {
        return Err(never(&format!(
            "since bits behind its length are set; {} may be meant",
            network.trunc()
        )));
    }
    Ok(network.trunc().to_string())
}

/// A disk of a target.
struct Store<'a> {
    path: &'a str,
    is_direct: bool,
    own: Block,
}

/// Returns the disks of a target.
fn target_disks(
    place: &str,
    block: &Block,
    tid: Option<u32>,
    disks: &mut Disks,
    notes: &mut Notes,
) -> BTreeMap<u16, Disk> {
    // In the order in which tgt-admin takes them: by path. A dump has the order of their numbers.
    let mut stores: BTreeMap<(bool, usize, &str), Block> = BTreeMap::new();
    for (is_direct, key) in [(false, "backing-store"), (true, "direct-store")] {
        for entry in block.all(key) {
            stores.entry((is_direct, if tid.is_none() { entry.line } else { 0 }, &entry.value)).or_default();
        }
        for inner in block.blocks.iter().filter(|inner| inner.kind == key) {
            stores
                .entry((is_direct, 0, &inner.name))
                .or_default()
                .entries
                .extend(inner.entries.iter().cloned());
        }
    }
    for inner in &block.blocks {
        if inner.kind != "backing-store" && inner.kind != "direct-store" {
            notes.add(
                place,
                format!("the block <{}> (line {}) is not mapped: it is not known", inner.kind, inner.line),
            );
        }
    }
    let reserved: BTreeSet<u64> =
        stores.values().filter_map(|own| own.value("lun").and_then(|text| text.parse().ok())).collect();
    let mut found = BTreeMap::new();
    let (mut taken, mut next) = (BTreeSet::new(), 1_u64);
    for ((is_direct, _, path), own) in stores {
        let path_place = format!("{place}, {path}");
        let given = block.value("lun").or_else(|| own.value("lun"));
        let lun: u64 = match given.map(str::parse) {
            Some(Ok(lun)) => lun,
            Some(Err(_)) => {
                notes.add(&path_place, "left out: its LUN is not a number");
                continue;
            }
            None => {
                // What is taken stays so: the search never has to go back.
                while reserved.contains(&next) || taken.contains(&next) {
                    next += 1;
                }
                next
            }
        };
        let place = format!("{place}, LUN {lun}");
        let number = u16::try_from(lun).ok().filter(|number| (1..=255).contains(number));
        let Some(number) = number.filter(|_| !taken.contains(&lun)) else {
            notes.add(
                &place,
                format!("{path} is left out: the number must be from 1 to 255, and no other disk's"),
            );
            continue;
        };
        taken.insert(lun);
        let store = Store { path, is_direct, own };
        if let Some(disk) = disk(&place, &store, block, (tid, number), disks, notes) {
            found.insert(number, disk);
        }
    }
    found
}

/// Returns a disk, unless it cannot be served.
fn disk(
    place: &str,
    store: &Store<'_>,
    target: &Block,
    (tid, lun): (Option<u32>, u16),
    disks: &mut Disks,
    notes: &mut Notes,
) -> Option<Disk> {
    let Store { path, is_direct, own } = store;
    let value = |key: &str| own.value(key).or_else(|| target.value(key));
    let mut options = String::new();
    for entry in own.entries.iter().filter(|entry| !DISK_KEYS.contains(&entry.key.as_str())) {
        notes.add(place, format!("'{}' (line {}) is not mapped", entry.key, entry.line));
    }
    let kind = value("device-type").unwrap_or("disk");
    if kind != "disk" {
        notes.add(place, format!("left out: it is a '{kind}', and only disks are served"));
        return None;
    }
    if value("online").is_some_and(|online| online != "1") {
        notes.add(place, "left out: it is not online");
        return None;
    }
    match value("bs-type").unwrap_or("rdwr") {
        "rdwr" => {}
        "aio" => options.push_str(",direct"),
        other => {
            notes.add(
                place,
                format!("left out: bs-type '{other}' is not served, only files and block devices"),
            );
            return None;
        }
    }
    match value("block-size") {
        Some("4096") => options.push_str(",bs=4k"),
        // A direct-store has the blocks of its device; other disks have 512 bytes by default.
        None if *is_direct => {}
        None | Some("512") => options.push_str(",bs=512"),
        Some(other) => {
            notes.add(
                place,
                format!(
                    "left out: its logical block length is '{other}', and only 512 and 4096 bytes are served"
                ),
            );
            return None;
        }
    }
    let flags = value("bsoflags").unwrap_or_default();
    if flags.split([',', ' ']).any(|flag| flag == "direct") && !options.contains(",direct") {
        options.push_str(",direct");
    }
    if flags.split([',', ' ']).any(|flag| flag == "sync") {
        notes.add(place, "bsoflags sync is not mapped: a write is durable once it is flushed");
    }
    if flags.split([',', ' ']).any(|flag| !matches!(flag, "" | "direct" | "sync")) {
        notes.add(place, format!("bsoflags '{flags}' is not mapped"));
    }
    let is_read_only = value("readonly").is_some_and(|text| text != "0");
    if is_read_only {
        options.push_str(",readonly");
    }
    if value("removable").is_some_and(|text| text != "0") {
        options.push_str(",removable");
    }
    match value("write-cache") {
        None | Some("on") => {}
        Some("off") => notes.add(
            place,
            "write-cache off is not mapped: the disk reports a volatile write cache, which initiators can switch off",
        ),
        Some(other) => notes.add(place, format!("write-cache '{other}' is not mapped: tgt does not know it")),
    }
    if value("allow-in-use").is_some_and(|text| text == "yes") {
        notes.add(place, "allow-in-use is not mapped: the target refuses a file or device that is in use; add shared=yes by hand if its users coordinate");
    }
    let unmapped = [
        "bsopts",
        "la_lba",
        "lbppbe",
        "mode_page",
        "optimal_xfer_gran",
        "optimal_xfer_len",
        "params",
        "path",
        "sense_format",
    ];
    for key in unmapped.into_iter().filter(|key| value(key).is_some()) {
        notes.add(place, format!("'{key}' is not mapped"));
    }
    if *is_direct {
        notes.add(
            place,
            "a direct-store shows vendor, product, revision and serial number of its device; those that the file does not state must be added by hand, to keep its names",
        );
    }
    let default = |text: &str| (!is_direct).then(|| text.to_owned());
    let given = |key: &str, most: usize| value(key).map(|text| cut(text, most));
    let vendor = given("vendor_id", 8).or_else(|| default("IET"));
    let scsi_id: Option<String> = value("scsi_id")
        .map(|text| text.chars().take(36).collect())
        .or_else(|| tid.map(|tid| format!("IET     {tid:04x}{lun:04x}")));
    let t10 = scsi_id.as_deref().and_then(|id| t10(id, vendor.as_deref().unwrap_or_default()));
    if let Some(id) = scsi_id.as_ref().filter(|_| t10.is_none()) {
        notes.add(
            place,
            format!("its T10 identifier '{id}' is not kept, since it does not begin with the vendor; its NAA identifier is"),
        );
    }
    let disk = Disk {
        store: path_store(path, None, &options),
        serial: given("scsi_sn", 36).or_else(|| tid.and_then(|tid| default(&format!("beaf{tid}{lun}")))),
        naa: scsi_id.as_deref().map(naa),
        t10,
        vendor,
        product: given("product_id", 16).or_else(|| default("VIRTUAL-DISK")),
        revision: given("product_rev", 4).or_else(|| default("0001")),
    };
    if !is_device(path) {
        notes.add(
            place,
            format!("{path} is taken to be a file; for a block device, write dev: in place of file:"),
        );
    }
    disks.accept(place, disk, &Backing { path: Some(path), is_read_only }, notes)
}

/// Returns whether `tgt-admin --dump` printed this.
fn is_dump(text: &str, root: &Block) -> bool {
    let keys =
        ["backing-store", "driver", "incominguser", "initiator-address", "initiator-name", "outgoinguser"];
    let is_printed = |block: &Block| {
        block.blocks.is_empty() && block.entries.iter().all(|entry| keys.contains(&entry.key.as_str()))
    };
    let is_line = |line: &str| {
        line.is_empty()
            || line.starts_with('\t')
            || line.starts_with("default-driver ")
            || line.starts_with("<target ")
            || line == "</target>"
    };
    let has_no_secret = |block: &Block| block.entries.iter().any(|entry| entry.value.ends_with(NO_SECRET));
    let is_whole = text.lines().all(is_line)
        && text.matches("</target>\n\n").count() == root.blocks.len()
        && root.blocks.iter().all(is_printed);
    root.blocks.iter().any(has_no_secret) || (is_whole && !root.blocks.is_empty())
}

/// Returns the vendor specific part of the T10 identifier, where its first eight characters are the vendor.
fn t10(scsi_id: &str, vendor: &str) -> Option<String> {
    let rest = scsi_id.strip_prefix(&format!("{vendor:<8}"))?;
    (!rest.is_empty()).then(|| rest.to_owned())
}

/// Makes the NAA identifier of a SCSI identifier as tgtd does: its characters as hexadecimal digits, others as 0, to the right of
/// a 6.
fn naa(scsi_id: &str) -> String {
    let shift = |value: u128, c: char| (value << 4) | u128::from(c.to_digit(16).unwrap_or_default());
    format!("{:032x}", scsi_id.chars().fold(0, shift) | (6 << 124))
}

/// Parses a file.
fn parse(text: &str) -> Result<Block, ImportError> {
    let error = |line: usize, what: String| ImportError::Syntax { line, what };
    let mut open = vec![Block::default()];
    let (mut is_comment, mut joined) = (false, String::new());
    let mut joined_line = 0;
    for (index, raw) in text.lines().enumerate() {
        let number = index + 1;
        let Some(line) = without_comments(raw, &mut is_comment) else { continue };
        if joined.is_empty() {
            joined_line = number;
        }
        if line.ends_with('\\') && !line.ends_with("\\\\") {
            joined.push_str(line[..line.len() - 1].trim_start());
            continue;
        }
        joined.push_str(if joined.is_empty() { &line } else { line.trim_start() });
        let whole = std::mem::take(&mut joined);
        let (line, number) = (whole.trim(), joined_line);
        if line.is_empty() {
            continue;
        }
        if line.starts_with("<<") {
            let file = line.trim_start_matches('<').trim_end_matches('>').trim();
            let (key, value) = file.split_once(char::is_whitespace).unwrap_or((file, ""));
            if !key.eq_ignore_ascii_case("include") {
                return Err(error(number, format!("'{line}' is not a block; write <target NAME>")));
            }
            let entry = Entry { line: number, key: "include".to_owned(), value: value.trim().to_owned() };
            open.last_mut().into_iter().for_each(|block| block.entries.push(entry.clone()));
            continue;
        }
        let Some(tag) = line.strip_prefix('<') else {
            let entry = entry(line, number)?;
            open.last_mut().into_iter().for_each(|block| block.entries.push(entry.clone()));
            continue;
        };
        let Some(tag) = tag.strip_suffix('>') else {
            return Err(error(number, "a block's line ends with '>'; close it".to_owned()));
        };
        if let Some(kind) = tag.strip_prefix('/') {
            let block = open.pop().unwrap_or_default();
            let Some(outer) = open.last_mut().filter(|_| block.kind == kind.trim()) else {
                return Err(error(
                    number,
                    format!("</{kind}> closes no block that is open; remove it, or open its block"),
                ));
            };
            outer.blocks.push(block);
            continue;
        }
        let (tag, is_empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (kind, name) = tag.trim().split_once(char::is_whitespace).unwrap_or((tag.trim(), ""));
        let name = name.trim();
        let name = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(name);
        let block = Block { line: number, kind: kind.to_owned(), name: name.to_owned(), ..Block::default() };
        if is_empty {
            open.last_mut().into_iter().for_each(|outer| {
                outer.blocks.push(Block {
                    line: block.line,
                    kind: block.kind.clone(),
                    name: block.name.clone(),
                    ..Block::default()
                });
            });
        } else if open.len() > DEPTH_MAX {
            return Err(error(
                number,
                "too many blocks within each other; a target has blocks of disks only".to_owned(),
            ));
        } else {
            open.push(block);
        }
    }
    if !joined.is_empty() {
        return Err(error(joined_line, "the last line ends with '\\'; remove it".to_owned()));
    }
    let root = open.pop().unwrap_or_default();
    if !open.is_empty() {
        return Err(error(root.line, format!("<{}> is not closed; add </{}>", root.kind, root.kind)));
    }
    Ok(root)
}

/// Returns a line without its comments; `None`: it is within one.
fn without_comments(line: &str, is_comment: &mut bool) -> Option<String> {
    let mut line = line.to_owned();
    let start = line.find("/*");
    let within =
        start.and_then(|start| line[start + 2..].rfind("*/").map(|end| (start, start + 2 + end + 2)));
    if let Some((start, end)) = within {
        line = format!("{}{}", line[..start].trim_end(), line[end..].trim_start());
    } else if line.trim_start().starts_with("/*") {
        *is_comment = true;
    } else if *is_comment && let Some(end) = line.find("*/") {
        *is_comment = false;
        line.drain(..end + 2);
    }
    if *is_comment {
        return None;
    }
    let is_start = |&(at, _): &(usize, &str)| !line[..at].ends_with('\\');
    if let Some((at, _)) = line.match_indices('#').find(is_start) {
        line.truncate(at);
    }
    Some(line)
}

/// Divides a line into key and value.
fn entry(line: &str, number: usize) -> Result<Entry, ImportError> {
    let end = line.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(line.len());
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start();
    let value = rest.strip_prefix('=').unwrap_or(rest).trim();
    if value.starts_with("<<") {
        let what = "values over several lines ('<<') are not read; write the value in one line".to_owned();
        return Err(ImportError::Syntax { line: number, what });
    }
    let value = if value.len() > 1 {
        value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value)
    } else {
        value
    };
    let mut plain = String::new();
    let mut rest = value.chars().peekable();
    while let Some(c) = rest.next() {
        match rest.peek() {
            Some(&next) if c == '\\' && matches!(next, '$' | '\\' | '"' | '#') => {
                plain.push(next);
                rest.next();
            }
            _ => plain.push(c),
        }
    }
    Ok(Entry { line: number, key: key.to_owned(), value: plain })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naa_and_t10_are_those_of_tgtd() {
        // As tgtd 1.0.85 answers an INQUIRY.
        assert_eq!(naa("IET     00010004"), "60000000000000000e00000000010004");
        assert_eq!(t10("IET     00010004", "IET").as_deref(), Some("00010004"));
        assert_eq!(t10("CUSTOM-ID", "ACME"), None);
    }

    #[test]
    fn values_are_read_as_perl_reads_them() {
        let text = "key1 a#b\nkey2 a #b\nkey3 a\\#b\nkey4 = \"quoted # value\"\nkey5 \"x y\"\n/* c\n more */\nkey6 one \\\n two\n\
            include /etc/tgt/conf.d/*.conf\nkey7=b\nkey8 a /* c */\n";
        let root = parse(text).expect("a file");
        let values: Vec<&str> = root.entries.iter().map(|entry| entry.value.as_str()).collect();
        assert_eq!(
            values,
            ["a", "a", "a#b", "\"quoted", "x y", "one two", "/etc/tgt/conf.d/*.conf", "b", "a"]
        );
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line) in [
            ("\n<target a>\n", 2),
            ("</target>", 1),
            ("<target a>\n</targets>", 2),
            ("<target a", 1),
            ("a <<EOF", 1),
            ("a b\\", 1),
            (&"<a>\n".repeat(20), 9),
        ] {
            let error = import(text).expect_err(text);
            assert!(matches!(error, ImportError::Syntax { line: at, .. } if at == line), "{error}");
        }
    }

    #[test]
    fn networks_are_matched_as_tgtd_matches_them() {
        assert_eq!(network("192.0.2.0/24").as_deref(), Ok("192.0.2.0/24"));
        assert_eq!(network("[2001:db8::1]").as_deref(), Ok("2001:db8::1"));
        assert_eq!(network("[2001:db8::1]/64").as_deref(), Ok("2001:db8::/64"));
        for text in
            ["192.0.2.1/24", "192.0.2.1/32", "0.0.0.0/0", "192.0.2.0/024", "host", "192.0.2.0/255.255.255.0"]
        {
            assert!(network(text).is_err(), "{text}");
        }
    }
}
