//! Loading the program and attaching it.

use core::mem::MaybeUninit;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorKind, MapHandle, MapImpl, PrintLevel, Xdp, XdpFlags};
use xsend_xsk::link::{attach_xdp, interface_index};
use xsend_xsk::privilege::Capability;

use crate::{AttachError, AttachMode, holder};

// Generated: not ours to lint.
#[allow(missing_docs, unsafe_op_in_unsafe_fn, clippy::all, clippy::undocumented_unsafe_blocks)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/steer.skel.rs"));
}

/// The program and its maps in the kernel, each kept alive by a descriptor of its own.
pub(crate) struct Loaded {
    pub(crate) program: OwnedFd,
    pub(crate) flows: MapHandle,
    pub(crate) listeners: MapHandle,
    pub(crate) sockets: MapHandle,
    pub(crate) counts: MapHandle,
}

/// Loads the program with room for `queues` sockets.
pub(crate) fn load(interface: &str, queues: u32) -> Result<Loaded, AttachError> {
    if interface_index(interface).is_none() {
        return Err(AttachError::NoInterface { interface: interface.to_owned() });
    }
    let (result, words) = listening_to_libbpf(|| load_quietly(queues));
    result.map_err(|(action, error)| {
        let interface = interface.to_owned();
        // The verifier refuses with EACCES, so that only the lack of a capability tells that it was that.
        match (error.kind(), missing_capabilities()) {
            (ErrorKind::PermissionDenied, Some(missing)) => AttachError::NoPrivilege { interface, missing },
            _ => AttachError::Load { interface, action, error: format!("{error}{}", last_words(&words)) },
        }
    })
}

/// What the verifier said last, of all it said: the error is one line.
fn last_words(words: &str) -> String {
    let said = |line: &&str| {
        let line = line.trim_start_matches("libbpf: ").trim();
        !line.is_empty()
            && !line.starts_with("processed ")
            && !line.starts_with("--")
            && !line.contains("failed to load")
    };
    words.lines().rev().find(said).map_or(String::new(), |line| format!(" (the kernel: {})", line.trim()))
}

fn load_quietly(queues: u32) -> Result<Loaded, (&'static str, libbpf_rs::Error)> {
    let opening = |error| ("open the steering program", error);
    let loading = |error| ("load the steering program", error);
    let keeping = |error| ("keep the steering program", error);
    let mut object = MaybeUninit::uninit();
    let mut skeleton = skeleton::SteerSkelBuilder::default().open(&mut object).map_err(opening)?;
    skeleton.maps.sockets.set_max_entries(queues.max(1)).map_err(opening)?;
    let skeleton = skeleton.load().map_err(loading)?;
    let handle = |map: &MapImpl<'_>| MapHandle::try_from(map).map_err(keeping);
    let program = skeleton.progs.xsend_steer.as_fd().try_clone_to_owned();
    Ok(Loaded {
        program: program.map_err(|error| keeping(error.into()))?,
        flows: handle(&skeleton.maps.flows)?,
        listeners: handle(&skeleton.maps.listeners)?,
        sockets: handle(&skeleton.maps.sockets)?,
        counts: handle(&skeleton.maps.counts)?,
    })
}

/// Attaches the program through a link, in the mode asked for and no other.
pub(crate) fn attach(
    interface: &str,
    mode: AttachMode,
    program: BorrowedFd<'_>,
) -> Result<OwnedFd, AttachError> {
    let named = interface.to_owned();
    let Some(index) = interface_index(interface) else {
        return Err(AttachError::NoInterface { interface: named });
    };
    if let Some(error) = already_attached(interface, index, program) {
        return Err(error);
    }
    attach_xdp(program, index, mode == AttachMode::Native).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => AttachError::NoPrivilege {
            interface: named,
            missing: missing_capabilities().unwrap_or_else(|| Capability::NetAdmin.name().to_owned()),
        },
        io::ErrorKind::Unsupported if mode == AttachMode::Native => {
            AttachError::NotNative { interface: named, error }
        }
        // Somebody else may have been faster since the question above.
        _ => already_attached(interface, index, program).unwrap_or(AttachError::Attach {
            interface: named,
            mode,
            error,
        }),
    })
}

/// The error that names the program on the interface, if there is one in whatever mode.
fn already_attached(interface: &str, index: u32, program: BorrowedFd<'_>) -> Option<AttachError> {
    let index = i32::try_from(index).ok()?;
    let state = Xdp::new(program).query(index, XdpFlags::NONE).ok()?;
    // `prog_id` stays 0 when programs are attached in several modes.
    let ids = [state.prog_id, state.drv_prog_id, state.skb_prog_id, state.hw_prog_id];
    let id = ids.into_iter().find(|id| *id != 0)?;
    let name = ProgInfoIter::default()
        .find(|info| info.id == id)
        .map(|info| info.name.to_string_lossy().into_owned())
        .filter(|name| !name.is_empty());
    let holder = holder::of_program(id);
    Some(AttachError::AlreadyAttached { interface: interface.to_owned(), id, name, holder })
}

/// The capabilities that loading and attaching need and this thread lacks, in words; `None` when it has them
/// all.
fn missing_capabilities() -> Option<String> {
    // CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON.
    if Capability::SysAdmin.held() == Some(true) && Capability::NetAdmin.held() == Some(true) {
        return None;
    }
    let missing: Vec<_> = [Capability::Bpf, Capability::Perfmon, Capability::NetAdmin]
        .into_iter()
        .filter(|capability| capability.held() == Some(false))
        .map(Capability::name)
        .collect();
    (!missing.is_empty()).then(|| missing.join(" and "))
}

/// Runs `f` while libbpf's warnings are collected instead of printed, and hands back their end.
fn listening_to_libbpf<T>(f: impl FnOnce() -> T) -> (T, String) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    static WORDS: Mutex<String> = Mutex::new(String::new());
    /// Bytes kept: the verifier can be long-winded, and its verdict stands at the end.
    const KEPT: usize = 2048;

    fn collect(_: PrintLevel, words: String) {
        let mut all = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_str(&words);
        let mut cut = all.len().saturating_sub(KEPT);
        while !all.is_char_boundary(cut) {
            cut += 1;
        }
        all.drain(..cut);
    }

    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    WORDS.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, collect)));
    let result = f();
    libbpf_rs::set_print(before);
    let words = std::mem::take(&mut *WORDS.lock().unwrap_or_else(PoisonError::into_inner));
    (result, words)
}
