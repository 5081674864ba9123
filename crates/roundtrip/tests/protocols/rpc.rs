//! NFS 4: nfs-ganesha, with the tools of libnfs and pipelined calls.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use super::wireshark::{Dissector, recorded};
use super::{free_address, row};
use crate::common::daemon::Daemon;
use crate::common::live::{analyze, may_capture};
use crate::common::succeed;

/// Calls that the pipelining client keeps in flight, and how often.
const OUTSTANDING: usize = 16;
const BATCHES: usize = 50;

/// A server of one folder in memory. Version 4 alone needs no port mapper.
fn start(folder: &Path, address: SocketAddr) -> Daemon {
    let (path, port) = (folder.display(), address.port());
    let configuration = format!(
        "NFS_CORE_PARAM {{ NFS_Port = {port}; Bind_addr = 127.0.0.1; Protocols = 4; Enable_NLM = false;
            Enable_RQUOTA = false; Enable_UDP = false; }}
         NFSV4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = {path}/recovery; }}
         EXPORT {{ Export_Id = 1; Path = /memory; Pseudo = /memory; Access_Type = RW; Squash = None; SecType = sys;
            Protocols = 4; Transports = TCP; FSAL {{ Name = MEM; }} }}
         MEM {{ Inode_Size = 65536; }}\n"
    );
    let file = folder.join("ganesha.conf");
    std::fs::write(&file, configuration).unwrap();
    let (log, pid) = (format!("{path}/log"), format!("{path}/pid"));
    let mut server = Command::new("ganesha.nfsd");
    server.args(["-F", "-f", file.to_str().unwrap(), "-L", &log, "-p", &pid]);
    Daemon::start(&mut server, address)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A record with a call of NFS 4 without credentials: a compound of these operations.
fn compound(xid: u32, operations: &[u32]) -> Vec<u8> {
    let head = [xid, 0, 2, 100_003, 4, 1, 0, 0, 0, 0, 0, 0, operations.len() as u32];
    let call = [words(&head), operations.iter().flat_map(|&operation| of(operation)).collect()].concat();
    [words(&[1 << 31 | call.len() as u32]), call].concat()
}

/// An operation with its arguments.
fn of(operation: u32) -> Vec<u8> {
    match operation {
        // GETATTR of the type and the size.
        9 => words(&[9, 1, 0x12]),
        // LOOKUP of a name that does not exist.
        15 => [words(&[15, 4]), b"none".to_vec()].concat(),
        other => words(&[other]),
    }
}

fn read_record(stream: &mut TcpStream) {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let length = u32::from_be_bytes(mark) & !(1 << 31);
    stream.read_exact(&mut vec![0; length as usize]).unwrap();
}

#[test]
fn every_call_is_an_operation() {
    const FILES: usize = 6;
    // The tool writes no more at once.
    const BYTES: usize = 3000;
    const PUTROOTFH: u32 = 24;
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = start(folder.path(), address);
    let source = folder.path().join("source");
    std::fs::write(&source, vec![b'x'; BYTES]).unwrap();
    let url = |name: &str| format!("nfs://127.0.0.1/memory/{name}?version=4&nfsport={}", address.port());
    let (_, file) = recorded(address, folder.path(), || {
        for at in 0..FILES {
            succeed("nfs-cp", &[source.to_str().unwrap(), &url(&format!("file{at}"))]);
            let text = succeed("nfs-cat", &[&url(&format!("file{at}"))]);
            assert!(text.starts_with(&"x".repeat(BYTES)));
        }
        succeed("nfs-ls", &[&url("")]);
        let mut stream = TcpStream::connect(address).unwrap();
        for batch in 0..BATCHES {
            let call = |at: usize| {
                let what = if at == 3 { 15 } else { 9 };
                compound((batch * OUTSTANDING + at) as u32, &[PUTROOTFH, what])
            };
            stream.write_all(&(0..OUTSTANDING).flat_map(call).collect::<Vec<u8>>()).unwrap();
            (0..OUTSTANDING).for_each(|_| read_record(&mut stream));
        }
    });
    let ops = folder.path().join("ops.csv").display().to_string();
    let result = analyze(&[file.to_str().unwrap(), "--ops", &ops]);
    let dissector = Dissector { file: &file, port: address.port(), protocol: "rpc" };
    // By what tshark takes for the main operation of a compound.
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    for row in dissector.fields("rpc.msgtyp == 0", &["rpc.procedure", "nfs.main_opcode"]) {
        let [procedures, codes] = [1, 2].map(|at| row.get(at).map_or("", String::as_str));
        *calls.entry("all".to_owned()).or_default() += procedures.split(',').count() as u64;
        for code in codes.split(',').filter(|code| !code.is_empty()) {
            *calls.entry(code.to_owned()).or_default() += 1;
        }
    }
    let services = result["services"].as_array().unwrap();
    assert!(services.iter().all(|row| row["protocol"] == "rpc"), "{services:#?}");
    let sum: u64 = services.iter().map(|row| row["operations"].as_u64().unwrap()).sum();
    assert_eq!(sum, calls["all"], "{calls:?}");
    let pipelined = (BATCHES * OUTSTANDING) as u64;
    assert!(sum > pipelined + 10 * FILES as u64, "{sum}");
    for (code, operation) in
        [("18", "OPEN"), ("25", "READ"), ("38", "WRITE"), ("26", "READDIR"), ("9", "GETATTR")]
    {
        assert_eq!(row(&result, operation)["operations"], calls[code], "{operation}: {calls:?}");
    }
    assert_eq!(row(&result, "WRITE")["operations"], FILES as u64);
    let attributes = row(&result, "GETATTR");
    let in_flight = attributes["in_flight_max"].as_u64().unwrap();
    assert!((2..=OUTSTANDING as u64).contains(&in_flight), "{attributes:#}");
    let text = std::fs::read_to_string(ops).unwrap();
    assert_eq!(text.matches(",NOENT,").count(), BATCHES);
    assert_eq!(result["streams"]["unmatched"], 0);
    assert_eq!(dissector.agrees("rpc.time", "rpc.time") as u64, sum);
}
