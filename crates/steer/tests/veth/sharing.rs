//! One program an interface: who holds it, how it goes, what it needs.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use xsend_steer::{AttachError, AttachMode, Steer};

use crate::common::{self, Pair, eventually, in_namespace, run};

#[test]
fn an_interface_that_carries_a_program_is_an_error_that_names_it() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        let first = Steer::attach("va", AttachMode::Native, 1).unwrap();
        for mode in [AttachMode::Native, AttachMode::Generic] {
            let error = Steer::attach("va", mode, 1).unwrap_err();
            let AttachError::AlreadyAttached { id, ref name, .. } = error else { panic!("{error:?}") };
            assert_eq!(name.as_deref(), Some("xsend_steer"));
            let shown = pair.ip_near("-d link show va");
            assert!(shown.contains("prog/xdp") && shown.contains(&format!("id {id} ")), "{shown}");
            let text = error.to_string();
            assert!(text.contains("va is in use by another sender of this very process"), "{text}");
            assert!(text.contains(&format!("id {id}")), "{text}");
            assert!(text.contains(&std::process::id().to_string()), "{text}");
        }
        drop(first);
        let detached = || !pair.ip_near("-d link show va").contains("prog/xdp");
        // Not at once: a process that another test is just starting may hold a copy of the descriptor until
        // it has started.
        eventually("detaching", detached);
        let generic = Steer::attach("va", AttachMode::Generic, 1).unwrap();
        assert!(pair.ip_near("-d link show va").contains("xdpgeneric"));
        drop(generic);
        eventually("detaching", detached);
        Steer::attach("va", AttachMode::Native, 1).unwrap();
    });
}

#[test]
fn native_mode_is_never_replaced_by_generic_silently() {
    let Some(pair) = Pair::new(1) else { return };
    pair.in_near(|| {
        pair.ip_near("link add br0 type bridge");
        let error = Steer::attach("br0", AttachMode::Native, 1).unwrap_err();
        assert!(matches!(error, AttachError::NotNative { .. }), "{error:?}");
        assert!(error.to_string().contains("generic"), "{error}");
        assert!(!pair.ip_near("-d link show br0").contains("prog/xdp"));
        drop(Steer::attach("br0", AttachMode::Generic, 1).unwrap());
        let error = Steer::attach("nosuch0", AttachMode::Generic, 1).unwrap_err();
        assert!(matches!(error, AttachError::NoInterface { .. }), "{error:?}");
    });
}

/// Attaches in the namespace that the environment names, says so, and waits to be killed.
#[test]
#[ignore = "run by a_killed_process_leaves_no_program"]
fn child_attaches_and_waits() {
    let namespace = std::env::var("XSEND_STEER_TEST_NAMESPACE").unwrap();
    in_namespace(&namespace, || {
        let _steer = Steer::attach("va", AttachMode::Native, 1).unwrap();
        // Ends when the parent does, even if it forgets us.
        let _ = std::io::stdin().read(&mut [0]);
    });
}

/// Another process with the program on the near end's interface; killed when dropped.
struct Other(Child);

impl Other {
    fn attach(pair: &Pair) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sharing::child_attaches_and_waits", "--ignored"])
            .env("XSEND_STEER_TEST_NAMESPACE", &pair.near)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let other = Self(child);
        eventually("attaching", || attached(pair));
        other
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn attached(pair: &Pair) -> bool {
    pair.ip_near("-d link show va").contains("prog/xdp")
}

#[test]
fn a_killed_process_leaves_no_program() {
    let Some(pair) = Pair::new(1) else { return };
    drop(Other::attach(&pair));
    eventually("detaching", || !attached(&pair));
}

#[test]
fn an_interface_that_another_process_uses_is_an_error_that_names_the_process() {
    let Some(pair) = Pair::new(1) else { return };
    let other = Other::attach(&pair);
    pair.in_near(|| {
        let error = Steer::attach("va", AttachMode::Native, 1).unwrap_err();
        let AttachError::AlreadyAttached { ref name, ref holder, .. } = error else { panic!("{error:?}") };
        assert_eq!(name.as_deref(), Some("xsend_steer"));
        let holder = holder.as_ref().expect("it runs in the same PID namespace");
        assert_eq!(holder.pid, other.0.id());
        assert!(holder.command.contains("veth"), "the test's own file: {holder}");
        let text = error.to_string();
        assert!(text.contains(&format!("in use by another xsend, process {} (", holder.pid)), "{text}");
    });
}

#[test]
fn a_foreign_program_that_no_process_holds_is_told_with_how_to_detach_it() {
    let Some(pair) = Pair::new(1) else { return };
    let Some(object) = Object::compile() else { return };
    pair.ip_near(&format!("link set dev va xdpdrv obj {} sec xdp", object.0.display()));
    pair.in_near(|| {
        let error = Steer::attach("va", AttachMode::Native, 1).unwrap_err();
        let AttachError::AlreadyAttached { ref name, ref holder, .. } = error else { panic!("{error:?}") };
        assert_eq!((name.as_deref(), holder), (Some("pass_all"), &None));
        let text = error.to_string();
        assert!(text.contains("pass_all") && text.contains("`ip link set va xdp off`"), "{text}");
    });
}

/// A compiled XDP program that passes everything; the file is removed when dropped.
struct Object(PathBuf);

impl Object {
    /// None, after saying so, without a compiler for it.
    fn compile() -> Option<Self> {
        let stem = std::env::temp_dir().join(format!("xsteer-{}", std::process::id()));
        let (source, object) = (stem.with_extension("bpf.c"), Self(stem.with_extension("bpf.o")));
        let text = "__attribute__((section(\"xdp\"), used)) int pass_all(void *ctx) { return 2; }\n\
                    char terms[] __attribute__((section(\"license\"), used)) = \"GPL\";\n";
        std::fs::write(&source, text).unwrap();
        let built = Command::new("clang")
            .args(["-O2", "-g", "-target", "bpf", "-c"])
            .args([&source, Path::new("-o"), &object.0])
            .status();
        std::fs::remove_file(&source).unwrap();
        let built = built.is_ok_and(|status| status.success());
        if !built {
            eprintln!("SKIPPED: needs clang");
        }
        built.then_some(object)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs in a process without CAP_SYS_ADMIN and one of the others: see the next test.
#[test]
#[ignore = "run by a_missing_capability_is_named"]
fn child_attaches_without_a_capability() {
    let error = Steer::attach("lo", AttachMode::Generic, 1).unwrap_err();
    let AttachError::NoPrivilege { ref missing, .. } = error else { panic!("{error:?}") };
    assert_eq!(*missing, std::env::var("MISSING").unwrap());
}

#[test]
fn a_missing_capability_is_named() {
    if !common::privileged() {
        return;
    }
    let this = std::env::current_exe().unwrap();
    for (bounds, missing) in [("-bpf", "CAP_BPF"), ("-perfmon", "CAP_PERFMON")] {
        let bounds = format!("--bounding-set={bounds},-sys_admin");
        let missing = format!("MISSING={missing}");
        let test = ["--exact", "sharing::child_attaches_without_a_capability", "--ignored"];
        let output =
            run("env", &[[&missing, "setpriv", &bounds, this.to_str().unwrap()].as_slice(), &test].concat());
        assert!(output.contains("1 passed"), "{output}");
    }
}
