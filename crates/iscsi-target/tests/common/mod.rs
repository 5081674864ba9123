//! A raw initiator for tests: it sends any PDU, valid or not, and returns what it receives. It supports sessions with
//! several connections and ErrorRecoveryLevel 1 and 2, which the available initiators do not.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test uses a part of it, and fails by panicking"
)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use iscsi::login::chap;
use iscsi::opcode::target as opcode;
use iscsi::pdu::{
    DataOut, LoginRequest, LoginResponse, LogoutRequest, NopOut, ScsiCommand, TaskManagementRequest,
    TextRequest,
};
use iscsi::{Bhs, Cut, Digests, Framer, NO_TAG, TransmitBuffer};
use iscsi_target::{Access, LunConfig, NodeConfig, RunningTarget, TargetConfig};
use store::{Ram, Store};

pub const IQN: &str = "iqn.2026-11.example.roundtrip:test";
pub const INITIATOR: &str = "iqn.2026-11.example.roundtrip:initiator";

pub fn ram(number: u16, mebibytes: u64) -> LunConfig {
    LunConfig::new(number, Arc::new(Ram::new(mebibytes << 20)) as Arc<dyn Store>)
}

pub fn start(luns: Vec<LunConfig>, change: impl FnOnce(&mut TargetConfig)) -> RunningTarget {
    let mut config = TargetConfig::new("127.0.0.1:0".parse().unwrap(), IQN, luns);
    change(&mut config);
    RunningTarget::start(config).unwrap()
}

/// Replaces disks and rules; initiators that may no longer log in have a second.
pub fn set(target: &RunningTarget, luns: &[LunConfig], access: Option<Access>) {
    let node = NodeConfig { access, ..NodeConfig::new(IQN, luns.to_vec()) };
    target.set_nodes(&[node], Duration::from_secs(1)).unwrap();
}

/// A received PDU.
#[derive(Clone, Debug)]
pub struct Pdu {
    pub bhs: Bhs,
    pub data: Vec<u8>,
}

impl Pdu {
    pub fn opcode(&self) -> u8 {
        self.bhs.opcode()
    }

    pub fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.bhs.0[at..at + 4].try_into().unwrap())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.data).replace('\0', " ")
    }
}

pub struct Login<'a> {
    pub initiator: &'a str,
    pub isid: u8,
    pub cid: u16,
    pub tsih: u16,
    pub cmd_sn: u32,
    pub keys: &'a str,
    pub target: &'a str,
}

impl Default for Login<'_> {
    fn default() -> Self {
        Self { initiator: INITIATOR, isid: 1, cid: 0, tsih: 0, cmd_sn: 1, keys: "", target: IQN }
    }
}

pub struct Client {
    pub socket: TcpStream,
    framer: Framer,
    digests: Digests,
    bytes: Vec<u8>,
    pub tsih: u16,
    pub cmd_sn: u32,
    pub exp_stat_sn: u32,
    pub exp_cmd_sn: u32,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let framer = Framer::new(1 << 20);
        let digests = Digests::default();
        Self { socket, framer, digests, bytes: Vec::new(), tsih: 0, cmd_sn: 1, exp_stat_sn: 0, exp_cmd_sn: 0 }
    }

    /// Logs in with one exchange; returns the response and its text.
    pub fn try_log_in(address: SocketAddr, login: &Login<'_>) -> (Self, LoginResponse, String) {
        let mut client = Self::connect(address);
        let session = if login.keys.contains("SessionType=") { "" } else { "SessionType=Normal\0" };
        let text = format!(
            "InitiatorName={}\0TargetName={}\0{session}{}",
            login.initiator,
            login.target,
            login.keys.replace(' ', "\0")
        );
        let request = LoginRequest {
            immediate: true,
            transit: true,
            stage_byte: 1 << 2 | 3,
            isid: [0x80, 0, 0, 0, 0, login.isid],
            tsih: login.tsih,
            cid: login.cid,
            cmd_sn: login.cmd_sn,
            ..LoginRequest::default()
        };
        let mut text = text.into_bytes();
        if text.last() != Some(&0) {
            text.push(0);
        }
        client.send(request.write(), &text);
        let answer = client.receive().expect("a login response");
        let response = LoginResponse::read(&answer.bhs);
        client.tsih = response.tsih;
        client.cmd_sn = login.cmd_sn;
        client.exp_stat_sn = response.stat_sn.wrapping_add(1);
        client.digests.header = answer.text().contains("HeaderDigest=CRC32C");
        client.digests.data = answer.text().contains("DataDigest=CRC32C");
        client.framer.digests = client.digests;
        (client, response, answer.text())
    }

    pub fn log_in(address: SocketAddr, login: &Login<'_>) -> Self {
        let (client, response, text) = Self::try_log_in(address, login);
        assert_eq!(response.status, 0, "{text}");
        client
    }

    /// Sends a Login Request with its stages and T bit; returns the response and its text.
    pub fn login_request(
        &mut self,
        login: &Login<'_>,
        (csg, nsg, transit): (u8, u8, bool),
        text: &str,
    ) -> (u16, String) {
        let request = LoginRequest {
            immediate: true,
            transit,
            stage_byte: csg << 2 | if transit { nsg } else { 0 },
            isid: [0x80, 0, 0, 0, 0, login.isid],
            tsih: login.tsih,
            cid: login.cid,
            cmd_sn: login.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ..LoginRequest::default()
        };
        let text: String =
            text.split(' ').filter(|key| !key.is_empty()).map(|key| format!("{key}\0")).collect();
        self.send(request.write(), text.as_bytes());
        let answer = self.receive().expect("a login response");
        let response = LoginResponse::read(&answer.bhs);
        self.tsih = response.tsih;
        self.cmd_sn = login.cmd_sn;
        self.exp_stat_sn = response.stat_sn.wrapping_add(1);
        (response.status, answer.text())
    }

    /// Logs in with CHAP as a user; returns the status of the last response.
    pub fn try_chap(address: SocketAddr, login: &Login<'_>, (user, secret): (&str, &str)) -> (Self, u16) {
        let mut client = Self::connect(address);
        let is_discovery = login.keys.contains("SessionType=Discovery");
        let session = if is_discovery { "Discovery" } else { "Normal" };
        let names = format!(
            "InitiatorName={} TargetName={} SessionType={session} AuthMethod=CHAP CHAP_A=7",
            login.initiator, login.target
        );
        let (status, text) = client.login_request(login, (0, 0, false), &names);
        if status != 0 {
            return (client, status);
        }
        let proof = chap_proof(&text, user, secret);
        let (status, _) = client.login_request(login, (0, 1, true), &proof);
        if status != 0 {
            return (client, status);
        }
        let (status, _) = client.login_request(login, (1, 3, true), login.keys);
        (client, status)
    }

    pub fn send(&mut self, bhs: Bhs, data: &[u8]) {
        let bytes = self.encode(bhs, data);
        self.socket.write_all(&bytes).unwrap();
    }

    /// Encodes a PDU.
    pub fn encode(&self, bhs: Bhs, data: &[u8]) -> Vec<u8> {
        let mut out = TransmitBuffer::new();
        out.set_digests(self.digests);
        out.pdu(bhs, data);
        out.pending().to_vec()
    }

    /// Receives the next PDU; `None` when the target has closed the connection.
    pub fn receive(&mut self) -> Option<Pdu> {
        loop {
            if let Cut::Frame(frame) = self.framer.next(&self.bytes).unwrap() {
                let pdu = Pdu { bhs: frame.bhs, data: frame.data.to_vec() };
                self.bytes.drain(..frame.total_bytes);
                if pdu.opcode() != iscsi::opcode::target::LOGIN {
                    self.exp_cmd_sn = pdu.u32(28);
                }
                return Some(pdu);
            }
            let mut piece = [0; 65536];
            match self.socket.read(&mut piece) {
                Ok(0) => return None,
                Ok(count) => self.bytes.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                // Whoever stops and continues the process interrupts a wait with a time-out.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("nothing came: {error}"),
            }
        }
    }

    pub fn command(&self, tag: u32, cdb: &[u8], expected_bytes: u32) -> ScsiCommand {
        let mut all = [0; 16];
        all[..cdb.len()].copy_from_slice(cdb);
        ScsiCommand {
            is_final: true,
            read: expected_bytes > 0,
            tag,
            expected_bytes,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            cdb: all,
            ..ScsiCommand::default()
        }
    }

    /// Sends a command with its immediate data.
    pub fn issue(&mut self, command: &ScsiCommand, data: &[u8]) {
        self.send(command.write(), data);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
    }

    /// Runs a reading command; returns data, status and sense. Other PDUs in between are ignored.
    pub fn read(&mut self, lun: u8, cdb: &[u8], expected_bytes: u32) -> (Vec<u8>, u8, Vec<u8>) {
        let tag = self.cmd_sn;
        let command =
            ScsiCommand { lun: [0, lun, 0, 0, 0, 0, 0, 0], ..self.command(tag, cdb, expected_bytes) };
        self.issue(&command, &[]);
        let mut data = Vec::new();
        loop {
            let pdu = self.receive().expect("a response");
            match pdu.opcode() {
                iscsi::opcode::target::DATA_IN => {
                    data.extend_from_slice(&pdu.data);
                    if pdu.bhs.0[1] & 1 != 0 {
                        self.exp_stat_sn = pdu.u32(24).wrapping_add(1);
                        return (data, pdu.bhs.0[3], Vec::new());
                    }
                }
                iscsi::opcode::target::SCSI_RESPONSE => {
                    self.exp_stat_sn = pdu.u32(24).wrapping_add(1);
                    return (data, pdu.bhs.0[3], pdu.data.get(2..).unwrap_or_default().to_vec());
                }
                _ => {}
            }
        }
    }

    /// Sends TEST UNIT READY until no unit attention is left; returns their additional sense codes.
    pub fn attentions(&mut self, lun: u8) -> Vec<(u8, u8)> {
        let mut codes = Vec::new();
        loop {
            match self.read(lun, &[0; 6], 0) {
                (_, 0, _) => return codes,
                (_, _, sense) => codes.push((sense[12], sense[13])),
            }
        }
    }

    pub fn task_management(&mut self, function: u8, referenced_tag: u32) -> u8 {
        self.manage(function, 0, referenced_tag)
    }

    /// Sends a task management function for a logical unit; returns the response code.
    pub fn manage(&mut self, function: u8, lun: u8, referenced_tag: u32) -> u8 {
        self.send_management(function, lun, referenced_tag);
        self.until(iscsi::opcode::target::TASK_MANAGEMENT).1.bhs.0[2]
    }

    pub fn send_management(&mut self, function: u8, lun: u8, referenced_tag: u32) {
        let request = TaskManagementRequest {
            immediate: true,
            function_byte: 0x80 | function,
            lun: lun_field(lun),
            tag: 0x7000_0000 | referenced_tag,
            referenced_tag,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ..TaskManagementRequest::default()
        };
        self.send(request.write(), &[]);
    }

    /// Sends a writing command with `data` as immediate data, without waiting for the response.
    pub fn begin_write(&mut self, lun: u8, cdb: &[u8], expected_bytes: u32, data: &[u8]) -> u32 {
        let tag = self.cmd_sn;
        let command = ScsiCommand {
            read: false,
            write_data: expected_bytes > 0,
            expected_bytes,
            lun: lun_field(lun),
            ..self.command(tag, cdb, 0)
        };
        self.issue(&command, data);
        tag
    }

    /// Runs a writing command with immediate data; returns status and sense.
    pub fn write(&mut self, lun: u8, cdb: &[u8], data: &[u8]) -> (u8, Vec<u8>) {
        let tag = self.begin_write(lun, cdb, data.len() as u32, data);
        self.response_of(tag)
    }

    /// Receives up to the SCSI Response of a tag; returns status and sense.
    pub fn response_of(&mut self, tag: u32) -> (u8, Vec<u8>) {
        loop {
            let pdu = self.until(iscsi::opcode::target::SCSI_RESPONSE).1;
            self.exp_stat_sn = pdu.u32(24).wrapping_add(1);
            if pdu.u32(16) == tag {
                return (pdu.bhs.0[3], pdu.data.get(2..).unwrap_or_default().to_vec());
            }
        }
    }

    /// Sends one Data-Out PDU.
    pub fn data_out(&mut self, (tag, transfer_tag): (u32, u32), lun: u8, offset: u32, data: &[u8]) {
        let pdu = DataOut {
            is_final: true,
            lun: lun_field(lun),
            tag,
            transfer_tag,
            exp_stat_sn: self.exp_stat_sn,
            buffer_offset: offset,
            ..DataOut::default()
        };
        self.send(pdu.write(), data);
    }

    /// Runs PERSISTENT RESERVE OUT; returns status and sense.
    pub fn reserve_out(&mut self, lun: u8, out: ReserveOut) -> (u8, Vec<u8>) {
        let tag = self.begin_reserve_out(lun, out);
        self.response_of(tag)
    }

    /// Sends PERSISTENT RESERVE OUT; returns its tag.
    pub fn begin_reserve_out(&mut self, lun: u8, out: ReserveOut) -> u32 {
        let (cdb, list) = out.encode();
        self.begin_write(lun, &cdb, 24, &list)
    }

    /// Returns the keys of PERSISTENT RESERVE IN, READ KEYS.
    pub fn keys(&mut self, lun: u8) -> Vec<u64> {
        let (data, status, _) = self.read(lun, &[0x5e, 0, 0, 0, 0, 0, 0, 8, 0, 0], 2048);
        assert_eq!(status, 0);
        data[8..].chunks_exact(8).map(|key| u64::from_be_bytes(key.try_into().unwrap())).collect()
    }

    /// Acknowledges everything received, with a NOP-Out that requests no response.
    pub fn acknowledge(&mut self) {
        let nop = NopOut {
            immediate: true,
            tag: NO_TAG,
            transfer_tag: NO_TAG,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ..NopOut::default()
        };
        self.send(nop.write(), &[]);
    }

    /// Sends text keys; returns the text of the response.
    pub fn ask(&mut self, keys: &str) -> String {
        let request = TextRequest {
            immediate: true,
            is_final: true,
            tag: 9,
            transfer_tag: NO_TAG,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ..TextRequest::default()
        };
        self.send(request.write(), keys.as_bytes());
        self.until(opcode::TEXT).1.text()
    }

    /// Logs out; returns the response code.
    pub fn log_out(&mut self, reason: u8, cid: u16) -> u8 {
        let request = LogoutRequest {
            immediate: true,
            reason_byte: 0x80 | reason,
            tag: 0x6000_0000,
            cid,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        self.send(request.write(), &[]);
        self.until(iscsi::opcode::target::LOGOUT).1.bhs.0[2]
    }

    /// Receives up to a PDU with this opcode; returns the PDUs before it, and it.
    pub fn until(&mut self, opcode: u8) -> (Vec<Pdu>, Pdu) {
        let mut before = Vec::new();
        loop {
            let pdu = self.receive().expect("the connection was closed");
            if pdu.opcode() == opcode {
                return (before, pdu);
            }
            before.push(pdu);
        }
    }
}

/// Encodes a LUN below 256.
pub fn lun_field(lun: u8) -> [u8; 8] {
    [0, lun, 0, 0, 0, 0, 0, 0]
}

/// Returns CHAP_N and CHAP_R for the challenge in the text of a Login Response.
pub fn chap_proof(text: &str, user: &str, secret: &str) -> String {
    let value = |key: &str| text.split(' ').find_map(|pair| pair.strip_prefix(key)).expect("a challenge");
    let (identifier, challenge) =
        (value("CHAP_I=").parse().unwrap(), chap::decode(value("CHAP_C=")).unwrap());
    let response = chap::Algorithm::Sha256.response(identifier, secret.as_bytes(), &challenge);
    format!("CHAP_N={user} CHAP_R={}", chap::encode(&response))
}

/// PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, Default)]
pub struct ReserveOut {
    /// Service action.
    pub action: u8,
    /// Reservation type.
    pub kind: u8,
    pub key: u64,
    pub action_key: u64,
    pub aptpl: bool,
}

impl ReserveOut {
    /// Returns the command and its parameter list.
    pub fn encode(self) -> ([u8; 10], [u8; 24]) {
        let mut list = [0; 24];
        list[..8].copy_from_slice(&self.key.to_be_bytes());
        list[8..16].copy_from_slice(&self.action_key.to_be_bytes());
        list[20] = self.aptpl.into();
        ([0x5f, self.action, self.kind, 0, 0, 0, 0, 0, 24, 0], list)
    }
}

/// REGISTER of a key.
pub fn register(key: u64) -> ReserveOut {
    ReserveOut { action_key: key, ..ReserveOut::default() }
}
