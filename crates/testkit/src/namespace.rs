//! One network namespace, removed on drop.

use std::fs::File;
use std::process::Command;
use std::{io, panic, thread};

use nix::sched::{CloneFlags, setns};

use crate::names;
use crate::shell;

/// A network namespace of ours; everything in it, processes and interfaces, ends with it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes the namespace and brings its loopback up.
    ///
    /// IPv6 is off: its address detection would change an interface's addresses seconds after it came up, and a
    /// comparison of before and after could not tell that from a fault.
    pub fn create(name: String) -> io::Result<Self> {
        shell::ip(&format!("netns add {name}"))?;
        let namespace = Self { name };
        namespace.shell("echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")?;
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Its name under `/run/netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `ip -n NAME WORDS...`; returns what it printed.
    pub fn ip(&self, line: &str) -> io::Result<String> {
        shell::ip(&format!("-n {} {line}", self.name))
    }

    /// A shell line run inside, with this namespace's own `/sys`; returns what it printed.
    pub fn shell(&self, line: &str) -> io::Result<String> {
        let mut command = self.command("sh");
        command.args(["-c", line]);
        shell::run_command(command)
    }

    /// A command that will run inside. Its process id is the program's own: `ip netns exec` and `env` replace
    /// themselves. It gets the signals that end it, also where the tests were started with them ignored (in the
    /// background of a script, or under `nohup`).
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, "env", "--default-signal=HUP,INT,TERM", program]);
        command
    }

    /// Runs `f` on a thread that has entered the namespace, and returns its result. Sockets opened there stay in
    /// this namespace wherever they are used later.
    ///
    /// # Panics
    /// With `f`'s own panic, passed on.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> io::Result<T> {
        let handle = File::open(format!("/run/netns/{}", self.name))?;
        thread::scope(|scope| {
            let entered = scope.spawn(move || {
                setns(&handle, CloneFlags::CLONE_NEWNET)?;
                Ok(f())
            });
            entered.join().unwrap_or_else(|payload| panic::resume_unwind(payload))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = names::remove_namespace(&self.name);
    }
}
