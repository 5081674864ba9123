//! TCP sockets as text, for `roundtrip host socket`.

use host::facts::socket::{AcceptQueue, Buffers, SocketFacts, SocketOptions, SocketState, Transfer};
use record::units::{format_bit_rate, grouped};

/// Lines about one socket.
#[must_use]
pub fn socket_lines(socket: &SocketFacts) -> Vec<String> {
    let owners: Vec<String> = socket
        .owners
        .iter()
        .map(|owner| format!("{} (pid {}, fd {})", owner.program, owner.pid, owner.fd))
        .collect();
    let owners = if owners.is_empty() { "process not visible".to_owned() } else { owners.join(", ") };
    let mut lines = vec![format!("{}  {}  {owners}", socket.ends, state(socket.state))];
    if let Some(queue) = &socket.accept_queue {
        lines.push(format!("  accepts   {}", accept_queue(queue)));
    }
    lines.push(format!("  options   {}", options(socket)));
    lines.push(format!("  buffers   {}", buffers(&socket.buffers, socket.options.as_ref())));
    if let Some(transfer) = &socket.transfer {
        lines.push(format!("  queues    {}", queues(&socket.buffers)));
        lines.push(format!("  rate      {}", rate(transfer)));
        lines.push(format!("  times     {}", times(transfer)));
        lines.push(format!("  segments  {}", segments(transfer)));
    }
    lines
}

fn state(state: SocketState) -> &'static str {
    match state {
        SocketState::Established => "established",
        SocketState::Listen => "listening",
        SocketState::Connecting => "connecting",
        SocketState::CloseWait => "ended by the peer",
        SocketState::Closing => "closing",
    }
}

fn accept_queue(queue: &AcceptQueue) -> String {
    format!("{} of {} connections wait", queue.length, queue.limit)
}

fn options(socket: &SocketFacts) -> String {
    let congestion = socket.congestion_control.as_deref().unwrap_or("unknown");
    let Some(options) = &socket.options else {
        return format!("congestion {congestion}; Nagle and cork not visible");
    };
    let switch = |is_on: bool| if is_on { "on" } else { "off" };
    let low_water =
        options.not_sent_low_water.map(|bytes| format!(", notsent-lowat {}", grouped(u64::from(bytes))));
    format!(
        "nodelay {}, cork {}, quickack {} at this moment, congestion {congestion}{}",
        switch(!options.nagle),
        switch(options.corked),
        switch(options.quick_ack),
        low_water.unwrap_or_default()
    )
}

fn buffers(buffers: &Buffers, options: Option<&SocketOptions>) -> String {
    let one = |name: &str, bytes: u32, is_locked: Option<bool>| {
        let kind = match is_locked {
            Some(true) => ", fixed by the program",
            Some(false) => ", autotuned",
            None => "",
        };
        format!("{name} {} bytes{kind}", grouped(u64::from(bytes)))
    };
    format!(
        "{}; {}; {} segments dropped",
        one("send", buffers.send_bytes, options.and_then(|options| options.send_buffer_locked)),
        one("receive", buffers.receive_bytes, options.and_then(|options| options.receive_buffer_locked)),
        grouped(u64::from(buffers.drops))
    )
}

fn queues(buffers: &Buffers) -> String {
    let bytes = |bytes: u32| grouped(u64::from(bytes));
    format!(
        "{} bytes unsent, {} unacknowledged, {} not read by the program",
        bytes(buffers.unsent_bytes),
        bytes(buffers.unacknowledged_bytes()),
        bytes(buffers.unread_bytes)
    )
}

fn rate(transfer: &Transfer) -> String {
    let speed = |bytes_per_s: Option<u64>| {
        bytes_per_s.map_or_else(|| "-".to_owned(), |rate| format_bit_rate(rate.saturating_mul(8)))
    };
    let window = transfer
        .peer_window_bytes
        .map(|bytes| format!(", peer's window {} bytes", grouped(u64::from(bytes))));
    format!(
        "congestion window {} segments of {} bytes{}; pacing {}, delivery {}",
        transfer.congestion_window_segments,
        transfer.mss_bytes,
        window.unwrap_or_default(),
        speed(transfer.pacing_bytes_per_s),
        speed(transfer.delivery_bytes_per_s)
    )
}

fn times(transfer: &Transfer) -> String {
    let ms =
        |us: Option<u32>| us.map_or_else(|| "-".to_owned(), |us| format!("{:.3} ms", f64::from(us) / 1e3));
    let counters = &transfer.counters;
    let share = |us: u64| {
        if counters.busy_us == 0 { 0.0 } else { us as f64 * 100.0 / counters.busy_us as f64 }
    };
    format!(
        "RTT {}, lowest {}; busy {:.3} s, of it {:.0} % limited by the peer's window, {:.0} % by the send buffer",
        ms(transfer.rtt_us),
        ms(transfer.rtt_min_us),
        counters.busy_us as f64 / 1e6,
        share(counters.window_limited_us),
        share(counters.send_buffer_limited_us)
    )
}

fn segments(transfer: &Transfer) -> String {
    let counters = &transfer.counters;
    let mean = counters.bytes_sent.checked_div(counters.data_segments_out);
    let mean = mean.map_or_else(|| "-".to_owned(), grouped);
    format!(
        "{} with data sent, {mean} bytes each, {} sent again; {} with data received",
        grouped(counters.data_segments_out),
        grouped(counters.retransmitted_segments),
        grouped(counters.data_segments_in)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::facts::socket::{Counters, Ends, Owner};

    #[test]
    fn every_figure_of_a_connection_is_printed_in_its_unit() {
        let socket = SocketFacts {
            ends: Ends {
                local: "10.0.0.1:3260".parse().expect("an address"),
                peer: "10.0.0.2:51514".parse().ok(),
            },
            owners: vec![Owner { pid: 4711, fd: 7, program: "tgtd".to_owned() }],
            options: Some(SocketOptions {
                nagle: true,
                corked: false,
                quick_ack: true,
                not_sent_low_water: Some(16384),
                send_buffer_locked: Some(false),
                receive_buffer_locked: Some(true),
            }),
            congestion_control: Some("cubic".to_owned()),
            buffers: Buffers {
                send_bytes: 87040,
                receive_bytes: 131_072,
                unread_bytes: 5,
                queued_bytes: 1500,
                unsent_bytes: 1000,
                drops: 3,
            },
            transfer: Some(Transfer {
                mss_bytes: 1448,
                rtt_us: Some(22_000),
                rtt_min_us: Some(48),
                congestion_window_segments: 10,
                peer_window_bytes: Some(65_536),
                pacing_bytes_per_s: Some(125_000_000),
                delivery_bytes_per_s: None,
                counters: Counters {
                    bytes_sent: 61_700,
                    data_segments_out: 1234,
                    data_segments_in: 617,
                    retransmitted_segments: 2,
                    busy_us: 4_000_000,
                    window_limited_us: 1_000_000,
                    send_buffer_limited_us: 2_000_000,
                    ..Counters::default()
                },
                ..Transfer::default()
            }),
            ..SocketFacts::default()
        };
        let expected = [
            "10.0.0.1:3260 -> 10.0.0.2:51514  established  tgtd (pid 4711, fd 7)",
            "  options   nodelay off, cork off, quickack on at this moment, congestion cubic, notsent-lowat 16 384",
            "  buffers   send 87 040 bytes, autotuned; receive 131 072 bytes, fixed by the program; 3 segments dropped",
            "  queues    1 000 bytes unsent, 500 unacknowledged, 5 not read by the program",
            "  rate      congestion window 10 segments of 1448 bytes, peer's window 65 536 bytes; pacing 1gbit, delivery -",
            "  times     RTT 22.000 ms, lowest 0.048 ms; busy 4.000 s, of it 25 % limited by the peer's window, 50 % by the send buffer",
            "  segments  1 234 with data sent, 50 bytes each, 2 sent again; 617 with data received",
        ];
        assert_eq!(socket_lines(&socket), expected);
    }

    #[test]
    fn a_listener_has_its_queue_and_no_connection() {
        let socket = SocketFacts {
            state: SocketState::Listen,
            accept_queue: Some(AcceptQueue { length: 3, limit: 128 }),
            ..SocketFacts::default()
        };
        let lines = socket_lines(&socket);
        assert_eq!(
            lines[..2],
            ["0.0.0.0:0  listening  process not visible", "  accepts   3 of 128 connections wait"]
        );
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines[2].ends_with("Nagle and cork not visible"), "{lines:?}");
    }
}
