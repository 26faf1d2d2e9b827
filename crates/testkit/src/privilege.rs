//! Says whether namespaces can be made here, loudly when they cannot.

use std::io::Write;
use std::{env, io};

use nix::unistd::geteuid;

/// Ends the test early with a loud line when it is not run as root; with `XSEND_E2E_REQUIRED=1` in the environment
/// the test fails instead, so that in continuous integration nothing is skipped unseen.
///
/// Works in functions returning `()` and, with a value in parentheses, in others: `require_root!(Ok(()))`.
#[macro_export]
macro_rules! require_root {
    () => {
        if !$crate::privilege::available(module_path!()) {
            return;
        }
    };
    ($value:expr) => {
        if !$crate::privilege::available(module_path!()) {
            return $value;
        }
    };
}

/// Whether a test that needs root can run; otherwise says so on the real standard error, past the test harness.
///
/// # Panics
/// When it cannot run and `XSEND_E2E_REQUIRED` is `1`.
pub fn available(test: &str) -> bool {
    if geteuid().is_root() {
        return true;
    }
    let required = env::var("XSEND_E2E_REQUIRED").is_ok_and(|value| value == "1");
    assert!(!required, "{test}: needs root, and XSEND_E2E_REQUIRED=1 forbids to skip it");
    // Not eprintln!, which the harness captures for tests that pass.
    let _ = writeln!(io::stderr(), "SKIPPED: needs root ({test})");
    false
}
