//! The round trip as a ring: the request's way above, the response's way back below.

use std::fmt::Write as _;

use crate::html::{Writer, escape};

/// A round trip.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    /// Which one: read out, and shown in the middle.
    pub title: String,
    /// What else is in the middle, one line each.
    pub middle: Vec<String>,
    /// The stages from the client to the server.
    pub there: Vec<Stage>,
    /// The stages from the server to the client.
    pub back: Vec<Stage>,
}

/// Where a stage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// At the client.
    Client,
    /// Between the two.
    Wire,
    /// At the server.
    Server,
}

impl Where {
    fn class(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Wire => "wire",
            Self::Server => "server",
        }
    }
}

/// A stage.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Its name; explained where the report has a term of this name.
    pub name: String,
    /// Where it is.
    pub place: Where,
    /// Its mean time, microseconds.
    pub us: f64,
    /// Where that is in the JSON of the result.
    pub at: Option<String>,
    /// It limits the ring.
    pub is_limit: bool,
    /// A remark, such as that its time contradicts the others.
    pub remark: Option<String>,
}

impl Ring {
    pub(crate) fn write(&self, to: &mut Writer) {
        let all = self.there.iter().chain(&self.back);
        let most = all.clone().map(|stage| stage.us).fold(0.0, f64::max);
        let longest = all.filter(|stage| stage.us > 0.0).max_by(|a, b| a.us.total_cmp(&b.us));
        let longest = longest.map(|stage| stage.name.clone());
        let _ = write!(to.out, "<div class=\"ring\" role=\"group\" aria-label=\"{}\">", escape(&self.title));
        self.way("request →", "there", &self.there, most, longest.as_deref(), to);
        let _ = write!(to.out, "<div class=\"middle\"><strong>{}</strong>", escape(&self.title));
        for line in &self.middle {
            let _ = write!(to.out, "<span>{}</span>", escape(line));
        }
        to.out.push_str("</div>");
        self.way("← response", "back", &self.back, most, longest.as_deref(), to);
        to.out.push_str("</div>");
    }

    fn way(
        &self,
        label: &str,
        class: &str,
        stages: &[Stage],
        most: f64,
        longest: Option<&str>,
        to: &mut Writer,
    ) {
        let _ = write!(to.out, "<div class=\"way {class}\"><span class=\"label\">{label}</span><ol>");
        for stage in stages {
            let share = if most > 0.0 { (stage.us / most * 100.0).clamp(0.0, 100.0) } else { 0.0 };
            let limit = if stage.is_limit { " limit" } else { "" };
            let _ = write!(to.out, "<li class=\"stage {}{limit}\">", stage.place.class());
            to.term(&stage.name);
            let at = stage.at.as_ref().map_or_else(String::new, |at| format!(" data-at=\"{}\"", escape(at)));
            let _ = write!(
                to.out,
                "<b><span{at}>{}</span> {}</b><i style=\"width:{share:.1}%\"></i>",
                to.unit.text(stage.us),
                to.unit.sign()
            );
            if stage.is_limit {
                to.out.push_str("<em>the limit</em>");
            } else if longest == Some(stage.name.as_str()) {
                to.out.push_str("<em class=\"most\">the longest</em>");
            }
            if let Some(remark) = &stage.remark {
                let _ = write!(to.out, "<em class=\"no\">{}</em>", escape(remark));
            }
            to.out.push_str("</li>");
        }
        to.out.push_str("</ol></div>");
    }
}
