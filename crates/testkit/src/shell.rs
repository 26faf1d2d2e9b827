//! Runs one short system command to its end and turns a failure into an error that says what was run.

use std::ffi::OsStr;
use std::io;
use std::process::{Command, Stdio};

/// Runs `program` with `args` and returns its standard output; a status other than 0 is an error with its stderr.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, args: &[S]) -> io::Result<String> {
    let mut command = Command::new(program);
    command.args(args);
    run_command(command)
}

/// As [`run`], for a command that is already put together.
pub(crate) fn run_command(mut command: Command) -> io::Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| io::Error::new(e.kind(), format!("cannot run {command:?}: {e}")))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{command:?} failed ({}): {}", output.status, stderr.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `ip ARGS...`, split at spaces: no name used here contains one.
pub(crate) fn ip(line: &str) -> io::Result<String> {
    run("ip", &line.split_whitespace().collect::<Vec<_>>())
}
