//! A pair of namespaces with everything an end-to-end test wants to be sure of at its end.

use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::pair::Builder;
use crate::receiver::Options;
use crate::{
    Bystander, Finished, InterfaceState, Namespace, Pair, Process, Receiver, Scratch, assert_no_xdp_program,
    xsend_command,
};

/// Generous: it bounds a test that would otherwise hang, and asserts nothing about speed.
pub const SOON: Duration = Duration::from_secs(60);

/// How a sender is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// The command's own thread runs the shard.
    Inline,
    /// A thread of its own, `--threaded`.
    Threaded,
}

/// Both ways to drive a sender.
pub const DRIVES: [Drive; 2] = [Drive::Inline, Drive::Threaded];

impl Drive {
    /// The options that choose it.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Self::Inline => &[],
            Self::Threaded => &["--threaded"],
        }
    }
}

/// Namespaces, a folder, a bystander that talks over the same interface all along, and what the interfaces were like.
#[derive(Debug)]
pub struct Scene {
    /// The namespaces.
    pub pair: Pair,
    /// For files.
    pub scratch: Scratch,
    bystander: Option<Bystander>,
    sender_before: InterfaceState,
    peer_before: InterfaceState,
}

impl Scene {
    /// A plain pair with a bystander.
    pub fn new() -> io::Result<Self> {
        Self::with(Pair::builder())
    }

    /// Any pair with a bystander.
    pub fn with(builder: Builder) -> io::Result<Self> {
        let mut scene = Self::without_bystander(builder)?;
        scene.bystander = Some(Bystander::start(&scene.pair)?);
        Ok(scene)
    }

    /// Any pair with no traffic but the test's own.
    pub fn without_bystander(builder: Builder) -> io::Result<Self> {
        let pair = builder.build()?;
        let peer = pair.router.as_ref().unwrap_or(&pair.receiver);
        let sender_before = InterfaceState::capture(&pair.sender, &pair.sender_link)?;
        let peer_before = InterfaceState::capture(peer, &pair.peer_link)?;
        Ok(Self { scratch: Scratch::new()?, bystander: None, sender_before, peer_before, pair })
    }

    /// A receiver in the receiver's namespace.
    pub fn receiver(&self, options: impl Into<Options>) -> io::Result<Receiver> {
        Receiver::start(&self.pair.receiver, self.pair.receiver_addr, options)
    }

    /// `xsend WORDS...` in the sender's namespace.
    pub fn xsend<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        let mut command = xsend_command(&self.pair.sender);
        command.args(words);
        command
    }

    /// `xsend send [OPTIONS...] SOURCE TO`, ready to start.
    pub fn send_command(&self, drive: Drive, options: &[&str], source: &OsStr, to: SocketAddr) -> Command {
        let mut command = self.xsend(&["send"]);
        command.args(drive.options()).args(options).arg(source).arg(to.to_string());
        command
    }

    /// Starts such a command.
    pub fn start_send(
        &self,
        drive: Drive,
        options: &[&str],
        source: impl AsRef<OsStr>,
        to: SocketAddr,
    ) -> io::Result<Process> {
        Process::spawn(self.send_command(drive, options, source.as_ref(), to))
    }

    /// Runs such a command to its end.
    ///
    /// # Panics
    /// When it does not end in time.
    #[track_caller]
    pub fn send(
        &self,
        drive: Drive,
        options: &[&str],
        source: impl AsRef<OsStr>,
        to: SocketAddr,
    ) -> io::Result<Finished> {
        Ok(self.start_send(drive, options, source, to)?.wait(SOON))
    }

    /// The bystander talks *now*.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn assert_undisturbed(&self) {
        if let Some(bystander) = &self.bystander {
            bystander.assert_alive();
        }
    }

    /// No XDP program is left, the interfaces at both ends of the sender's link are as they were, and the bystander
    /// still talks.
    ///
    /// # Panics
    /// When one of it is not so.
    #[track_caller]
    pub fn assert_left_as_found(&self) {
        let Pair { sender, sender_link, peer_link, .. } = &self.pair;
        assert_no_xdp_program(sender, sender_link);
        self.sender_before.assert_restored(sender);
        let peer = self.pair.router.as_ref().unwrap_or(&self.pair.receiver);
        assert_no_xdp_program(peer, peer_link);
        self.peer_before.assert_restored(peer);
        self.assert_undisturbed();
    }
}

/// Waits until something listens at a TCP port of a namespace.
///
/// # Panics
/// When nothing does in time.
#[track_caller]
pub fn wait_for_listener(namespace: &Namespace, port: u16) {
    let deadline = Instant::now() + SOON;
    let listening = || {
        namespace.shell(&format!("ss -ltnH 'sport = :{port}'")).is_ok_and(|lines| !lines.trim().is_empty())
    };
    while !listening() {
        assert!(Instant::now() < deadline, "nothing listens at port {port} of {}", namespace.name());
        thread::sleep(Duration::from_millis(20));
    }
}
