//! The user that a process changes to.

use std::fmt;
use std::str::FromStr;

use nix::unistd::{Gid, Group, Uid, User, setgroups, setresgid, setresuid, setuid};

use crate::{SandboxError, failed};

/// A user and a group, as `NAME`, `NAME:GROUP` or numbers in place of either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    name: String,
    pub(crate) uid: Uid,
    pub(crate) gid: Gid,
}

impl FromStr for Account {
    type Err = SandboxError;

    fn from_str(text: &str) -> Result<Self, SandboxError> {
        let wrong = |reason: String| SandboxError::Account { text: text.to_owned(), reason };
        let (name, group) = match text.split_once(':') {
            Some((name, group)) => (name, Some(group)),
            None => (text, None),
        };
        let lookup = |error: nix::Error| wrong(format!("cannot look it up: {error}"));
        let user = match name.parse() {
            Ok(uid) => User::from_uid(Uid::from_raw(uid)).map_err(lookup)?,
            Err(_) => User::from_name(name).map_err(lookup)?,
        };
        let uid = match (&user, name.parse()) {
            (Some(user), _) => user.uid,
            // A number needs no entry in the user database.
            (None, Ok(uid)) => Uid::from_raw(uid),
            (None, Err(_)) => return Err(wrong(format!("no user '{name}'"))),
        };
        let gid = match (group, user) {
            (Some(group), _) => match group.parse() {
                Ok(gid) => Gid::from_raw(gid),
                Err(_) => {
                    Group::from_name(group)
                        .map_err(lookup)?
                        .ok_or_else(|| wrong(format!("no group '{group}'")))?
                        .gid
                }
            },
            (None, Some(user)) => user.gid,
            (None, None) => return Err(wrong(format!("uid {uid} has no entry; name its group: {uid}:GID"))),
        };
        if uid.is_root() || uid.as_raw() == u32::MAX || gid.as_raw() == u32::MAX {
            return Err(wrong("root keeps all privileges; name another user".to_owned()));
        }
        Ok(Self { name: text.to_owned(), uid, gid })
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Account {
    /// Returns the number of a group, given by name or number.
    ///
    /// # Errors
    /// When there is no such group.
    pub fn group(text: &str) -> Result<u32, SandboxError> {
        let wrong = |reason: String| SandboxError::Account { text: text.to_owned(), reason };
        if let Ok(number) = text.parse() {
            return Ok(number);
        }
        let group = Group::from_name(text).map_err(|error| wrong(format!("cannot look it up: {error}")))?;
        group.map(|group| group.gid.as_raw()).ok_or_else(|| wrong(format!("no group '{text}'")))
    }

    /// Changes every thread to this user, without supplementary groups, and verifies that the change is irreversible. The
    /// kernel clears the capabilities of a thread that leaves uid 0.
    pub(crate) fn become_for_good(&self) -> Result<(), SandboxError> {
        let changing = |error: nix::Error| failed(format!("changing to user {self}"), error.into());
        // Groups first, because the user change removes the right to change them. The C library does each on all threads.
        setgroups(&[self.gid]).map_err(changing)?;
        setresgid(self.gid, self.gid, self.gid).map_err(changing)?;
        setresuid(self.uid, self.uid, self.uid).map_err(changing)?;
        let root = Uid::from_raw(0);
        let is_back = setuid(root).is_ok()
            || setresuid(root, root, root).is_ok()
            || nix::unistd::setgid(Gid::from_raw(0)).is_ok() && self.gid.as_raw() != 0;
        let ids = nix::unistd::getresuid().map_err(changing)?;
        if is_back || [ids.real, ids.effective, ids.saved] != [self.uid; 3] {
            return Err(SandboxError::Regained(self.clone()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names_and_ids_and_rejects_root_and_unknown_users() {
        let nobody: Account = "65534:65533".parse().unwrap();
        assert_eq!((nobody.uid.as_raw(), nobody.gid.as_raw()), (65534, 65533));
        for (text, word) in [
            ("root", "root keeps"),
            ("0:65534", "root keeps"),
            ("no-such-user-here", "no user 'no-such-user-here'"),
            ("65534:no-such-group-here", "no group"),
            ("4000000:", "no group ''"),
            ("3999999999", "name its group"),
        ] {
            let error = text.parse::<Account>().unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
