//! What capture points see of pipelined requests: both ends of a connection, and heads of packets alone.

use analyzer::{Analysis, AnalysisResult, Input, Options};
use record::Side;

use super::free_address;
use super::holes::{packets, written};
use crate::common::live::{captured, may_capture};
use crate::common::succeed;

/// Requests of each kind.
const REQUESTS: u64 = 6_400;

/// 16 requests a packet on one connection, at both of its ends: more of one end than may wait before the other's are read. Then with a
/// snap length that leaves no byte of them.
#[test]
fn dense_connections_are_counted_once_and_hidden_ones_say_so() {
    let Some(_alone) = may_capture() else { return };
    let address = free_address();
    let port = address.port().to_string();
    let _server = super::redis::server(address);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.pcapng");
    let count = REQUESTS.to_string();
    let benchmark = ["-p", &port, "-n", &count, "-c", "1", "-P", "16", "-t", "set,get", "-q"];
    captured("lo", address.port(), &file, || Ok(()), || succeed("redis-benchmark", &benchmark));
    let (link, packets) = packets(&file, address.port());
    let analyzed = |most: usize, points: &[Side]| -> AnalysisResult {
        let inputs = points.iter().map(|&side| {
            let place = (points.len() > 1).then_some(side);
            Input { file: written(link, &packets, most), place }
        });
        Analysis::run(inputs.collect(), &Options::default(), None, &mut |_| (), &|| false).unwrap()
    };
    let one = analyzed(usize::MAX, &[Side::Client]);
    assert!(one.operations >= 2 * REQUESTS, "{}", one.operations);
    let both = analyzed(usize::MAX, &[Side::Client, Side::Server]);
    assert_eq!((both.operations, both.operations_both_sides), (one.operations, one.operations));
    for bytes in [66, 72] {
        let heads = analyzed(bytes, &[Side::Client]);
        assert!(heads.operations > 0 && heads.operations < REQUESTS, "{bytes}: {}", heads.operations);
        assert!(heads.notes.iter().any(|note| note.contains("a snap length hides")), "{:?}", heads.notes);
        let closes: Vec<_> = heads.stanzas.iter().filter_map(|stanza| stanza.closes).collect();
        assert!(!heads.stanzas.is_empty() && closes.is_empty(), "{bytes}: {closes:?}");
    }
}
