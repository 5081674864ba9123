//! TCP congestion controls: those that may be chosen, and the one that a study uses.

/// The congestion controls that this process may choose.
pub(crate) fn choices() -> Vec<String> {
    let kind = if nix::unistd::geteuid().is_root() { "available" } else { "allowed" };
    let path = format!("/proc/sys/net/ipv4/tcp_{kind}_congestion_control");
    std::fs::read_to_string(path).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// The requested congestion control, or another one without pacing if it may not be chosen; `None` for the system's
/// default.
pub(crate) fn choose(wanted: &str, choices: &[Vec<String>], warnings: &mut Vec<String>) -> Option<String> {
    let may = |name: &str| choices.iter().all(|side| side.iter().any(|choice| choice == name));
    let chosen = [wanted, "cubic", "reno"].into_iter().find(|name| may(name));
    if chosen != Some(wanted) {
        let instead = chosen.unwrap_or("the system's default");
        warnings.push(format!("congestion control {wanted} is not allowed: {instead} is used"));
    }
    chosen.map(str::to_owned)
}
