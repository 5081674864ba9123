//! The initiators of a simulation: the PDUs that they send, and their handling of received PDUs.

use std::collections::VecDeque;

use fastrand::Rng;
use iscsi::pdu::{DataOut, LoginRequest, LogoutRequest, NopOut, ScsiCommand, Snack, TaskManagementRequest};
use iscsi::transmit::Next;
use iscsi::{Bhs, NO_TAG, TransmitBuffer};

use super::kinds::CommandKind;
use super::model::{Fields, Model, TaskPlace, What};
use super::store::BLOCK;
use super::{DISK_BYTES, IQN};
use crate::core::Core;

/// A connection: the target's core, and the state of its initiator.
pub(super) struct Conn {
    pub(super) core: Core,
    pub(super) name: usize,
    pub(super) isid: u8,
    pub(super) cid: u16,
    pub(super) recovery: u8,
    pub(super) tsih_asked: u16,
    pub(super) initial_r2t: bool,
    /// The index of its session in the model, once it has one.
    pub(super) session: Option<usize>,
    /// PDUs sent by the initiator and not delivered yet.
    to_target: VecDeque<Vec<u8>>,
    /// The kinds of the sent PDUs, with their end positions in the stream.
    frames: VecDeque<(u64, What)>,
    sent: u64,
    /// Data requested by R2Ts.
    pub(super) owed: Vec<Owed>,
    pub(super) unparsed: Vec<u8>,
    pub(super) exp_stat_sn: u32,
    pub(super) in_flight: usize,
    pub(super) is_closing: bool,
    pub(super) closes_session: bool,
    /// The target takes no further frame.
    pub(super) is_closed: bool,
    /// The core has ended.
    pub(super) is_ended: bool,
}

/// Data requested by an R2T.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    tag: u32,
    transfer_tag: u32,
    offset: u32,
    bytes: u32,
    lun: u8,
}

fn pdu(bhs: Bhs, data: &[u8]) -> Vec<u8> {
    let mut out = TransmitBuffer::new();
    out.pdu(bhs, data);
    out.pending().to_vec()
}

/// Returns blocks that carry the tag of their command.
fn stamped(tag: u32, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    for block in data.chunks_mut(BLOCK as usize) {
        let stamp = u64::from(tag).to_le_bytes();
        let length = block.len().min(8);
        block[..length].copy_from_slice(&stamp[..length]);
    }
    data
}

/// Returns the reservation key of an initiator port, unique per port.
fn key_of(name: usize, isid: u8) -> u64 {
    (name as u64 + 1) * 16 + u64::from(isid)
}

pub(super) fn login_pdu(
    name: usize,
    isid: u8,
    tsih: u16,
    cid: u16,
    cmd_sn: u32,
    recovery: u8,
    initial_r2t: bool,
) -> Vec<u8> {
    let r2t = if initial_r2t { "Yes" } else { "No" };
    let connections = if recovery > 0 { 4 } else { 1 };
    let text = format!(
        "InitiatorName=iqn.2026-11.example:i{name}\0TargetName={IQN}\0SessionType=Normal\0InitialR2T={r2t}\0\
         MaxConnections={connections}\0ErrorRecoveryLevel={recovery}\0DefaultTime2Wait=0\0DefaultTime2Retain=20\0\
         MaxRecvDataSegmentLength=65536\0"
    );
    let request = LoginRequest {
        immediate: true,
        transit: true,
        stage_byte: 1 << 2 | 3,
        isid: [0x80, 0, 0, 0, 0, isid],
        tsih,
        cid,
        cmd_sn,
        ..LoginRequest::default()
    };
    pdu(request.write(), text.as_bytes())
}

pub(super) fn logout_pdu(conn: &Conn, tag: u32, whole: bool, cmd_sn: u32) -> Vec<u8> {
    let request = LogoutRequest {
        immediate: true,
        reason_byte: 0x80 | u8::from(!whole),
        tag,
        cid: conn.cid,
        cmd_sn,
        exp_stat_sn: conn.exp_stat_sn,
    };
    pdu(request.write(), &[])
}

pub(super) fn nop_pdu(conn: &Conn, tag: u32, cmd_sn: u32) -> Vec<u8> {
    let request = NopOut {
        immediate: true,
        tag,
        transfer_tag: NO_TAG,
        cmd_sn,
        exp_stat_sn: conn.exp_stat_sn,
        ..NopOut::default()
    };
    pdu(request.write(), &[])
}

pub(super) fn management_pdu(conn: &Conn, place: TaskPlace, function: u8, referenced_tag: u32) -> Vec<u8> {
    let TaskPlace { tag, lun, cmd_sn } = place;
    let request = TaskManagementRequest {
        immediate: true,
        function_byte: 0x80 | function,
        lun: [0, lun, 0, 0, 0, 0, 0, 0],
        tag,
        referenced_tag,
        cmd_sn,
        exp_stat_sn: conn.exp_stat_sn,
        ..TaskManagementRequest::default()
    };
    pdu(request.write(), &[])
}

/// Returns the PDU of a command, its Expected Data Transfer Length, and its fields for the model.
pub(super) fn command_pdu(
    conn: &Conn,
    kind: CommandKind,
    place: TaskPlace,
    attribute: u8,
    random: &mut Rng,
) -> (Vec<u8>, Fields) {
    let TaskPlace { tag, lun, cmd_sn } = place;
    let mut cdb = [0_u8; 16];
    let last = DISK_BYTES / BLOCK;
    let mut blocks = match kind {
        CommandKind::Read => random.u32(1..200),
        CommandKind::BigRead => random.u32(500..4000),
        CommandKind::Write => [1, 8, 64, 300][random.usize(..4)],
        CommandKind::WriteAtomic => random.u32(1..9),
        _ => 0,
    };
    // No atomic write to the asynchronous disk: it would block on operations that only the simulation completes.
    let kind = if kind == CommandKind::WriteAtomic && lun == 2 { CommandKind::Write } else { kind };
    blocks = blocks.min(4000);
    let lba = random.u64(..last - u64::from(blocks));
    let mut fields = Fields {
        is_write: false,
        key: key_of(conn.name, conn.isid),
        victim: 0,
        has_descriptors: false,
        kind,
    };
    let mut list = Vec::new();
    let (mut read, mut expected) = (false, 0);
    match kind {
        CommandKind::Read | CommandKind::BigRead => {
            (cdb[0], read, expected) = (0x88, true, blocks * BLOCK as u32);
            cdb[2..10].copy_from_slice(&lba.to_be_bytes());
            cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        }
        CommandKind::Write => {
            (cdb[0], expected, fields.is_write) = (0x8a, blocks * BLOCK as u32, true);
            cdb[2..10].copy_from_slice(&lba.to_be_bytes());
            cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        }
        CommandKind::WriteAtomic => {
            (cdb[0], expected, fields.is_write) = (0x9c, blocks * BLOCK as u32, true);
            cdb[2..10].copy_from_slice(&lba.to_be_bytes());
            cdb[12..14].copy_from_slice(&(blocks as u16).to_be_bytes());
        }
        CommandKind::ModeSelect => {
            // The control page with D_SENSE unchanged or changed: only a change establishes a unit attention.
            fields.has_descriptors = random.bool();
            (cdb[0], cdb[1], cdb[4]) = (0x15, 0x10, 16);
            list = vec![0, 0, 0, 0, 0x0a, 10, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0];
            list[6] = if fields.has_descriptors { 4 } else { 0 };
        }
        CommandKind::Test => {}
        CommandKind::Register
        | CommandKind::Reserve
        | CommandKind::Preempt
        | CommandKind::PreemptAndAbort
        | CommandKind::Clear => {
            let action = match kind {
                CommandKind::Register => 6,
                CommandKind::Reserve => 1,
                CommandKind::Preempt => 4,
                CommandKind::PreemptAndAbort => 5,
                _ => 3,
            };
            let victim = key_of(random.usize(..super::INITIATORS), random.u8(1..3));
            fields.victim = if victim == fields.key { 0 } else { victim };
            (cdb[0], cdb[1], cdb[2], cdb[8]) = (0x5f, action, 5, 24);
            let (own, new) =
                if kind == CommandKind::Register { (0, fields.key) } else { (fields.key, fields.victim) };
            list = [&own.to_be_bytes()[..], &new.to_be_bytes(), &[0; 8]].concat();
        }
    }
    if !list.is_empty() {
        expected = list.len() as u32;
    }
    let sends = fields.is_write || !list.is_empty();
    let data = if !list.is_empty() {
        list
    } else if fields.is_write {
        // Up to 4096 bytes of immediate data, or none.
        let most = (expected as usize).min(65_536);
        stamped(tag, if random.bool() { most.min(4096) } else { 0 })
    } else {
        Vec::new()
    };
    let is_final = conn.initial_r2t || data.len() == expected as usize || random.bool() || !fields.is_write;
    let command = ScsiCommand {
        is_final,
        read,
        write_data: sends,
        attribute_1: attribute & 1 != 0,
        attribute_2: attribute & 2 != 0,
        lun: [0, lun, 0, 0, 0, 0, 0, 0],
        tag,
        expected_bytes: expected,
        cmd_sn,
        exp_stat_sn: conn.exp_stat_sn,
        cdb,
        ..ScsiCommand::default()
    };
    let mut bytes = pdu(command.write(), &data);
    if !is_final {
        // The rest of the first burst as unsolicited Data-Out.
        let from = data.len() as u32;
        let to = expected.min(65_536);
        let sequence = (from..to).step_by(8192);
        for (data_sn, at) in (0..).zip(sequence) {
            let here = 8192.min(to - at);
            let pdu_out = DataOut {
                is_final: at + here == to,
                lun: command.lun,
                tag,
                transfer_tag: NO_TAG,
                data_sn,
                buffer_offset: at,
                exp_stat_sn: conn.exp_stat_sn,
            };
            bytes.extend(pdu(pdu_out.write(), &stamped(tag, here as usize)));
        }
    }
    (bytes, fields)
}

impl Conn {
    pub(super) fn new(core: Core, name: usize, isid: u8, recovery: u8) -> Self {
        Self {
            core,
            name,
            isid,
            cid: 0,
            recovery,
            tsih_asked: 0,
            initial_r2t: true,
            session: None,
            to_target: VecDeque::new(),
            frames: VecDeque::new(),
            sent: 0,
            owed: Vec::new(),
            unparsed: Vec::new(),
            exp_stat_sn: 0,
            in_flight: 0,
            is_closing: false,
            closes_session: false,
            is_closed: false,
            is_ended: false,
        }
    }

    /// Sends bytes whose first PDU is of the kind `what`.
    pub(super) fn push(&mut self, bytes: Vec<u8>, what: What) {
        if super::env_number("ROUNDTRIP_SIM_SEED").is_some() {
            let conn = self.core.id;
            eprintln!("  sent on {conn}: {what:?} {:02x?} {} bytes", &bytes[..20], bytes.len());
        }
        let first = iscsi::Framer::new(1 << 20).next(&bytes).ok().and_then(iscsi::Cut::frame);
        let first = first.map_or(bytes.len(), |frame| frame.total_bytes);
        self.frames.push_back((self.sent + first as u64, what));
        self.sent += bytes.len() as u64;
        self.to_target.push_back(bytes);
    }

    /// Delivers up to `some` sent PDUs; returns whether any byte was delivered.
    pub(super) fn deliver(&mut self, some: usize, random: &mut Rng) -> bool {
        let mut is_any = false;
        for _ in 0..some {
            let Some(mut bytes) = self.to_target.pop_front() else { break };
            if bytes.len() > 1 && random.u8(..4) == 0 {
                // Split: the rest is delivered later.
                let rest = bytes.split_off(random.usize(1..bytes.len()));
                self.to_target.push_front(rest);
            }
            let whole = self.core.incoming.unread().len() + bytes.len();
            self.core.incoming.room(whole)[..bytes.len()].copy_from_slice(&bytes);
            self.core.incoming.came(bytes.len());
            is_any = true;
        }
        is_any
    }

    /// Returns the kinds of the PDUs that the target has taken since the last call.
    pub(super) fn taken(&mut self) -> Vec<What> {
        let mut taken = Vec::new();
        while self.frames.front().is_some_and(|(end, _)| *end <= self.core.incoming.position()) {
            taken.extend(self.frames.pop_front().map(|(_, what)| what));
        }
        taken
    }

    /// Sends the data of an R2T.
    pub(super) fn send_owed(&mut self, place: usize) {
        let owed = self.owed.swap_remove(place);
        let (mut at, mut data_sn) = (0, 0);
        while at < owed.bytes {
            let here = 65_536.min(owed.bytes - at);
            let out = DataOut {
                is_final: at + here == owed.bytes,
                lun: [0, owed.lun, 0, 0, 0, 0, 0, 0],
                tag: owed.tag,
                transfer_tag: owed.transfer_tag,
                data_sn,
                buffer_offset: owed.offset + at,
                exp_stat_sn: self.exp_stat_sn,
            };
            self.push(pdu(out.write(), &stamped(owed.tag, here as usize)), What::Other);
            at += here;
            data_sn += 1;
        }
    }

    /// Returns a status SNACK for everything unacknowledged.
    pub(super) fn snack_pdu(&self) -> Vec<u8> {
        let snack = Snack {
            type_byte: 0x81,
            tag: NO_TAG,
            transfer_tag: NO_TAG,
            first: self.exp_stat_sn,
            count: 0,
            ..Snack::default()
        };
        let mut bhs = snack.write();
        bhs.0[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        pdu(bhs, &[])
    }

    /// Takes all pending bytes.
    pub(super) fn take_sent(&mut self) -> Vec<u8> {
        self.core.record_pending();
        let mut all = Vec::new();
        while !self.core.outgoing.is_empty() {
            let mut slices = Vec::new();
            let count = match self.core.outgoing.next(&mut slices, usize::MAX) {
                Next::Bytes { slices, .. } => {
                    slices.iter().for_each(|slice| all.extend_from_slice(slice));
                    slices.iter().map(|slice| slice.len()).sum()
                }
                Next::Nothing | Next::File(_) => break,
            };
            self.core.outgoing.sent(count);
        }
        self.core.control.sent();
        self.core.is_due = false;
        all
    }

    /// Handles a received PDU; returns the TSIH after a successful login.
    pub(super) fn received(&mut self, bhs: &Bhs, data: &[u8], model: &mut Model) -> Option<u16> {
        use iscsi::opcode::target as opcode;
        let word = |at: usize| u32::from_be_bytes([bhs.0[at], bhs.0[at + 1], bhs.0[at + 2], bhs.0[at + 3]]);
        let (tag, stat_sn) = (word(16), word(24));
        if model.traces {
            let opcode = bhs.opcode();
            let conn = self.core.id;
            eprintln!("{} came {opcode:02x} on {conn}: {tag} {:02x?}", model.step, &bhs.0[1..4]);
        }
        // Every third response is acknowledged late.
        let acknowledges = |exp: &mut u32| {
            if stat_sn.wrapping_sub(*exp) as i32 >= 0 && stat_sn % 3 != 0 {
                *exp = stat_sn.wrapping_add(1);
            }
        };
        match bhs.opcode() {
            opcode::LOGIN => {
                let response = iscsi::pdu::LoginResponse::read(bhs);
                self.exp_stat_sn = response.stat_sn.wrapping_add(1);
                return (response.status == 0).then_some(response.tsih);
            }
            opcode::DATA_IN if bhs.0[1] & 1 != 0 => {
                acknowledges(&mut self.exp_stat_sn);
                self.in_flight = self.in_flight.saturating_sub(1);
                model.answered(tag, bhs.0[3], &[]);
            }
            opcode::SCSI_RESPONSE => {
                acknowledges(&mut self.exp_stat_sn);
                self.in_flight = self.in_flight.saturating_sub(1);
                model.answered(tag, bhs.0[3], data.get(2..).unwrap_or_default());
            }
            opcode::R2T => {
                let lun = bhs.0[9];
                self.owed.push(Owed { tag, transfer_tag: word(20), offset: word(40), bytes: word(44), lun });
            }
            opcode::TASK_MANAGEMENT => {
                acknowledges(&mut self.exp_stat_sn);
                model.managed(tag, bhs.0[2]);
            }
            opcode::LOGOUT if bhs.0[2] == 0 => model.logged_out(self.session, self.closes_session),
            opcode::REJECT => {
                acknowledges(&mut self.exp_stat_sn);
                if let Some(tag) = data.get(16..20).and_then(|tag| tag.first_chunk().copied()) {
                    model.rejected(u32::from_be_bytes(tag), data[0] & 0x3f);
                }
            }
            opcode::NOP_IN | opcode::ASYNC => acknowledges(&mut self.exp_stat_sn),
            _ => {}
        }
        None
    }
}
