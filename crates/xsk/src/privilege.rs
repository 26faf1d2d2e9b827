//! Which capabilities the calling thread has.

use std::fs;

/// The capabilities that AF_XDP and XDP programs need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// To attach XDP programs and to exceed socket buffer limits.
    NetAdmin,
    /// To open AF_XDP sockets.
    NetRaw,
    /// To load programs and make maps.
    Bpf,
    /// To have a program checked that computes with packet pointers.
    Perfmon,
    /// To lock memory past the limit.
    IpcLock,
    /// Everything, on kernels before CAP_BPF.
    SysAdmin,
}

impl Capability {
    /// The name as in capabilities(7).
    pub fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::Bpf => "CAP_BPF",
            Self::Perfmon => "CAP_PERFMON",
            Self::IpcLock => "CAP_IPC_LOCK",
            Self::SysAdmin => "CAP_SYS_ADMIN",
        }
    }

    /// The bit's number in the kernel's sets.
    fn bit(self) -> u32 {
        match self {
            Self::NetAdmin => 12,
            Self::NetRaw => 13,
            Self::IpcLock => 14,
            Self::SysAdmin => 21,
            Self::Perfmon => 38,
            Self::Bpf => 39,
        }
    }

    /// Whether the calling thread has it in its effective set. `None` when `/proc` does not say.
    pub fn held(self) -> Option<bool> {
        let status = fs::read_to_string("/proc/thread-self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        let set = u64::from_str_radix(line.trim(), 16).ok()?;
        Some(set >> self.bit() & 1 == 1)
    }
}
