//! Two network namespaces joined by a veth pair, for tests that ask a real kernel.

use std::{
    fs::File,
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    panic,
    process::{Command, id},
    sync::Mutex,
    thread,
};

use nix::sched::{CloneFlags, setns};
use xsend_host::Privileges;
use xsend_wire::Mac;

/// The near end's addresses and interface.
pub const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
pub const NEAR6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1));
pub const NEAR_LOCAL: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));
pub const NEAR_IF: &str = "near0";
/// The far end's addresses and interface.
pub const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
pub const FAR6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2));
pub const FAR_LOCAL: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2));
pub const FAR_IF: &str = "far0";
pub const FAR_MAC: Mac = Mac([2, 0x77, 0, 0, 0, 2]);
pub const NEAR_MAC: Mac = Mac([2, 0x77, 0, 0, 0, 1]);

/// The two namespaces; removed, with all in them, when dropped.
pub struct Lab {
    near: String,
    far: String,
}

impl Lab {
    /// Builds the namespaces; none (after saying so) without the privilege for it.
    pub fn build() -> Option<Self> {
        static BUILT: Mutex<u32> = Mutex::new(0);
        if !Privileges::read().unwrap().missing().is_empty() {
            skip("needs root");
            return None;
        }
        let number = {
            let mut built = BUILT.lock().unwrap();
            *built += 1;
            *built
        };
        let name = format!("xhost-{}-{number}", id());
        let lab = Self { near: format!("{name}-near"), far: format!("{name}-far") };
        ip(&format!("netns add {}", lab.near));
        ip(&format!("netns add {}", lab.far));
        lab.near(&format!(
            "link add {NEAR_IF} address {NEAR_MAC} numrxqueues 3 numtxqueues 2 type veth \
             peer name {FAR_IF} address {FAR_MAC} netns {}",
            lab.far
        ));
        // No IPv6 addresses of the kernel's own making, which would be tentative for a while.
        lab.near(&format!("link set {NEAR_IF} addrgenmode none"));
        lab.far(&format!("link set {FAR_IF} addrgenmode none"));
        lab.near(&format!("addr add {NEAR}/24 brd + dev {NEAR_IF}"));
        lab.far(&format!("addr add {FAR}/24 dev {FAR_IF}"));
        lab.near(&format!("link set {NEAR_IF} up"));
        lab.far(&format!("link set {FAR_IF} up"));
        for address in [NEAR6, NEAR_LOCAL] {
            lab.near(&format!("addr add {address}/64 dev {NEAR_IF} nodad"));
        }
        lab.far_ipv6();
        Some(lab)
    }

    /// Runs `ip` in the near namespace and returns what it printed.
    pub fn near(&self, arguments: &str) -> String {
        ip(&format!("-n {} {arguments}", self.near))
    }

    /// Runs `ip` in the far namespace.
    pub fn far(&self, arguments: &str) -> String {
        ip(&format!("-n {} {arguments}", self.far))
    }

    /// Gives the far end its IPv6 addresses.
    pub fn far_ipv6(&self) {
        for address in [FAR6, FAR_LOCAL] {
            self.far(&format!("addr add {address}/64 dev {FAR_IF} nodad"));
        }
    }

    /// Runs `body` on a thread of the near namespace.
    pub fn inside<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        within(&self.near, body)
    }

    /// Runs `body` on a thread of the far namespace.
    pub fn opposite<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        within(&self.far, body)
    }

    /// The near namespace's entry for the far end as `ip neigh` shows it; empty when there is none.
    pub fn neighbour(&self) -> String {
        self.neighbour_at(FAR)
    }

    /// The near namespace's entry for `address`.
    pub fn neighbour_at(&self, address: IpAddr) -> String {
        self.near(&format!("neigh show {address} nud all"))
    }

    /// Makes the near end's neighbour timers fast, so that a silent neighbour is given up on soon.
    pub fn hasten(&self) {
        self.inside(|| {
            let set = |family: &str, name: &str, value: &str| {
                let file = format!("/proc/sys/net/{family}/neigh/{NEAR_IF}/{name}");
                std::fs::write(&file, value).unwrap_or_else(|error| panic!("{file}: {error}"));
            };
            for family in ["ipv4", "ipv6"] {
                set(family, "retrans_time_ms", "20");
                set(family, "base_reachable_time_ms", "50");
                set(family, "delay_first_probe_time", "0");
            }
            set("ipv4", "locktime", "0");
        });
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in [&self.near, &self.far] {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Says that a test is skipped, past the harness, which shows nothing of tests that pass; fails where none may be skipped.
pub fn skip(why: &str) {
    assert!(std::env::var("XSEND_E2E_REQUIRED").as_deref() != Ok("1"), "{why}");
    let name = thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(io::stderr(), "SKIPPED: {why} ({name})");
}

fn within<T: Send>(namespace: &str, body: impl FnOnce() -> T + Send) -> T {
    let result = thread::scope(|scope| {
        scope
            .spawn(|| {
                let file = File::open(format!("/run/netns/{namespace}")).unwrap();
                setns(file, CloneFlags::CLONE_NEWNET).unwrap();
                body()
            })
            .join()
    });
    result.unwrap_or_else(|panic| panic::resume_unwind(panic))
}

fn ip(arguments: &str) -> String {
    run("ip", &arguments.split_whitespace().collect::<Vec<_>>()).unwrap()
}

/// Runs a command; what it printed, or what it complained of.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output =
        Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)))
}
