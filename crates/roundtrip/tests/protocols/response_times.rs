//! Response times by tshark, operation by operation.

use std::collections::HashMap;
use std::path::Path;

use capture::file::{CaptureFile, InterfaceDescription, PcapngWriter};

use crate::common::live::analyze;
use crate::common::{records, succeed};

/// A capture on loopback as one of Ethernet: each packet once, which is there as it leaves and as it arrives, and between a client and the
/// protocol's own port, by which tshark tells requests from answers.
fn adapted(capture: &Path, port: u16, own_port: u16, to: &Path) {
    let mut file = CaptureFile::open(capture).unwrap();
    let mut writer = PcapngWriter::new(Vec::new(), "test").unwrap();
    let (mut interface, mut before) = (None, Vec::<Vec<u8>>::new());
    while let Some(frame) = file.next_frame().unwrap() {
        if before.iter().rev().take(16).any(|before| *before == frame.data) {
            continue;
        }
        let mut bytes = frame.data.to_vec();
        let (tcp, time_ns) = (14 + usize::from(bytes[14] & 15) * 4, frame.time_ns);
        for at in [tcp, tcp + 2] {
            if bytes[at..at + 2] == port.to_be_bytes() {
                bytes[at..at + 2].copy_from_slice(&own_port.to_be_bytes());
            }
        }
        before.push(frame.data.to_vec());
        let link = file.interfaces()[0].link;
        let description = InterfaceDescription {
            name: "lo".to_owned(),
            description: None,
            link,
            snap_bytes: 0,
            bits_per_second: None,
        };
        let interface = *interface.get_or_insert_with(|| writer.interface(&description).unwrap());
        writer.frame(interface, time_ns, None, &bytes, bytes.len() as u32, None).unwrap();
    }
    std::fs::write(to, writer.finish().unwrap()).unwrap();
}

/// The times of a capture: how many both have within a microsecond, how many tshark has in this field, and how many we have.
pub(crate) fn agreeing(capture: &Path, port: u16, own_port: u16, field: &str) -> [usize; 3] {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, ops) = (path("adapted.pcapng"), path("ops.csv"));
    adapted(capture, port, own_port, Path::new(&file));
    let text =
        succeed("tshark", &["-r", &file, "-Y", field, "-T", "fields", "-e", "frame.number", "-e", field]);
    let mut theirs: Vec<(u64, f64)> = Vec::new();
    for line in text.lines() {
        let Some((frame, times)) = line.split_once('\t') else { continue };
        let Ok(frame) = frame.parse() else { continue };
        theirs.extend(times.split(',').map(|time| (frame, time.parse::<f64>().unwrap())));
    }
    analyze(&[&file, "--no-modes", "--ops", &ops]);
    let mut ours: HashMap<u64, Vec<f64>> = HashMap::new();
    let mut count = 0;
    for record in records(Path::new(&ops)) {
        let ns = |name: &str| record[name].parse::<u64>().unwrap();
        // On loopback the handshake may indicate either side.
        let took = (ns("c2_ns") + ns("s2_ns")) - (ns("c1_ns") + ns("s1_ns"));
        ours.entry(ns("response_frame")).or_default().push(took as f64 / 1e9);
        count += 1;
    }
    let found = theirs.len();
    theirs.retain(|(frame, time)| {
        let Some(of_ours) = ours.get_mut(frame) else { return false };
        let place = of_ours.iter().position(|our| (our - time).abs() < 1e-6);
        place.map(|place| of_ours.swap_remove(place)).is_some()
    });
    [theirs.len(), found, count]
}
