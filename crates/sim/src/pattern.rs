//! The bytes that are sent: a function of a key and the offset, so that either end can make any part
//! of the stream again and nothing has to be stored to check it.

/// An endless, keyed, reproducible stream of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    key: u64,
}

impl Pattern {
    /// The stream that belongs to `key`; streams of different keys differ nearly everywhere.
    pub fn new(key: u64) -> Self {
        Self { key }
    }

    /// Writes the bytes `offset..offset + out.len()` of the stream.
    pub fn fill(&self, offset: u64, out: &mut [u8]) {
        let mut at = offset;
        let mut rest = out;
        while !rest.is_empty() {
            let word = self.word(at / 8).to_le_bytes();
            let from = (at % 8) as usize;
            let n = rest.len().min(8 - from);
            let (now, later) = rest.split_at_mut(n);
            now.copy_from_slice(&word[from..from + n]);
            at += n as u64;
            rest = later;
        }
    }

    /// The offset of the first byte of `bytes` that is not what the stream holds from `offset` on.
    pub fn mismatch(&self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let mut expected = [0; 256];
        for (i, part) in bytes.chunks(expected.len()).enumerate() {
            let at = offset + (i * expected.len()) as u64;
            let expected = &mut expected[..part.len()];
            self.fill(at, expected);
            if let Some(wrong) = part.iter().zip(expected.iter()).position(|(a, b)| a != b) {
                return Some(at + wrong as u64);
            }
        }
        None
    }

    fn word(&self, index: u64) -> u64 {
        let z = (index ^ self.key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ self.key.rotate_left(32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_is_the_same_part() {
        let pattern = Pattern::new(99);
        let mut whole = [0; 100];
        pattern.fill(3, &mut whole);
        for (from, to) in [(0, 100), (1, 2), (5, 77), (99, 100)] {
            assert_eq!(pattern.mismatch(3 + from as u64, &whole[from..to]), None);
        }
        whole[40] ^= 1;
        assert_eq!(pattern.mismatch(3, &whole), Some(43));
    }
}
