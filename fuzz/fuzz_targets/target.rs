//! A whole connection of the target fed with any bytes, a few at a time: PDUs, text keys, login with and without
//! CHAP, full feature phase with and without digests.
#![no_main]

use iscsi::login::chap::{Credentials, Known};
use iscsi::login::target::{Authentication, Gate, LoggedIn, Step, TargetLogin};
use iscsi::login::{SessionType, Status};
use iscsi::target::{Adopted, Incoming, TargetConnection, WriteOrder};
use iscsi::{Digests, Framer, Parameters, ReceiveBuffer, TransmitBuffer, Wishes};
use libfuzzer_sys::fuzz_target;

struct Door(Option<Authentication>);

impl Gate for Door {
    fn admit(&self, _: &LoggedIn) -> Result<(), Status> {
        Ok(())
    }
    fn portal_group_tag(&self) -> u16 {
        1
    }
    fn authentication(&self, _: &LoggedIn) -> Option<&Authentication> {
        self.0.as_ref()
    }
    fn random(&self, buffer: &mut [u8]) -> Result<(), Status> {
        buffer.fill(7);
        Ok(())
    }
    fn new_session(&self, _: &LoggedIn) -> Result<u16, Status> {
        Ok(5)
    }
}

fn someone(level: u16) -> LoggedIn {
    LoggedIn {
        initiator_name: "iqn.i".into(),
        user: None,
        proven: None,
        target_name: "iqn.t".into(),
        session_type: SessionType::Normal,
        isid: [0; 6],
        tsih: 1,
        cid: 0,
        parameters: Parameters {
            max_recv_bytes: 4096,
            max_connections: 1 + level,
            error_recovery_level: level as u8,
            ..Parameters::default()
        },
        exp_cmd_sn: 0,
        stat_sn: 0,
    }
}

fn to(cdb_bytes: u64) -> WriteOrder {
    WriteOrder { cdb_bytes, ..WriteOrder::default() }
}

fuzz_target!(|data: &[u8]| {
    let [how, step, rest @ ..] = data else { return };
    let user = |name: &str| Credentials { name: name.into(), secret: b"twelve bytes".to_vec() };
    let authentication = (how & 1 != 0).then(|| Authentication {
        initiators: vec![Known { credentials: user("a"), own: Some(user("t")) }],
        is_optional: how & 64 != 0,
    });
    let door = Door(authentication);
    let mut login = TargetLogin::new(Wishes::default(), 8);
    let digests = Digests { header: how & 4 != 0, data: how & 8 != 0 };
    // Recovery level and connections of the session.
    let level = u16::from(how >> 4 & 3).min(2);
    let mut connection = (how & 2 != 0).then(|| TargetConnection::new(&someone(level), 8));
    let mut framer = Framer { max_data_bytes: 4096, digests, passes_damage: level > 0 };
    if connection.is_none() {
        framer.digests = Digests::default();
    }
    let (mut incoming, mut out, mut answer) = (ReceiveBuffer::new(), TransmitBuffer::new(), Vec::new());
    out.set_digests(framer.digests);
    let mut left = rest;
    let mut needed = 48;
    while !left.is_empty() {
        let room = incoming.room(needed);
        let count = room.len().min(left.len()).min(usize::from(*step).max(1) * 8);
        room[..count].copy_from_slice(&left[..count]);
        incoming.came(count);
        left = &left[count..];
        loop {
            let total = match framer.next(incoming.unread()) {
                Ok(iscsi::Cut::Frame(frame)) => {
                    if let Some(connection) = &mut connection {
                        match connection.receive(&frame, &mut out) {
                            Ok(Incoming::Command { command, data }) => {
                                let begun = connection.begin_write(&command, data.len(), to(8192), &mut out);
                                if begun.is_ok_and(|b| b.complete) {
                                    connection.respond_write(&command, 8192, &mut out);
                                }
                            }
                            Ok(Incoming::Data { tag, .. }) => {
                                connection.data_taken(tag, Ok(()), &mut out);
                            }
                            Ok(_) => {}
                            Err(_) => return,
                        }
                        while let Some(held) = connection.take_held() {
                            if connection.receive(&held.frame(), &mut out).is_err() {
                                return;
                            }
                            for frame in held.followers() {
                                if connection.receive(&frame, &mut out).is_err() {
                                    return;
                                }
                            }
                        }
                        connection.sent(out.pending(), out.digests());
                        assert!(connection.tasks() <= 8, "the window bounds what is kept");
                    } else {
                        answer.clear();
                        match login.receive(&frame, &door, &mut answer) {
                            Ok(Step::Continue) => {}
                            Ok(Step::FullFeature(who)) => {
                                assert!(door.0.is_none(), "nobody has the secret");
                                framer.digests = who.parameters.digests;
                                framer.max_data_bytes = 4096;
                                framer.passes_damage = who.parameters.error_recovery_level > 0;
                                out.set_digests(who.parameters.digests);
                                connection = Some(TargetConnection::new(&who, 8));
                            }
                            Ok(Step::Refused(_)) | Err(_) => return,
                        }
                    }
                    frame.total_bytes
                }
                Ok(iscsi::Cut::Needs(more)) => {
                    needed = more;
                    break;
                }
                Err(_) => return,
            };
            incoming.take(total);
            out.sent(out.pending().len());
        }
    }
    // Lost, and gone on with: every tag that came is a task to be reassigned.
    if let Some(mut lost) = connection.filter(|_| level == 2) {
        let mut parked = lost.park();
        let mut heir = TargetConnection::new(&someone(level), 8);
        for tag in rest.windows(4).map(|tag| u32::from_be_bytes([tag[0], tag[1], tag[2], tag[3]])).take(4096)
        {
            if let Adopted::Finished(kept) = heir.adopt(&mut parked, tag, 0, &mut out) {
                for mut kept in kept {
                    let _ = heir.reassigned(&mut kept, 0);
                }
            }
        }
    }
});
