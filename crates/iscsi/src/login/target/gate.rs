//! The target as a login sees it.

use crate::login::chap::{Credentials, Known};
use crate::login::{SessionType, Status};
use crate::parameters::Parameters;

/// What a login needs to know about its target.
///
/// [`TargetLogin`](super::TargetLogin) calls these methods while it handles a Login Request, in the order
/// `authentication`, `admit`, `moved`, `join`, `new_session`; one that returns a status ends the login with it.
pub trait Gate {
    /// Checks whether this login may lead to the session that it requests, once the initiator is authenticated.
    /// [`Gate::new_session`] must check again, as permissions may have changed since.
    fn admit(&self, login: &LoggedIn) -> Result<(), Status>;
    /// The target portal group tag of the connection's portal.
    fn portal_group_tag(&self) -> u16;
    /// The credentials by which the initiator of this login must authenticate; `None` if it need not. Of the login, the names and
    /// the session type are known.
    fn authentication(&self, _login: &LoggedIn) -> Option<&Authentication> {
        None
    }
    /// Fills a buffer with unpredictable random bytes.
    ///
    /// # Errors
    /// If no randomness is available; the login fails then.
    fn random(&self, _buffer: &mut [u8]) -> Result<(), Status> {
        Err(Status::OUT_OF_RESOURCES)
    }
    /// The session that a login with a TSIH adds a connection to, or why it cannot.
    fn join(&self, _login: &LoggedIn) -> Result<Joined, Status> {
        Err(Status::SESSION_DOES_NOT_EXIST)
    }
    /// The other address to which the login is redirected, if any.
    fn moved(&self) -> Option<Moved> {
        None
    }
    /// Enters the new or joined session at the start of the full feature phase. Returns its TSIH, or why there is none.
    fn new_session(&self, login: &LoggedIn) -> Result<u16, Status>;
}

/// A session that a login joins.
#[derive(Clone, Debug)]
pub struct Joined {
    /// The parameters of its leading login; those that are not per connection apply to all its connections.
    pub parameters: Parameters,
    /// Its ExpCmdSN.
    pub exp_cmd_sn: u32,
}

/// Another address of the target (RFC 7143 4.2.7.3, 11.13.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// TargetAddress: address and port, with or without a portal group tag.
    pub address: String,
    /// Permanently, rather than temporarily.
    pub is_permanent: bool,
}

/// The CHAP credentials of a target.
#[derive(Clone, Debug, Default)]
pub struct Authentication {
    /// The initiators' names and secrets.
    pub initiators: Vec<Known>,
    /// An initiator that offers AuthMethod=None may go on without authentication.
    pub is_optional: bool,
}

/// The result of a login.
#[derive(Clone, Debug)]
pub struct LoggedIn {
    /// InitiatorName.
    pub initiator_name: String,
    /// The authenticated CHAP user, if the initiator authenticated.
    pub user: Option<String>,
    /// Its name and secret.
    pub proven: Option<Credentials>,
    /// TargetName; empty for a discovery session.
    pub target_name: String,
    /// Discovery or normal.
    pub session_type: SessionType,
    /// The initiator's part of the session identifier.
    pub isid: [u8; 6],
    /// The target's part.
    pub tsih: u16,
    /// Connection identifier.
    pub cid: u16,
    /// The negotiated parameters.
    pub parameters: Parameters,
    /// ExpCmdSN when the full feature phase begins.
    pub exp_cmd_sn: u32,
    /// StatSN of the next response.
    pub stat_sn: u32,
}
