//! Models as files: TOML with units.
//!
//! Three kinds: `[[stage]]` or `[saturated]` with `[depth-one]` make a ring; `[copy]` a bulk copy; `[post]` a
//! request in two segments.

mod calibration;
mod tables;

use calibration::{calibrated, check_rate};
use tables::{CopyTable, File, MeasuredTable, StageTable};

use super::calibrate::Calibrated;
use super::extras::Extras;
use super::setup::{Nagle, Setup};
use super::transfer::{CopyModel, Measured, Post};
use super::what_if::{
    ack_delay_us, parse_coalescing, parse_digests, parse_is_ipv6, parse_mtu, parse_slow, time_us,
};
use super::{Model, ModelError, Ring, Stage, check_queue_depth};
use crate::known::Known;
use record::units::{UnitError, parse_bit_rate, parse_size};
use record::wire::{Link, Messages};

/// Reads a model. W1 and W2 need no service time: it follows from the wire.
///
/// # Errors
/// When the text is no TOML of this form, or a value is impossible; the key is named.
pub fn read(text: &str) -> Result<Model, ModelError> {
    let file: File = toml::from_str(text)
        .map_err(|e| ModelError::new("file", e.message(), "see `roundtrip model --help` for the form"))?;
    let kinds = [
        !file.stage.is_empty(),
        file.saturated.is_some() || file.depth_one.is_some(),
        file.copy.is_some(),
        file.post.is_some(),
    ];
    if kinds.into_iter().filter(|k| *k).count() != 1 {
        return Err(ModelError::new(
            "file",
            "none of them, or several",
            "write [[stage]], or [saturated] with [depth-one], or [copy], or [post]",
        ));
    }
    if let Some(copy) = &file.copy {
        return read_copy(copy).map(Model::Copy);
    }
    if let Some(p) = &file.post {
        let post = Post {
            rest_us: time_us("post.rest", &p.rest)?,
            gap_us: time_us("post.gap", &p.gap)?,
            ack_delay_us: ack_delay_us("post.ack-delay", &p.ack_delay)?,
        };
        if post.nodelay_request_us() <= 0.0 {
            return Err(ModelError::new(
                "post.rest",
                &p.rest,
                "a request takes some time besides the delayed ACK",
            ));
        }
        return Ok(Model::Post(post));
    }
    let (link, messages) = read_wire(&file)?;
    let (ring, terms) = match (&file.saturated, &file.depth_one) {
        (Some(saturated), Some(depth_one)) => {
            let Calibrated { ring, terms } =
                calibrated(saturated, depth_one, link, messages, file.wire.paced)?;
            // Nagle's algorithm shares the costs of packets, which are in the times.
            if !file.ring.nagle && !file.ring.client_nagle {
                check_rate(saturated, &ring)?;
            }
            (ring, Some(terms))
        }
        (None, None) => (Ring::new(read_stages(&file.stage, link, messages)?)?, None),
        (Some(_), None) => {
            return Err(ModelError::new(
                "depth-one",
                "nothing",
                "latencies come from a run at queue depth 1",
            ));
        }
        (None, Some(_)) => {
            return Err(ModelError::new("saturated", "nothing", "service times come from a saturated run"));
        }
    };
    let r = &file.ring;
    check_queue_depth(r.queue_depth)?;
    if r.sessions == 0 {
        return Err(ModelError::new("ring.sessions", 0, "1 or more sessions are possible"));
    }
    if !(1..=2).contains(&r.sends) {
        return Err(ModelError::new(
            "ring.sends",
            r.sends,
            "1 (a response in one send) or 2 (header and data apart) is possible",
        ));
    }
    let nagle = Nagle {
        sends: r.sends,
        ack_delay_us: ack_delay_us("ring.ack-delay", &r.ack_delay)?,
        flushes_when_idle: r.flush,
    };
    let server_ack_delay_us = ack_delay_us("ring.server-ack-delay", &r.server_ack_delay)?;
    let client_nagle = Nagle { ack_delay_us: server_ack_delay_us, ..Nagle::default() };
    Ok(Model::Ring(Box::new(Setup {
        terms,
        nagle: r.nagle.then_some(nagle),
        client_nagle: r.client_nagle.then_some(client_nagle),
        queue_depth: r.queue_depth,
        sessions: r.sessions,
        extras: Extras {
            think_us: time_us("ring.think", &r.think)?,
            coalescing: parse_coalescing("ring.coalescing", &r.coalescing)?,
            slow: parse_slow("ring.slow", &r.slow)?,
            ..Extras::default()
        },
        ..Setup::new(ring, link, messages)
    })))
}

fn read_wire(file: &File) -> Result<(Link, Messages), ModelError> {
    let w = &file.wire;
    let link = Link {
        bits_per_second: parse_bit_rate(&w.bandwidth).map_err(|e| wrong("wire.bandwidth", &e))?,
        mtu_bytes: parse_mtu("wire.mtu", &w.mtu.to_string())?,
        ipv6: parse_is_ipv6("wire.ip", &w.ip.to_string())?,
        timestamps: w.timestamps,
        vlan: w.vlan,
    };
    if link.mtu_bytes <= link.wire().tcpip_bytes {
        return Err(ModelError::new("wire.mtu", w.mtu, "more than the headers is possible"));
    }
    let digests = parse_digests("wire.digests", &w.digests)?;
    let block_bytes = parse_size(&file.ring.block_size).map_err(|e| wrong("ring.block-size", &e))?;
    if block_bytes == 0 || block_bytes > 1 << 30 {
        return Err(ModelError::new("ring.block-size", block_bytes, "1 byte to 1G is possible"));
    }
    let write = match file.ring.operation.as_str() {
        "read" => false,
        "write" => true,
        other => return Err(ModelError::new("ring.operation", other, "read or write is possible")),
    };
    let messages = Messages { block_bytes, write, header_digest: digests.header, data_digest: digests.data };
    Ok((link, messages))
}

fn read_stages(tables: &[StageTable], link: Link, messages: Messages) -> Result<Vec<Stage>, ModelError> {
    let time = |key: String, text: &str| -> Result<Known, ModelError> {
        // A parameter is exact unless it says otherwise.
        let exact = !text.contains("+-") && !text.contains('±');
        let known = Known::parse_time_us(text).map_err(|e| wrong(key, &e))?;
        Ok(if exact { Known::exactly(known.value) } else { known })
    };
    let read = |s: &StageTable| {
        let service = match (&s.service, s.name.as_str()) {
            (Some(text), _) => time(format!("{}.service", s.name), text)?,
            (None, "W1") => Known::exactly(link.wire().own_packets_us(messages.request_bytes())),
            (None, "W2") => Known::exactly(link.wire().own_packets_us(messages.response_bytes())),
            (None, name) => {
                let key = format!("{name}.service");
                return Err(ModelError::new(key, "nothing", "only W1 and W2 follow from the wire"));
            }
        };
        let latency = time(format!("{}.latency", s.name), s.latency.as_deref().unwrap_or("0us"))?;
        let part = |key: &str, text: Option<&str>| match text {
            Some(text) => Ok(time(format!("{}.{key}", s.name), text)?.value),
            None => Ok::<_, ModelError>(0.0),
        };
        Ok(Stage {
            per_received_us: part("per-packet-received", s.per_packet_received.as_deref())?,
            per_sent_us: part("per-packet-sent", s.per_packet_sent.as_deref())?,
            resource: s.resource.clone().unwrap_or_else(|| s.name.clone()),
            paced: s.paced,
            interrupt: s.interrupt,
            ..Stage::own(&s.name, service.value, latency.value)
                .known_within(service.plus_minus, latency.plus_minus)
        })
    };
    tables.iter().map(read).collect()
}

fn read_copy(copy: &CopyTable) -> Result<CopyModel, ModelError> {
    let bytes = |key: &str, text: &str| -> Result<f64, ModelError> {
        Ok(parse_size(text).map_err(|e| wrong(key, &e))? as f64)
    };
    let [a, b] = copy.measured.as_slice() else {
        return Err(ModelError::new("copy.measured", copy.measured.len(), "two measurements are needed"));
    };
    let measured = |m: &MeasuredTable| {
        Ok::<_, ModelError>(Measured {
            unit_bytes: bytes("copy.measured.unit", &m.unit)?,
            bytes_per_second: m.megabytes_per_second * 1e6,
        })
    };
    let asked = copy.predict.iter().map(|t| bytes("copy.predict", t)).collect::<Result<Vec<_>, _>>()?;
    CopyModel::new(&copy.unit, [measured(a)?, measured(b)?], &asked)
}

fn wrong(key: impl Into<String>, error: &UnitError) -> ModelError {
    ModelError::new(key, error, "see its units")
}

#[cfg(test)]
mod tests;
