//! Logins of this initiator to this target: CHAP in one and both directions, digests, redirection.

use super::*;
use crate::Framer;
use crate::login::chap::{Credentials, Known};
use crate::login::target::{Authentication, Gate, LoggedIn, Moved, Step, TargetLogin};

#[derive(Default)]
struct Guarded {
    authentication: Option<Authentication>,
    moved: Option<Moved>,
}

impl Gate for Guarded {
    fn admit(&self, _: &LoggedIn) -> Result<(), Status> {
        Ok(())
    }
    fn portal_group_tag(&self) -> u16 {
        1
    }
    fn authentication(&self, _: &LoggedIn) -> Option<&Authentication> {
        self.authentication.as_ref()
    }
    fn random(&self, buffer: &mut [u8]) -> Result<(), Status> {
        buffer.iter_mut().zip(1..).for_each(|(byte, value)| *byte = value);
        Ok(())
    }
    fn moved(&self) -> Option<Moved> {
        self.moved.clone()
    }
    fn new_session(&self, _: &LoggedIn) -> Result<u16, Status> {
        Ok(5)
    }
}

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials { name: name.into(), secret: secret.into() }
}

fn guarded() -> Guarded {
    let own = Some(credentials("disk", "looking-glass"));
    let initiators = vec![Known { credentials: credentials("alice", "wonderland-12"), own }];
    Guarded { authentication: Some(Authentication { initiators, is_optional: false }), moved: None }
}

fn chap(secret: &str, target: Option<Credentials>) -> Option<Chap> {
    Some(Chap { own: credentials("alice", secret), target, challenge: [9; 32], identifier: 3 })
}

/// The outcome of a login on both sides, and the redirection if there was one.
struct Outcome {
    ours: Result<Established, Fault>,
    theirs: Option<Box<LoggedIn>>,
    moved_to: Option<String>,
}

fn log_in(security: Security, gate: &Guarded) -> Outcome {
    let identity = Identity {
        initiator_name: "iqn.i".into(),
        target_name: "iqn.t".into(),
        session_type: SessionType::Normal,
        isid: [1; 6],
    };
    let framer = Framer::new(8192);
    let (mut request, mut theirs) = (Vec::new(), None);
    let mut initiator = InitiatorLogin::begin_secured(identity, security, &Wishes::default(), &mut request);
    let mut target = TargetLogin::new(Wishes::default(), 8);
    for _ in 0..20 {
        let mut response = Vec::new();
        let frame = framer.next(&request).unwrap().frame().unwrap();
        match target.receive(&frame, gate, &mut response).unwrap() {
            Step::FullFeature(login) => theirs = Some(login),
            Step::Continue | Step::Refused(_) => {}
        }
        request = Vec::new();
        let frame = framer.next(&response).unwrap().frame().unwrap();
        let ours = match initiator.receive(&frame, &mut request) {
            Ok(None) => continue,
            Ok(Some(established)) => Ok(established),
            Err(fault) => Err(fault),
        };
        return Outcome { ours, theirs, moved_to: initiator.moved_to().map(str::to_owned) };
    }
    panic!("the login does not end");
}

#[test]
fn chap_in_one_and_both_directions_logs_in_the_right_secrets_only() {
    let disk = |secret: &str| Some(credentials("disk", secret));
    let refused = Some(Fault::LoginRefused(Status::AUTHENTICATION_FAILURE));
    let unproven = Some(authentication::unproven());
    for (own, target, expected) in [
        ("wonderland-12", None, None),
        ("wonderland-13", None, refused.clone()),
        ("wonderland-12", disk("looking-glass"), None),
        ("wonderland-12", Some(credentials("", "looking-glass")), None),
        ("wonderland-12", Some(credentials("other", "looking-glass")), unproven.clone()),
        ("wonderland-12", disk("looking-grass"), unproven),
        ("wonderland-13", disk("looking-glass"), refused),
    ] {
        let security = Security { chap: chap(own, target.clone()), ..Security::default() };
        let outcome = log_in(security, &guarded());
        assert_eq!(outcome.ours.err(), expected, "{own} {target:?}");
        if expected.is_none() {
            assert_eq!(outcome.theirs.unwrap().user.as_deref(), Some("alice"));
        }
    }
}

#[test]
fn target_without_chap_cannot_skip_its_own_proof() {
    let open = Guarded::default();
    let one_way = Security { chap: chap("wonderland-12", None), ..Security::default() };
    assert!(log_in(one_way, &open).ours.is_ok(), "such a target needs no proof");
    let target = Some(credentials("", "looking-glass"));
    let mutual = Security { chap: chap("wonderland-12", target), ..Security::default() };
    assert!(log_in(mutual, &open).ours.is_err());
    let without = log_in(Security::default(), &guarded());
    assert_eq!(without.ours.err(), Some(Fault::LoginRefused(Status::AUTHENTICATION_FAILURE)));
}

#[test]
fn digests_are_agreed_by_both_sides() {
    for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
        let digests = Digests { header, data };
        let security = Security { chap: chap("wonderland-12", None), digests };
        let outcome = log_in(security, &guarded());
        assert_eq!(outcome.ours.unwrap().parameters.digests, digests);
        assert_eq!(outcome.theirs.unwrap().parameters.digests, digests);
    }
}

#[test]
fn redirection_names_the_other_address() {
    let moved = Some(Moved { address: "localhost:3261,1".into(), is_permanent: false });
    let outcome = log_in(Security::default(), &Guarded { moved, ..Guarded::default() });
    assert_eq!(outcome.ours.err(), Some(Fault::LoginRefused(Status::MOVED_TEMPORARILY)));
    assert_eq!(outcome.moved_to.as_deref(), Some("localhost:3261,1"));
}

#[test]
fn secrets_are_not_part_of_debug_output() {
    let security = Security {
        chap: chap("wonderland-12", Some(credentials("disk", "looking-glass"))),
        ..Security::default()
    };
    let text = format!("{security:?}");
    assert!(!text.contains("wonderland") && !text.contains("looking"), "{text}");
    let bytes = format!("{:?}", b"wonderland-12");
    assert!(!text.contains(bytes.trim_matches(['[', ']'])), "{text}");
}

/// A target that answers a method which was not offered, to avoid its own proof.
#[test]
fn target_that_chooses_no_authentication_fails_mutual_chap() {
    let answered = Answered { method: Some("None".into()), ..Answered::default() };
    let proceed = |target: Option<Credentials>| {
        let chap = chap("wonderland-12", target).unwrap();
        chap.proceed(Proof::Offered, &answered, &mut Vec::new())
    };
    assert_eq!(proceed(None).ok(), Some(Proof::Settled));
    assert!(proceed(Some(credentials("disk", "looking-glass"))).is_err());
}
