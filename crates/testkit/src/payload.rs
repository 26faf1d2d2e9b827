//! Bytes that depend on their position alone, so that a lost, doubled or misplaced byte shows.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

/// A deterministic stream of `len` bytes, read from its beginning; any part of it can be made on its own.
#[derive(Clone, Debug)]
pub struct Payload {
    seed: u64,
    len: u64,
    position: u64,
}

/// A step of SplitMix64: well mixed, and computed from its index alone.
fn word(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Payload {
    /// `len` bytes of the stream that `seed` names.
    pub fn new(seed: u64, len: u64) -> Self {
        Self { seed, len, position: 0 }
    }

    /// Fills `out` with the bytes that stand at `offset`.
    pub fn fill(&self, offset: u64, out: &mut [u8]) {
        let mut index = offset / 8;
        let skip = (offset % 8) as usize;
        let mut rest = out;
        if skip != 0 {
            let bytes = word(self.seed, index).to_le_bytes();
            let n = rest.len().min(8 - skip);
            rest[..n].copy_from_slice(&bytes[skip..skip + n]);
            rest = &mut rest[n..];
            index += 1;
        }
        for eight in rest.chunks_mut(8) {
            let bytes = word(self.seed, index).to_le_bytes();
            eight.copy_from_slice(&bytes[..eight.len()]);
            index += 1;
        }
    }

    /// The SHA-256 of the whole, in lower-case hexadecimal.
    pub fn sha256(&self) -> String {
        sha256(Self::new(self.seed, self.len)).unwrap_or_default()
    }

    /// Writes the whole to a new file.
    pub fn write_to(&self, path: &Path) -> io::Result<()> {
        let mut file = File::create(path)?;
        io::copy(&mut Self::new(self.seed, self.len), &mut BufWriter::with_capacity(1 << 20, &mut file))?;
        Ok(())
    }

    /// A file of `len` bytes that is mostly holes: 4 KiB of the stream at every 64 KiB, zeros between. Five
    /// gigabytes take a third of a gigabyte on the disk, and any misplaced block still changes the hash.
    pub fn write_sparse(&self, path: &Path) -> io::Result<()> {
        const STRIDE: u64 = 64 << 10;
        let mut file = File::create(path)?;
        file.set_len(self.len)?;
        let mut block = [0; 4 << 10];
        for offset in (0..self.len).step_by(STRIDE as usize) {
            let n = block.len().min((self.len - offset) as usize);
            self.fill(offset, &mut block[..n]);
            file.seek(SeekFrom::Start(offset))?;
            file.write_all(&block[..n])?;
        }
        Ok(())
    }
}

impl Read for Payload {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = out.len().min(usize::try_from(self.len - self.position).unwrap_or(usize::MAX));
        self.fill(self.position, &mut out[..n]);
        self.position += n as u64;
        Ok(n)
    }
}

/// The SHA-256 of everything `source` gives, in lower-case hexadecimal.
pub fn sha256(mut source: impl Read) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match source.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            n => hash.update(&buffer[..n]),
        }
    }
}

/// The SHA-256 of a file's contents.
pub fn sha256_file(path: &Path) -> io::Result<String> {
    sha256(File::open(path)?)
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;

    #[test]
    fn any_part_equals_the_same_part_of_the_whole() {
        let mut whole = Vec::new();
        Payload::new(7, 100).read_to_end(&mut whole).unwrap();
        assert_eq!(whole.len(), 100);
        for start in 0..100 {
            for end in start..=100 {
                let mut part = vec![0; end - start];
                Payload::new(7, 100).fill(start as u64, &mut part);
                assert_eq!(part, whole[start..end], "{start}..{end}");
            }
        }
    }

    #[test]
    fn seeds_and_positions_differ() {
        let bytes = |seed, offset| {
            let mut out = [0; 64];
            Payload::new(seed, 1 << 40).fill(offset, &mut out);
            out
        };
        assert_ne!(bytes(1, 0), bytes(2, 0));
        assert_ne!(bytes(1, 0), bytes(1, 64));
        assert_ne!(bytes(1, 0), bytes(1, 1 << 32));
    }

    #[test]
    fn hashes_are_the_standards() {
        // FIPS 180-2, appendix B.1, and the hash of nothing.
        assert_eq!(
            sha256(&b"abc"[..]).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            Payload::new(1, 0).sha256(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn files_hold_what_was_promised() {
        let scratch = Scratch::new().unwrap();
        let payload = Payload::new(3, 1_000_003);
        payload.write_to(&scratch.file("dense")).unwrap();
        assert_eq!(sha256_file(&scratch.file("dense")).unwrap(), payload.sha256());

        payload.write_sparse(&scratch.file("sparse")).unwrap();
        let sparse = std::fs::read(scratch.file("sparse")).unwrap();
        assert_eq!(sparse.len(), 1_000_003);
        let mut block = [0; 4096];
        payload.fill(65_536, &mut block);
        assert_eq!(sparse[65_536..65_536 + 4096], block);
        assert!(sparse[65_536 + 4096..131_072].iter().all(|byte| *byte == 0));
    }
}
