//! Names that carry the process id of their maker, and the sweep that removes what dead makers left behind.

use std::path::Path;
use std::sync::{Mutex, Once, PoisonError};
use std::{fs, process};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::shell;

/// What every namespace and interface made by this crate begins with.
pub const PREFIX: &str = "xs";

/// The kernel's bound on an interface name, without the terminating zero (`IFNAMSIZ` - 1).
pub const MAX_LEN: usize = 15;

static NEXT: Mutex<u32> = Mutex::new(0);
static SWEPT: Once = Once::new();

/// One number per group of namespaces made by this process, together with the process id unique on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    pid: u32,
    number: u32,
}

impl Group {
    /// The next group of this process. The first call of a process sweeps away what dead processes left.
    ///
    /// # Panics
    /// After 9 999 groups: more would not fit into an interface name.
    pub fn next() -> Self {
        SWEPT.call_once(|| {
            sweep();
        });
        let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
        let number = *next;
        assert!(number < 10_000, "more than 10 000 groups of namespaces in one process");
        *next += 1;
        Self { pid: process::id(), number }
    }

    /// The name of one member, for its namespace and for its interface alike: `xs<pid>-<number><role>`.
    pub fn member(self, role: char) -> String {
        let name = format!("{PREFIX}{}-{}{role}", self.pid, self.number);
        debug_assert!(name.len() <= MAX_LEN, "{name} is longer than an interface name may be");
        name
    }
}

/// The process id in a name made by [`Group::member`], or `None` for every other name.
pub fn owner(name: &str) -> Option<u32> {
    let (pid, rest) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let number = rest.strip_suffix(|c: char| c.is_ascii_lowercase())?;
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(pid) || !digits(number) {
        return None;
    }
    pid.parse().ok()
}

/// Removes the namespaces of makers that no longer run, ending first what still runs inside them, and returns the
/// names removed. Namespaces of living processes, and names that are not ours, are never touched.
pub fn sweep() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/run/netns") else {
        return Vec::new();
    };
    let stale = |name: &String| owner(name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
    let names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).filter(stale).collect();
    names.into_iter().filter(|name| remove_namespace(name).is_ok()).collect()
}

/// Ends whatever runs inside a namespace of ours and removes it, its interfaces with it.
pub(crate) fn remove_namespace(name: &str) -> std::io::Result<()> {
    for pid in shell::ip(&format!("netns pids {name}")).unwrap_or_default().lines() {
        if let Ok(pid) = pid.trim().parse::<i32>()
            && pid != Pid::this().as_raw()
        {
            // Already gone is as good as ended.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
    shell::ip(&format!("netns del {name}")).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_owner_and_fits_an_interface() {
        let longest = Group { pid: 4_194_304, number: 9_999 };
        assert_eq!(longest.member('a'), "xs4194304-9999a");
        assert_eq!(longest.member('a').len(), MAX_LEN);
        assert_eq!(owner(&longest.member('b')), Some(4_194_304));
    }

    #[test]
    fn foreign_names_have_no_owner() {
        for name in
            ["", "xs", "xs-1a", "xs12", "xs12-a", "xs12-3", "xs12-3A", "xsx12-3a", "ns1", "xs+1-2a", "xsd12a"]
        {
            assert_eq!(owner(name), None, "{name:?}");
        }
    }

    #[test]
    fn groups_of_one_process_differ() {
        assert_ne!(Group::next(), Group::next());
    }
}
