//! Why netlink failed.

use std::{fmt, io};

/// Why a netlink request failed. `action` says what was being asked, as in "cannot {action}".
#[derive(Debug)]
pub enum NetlinkError {
    /// The socket failed.
    Socket {
        /// What was being done.
        action: &'static str,
        /// The system's reason.
        error: io::Error,
    },
    /// The kernel refused the request.
    Refused {
        /// What was being done.
        action: &'static str,
        /// The kernel's reason.
        error: io::Error,
        /// The kernel's own words, where it gave any.
        detail: Option<String>,
    },
    /// The kernel's answer could not be read.
    Malformed {
        /// What was being done.
        action: &'static str,
        /// What is wrong with the answer.
        detail: String,
    },
    /// The kernel did not answer in time.
    NoAnswer {
        /// What was being done.
        action: &'static str,
    },
}

impl NetlinkError {
    /// The error number with which the kernel refused, if that is what happened.
    pub(crate) fn refusal(&self) -> Option<i32> {
        match self {
            Self::Refused { error, .. } => error.raw_os_error(),
            _ => None,
        }
    }
}

impl fmt::Display for NetlinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket { action, error } => write!(f, "cannot {action}: netlink socket: {error}"),
            Self::Refused { action, error, detail: None } => write!(f, "cannot {action}: {error}"),
            Self::Refused { action, error, detail: Some(detail) } => {
                write!(f, "cannot {action}: {error} ({detail})")
            }
            Self::Malformed { action, detail } => {
                write!(f, "cannot {action}: the kernel's answer makes no sense: {detail}")
            }
            Self::NoAnswer { action } => write!(f, "cannot {action}: no answer from the kernel; try again"),
        }
    }
}

impl std::error::Error for NetlinkError {}
