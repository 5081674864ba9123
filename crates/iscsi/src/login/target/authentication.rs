//! Authentication of the initiator, and of the target if the initiator requests it (RFC 7143 12.1.3).

use super::{Gate, TargetLogin};
use crate::login::chap::{self, Challenge};
use crate::login::{Status, stage};
use crate::text;

/// The state of authentication.
#[derive(Debug)]
pub(super) enum Proof {
    /// Not started.
    Open,
    /// CHAP was selected.
    Chap,
    /// A challenge was sent.
    Challenged(Challenge),
    /// The initiator is authenticated.
    Given,
}

/// Bytes of a challenge.
pub(super) const CHALLENGE_BYTES: usize = 32;

impl TargetLogin {
    /// Continues authentication. Returns whether the initiator is authenticated, or need not be.
    pub(super) fn prove(&mut self, csg: u8, gate: &dyn Gate, text: &mut Vec<u8>) -> Result<bool, Status> {
        let failure = Err(Status::AUTHENTICATION_FAILURE);
        let offered = std::mem::take(&mut self.methods);
        let offers = |method: &str| offered.iter().any(|m| m == method);
        let Some(authentication) = gate.authentication(&self.login) else {
            if !offered.is_empty() {
                if !offers("None") {
                    return failure;
                }
                text::push(text, "AuthMethod", "None");
            }
            return Ok(true);
        };
        if csg != stage::SECURITY {
            // The security stage was skipped, or is over.
            let may = matches!(self.proof, Proof::Given)
                || (authentication.is_optional && matches!(self.proof, Proof::Open));
            return if may { Ok(true) } else { failure };
        }
        let (algorithm, claim) = (self.algorithm.take(), self.claim.take());
        match (std::mem::replace(&mut self.proof, Proof::Open), algorithm, claim) {
            (Proof::Given, None, None) => self.proof = Proof::Given,
            (Proof::Open, None, None) => {
                if !offers("CHAP") {
                    if !authentication.is_optional || !(offered.is_empty() || offers("None")) {
                        return failure;
                    }
                    if !offered.is_empty() {
                        text::push(text, "AuthMethod", "None");
                    }
                    return Ok(true);
                }
                text::push(text, "AuthMethod", "CHAP");
                self.proof = Proof::Chap;
            }
            // CHAP_A may come together with AuthMethod.
            (Proof::Open | Proof::Chap, Some(algorithm), None) => {
                if offers("CHAP") {
                    text::push(text, "AuthMethod", "CHAP");
                }
                let mut bytes = [0; CHALLENGE_BYTES + 1];
                gate.random(&mut bytes)?;
                let (identifier, bytes) = (bytes[0], bytes[1..].to_vec());
                text::push(text, "CHAP_A", algorithm.number());
                text::push(text, "CHAP_I", identifier);
                text::push(text, "CHAP_C", chap::encode(&bytes));
                self.proof = Proof::Challenged(Challenge { algorithm, identifier, bytes });
            }
            (Proof::Challenged(challenge), None, Some(claim)) => {
                let Some(proven) = challenge.judge(&claim, &authentication.initiators) else {
                    return failure;
                };
                self.login.user = Some(proven.user.name.clone());
                self.login.proven = Some(proven.user);
                if let Some((name, response)) = proven.answer {
                    text::push(text, "CHAP_N", name);
                    text::push(text, "CHAP_R", chap::encode(&response));
                }
                self.proof = Proof::Given;
            }
            _ => return failure,
        }
        Ok(matches!(self.proof, Proof::Given))
    }
}
