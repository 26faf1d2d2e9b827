//! Where received bytes go, and how they are hashed: outside the timed part wherever they are kept.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// Bytes asked of the kernel at once: large enough that system calls do not count, small enough to stay in the cache.
const READ_BYTES: usize = 256 * 1024;

/// Memory is taken in pieces of this size.
const CHUNK_BYTES: usize = 16 << 20;

/// The bytes of one connection.
pub(super) enum Store {
    /// Counted, and hashed as they come if there is a hasher.
    Stream { buffer: Vec<u8>, hasher: Option<Box<Sha256>> },
    /// Written; hashed afterwards by reading the file if it can be read again, else as they come.
    File { buffer: Vec<u8>, file: File, path: PathBuf, hash: FileHash },
    /// Kept, and hashed afterwards.
    Memory { chunks: Vec<Vec<u8>>, filled: u64, limit: u64 },
}

/// How the bytes of a file are hashed.
pub(super) enum FileHash {
    /// Not at all.
    None,
    /// From the file, after the end.
    Later,
    /// As they come: the output is a pipe or a device.
    Now(Box<Sha256>),
}

impl Store {
    /// Counts, and hashes as bytes come if asked.
    pub(super) fn stream(sha256: bool) -> Self {
        Self::Stream { buffer: vec![0; READ_BYTES], hasher: sha256.then(Box::default) }
    }

    /// Creates or truncates the file.
    pub(super) fn file(path: &Path, sha256: bool) -> io::Result<Self> {
        let file = File::create(path)?;
        let hash = match (sha256, file.metadata()?.is_file()) {
            (false, _) => FileHash::None,
            (true, true) => FileHash::Later,
            (true, false) => FileHash::Now(Box::default()),
        };
        Ok(Self::File { buffer: vec![0; READ_BYTES], file, path: path.to_owned(), hash })
    }

    /// Keeps at most `limit` bytes. What is expected is made ready now, so that no page is touched for the first time
    /// while bytes come.
    pub(super) fn memory(limit: u64, expected: Option<u64>) -> Self {
        let ready = usize::try_from(expected.unwrap_or(0).min(limit)).unwrap_or(0).div_ceil(CHUNK_BYTES);
        Self::Memory { chunks: (0..ready).map(|_| touched_chunk()).collect(), filled: 0, limit }
    }

    /// Room for the next bytes, never empty.
    pub(super) fn buffer(&mut self) -> Result<&mut [u8], String> {
        match self {
            Self::Stream { buffer, .. } | Self::File { buffer, .. } => Ok(buffer),
            Self::Memory { chunks, filled, .. } => {
                let (chunk, offset) = position(*filled);
                while chunks.len() <= chunk {
                    chunks.push(touched_chunk());
                }
                let room = chunks.get_mut(chunk).and_then(|chunk| chunk.get_mut(offset..));
                let room = room.ok_or("no memory for what was received")?;
                let most = room.len().min(READ_BYTES);
                room.get_mut(..most).ok_or_else(|| "no memory for what was received".to_owned())
            }
        }
    }

    /// The first `count` bytes of the buffer are received ones.
    pub(super) fn took(&mut self, count: usize) -> Result<(), String> {
        match self {
            Self::Stream { buffer, hasher } => {
                if let (Some(hasher), Some(bytes)) = (hasher, buffer.get(..count)) {
                    hasher.update(bytes);
                }
                Ok(())
            }
            Self::File { buffer, file, path, hash } => {
                let bytes = buffer.get(..count).unwrap_or_default();
                if let FileHash::Now(hasher) = hash {
                    hasher.update(bytes);
                }
                file.write_all(bytes).map_err(|error| format!("cannot write '{}': {error}", path.display()))
            }
            Self::Memory { filled, limit, .. } => {
                *filled += count as u64;
                if *filled > *limit {
                    return Err(format!(
                        "more than the {limit} bytes that --memory allows; give --memory=SIZE"
                    ));
                }
                Ok(())
            }
        }
    }

    /// The hash of everything, if one was asked for.
    pub(super) fn finish(self) -> Result<Option<String>, String> {
        let digest = match self {
            Self::Stream { hasher: None, .. } | Self::File { hash: FileHash::None, .. } => return Ok(None),
            Self::Stream { hasher: Some(hasher), .. } | Self::File { hash: FileHash::Now(hasher), .. } => {
                hasher.finalize()
            }
            Self::File { buffer, file, path, hash: FileHash::Later } => {
                drop(file);
                hash_file(&path, buffer)
                    .map_err(|error| format!("cannot read '{}' again to hash it: {error}", path.display()))?
            }
            Self::Memory { chunks, filled, .. } => {
                let mut hasher = Sha256::new();
                let mut left = filled;
                for chunk in &chunks {
                    let here = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
                    hasher.update(chunk.get(..here).unwrap_or_default());
                    left -= here as u64;
                }
                hasher.finalize()
            }
        };
        Ok(Some(digest.iter().map(|byte| format!("{byte:02x}")).collect()))
    }
}

/// Which chunk the byte of this number is in, and where.
fn position(filled: u64) -> (usize, usize) {
    let size = CHUNK_BYTES as u64;
    (usize::try_from(filled / size).unwrap_or(usize::MAX), (filled % size) as usize)
}

/// Zeroes would be mapped lazily; anything else makes the kernel give the pages now.
fn touched_chunk() -> Vec<u8> {
    vec![0xA5; CHUNK_BYTES]
}

fn hash_file(path: &Path, mut buffer: Vec<u8>) -> io::Result<sha2::digest::Output<Sha256>> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finalize()),
            Ok(count) => hasher.update(buffer.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(store: &mut Store, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            let buffer = store.buffer()?;
            let count = buffer.len().min(bytes.len());
            buffer[..count].copy_from_slice(&bytes[..count]);
            store.took(count)?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    #[test]
    fn every_way_gives_the_same_hash() {
        let bytes: Vec<u8> = (0..CHUNK_BYTES * 2 + 12_345).map(|i| (i / 3) as u8).collect();
        let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        let stores = [
            Store::stream(true),
            Store::file(file.path(), true).unwrap(),
            Store::file(Path::new("/dev/null"), true).unwrap(),
            Store::memory(1 << 30, None),
            Store::memory(1 << 30, Some(bytes.len() as u64)),
        ];
        for (number, mut store) in stores.into_iter().enumerate() {
            fill(&mut store, &bytes).unwrap();
            assert_eq!(store.finish().unwrap().as_deref(), Some(&digest[..]), "store {number}");
        }
        assert!(std::fs::read(file.path()).unwrap() == bytes);
    }

    #[test]
    fn the_hash_of_nothing_is_known() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Store::stream(true).finish().unwrap().as_deref(), Some(empty));
        assert_eq!(Store::memory(100, None).finish().unwrap().as_deref(), Some(empty));
        assert_eq!(Store::stream(false).finish().unwrap(), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut store = Store::memory(1000, Some(u64::MAX));
        fill(&mut store, &[1; 1000]).unwrap();
        assert!(fill(&mut store, &[1]).unwrap_err().contains("--memory"));
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_the_file() {
        let mut store = Store::file(Path::new("/dev/full"), false).unwrap();
        assert!(fill(&mut store, &[1; 10]).unwrap_err().contains("/dev/full"));
    }
}
