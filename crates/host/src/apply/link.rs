//! Settings of interfaces, over netlink.

use netlink::ethtool::{Coalescing, CoalescingParameter, Connection, RingChange, Switch};
use netlink::route;

use crate::apply::link_value::{self, switch};
use crate::change::Setting;
use crate::error::ChangeError;

pub(super) fn read(setting: &Setting) -> Result<String, ChangeError> {
    value(setting).map_err(|why| ChangeError::Read { setting: setting.to_string(), why })
}

pub(super) fn write(setting: &Setting, value: &str) -> Result<(), ChangeError> {
    let wrong = |why| ChangeError::Write { setting: setting.to_string(), value: value.to_owned(), why };
    set(setting, value).map_err(wrong)
}

fn value(setting: &Setting) -> Result<String, String> {
    let text = |error: netlink::Error| error.to_string();
    match setting {
        Setting::Mtu { interface } => {
            let link =
                route::Connection::open().and_then(|mut kernel| kernel.link(interface)).map_err(text)?;
            Ok(link.mtu.to_string())
        }
        Setting::LinkModes { interface } => {
            Ok(link_value::modes(&ethtool()?.link_modes(interface).map_err(text)?))
        }
        Setting::Coalescing { interface, parameter } => {
            let key = coalescing(parameter)?;
            let value = ethtool()?.coalescing(interface).map_err(text)?.get(key);
            let value = value.ok_or_else(|| "the driver does not have it".to_owned())?;
            Ok(if key.is_switch() { Switch::from(value != 0).to_string() } else { value.to_string() })
        }
        Setting::Ring { interface, parameter } => {
            let rings = ethtool()?.rings(interface).map_err(text)?;
            let ring = if is_rx(parameter)? { rings.rx } else { rings.tx };
            ring.map(|ring| ring.current.to_string())
                .ok_or_else(|| "the driver does not report it".to_owned())
        }
        Setting::Feature { interface, feature } => {
            let is_on = ethtool()?.features(interface).map_err(text)?.is_on(feature);
            let is_on = is_on
                .ok_or_else(|| "the kernel has no feature of this name; ethtool -k lists them".to_owned())?;
            Ok(Switch::from(is_on).to_string())
        }
        Setting::Pause { interface } => Ok(link_value::pause(ethtool()?.pause(interface).map_err(text)?)),
        Setting::EnergyEfficientEthernet { interface } => {
            let is_on = ethtool()?.eee(interface).map_err(text)?.is_enabled;
            is_on
                .map(|on| Switch::from(on).to_string())
                .ok_or_else(|| "the driver does not report it".to_owned())
        }
        Setting::InterruptAffinity { .. }
        | Setting::Sysctl { .. }
        | Setting::Sysfs { .. }
        | Setting::Route { .. }
        | Setting::Connection { .. } => Err("it is not a setting of an interface".to_owned()),
    }
}

fn set(setting: &Setting, value: &str) -> Result<(), String> {
    let text = |error: netlink::Error| error.to_string();
    let number = || value.parse::<u32>().map_err(|_| "it is not a whole number".to_owned());
    match setting {
        Setting::Mtu { interface } => {
            let mtu = number()?;
            route::Connection::open().and_then(|mut kernel| kernel.set_mtu(interface, mtu)).map_err(text)
        }
        Setting::LinkModes { interface } => {
            let change = link_value::parse_modes(value)?;
            ethtool()?.set_link_modes(interface, &change).map_err(text)
        }
        Setting::Coalescing { interface, parameter } => {
            let key = coalescing(parameter)?;
            let value = if key.is_switch() { u32::from(switch(value)?) } else { number()? };
            ethtool()?.set_coalescing(interface, &Coalescing::default().with(key, value)).map_err(text)
        }
        Setting::Ring { interface, parameter } => {
            let size = Some(number()?);
            let rx = is_rx(parameter)?;
            let change =
                if rx { RingChange { rx: size, tx: None } } else { RingChange { rx: None, tx: size } };
            ethtool()?.set_rings(interface, &change).map_err(text)
        }
        Setting::Feature { interface, feature } => {
            ethtool()?.set_feature(interface, feature, Switch::from(switch(value)?)).map_err(text)
        }
        Setting::Pause { interface } => {
            ethtool()?.set_pause(interface, &link_value::parse_pause(value)?).map_err(text)
        }
        Setting::EnergyEfficientEthernet { interface } => {
            ethtool()?.set_eee(interface, Switch::from(switch(value)?)).map_err(text)
        }
        Setting::InterruptAffinity { .. }
        | Setting::Sysctl { .. }
        | Setting::Sysfs { .. }
        | Setting::Route { .. }
        | Setting::Connection { .. } => Err("it is not a setting of an interface".to_owned()),
    }
}

/// Why the kernel would leave a feature as it is.
pub(super) fn obstacle(setting: &Setting, value: &str) -> Option<String> {
    let Setting::Feature { interface, feature } = setting else { return None };
    let features = ethtool().ok()?.features(interface).ok()?;
    let (state, wanted) = (features.features.get(feature)?, switch(value).ok()?);
    if state.is_on == wanted {
        None
    } else if !state.is_changeable {
        Some("the driver does not let it be changed".to_owned())
    } else if state.is_wanted == wanted {
        Some("it was asked for already, and another setting of the interface forbids it".to_owned())
    } else {
        None
    }
}

fn ethtool() -> Result<Connection, String> {
    Connection::open().map_err(|error| error.to_string())
}

fn coalescing(name: &str) -> Result<CoalescingParameter, String> {
    CoalescingParameter::from_name(name)
        .ok_or_else(|| format!("'{name}' is not a parameter of coalescing; ethtool -c lists them"))
}

fn is_rx(name: &str) -> Result<bool, String> {
    match name {
        "rx" => Ok(true),
        "tx" => Ok(false),
        _ => Err(format!("'{name}' is not a ring; these are rx and tx")),
    }
}
