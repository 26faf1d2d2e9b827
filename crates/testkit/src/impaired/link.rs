//! The program `impaired` as a test sees it.

use std::io::{self, Write};
use std::process::ChildStdin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::impaired::{Counters, Link};
use crate::process::{self, Process};
use crate::{Finished, Namespace};

/// Generous: it bounds a test that would otherwise hang.
const SOON: Duration = Duration::from_secs(20);

/// A running link. Dropping it ends it.
#[derive(Debug)]
pub struct ImpairedLink {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    process: Process,
    stdin: ChildStdin,
    answers: usize,
}

impl ImpairedLink {
    /// Starts it between two interfaces of the namespace `middle`, and waits until it is ready. Should this process
    /// die without ending it, the link removes the namespaces `orphans`.
    pub(crate) fn start(
        middle: &Namespace,
        (near, far): (&str, &str),
        link: &Link,
        mtu: u32,
        spare_multicast: bool,
        orphans: &[&str],
    ) -> io::Result<Self> {
        let program = process::binary("impaired", "XSEND_IMPAIRED_BIN", "xsend-testkit");
        let mut command = middle.command(&program.to_string_lossy());
        command.args(link.words()).args(["--mtu", &mtu.to_string(), "--control"]);
        if spare_multicast {
            command.arg("--spare-multicast");
        }
        for name in orphans {
            command.args(["--orphan", name]);
        }
        command.args([near, far]);
        let mut process = Process::spawn_piped(command)?;
        process.wait_for_output(SOON, |_, stderr| stderr.contains("ready\n"));
        let stdin = process.stdin().ok_or_else(|| io::Error::other("no pipe to impaired"))?;
        Ok(Self { state: Mutex::new(State { process, stdin, answers: 0 }) })
    }

    /// What has crossed it so far.
    ///
    /// # Panics
    /// When the link does not answer.
    #[track_caller]
    pub fn counters(&self) -> Counters {
        self.tell("counters")
    }

    /// Cuts it: from now on whatever is sent into it, either way, is lost. What is under way still arrives.
    ///
    /// # Panics
    /// When the link does not answer.
    #[track_caller]
    pub fn cut(&self) -> Counters {
        self.tell("cut")
    }

    /// Mends it.
    ///
    /// # Panics
    /// When the link does not answer.
    #[track_caller]
    pub fn mend(&self) -> Counters {
        self.tell("mend")
    }

    /// Goes on as another link would that begins now: its settings, its seed with the sequence of frames begun anew,
    /// its outages counted from now, and not cut. What is under way stays so, and the counters go on.
    ///
    /// # Panics
    /// When the link does not answer.
    #[track_caller]
    pub fn change(&self, link: &Link) -> Counters {
        self.tell(&format!("link {}", link.words().join(" ")))
    }

    /// The process id, for those who want to know what it costs.
    pub fn id(&self) -> u32 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).process.id()
    }

    /// Ends it, and tells what it counted in the end and how it ended.
    ///
    /// # Panics
    /// When it does not end well.
    #[track_caller]
    pub fn finish(self) -> (Counters, Finished) {
        let State { process, mut stdin, .. } =
            self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let told = stdin.write_all(b"end\n");
        let done = process.wait(SOON);
        assert!(told.is_ok() && done.code == Some(0), "{done}");
        (parse(done.stdout.lines().last().unwrap_or_default()), done)
    }

    #[track_caller]
    fn tell(&self, command: &str) -> Counters {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { process, stdin, answers } = &mut *state;
        if let Err(e) = stdin.write_all(format!("{command}\n").as_bytes()) {
            panic!("the link is gone ({e}): {}", process.stderr());
        }
        let wanted = *answers + 1;
        process.wait_for_output(SOON, |stdout, _| stdout.matches('\n').count() >= wanted);
        *answers = wanted;
        parse(process.stdout().lines().nth(wanted - 1).unwrap_or_default())
    }
}

#[track_caller]
fn parse(line: &str) -> Counters {
    let counters = serde_json::from_str(line).ok().and_then(|value| Counters::from_json(&value));
    counters.unwrap_or_else(|| panic!("the link said {line:?}"))
}
