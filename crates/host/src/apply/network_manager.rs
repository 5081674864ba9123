//! Properties of NetworkManager's connections, by nmcli: the files of the connections are its own. Properties that are valid only
//! together are one setting, with commas between their names and between their values.

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
        !part.is_empty()
            && !part.starts_with('-')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    text.split_once('.').is_some_and(|(setting, name)| is_part(setting) && is_part(name))
}

fn check(uuid: &str, property: &str) -> Result<(), String> {
    if is_uuid(uuid) && property.split(',').all(is_property) {
        Ok(())
    } else {
        Err("a connection has a UUID, and a property a name such as 802-3-ethernet.mtu".to_owned())
    }
}

pub(super) fn read(setting: &Setting, uuid: &str, property: &str) -> Result<String, ChangeError> {
    check(uuid, property)
        .and_then(|()| run("nmcli", PACKAGE, &["--get-values", property, "connection", "show", "uuid", uuid]))
        .map(|text| text.strip_suffix('\n').unwrap_or(&text).replace('\n', ","))
        .map_err(|why| ChangeError::Read { setting: setting.to_string(), why })
}

pub(super) fn write(setting: &Setting, uuid: &str, property: &str, value: &str) -> Result<(), ChangeError> {
    check(uuid, property)
        .and_then(|()| {
            let (properties, values): (Vec<&str>, Vec<&str>) = if property.contains(',') {
                (property.split(',').collect(), value.split(',').collect())
            } else {
                (vec![property], vec![value])
            };
            if properties.len() != values.len() {
                return Err(format!("{} properties need as many values", properties.len()));
            }
            let mut arguments = vec!["connection", "modify", "uuid", uuid];
            arguments
                .extend(properties.iter().zip(&values).flat_map(|(property, value)| [*property, *value]));
            run("nmcli", PACKAGE, &arguments)
        })
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
