//! Counters that standards define.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bitset;
use crate::attributes::{Attributes, Builder};

const GROUPS: u16 = 3;
const GROUP: u16 = 4;
const GROUP_ID: u16 = 2;
const COUNTER: u16 = 4;

/// Groups, in the order of their bits.
const PHY: u32 = 0;
const MAC: u32 = 1;
const CONTROL: u32 = 2;
const RMON: u32 = 3;

/// A counter of the standard: its group, its number there, its field and where it is defined.
macro_rules! counters {
    ($($group:ident $number:literal $field:ident $doc:literal;)*) => {
        /// Counters that IEEE 802.3 clause 30 and RMON (RFC 2819) define. A counter that the driver lacks is none.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub struct Statistics {
            $(#[doc = $doc] #[serde(default, skip_serializing_if = "Option::is_none")] pub $field: Option<u64>,)*
        }

        impl Statistics {
            fn place(&mut self, group: u32, number: u16) -> Option<&mut Option<u64>> {
                $(if group == $group && number == $number {
                    return Some(&mut self.$field);
                })*
                None
            }

            /// Each counter that the driver has, with its name.
            #[must_use]
            pub fn counters(&self) -> Vec<(&'static str, u64)> {
                let all = [$((stringify!($field), self.$field)),*];
                all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
            }
        }
    };
}

counters! {
    PHY 0 symbol_errors "Invalid symbols while receiving (aSymbolErrorDuringCarrier, 30.3.2.1.5).";
    MAC 0 sent_frames "Frames sent (30.3.1.1.2).";
    MAC 1 single_collisions "Frames sent after one collision (30.3.1.1.3).";
    MAC 2 multiple_collisions "Frames sent after several collisions (30.3.1.1.4).";
    MAC 3 received_frames "Frames received (30.3.1.1.5).";
    MAC 4 frame_check_sequence_errors "Frames with a wrong CRC (30.3.1.1.6).";
    MAC 5 alignment_errors "Frames of no whole number of bytes (30.3.1.1.7).";
    MAC 7 deferred "Frames whose first attempt waited for the medium (30.3.1.1.9).";
    MAC 8 late_collisions "Collisions after the first 512 bits: the other side does not listen (30.3.1.1.10).";
    MAC 9 excessive_collisions "Frames given up after too many collisions (30.3.1.1.11).";
    MAC 10 sent_internal_errors "Frames lost in this station while sending (30.3.1.1.12).";
    MAC 11 carrier_sense_errors "Frames sent without carrier (30.3.1.1.13).";
    MAC 13 received_internal_errors "Frames lost in this station while receiving (30.3.1.1.15).";
    MAC 18 excessive_deferral "Frames that waited too long for the medium (30.3.1.1.20).";
    MAC 21 in_range_length_errors "Frames shorter or longer than they say (30.3.1.1.23).";
    MAC 23 frame_too_long_errors "Frames beyond the permitted size (30.3.1.1.25).";
    CONTROL 0 sent_control_frames "MAC control frames sent, such as PAUSE (30.3.3.3).";
    CONTROL 1 received_control_frames "MAC control frames received, such as PAUSE (30.3.3.4).";
    RMON 0 undersize_frames "Frames below 64 bytes with a right CRC (etherStatsUndersizePkts).";
    RMON 1 oversize_frames "Frames beyond the permitted size with a right CRC (etherStatsOversizePkts).";
    RMON 2 fragments "Frames below 64 bytes with a wrong CRC (etherStatsFragments).";
    RMON 3 jabbers "Frames beyond the permitted size with a wrong CRC (etherStatsJabbers).";
}

/// Adds the wish for all four groups.
pub(super) fn groups(request: Builder) -> Builder {
    request.nested(GROUPS, &bitset::all(RMON + 1))
}

pub(super) fn parse(answer: Attributes<'_>) -> Statistics {
    let mut statistics = Statistics::default();
    for (_, group) in answer.iter().filter(|(kind, _)| *kind == GROUP) {
        let group = Attributes::new(group);
        let Some(id) = group.u32(GROUP_ID) else { continue };
        for (_, counter) in group.iter().filter(|(kind, _)| *kind == COUNTER) {
            for (number, value) in Attributes::new(counter).iter() {
                if let (Some(place), Some(value)) = (statistics.place(id, number), value.first_chunk()) {
                    *place = Some(u64::from_ne_bytes(*value));
                }
            }
        }
    }
    statistics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_two_groups_do_not_mix_and_unknown_ones_are_skipped() {
        let counter = |number: u16, value: u64| Builder::new().bytes(number, &value.to_ne_bytes());
        let mac = Builder::new()
            .u32(GROUP_ID, MAC)
            .nested(COUNTER, &counter(4, 17))
            .nested(COUNTER, &counter(8, 3))
            .nested(COUNTER, &counter(99, 5));
        let phy = Builder::new().u32(GROUP_ID, PHY).nested(COUNTER, &counter(0, 2));
        let bytes = Builder::new().nested(GROUP, &mac).nested(GROUP, &phy).finish();
        let expected = Statistics {
            symbol_errors: Some(2),
            frame_check_sequence_errors: Some(17),
            late_collisions: Some(3),
            ..Statistics::default()
        };
        assert_eq!(parse(Attributes::new(&bytes)), expected);
        assert_eq!(
            expected.counters(),
            [("symbol_errors", 2), ("frame_check_sequence_errors", 17), ("late_collisions", 3)]
        );
    }
}
