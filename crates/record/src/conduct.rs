//! How one side of a connection behaved as a sender: counts and sums, without a judgement.

/// How one side of a connection behaved as a sender, from its beginning to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conduct {
    /// Segments with data, repetitions not counted.
    pub segments: u64,
    /// Their payload, bytes.
    pub bytes: u64,
    /// Messages that they carried.
    pub messages: u64,
    /// Pauses of 20 ms and more between messages in which the peer sent no data.
    pub pauses: u64,
    /// Messages whose segments were many times more than their bytes needed, and those segments.
    pub trains: u64,
    /// See `trains`.
    pub train_segments: u64,
    /// Payload of the trains, bytes.
    pub train_bytes: u64,
    /// From the first segment of each train to its last, nanoseconds.
    pub train_ns: u64,
    /// Frames of the first trains.
    pub train_frames: [u64; 2],
    /// Pauses of 0.25 ms and more in the middle of messages that no acknowledgement ended: the program had nothing to send.
    pub own_pauses: u64,
    /// Pauses of its data that last as long as the timer of a cork.
    pub timer_pauses: u64,
    /// Segments sent again, those of them sent while the peer was sending as well, and those sent only after a time-out.
    pub retransmitted: u64,
    /// See `retransmitted`.
    pub retransmitted_against_traffic: u64,
    /// See `retransmitted`.
    pub timeouts: u64,
    /// Of `retransmitted`, those whose data had arrived: acknowledged before, or reported by a duplicate SACK (RFC 2883).
    pub spurious: u64,
    /// Large segments that were sent again and again, and that never arrived, as none of its data did.
    pub vanished: u64,
    /// Largest segment that is known to have arrived, bytes.
    pub arrived_max_bytes: u32,
    /// Segments that left while the peer was sending as well.
    pub against_traffic: u64,
    /// Largest segment that the peer accepts, bytes: from its SYN, else the largest seen.
    pub mss_bytes: u32,
    /// Time during a message in which nothing left until an ACK came, nanoseconds.
    pub ack_wait_ns: u64,
    /// Number of these waits.
    pub ack_waits: u64,
    /// Bytes unacknowledged in those waits, summed.
    pub ack_wait_bytes: u64,
    /// The waits in which the receiver's window was full, and their time, nanoseconds.
    pub window_waits: u64,
    /// See `window_waits`.
    pub window_wait_ns: u64,
    /// Frames of the longest wait for an ACK.
    pub ack_wait_frames: [u64; 3],
    /// Longest wait for an ACK, nanoseconds.
    pub ack_wait_max_ns: u64,
    /// Time during messages, nanoseconds.
    pub sending_ns: u64,
    /// Shortest time from a segment to its acknowledgement, nanoseconds; 0: unknown.
    pub ack_min_ns: u64,
    /// Times from a segment to its acknowledgement: their sum, nanoseconds, and their number.
    pub ack_sum_ns: u64,
    /// See `ack_sum_ns`.
    pub acks_timed: u64,
    /// Most bytes unacknowledged.
    pub in_flight_max_bytes: u32,
    /// Largest window that its peer offered, bytes; where its scale is unknown, what it was at least.
    pub window_max_bytes: u32,
    /// The window that its peer had offered when its first data left, bytes; 0: unknown.
    pub window_first_bytes: u32,
    /// Shortest time from a time stamp to its echo (RFC 7323), nanoseconds; 0: unknown.
    pub echo_min_ns: u64,
    /// Waits in which the receiver's window had no room for a segment until a window update came.
    pub zero_windows: u64,
    /// Small segments that left while no small one was unacknowledged, and those that left while one was: Nagle's algorithm
    /// allows only the first.
    pub small_alone: u64,
    /// See `small_alone`.
    pub small_together: u64,
    /// Flights that the congestion window ended, by what made it small.
    pub flights: Flights,
    /// The same after idle times.
    pub flights_after_idle: Flights,
    /// Round trips of data against the bytes in flight.
    pub queueing: Queueing,
    /// Waits of its data in queues in front of the capture point that other data filled.
    pub transit: Transit,
    /// Packets that left while the other direction was quiet, and while it was sending, of a sender that counts its packets:
    /// those that are missing were lost in front of the capture point.
    pub crossing: [Passed; 2],
}

/// Packets, and those of them that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// All.
    pub sent: u64,
    /// Those that were lost.
    pub lost: u64,
}

/// Waits of a sender's data in queues in front of the capture point, as its time stamps show them. Only data that left while
/// nothing of its connection was unacknowledged: it has not filled the queue itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Transit {
    /// Segments whose wait is known, and those of them that waited long.
    pub count: u64,
    /// See `count`.
    pub waits: u64,
    /// The sum of the long waits, nanoseconds, and that of their squares.
    pub wait_ns: f64,
    /// See `wait_ns`.
    pub wait_ns_ns: f64,
    /// The longest, nanoseconds, and the frame that had it.
    pub longest_ns: u64,
    /// See `longest_ns`.
    pub longest_frame: u64,
}

impl Transit {
    /// Adds a segment that waited; `is_long` says whether that is more than paths vary by.
    pub fn add(&mut self, wait_ns: u64, is_long: bool, frame: u64) {
        self.count += 1;
        if !is_long {
            return;
        }
        self.waits += 1;
        self.wait_ns += wait_ns as f64;
        self.wait_ns_ns += wait_ns as f64 * wait_ns as f64;
        if wait_ns > self.longest_ns {
            (self.longest_ns, self.longest_frame) = (wait_ns, frame);
        }
    }

    /// The sums of two.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let longest = if self.longest_ns >= other.longest_ns { self } else { other };
        Self {
            count: self.count + other.count,
            waits: self.waits + other.waits,
            wait_ns: self.wait_ns + other.wait_ns,
            wait_ns_ns: self.wait_ns_ns + other.wait_ns_ns,
            ..longest
        }
    }

    /// The mean of the long waits, nanoseconds, and their standard deviation.
    #[must_use]
    pub fn mean_ns(&self) -> (f64, f64) {
        let n = self.waits.max(1) as f64;
        let mean = self.wait_ns / n;
        (mean, (self.wait_ns_ns / n - mean * mean).max(0.0).sqrt())
    }
}

/// Flights of segments that the congestion window ended: one for each round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flights {
    /// Runs of them: stretches of data that needed several flights.
    pub runs: u64,
    /// Flights that followed one of the same run, and those of them that were larger.
    pub next: u64,
    /// See `next`.
    pub grown: u64,
    /// Bytes of the runs' first flights.
    pub first_bytes: u64,
    /// The runs after the connection's first message.
    pub later_runs: u64,
    /// The least and the most bytes of their first flights.
    pub later_least_bytes: u64,
    /// See `later_least_bytes`.
    pub later_most_bytes: u64,
}

impl Flights {
    /// Adds the first flight of a run; `is_later` says whether other data had left before.
    pub fn begin(&mut self, bytes: u64, is_later: bool) {
        self.runs += 1;
        self.first_bytes += bytes;
        if is_later {
            let least = &mut self.later_least_bytes;
            *least = if self.later_runs == 0 { bytes } else { bytes.min(*least) };
            self.later_most_bytes = self.later_most_bytes.max(bytes);
            self.later_runs += 1;
        }
    }
}

/// Round trips of segments against the bytes in flight with them: the sums of a regression, bytes and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Queueing {
    /// Samples.
    pub count: u64,
    /// Sum of the bytes in flight.
    pub bytes: f64,
    /// Sum of the round trips.
    pub ns: f64,
    /// Sum of the squares of the bytes.
    pub bytes_bytes: f64,
    /// Sum of the squares of the round trips.
    pub ns_ns: f64,
    /// Sum of the products.
    pub bytes_ns: f64,
}

impl Queueing {
    /// Adds a sample.
    #[inline]
    pub fn add(&mut self, in_flight_bytes: u32, round_trip_ns: u64) {
        let (bytes, ns) = (f64::from(in_flight_bytes), round_trip_ns as f64);
        self.count += 1;
        self.bytes += bytes;
        self.ns += ns;
        self.bytes_bytes += bytes * bytes;
        self.ns_ns += ns * ns;
        self.bytes_ns += bytes * ns;
    }

    /// Mean round trip, nanoseconds.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.ns / self.count.max(1) as f64
    }

    /// Correlation of the round trip with the bytes in flight, -1 to 1; 0 where either is constant.
    #[must_use]
    pub fn correlation(&self) -> f64 {
        let n = self.count.max(1) as f64;
        let covariance = self.bytes_ns / n - self.bytes / n * (self.ns / n);
        let spread = |squares: f64, sum: f64| (squares / n - (sum / n) * (sum / n)).max(0.0).sqrt();
        let both = spread(self.bytes_bytes, self.bytes) * spread(self.ns_ns, self.ns);
        if both > 0.0 { (covariance / both).clamp(-1.0, 1.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_that_grow_with_the_bytes_in_flight_correlate() {
        let (mut queue, mut constant, mut noise) =
            (Queueing::default(), Queueing::default(), Queueing::default());
        for step in 1..=100_u32 {
            queue.add(step * 1000, 10_000_000 + u64::from(step) * 1_000_000);
            constant.add(5000, 10_000_000);
            noise.add(step * 1000, 10_000_000 + u64::from(step * 7919 % 101) * 10_000);
        }
        assert!(queue.correlation() > 0.999 && (queue.mean_ns() - 60.5e6).abs() < 1.0);
        assert_eq!((constant.correlation(), Queueing::default().correlation()), (0.0, 0.0));
        assert!(noise.correlation().abs() < 0.3, "{}", noise.correlation());
    }
}
