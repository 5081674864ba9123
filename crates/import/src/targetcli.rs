//! LIO's `saveconfig.json`, as targetcli and rtslib write it.
//!
//! A target portal group (TPG) of LIO has portals, disks and rules of its own. A target of ours has one set of disks and rules,
//! so only TPGs that are equal become portal groups of one target; otherwise the first one stands for the target.
//!
//! The names of a disk are those that the kernel makes of the backstore (`drivers/target/target_core_spc.c`): vendor LIO-ORG, the
//! backstore's name as product, its WWN as serial number and, with LIO's company identifier, as NAA identifier.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::disks::{Backing, Disk, Disks, cut, is_device, path_store};
use crate::notes::Notes;
use crate::portals::Portals;
use crate::rules::{self, Credential, Demands, Initiator, Rules, Seen, User};
use crate::written::{self, Target};
use crate::{ImportError, Imported};

type Object = Map<String, Value>;

/// The kernel's defaults of a backstore's attributes. Those without a constant default, which describe the device, and those that
/// are read elsewhere have no value here.
const BACKSTORE_DEFAULTS: &[(&str, Option<&str>)] = &[
    ("alua_support", Some("1")),
    ("block_size", None),
    ("complete_type", Some("0")),
    ("emulate_3pc", Some("1")),
    ("emulate_caw", Some("1")),
    ("emulate_dpo", None),
    ("emulate_fua_read", None),
    ("emulate_fua_write", Some("1")),
    ("emulate_model_alias", None),
    ("emulate_pr", Some("1")),
    ("emulate_rest_reord", Some("0")),
    ("emulate_rsoc", Some("1")),
    ("emulate_tas", Some("1")),
    ("emulate_ua_intlck_ctrl", Some("0")),
    ("emulate_write_cache", None),
    ("enforce_pr_isids", Some("1")),
    ("force_pr_aptpl", Some("0")),
    ("is_nonrot", None),
    ("max_unmap_block_desc_count", None),
    ("max_unmap_lba_count", None),
    ("max_write_same_len", None),
    ("optimal_sectors", None),
    ("pgr_support", Some("1")),
    ("pi_prot_format", Some("0")),
    ("pi_prot_type", Some("0")),
    ("pi_prot_verify", Some("0")),
    ("queue_depth", None),
    ("submit_type", Some("0")),
    ("unmap_granularity", None),
    ("unmap_granularity_alignment", None),
    ("unmap_zeroes_data", None),
];

/// The kernel's defaults of a TPG's attributes.
const TPG_DEFAULTS: &[(&str, Option<&str>)] = &[
    ("authentication", None),
    ("cache_dynamic_acls", Some("0")),
    ("default_cmdsn_depth", Some("64")),
    ("default_erl", Some("0")),
    ("demo_mode_discovery", Some("1")),
    ("demo_mode_write_protect", None),
    ("fabric_prot_type", Some("0")),
    ("generate_node_acls", None),
    ("login_keys_workaround", Some("1")),
    ("login_timeout", Some("15")),
    ("netif_timeout", Some("2")),
    ("prod_mode_write_protect", None),
    ("t10_pi", Some("0")),
    ("tpg_enabled_sendtargets", Some("1")),
];

/// The kernel's defaults of a TPG's parameters.
const PARAMETER_DEFAULTS: &[(&str, Option<&str>)] = &[
    ("AuthMethod", None),
    ("DataDigest", Some("CRC32C,None")),
    ("DataPDUInOrder", Some("Yes")),
    ("DataSequenceInOrder", Some("Yes")),
    ("DefaultTime2Retain", Some("20")),
    ("DefaultTime2Wait", Some("2")),
    ("ErrorRecoveryLevel", Some("0")),
    ("FirstBurstLength", Some("65536")),
    ("HeaderDigest", Some("CRC32C,None")),
    ("IFMarkInt", None),
    ("IFMarker", Some("No")),
    ("ImmediateData", Some("Yes")),
    ("InitialR2T", Some("Yes")),
    ("MaxBurstLength", Some("262144")),
    ("MaxConnections", Some("1")),
    ("MaxOutstandingR2T", Some("1")),
    ("MaxRecvDataSegmentLength", Some("8192")),
    ("MaxXmitDataSegmentLength", Some("262144")),
    ("OFMarkInt", None),
    ("OFMarker", Some("No")),
    ("TargetAlias", Some("LIO Target")),
];

/// The kernel's defaults of an ACL's attributes.
const ACL_DEFAULTS: &[(&str, Option<&str>)] = &[
    ("authentication", None),
    ("dataout_timeout", Some("3")),
    ("dataout_timeout_retries", Some("5")),
    ("default_erl", Some("0")),
    ("nopin_response_timeout", Some("30")),
    ("nopin_timeout", Some("15")),
    ("random_datain_pdu_offsets", Some("0")),
    ("random_datain_seq_offsets", Some("0")),
    ("random_r2t_offsets", Some("0")),
];

/// An enabled target with its portal groups.
struct Kept<'a> {
    place: String,
    iqn: &'a str,
    /// The TPG that stands for it.
    tpg: &'a Object,
}

pub(crate) fn import(text: &str) -> Result<Imported, ImportError> {
    let root: Value = serde_json::from_str(text).map_err(|error| ImportError::Json {
        line: error.line(),
        column: error.column(),
        what: error.to_string(),
    })?;
    let wrong = |what: &str| ImportError::Kind(what.to_owned());
    let root =
        root.as_object().ok_or_else(|| wrong("it is not an object; give the file that targetcli saves"))?;
    if !root.contains_key("targets") && !root.contains_key("storage_objects") {
        return Err(wrong(
            "it has neither 'targets' nor 'storage_objects'; give the file that targetcli saves",
        ));
    }
    let mut notes = Notes::default();
    leftovers("the file", root, &["fabric_modules", "storage_objects", "targets"], &mut notes);
    let discovery = discovery(root, &mut notes);
    let stores = objects("the file", root, "storage_objects", &mut notes);
    let (mut kept, mut portals) = (Vec::new(), Portals::default());
    for target in objects("the file", root, "targets", &mut notes) {
        keep(target, &mut kept, &mut portals, &mut notes);
    }
    let grouped = portals
        .grouped(|index| kept.get(index).map_or_else(String::new, |kept| kept.place.clone()), &mut notes);
    let (mut disks, mut used, mut targets) = (Disks::default(), Vec::new(), Vec::new());
    for (index, kept) in kept.iter().enumerate() {
        let Some(groups) = grouped.groups.get(&index) else {
            notes.add(&kept.place, "left out: it has no portal");
            continue;
        };
        targets.push(target(kept, groups.clone(), discovery, &stores, &mut disks, &mut used, &mut notes));
    }
    for store in &stores {
        let (plugin, name) = (word(store, "plugin"), word(store, "name"));
        if !used.contains(&(plugin, name)) {
            notes.add(&format!("backstore {plugin}/{name}"), "not used: no imported target serves it");
        }
    }
    written::file("LIO's saveconfig.json", &grouped.portals, targets, notes)
}

/// Returns whether discovery sessions authenticate.
fn discovery(root: &Object, notes: &mut Notes) -> bool {
    let mut is_demanded = false;
    for module in objects("the file", root, "fabric_modules", notes) {
        let name = word(module, "name");
        let place = format!("fabric module {name}");
        if name != "iscsi" {
            notes.add(&place, "left out: only iSCSI is served");
            continue;
        }
        let known = [
            "attributes",
            "discovery_enable_auth",
            "discovery_mutual_password",
            "discovery_mutual_userid",
            "discovery_password",
            "discovery_userid",
            "name",
            "parameters",
        ];
        leftovers(&place, module, &known, notes);
        is_demanded |= module.get("discovery_enable_auth").is_some_and(|value| flag(value) != Some(false));
        if module.keys().any(|key| key.contains("userid")) {
            notes.add(
                &place,
                "the credentials for discovery are not mapped: an initiator discovers a target with the credentials that it logs in with, and without any a target that demands none",
            );
        }
    }
    is_demanded
}

/// Decides which TPG stands for a target, and collects its portals.
fn keep<'a>(target: &'a Object, kept: &mut Vec<Kept<'a>>, portals: &mut Portals, notes: &mut Notes) {
    let iqn = word(target, "wwn");
    let place = format!("target {iqn}");
    leftovers(&place, target, &["attributes", "fabric", "parameters", "tpgs", "wwn"], notes);
    let fabric = word(target, "fabric");
    if fabric != "iscsi" {
        notes.add(&place, format!("left out: its fabric is '{fabric}', and only iSCSI is served"));
        return;
    }
    let mut enabled = Vec::new();
    for tpg in objects(&place, target, "tpgs", notes) {
        // What is not clearly enabled stays off; a missing key is an enabled TPG for rtslib.
        if tpg.get("enable").is_none_or(|value| flag(value) == Some(true)) {
            enabled.push(tpg);
        } else {
            notes.add(&format!("{place}, TPG {}", tag(tpg)), "left out: it is not enabled");
        }
    }
    let Some(&first) = enabled.first() else {
        notes.add(&place, "left out: it has no enabled TPG");
        return;
    };
    let whole = essence(first);
    for tpg in enabled {
        let place = format!("{place}, TPG {}", tag(tpg));
        if essence(tpg) == whole {
            tpg_portals(&place, tpg, kept.len(), portals, notes);
        } else {
            notes.add(
                &place,
                format!(
                    "left out: its disks, rules or settings differ from those of TPG {}, and a target has one set of them; make it a target of its own",
                    tag(first)
                ),
            );
        }
    }
    kept.push(Kept { place, iqn, tpg: first });
}

/// Returns what TPGs must have in common to be portal groups of one target.
fn essence(tpg: &Object) -> Value {
    fn without_aliases(value: &Value) -> Value {
        match value {
            Value::Array(all) => all.iter().map(without_aliases).collect(),
            Value::Object(all) => {
                let named = all.iter().filter(|(key, _)| *key != "alias");
                Value::Object(named.map(|(key, value)| (key.clone(), without_aliases(value))).collect())
            }
            other => other.clone(),
        }
    }
    let rest = tpg.iter().filter(|(key, _)| !matches!(key.as_str(), "tag" | "portals"));
    without_aliases(&Value::Object(rest.map(|(key, value)| (key.clone(), value.clone())).collect()))
}

fn tpg_portals(place: &str, tpg: &Object, target: usize, portals: &mut Portals, notes: &mut Notes) {
    for portal in objects(place, tpg, "portals", notes) {
        leftovers(
            place,
            portal,
            &["attributes", "ip_address", "iser", "offload", "parameters", "port"],
            notes,
        );
        let (ip, port) = (word(portal, "ip_address"), number(portal.get("port")));
        let text = format!("{ip}:{}", port.map_or_else(|| "?".to_owned(), |port| port.to_string()));
        if portal.get("iser").is_some_and(|value| flag(value) != Some(false)) {
            notes.add(place, format!("its portal {text} is left out: it is one of iSER (RDMA)"));
            continue;
        }
        if portal.get("offload").is_some_and(|value| flag(value) != Some(false)) {
            notes.add(
                place,
                format!("its portal {text} was offloaded to a network card; the kernel's TCP serves it"),
            );
        }
        let bare = ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']')).unwrap_or(ip);
        let port = port.and_then(|port| u16::try_from(port).ok()).filter(|&port| port > 0);
        match (bare.parse::<std::net::IpAddr>(), port) {
            (Ok(ip), Some(port)) => {
                let tag = u32::try_from(tag(tpg)).unwrap_or_default();
                portals.add((ip, port).into(), target, tag);
            }
            _ => {
                notes.add(place, format!("its portal '{text}' is left out: it is not an address and a port"));
            }
        }
    }
}

/// Returns a target with its disks and rules.
fn target<'a>(
    kept: &Kept<'a>,
    groups: Vec<u16>,
    discovery: bool,
    stores: &[&'a Object],
    disks: &mut Disks,
    used: &mut Vec<(&'a str, &'a str)>,
    notes: &mut Notes,
) -> Target {
    let Kept { place, iqn, tpg } = kept;
    let known = [
        "attributes",
        "chap_mutual_password",
        "chap_mutual_userid",
        "chap_password",
        "chap_userid",
        "enable",
        "luns",
        "node_acls",
        "parameters",
        "portals",
        "tag",
    ];
    leftovers(place, tpg, &known, notes);
    differing(place, "attributes", tpg, TPG_DEFAULTS, notes);
    differing(place, "parameters", tpg, PARAMETER_DEFAULTS, notes);
    let luns = objects(place, tpg, "luns", notes);
    let acls = objects(place, tpg, "node_acls", notes);
    let admission = Admission::of(tpg, &luns, &acls);
    if admission.is_read_only {
        notes.add(
            place,
            "its disks are read only: initiators without an ACL may not write (demo_mode_write_protect)",
        );
    }
    let mut own = BTreeMap::new();
    for lun in luns {
        let index = number(lun.get("index"));
        let place =
            format!("{place}, LUN {}", index.map_or_else(|| "?".to_owned(), |index| index.to_string()));
        leftovers(
            &place,
            lun,
            &["alias", "alua_tg_pt_gp_name", "attributes", "index", "parameters", "storage_object"],
            notes,
        );
        let group = word(lun, "alua_tg_pt_gp_name");
        if !matches!(group, "" | "default_tg_pt_gp") {
            notes.add(
                &place,
                format!("its ALUA group '{group}' is not mapped: each portal group is a target port group"),
            );
        }
        let Some(index) = index.and_then(|index| u16::try_from(index).ok()).filter(|&index| index <= 255)
        else {
            notes.add(&place, "left out: LUNs are numbered from 0 to 255");
            continue;
        };
        let path = word(lun, "storage_object").strip_prefix("/backstores/").unwrap_or_default();
        let (plugin, name) = path.split_once('/').unwrap_or_default();
        let is_it = |store: &&&Object| word(store, "plugin") == plugin && word(store, "name") == name;
        let Some(store) = stores.iter().find(is_it) else {
            notes.add(&place, format!("left out: the file has no backstore '{path}'"));
            continue;
        };
        used.push((word(store, "plugin"), word(store, "name")));
        if own.contains_key(&index) {
            notes.add(&place, "left out: the number is given twice");
            continue;
        }
        if let Some(disk) = disk(&place, store, admission.is_read_only, disks, notes) {
            own.insert(index, disk);
        }
    }
    let rules = admission.rules(place, tpg, &acls, &own, discovery, notes);
    Target { place: place.clone(), iqn: (*iqn).to_owned(), groups: Some(groups), disks: own, rules }
}

/// How a TPG admits initiators.
struct Admission {
    /// Initiators with and without an ACL see the same, so that no list of them is needed.
    is_uniform: bool,
    /// Initiators without an ACL are admitted (demo mode).
    is_demo: bool,
    /// A TPG demands CHAP.
    is_chap: bool,
    /// All that initiators see is read only.
    is_read_only: bool,
    /// ACLs protect every disk.
    is_protected: bool,
}

impl Admission {
    fn of(tpg: &Object, luns: &[&Object], acls: &[&Object]) -> Self {
        let attribute = |name: &str| tpg.get("attributes").and_then(|all| all.get(name));
        // Missing or unreadable values are the stricter ones, which are the kernel's defaults.
        let is_demo = attribute("generate_node_acls").and_then(flag) == Some(true);
        let is_demo_protected = attribute("demo_mode_write_protect").and_then(flag) != Some(false);
        let is_protected =
            attribute("prod_mode_write_protect").is_some_and(|value| flag(value) != Some(false));
        let methods =
            tpg.get("parameters").map(|all| all.get("AuthMethod").and_then(Value::as_str).unwrap_or("None"));
        let is_optional =
            methods.is_none_or(|methods| methods.split(',').any(|method| method.trim() == "None"));
        let is_chap = attribute("authentication").and_then(flag) != Some(false) || !is_optional;
        let mut all: Vec<_> = luns.iter().map(|lun| number(lun.get("index"))).collect();
        all.sort_unstable();
        let sees_all = |acl: &&Object| {
            let mapped: Vec<&Object> = acl
                .get("mapped_luns")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_object)
                .collect();
            let mut seen: Vec<_> = mapped.iter().map(|lun| number(lun.get("index"))).collect();
            seen.sort_unstable();
            let is_plain = |lun: &&Object| {
                number(lun.get("index")) == number(lun.get("tpg_lun"))
                    && (is_protected || is_write_protected(lun)) == is_demo_protected
            };
            seen == all && mapped.iter().all(is_plain)
        };
        let is_uniform = is_demo && acls.iter().all(sees_all);
        Self { is_uniform, is_demo, is_chap, is_read_only: is_uniform && is_demo_protected, is_protected }
    }

    fn rules(
        &self,
        place: &str,
        tpg: &Object,
        acls: &[&Object],
        disks: &BTreeMap<u16, Disk>,
        discovery: bool,
        notes: &mut Notes,
    ) -> Rules {
        if !self.is_demo && acls.is_empty() {
            return rules::nobody(
                place,
                "it has no ACLs, and initiators without one are not admitted (generate_node_acls)",
                notes,
            );
        }
        let demands_chap =
            |acl: &Object| match acl.get("attributes").and_then(|all| all.get("authentication")) {
                None => self.is_chap,
                Some(value) if value.as_i64() == Some(-1) || value.as_str() == Some("-1") => self.is_chap,
                Some(value) => flag(value) != Some(false),
            };
        let must_authenticate = (self.is_demo && self.is_chap) || acls.iter().any(|acl| demands_chap(acl));
        let (mut users, mut reserved, mut initiators) = (Vec::new(), Vec::new(), Vec::new());
        let mut names = BTreeSet::new();
        for acl in acls {
            let name = word(acl, "node_wwn");
            let place = format!("{place}, initiator {name}");
            let known = [
                "attributes",
                "chap_mutual_password",
                "chap_mutual_userid",
                "chap_password",
                "chap_userid",
                "mapped_luns",
                "node_wwn",
                "parameters",
                "tag",
            ];
            leftovers(&place, acl, &known, notes);
            // Names do not differ in case alone: the user of one ACL must not come in with the disks of another.
            if !names.insert(name.to_ascii_lowercase()) {
                notes.add(&place, "its ACL is left out: another one before it has this name");
                continue;
            }
            differing(&place, "attributes", acl, ACL_DEFAULTS, notes);
            if let Some(tag) = acl.get("tag").and_then(Value::as_str).filter(|tag| !tag.is_empty()) {
                notes.add(&place, format!("its tag '{tag}' is not mapped; its ACL is"));
            }
            let (credential, mutual) = (
                credential(acl, "chap_userid", "chap_password"),
                credential(acl, "chap_mutual_userid", "chap_mutual_password"),
            );
            if mutual.is_none() && acl.contains_key("chap_mutual_userid") {
                notes.add(&place, "its mutual user has no secret, and is left out");
            }
            match credential {
                _ if must_authenticate && !demands_chap(acl) => {
                    notes.add(
                        &place,
                        "it need not authenticate, while others must: a target demands it of all or of none",
                    );
                    reserved.push(name.to_owned());
                }
                None if must_authenticate => {
                    notes.add(&place, "it must authenticate, and its ACL has no user and secret");
                    reserved.push(name.to_owned());
                }
                Some(credential) => {
                    users.push(User { credential, initiators: Some(vec![name.to_owned()]), mutual });
                }
                None => {}
            }
            let luns = self.seen(&place, acl, disks, notes);
            initiators.push(Initiator { name: name.to_owned(), luns: Some(luns) });
        }
        let own = credential(tpg, "chap_userid", "chap_password");
        let has_own = own.is_some() || tpg.contains_key("chap_userid");
        let mut initiators = Some(initiators);
        if self.is_demo && self.is_uniform && (self.is_chap || !must_authenticate) {
            initiators = None;
            if let Some(credential) = own {
                let mutual = credential_of_tpg(tpg);
                users.push(User { credential, initiators: None, mutual });
            } else if self.is_chap {
                notes.add(place, "initiators without an ACL are not admitted: they must authenticate, and the TPG has no user and secret");
            }
        } else {
            if self.is_demo {
                notes.add(
                    place,
                    "initiators without an ACL are not admitted: those with one have disks or rights of their own, and a list of initiators excludes all others",
                );
            }
            if has_own {
                notes.add(place, "the TPG's own user is not mapped: it is for initiators without an ACL");
            }
        }
        let demands =
            Demands { must_authenticate, discovery, users, initiators, reserved, ..Demands::default() };
        rules::rules(place, demands, notes)
    }

    /// Returns the disks that an initiator sees.
    fn seen(&self, place: &str, acl: &Object, disks: &BTreeMap<u16, Disk>, notes: &mut Notes) -> Vec<Seen> {
        let mut all: Vec<Seen> = Vec::new();
        for mapped in objects(place, acl, "mapped_luns", notes) {
            leftovers(
                place,
                mapped,
                &["alias", "attributes", "index", "parameters", "tpg_lun", "write_protect"],
                notes,
            );
            let number = |key: &str| number(mapped.get(key)).and_then(|number| u16::try_from(number).ok());
            let (Some(lun), Some(disk)) = (number("index"), number("tpg_lun")) else {
                notes.add(place, "a mapped LUN without valid numbers is left out");
                continue;
            };
            let why = if lun > 255 {
                "LUNs are numbered from 0 to 255"
            } else if !disks.contains_key(&disk) {
                "its disk is left out"
            } else if all.iter().any(|other| other.lun == lun || other.disk == disk) {
                "an initiator sees each disk once, under a number of its own"
            } else {
                if self.is_protected && !is_write_protected(mapped) {
                    notes.add(
                        place,
                        format!("mapped LUN {lun} is read only, as prod_mode_write_protect says"),
                    );
                }
                let read_only = self.is_protected || is_write_protected(mapped);
                all.push(Seen { lun, disk, read_only });
                continue;
            };
            notes.add(place, format!("mapped LUN {lun} of disk {disk} is left out: {why}"));
        }
        all
    }
}

/// Returns whether an initiator may not write. Only a clear no permits it.
fn is_write_protected(mapped: &Object) -> bool {
    mapped.get("write_protect").is_some_and(|value| flag(value) != Some(false))
}

fn credential_of_tpg(tpg: &Object) -> Option<Credential> {
    credential(tpg, "chap_mutual_userid", "chap_mutual_password")
}

fn credential(object: &Object, name: &str, secret: &str) -> Option<Credential> {
    let (name, secret) = (word(object, name), word(object, secret));
    let is_there = !name.is_empty() && !secret.is_empty();
    is_there.then(|| Credential { name: name.to_owned(), secret: secret.to_owned() })
}

/// Returns a backstore as a disk.
fn disk(
    place: &str,
    store: &Object,
    is_read_only: bool,
    disks: &mut Disks,
    notes: &mut Notes,
) -> Option<Disk> {
    let (plugin, name, path) = (word(store, "plugin"), word(store, "name"), word(store, "dev"));
    let place = format!("{place} (backstore {plugin}/{name})");
    let known = [
        "aio",
        "alua_tpgs",
        "attributes",
        "dev",
        "exists",
        "name",
        "nullio",
        "parameters",
        "plugin",
        "readonly",
        "size",
        "write_back",
        "wwn",
    ];
    let attribute = |name: &str| store.get("attributes").and_then(|all| all.get(name));
    let size = number(store.get("size"));
    let is_on = |key: &str| store.get(key).is_some_and(|value| flag(value) != Some(false));
    let mut options = String::new();
    let product = match plugin {
        "block" => "IBLOCK",
        "fileio" => "FILEIO",
        "ramdisk" => "RAMDISK-MCP",
        "pscsi" => {
            notes.add(&place, "left out: it passes SCSI commands to a device; serve the device as a block backstore (dev:), under other names");
            return None;
        }
        _ => {
            notes.add(&place, format!("left out: backstores of the kind '{plugin}' are not served"));
            return None;
        }
    };
    leftovers(&place, store, &known, notes);
    differing(&place, "attributes", store, BACKSTORE_DEFAULTS, notes);
    alua(&place, store, notes);
    let block = attribute("block_size").map_or(Some(512), |value| number(Some(value)));
    match block {
        // A block device's own.
        _ if plugin == "block" => options.push_str(",direct"),
        Some(512) => options.push_str(",bs=512"),
        Some(4096) => options.push_str(",bs=4k"),
        _ => {
            notes.add(&place, "left out: its logical block length is neither 512 nor 4096 bytes, and its data are laid out in such blocks");
            return None;
        }
    }
    if plugin == "fileio" && is_on("aio") {
        options.push_str(",direct");
    }
    let is_read_only = is_read_only || is_on("readonly");
    if is_read_only {
        options.push_str(",readonly");
    }
    let store_text = match (plugin, size) {
        ("ramdisk", Some(size)) if is_on("nullio") => format!("zero:{size}{options}"),
        ("ramdisk", Some(size)) => {
            notes
                .add(&place, "a disk in memory: its contents are not carried over, and end with the process");
            format!("ram:{size}{options}")
        }
        ("ramdisk", None) => {
            notes.add(&place, "left out: it has no size");
            return None;
        }
        _ => path_store(path, size.filter(|_| plugin == "fileio"), &options),
    };
    if plugin == "fileio" {
        match size {
            Some(size) if is_device(path) => {
                notes.add(&place, format!("it has the size of the device {path}, not the {size} bytes of the backstore"));
            }
            Some(size) => notes.add(
                &place,
                format!("a missing {path} is created with {size} bytes and a smaller one grows: make sure that it is the right file; a larger one is refused"),
            ),
            None => notes.add(&place, "it has the size of its file"),
        }
        if !is_on("write_back") {
            notes.add(
                &place,
                "write-through (write_back is off) is not mapped: the disk reports a volatile write cache, and a write is durable once it is flushed",
            );
        }
    }
    let names = names(&place, store, product, attribute("emulate_model_alias"), notes);
    let disk = Disk { store: store_text, ..names };
    let path = (plugin != "ramdisk").then_some(path);
    disks.accept(&place, disk, &Backing { path, is_read_only }, notes)
}

/// Returns the names that the kernel makes of a backstore.
fn names(place: &str, store: &Object, transport: &str, alias: Option<&Value>, notes: &mut Notes) -> Disk {
    let (name, wwn) = (word(store, "name"), word(store, "wwn"));
    let product = match alias {
        Some(value) if flag(value) == Some(true) => {
            if name.len() >= 16 {
                notes.add(
                    place,
                    "kernels before 5.0 show the first 15 characters of its name as product, this target 16",
                );
            }
            cut(name, 16)
        }
        Some(_) => transport.to_owned(),
        None => {
            notes.add(place, format!("its product is taken to be '{transport}', since emulate_model_alias is missing; compare it"));
            transport.to_owned()
        }
    };
    let is_named = !wwn.is_empty();
    if !is_named {
        notes.add(place, "it has no WWN: hosts see it as another disk");
    }
    Disk {
        serial: is_named.then(|| wwn.to_owned()),
        naa: is_named.then(|| naa(wwn)),
        t10: is_named.then(|| format!("{product}:{wwn}")),
        vendor: Some("LIO-ORG".to_owned()),
        product: Some(product),
        revision: Some("4.0".to_owned()),
        ..Disk::default()
    }
}

/// Makes an NAA identifier of a serial number as the kernel does: 6h, the company identifier 001405h, and the first 25
/// hexadecimal digits of the serial number, other characters left out, zeros behind.
fn naa(serial: &str) -> String {
    let digits = serial.chars().filter(char::is_ascii_hexdigit).chain(std::iter::repeat('0')).take(25);
    format!("6001405{}", digits.collect::<String>().to_ascii_lowercase())
}

/// Notes ALUA groups other than the default one.
fn alua(place: &str, store: &Object, notes: &mut Notes) {
    for group in objects(place, store, "alua_tpgs", notes) {
        let name = word(group, "name");
        let state = group.get("alua_access_state").map_or(Some(0), |state| number(Some(state)));
        if name != "default_tg_pt_gp" || state != Some(0) {
            notes.add(
                place,
                format!("its ALUA group '{name}' is not mapped: each portal group is a target port group, and active/optimized at first"),
            );
        }
    }
}

/// Notes keys that are not known. Their values are not shown, since they may be secrets.
fn leftovers(place: &str, object: &Object, known: &[&str], notes: &mut Notes) {
    for key in object.keys().filter(|key| !known.contains(&key.as_str())) {
        notes.add(place, format!("'{key}' is not mapped: it is not known"));
    }
}

/// Notes settings that differ from the defaults of the kernel.
fn differing(place: &str, what: &str, object: &Object, defaults: &[(&str, Option<&str>)], notes: &mut Notes) {
    let Some(all) = object.get(what).and_then(Value::as_object) else { return };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let is_same = |key: &str, value: &Value| match defaults.iter().find(|(name, _)| *name == key) {
        Some((_, Some(default))) => text(value) == *default,
        Some((_, None)) => true,
        // Provisioning is always offered.
        None => matches!(key, "emulate_tpu" | "emulate_tpws") && flag(value) == Some(true),
    };
    let differing: Vec<String> = all
        .iter()
        .filter(|(key, value)| !is_same(key, value))
        .map(|(key, value)| format!("{key}={}", text(value)))
        .collect();
    if !differing.is_empty() {
        notes.add(place, format!("{what} that are not mapped: {}", differing.join(", ")));
    }
}

/// Returns the objects of a list, and notes what else is in it.
fn objects<'a>(place: &str, object: &'a Object, key: &str, notes: &mut Notes) -> Vec<&'a Object> {
    let all = match object.get(key) {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Array(all)) => all,
        Some(_) => {
            notes.add(place, format!("'{key}' is not mapped: it is not a list"));
            return Vec::new();
        }
    };
    if all.iter().any(|value| !value.is_object()) {
        notes.add(place, format!("'{key}' has entries that are not objects; they are left out"));
    }
    all.iter().filter_map(Value::as_object).collect()
}

fn word<'a>(object: &'a Object, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Reads a switch; `None`: neither on nor off.
fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        Value::Number(_) | Value::String(_) => match number(Some(value)) {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => None,
        },
        _ => None,
    }
}

fn tag(tpg: &Object) -> u64 {
    number(tpg.get("tag")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naa_is_made_as_the_kernel_makes_it() {
        assert_eq!(naa("3f2c8a51-0b7e-4a7e-9a44-6f1f6f2b8d10"), "60014053f2c8a510b7e4a7e9a446f1f6");
        assert_eq!(naa("xyz-A"), "6001405a000000000000000000000000");
    }
}
