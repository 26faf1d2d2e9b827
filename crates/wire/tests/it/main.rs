//! What the crate promises, checked against `etherparse`, against naive arithmetic and against frames that
//! Linux sent.

// Clippy knows test functions, not their helpers.
#![allow(clippy::unwrap_used)]

mod address;
mod checksum;
mod common;
mod etherparse_agrees;
mod extensions;
mod linux_frames;
mod robustness;
mod template;
