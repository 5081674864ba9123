//! A ring from measurements: a saturated run, and one at queue depth 1.

use record::wire::{Link, Messages};

use super::tables::{Cpus, DepthOneTable, SaturatedTable};
use super::wrong;
use crate::calibrate::{Calibrated, DepthOne, Placement, Saturated, SideWork, WireTimes, calibrate};
use crate::known::Known;
use crate::{ModelError, Ring, Role, Stage};

/// The rate of the saturated run, where it is given.
fn rate(saturated: &SaturatedTable) -> Result<Option<Known>, ModelError> {
    let Some(text) = &saturated.iops else { return Ok(None) };
    let iops = Known::parse_number(text).map_err(|e| wrong("saturated.iops", &e))?;
    if iops.value <= 0.0 {
        return Err(ModelError::new("saturated.iops", text, "a rate above 0 is possible, such as 63000"));
    }
    Ok(Some(iops))
}

/// How much faster than its times allow a saturated run may be: times are rounded, and CPU shares are sampled.
const FASTER_MAX: f64 = 1.1;

/// The paper's own check: TPTmin is 1 / IOPS. A slower run was not saturated, a faster one is of another system.
pub(super) fn check_rate(saturated: &SaturatedTable, ring: &Ring) -> Result<(), ModelError> {
    let Some(iops) = rate(saturated)? else { return Ok(()) };
    let limit = ring.iops_max();
    if iops.value <= limit * FASTER_MAX {
        return Ok(());
    }
    Err(ModelError::new(
        "saturated.iops",
        format!("{iops}, where the times allow {limit:.0}"),
        "the times and the rate are not of one run: more operations than the busiest stage can serve",
    ))
}

/// The ring of a saturated run and one at queue depth 1, with its terms.
pub(super) fn calibrated(
    saturated: &SaturatedTable,
    depth_one: &DepthOneTable,
    link: Link,
    messages: Messages,
    paced: bool,
) -> Result<Calibrated, ModelError> {
    let work = |name: &str, text: Option<&str>| work(saturated, name, text);
    let side = |names: [&str; 3], softirq: &Option<String>, thread: &String, transmit: &Option<String>| {
        Ok::<_, ModelError>(SideWork {
            softirq: work(names[0], softirq.as_deref())?.unwrap_or_default(),
            thread: work(names[1], Some(thread))?.unwrap_or_default(),
            transmit: work(names[2], transmit.as_deref())?,
        })
    };
    let s = saturated;
    let server = ["server-softirq", "server-thread", "server-transmit"];
    let client = ["client-softirq", "client-thread", "client-transmit"];
    let saturated = Saturated {
        server: side(server, &s.server_softirq, &s.server_thread, &s.server_transmit)?,
        client: side(client, &s.client_softirq, &s.client_thread, &s.client_transmit)?,
    };
    let time = |name: &str, text: &str| {
        Known::parse_time_us(text).map_err(|e| wrong(format!("depth-one.{name}"), &e))
    };
    let one = DepthOne {
        rtt: time("rtt", &depth_one.rtt)?,
        outside_client: time("c2-c1", &depth_one.outside_client)?,
        server: time("s2-s1", &depth_one.server)?,
        request_path: depth_one.request_path.as_deref().map(|t| time("s1-c1", t)).transpose()?,
    };
    let wire = link.wire();
    let times = WireTimes {
        w1_us: wire.own_packets_us(messages.request_bytes()),
        w2_us: wire.own_packets_us(messages.response_bytes()),
        paced,
    };
    let apart = s.server_softirq.is_some() || s.client_softirq.is_some();
    let placement = match s.cpus {
        Cpus::Own => Placement::OwnCpus,
        Cpus::TransmitApart => Placement::TransmitApart,
        Cpus::Shared if apart => Placement::Interrupts,
        Cpus::Shared => Placement::OneStage,
    };
    let mut calibrated = calibrate(&saturated, &one, &times, placement)?;
    calibrated.ring = with_packets(&calibrated.ring, s)?;
    Ok(calibrated)
}

/// Work of the saturated run, from a time or from a share of a CPU.
fn work(saturated: &SaturatedTable, name: &str, text: Option<&str>) -> Result<Option<Known>, ModelError> {
    let Some(text) = text else { return Ok(None) };
    let key = format!("saturated.{name}");
    if !text.contains('%') {
        return Known::parse_time_us(text).map(Some).map_err(|e| wrong(key, &e));
    }
    let iops = rate(saturated)?.ok_or_else(|| {
        ModelError::new("saturated.iops", "nothing", "a share of a CPU needs the IOPS at which it was read")
    })?;
    let share = Known::parse_number(text).map_err(|e| wrong(key, &e))?;
    Ok(Some(share / iops * 1e6))
}

/// The ring with what a packet costs: a side's first stage receives, its last one sends.
fn with_packets(ring: &Ring, table: &SaturatedTable) -> Result<Ring, ModelError> {
    let cost = |name: &str, text: &Option<String>| {
        Ok::<_, ModelError>(work(table, name, text.as_deref())?.map_or(0.0, |us| us.value))
    };
    let sides = [
        (
            Role::Server,
            cost("server-packet-received", &table.server_packet_received)?,
            cost("server-packet-sent", &table.server_packet_sent)?,
        ),
        (
            Role::Client,
            cost("client-packet-received", &table.client_packet_received)?,
            cost("client-packet-sent", &table.client_packet_sent)?,
        ),
    ];
    let mut stages = ring.stages().to_vec();
    for (role, received_us, sent_us) in sides {
        let of_side = |stage: &&mut Stage| stage.role() == role;
        if let Some(first) = stages.iter_mut().find(of_side) {
            first.per_received_us = received_us;
        }
        if let Some(last) = stages.iter_mut().rev().find(of_side) {
            last.per_sent_us = sent_us;
        }
    }
    Ring::new(stages)
}
