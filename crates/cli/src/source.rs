//! What is sent: files and standard input, checked before anything is connected.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::problem::Problem;

/// One thing to send, not yet being read.
#[derive(Debug)]
pub(crate) struct Source {
    name: String,
    from: From,
}

#[derive(Debug)]
enum From {
    /// A regular file of this many bytes, opened when its turn comes.
    Path(PathBuf, u64),
    /// Something open: standard input, a pipe, a device. The size is known when a regular file was redirected.
    Open(File, Option<u64>),
}

/// One thing being read.
#[derive(Debug)]
pub(crate) struct Reading {
    /// As the user called it.
    pub(crate) name: String,
    file: File,
    /// Bytes of a regular file not yet read; nothing for what ends when it ends.
    left: Option<u64>,
    size: u64,
}

impl Source {
    /// Checks one thing that was named on the command line.
    pub(crate) fn check(path: &Path) -> Result<Self, Problem> {
        if path == Path::new("-") {
            return Self::standard_input();
        }
        let name = path.display().to_string();
        let cannot = |error: io::Error| Problem::failed(format!("cannot read '{}': {error}", path.display()));
        let kind = fs::metadata(path).map_err(cannot)?;
        if kind.is_dir() {
            return Err(Problem::failed(format!(
                "'{name}' is a directory; send its content with: tar c '{name}' | xsend send - HOST:PORT"
            )));
        }
        if kind.file_type().is_socket() {
            return Err(Problem::failed(format!("'{name}' is a socket, which cannot be opened for reading")));
        }
        let file = File::open(path).map_err(cannot)?;
        // Files of procfs and sysfs say 0 bytes and have some, and look like empty files: both are read to their end.
        let regular = kind.is_file() && kind.len() > 0;
        let from = if regular { From::Path(path.to_owned(), kind.len()) } else { From::Open(file, None) };
        Ok(Self { name, from })
    }

    fn standard_input() -> Result<Self, Problem> {
        let cannot = |error: io::Error| Problem::failed(format!("cannot read standard input: {error}"));
        let file = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(cannot)?);
        let kind = file.metadata().map_err(cannot)?;
        if kind.is_dir() {
            return Err(cannot(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let left = if kind.is_file() && kind.len() > 0 {
            let position = io::Seek::stream_position(&mut &file).map_err(cannot)?;
            Some(kind.len().saturating_sub(position))
        } else {
            None
        };
        Ok(Self { name: "standard input".to_owned(), from: From::Open(file, left) })
    }

    /// Its bytes, where that is known.
    pub(crate) fn size(&self) -> Option<u64> {
        match &self.from {
            From::Path(_, size) => Some(*size),
            From::Open(_, size) => *size,
        }
    }

    /// Opens it. A file is sent as long as it was when it was checked: what is appended later is not.
    pub(crate) fn start(self) -> Result<Reading, Problem> {
        let Self { name, from } = self;
        match from {
            From::Open(file, left) => Ok(Reading { name, file, left, size: left.unwrap_or(0) }),
            From::Path(path, size) => {
                let file = File::open(&path)
                    .map_err(|error| Problem::failed(format!("cannot read '{name}' any more: {error}")))?;
                Ok(Reading { name, file, left: Some(size), size })
            }
        }
    }
}

impl Reading {
    /// How many bytes may be read now, of at most `most`; 0 when a regular file is done.
    pub(crate) fn allowance(&self, most: usize) -> usize {
        self.left.map_or(most, |left| usize::try_from(left).map_or(most, |left| left.min(most)))
    }

    /// Notes bytes read.
    pub(crate) fn took(&mut self, bytes: usize) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes as u64);
        }
    }

    /// Whether a read would return at once: bytes, an end or an error. A regular file always would.
    pub(crate) fn is_ready(&self) -> bool {
        if self.left.is_some() {
            return true;
        }
        let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
        // An error means that poll cannot tell, so reading must.
        poll(&mut fds, PollTimeout::ZERO) != Ok(0)
    }

    /// Why an end of file here is an error, if it is.
    pub(crate) fn ended(&self) -> Result<(), Problem> {
        match self.left {
            Some(left) if left > 0 => Err(Problem::failed(format!(
                "'{}' shrank while it was sent: {} of its {} bytes could be read",
                self.name,
                self.size.saturating_sub(left),
                self.size
            ))),
            _ => Ok(()),
        }
    }

    /// What a failed read means to the user.
    pub(crate) fn unreadable(&self, error: &io::Error) -> Problem {
        Problem::failed(format!("cannot read '{}' any further: {error}", self.name))
    }
}

impl AsFd for Reading {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Read for Reading {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_cannot_be_sent_is_found_before_connecting() {
        let directory = tempfile::tempdir().unwrap();
        let text = Source::check(directory.path()).unwrap_err().to_string();
        assert!(text.contains("is a directory"), "{text}");
        let text = Source::check(&directory.path().join("missing")).unwrap_err().to_string();
        assert!(text.contains("missing") && text.contains("No such file"), "{text}");
        let socket = directory.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(Source::check(&socket).unwrap_err().to_string().contains("is a socket"));
    }

    #[test]
    fn a_file_is_as_long_as_it_was() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"12345").unwrap();
        let source = Source::check(file.path()).unwrap();
        assert_eq!(source.size(), Some(5));
        file.write_all(b"more").unwrap();
        let mut reading = source.start().unwrap();
        assert_eq!(reading.allowance(100), 5);
        reading.took(2);
        assert_eq!(reading.allowance(100), 3);
        assert_eq!(reading.allowance(1), 1);
        assert!(reading.ended().unwrap_err().to_string().contains("2 of its 5 bytes"));
        reading.took(3);
        assert!(reading.ended().is_ok());
        assert_eq!(reading.allowance(100), 0);
    }

    #[test]
    fn files_of_unknown_size_are_read_to_their_end() {
        let mut reading = Source::check(Path::new("/proc/self/status")).unwrap().start().unwrap();
        assert_eq!(reading.allowance(7), 7, "read until it ends");
        let mut text = String::new();
        reading.read_to_string(&mut text).unwrap();
        assert!(text.contains("Name:"));
        let empty = tempfile::NamedTempFile::new().unwrap();
        let mut reading = Source::check(empty.path()).unwrap().start().unwrap();
        assert_eq!(reading.read(&mut [0; 4]).unwrap(), 0);
        assert!(reading.ended().is_ok());
    }

    #[test]
    fn a_pipe_is_ready_when_something_is_in_it() {
        let (reader, mut writer) = io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(reader));
        let reading = Reading { name: "pipe".to_owned(), file, left: None, size: 0 };
        assert!(!reading.is_ready());
        writer.write_all(b"x").unwrap();
        assert!(reading.is_ready());
        let mut reading = reading;
        assert_eq!(reading.read(&mut [0; 4]).unwrap(), 1);
        assert!(!reading.is_ready());
        drop(writer);
        assert!(reading.is_ready(), "an end of file can be read");
    }
}
