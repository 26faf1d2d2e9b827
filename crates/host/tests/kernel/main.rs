//! What this crate says about a real kernel, asked in network namespaces made for it (needs root).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod facts;
mod ipv6;
mod lab;
mod path;
mod vlan;
mod watch;
