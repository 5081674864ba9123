//! A card as data: a readable file of attributes, which becomes the netlink answers that its driver would give. So the production code
//! parses them, and rules judge what it parsed. These files are written after the drivers' sources and manuals, not recorded here.

use std::collections::BTreeMap;

use host::facts::link::LinkFacts;
use netlink::attributes::Builder;
use netlink::ethtool::{CoalescingParameter, parse};
use netlink::route::{Counters, Link};
use serde::Deserialize;

const LINK_MODES: &str = include_str!("cards/link-modes.txt");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Card {
    pub(crate) driver: String,
    /// The names of the findings that its rules must yield.
    pub(crate) findings: Vec<String>,
    table: Table,
    state: State,
    modes: Option<Modes>,
    fec: Option<Fec>,
    pause: Option<Pause>,
    eee: Option<Eee>,
    rings: Option<Rings>,
    coalescing: Option<BTreeMap<String, u32>>,
    features: Option<Features>,
    /// By how much counters grow until the second reading.
    moved: Option<BTreeMap<String, u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    mtu: u32,
    carrier_changes: u32,
    counters: Counters,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    link: bool,
    sqi: Option<u32>,
    sqi_max: Option<u32>,
    reason: Option<u8>,
    detail: Option<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Modes {
    autoneg: bool,
    speed: Option<u32>,
    duplex: Option<String>,
    port: u8,
    lanes: Option<u32>,
    master_slave: Option<u8>,
    supported: Vec<String>,
    advertised: Vec<String>,
    partner: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fec {
    configured: Vec<String>,
    automatic: bool,
    active: Option<String>,
    corrected: u64,
    uncorrectable: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pause {
    autoneg: bool,
    rx: bool,
    tx: bool,
    received_frames: Option<u64>,
    sent_frames: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Eee {
    active: bool,
    enabled: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rings {
    rx: u32,
    rx_max: u32,
    tx: u32,
    tx_max: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Features {
    changeable: Vec<String>,
    wanted: Vec<String>,
    active: Vec<String>,
}

pub(crate) fn mode_names() -> Vec<String> {
    LINK_MODES.lines().map(str::to_owned).collect()
}

/// A compact bitset of names.
fn bits(names: &[String], set: &[String]) -> Vec<u8> {
    let mut words = vec![0u32; names.len().div_ceil(32)];
    for name in set {
        let bit = names.iter().position(|known| known == name);
        let bit = bit.unwrap_or_else(|| panic!("{name} is no name of the kernel"));
        words[bit / 32] |= 1 << (bit % 32);
    }
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn bitset(names: &[String], value: &[String], mask: Option<&[String]>) -> Builder {
    let set = Builder::new().u32(2, names.len() as u32).bytes(4, &bits(names, value));
    match mask {
        Some(mask) => set.bytes(5, &bits(names, mask)),
        None => set.flag(1),
    }
}

fn u8_if(builder: Builder, kind: u16, value: Option<u8>) -> Builder {
    match value {
        Some(value) => builder.u8(kind, value),
        None => builder,
    }
}

fn u32_if(builder: Builder, kind: u16, value: Option<u32>) -> Builder {
    match value {
        Some(value) => builder.u32(kind, value),
        None => builder,
    }
}

impl Card {
    pub(crate) fn parse(text: &str) -> Self {
        toml::from_str(text).unwrap()
    }

    /// What the readers would make of its answers.
    pub(crate) fn facts(&self) -> LinkFacts {
        let names = mode_names();
        let modes = self.modes.as_ref().map(|modes| {
            let mut parsed = parse::link_modes(&modes.answer(&names), &names);
            parsed.port = parse::port(&Builder::new().u8(2, modes.port).finish());
            parsed
        });
        let before = LinkFacts {
            link: Link {
                index: 2,
                name: "eth0".to_owned(),
                is_up: true,
                is_ethernet: true,
                is_running: self.state.link,
                has_carrier: Some(self.state.link),
                mtu: self.table.mtu,
                carrier_changes: Some(self.table.carrier_changes),
                counters: Some(self.table.counters),
                ..Link::default()
            },
            driver: Some(self.driver.clone()),
            addresses: vec!["192.0.2.10/24".to_owned()],
            state: Some(parse::link_state(&self.state.answer())),
            modes,
            fec: self.fec.as_ref().map(|fec| parse::fec(&fec.answer(&names), &names)),
            pause: self.pause.as_ref().map(|pause| parse::pause(&pause.answer())),
            eee: self.eee.as_ref().map(|eee| parse::eee(&eee.answer())),
            rings: self.rings.as_ref().map(|rings| parse::rings(&rings.answer())),
            coalescing: self.coalescing.as_ref().map(|values| parse::coalescing(&coalescing_answer(values))),
            offloads: self.features.as_ref().map(Features::parse),
            ..LinkFacts::default()
        };
        match &self.moved {
            Some(moved) => watched(before, moved),
            None => before,
        }
    }
}

/// The facts after counters have grown.
fn watched(before: LinkFacts, moved: &BTreeMap<String, u64>) -> LinkFacts {
    let mut after = before.clone();
    let counters = after.link.counters.as_mut().unwrap();
    let mut table: BTreeMap<String, u64> =
        counters.all().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    for (name, grown) in moved {
        let pause = after.pause.as_mut();
        let fec = after.fec.as_mut();
        match name.as_str() {
            "carrier_changes" => *after.link.carrier_changes.as_mut().unwrap() += *grown as u32,
            "pause_received_frames" => *pause.unwrap().received_frames.as_mut().unwrap() += grown,
            "fec_corrected_blocks" => *fec.unwrap().corrected_blocks.as_mut().unwrap() += grown,
            "fec_uncorrectable_blocks" => *fec.unwrap().uncorrectable_blocks.as_mut().unwrap() += grown,
            name => *table.get_mut(name).unwrap_or_else(|| panic!("{name} is no counter")) += grown,
        }
    }
    *counters = serde_json::from_value(serde_json::to_value(table).unwrap()).unwrap();
    after.watched = Some(host::read::link::changes(&before, &after, 2.0));
    after
}

impl State {
    fn answer(&self) -> Vec<u8> {
        let answer = Builder::new().u8(2, u8::from(self.link));
        let answer = u32_if(u32_if(answer, 3, self.sqi), 4, self.sqi_max);
        u8_if(u8_if(answer, 5, self.reason), 6, self.detail).finish()
    }
}

impl Modes {
    fn answer(&self, names: &[String]) -> Vec<u8> {
        let duplex = match self.duplex.as_deref() {
            Some("half") => 0,
            Some("full") => 1,
            _ => 0xff,
        };
        let mut answer = Builder::new()
            .u8(2, u8::from(self.autoneg))
            .nested(3, &bitset(names, &self.advertised, Some(&self.supported)))
            .u32(5, self.speed.unwrap_or(u32::MAX))
            .u8(6, duplex);
        if let Some(partner) = &self.partner {
            answer = answer.nested(4, &bitset(names, partner, None));
        }
        u32_if(u8_if(answer, 8, self.master_slave), 9, self.lanes).finish()
    }
}

impl Fec {
    fn answer(&self, names: &[String]) -> Vec<u8> {
        let active =
            self.active.as_ref().map(|mode| names.iter().position(|name| name == mode).unwrap() as u32);
        let counters = Builder::new()
            .bytes(2, &self.corrected.to_ne_bytes())
            .bytes(3, &self.uncorrectable.to_ne_bytes());
        let answer = Builder::new()
            .nested(2, &bitset(names, &self.configured, None))
            .u8(3, u8::from(self.automatic))
            .nested(5, &counters);
        u32_if(answer, 4, active).finish()
    }
}

impl Pause {
    fn answer(&self) -> Vec<u8> {
        let mut counters = Builder::new();
        if let Some(frames) = self.sent_frames {
            counters = counters.bytes(2, &frames.to_ne_bytes());
        }
        if let Some(frames) = self.received_frames {
            counters = counters.bytes(3, &frames.to_ne_bytes());
        }
        let switches = [(2, self.autoneg), (3, self.rx), (4, self.tx)];
        let answer =
            switches.iter().fold(Builder::new(), |answer, (kind, on)| answer.u8(*kind, u8::from(*on)));
        answer.nested(5, &counters).finish()
    }
}

impl Eee {
    fn answer(&self) -> Vec<u8> {
        Builder::new().u8(4, u8::from(self.active)).u8(5, u8::from(self.enabled)).finish()
    }
}

impl Rings {
    fn answer(&self) -> Vec<u8> {
        Builder::new().u32(2, self.rx_max).u32(5, self.tx_max).u32(6, self.rx).u32(9, self.tx).finish()
    }
}

impl Features {
    fn parse(&self) -> netlink::ethtool::Features {
        let names: Vec<String> = host::facts::link::OFFLOADS.map(str::to_owned).to_vec();
        let answer = Builder::new()
            .nested(2, &bitset(&names, &self.changeable, None))
            .nested(3, &bitset(&names, &self.wanted, None))
            .nested(4, &bitset(&names, &self.active, None))
            .finish();
        parse::features(&answer, &names)
    }
}

/// Numbers of the attributes (ETHTOOL_A_COALESCE), written down here once more so that a wrong one in the program is noticed.
fn coalescing_answer(values: &BTreeMap<String, u32>) -> Vec<u8> {
    let mut answer = Builder::new();
    for (name, value) in values {
        assert!(CoalescingParameter::from_name(name).is_some(), "{name} is no parameter");
        answer = match name.as_str() {
            "rx-usecs" => answer.u32(2, *value),
            "rx-frames" => answer.u32(3, *value),
            "tx-usecs" => answer.u32(6, *value),
            "tx-frames" => answer.u32(7, *value),
            "adaptive-rx" => answer.u8(11, *value as u8),
            "adaptive-tx" => answer.u8(12, *value as u8),
            "cqe-mode-rx" => answer.u8(25, *value as u8),
            other => panic!("{other} has no number here"),
        };
    }
    answer.finish()
}
