//! How a session logs in: the initiator's name, CHAP in one or both directions, and digests. Secrets come from files or the
//! environment, and appear in no output.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use iscsi::Digests;
use iscsi::login::chap::Credentials;
use iscsi::login::initiator::{Chap, Security};
use iscsi::login::is_iscsi_name;
use serde::{Deserialize, Serialize};

use crate::initiator::error::InitiatorError;

/// The environment variable with the CHAP secret, if no file is given.
pub const SECRET_VARIABLE: &str = "ROUNDTRIP_CHAP_SECRET";
/// The environment variable with the target's secret for mutual CHAP, if no file is given.
pub const MUTUAL_SECRET_VARIABLE: &str = "ROUNDTRIP_CHAP_MUTUAL_SECRET";

/// Longest secret, bytes.
const SECRET_BYTES_MAX: usize = 255;

/// A CHAP secret. Its `Debug` output is redacted; it is serialised only in jobs for a client on another host, which travel
/// through the standard input of ssh.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A CHAP name and its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// CHAP_N; empty accepts any name of the target.
    pub name: String,
    /// The secret.
    pub secret: Secret,
}

impl User {
    fn credentials(&self) -> Credentials {
        Credentials { name: self.name.clone(), secret: self.secret.0.clone().into_bytes() }
    }
}

/// How a session logs in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// InitiatorName; `None` for the default one.
    pub initiator_name: Option<String>,
    /// The initiator's CHAP user.
    pub chap: Option<User>,
    /// The user that the target must prove to be (mutual CHAP).
    pub mutual: Option<User>,
    /// Require CRC32C over headers.
    pub header_digest: bool,
    /// Require CRC32C over data.
    pub data_digest: bool,
}

impl Login {
    /// Returns the security of one login, with a fresh challenge for the target.
    ///
    /// # Errors
    /// When the kernel has no randomness.
    pub(crate) fn security(&self) -> Result<Security, InitiatorError> {
        let digests = Digests { header: self.header_digest, data: self.data_digest };
        let Some(user) = &self.chap else { return Ok(Security { chap: None, digests }) };
        let mut random = [0; 33];
        getrandom::fill(&mut random)
            .map_err(|error| InitiatorError::Spec(format!("no randomness for CHAP: {error}")))?;
        let [identifier, challenge @ ..] = random;
        let target = self.mutual.as_ref().map(User::credentials);
        Ok(Security { chap: Some(Chap { own: user.credentials(), target, challenge, identifier }), digests })
    }
}

/// A login as a command line or a plan describes it: files with secrets instead of secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LoginSpec {
    /// InitiatorName.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initiator_name: Option<String>,
    /// CHAP name of the initiator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chap_user: Option<String>,
    /// File with its secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chap_secret_file: Option<PathBuf>,
    /// CHAP name that the target must have; any if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chap_mutual_user: Option<String>,
    /// File with the target's secret: the target must prove it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chap_mutual_secret_file: Option<PathBuf>,
    /// Require header digests.
    pub header_digest: bool,
    /// Require data digests.
    pub data_digest: bool,
}

impl LoginSpec {
    /// Reads the secrets: those without a file from the environment, by `variable`.
    ///
    /// # Errors
    /// When a secret is missing, its file is unreadable or readable by every user, or the options contradict each other.
    pub fn load(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Login, InitiatorError> {
        let wrong = |why: String| Err(InitiatorError::Spec(why));
        if let Some(name) = self.initiator_name.as_deref().filter(|name| !is_iscsi_name(name)) {
            return wrong(format!("initiator name '{name}': begin with iqn., eui. or naa."));
        }
        let chap = match &self.chap_user {
            Some(name) if name.is_empty() || name.len() > 255 => {
                return wrong("CHAP user: use 1 to 255 bytes".into());
            }
            Some(name) => match secret(self.chap_secret_file.as_deref(), SECRET_VARIABLE, &variable)? {
                Some(secret) => Some(User { name: name.clone(), secret }),
                None => {
                    return wrong(format!(
                        "CHAP user '{name}': no secret; name a file with --chap-secret-file (in plans: chap-secret-file), or set {SECRET_VARIABLE}"
                    ));
                }
            },
            None if self.chap_secret_file.is_some() => {
                return wrong("a CHAP secret without a user: add --chap-user (in plans: chap-user)".into());
            }
            None => None,
        };
        let is_mutual = self.chap_mutual_secret_file.is_some() || self.chap_mutual_user.is_some();
        let variable = |name: &str| if chap.is_some() { variable(name) } else { None };
        let mutual = secret(self.chap_mutual_secret_file.as_deref(), MUTUAL_SECRET_VARIABLE, &variable)?;
        if mutual.is_none() && self.chap_mutual_user.is_some() {
            return wrong(format!(
                "mutual CHAP: no secret of the target; name a file with --chap-mutual-secret-file (in plans: chap-mutual-secret-file), or set {MUTUAL_SECRET_VARIABLE}"
            ));
        }
        if is_mutual && chap.is_none() {
            return wrong(
                "mutual CHAP needs the initiator's own user: add --chap-user (in plans: chap-user)".into(),
            );
        }
        let name = self.chap_mutual_user.clone().unwrap_or_default();
        let mutual = mutual.map(|secret| User { name, secret });
        if let (Some(own), Some(target)) = (&chap, &mutual)
            && own.secret == target.secret
        {
            return wrong("mutual CHAP: both directions have one secret, which lets responses be reflected; give the target one of its own".into());
        }
        Ok(Login {
            initiator_name: self.initiator_name.clone(),
            chap,
            mutual,
            header_digest: self.header_digest,
            data_digest: self.data_digest,
        })
    }
}

/// Reads a secret from its file, or from the environment; `None` if neither is given.
fn secret(
    file: Option<&Path>,
    name: &str,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<Option<Secret>, InitiatorError> {
    let (text, place) = match file {
        Some(path) => (read(path)?, path.display().to_string()),
        None => match variable(name) {
            Some(text) => (text, name.to_owned()),
            None => return Ok(None),
        },
    };
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    // The text itself must not appear in an error.
    let wrong = |why: &str| Err(InitiatorError::Spec(format!("CHAP secret in {place}: {why}")));
    if text.is_empty() || text.len() > SECRET_BYTES_MAX {
        return wrong("use 1 to 255 bytes on one line");
    }
    if text.chars().any(char::is_control) {
        return wrong("it has several lines or control characters; write the secret alone on one line");
    }
    Ok(Some(Secret(text.to_owned())))
}

/// Reads a file that not every user may read.
fn read(path: &Path) -> Result<String, InitiatorError> {
    let wrong = |why: String| InitiatorError::Spec(format!("CHAP secret file {}: {why}", path.display()));
    let mut file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    let metadata = file.metadata().map_err(|error| wrong(error.to_string()))?;
    if metadata.is_file() && metadata.permissions().mode() & 0o004 != 0 {
        return Err(wrong("every user of this machine can read it; run chmod 600 on it".into()));
    }
    let mut bytes = Vec::new();
    let limit = SECRET_BYTES_MAX as u64 + 3;
    file.by_ref().take(limit).read_to_end(&mut bytes).map_err(|error| wrong(error.to_string()))?;
    String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8 text".into()))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    const OWN: &str = "wonderland-12";
    const TARGET: &str = "looking-glass";

    fn environment(name: &str) -> Option<String> {
        match name {
            SECRET_VARIABLE => Some(OWN.into()),
            MUTUAL_SECRET_VARIABLE => Some(TARGET.into()),
            _ => None,
        }
    }

    fn file(folder: &tempfile::TempDir, name: &str, content: &[u8], mode: u32) -> Option<PathBuf> {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        Some(path)
    }

    #[test]
    fn secrets_come_from_files_or_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let user = Some("alice".to_owned());
        let from_file = LoginSpec {
            chap_user: user.clone(),
            chap_secret_file: file(&folder, "own", b"in-a-file-123\r\n", 0o640),
            ..LoginSpec::default()
        };
        let login = from_file.load(|_| None).unwrap();
        assert_eq!(login.chap.unwrap().secret, Secret("in-a-file-123".into()));
        assert_eq!(login.mutual, None);
        let login = LoginSpec { chap_user: user, ..LoginSpec::default() }.load(environment).unwrap();
        assert_eq!(login.chap.clone().unwrap().secret, Secret(OWN.into()));
        assert_eq!(login.mutual.clone().unwrap().secret, Secret(TARGET.into()));
        let security = login.security().unwrap().chap.unwrap();
        assert_ne!(security.challenge, login.security().unwrap().chap.unwrap().challenge, "fresh");
        // Without a user the variables are for something else.
        assert_eq!(LoginSpec::default().load(environment).unwrap(), Login::default());
    }

    #[test]
    fn unusable_secrets_are_refused_without_showing_them() {
        let folder = tempfile::tempdir().unwrap();
        let spec = |path: Option<PathBuf>| LoginSpec {
            chap_user: Some("alice".into()),
            chap_secret_file: path,
            ..LoginSpec::default()
        };
        let long = OWN.repeat(40);
        let none = |_: &str| None;
        for (path, expected) in [
            (file(&folder, "open", OWN.as_bytes(), 0o644), "chmod 600"),
            (file(&folder, "empty", b"\n", 0o600), "1 to 255 bytes"),
            (file(&folder, "long", long.as_bytes(), 0o600), "1 to 255 bytes"),
            (file(&folder, "lines", b"wonderland-12\nwonderland-13\n", 0o600), "several lines"),
            (file(&folder, "binary", b"wonderland-12\xff", 0o600), "not UTF-8"),
            (Some(folder.path().join("missing")), "No such file"),
            (Some(folder.path().to_owned()), "directory"),
            (None, SECRET_VARIABLE),
        ] {
            let error = spec(path).load(none).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(expected), "{error}");
            assert!(!format!("{error} {error:?}").contains("wonderland"), "{error}");
        }
        let same = LoginSpec { chap_user: Some("a".into()), ..LoginSpec::default() };
        let error = same.load(|_| Some(OWN.into())).unwrap_err().to_string();
        assert!(error.contains("one of its own") && !error.contains(OWN), "{error}");
        let alone = LoginSpec { chap_mutual_user: Some("t".into()), ..LoginSpec::default() };
        assert!(alone.load(environment).is_err());
        let name = LoginSpec { initiator_name: Some("host".into()), ..LoginSpec::default() };
        assert!(name.load(none).unwrap_err().to_string().contains("iqn."));
    }

    #[test]
    fn debug_output_has_no_secret() {
        let spec = LoginSpec { chap_user: Some("alice".into()), ..LoginSpec::default() };
        let login = spec.load(environment).unwrap();
        let text = format!("{login:?} {:?}", login.security().unwrap());
        assert!(text.contains("alice") && !text.contains(OWN) && !text.contains(TARGET), "{text}");
    }
}
