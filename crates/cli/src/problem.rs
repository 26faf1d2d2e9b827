//! How a command ends, and the one line that says why it did not end well.

use std::fmt;
use std::process::ExitCode;

/// The exit codes people script against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Every byte and the FIN were acknowledged, or every check passed.
    Done,
    /// The transfer or a check failed.
    Failed,
    /// Wrong usage.
    Usage,
    /// A signal ended it; the connection was closed and the interface left as found.
    Interrupted,
}

impl Exit {
    /// The number the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// One line: what failed, where, and what to do.
#[derive(Debug)]
pub(crate) struct Problem {
    /// The code to end with.
    pub(crate) exit: Exit,
    text: String,
}

impl Problem {
    /// The transfer or a check failed.
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, text: text.into() }
    }

    /// What was typed cannot be done.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, text: text.into() }
    }

    /// A signal came before there was anything to report.
    pub(crate) fn interrupted(text: impl Into<String>) -> Self {
        Self { exit: Exit::Interrupted, text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
