//! Generic netlink: families have names, and numbers that the kernel chose at boot.

use super::{Message, Netlink, NetlinkError, attribute::Attributes, attribute::Request};
use crate::uapi::genl;

/// Command, version and two reserved bytes.
pub(crate) const HEADER_LEN: usize = 4;

/// A request to a family.
pub(crate) fn request(family: u16, command: u8) -> Request {
    Request::new(family, 0, &[command, 1, 0, 0])
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
