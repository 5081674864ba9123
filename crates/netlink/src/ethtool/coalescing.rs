//! Interrupt coalescing: how long and for how many frames a card waits before it interrupts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attributes::{Attributes, Builder};

/// Parameters of interrupt coalescing that the driver has, or those of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Coalescing {
    /// Values: microseconds, frames, packets per second, seconds, or 0 and 1, as the parameter's name says.
    pub parameters: BTreeMap<CoalescingParameter, u32>,
}

/// A parameter with its number in the protocol, its width and its name as in ethtool(8).
macro_rules! parameters {
    ($($number:literal $width:ident $variant:ident $name:literal $doc:literal;)*) => {
        /// A parameter of interrupt coalescing, by its name in ethtool(8).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        pub enum CoalescingParameter {
            $(#[doc = $doc] #[serde(rename = $name)] $variant,)*
        }

        impl CoalescingParameter {
            /// All parameters.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name as in ethtool(8): `rx-usecs`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            fn attribute(self) -> (u16, Width) {
                match self { $(Self::$variant => ($number, Width::$width),)* }
            }
        }
    };
}

/// How a parameter is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Width {
    Number,
    Switch,
}

parameters! {
    2 Number RxUsecs "rx-usecs" "Microseconds that a received frame waits for an interrupt.";
    3 Number RxFrames "rx-frames" "Received frames that cause an interrupt.";
    4 Number RxUsecsIrq "rx-usecs-irq" "As `rx-usecs`, while an interrupt is served.";
    5 Number RxFramesIrq "rx-frames-irq" "As `rx-frames`, while an interrupt is served.";
    6 Number TxUsecs "tx-usecs" "Microseconds that a sent frame waits for an interrupt.";
    7 Number TxFrames "tx-frames" "Sent frames that cause an interrupt.";
    8 Number TxUsecsIrq "tx-usecs-irq" "As `tx-usecs`, while an interrupt is served.";
    9 Number TxFramesIrq "tx-frames-irq" "As `tx-frames`, while an interrupt is served.";
    10 Number StatsBlockUsecs "stats-block-usecs" "Microseconds between updates of counters in memory.";
    11 Switch AdaptiveRx "adaptive-rx" "Whether the driver adapts `rx-usecs` to the load: 0 or 1.";
    12 Switch AdaptiveTx "adaptive-tx" "Whether the driver adapts `tx-usecs` to the load: 0 or 1.";
    13 Number PktRateLow "pkt-rate-low" "Packets per second below which the `-low` parameters hold.";
    14 Number RxUsecsLow "rx-usecs-low" "As `rx-usecs`, at a low rate.";
    15 Number RxFramesLow "rx-frames-low" "As `rx-frames`, at a low rate.";
    16 Number TxUsecsLow "tx-usecs-low" "As `tx-usecs`, at a low rate.";
    17 Number TxFramesLow "tx-frames-low" "As `tx-frames`, at a low rate.";
    18 Number PktRateHigh "pkt-rate-high" "Packets per second above which the `-high` parameters hold.";
    19 Number RxUsecsHigh "rx-usecs-high" "As `rx-usecs`, at a high rate.";
    20 Number RxFramesHigh "rx-frames-high" "As `rx-frames`, at a high rate.";
    21 Number TxUsecsHigh "tx-usecs-high" "As `tx-usecs`, at a high rate.";
    22 Number TxFramesHigh "tx-frames-high" "As `tx-frames`, at a high rate.";
    23 Number SampleInterval "sample-interval" "Seconds over which the rate is measured.";
    24 Switch CqeModeTx "cqe-mode-tx" "Whether the timer of sent frames restarts with each completion: 0 or 1.";
    25 Switch CqeModeRx "cqe-mode-rx" "Whether the timer of received frames restarts with each completion: 0 or 1.";
}

impl CoalescingParameter {
    /// The parameter of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|parameter| parameter.name() == name)
    }

    /// Whether its values are 0 and 1.
    #[must_use]
    pub fn is_switch(self) -> bool {
        self.attribute().1 == Width::Switch
    }
}

impl Coalescing {
    /// The value of a parameter.
    #[must_use]
    pub fn get(&self, parameter: CoalescingParameter) -> Option<u32> {
        self.parameters.get(&parameter).copied()
    }

    /// With a parameter.
    #[must_use]
    pub fn with(mut self, parameter: CoalescingParameter, value: u32) -> Self {
        self.parameters.insert(parameter, value);
        self
    }

    pub(super) fn attributes(&self) -> Builder {
        self.parameters.iter().fold(Builder::new(), |request, (parameter, value)| {
            match parameter.attribute() {
                (kind, Width::Number) => request.u32(kind, *value),
                (kind, Width::Switch) => request.u8(kind, u8::from(*value != 0)),
            }
        })
    }
}

pub(super) fn parse(answer: Attributes<'_>) -> Coalescing {
    let value = |parameter: CoalescingParameter| match parameter.attribute() {
        (kind, Width::Number) => answer.u32(kind),
        (kind, Width::Switch) => answer.u8(kind).map(u32::from),
    };
    let parameters = CoalescingParameter::ALL.iter();
    Coalescing { parameters: parameters.filter_map(|p| Some((*p, value(*p)?))).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_read_back_from_its_own_request() {
        let change = Coalescing::default()
            .with(CoalescingParameter::RxUsecs, 8)
            .with(CoalescingParameter::AdaptiveRx, 0)
            .with(CoalescingParameter::CqeModeRx, 1);
        assert_eq!(parse(Attributes::new(&change.attributes().finish())), change);
        assert_eq!(
            serde_json::to_string(&change).unwrap(),
            r#"{"rx-usecs":8,"adaptive-rx":0,"cqe-mode-rx":1}"#
        );
    }

    #[test]
    fn names_are_those_of_ethtool() {
        for parameter in CoalescingParameter::ALL {
            assert_eq!(CoalescingParameter::from_name(parameter.name()), Some(*parameter));
        }
        assert_eq!(CoalescingParameter::from_name("rx_usecs"), None);
    }
}
