//! Who holds an XDP program: the process with the descriptor that keeps it attached.

use core::fmt;
use std::fs;
use std::path::Path;

/// Processes looked into at most, and descriptors of one: a bound, not a limit that is met.
const PROCESSES_MAX: usize = 65_536;
const DESCRIPTORS_MAX: usize = 65_536;
/// Bytes of a command line that are shown.
const COMMAND_MAX: usize = 120;

/// The process that holds an XDP program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The process's id, as this process sees it.
    pub pid: u32,
    /// Its command line, cut off after 120 bytes; its name where it has none.
    pub command: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.command)
    }
}

/// How a descriptor holds the program; the link is what keeps it attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hold {
    Link,
    Program,
}

/// The process that holds the program `id`, the one with its link if there is one. None when the program is pinned or was
/// attached without a link, and when the holder is in another PID namespace or may not be looked into.
pub(crate) fn of_program(id: u32) -> Option<Holder> {
    let processes = fs::read_dir("/proc").ok()?;
    let mut found: Option<(Hold, u32)> = None;
    for process in processes.flatten().take(PROCESSES_MAX) {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(hold) = holds(&process.path(), id) {
            // The lowest id of several: a child that is just being made holds copies for a moment.
            found = Some(found.map_or((hold, pid), |best| best.min((hold, pid))));
        }
    }
    let (_, pid) = found?;
    Some(Holder { pid, command: command(pid) })
}

/// How the process holds the program `id`, if it does.
fn holds(process: &Path, id: u32) -> Option<Hold> {
    let descriptors = fs::read_dir(process.join("fd")).ok()?;
    descriptors
        .flatten()
        .take(DESCRIPTORS_MAX)
        .filter_map(|descriptor| {
            // "anon_inode:bpf_link", "anon_inode:bpf-prog".
            let to = fs::read_link(descriptor.path()).ok()?;
            if !to.to_str()?.starts_with("anon_inode:bpf") {
                return None;
            }
            let facts = fs::read_to_string(process.join("fdinfo").join(descriptor.file_name())).ok()?;
            hold(&facts, id)
        })
        .min()
}

/// Reads a descriptor's facts: how it holds the program `id`, if it does.
fn hold(facts: &str, id: u32) -> Option<Hold> {
    let fact = |name: &str| facts.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let held: u32 = fact("prog_id")?.trim().parse().ok()?;
    let hold = if fact("link_id").is_some() { Hold::Link } else { Hold::Program };
    (held == id).then_some(hold)
}

fn command(pid: u32) -> String {
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let shown = shown(&read("cmdline"));
    if shown.is_empty() { String::from_utf8_lossy(&read("comm")).trim().to_owned() } else { shown }
}

/// A command line as one line of text: its words are separated by zeroes.
fn shown(line: &[u8]) -> String {
    let cut = &line[..line.len().min(COMMAND_MAX)];
    let words = String::from_utf8_lossy(cut).replace(|c: char| c.is_control(), " ");
    words.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: &str = "pos:\t0\nflags:\t02000000\nmnt_id:\t15\nino:\t9\nlink_type:\txdp\nlink_id:\t7\n\
                        prog_tag:\t501af04986541feb\nprog_id:\t4711\nifindex:\t2\n";
    const PROGRAM: &str = "pos:\t0\nflags:\t02000002\nprog_type:\t6\nprog_jited:\t1\nprog_id:\t4711\n";

    #[test]
    fn a_link_and_a_program_are_told_apart_by_their_facts() {
        assert_eq!(hold(LINK, 4711), Some(Hold::Link));
        assert_eq!(hold(PROGRAM, 4711), Some(Hold::Program));
        assert!(Hold::Link < Hold::Program, "the link is what keeps it attached");
    }

    #[test]
    fn another_program_and_other_descriptors_are_none() {
        assert_eq!(hold(LINK, 471), None);
        assert_eq!(hold("pos:\t0\nflags:\t02\nmap_id:\t4711\n", 4711), None);
        assert_eq!(hold("prog_id:\tmany\n", 4711), None);
        assert_eq!(hold("", 0), None);
    }

    #[test]
    fn a_command_line_is_shown_as_one_bounded_line() {
        assert_eq!(shown(b"xsend\0send\0file\n1\0"), "xsend send file 1");
        assert_eq!(shown(&[b'x'; 4096]).len(), COMMAND_MAX);
        assert_eq!(shown(b""), "");
    }
}
