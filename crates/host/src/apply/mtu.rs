//! The smallest MTU of an interface with IPv6.

use crate::apply::Kernel;
use crate::change::{Change, Setting};
use crate::error::ChangeError;

/// The smallest MTU of IPv6, bytes (RFC 8200, 5).
pub(crate) const SMALLEST_BYTES: u32 = 1280;

/// Refuses an MTU below that of IPv6 where the interface has IPv6: the kernel would remove its addresses and routes, and no undo could
/// restore them.
pub(super) fn check(kernel: &impl Kernel, change: &Change) -> Result<(), ChangeError> {
    let is_mtu = match &change.setting {
        Setting::Mtu { .. } => true,
        Setting::Sysfs { path } => path.rsplit('/').next() == Some("mtu"),
        _ => false,
    };
    let is_small = change.value.trim().parse::<u32>().is_ok_and(|bytes| bytes < SMALLEST_BYTES);
    if !is_mtu || !is_small {
        return Ok(());
    }
    match change.setting.interfaces().into_iter().find(|interface| has_ipv6(kernel, interface)) {
        None => Ok(()),
        Some(interface) => Err(ChangeError::Refused(format!(
            "an MTU of {} bytes is not set: below {SMALLEST_BYTES}, the kernel removes all IPv6 addresses of {interface}, and undo could \
             not restore them; choose at least {SMALLEST_BYTES}",
            change.value.trim(),
        ))),
    }
}

/// Whether IPv6 is on. Without IPv6, or with an MTU that is too small already, the interface has no such parameter.
fn has_ipv6(kernel: &impl Kernel, interface: &str) -> bool {
    // A slash stands for a dot within the name of an interface (sysctl(8)).
    let name = format!("net.ipv6.conf.{}.disable_ipv6", interface.replace('.', "/"));
    kernel.read(&Setting::Sysctl { name }).is_ok_and(|value| value.trim() != "1")
}
