//! Writes a copy of a capture as pcapng, with the verdicts as comments on the frames that prove them.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use capture::file::{CaptureFile, InterfaceDescription, PcapngWriter};
use record::Side;

use crate::result::AnalysisResult;
use crate::run::AnalysisError;

/// Reads the inputs of the analysis again, in the same order, and writes all their frames with comments; one interface for each capture point.
///
/// # Errors
/// When an input cannot be read again (standard input cannot), or the output not written.
pub fn annotate(
    inputs: &[(PathBuf, Option<Side>)],
    result: &AnalysisResult,
    out: impl Write,
    application: &str,
) -> Result<(), AnalysisError> {
    let mut writer = PcapngWriter::new(out, application)?;
    for (number, (path, place)) in inputs.iter().enumerate() {
        let comments = comments(result, number as u32);
        let mut file = CaptureFile::open(path)?;
        let side = place.map(Side::name);
        let mut interfaces: BTreeMap<u32, u32> = BTreeMap::new();
        while let Some(frame) = file.next_frame()? {
            let (from, at, outgoing) = (frame.interface, frame.time_ns, frame.outgoing);
            let (index, wire_bytes) = (frame.number, frame.wire_bytes);
            let known = interfaces.get(&from).copied();
            let comment = comments.get(&index).map(String::as_str);
            if let Some(interface) = known {
                writer.frame(interface, at, outgoing, frame.data, wire_bytes, comment)?;
                continue;
            }
            let data = frame.data.to_vec();
            let described = file.interfaces().get(from as usize).cloned().unwrap_or_default();
            let name = described.name.unwrap_or_else(|| format!("interface {from}"));
            let interface = writer.interface(&InterfaceDescription {
                name: side.map_or(name.clone(), |side| format!("{side}: {name}")),
                description: Some(file.name().to_owned()),
                link: described.link,
                snap_bytes: described.snap_bytes,
                bits_per_second: described.bits_per_second,
            })?;
            interfaces.insert(from, interface);
            writer.frame(interface, at, outgoing, &data, wire_bytes, comment)?;
        }
    }
    writer.finish()?;
    Ok(())
}

/// The comments on the frames of an input.
fn comments(result: &AnalysisResult, input: u32) -> BTreeMap<u64, String> {
    let mut comments: BTreeMap<u64, String> = BTreeMap::new();
    for verdict in result.verdicts.iter().filter(|v| v.frames.input == input) {
        let gain = verdict.gain.as_ref().map(|g| format!(" Gain: {}.", g.text)).unwrap_or_default();
        let kind = analysis::verdict::name(verdict.kind);
        let text = format!("roundtrip: {kind}: {}.{gain}", verdict.text);
        for &number in &verdict.frames.numbers {
            comments
                .entry(number)
                .and_modify(|all| {
                    all.push('\n');
                    all.push_str(&text);
                })
                .or_insert_with(|| text.clone());
        }
    }
    comments
}
