//! What tells the traffic of one tenant from that of another with the same addresses.

/// A fingerprint of the encapsulations of a segment: of its VLANs, labels, network identifiers, tunnel ends and sessions.
/// Different encapsulations have different tags, but for one pair in four thousand million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(u32);

/// The kinds of identifiers: so that VLAN 5 is not network 5.
#[derive(Clone, Copy)]
enum Kind {
    Vlan = 1,
    Network,
    Key,
    Label,
    Session,
    Tunnel,
    Ends,
}

impl Tag {
    /// No encapsulation.
    pub const NONE: Self = Self(0);

    /// Inside this VLAN.
    pub(crate) fn vlan(self, id: u16) -> Self {
        self.with(Kind::Vlan, id.into())
    }

    /// Inside the virtual network of this number: VXLAN, Geneve.
    pub(super) fn network(self, id: u32) -> Self {
        self.with(Kind::Network, id)
    }

    /// With this key of GRE.
    pub(super) fn key(self, key: u32) -> Self {
        self.with(Kind::Key, key)
    }

    /// Behind this MPLS label.
    pub(super) fn label(self, label: u32) -> Self {
        self.with(Kind::Label, label)
    }

    /// In the tunnel of this number: GTP-U.
    pub(super) fn tunnel(self, id: u32) -> Self {
        self.with(Kind::Tunnel, id)
    }

    /// In this session: PPPoE.
    pub(super) fn session(self, id: u32) -> Self {
        self.with(Kind::Session, id)
    }

    /// In a tunnel between these ends, in either direction.
    pub(super) fn between(self, one: u128, other: u128) -> Self {
        let fold = |address: u128| {
            let half = (address as u64) ^ (address >> 64) as u64;
            (half.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
        };
        self.with(Kind::Ends, fold(one).wrapping_add(fold(other)))
    }

    /// Two steps of a multiplicative hash: different identifiers in the same place stay different.
    fn with(self, kind: Kind, id: u32) -> Self {
        let step =
            |hash: u32, word: u32| (hash.rotate_left(9) ^ word).wrapping_add(1).wrapping_mul(0x9e37_79b1);
        Self(step(step(self.0, kind as u32), id).max(1))
    }
}
