//! Two cards of one host joined by an external cable, without namespaces: packets between them would never leave the host,
//! so each is given an address that does not exist, and translated (the paper, "External Loopback").

/// Commands that force traffic over the cable, and those that undo them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatPlan {
    /// The commands, in order.
    pub commands: Vec<String>,
    /// The commands that undo them, in order.
    pub undo: Vec<String>,
    /// The address to connect to, so that packets leave by the first card and arrive at the second.
    pub connect_to: &'static str,
}

/// The plan for a client on `client` and a server on `server`.
#[must_use]
pub fn nat_plan(client: &str, server: &str) -> NatPlan {
    // Real addresses 10.98.1.1 and 10.98.2.1; those that do not exist end with 100.
    let mut commands = Vec::new();
    let mut undo = Vec::new();
    let mut add = |command: String, back: String| {
        commands.push(command);
        undo.insert(0, back);
    };
    for (interface, net) in [(client, 1), (server, 2)] {
        add(
            format!("ip address add 10.98.{net}.1/24 dev {interface}"),
            format!("ip address del 10.98.{net}.1/24 dev {interface}"),
        );
        add(format!("ip link set {interface} up"), format!("ip link set {interface} down"));
    }
    add("nft add table ip roundtrip".into(), "nft delete table ip roundtrip".into());
    for (chain, hook, priority) in [("out", "postrouting", "srcnat"), ("in", "prerouting", "dstnat")] {
        let chain =
            format!("nft 'add chain ip roundtrip {chain} {{ type nat hook {hook} priority {priority}; }}'");
        add(chain, "true  # goes with its table".into());
    }
    for (own, other) in [(1, 2), (2, 1)] {
        add(
            format!(
                "nft add rule ip roundtrip out ip saddr 10.98.{own}.1 ip daddr 10.98.{other}.100 snat to 10.98.{own}.100"
            ),
            "true  # goes with its table".into(),
        );
        add(
            format!("nft add rule ip roundtrip in ip daddr 10.98.{own}.100 dnat to 10.98.{own}.1"),
            "true  # goes with its table".into(),
        );
    }
    for (interface, other, peer) in [(client, 2, server), (server, 1, client)] {
        add(
            format!("ip route add 10.98.{other}.100 dev {interface}"),
            format!("ip route del 10.98.{other}.100 dev {interface}"),
        );
        add(
            format!(
                "ip neighbour add 10.98.{other}.100 lladdr $(ip -o link show {peer} | sed 's,.*link/ether \\([0-9a-f:]*\\).*,\\1,') dev {interface} nud permanent"
            ),
            format!("ip neighbour del 10.98.{other}.100 dev {interface}"),
        );
    }
    NatPlan { commands, undo, connect_to: "10.98.2.100" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_undone_in_reverse_order() {
        let plan = nat_plan("eth4", "eth5");
        assert_eq!(plan.commands.len(), plan.undo.len());
        assert_eq!(plan.commands[0], "ip address add 10.98.1.1/24 dev eth4");
        assert_eq!(plan.undo.last().unwrap(), "ip address del 10.98.1.1/24 dev eth4");
        assert!(plan.commands.iter().any(|c| c.contains("dev eth5 nud permanent")));
    }
}
