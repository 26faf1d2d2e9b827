//! Generic netlink: families have names, and numbers that the kernel chose at boot.

use super::{Message, Netlink, NetlinkError, attribute::Attributes, attribute::Request};
use crate::uapi::genl;

/// Command, version and two reserved bytes.
pub(crate) const HEADER_LEN: usize = 4;

/// A request to a family.
pub(crate) fn request(family: u16, command: u8) -> Request {
    Request::new(family, 0, &[command, 1, 0, 0])
}

/// The numbers of a family and of one of its groups; none when this kernel does not have both.
pub(crate) fn group(
    netlink: &mut Netlink,
    name: &str,
    group: &str,
) -> Result<Option<(u16, u32)>, NetlinkError> {
    let ask = request(genl::ID_CTRL, genl::CTRL_GETFAMILY).string(genl::CTRL_FAMILY_NAME, name);
    match netlink.ask(&ask, "look up a generic netlink group") {
        Ok(Message { body, .. }) => Ok(find_group(Attributes::after(&body, HEADER_LEN), group)),
        Err(error) if error.refusal() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn find_group(family: Attributes<'_>, group: &str) -> Option<(u16, u32)> {
    let number = family.u16(genl::CTRL_FAMILY_ID)?;
    // A list of lists.
    let groups = family.nested(genl::CTRL_MCAST_GROUPS).iter().map(|(_, group)| Attributes::of(group));
    let named = groups.filter(|listed| listed.string(genl::CTRL_MCAST_NAME).as_deref() == Some(group));
    let id = named.filter_map(|listed| listed.u32(genl::CTRL_MCAST_ID)).next()?;
    Some((number, id))
}

/// The number of a family; none when this kernel does not have it.
pub(crate) fn family(netlink: &mut Netlink, name: &str) -> Result<Option<u16>, NetlinkError> {
    let ask = request(genl::ID_CTRL, genl::CTRL_GETFAMILY).string(genl::CTRL_FAMILY_NAME, name);
    match netlink.ask(&ask, "look up a generic netlink family") {
        Ok(Message { body, .. }) => Ok(Attributes::after(&body, HEADER_LEN).u16(genl::CTRL_FAMILY_ID)),
        Err(error) if error.refusal() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_name() {
        let listed = |name: &str, id| {
            Request::new(0, 0, &[]).string(genl::CTRL_MCAST_NAME, name).u32(genl::CTRL_MCAST_ID, id).body
        };
        let groups =
            Request::new(0, 0, &[]).bytes(1, &listed("other", 8)).bytes(2, &listed("monitor", 9)).body;
        let family = Request::new(0, 0, &[])
            .bytes(genl::CTRL_FAMILY_ID, &21u16.to_ne_bytes())
            .bytes(genl::CTRL_MCAST_GROUPS, &groups)
            .body;
        assert_eq!(find_group(Attributes::of(&family), "monitor"), Some((21, 9)));
        assert_eq!(find_group(Attributes::of(&family), "config"), None);
        assert_eq!(find_group(Attributes::of(&[]), "monitor"), None);
    }
}
