//! The settings of this system.

use crate::apply::files::{Tree, sysctl_path};
use crate::apply::{Kernel, link, network_manager, route};
use crate::change::Setting;
use crate::error::ChangeError;
use crate::journal::Interface;

/// The settings of this system, in the caller's network namespace.
#[derive(Clone, Debug)]
pub struct System {
    parameters: Tree,
    sysfs: Tree,
    interrupts: Tree,
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
        Self {
            parameters: Tree::new(parameters),
            sysfs: Tree::new(sysfs),
            interrupts: Tree::new("/proc/irq"),
        }
    }

    /// The same with the folders of its interrupts below another folder than `/proc/irq`.
    #[must_use]
    pub fn with_interrupts(self, folder: impl Into<std::path::PathBuf>) -> Self {
        Self { interrupts: Tree::new(folder), ..self }
    }
}

impl Kernel for System {
    fn read(&self, setting: &Setting) -> Result<String, ChangeError> {
        match setting {
            Setting::Sysctl { name } => self.parameters.read(&sysctl_path(name)?),
            Setting::Sysfs { path } => self.sysfs.read(path),
            Setting::InterruptAffinity { interrupt } => self.interrupts.read(&affinity(*interrupt)),
            Setting::Route { route, option } => route::read(setting, route, option),
            Setting::Connection { uuid, property } => network_manager::read(setting, uuid, property),
            Setting::LinkModes { .. }
            | Setting::Mtu { .. }
            | Setting::Coalescing { .. }
            | Setting::Ring { .. }
            | Setting::Feature { .. }
            | Setting::Pause { .. }
            | Setting::EnergyEfficientEthernet { .. } => link::read(setting),
        }
    }

    fn write(&self, setting: &Setting, value: &str) -> Result<(), ChangeError> {
        tracing::debug!("setting the {setting} to '{value}'");
        match setting {
            Setting::Sysctl { name } => self.parameters.write(&sysctl_path(name)?, value),
            Setting::Sysfs { path } => self.sysfs.write(path, value),
            Setting::InterruptAffinity { interrupt } => self.interrupts.write(&affinity(*interrupt), value),
            Setting::Route { route, option } => route::write(setting, route, option, value),
            Setting::Connection { uuid, property } => network_manager::write(setting, uuid, property, value),
            Setting::LinkModes { .. }
            | Setting::Mtu { .. }
            | Setting::Coalescing { .. }
            | Setting::Ring { .. }
            | Setting::Feature { .. }
            | Setting::Pause { .. }
            | Setting::EnergyEfficientEthernet { .. } => link::write(setting, value),
        }
    }

    fn interface(&self, setting: &Setting) -> Option<Interface> {
        let name = setting.interfaces().into_iter().next()?;
        let link = netlink::route::Connection::open().and_then(|mut kernel| kernel.link(&name)).ok()?;
        let address = link.address.filter(|_| link.kind.is_none());
        Some(Interface { index: link.index, address })
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

/// The file of an interrupt's processors.
fn affinity(interrupt: u32) -> String {
    format!("{interrupt}/smp_affinity_list")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processors_of_an_interrupt_are_set_and_restored_below_their_root() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("45/smp_affinity_list");
        std::fs::create_dir(folder.path().join("45")).unwrap();
        std::fs::write(&file, "0-3\n").unwrap();
        let system = System::default().with_interrupts(folder.path());
        let setting = Setting::InterruptAffinity { interrupt: 45 };
        let before = system.read(&setting).unwrap();
        assert_eq!(before, "0-3");
        system.write(&setting, "2").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "2\n");
        system.write(&setting, &before).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "0-3\n", "byte for byte");
        assert!(system.read(&Setting::InterruptAffinity { interrupt: 46 }).is_err());
    }
}
