//! The times of operations, as tshark has them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::common::live::{analyze, captured};
use crate::common::succeed;

/// Captures what `work` sends to a server on loopback. The file has each packet once, as the client sees it: tshark takes the other
/// copy for a repetition.
pub(super) fn recorded<T>(server: SocketAddr, folder: &Path, work: impl FnOnce() -> T) -> (T, PathBuf) {
    let (both, file) = (folder.join("both.pcapng"), folder.join("client.pcapng"));
    let (done, recorded) = captured("lo", server.port(), &both, || Ok(()), work);
    let drops: u64 = recorded.interfaces.iter().map(|interface| interface.drops).sum();
    assert_eq!(drops, 0, "the capture is complete");
    let one = "frame.interface_name == \"lo at the client\"";
    succeed("tshark", &["-r", both.to_str().unwrap(), "-Y", one, "-w", file.to_str().unwrap()]);
    (done, file)
}

/// What tshark says of a file's packets.
pub(super) struct Dissector<'a> {
    pub(super) file: &'a Path,
    pub(super) port: u16,
    /// Its name of the protocol.
    pub(super) protocol: &'a str,
}

impl Dissector<'_> {
    /// Fields of the packets that a filter selects, with the number of the frame before them.
    pub(super) fn fields(&self, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
        let decode = format!("tcp.port=={},{}", self.port, self.protocol);
        let mut arguments = vec!["-r", self.file.to_str().unwrap(), "-d", &decode, "-Y", filter];
        arguments.extend(["-T", "fields", "-e", "frame.number"]);
        fields.iter().for_each(|field| arguments.extend(["-e", field]));
        let text = succeed("tshark", &arguments);
        // Other lines are warnings of tshark.
        let lines = text.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
        lines.map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }

    /// Asserts that all but one in two hundred of the times in a field are that of an operation that ends in the same frame, to the
    /// microsecond. Returns how many there are.
    #[track_caller]
    pub(super) fn agrees(&self, filter: &str, field: &str) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let ops = folder.path().join("ops.csv");
        analyze(&[self.file.to_str().unwrap(), "--no-modes", "--ops", ops.to_str().unwrap()]);
        let mut ours: HashMap<u64, Vec<f64>> = HashMap::new();
        let text = std::fs::read_to_string(ops).unwrap();
        let mut lines = text.lines();
        let heading: Vec<&str> = lines.next().unwrap().split(',').collect();
        let columns = ["response_frame", "c1_ns", "c2_ns", "s1_ns", "s2_ns"]
            .map(|name| heading.iter().position(|column| *column == name).unwrap());
        for line in lines {
            let fields: Vec<&str> = line.split(',').collect();
            let [frame, c1, c2, s1, s2] = columns.map(|column| fields[column].parse::<u64>().unwrap());
            // One capture point has the times of one side.
            ours.entry(frame).or_default().push(((c2 + s2) - (c1 + s1)) as f64 / 1e9);
        }
        let (mut found, mut different) = (0, Vec::new());
        for row in self.fields(filter, &[field]) {
            let [frame, times] = &row[..] else { panic!("{row:?}") };
            let own = ours.entry(frame.parse().unwrap()).or_default();
            for time in times.split(',') {
                found += 1;
                let seconds: f64 = time.parse().unwrap();
                match own.iter().position(|own| (own - seconds).abs() < 1e-6) {
                    Some(place) => drop(own.swap_remove(place)),
                    None => different.push(format!("frame {frame}: {time}, ours {own:?}")),
                }
            }
        }
        println!("{}: {} of {found} times within 1 us", self.protocol, found - different.len());
        assert!(different.len() * 200 <= found, "{} of {found}: {different:#?}", different.len());
        found
    }
}
