//! Flow control (RFC 9113 5.2): the windows of a sender, and how long they had no room.
//!
//! A window is counted by what has passed the capture point. Its room, as the sender knows it, is never larger: an update that has
//! passed may still be on its way. So a sender whose window is used up here has had to wait, wherever the capture point is; near the
//! receiver, where updates pass before the data that uses up the window, some waits are not seen.

use crate::packet::At;

/// The initial size of windows.
pub(super) const INITIAL: i64 = 65_535;
const SIZE_MAX: i64 = (1 << 31) - 1;

/// A time without room.
#[derive(Clone, Copy, Debug)]
struct Hold {
    since: At,
    /// When an update gave room.
    released: Option<At>,
}

/// A wait that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) ns: u64,
    /// The last frames before it, of the update, and of the data behind it.
    pub(super) frames: [u64; 3],
}

/// A window of a stream, or that of the connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    /// What may still be sent, if it is known.
    left: Option<i64>,
    /// What was given and sent since it was first seen.
    balance: i64,
    hold: Option<Hold>,
}

impl Window {
    pub(super) fn of(size: Option<i64>) -> Self {
        Self { left: size, ..Self::default() }
    }

    /// The receiver has given room.
    pub(super) fn update(&mut self, by: i64, at: At) {
        self.balance = self.balance.saturating_add(by);
        self.left = self.left.map(|left| left + by).filter(|&left| left <= SIZE_MAX);
        if let (Some(Hold { released: released @ None, .. }), Some(1..)) = (&mut self.hold, self.left) {
            *released = Some(at);
        }
    }

    /// Data passes: the wait that has ended with it.
    fn data(&mut self, bytes: u32, [began, ended]: [At; 2], pace: &mut Pace) -> Option<Wait> {
        let wait = match self.hold.take() {
            Some(Hold { since, released: Some(released) }) => Some(pace.wait([since, released, began])),
            Some(Hold { released: None, .. }) => {
                // There was room: the capture lacks an update.
                self.left = None;
                None
            }
            None => None,
        };
        self.balance = self.balance.saturating_sub(i64::from(bytes));
        self.left = self.left.map(|left| left - i64::from(bytes)).filter(|&left| left >= 0);
        if self.left == Some(0) {
            self.hold = Some(Hold { since: ended, released: None });
        }
        wait
    }
}

/// How soon a sender goes on.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// The shortest time from an update to data that it released, nanoseconds.
    least_ns: Option<u64>,
}

/// A sender goes on within so many times the shortest time that it has needed; what it takes longer is its own time.
const PROMPT: u64 = 2;

impl Pace {
    /// The wait between data that used up a window, the update and the data that follows.
    fn wait(&mut self, [since, released, began]: [At; 3]) -> Wait {
        let after_ns = began.ns.saturating_sub(released.ns);
        let least_ns = self.least_ns.map_or(after_ns, |least| least.min(after_ns));
        self.least_ns = Some(least_ns);
        let before_ns = released.ns.saturating_sub(since.ns);
        let ns = before_ns.saturating_add(after_ns.min(least_ns.saturating_mul(PROMPT)));
        Wait { ns, frames: [since.frame, released.frame, began.frame] }
    }
}

/// The flow control of one sender on a connection.
#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) connection: Window,
    /// The size with which the windows of streams begin, if it is known.
    pub(super) initial: Option<i64>,
    /// Whether frames are missing.
    is_cut: bool,
    pace: Pace,
    /// Sum of the waits for the connection's window, nanoseconds.
    held_ns: u64,
}

/// The flow control of one sender on a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OfStream {
    pub(super) window: Window,
    /// [`Flow::held_ns`] when its last frame passed, and when that was.
    held_then_ns: u64,
    last_ns: u64,
}

impl OfStream {
    /// A frame that needs no room passes.
    pub(super) fn pass(&mut self, flow: &Flow, now: At) {
        (self.held_then_ns, self.last_ns) = (flow.held_ns, now.ns);
    }
}

/// The waits that data shows: of its stream and the connection, and how much of both its stream has waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waited {
    pub(super) waits: [Option<Wait>; 2],
    pub(super) own_ns: u64,
}

impl Flow {
    /// The connection has begun with what was seen: the server may have spoken before the client's preface.
    pub(super) fn begin(&mut self) {
        if !self.is_cut {
            let left = INITIAL.saturating_add(self.connection.balance);
            self.connection.left = Some(left).filter(|left| (0..=SIZE_MAX).contains(left));
            self.initial = self.initial.or(Some(INITIAL));
        }
    }

    /// A stream begins.
    pub(super) fn stream(&self, now: At) -> OfStream {
        OfStream { window: Window::of(self.initial), held_then_ns: self.held_ns, last_ns: now.ns }
    }

    /// Frames are missing.
    pub(super) fn lose(&mut self) {
        (self.connection, self.is_cut) = (Window::default(), true);
    }

    /// Data passes.
    pub(super) fn data(&mut self, stream: Option<&mut OfStream>, bytes: u32, at: [At; 2]) -> Waited {
        if bytes == 0 {
            return Waited::default();
        }
        let of_connection = self.connection.data(bytes, at, &mut self.pace);
        self.held_ns = self.held_ns.saturating_add(of_connection.map_or(0, |wait| wait.ns));
        let Some(stream) = stream else {
            return Waited { waits: [None, of_connection], own_ns: 0 };
        };
        let of_stream = stream.window.data(bytes, at, &mut self.pace);
        let shared_ns =
            self.held_ns.saturating_sub(std::mem::replace(&mut stream.held_then_ns, self.held_ns));
        // Both windows may be used up at the same time, and the connection's before the stream had anything to send.
        let since_ns = at[0].ns.saturating_sub(std::mem::replace(&mut stream.last_ns, at[1].ns));
        let own_ns = shared_ns.max(of_stream.map_or(0, |wait| wait.ns)).min(since_ns);
        Waited { waits: [of_stream, of_connection], own_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> At {
        At { ns: us * 1000, frame: us }
    }

    fn begun() -> (Flow, OfStream) {
        let mut flow = Flow::default();
        flow.begin();
        flow.connection.update(1 << 20, at(0));
        let stream = flow.stream(at(0));
        (flow, stream)
    }

    #[test]
    fn a_used_up_window_holds_until_its_update() {
        let (mut flow, mut stream) = begun();
        assert_eq!(flow.data(Some(&mut stream), 65_535, [at(1), at(2)]), Waited::default());
        stream.window.update(1000, at(30));
        stream.window.update(1000, at(40));
        let wait = Wait { ns: 29_000, frames: [2, 30, 31] };
        let expected = Waited { waits: [Some(wait), None], own_ns: 29_000 };
        assert_eq!(flow.data(Some(&mut stream), 500, [at(31), at(32)]), expected);
        // There is room for more.
        assert_eq!(flow.data(Some(&mut stream), 500, [at(90), at(91)]), Waited::default());
        // It is used up again, and the sender has something else to do than to go on.
        flow.data(Some(&mut stream), 1000, [at(91), at(92)]);
        stream.window.update(1000, at(100));
        let late = flow.data(Some(&mut stream), 500, [at(1000), at(1000)]);
        assert_eq!(late.own_ns, 10_000, "8 us until the update and twice the shortest release");
    }

    #[test]
    fn all_streams_wait_for_the_connection() {
        let mut flow = Flow::default();
        flow.begin();
        flow.initial = Some(1 << 20);
        let mut streams = [flow.stream(at(0)), flow.stream(at(0))];
        for round in 0..3 {
            let now = round * 100;
            flow.data(Some(&mut streams[0]), if round == 0 { 65_535 } else { 10_000 }, [at(now), at(now)]);
            flow.connection.update(10_000, at(now + 99));
        }
        assert_eq!(flow.held_ns, 200_000);
        let waited = flow.data(Some(&mut streams[1]), 1, [at(300), at(300)]);
        assert_eq!(waited.own_ns, 300_000);
        let late = flow.stream(at(0));
        assert_eq!(late.held_then_ns, 300_000);
    }

    #[test]
    fn data_without_room_shows_that_something_is_missing() {
        let (mut flow, mut stream) = begun();
        flow.data(Some(&mut stream), 65_535, [at(1), at(1)]);
        assert_eq!(flow.data(Some(&mut stream), 9, [at(50), at(50)]), Waited::default());
        let left = stream.window.left;
        assert_eq!(left, None);
        // More than there is room for, by a size that has changed.
        let (mut flow, mut stream) = begun();
        flow.data(Some(&mut stream), 65_536, [at(1), at(1)]);
        stream.window.update(1, at(2));
        assert_eq!(flow.data(Some(&mut stream), 9, [at(50), at(50)]), Waited::default());
    }
}
