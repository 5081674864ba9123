//! FreeBSD's `ctl.conf`, in its traditional syntax of curly braces.
//!
//! A target of ctld may have rules of its own for each portal group. A target of ours has one set, so only portal groups with the
//! rules of the first one are kept.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;

use crate::disks::{Backing, Disk, Disks, cut, is_device, path_store};
use crate::notes::Notes;
use crate::portals::{self, Portals, bare_ip};
use crate::rules::{self, Credential, Demands, Initiator, Rules, User};
use crate::written::{self, Target};
use crate::{DEPTH_MAX, ImportError, Imported};

/// The statements with the numbers of their arguments.
const STATEMENTS: &[(&str, usize)] = &[
    ("alias", 1),
    ("auth-group", 1),
    ("auth-type", 1),
    ("backend", 1),
    ("blocksize", 1),
    ("chap", 2),
    ("chap-mutual", 4),
    ("ctl-lun", 1),
    ("debug", 1),
    ("device-id", 1),
    ("device-type", 1),
    ("discovery-auth-group", 1),
    ("discovery-filter", 1),
    ("dscp", 1),
    ("foreign", 0),
    ("initiator-name", 1),
    ("initiator-portal", 1),
    ("isns-period", 1),
    ("isns-server", 1),
    ("isns-timeout", 1),
    ("listen", 1),
    ("listen-iser", 1),
    ("lun", 1),
    ("maxproc", 1),
    ("offload", 1),
    ("option", 2),
    ("path", 1),
    ("pcp", 1),
    ("pidfile", 1),
    ("port", 1),
    ("portal-group", 1),
    ("redirect", 1),
    ("serial", 1),
    ("size", 1),
    ("tag", 1),
    ("target", 1),
    ("timeout", 1),
];

/// The statements with a block.
const BLOCKS: &[&str] = &["auth-group", "lun", "portal-group", "target"];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A word, and whether it stood in quotation marks.
    Word(String, bool),
    Open,
    Close,
    End,
}

/// A statement with its arguments and, in braces, its block.
#[derive(Debug)]
struct Statement {
    line: usize,
    key: String,
    arguments: Vec<String>,
    block: Option<Vec<Statement>>,
}

impl Statement {
    fn argument(&self, index: usize) -> &str {
        self.arguments.get(index).map_or("", String::as_str)
    }

    fn block(&self) -> &[Statement] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// How initiators authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    None,
    Deny,
    Chap,
    Mutual,
}

/// A group of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AuthGroup {
    /// `None`: it says nothing, and admits nobody.
    kind: Option<Kind>,
    users: Vec<(Credential, Option<Credential>)>,
    names: Vec<String>,
    addresses: Vec<String>,
    /// Why it cannot be written.
    wrong: Option<String>,
}

/// A portal group.
#[derive(Clone, Debug, Default)]
struct PortalGroup {
    listens: Vec<SocketAddr>,
    tag: u32,
    discovery: Option<String>,
    /// Why it is not served.
    wrong: Option<&'static str>,
}

pub(crate) fn import(text: &str) -> Result<Imported, ImportError> {
    let tokens = tokens(text)?;
    let mut tokens = Tokens { all: &tokens, at: 0 };
    let statements = tokens.statements(0)?;
    let mut notes = Notes::default();
    let mut groups = BTreeMap::from([
        ("default".to_owned(), AuthGroup::default()),
        ("no-authentication".to_owned(), AuthGroup { kind: Some(Kind::None), ..AuthGroup::default() }),
        ("no-access".to_owned(), AuthGroup { kind: Some(Kind::Deny), ..AuthGroup::default() }),
    ]);
    let every = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 3260));
    let mut portal_groups = BTreeMap::from([(
        "default".to_owned(),
        PortalGroup { listens: vec![every], ..PortalGroup::default() },
    )]);
    let (mut luns, mut nodes): (BTreeMap<&str, &Statement>, Vec<&Statement>) = (BTreeMap::new(), Vec::new());
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for statement in &statements {
        let (key, name) = (statement.key.as_str(), statement.argument(0));
        let place = format!("{key} {name}");
        let is_block = BLOCKS.contains(&key);
        if is_block && statement.block.is_none() {
            return Err(syntax(statement.line, format!("'{key}' needs a block; write {key} NAME {{ ... }}")));
        }
        if is_block && seen.contains(&(key, name)) {
            return Err(syntax(statement.line, format!("{key} '{name}' is given twice; ctld refuses this")));
        }
        seen.push((key, name));
        match key {
            "auth-group" => {
                let mut group = AuthGroup::default();
                for inner in statement.block() {
                    if !group.add(inner) {
                        // It may restrict.
                        group.wrong = Some(format!("its statement '{}' is not known", inner.key));
                    }
                }
                groups.insert(name.to_owned(), group);
            }
            "portal-group" => {
                portal_groups.insert(name.to_owned(), portal_group(&place, statement.block(), &mut notes));
            }
            "lun" => {
                luns.insert(name, statement);
            }
            "target" => nodes.push(statement),
            _ => notes.add(&format!("line {}", statement.line), format!("'{key}' is not mapped")),
        }
    }
    if !portal_groups.contains_key("default") || !seen.contains(&("portal-group", "default")) {
        let is_default = |inner: &Statement| inner.key == "portal-group" && inner.argument(0) == "default";
        let is_used = |node: &&Statement| {
            let mut all = node.block().iter();
            all.any(is_default)
                || !node.block().iter().any(|inner| matches!(inner.key.as_str(), "portal-group" | "port"))
        };
        if nodes.iter().any(is_used) {
            notes.add(
                "portal-group default",
                "it listens on IPv4 only: a portal [::]:3260 would take IPv4 connections as well; add IPv6 addresses by hand. Its number may differ from ctld's; hosts that recorded it must discover it again",
            );
        }
    }
    let (mut portals, mut kept) = (Portals::default(), Vec::new());
    for statement in nodes {
        let Some(node) = Node::of(statement, &groups, &portal_groups, &mut notes) else { continue };
        for group in node.portal_groups.iter().filter_map(|name| portal_groups.get(name)) {
            for listen in &group.listens {
                portals.add(*listen, kept.len(), group.tag);
            }
        }
        kept.push(node);
    }
    let place = |index: usize| kept.get(index).map_or_else(String::new, |node| node.place.clone());
    let grouped = portals.grouped(place, &mut notes);
    let (mut disks, mut targets, mut used) = (Disks::default(), Vec::new(), Vec::new());
    for (index, node) in kept.iter().enumerate() {
        let Some(numbers) = grouped.groups.get(&index) else {
            notes.add(&node.place, "left out: it has no portal");
            continue;
        };
        let own = node.disks(&luns, &mut used, &mut disks, &mut notes);
        targets.push(Target {
            place: node.place.clone(),
            iqn: node.statement.argument(0).to_owned(),
            groups: Some(numbers.clone()),
            disks: own,
            rules: node.rules(&mut notes),
        });
    }
    for name in luns.keys().filter(|name| !used.contains(*name)) {
        notes.add(&format!("lun {name}"), "not used: no imported target serves it");
    }
    if !targets.is_empty() {
        notes.add(
            "the file",
            "paths and device names are FreeBSD's; change them to those of the machine that has the data now",
        );
    }
    written::file("FreeBSD's ctl.conf", &grouped.portals, targets, notes)
}

impl AuthGroup {
    /// Takes a statement of rules; false: it is not one.
    fn add(&mut self, statement: &Statement) -> bool {
        let credential = |at: usize| Credential {
            name: statement.argument(at).to_owned(),
            secret: statement.argument(at + 1).to_owned(),
        };
        let kind = match statement.key.as_str() {
            "auth-type" => match statement.argument(0) {
                "none" => Kind::None,
                "deny" => Kind::Deny,
                "chap" => Kind::Chap,
                "chap-mutual" => Kind::Mutual,
                other => {
                    self.wrong = Some(format!("its auth-type '{other}' is not known"));
                    return true;
                }
            },
            "chap" => {
                self.users.push((credential(0), None));
                Kind::Chap
            }
            "chap-mutual" => {
                self.users.push((credential(0), Some(credential(2))));
                Kind::Mutual
            }
            "initiator-name" => {
                self.names.push(statement.argument(0).to_owned());
                return true;
            }
            "initiator-portal" => {
                match network(statement.argument(0)) {
                    Some(text) => self.addresses.push(text),
                    None => {
                        self.wrong = Some(format!(
                            "its initiator-portal '{}' is not an address or a network",
                            statement.argument(0)
                        ));
                    }
                }
                return true;
            }
            _ => return false,
        };
        if self.kind.is_some_and(|before| before != kind) {
            self.wrong = Some("it mixes types of authentication, which ctld refuses".to_owned());
        }
        self.kind = Some(kind);
        true
    }
}

/// Reads an address or a network of an initiator.
fn network(text: &str) -> Option<String> {
    let (address, length) =
        text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let ip = bare_ip(address)?;
    let Some(length) = length else { return Some(ip.to_string()) };
    // ctld would read a number that begins with 0 as an octal one.
    if length.len() > 1 && length.starts_with('0') {
        return None;
    }
    Some(IpNet::new(ip, length.parse().ok()?).ok()?.trunc().to_string())
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

fn portal_group(place: &str, statements: &[Statement], notes: &mut Notes) -> PortalGroup {
    let mut group = PortalGroup::default();
    for statement in statements {
        let text = statement.argument(0);
        match statement.key.as_str() {
            "listen" => match portals::address(text) {
                Some(listen) if listen.port() == 0 => notes.add(place, format!("its portal '{text}' is left out: it has no port")),
                Some(listen) if listen.is_ipv6() && listen.ip().is_unspecified() => notes.add(
                    place,
                    format!("its portal '{text}' is left out: it would take IPv4 connections as well; name the IPv6 addresses"),
                ),
                Some(listen) if is_link_local(listen.ip()) => notes.add(
                    place,
                    format!("its portal '{text}' is left out: an address of a link needs the interface; name another address"),
                ),
                Some(listen) => group.listens.push(listen),
                None => notes.add(place, format!("its portal '{text}' is left out: it is not a numeric address")),
            },
            "listen-iser" => notes.add(place, format!("its portal '{text}' is left out: it is one of iSER (RDMA)")),
            "tag" => match number(text).and_then(|tag| u32::try_from(tag).ok()) {
                Some(tag) => group.tag = tag,
                None => notes.add(place, format!("its tag '{text}' is not a number, and is not kept")),
            },
            "discovery-auth-group" => group.discovery = Some(text.to_owned()),
            "discovery-filter" if text == "portal-name-auth" => {}
            "discovery-filter" => notes.add(
                place,
                format!("discovery-filter {text} is not mapped: an initiator discovers the targets that it may use"),
            ),
            "redirect" => group.wrong = Some("it redirects logins; write moved = { address = ... } for its portals by hand"),
            "foreign" => group.wrong = Some("it is served by another node"),
            key => notes.add(place, format!("'{key}' (line {}) is not mapped", statement.line)),
        }
    }
    if let Some(wrong) = group.wrong {
        notes.add(place, format!("left out: {wrong}"));
        group.listens.clear();
    } else if group.tag == 0 {
        notes.add(place, "ctld numbers it when it starts, and the number may differ here; hosts that recorded it must discover it again");
    }
    group
}

/// A target that is kept.
struct Node<'a> {
    place: String,
    statement: &'a Statement,
    portal_groups: Vec<String>,
    group: AuthGroup,
    /// Discovery sessions authenticate.
    discovery: bool,
}

impl<'a> Node<'a> {
    fn of(
        statement: &'a Statement,
        groups: &BTreeMap<String, AuthGroup>,
        portal_groups: &BTreeMap<String, PortalGroup>,
        notes: &mut Notes,
    ) -> Option<Self> {
        let place = format!("target {}", statement.argument(0));
        let unknown = |name: &str| AuthGroup {
            wrong: Some(format!("there is no auth-group '{name}'")),
            ..AuthGroup::default()
        };
        let named = |name: &str| groups.get(name).cloned().unwrap_or_else(|| unknown(name));
        let (mut own, mut has_own, mut reference) = (AuthGroup::default(), false, None);
        let (mut links, mut has_port) = (Vec::new(), false);
        for inner in statement.block() {
            let text = inner.argument(0);
            match inner.key.as_str() {
                "lun" => {}
                "alias" => notes.add(&place, format!("its alias '{text}' is not mapped")),
                "auth-group" if reference.is_some() => {
                    own.wrong = Some("it has several auth-groups, which ctld refuses".to_owned());
                }
                "auth-group" => reference = Some(text),
                "portal-group" => links.push((text, inner.arguments.get(1).map(String::as_str))),
                "port" => {
                    has_port = true;
                    notes.add(&place, format!("its port '{text}' is left out: only iSCSI is served"));
                }
                "redirect" => {
                    notes.add(&place, "left out: it redirects initiators to another target");
                    return None;
                }
                _ if own.add(inner) => has_own = true,
                // It may restrict.
                key => own.wrong = Some(format!("its statement '{key}' (line {}) is not known", inner.line)),
            }
        }
        if has_own && reference.is_some() {
            own.wrong = Some("it has an auth-group and rules of its own, which ctld refuses".to_owned());
        }
        let group = match reference {
            Some(name) if own.wrong.is_none() => named(name),
            None if !has_own && own.wrong.is_none() => named("default"),
            _ => own,
        };
        if links.is_empty() {
            if has_port {
                notes.add(&place, "left out: it has no portal group");
                return None;
            }
            links.push(("default", None));
        }
        // What restricts the target in a way that is not known restricts it through every portal group.
        let effective = |link: &(&str, Option<&str>)| {
            link.1.filter(|_| group.wrong.is_none()).map_or_else(|| group.clone(), named)
        };
        let first = effective(&links[0]);
        let (mut kept, mut discovery) = (Vec::new(), false);
        for link in &links {
            let Some(portals) = portal_groups.get(link.0) else {
                notes.add(&place, format!("there is no portal-group '{}'", link.0));
                continue;
            };
            if effective(link) != first {
                notes.add(
                    &place,
                    format!("its portal-group '{}' is left out: it has another auth-group, and a target has one set of rules", link.0),
                );
                continue;
            }
            kept.push(link.0.to_owned());
            let how = named(portals.discovery.as_deref().unwrap_or("default"));
            if how.kind == Some(Kind::None) && how.wrong.is_none() {
                if !how.names.is_empty() || !how.addresses.is_empty() {
                    notes.add(&place, format!("the names and addresses of discovery through '{}' are not mapped: an initiator discovers the targets that it may use", link.0));
                }
                continue;
            }
            discovery = true;
            let is_denied = how.wrong.is_some() || matches!(how.kind, None | Some(Kind::Deny));
            let text = if is_denied {
                "is refused by ctld; here an initiator that may use the target discovers it"
            } else {
                "has users of its own, which are not mapped; an initiator discovers the target with the credentials that it logs in with, if it needs any"
            };
            notes.add(&place, format!("discovery through '{}' {text}", link.0));
        }
        Some(Self { place, statement, portal_groups: kept, group: first, discovery })
    }

    /// Returns its rules.
    fn rules(&self, notes: &mut Notes) -> Rules {
        let Self { place, group, discovery, .. } = self;
        if let Some(wrong) = &group.wrong {
            return rules::nobody(place, wrong, notes);
        }
        let kind = match group.kind {
            None => {
                return rules::nobody(
                    place,
                    "its auth-group has no type, or it has none, and ctld denies access",
                    notes,
                );
            }
            Some(Kind::Deny) => return rules::nobody(place, "its auth-group denies access", notes),
            Some(kind) => kind,
        };
        let users = group.users.iter().map(|(credential, mutual)| User {
            credential: credential.clone(),
            initiators: None,
            mutual: mutual.clone(),
        });
        let listed = group.names.iter().map(|name| Initiator { name: name.clone(), luns: None });
        let demands = Demands {
            must_authenticate: kind != Kind::None,
            discovery: *discovery,
            users: users.collect(),
            mutual: None,
            initiators: (!group.names.is_empty()).then(|| listed.collect()),
            addresses: (!group.addresses.is_empty()).then(|| group.addresses.clone()),
            reserved: Vec::new(),
        };
        rules::rules(place, demands, notes)
    }

    /// Returns its disks.
    fn disks<'b>(
        &self,
        luns: &BTreeMap<&'b str, &'b Statement>,
        used: &mut Vec<&'b str>,
        disks: &mut Disks,
        notes: &mut Notes,
    ) -> BTreeMap<u16, Disk> {
        let mut found = BTreeMap::new();
        for inner in self.statement.block().iter().filter(|inner| inner.key == "lun") {
            let text = inner.argument(0);
            let place = format!("{}, LUN {text}", self.place);
            let Some(number) =
                number(text).and_then(|number| u16::try_from(number).ok()).filter(|&number| number <= 255)
            else {
                notes.add(&place, "left out: LUNs are numbered from 0 to 255");
                continue;
            };
            let statements = match (&inner.block, inner.arguments.get(1)) {
                (Some(block), _) => block,
                (None, Some(name)) => match luns.get_key_value(name.as_str()) {
                    Some((name, lun)) => {
                        used.push(name);
                        lun.block()
                    }
                    None => {
                        notes.add(&place, format!("left out: there is no lun '{name}'"));
                        continue;
                    }
                },
                (None, None) => {
                    notes.add(&place, "left out: it has neither a block nor a name");
                    continue;
                }
            };
            if found.contains_key(&number) {
                notes.add(&place, "left out: the number is given twice");
                continue;
            }
            if let Some(disk) = disk(&place, statements, disks, notes) {
                found.insert(number, disk);
            }
        }
        found
    }
}

/// Returns a disk, unless it cannot be served.
fn disk(place: &str, statements: &[Statement], disks: &mut Disks, notes: &mut Notes) -> Option<Disk> {
    let (mut path, mut size, mut block, mut backend) = (None, None, ",bs=512", "block");
    let (mut options, mut is_read_only) = (String::new(), false);
    let mut names = Disk {
        vendor: Some("FREEBSD".to_owned()),
        product: Some("CTLDISK".to_owned()),
        revision: Some("0001".to_owned()),
        ..Disk::default()
    };
    for statement in statements {
        let (text, value) = (statement.argument(0), statement.argument(1));
        match statement.key.as_str() {
            "backend" => backend = text,
            "path" => path = Some(text),
            "size" => match number(text) {
                Some(bytes) => size = Some(bytes),
                None => {
                    notes.add(place, format!("left out: its size '{text}' is not a number"));
                    return None;
                }
            },
            "blocksize" => match number(text) {
                Some(512) => {}
                Some(4096) => block = ",bs=4k",
                _ => {
                    notes.add(place, format!("left out: its logical block length is '{text}', and only 512 and 4096 bytes are served"));
                    return None;
                }
            },
            "serial" => names.serial = Some(text.to_owned()),
            "device-id" => names.t10 = Some(text.to_owned()),
            "device-type" if matches!(text, "0" | "disk" | "direct") => {}
            "device-type" => {
                notes.add(place, format!("left out: its device-type is '{text}', and only disks are served"));
                return None;
            }
            "option" => match text {
                "vendor" => names.vendor = Some(cut(value, 8)),
                "product" => names.product = Some(cut(value, 16)),
                "revision" => names.revision = Some(cut(value, 4)),
                "naa" => names.naa = Some(value.strip_prefix("0x").unwrap_or(value).to_owned()),
                "readonly" => is_read_only = value != "off",
                "removable" if value == "on" => options.push_str(",removable"),
                "removable" => {}
                "pblocksize" if number(value) == Some(4096) => options.push_str(",pbs=4k"),
                _ => notes.add(place, format!("option {text} '{value}' is not mapped")),
            },
            key => notes.add(place, format!("'{key}' (line {}) is not mapped", statement.line)),
        }
    }
    if is_read_only {
        options.push_str(",readonly");
    }
    let store = match (backend, path, size) {
        ("block", Some(path), size) => {
            match size {
                Some(size) if is_device(path) => {
                    notes.add(place, format!("it has the size of the device {path}, not {size} bytes"));
                }
                Some(size) => notes.add(
                    place,
                    format!("a missing {path} is created with {size} bytes and a smaller one grows: make sure that it is the right file; a larger one is refused"),
                ),
                None => {}
            }
            path_store(path, size, &format!("{block}{options}"))
        }
        ("ramdisk", _, Some(size)) => {
            notes.add(place, "a disk in memory: its contents are not carried over, and end with the process");
            format!("ram:{size}{block}{options}")
        }
        ("block", None, _) => {
            notes.add(place, "left out: it has no path");
            return None;
        }
        ("ramdisk", _, None) => {
            notes.add(place, "left out: it has no size");
            return None;
        }
        _ => {
            notes.add(place, format!("left out: the backend '{backend}' is not served"));
            return None;
        }
    };
    let missing: Vec<&str> = [("serial", &names.serial), ("device-id", &names.t10)]
        .iter()
        .filter(|(_, name)| name.is_none())
        .map(|(key, _)| *key)
        .collect();
    if !missing.is_empty() {
        notes.add(
            place,
            format!("{} is not in the file, since FreeBSD's kernel makes it: copy it from `ctladm devlist -v`, or hosts see another disk", missing.join(" and ")),
        );
    }
    let backing = Backing { path: path.filter(|_| backend == "block"), is_read_only };
    disks.accept(place, Disk { store, ..names }, &backing, notes)
}

/// Reads a number with a unit, powers of 1024, as `expand_number` of FreeBSD does.
fn number(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_lowercase();
    let unit = if unit.len() > 1 { unit.strip_suffix('b').unwrap_or(&unit) } else { &unit };
    let shift = match unit {
        "" | "b" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        "e" => 60,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn syntax(line: usize, what: impl Into<String>) -> ImportError {
    ImportError::Syntax { line, what: what.into() }
}

/// Divides a file into words and signs.
fn tokens(text: &str) -> Result<Vec<(usize, Token)>, ImportError> {
    let (mut all, mut line) = (Vec::new(), 1);
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        match c {
            '\n' => line += 1,
            '{' => all.push((line, Token::Open)),
            '}' => all.push((line, Token::Close)),
            ';' => all.push((line, Token::End)),
            '#' => while rest.next_if(|(_, c)| *c != '\n').is_some() {},
            '"' => {
                let start = line;
                let (mut word, mut is_closed) = (String::new(), false);
                for (_, c) in rest.by_ref() {
                    if c == '"' {
                        is_closed = true;
                        break;
                    }
                    line += usize::from(c == '\n');
                    word.push(c);
                }
                if !is_closed {
                    return Err(syntax(start, "a quotation mark is not closed; close it"));
                }
                all.push((start, Token::Word(word, true)));
            }
            c if c.is_whitespace() => {}
            _ => {
                let mut end = at + c.len_utf8();
                let is_part = |c: char| !c.is_whitespace() && !matches!(c, '{' | '}' | ';' | '#' | '"');
                while let Some((at, c)) = rest.next_if(|(_, c)| is_part(*c)) {
                    end = at + c.len_utf8();
                }
                all.push((line, Token::Word(text[at..end].to_owned(), false)));
            }
        }
    }
    Ok(all)
}

/// Tokens that are read one after the other.
struct Tokens<'a> {
    all: &'a [(usize, Token)],
    at: usize,
}

impl Tokens<'_> {
    fn statements(&mut self, depth: usize) -> Result<Vec<Statement>, ImportError> {
        let mut statements = Vec::new();
        while let Some((line, token)) = self.all.get(self.at) {
            match token {
                Token::End => self.at += 1,
                Token::Close if depth > 0 => break,
                Token::Close => return Err(syntax(*line, "'}' closes no block; remove it")),
                Token::Open => {
                    return Err(syntax(
                        *line,
                        "'{' follows no statement; write a statement such as target NAME before it",
                    ));
                }
                Token::Word(key, _) => {
                    self.at += 1;
                    statements.push(self.statement(*line, key, depth)?);
                }
            }
        }
        Ok(statements)
    }

    fn statement(&mut self, line: usize, key: &str, depth: usize) -> Result<Statement, ImportError> {
        let known = STATEMENTS.iter().find(|(name, _)| *name == key).map(|(_, count)| *count);
        if known.is_none() && (key.ends_with([':', '=']) || key.starts_with('[')) {
            return Err(syntax(
                line,
                format!(
                    "'{key}' is not a statement; the UCL form of ctl.conf is not read, write the one of curly braces"
                ),
            ));
        }
        let mut arguments = Vec::new();
        while let Some((at, Token::Word(word, is_quoted))) = self.all.get(self.at) {
            let is_keyword = !is_quoted && STATEMENTS.iter().any(|(name, _)| name == word);
            let is_argument = match known {
                Some(count) if arguments.len() < count => true,
                // A second argument of these is optional.
                Some(count) => {
                    matches!(key, "lun" | "portal-group")
                        && arguments.len() == count
                        && !is_keyword
                        && *at == line
                }
                None => *at == line && !is_keyword,
            };
            if !is_argument {
                break;
            }
            arguments.push(word.clone());
            self.at += 1;
        }
        if known.is_some_and(|count| arguments.len() < count) {
            return Err(syntax(
                line,
                format!("'{key}' needs {} arguments; add them", known.unwrap_or_default()),
            ));
        }
        let block = match self.all.get(self.at) {
            Some((_, Token::Open)) if depth >= DEPTH_MAX => {
                return Err(syntax(
                    line,
                    "too many blocks within each other; a target has blocks of luns only",
                ));
            }
            Some((_, Token::Open)) => {
                if known.is_some() && !BLOCKS.contains(&key) {
                    return Err(syntax(line, format!("'{key}' has no block; remove it")));
                }
                self.at += 1;
                let inner = self.statements(depth + 1)?;
                if self.all.get(self.at).is_none() {
                    return Err(syntax(line, format!("the block of '{key}' is not closed; add '}}'")));
                }
                self.at += 1;
                Some(inner)
            }
            _ => None,
        };
        Ok(Statement { line, key: key.to_owned(), arguments, block })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!(
            (number("4G"), number("512"), number("1kB"), number("2tb")),
            (Some(4 << 30), Some(512), Some(1024), Some(2 << 40))
        );
        assert_eq!((number("x"), number("4X"), number(""), number("99999999e")), (None, None, None, None));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line) in [
            ("\ntarget a {\n", 2),
            ("}", 1),
            ("{", 1),
            ("auth-group a {\n chap a\n}", 2),
            ("pidfile \"a", 1),
            ("target a", 1),
            ("target a { }\ntarget a { }", 2),
            ("pidfile: a", 1),
            ("pidfile a { }", 1),
            (&"target a {".repeat(20), 1),
        ] {
            let error = import(text).expect_err(text);
            assert!(matches!(error, ImportError::Syntax { line: at, .. } if at == line), "{text}: {error}");
        }
    }

    #[test]
    fn groups_that_ctld_refuses_or_denies_admit_nobody() {
        let with = |rules: &str| {
            import(&format!("target iqn.2024-01.org.example:a {{ {rules}\n lun 0 {{ path /srv/a }} }}"))
        };
        for rules in [
            "",
            "auth-group no-access",
            "auth-group none-such",
            "auth-type deny",
            "auth-type other",
            "initiator-name iqn.a:b",
            "initiator-portal 192.0.2.0/24",
            "auth-type chap",
            "auth-type none; initiator-portal host",
            "auth-type none; initiator-portal 192.0.2.0/024",
            "auth-type none; chap a twelve-bytes-1",
            "auth-group no-authentication; chap a twelve-bytes-1",
            "auth-group no-authentication; auth-group no-access",
            "chap a short",
            "auth-group no-authentication; host-name a",
        ] {
            let toml = with(rules).expect(rules).toml;
            assert!(toml.contains("access = \"nobody\"") && !toml.contains("\"open\""), "{rules}: {toml}");
        }
        assert!(with("auth-group no-authentication").expect("open").toml.contains("access = \"open\""));
    }
}
