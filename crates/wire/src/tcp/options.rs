//! TCP options: MSS (RFC 9293 3.7.1), window scale and timestamps (RFC 7323), SACK (RFC 2018).

use core::fmt;

use crate::Malformed;

/// Room for options in a TCP header, in bytes.
pub const MAX_OPTIONS_LEN: usize = 40;
/// The most SACK blocks that fit that room.
pub const MAX_SACK_BLOCKS: usize = 4;
/// The largest window shift (RFC 7323 2.3).
pub const MAX_WINDOW_SCALE: u8 = 14;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// The timestamps option (RFC 7323 section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the receiver's clock as last seen; counts only with the ACK bit.
    pub echo: u32,
}

/// The blocks of a SACK option, in the order of the wire; at most [`MAX_SACK_BLOCKS`].
#[derive(Clone, Copy, Default)]
pub struct SackBlocks {
    blocks: [(u32, u32); MAX_SACK_BLOCKS],
    len: u8,
}

impl SackBlocks {
    /// No block.
    pub const EMPTY: SackBlocks = SackBlocks { blocks: [(0, 0); MAX_SACK_BLOCKS], len: 0 };

    /// Appends the block of sequence numbers from `left` up to, not including, `right`; `false` and no change
    /// if there are [`MAX_SACK_BLOCKS`] already.
    #[inline]
    pub fn push(&mut self, left: u32, right: u32) -> bool {
        let Some(slot) = self.blocks.get_mut(usize::from(self.len)) else { return false };
        *slot = (left, right);
        self.len += 1;
        true
    }

    /// The blocks as (left, right) pairs, as they came: nothing is said about their order or sense.
    #[inline]
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.len)]
    }

    /// The blocks as (left, right) pairs.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + '_ {
        self.as_slice().iter().copied()
    }

    /// Number of blocks.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &SackBlocks) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SackBlocks {}

impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// The options of one segment.
///
/// MSS, window scale and SACK-permitted have a meaning on SYN segments only; whoever reads them elsewhere
/// ignores them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size in bytes.
    pub mss: Option<u16>,
    /// Window shift, at most [`MAX_WINDOW_SCALE`]: a larger one is read and written as that (RFC 7323 2.3).
    pub window_scale: Option<u8>,
    /// The sender takes SACK options.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// Blocks received out of order.
    pub sack: SackBlocks,
}

impl Options {
    /// Reads an option list, which fills `bytes`.
    ///
    /// Unknown options are skipped, and so are known ones with a length that is not theirs, as Linux does. Of
    /// an option that comes twice the last one counts.
    ///
    /// # Errors
    ///
    /// [`Malformed::OptionLength`] if a length is below two or runs past the list.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Options, Malformed> {
        let mut options = Options::default();
        // What nearly every segment of a connection with timestamps carries (RFC 7323 appendix A).
        if let &[NOP, NOP, TIMESTAMPS, 10, v0, v1, v2, v3, e0, e1, e2, e3] = bytes {
            let (value, echo) = (u32::from_be_bytes([v0, v1, v2, v3]), u32::from_be_bytes([e0, e1, e2, e3]));
            options.timestamps = Some(Timestamps { value, echo });
            return Ok(options);
        }
        let mut rest = bytes;
        while let [kind, after @ ..] = rest {
            match *kind {
                END => break,
                NOP => rest = after,
                kind => {
                    let declared = after.first().copied().unwrap_or(0);
                    let Some((option, next)) = rest.split_at_checked(usize::from(declared)) else {
                        return Err(Malformed::OptionLength { kind, declared });
                    };
                    let [_, _, value @ ..] = option else {
                        return Err(Malformed::OptionLength { kind, declared });
                    };
                    options.take(kind, value);
                    rest = next;
                }
            }
        }
        Ok(options)
    }

    /// One option's value, without kind and length.
    fn take(&mut self, kind: u8, value: &[u8]) {
        match (kind, value) {
            (MSS, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(MAX_WINDOW_SCALE)),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, &[v0, v1, v2, v3, e0, e1, e2, e3]) => {
                let (value, echo) =
                    (u32::from_be_bytes([v0, v1, v2, v3]), u32::from_be_bytes([e0, e1, e2, e3]));
                self.timestamps = Some(Timestamps { value, echo });
            }
            (SACK, blocks) => {
                let (blocks, []) = blocks.as_chunks::<8>() else { return };
                self.sack = SackBlocks::EMPTY;
                for &[l0, l1, l2, l3, r0, r1, r2, r3] in blocks {
                    self.sack
                        .push(u32::from_be_bytes([l0, l1, l2, l3]), u32::from_be_bytes([r0, r1, r2, r3]));
                }
            }
            _ => {}
        }
    }

    /// Length on the wire with padding: a multiple of 4, at most [`MAX_OPTIONS_LEN`].
    #[inline]
    pub fn encoded_len(&self) -> usize {
        let blocks = self.blocks_that_fit();
        self.len_without_sack() + if blocks == 0 { 0 } else { 4 + 8 * blocks }
    }

    fn len_without_sack(&self) -> usize {
        let mss = if self.mss.is_some() { 4 } else { 0 };
        let timestamps = if self.timestamps.is_some() { 12 } else { 0 };
        // SACK-permitted takes the place of the two NOPs before the timestamps, if there are any.
        let permitted = if self.sack_permitted && self.timestamps.is_none() { 4 } else { 0 };
        let scale = if self.window_scale.is_some() { 4 } else { 0 };
        mss + timestamps + permitted + scale
    }

    /// SACK blocks that there is room for behind the other options: the first ones are the newest and count
    /// most (RFC 2018 section 4).
    fn blocks_that_fit(&self) -> usize {
        self.sack.len().min((MAX_OPTIONS_LEN - 4 - self.len_without_sack()) / 8)
    }

    /// Writes the list to the start of `out` in the order in which Linux does, padded with NOPs, and returns
    /// its length. SACK blocks that do not fit are left out.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than [`Options::encoded_len`].
    pub fn build(&self, out: &mut [u8]) -> usize {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if let Some(mss) = self.mss {
            put(&[MSS, 4]);
            put(&mss.to_be_bytes());
        }
        let permitted = if self.sack_permitted { [SACK_PERMITTED, 2] } else { [NOP, NOP] };
        if let Some(Timestamps { value, echo }) = self.timestamps {
            put(&permitted);
            put(&[TIMESTAMPS, 10]);
            put(&value.to_be_bytes());
            put(&echo.to_be_bytes());
        } else if self.sack_permitted {
            put(&[NOP, NOP]);
            put(&permitted);
        }
        if let Some(shift) = self.window_scale {
            put(&[NOP, WINDOW_SCALE, 3, shift.min(MAX_WINDOW_SCALE)]);
        }
        let blocks = self.blocks_that_fit();
        if blocks > 0 {
            put(&[NOP, NOP, SACK, (2 + 8 * blocks) as u8]);
            for (left, right) in self.sack.iter().take(blocks) {
                put(&left.to_be_bytes());
                put(&right.to_be_bytes());
            }
        }
        at
    }
}
