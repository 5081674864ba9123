//! Settings of interfaces, over netlink.

use crate::change::Setting;
use crate::error::ChangeError;

pub(super) fn read(setting: &Setting) -> Result<String, ChangeError> {
    Err(ChangeError::Read { setting: setting.to_string(), why: "todo".into() })
}

pub(super) fn write(setting: &Setting, value: &str) -> Result<(), ChangeError> {
    Err(ChangeError::Write { setting: setting.to_string(), value: value.into(), why: "todo".into() })
}
