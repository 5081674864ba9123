//! Sessions with several connections, and error recovery within a session (RFC 7143 4.4, 6.3, 7).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::{Client, Login, ram, start};
use iscsi::opcode::target as opcode;
use iscsi::pdu::{DataOut, ScsiCommand, Snack};
use iscsi::{Bhs, NO_TAG};

const LEVEL_1: &str = "ErrorRecoveryLevel=1 DataDigest=CRC32C HeaderDigest=CRC32C";
const LEVEL_2: &str = "ErrorRecoveryLevel=2 MaxConnections=4 DefaultTime2Wait=0 DefaultTime2Retain=20";

const READ_10: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// WRITE (10) of `blocks` blocks at 0.
fn write_10(client: &Client, tag: u32, blocks: u8) -> ScsiCommand {
    let cdb = [0x2a, 0, 0, 0, 0, 0, 0, 0, blocks, 0];
    ScsiCommand {
        read: false,
        write_data: true,
        expected_bytes: u32::from(blocks) * 512,
        ..client.command(tag, &cdb, 0)
    }
}

#[test]
fn commands_of_two_connections_run_in_cmd_sn_order() {
    let target = start(vec![ram(0, 1)], |_| ());
    let login = Login { keys: "MaxConnections=4", ..Login::default() };
    let mut first = Client::log_in(target.address(), &login);
    let second = Login { cid: 1, tsih: first.tsih, ..login };
    let mut second = Client::log_in(target.address(), &second);
    assert_eq!((second.tsih, target.sessions(), target.connections()), (first.tsih, 1, 2));
    assert_eq!(first.attentions(0), [(0x29, 0)], "one nexus: reported once, on any connection");
    second.cmd_sn = first.cmd_sn;
    assert_eq!(second.attentions(0), []);
    // CmdSN n + 1 arrives on the second connection before n on the first: it is held.
    let (now, next) = (second.cmd_sn, second.cmd_sn + 1);
    second.cmd_sn = next;
    let read = second.command(7, &READ_10, 512);
    second.issue(&read, &[]);
    second.socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(second.socket.peek(&mut [0]).is_err(), "not answered before its CmdSN is expected");
    second.socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    first.cmd_sn = now;
    let write = write_10(&first, 8, 1);
    first.issue(&write, &[0x5a; 512]);
    assert_eq!(first.receive().unwrap().opcode(), opcode::SCSI_RESPONSE);
    assert_eq!(second.receive().unwrap().opcode(), opcode::DATA_IN);
    // Closing a connection keeps the session; closing the session ends all connections.
    assert_eq!(first.log_out(1, 0), 0);
    second.cmd_sn = next + 1;
    assert_eq!(second.read(0, &READ_10, 512).0[0], 0x5a);
    assert_eq!(second.log_out(0, 0), 0);
    assert!(target.wait_until_idle(Duration::from_secs(5)));
    assert_eq!(target.sessions(), 0);
}

#[test]
fn session_is_released_before_its_logout_response() {
    let reserve = [0x16, 0, 0, 0, 0, 0];
    let target = start(vec![ram(0, 1)], |_| ());
    let mut other = Client::log_in(target.address(), &Login::default());
    other.attentions(0);
    for round in 0..100 {
        let login = Login {
            keys: "MaxConnections=4",
            initiator: "iqn.2026-11.example.roundtrip:holder",
            ..Login::default()
        };
        let mut holder = Client::log_in(target.address(), &login);
        let second = Client::log_in(target.address(), &Login { cid: 1, tsih: holder.tsih, ..login });
        holder.attentions(0);
        assert_eq!(holder.read(0, &reserve, 0).1, 0x00);
        assert_eq!(other.read(0, &READ_10, 512).1, 0x18, "RESERVATION CONFLICT");
        assert_eq!(holder.log_out(0, 0), 0);
        assert_eq!(
            other.read(0, &READ_10, 512).1,
            0x00,
            "round {round}: what the session held outlives its logout"
        );
        drop(second);
    }
}

#[test]
fn session_rejects_excess_and_foreign_connections() {
    let target = start(vec![ram(0, 1)], |_| ());
    let first = Client::log_in(target.address(), &Login { keys: "MaxConnections=2", ..Login::default() });
    let join = |cid, isid, tsih| {
        let login = Login { cid, isid, tsih, ..Login::default() };
        let (client, response, _) = Client::try_log_in(target.address(), &login);
        (client, response.status)
    };
    let (mut second, status) = join(1, 1, first.tsih);
    assert_eq!(status, 0);
    assert_eq!(join(2, 1, first.tsih).1, 0x0206, "too many connections");
    assert_eq!(join(1, 2, first.tsih).1, 0x020a, "another ISID is another session");
    assert_eq!(join(1, 1, first.tsih + 1).1, 0x020a, "no such session");
    // The same CID reinstates the connection.
    assert_eq!(join(1, 1, first.tsih).1, 0);
    assert!(second.receive().is_none());
}

#[test]
fn corrupted_data_is_requested_again() {
    let target = start(vec![ram(0, 1)], |_| ());
    let keys = format!("{LEVEL_1} InitialR2T=Yes ImmediateData=No");
    let mut client = Client::log_in(target.address(), &Login { keys: &keys, ..Login::default() });
    client.attentions(0);
    let write = write_10(&client, 5, 4);
    client.issue(&write, &[]);
    let r2t = client.until(opcode::R2T).1;
    let data: Vec<u8> = (0..2048).map(|i| (i % 251) as u8).collect();
    let data_out = |transfer_tag, data_sn, buffer_offset, is_final| {
        let pdu = DataOut { tag: 5, transfer_tag, data_sn, buffer_offset, is_final, ..DataOut::default() };
        pdu.write()
    };
    let transfer_tag = r2t.u32(20);
    client.send(data_out(transfer_tag, 0, 0, false), &data[..1024]);
    let mut damaged = client.encode(data_out(transfer_tag, 1, 1024, true), &data[1024..]);
    damaged[100] ^= 0x40;
    std::io::Write::write_all(&mut client.socket, &damaged).unwrap();
    let reject = client.until(opcode::REJECT).1;
    assert_eq!(reject.bhs.0[2], 2, "data digest error");
    let again = client.until(opcode::R2T).1;
    assert_eq!((again.u32(40), again.u32(44)), (1024, 1024));
    client.send(data_out(again.u32(20), 0, 1024, true), &data[1024..]);
    let response = client.until(opcode::SCSI_RESPONSE).1;
    assert_eq!(response.bhs.0[3], 0);
    client.exp_stat_sn = response.u32(24) + 1;
    let (there, status, _) = client.read(0, &[0x28, 0, 0, 0, 0, 0, 0, 0, 4, 0], 2048);
    assert_eq!((there == data, status), (true, 0));
    // A command with damaged immediate data is discarded (RFC 7143 7.8).
    let keys = format!("{LEVEL_1} ImmediateData=Yes");
    let mut client = Client::log_in(target.address(), &Login { isid: 2, keys: &keys, ..Login::default() });
    client.attentions(0);
    let write = write_10(&client, 6, 1);
    let mut damaged = client.encode(write.write(), &[1; 512]);
    damaged[60] ^= 1;
    std::io::Write::write_all(&mut client.socket, &damaged).unwrap();
    assert_eq!(client.until(opcode::REJECT).1.u32(28), write.cmd_sn, "its CmdSN is still expected");
    client.issue(&write, &[1; 512]);
    assert_eq!(client.until(opcode::SCSI_RESPONSE).1.bhs.0[3], 0);
}

#[test]
fn lost_pdus_are_retransmitted_on_snack() {
    let target = start(vec![ram(0, 1)], |_| ());
    let keys = "ErrorRecoveryLevel=1 MaxRecvDataSegmentLength=512";
    let mut client = Client::log_in(target.address(), &Login { keys, ..Login::default() });
    client.attentions(0);
    let read = client.command(9, &[0x28, 0, 0, 0, 0, 0, 0, 0, 4, 0], 2048);
    client.issue(&read, &[]);
    let came: Vec<_> = (0..4).map(|_| client.receive().unwrap()).collect();
    let snack = |kind: u8, tag, first, count| {
        Snack { type_byte: kind, tag, transfer_tag: NO_TAG, first, count, ..Snack::default() }.write()
    };
    let mut snack_with = |bhs: Bhs| {
        let mut bhs = bhs;
        bhs.0[28..32].copy_from_slice(&client.exp_stat_sn.to_be_bytes());
        client.send(bhs, &[]);
    };
    snack_with(snack(0, 9, 1, 2));
    snack_with(snack(1, NO_TAG, came[3].u32(24), 1));
    snack_with(snack(0, 77, 0, 0));
    let again: Vec<_> = (0..3).map(|_| client.receive().unwrap()).collect();
    assert_eq!(again.iter().map(|pdu| pdu.u32(36)).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(again[2].bhs.0, came[3].bhs.0, "the retransmitted status is identical");
    assert_eq!(client.receive().unwrap().opcode(), opcode::REJECT, "no task 77");
    // Acknowledged PDUs are not kept.
    client.exp_stat_sn = came[3].u32(24) + 2;
    let mut late = snack(0, 9, 0, 0);
    late.0[28..32].copy_from_slice(&client.exp_stat_sn.to_be_bytes());
    client.send(late, &[]);
    assert_eq!(client.receive().unwrap().opcode(), opcode::REJECT);
}

#[test]
fn tasks_of_a_lost_connection_are_reassigned() {
    let target = start(vec![ram(0, 1)], |_| ());
    let keys = format!("{LEVEL_2} InitialR2T=Yes ImmediateData=No");
    let login = Login { keys: &keys, ..Login::default() };
    let mut first = Client::log_in(target.address(), &login);
    first.attentions(0);
    // A read whose response is never acknowledged, and a write that waits for its data.
    let read = first.command(20, &READ_10, 512);
    first.issue(&read, &[]);
    first.until(opcode::DATA_IN);
    let write = write_10(&first, 21, 2);
    first.issue(&write, &[]);
    first.until(opcode::R2T);
    let (tsih, cmd_sn) = (first.tsih, first.cmd_sn);
    drop(first);
    assert!(target.wait_until_idle(Duration::from_secs(5)));
    assert_eq!(target.sessions(), 1, "the session is kept");
    let login = Login { cid: 1, tsih, cmd_sn, keys: "", ..login };
    let mut second = Client::log_in(target.address(), &login);
    assert_eq!(second.log_out(2, 0), 0, "connection 0 is closed for recovery");
    assert_eq!(second.log_out(2, 9), 1, "no connection 9");
    // TASK REASSIGN.
    assert_eq!(second.task_management(8, 99), 1, "no such task");
    let request = |tag: u32| iscsi::pdu::TaskManagementRequest {
        immediate: true,
        function_byte: 0x88,
        tag: 0x5000_0000 | tag,
        referenced_tag: tag,
        cmd_sn,
        exp_stat_sn: second.exp_stat_sn,
        ..Default::default()
    };
    let (read, write) = (request(20), request(21));
    second.send(read.write(), &[]);
    let data_in = second.until(opcode::DATA_IN).1;
    assert_eq!((data_in.u32(16), data_in.data.len()), (20, 512), "data and status are sent again");
    second.send(write.write(), &[]);
    let r2t = second.until(opcode::R2T).1;
    assert_eq!((r2t.u32(16), r2t.u32(40), r2t.u32(44)), (21, 0, 1024));
    let data_out = DataOut { tag: 21, transfer_tag: r2t.u32(20), is_final: true, ..DataOut::default() };
    second.send(data_out.write(), &[0x77; 1024]);
    let response = second.until(opcode::SCSI_RESPONSE).1;
    assert_eq!((response.u32(16), response.bhs.0[3]), (21, 0));
    assert_eq!(second.read(0, &READ_10, 512).0[0], 0x77);
}

#[test]
fn hung_connection_is_closed_for_recovery() {
    let target = start(vec![ram(0, 1)], |_| ());
    let keys = format!("{LEVEL_2} InitialR2T=Yes ImmediateData=No");
    let login = Login { keys: &keys, ..Login::default() };
    let mut first = Client::log_in(target.address(), &login);
    first.attentions(0);
    let write = write_10(&first, 21, 1);
    first.issue(&write, &[]);
    first.until(opcode::R2T);
    let (tsih, cmd_sn) = (first.tsih, first.cmd_sn);
    let login = Login { cid: 1, tsih, cmd_sn, keys: "", ..login };
    let mut second = Client::log_in(target.address(), &login);
    // The first connection is still open: a hung initiator does not close it.
    assert_eq!(second.log_out(2, 0), 0);
    assert!(first.receive().is_none(), "it was closed");
    assert_eq!(second.task_management(8, 21), 0);
}
