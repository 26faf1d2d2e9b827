//! The netlink transport: one socket, requests with a bounded wait for their answers, and subscriptions.

pub(crate) mod attribute;
mod error;
pub(crate) mod generic;
mod socket;

pub use error::NetlinkError;
pub(crate) use socket::{Events, Message, Netlink, Notice};
