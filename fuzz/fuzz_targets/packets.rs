//! Any bytes as frames of every link layer, all on one capture point.
#![no_main]

use capture::{At, Counted, Link, Observer, Selection, StreamHole, Vantage};
use libfuzzer_sys::fuzz_target;

struct Nobody;

impl Observer for Nobody {
    fn exchange(&mut self, _: &record::Exchange) {}
    fn hole(&mut self, _: StreamHole) {}
    fn counted(&mut self, _: &Counted) {}
}

fuzz_target!(|data: &[u8]| {
    let mut vantage = Vantage::new(Selection::default());
    let mut rest = data;
    let mut at = At::default();
    // Each frame: link layer, length, how much longer it was on the wire, time since the last, bytes.
    while let [link, length, longer, later, behind @ ..] = rest {
        let numbers = [
            0, 1, 12, 101, 108, 113, 228, 229, 276, 9, 50, 51, 100, 104, 105, 107, 109, 117, 127, 166, 192,
            204, 239,
        ];
        let Some(link) = Link::by_number(numbers[usize::from(*link) % numbers.len()]) else { return };
        let (frame, next) = behind.split_at(usize::from(*length).min(behind.len()));
        at = At { ns: at.ns.wrapping_add(u64::from(*later) << 20), frame: at.frame + 1 };
        vantage.frame(link, at, frame, frame.len() as u32 + u32::from(*longer) * 16, &mut Nobody);
        rest = next;
    }
    vantage.finish(&mut Nobody);
});
