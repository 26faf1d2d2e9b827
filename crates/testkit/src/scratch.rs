//! A folder of a test's own, removed when it goes out of scope.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use crate::names::Group;

/// A folder that is removed with all its contents on drop, also when the test panics.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new empty folder under the machine's temporary folder.
    pub fn new() -> io::Result<Self> {
        Self::under(&env::temp_dir())
    }

    /// A new empty folder under `parent`, for example `/dev/shm` for files that no disk may slow down.
    pub fn under(parent: &Path) -> io::Result<Self> {
        let path = parent.join(Group::next().member('d'));
        // A killed run with the same process id may have left one.
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// The path of a file inside the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_gone_with_its_contents_after_drop() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        fs::write(scratch.file("x"), b"x").unwrap();
        assert!(path.is_dir());
        drop(scratch);
        assert!(!path.exists());
    }
}
