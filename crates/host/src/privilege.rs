//! What AF_XDP asks of the process: capabilities and locked memory.

use std::{fmt, fs, io, path::Path};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

/// A Linux capability that AF_XDP sending has to do with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Attach XDP programs, create XSK maps, refresh neighbours, raise socket buffers.
    NetAdmin,
    /// Open AF_XDP sockets.
    NetRaw,
    /// Load BPF programs and create maps.
    Bpf,
    /// Have a program checked that computes with packet pointers, as the steering program does.
    Perfmon,
    /// The old superset of `Bpf` and `Perfmon`; also needed to read the name of another program.
    SysAdmin,
    /// Lock any amount of memory.
    IpcLock,
}

/// The bound on locked memory, against which the kernel counts packet memory, in bytes; none is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memlock {
    /// The bound in force.
    pub soft: Option<u64>,
    /// What the process may raise it to.
    pub hard: Option<u64>,
}

/// What the calling thread may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privileges {
    /// The effective capability set, bit n for capability n.
    pub effective: u64,
    /// The bound on locked memory.
    pub memlock: Memlock,
    /// The process is in a user namespace of its own: its capabilities do not reach BPF, whatever they say.
    pub in_user_namespace: bool,
}

/// Why the privileges could not be read.
#[derive(Debug)]
pub enum PrivilegeError {
    /// A file of procfs could not be read.
    Read {
        /// Which file.
        file: &'static str,
        /// The system's reason.
        error: io::Error,
    },
    /// A file of procfs has no such line.
    Malformed {
        /// Which file.
        file: &'static str,
        /// The line looked for.
        line: &'static str,
    },
}

impl fmt::Display for PrivilegeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { file, error } => write!(f, "cannot read {file}: {error}; is procfs mounted?"),
            Self::Malformed { file, line } => write!(f, "{file} has no readable line {line}"),
        }
    }
}

impl std::error::Error for PrivilegeError {}

impl Capability {
    /// All of them.
    const ALL: [Self; 6] =
        [Self::NetAdmin, Self::NetRaw, Self::Bpf, Self::Perfmon, Self::SysAdmin, Self::IpcLock];

    /// The capability's bit (<linux/capability.h>).
    fn bit(self) -> u64 {
        let number = match self {
            Self::NetAdmin => 12,
            Self::NetRaw => 13,
            Self::IpcLock => 14,
            Self::SysAdmin => 21,
            Self::Perfmon => 38,
            Self::Bpf => 39,
        };
        1 << number
    }

    /// The capability's name as in capabilities(7).
    pub fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::Bpf => "CAP_BPF",
            Self::Perfmon => "CAP_PERFMON",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::IpcLock => "CAP_IPC_LOCK",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Privileges {
    /// Reads the calling thread's privileges.
    pub fn read() -> Result<Self, PrivilegeError> {
        let file = "/proc/thread-self/status";
        let status = fs::read_to_string(file).map_err(|error| PrivilegeError::Read { file, error })?;
        let effective =
            effective_capabilities(&status).ok_or(PrivilegeError::Malformed { file, line: "CapEff" })?;
        let file = "RLIMIT_MEMLOCK";
        let (soft, hard) = getrlimit(Resource::RLIMIT_MEMLOCK)
            .map_err(|errno| PrivilegeError::Read { file, error: errno.into() })?;
        let bound = |limit| (limit != RLIM_INFINITY).then_some(limit);
        let memlock = Memlock { soft: bound(soft), hard: bound(hard) };
        let file = "/proc/self/ns/user";
        let namespace = fs::read_link(file).map_err(|error| PrivilegeError::Read { file, error })?;
        Ok(Self { effective, memlock, in_user_namespace: !is_initial_user_namespace(&namespace) })
    }

    /// Whether the thread has this capability.
    pub fn has(&self, capability: Capability) -> bool {
        self.effective & capability.bit() != 0
    }

    /// The capabilities that the thread has, of those that matter here.
    pub fn held(&self) -> Vec<Capability> {
        Capability::ALL.into_iter().filter(|capability| self.has(*capability)).collect()
    }

    /// The capabilities without which sending over AF_XDP fails; empty when there is nothing to complain of.
    ///
    /// `CAP_SYS_ADMIN` stands in for `CAP_BPF` and `CAP_PERFMON`. In a user namespace BPF is out of reach even with all.
    pub fn missing(&self) -> Vec<Capability> {
        let superset = self.has(Capability::SysAdmin) && !self.in_user_namespace;
        let may_bpf = superset || (self.has(Capability::Bpf) && !self.in_user_namespace);
        let may_point = superset || self.has(Capability::Perfmon);
        let needed = [Capability::NetAdmin, Capability::NetRaw].into_iter().filter(|c| !self.has(*c));
        needed
            .chain((!may_bpf).then_some(Capability::Bpf))
            .chain((!may_point).then_some(Capability::Perfmon))
            .collect()
    }

    /// Whether `bytes` of packet memory fit the bound on locked memory (always with `CAP_IPC_LOCK`).
    pub fn may_lock(&self, bytes: u64) -> bool {
        (self.has(Capability::IpcLock) && !self.in_user_namespace)
            || self.memlock.soft.is_none_or(|bound| bytes <= bound)
    }

    /// One line on what is missing for sending with `packet_memory` bytes of packet memory, and how to get it; none when
    /// nothing is.
    pub fn advice(&self, packet_memory: u64) -> Option<String> {
        let missing = self.missing();
        let may_lock = self.may_lock(packet_memory);
        if missing.is_empty() && may_lock {
            return None;
        }
        let mut advice = String::new();
        if !missing.is_empty() {
            let names: Vec<_> = missing.iter().map(|capability| capability.name()).collect();
            advice += &format!("no privilege: {} missing; ", names.join(", "));
            if self.in_user_namespace {
                advice += "the process is in a user namespace, from where BPF is out of reach: run as root outside \
                           of it (a container needs --privileged)";
            } else {
                advice += &format!("run as root, or once: {}", setcap(may_lock));
            }
        }
        if !may_lock {
            let bound = self.memlock.soft.unwrap_or(u64::MAX) / 1024;
            let needed = packet_memory.div_ceil(1024);
            if !advice.is_empty() {
                advice += "; ";
            }
            advice += &format!(
                "packet memory of {needed} KiB exceeds the bound on locked memory of {bound} KiB: `ulimit -l {needed}` \
                 (as root), LimitMEMLOCK= of a systemd unit, or CAP_IPC_LOCK"
            );
        }
        Some(advice)
    }
}

/// The command that gives this program what it lacks.
fn setcap(may_lock: bool) -> String {
    let lock = if may_lock { "" } else { ",cap_ipc_lock" };
    let program = std::env::current_exe().unwrap_or_else(|_| "xsend".into());
    format!("sudo setcap cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon{lock}=ep {}", program.display())
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let digits = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(digits.trim(), 16).ok()
}

/// The first user namespace has a number of its own (PROC_USER_INIT_INO in <linux/proc_ns.h>).
fn is_initial_user_namespace(link: &Path) -> bool {
    link == Path::new("user:[4026531837]")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Privileges = Privileges {
        effective: 0,
        memlock: Memlock { soft: Some(8 << 20), hard: None },
        in_user_namespace: false,
    };

    fn with(capabilities: &[Capability]) -> Privileges {
        Privileges { effective: capabilities.iter().map(|c| c.bit()).sum(), ..NOTHING }
    }

    #[test]
    fn effective_capabilities_are_read() {
        let status = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n";
        assert_eq!(effective_capabilities(status), Some(0x1ff_ffff_ffff));
        assert_eq!(effective_capabilities("CapEff:\tnonsense"), None);
        assert_eq!(effective_capabilities("Name: x"), None);
    }

    #[test]
    fn what_is_missing_is_named() {
        use Capability::{Bpf, NetAdmin, NetRaw, Perfmon, SysAdmin};
        assert_eq!(NOTHING.missing(), [NetAdmin, NetRaw, Bpf, Perfmon]);
        assert_eq!(with(&[NetAdmin, NetRaw]).missing(), [Bpf, Perfmon]);
        assert_eq!(with(&[NetAdmin, NetRaw, Bpf]).missing(), [Perfmon], "the verifier wants it");
        assert_eq!(with(&[NetAdmin, NetRaw, Bpf, Perfmon]).missing(), []);
        assert_eq!(with(&[NetAdmin, NetRaw, SysAdmin]).missing(), [], "the old superset does");
        let confined = Privileges { in_user_namespace: true, ..with(&Capability::ALL) };
        assert_eq!(confined.missing(), [Bpf]);
        assert!(confined.advice(0).unwrap().contains("user namespace"));
    }

    #[test]
    fn advice_says_what_and_how() {
        use Capability::{Bpf, IpcLock, NetAdmin, NetRaw, Perfmon};
        let advice = NOTHING.advice(4096).unwrap();
        assert!(advice.contains("CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON"), "{advice}");
        assert!(advice.contains("setcap"), "{advice}");
        let enough = with(&[NetAdmin, NetRaw, Bpf, Perfmon]);
        assert_eq!(enough.advice(8 << 20), None);
        let advice = enough.advice((8 << 20) + 1).unwrap();
        assert!(advice.contains("ulimit -l 8193"), "{advice}");
        assert_eq!(with(&[NetAdmin, NetRaw, Bpf, Perfmon, IpcLock]).advice(1 << 40), None);
        let unbounded = Privileges { memlock: Memlock { soft: None, hard: None }, ..enough };
        assert_eq!(unbounded.advice(1 << 40), None);
    }

    #[test]
    fn the_calling_threads_privileges_can_be_read() {
        let privileges = Privileges::read().unwrap();
        assert_eq!(privileges.missing().is_empty(), privileges.advice(0).is_none());
    }

    #[test]
    fn only_the_first_user_namespace_is_the_initial_one() {
        assert!(is_initial_user_namespace(Path::new("user:[4026531837]")));
        assert!(!is_initial_user_namespace(Path::new("user:[4026532837]")));
    }
}
