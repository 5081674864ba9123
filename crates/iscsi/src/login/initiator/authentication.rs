//! The initiator's half of the security stage: CHAP, in one direction or both (RFC 7143 12.1.3).

use subtle::ConstantTimeEq as _;

use crate::fault::Fault;
use crate::login::chap::{self, Algorithm, Credentials};
use crate::text;

/// The algorithms that are offered, the preferred first. SHA-256 is last, because tgt and targets of its age take its number
/// for SHA1 (7, as in drafts of iSCSI); they choose MD5 before they see it.
const ALGORITHMS: [Algorithm; 4] = [Algorithm::Sha3, Algorithm::Sha1, Algorithm::Md5, Algorithm::Sha256];

/// The CHAP secrets of an initiator.
#[derive(Clone, Debug)]
pub struct Chap {
    /// Proves the initiator to the target.
    pub own: Credentials,
    /// The target must prove these, if there are any; an empty name accepts any name.
    pub target: Option<Credentials>,
    /// Random bytes for the target's challenge, fresh for each login.
    pub challenge: [u8; 32],
    /// The identifier of that challenge.
    pub identifier: u8,
}

/// The state of the security stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// AuthMethod was offered.
    Offered,
    /// CHAP_A was offered.
    Algorithms,
    /// CHAP_R was sent; the target's proof is due if it was asked for.
    Responded(Algorithm),
    /// Nothing is left to prove; the next stage was asked for.
    Settled,
    /// The stage is over.
    Done,
}

/// The keys of a target's response.
#[derive(Debug, Default)]
pub(super) struct Answered {
    pub(super) method: Option<String>,
    pub(super) algorithm: Option<String>,
    pub(super) identifier: Option<String>,
    pub(super) challenge: Option<String>,
    pub(super) name: Option<String>,
    pub(super) response: Option<String>,
}

impl Answered {
    /// Takes a key; returns whether it belongs to authentication.
    pub(super) fn take(&mut self, key: &str, value: &str) -> bool {
        let place = match key {
            "AuthMethod" => &mut self.method,
            "CHAP_A" => &mut self.algorithm,
            "CHAP_I" => &mut self.identifier,
            "CHAP_C" => &mut self.challenge,
            "CHAP_N" => &mut self.name,
            "CHAP_R" => &mut self.response,
            _ => return false,
        };
        *place = Some(value.to_owned());
        true
    }
}

impl Chap {
    /// Appends the offer of the first request. A target that need not prove itself may do without authentication.
    pub(super) fn offer(&self, out: &mut Vec<u8>) {
        text::push(out, "AuthMethod", if self.target.is_some() { "CHAP" } else { "CHAP,None" });
    }

    /// Takes the keys of a response and appends those of the next request. Returns the next state.
    pub(super) fn proceed(
        &self,
        proof: Proof,
        answered: &Answered,
        out: &mut Vec<u8>,
    ) -> Result<Proof, Fault> {
        match proof {
            Proof::Offered => match answered.method.as_deref() {
                Some("CHAP") => {
                    let numbers = ALGORITHMS.map(|algorithm| algorithm.number().to_string());
                    text::push(out, "CHAP_A", numbers.join(","));
                    Ok(Proof::Algorithms)
                }
                Some("None") if self.target.is_none() => Ok(Proof::Settled),
                _ => Err(broken("the target accepts no offered AuthMethod")),
            },
            Proof::Algorithms => self.respond(answered, out),
            Proof::Responded(algorithm) => self.judge(algorithm, answered).map(|()| Proof::Done),
            Proof::Settled | Proof::Done => Ok(Proof::Done),
        }
    }

    fn respond(&self, answered: &Answered, out: &mut Vec<u8>) -> Result<Proof, Fault> {
        let algorithm = answered.algorithm.as_deref().and_then(Algorithm::by_number);
        let algorithm = algorithm.ok_or_else(|| broken("CHAP_A is missing or was not offered"))?;
        let identifier = answered.identifier.as_deref().and_then(|text| text.parse::<u8>().ok());
        let identifier = identifier.ok_or_else(|| broken("CHAP_I is missing or not 0 to 255"))?;
        let challenge = answered.challenge.as_deref().and_then(chap::decode);
        let challenge = challenge.ok_or_else(|| broken("CHAP_C is missing or no binary value"))?;
        text::push(out, "CHAP_N", &self.own.name);
        let response = algorithm.response(identifier, &self.own.secret, &challenge);
        text::push(out, "CHAP_R", chap::encode(&response));
        if self.target.is_some() {
            text::push(out, "CHAP_I", self.identifier);
            text::push(out, "CHAP_C", chap::encode(&self.challenge));
        }
        Ok(Proof::Responded(algorithm))
    }

    /// Verifies the target's proof, if one is due.
    fn judge(&self, algorithm: Algorithm, answered: &Answered) -> Result<(), Fault> {
        let Some(target) = &self.target else { return Ok(()) };
        let response = answered.response.as_deref().and_then(chap::decode).ok_or_else(unproven)?;
        let expected = algorithm.response(self.identifier, &target.secret, &self.challenge);
        let is_named = target.name.is_empty() || answered.name.as_deref() == Some(&target.name);
        if !is_named || !bool::from(expected.as_slice().ct_eq(&response)) {
            return Err(unproven());
        }
        Ok(())
    }
}

/// The fault of a target that fails mutual authentication.
pub(super) fn unproven() -> Fault {
    broken("the target did not prove the secret of mutual CHAP")
}

fn broken(what: &'static str) -> Fault {
    Fault::Protocol { what, section: "RFC 7143 12.1.3" }
}
