//! Conditions on a comparison, for scripts.

use std::str::FromStr;

use crate::comparison::{Change, Comparison, Row};

/// A condition: `rate=5%`, `mean=5%`, `p50=5%`, `p99=10%` (worse by no more than that), `failed` (no more failures), or `causes` (no new
/// causes). What is not told from noise holds; what cannot be compared does not.
#[derive(Clone, Debug, PartialEq)]
pub enum Assertion {
    /// A quantity may become worse by this share.
    Within(&'static str, f64),
    /// No larger share of the operations fails.
    Failed,
    /// There is no new cause.
    Causes,
}

/// The quantities by their names in a condition.
const NAMES: [(&str, &str); 4] =
    [("rate", "per second"), ("mean", "mean us"), ("p50", "p50 us"), ("p99", "p99 us")];

impl FromStr for Assertion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "failed" => return Ok(Self::Failed),
            None if text == "causes" => return Ok(Self::Causes),
            None => {}
            Some((name, limit)) => {
                let name = NAMES.iter().find(|(short, _)| *short == name).map(|(_, name)| *name);
                let percent = limit.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
                let percent = percent.filter(|percent| percent.is_finite() && *percent >= 0.0);
                if let (Some(name), Some(percent)) = (name, percent) {
                    return Ok(Self::Within(name, percent / 100.0));
                }
            }
        }
        Err(format!("{text:?} is no condition: use rate=5%, mean=5%, p50=5%, p99=10%, failed or causes"))
    }
}

/// Whether a quantity has become worse by more than this share. Of a rate less is worse.
fn is_worse(change: &Change, limit: f64) -> bool {
    let sign = if change.name == "per second" { -1.0 } else { 1.0 };
    change.share().is_none_or(|share| share * sign > limit)
}

impl Assertion {
    /// Returns what breaks the condition, a sentence each.
    #[must_use]
    pub fn broken_by(&self, compared: &Comparison) -> Vec<String> {
        let mut broken = self.broken_figures(compared);
        // What cannot be compared does not hold.
        if compared.rows.is_empty() {
            broken.push("nothing is in both".to_owned());
        }
        let gone = compared.gone.iter().filter(|only| only.is_many());
        broken.extend(gone.map(|only| format!("{}: only before", only.name)));
        if let Self::Within(name, limit) = self {
            let changes = compared.rows.iter().filter_map(|row| Some((row, row.quantity(name)?)));
            let unjudged = changes.filter(|(_, change)| change.chance.is_none() && is_worse(change, *limit));
            broken.extend(unjudged.map(|(row, change)| {
                let (before, after) = (change.before, change.after);
                format!(
                    "{}: {name} {before:.1} to {after:.1}, and how much of it is noise is not known",
                    row.name
                )
            }));
            let is_lost = |row: &&Row| row.note.is_some() || row.quantity(name).is_none();
            let lost = compared.rows.iter().filter(is_lost);
            broken.extend(lost.map(|row| format!("{}: {name} cannot be compared", row.name)));
        }
        broken
    }

    fn broken_figures(&self, compared: &Comparison) -> Vec<String> {
        let of = |name: &str, is_broken: &dyn Fn(&Change) -> bool| {
            let rows = compared.rows.iter().filter_map(|row| Some((row, row.quantity(name)?)));
            rows.filter(|(_, change)| change.differs && is_broken(change))
                .map(|(row, change)| {
                    let percent = change.share().map_or(f64::INFINITY, |share| share * 100.0);
                    format!(
                        "{}: {name} {:.1} to {:.1} ({percent:+.1} %)",
                        row.name, change.before, change.after
                    )
                })
                .collect()
        };
        match self {
            Self::Within(name, limit) => of(name, &|change| is_worse(change, *limit)),
            Self::Failed => of("failed", &|change| change.difference() > 0.0),
            Self::Causes => compared.causes_new.iter().map(|cause| format!("new cause: {cause}")).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::Only;

    fn compared(name: &str, before: f64, after: f64, differs: bool) -> Comparison {
        let change =
            Change { name: name.into(), before, after, chance: Some(0.0), least: Some(1.0), differs };
        let row = Row {
            name: "a GET".into(),
            operations: [1, 1],
            quantities: vec![change],
            parts: Vec::new(),
            note: None,
            carried_by: None,
        };
        Comparison {
            before: "a".into(),
            after: "b".into(),
            rows: vec![row],
            gone: Vec::new(),
            new: Vec::new(),
            causes_gone: Vec::new(),
            causes_new: vec!["packet loss: much".into()],
        }
    }

    #[test]
    fn conditions_hold_or_not() {
        let broken = |condition: &str, name, before, after, differs| {
            let condition: Assertion = condition.parse().unwrap();
            !condition.broken_by(&compared(name, before, after, differs)).is_empty()
        };
        assert!(broken("p99=10%", "p99 us", 100.0, 111.0, true));
        assert!(!broken("p99=10%", "p99 us", 100.0, 109.0, true));
        assert!(!broken("p99=10%", "p99 us", 100.0, 200.0, false), "noise");
        assert!(!broken("p99=10%", "p99 us", 200.0, 100.0, true), "better");
        assert!(broken("rate=5%", "per second", 100.0, 94.0, true));
        assert!(!broken("rate=5%", "per second", 100.0, 120.0, true));
        assert!(broken("failed", "failed", 0.0, 0.1, true) && !broken("failed", "failed", 0.1, 0.0, true));
        assert!(broken("causes", "x", 1.0, 1.0, false));
        let mut unjudged = compared("p99 us", 100.0, 111.0, false);
        unjudged.rows[0].quantities[0].chance = None;
        let p99 =
            |percent: &str| format!("p99={percent}%").parse::<Assertion>().unwrap().broken_by(&unjudged);
        assert!(p99("10")[0].contains("not known") && p99("12").is_empty());
        let within: Assertion = "mean=5%".parse().unwrap();
        assert!(
            !within.broken_by(&compared("p99 us", 1.0, 1.0, false)).is_empty(),
            "the quantity is missing"
        );
        let mut gone = compared("mean us", 1.0, 1.0, false);
        assert!(within.broken_by(&gone).is_empty());
        let only = |name: &str, operations| Only { name: name.into(), operations };
        gone.gone = vec![only("a PUT", 30), only("rare", 29)];
        gone.new = vec![only("new", 1000)];
        assert_eq!(within.broken_by(&gone), ["a PUT: only before"]);
        gone.rows.clear();
        gone.gone.clear();
        assert_eq!(within.broken_by(&gone), ["nothing is in both"]);
        for wrong in ["", "p99", "p99=", "p99=10", "p99=-1%", "p99=nan%", "p98=1%", "causes=1%"] {
            assert!(wrong.parse::<Assertion>().is_err(), "{wrong}");
        }
    }
}
