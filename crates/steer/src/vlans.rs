//! The VLANs that a flow lives in.

use core::fmt;

/// The VLAN tags that a flow's frames have: none, one, or two (IEEE 802.1ad, "QinQ").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Vlans(u32);

impl Vlans {
    /// Not tagged. A tag that only gives a frame a priority (its identifier is 0) does not count.
    pub const NONE: Self = Self(0);

    /// The tags' identifiers, outermost first. None when there are more than two, or one is not 1 to 4094.
    pub fn tagged(identifiers: &[u16]) -> Option<Self> {
        let identifies = |id: &u16| (1..=4094).contains(id);
        if identifiers.len() > 2 || !identifiers.iter().all(identifies) {
            return None;
        }
        Some(Self(identifiers.iter().fold(0, |vlans, id| vlans << 16 | u32::from(*id))))
    }

    /// As the value of the program's maps.
    pub(crate) fn value(self) -> [u8; 4] {
        self.0.to_ne_bytes()
    }
}

impl fmt::Display for Vlans {
    /// `untagged`, `VLAN 10`, or `VLAN 5.10` with the outer one first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 >> 16, self.0 & 0xffff) {
            (0, 0) => f.write_str("untagged"),
            (0, only) => write!(f, "VLAN {only}"),
            (outer, inner) => write!(f, "VLAN {outer}.{inner}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outer_tag_is_the_upper_half_and_a_single_one_the_lower() {
        assert_eq!(Vlans::tagged(&[]), Some(Vlans::NONE));
        assert_eq!(Vlans::tagged(&[10]).unwrap().value(), 10u32.to_ne_bytes());
        assert_eq!(Vlans::tagged(&[5, 10]).unwrap().value(), 0x0005_000au32.to_ne_bytes());
    }

    #[test]
    fn what_identifies_no_vlan_is_none() {
        for identifiers in [&[0][..], &[4095], &[5, 0], &[1, 2, 3]] {
            assert_eq!(Vlans::tagged(identifiers), None, "{identifiers:?}");
        }
    }

    #[test]
    fn it_is_shown_outermost_first() {
        assert_eq!(Vlans::NONE.to_string(), "untagged");
        assert_eq!(Vlans::tagged(&[10]).unwrap().to_string(), "VLAN 10");
        assert_eq!(Vlans::tagged(&[5, 10]).unwrap().to_string(), "VLAN 5.10");
    }
}
