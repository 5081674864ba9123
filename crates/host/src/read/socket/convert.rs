//! From the kernel's words to facts.

use netlink::sock_diag::{TcpInfo, TcpSocket};

use super::owners::Owners;
use crate::facts::socket::{AcceptQueue, Buffers, Counters, Ends, SocketFacts, SocketState, Transfer};

/// A state of include/net/tcp_states.h; `None` for one that has no program's data.
pub(super) fn state(number: u8) -> Option<SocketState> {
    match number {
        1 => Some(SocketState::Established),
        2 | 3 | 12 => Some(SocketState::Connecting),
        4 | 5 | 9 | 11 => Some(SocketState::Closing),
        8 => Some(SocketState::CloseWait),
        10 => Some(SocketState::Listen),
        _ => None,
    }
}

pub(super) fn facts(socket: &TcpSocket, owners: &Owners) -> SocketFacts {
    let state = state(socket.state).unwrap_or_default();
    let is_listening = state == SocketState::Listen;
    SocketFacts {
        ends: Ends { local: socket.local(), peer: (!is_listening).then(|| socket.peer()) },
        state,
        inode: socket.inode,
        uid: socket.uid,
        owners: owners.of(socket.inode),
        accept_queue: is_listening
            .then_some(AcceptQueue { length: socket.receive_queue, limit: socket.send_queue }),
        options: None,
        congestion_control: socket.congestion.clone(),
        buffers: buffers(socket, is_listening),
        transfer: socket.info.filter(|_| !is_listening).map(|info| transfer(socket, &info)),
        watched: None,
    }
}

fn buffers(socket: &TcpSocket, is_listening: bool) -> Buffers {
    let memory = socket.memory.unwrap_or_default();
    let limits = Buffers {
        send_bytes: memory.send_limit,
        receive_bytes: memory.receive_limit,
        drops: memory.drops.unwrap_or(0),
        ..Buffers::default()
    };
    if is_listening {
        return limits;
    }
    Buffers {
        unread_bytes: socket.receive_queue,
        queued_bytes: socket.send_queue,
        unsent_bytes: socket.info.and_then(|info| info.unsent_bytes).unwrap_or(0),
        ..limits
    }
}

fn transfer(socket: &TcpSocket, info: &TcpInfo) -> Transfer {
    let counters = counters(info);
    let known = |us: u32| (us > 0).then_some(us);
    Transfer {
        mss_bytes: info.send_mss,
        rtt_us: known(info.rtt_us),
        rtt_min_us: info.rtt_min_us.and_then(known),
        rtt_receiver_us: known(info.receive_rtt_us),
        congestion_window_segments: info.congestion_window,
        peer_window_bytes: info.send_window,
        probes_window: socket.is_probing,
        read_per_round_trip_bytes: info.receive_space,
        pacing_bytes_per_s: info.pacing_rate,
        delivery_bytes_per_s: info.delivery_rate.filter(|rate| *rate > 0),
        // The kernel counts from boot where nothing was transferred.
        idle_send_ms: (counters.data_segments_out > 0).then_some(info.since_data_sent_ms),
        idle_receive_ms: (counters.data_segments_in > 0).then_some(info.since_data_received_ms),
        counters,
    }
}

pub(super) fn counters(info: &TcpInfo) -> Counters {
    let long = |value: Option<u64>| value.unwrap_or(0);
    let word = |value: Option<u32>| u64::from(value.unwrap_or(0));
    Counters {
        bytes_sent: long(info.bytes_sent),
        bytes_received: long(info.bytes_received),
        data_segments_out: word(info.data_segments_out),
        data_segments_in: word(info.data_segments_in),
        retransmitted_segments: u64::from(info.retransmitted_segments),
        retransmitted_bytes: long(info.bytes_retransmitted),
        duplicates_reported: word(info.duplicates_reported),
        busy_us: long(info.busy_us),
        window_limited_us: long(info.window_limited_us),
        send_buffer_limited_us: long(info.send_buffer_limited_us),
    }
}
