//! Properties of NetworkManager's connections, by nmcli: the files of the connections are its own.

use crate::apply::tool::run;
use crate::change::Setting;
use crate::error::ChangeError;

const PACKAGE: &str = "network-manager";

/// Whether a text is a UUID, so that it cannot be taken for another argument.
fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

/// Whether a text is the name of a property: `802-3-ethernet.auto-negotiate`.
fn is_property(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && !part.starts_with('-') && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    text.split_once('.').is_some_and(|(setting, name)| is_part(setting) && is_part(name))
}

fn check(uuid: &str, property: &str) -> Result<(), String> {
    if is_uuid(uuid) && is_property(property) {
        Ok(())
    } else {
        Err("a connection has a UUID, and a property a name such as 802-3-ethernet.mtu".to_owned())
    }
}

pub(super) fn read(setting: &Setting, uuid: &str, property: &str) -> Result<String, ChangeError> {
    check(uuid, property)
        .and_then(|()| run("nmcli", PACKAGE, &["--get-values", property, "connection", "show", "uuid", uuid]))
        .map(|text| text.trim_end_matches('\n').to_owned())
        .map_err(|why| ChangeError::Read { setting: setting.to_string(), why })
}

pub(super) fn write(setting: &Setting, uuid: &str, property: &str, value: &str) -> Result<(), ChangeError> {
    check(uuid, property)
        .and_then(|()| run("nmcli", PACKAGE, &["connection", "modify", "uuid", uuid, property, value]))
        .map(|_| ())
        .map_err(|why| ChangeError::Write { setting: setting.to_string(), value: value.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_cannot_be_options() {
        assert!(check("3f0c7a2e-7d29-4d0c-8a6b-0d1d2b1f3c11", "802-3-ethernet.mtu").is_ok());
        for (uuid, property) in [
            ("--help", "802-3-ethernet.mtu"),
            ("3f0c7a2e-7d29-4d0c-8a6b-0d1d2b1f3c11", "--help"),
            ("3f0c7a2e-7d29-4d0c-8a6b-0d1d2b1f3c11", "a.b.c"),
            ("3f0c7a2e-7d29-4d0c-8a6b-0d1d2b1f3c11", "-a.b"),
            ("3f0c7a2e-7d29-4d0c-8a6b-0d1d2b1f3c11", "mtu"),
        ] {
            assert!(check(uuid, property).is_err(), "{uuid} {property}");
        }
    }
}
