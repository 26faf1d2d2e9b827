//! The program on a veth pair between two namespaces: what it steers, what it passes, what it drops. Needs
//! root.

// All of this is test code, though not in functions that clippy takes for tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../../xsk/tests/common/mod.rs"]
mod common;

mod ipv6;
mod lab;
mod sharing;
mod steering;
