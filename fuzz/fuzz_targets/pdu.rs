//! Any bytes as PDUs, with and without digests: what is cut off lies inside what came, and what is read and written
//! again reads the same.
#![no_main]

use iscsi::pdu::{
    AsyncMessage, DataIn, DataOut, LoginRequest, LoginResponse, LogoutRequest, LogoutResponse, NopIn, NopOut,
    R2t, Reject, ScsiCommand, ScsiResponse, Snack, TaskManagementRequest, TaskManagementResponse,
    TextRequest, TextResponse,
};
use iscsi::replay::Replay;
use iscsi::{Bhs, Digests, Framer};
use libfuzzer_sys::fuzz_target;

macro_rules! same_again {
    ($bhs:expr, $($name:ident),*) => {$(
        let first = $name::read($bhs).write();
        assert_eq!($name::read(&first).write(), first, stringify!($name));
    )*};
}

fn every_kind(bhs: &Bhs) {
    same_again!(
        bhs,
        AsyncMessage,
        DataIn,
        DataOut,
        LoginRequest,
        LoginResponse,
        LogoutRequest,
        LogoutResponse,
        NopIn,
        NopOut,
        R2t,
        Reject,
        ScsiCommand,
        ScsiResponse,
        Snack,
        TaskManagementRequest,
        TaskManagementResponse,
        TextRequest,
        TextResponse
    );
}

fuzz_target!(|data: &[u8]| {
    let [how, rest @ ..] = data else { return };
    let digests = Digests { header: how & 1 != 0, data: how & 2 != 0 };
    let framer = Framer { max_data_bytes: 8192, digests, passes_damage: how & 4 != 0 };
    let mut replay = Replay::default();
    replay.keep(&framer, rest, &mut std::collections::HashMap::new());
    let mut left = rest;
    while let Ok(iscsi::Cut::Frame(frame)) = framer.next(left) {
        assert!(frame.total_bytes <= left.len() && frame.total_bytes <= framer.longest_pdu());
        assert!(frame.data.len() <= 8192);
        every_kind(&frame.bhs);
        let tag = frame.bhs.initiator_task_tag();
        let again = replay.sequence(tag, 0, 0).len() + replay.status(0, 0).len();
        assert!(again <= 2 * rest.len() / 48 + 2);
        left = &left[frame.total_bytes..];
    }
    replay.acknowledge(u32::from(*how));
});
