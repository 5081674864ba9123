//! The settings of this system.

use crate::apply::files::{Tree, sysctl_path};
use crate::apply::{Kernel, link, network_manager, route};
use crate::change::Setting;
use crate::error::ChangeError;

/// The settings of this system, in the caller's network namespace.
#[derive(Clone, Debug)]
pub struct System {
    parameters: Tree,
    sysfs: Tree,
}

impl Default for System {
    fn default() -> Self {
        Self::new("/proc/sys", "/sys")
    }
}

impl System {
    /// The system with its kernel parameters and its sysfs below these folders.
    #[must_use]
    pub fn new(parameters: impl Into<std::path::PathBuf>, sysfs: impl Into<std::path::PathBuf>) -> Self {
        Self { parameters: Tree::new(parameters), sysfs: Tree::new(sysfs) }
    }
}

impl Kernel for System {
    fn read(&self, setting: &Setting) -> Result<String, ChangeError> {
        match setting {
            Setting::Sysctl { name } => self.parameters.read(&sysctl_path(name)?),
            Setting::Sysfs { path } => self.sysfs.read(path),
            Setting::Route { route, option } => route::read(setting, route, option),
            Setting::Connection { uuid, property } => network_manager::read(setting, uuid, property),
            Setting::LinkModes { .. }
            | Setting::Mtu { .. }
            | Setting::Coalescing { .. }
            | Setting::Ring { .. }
            | Setting::Feature { .. }
            | Setting::Pause { .. } => link::read(setting),
        }
    }

    fn write(&self, setting: &Setting, value: &str) -> Result<(), ChangeError> {
        tracing::debug!("setting the {setting} to '{value}'");
        match setting {
            Setting::Sysctl { name } => self.parameters.write(&sysctl_path(name)?, value),
            Setting::Sysfs { path } => self.sysfs.write(path, value),
            Setting::Route { route, option } => route::write(setting, route, option, value),
            Setting::Connection { uuid, property } => network_manager::write(setting, uuid, property, value),
            Setting::LinkModes { .. }
            | Setting::Mtu { .. }
            | Setting::Coalescing { .. }
            | Setting::Ring { .. }
            | Setting::Feature { .. }
            | Setting::Pause { .. } => link::write(setting, value),
        }
    }

    fn obstacle(&self, setting: &Setting, value: &str) -> Option<String> {
        match setting {
            Setting::Sysctl { name }
                if sysctl_path(name).is_ok_and(|path| self.parameters.is_read_only(&path)) =>
            {
                Some("it cannot be written here; some can only be in the first network namespace".to_owned())
            }
            _ => link::obstacle(setting, value),
        }
    }
}
