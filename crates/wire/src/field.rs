//! Reading big-endian fields without a way to panic.

use crate::{Layer, Malformed};

/// The first `N` bytes as an array, or [`Malformed::Truncated`].
#[inline]
pub(crate) fn fixed<const N: usize>(bytes: &[u8], layer: Layer) -> Result<&[u8; N], Malformed> {
    bytes.first_chunk().ok_or(Malformed::Truncated { layer, needed: N, found: bytes.len() })
}

/// The first `len` bytes, or [`Malformed::Truncated`].
#[inline]
pub(crate) fn prefix(bytes: &[u8], len: usize, layer: Layer) -> Result<&[u8], Malformed> {
    bytes.get(..len).ok_or(Malformed::Truncated { layer, needed: len, found: bytes.len() })
}
