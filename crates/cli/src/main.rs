//! The `xsend` command: `send` moves files over AF_XDP TCP, `sink` receives them with a plain kernel socket, and
//! `doctor` says what an interface can do.
//!
//! One concept a file: [`args`] and [`units`] read what was typed, [`transfer`] is the only file that talks to the
//! library, [`send`], [`sink`] and [`doctor`] are the commands, [`report`] and [`json`] say what came of them.

mod args;
mod clock;
mod doctor;
mod figures;
mod intervals;
mod json;
mod pcapng;
mod problem;
mod progress;
mod report;
mod send;
mod signals;
mod sink;
mod source;
mod transfer;
mod units;
mod usage;

use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

use args::{Cli, Command};
use problem::{Exit, Problem};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let outcome = match cli.command {
        Command::Send(args) => send::run(&args),
        Command::Sink(args) => sink::run(&args),
        Command::Doctor(args) => doctor::run(&args),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(problem) => {
            report::complain(&problem.to_string());
            problem.exit.into()
        }
    }
}

/// Help and version go out as clap lays them out; wrong usage is one line.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that went away (`xsend --help | head -1`) is no failure.
            let _ = error.print();
            Exit::Done.into()
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Exit::Usage.into()
        }
        _ => {
            let problem = Problem::usage(one_line(&error.render().to_string()));
            report::complain(&problem.to_string());
            problem.exit.into()
        }
    }
}

/// The first paragraph of clap's message, on one line, with where to read more.
fn one_line(rendered: &str) -> String {
    let mut words = String::new();
    for line in rendered.lines().map(str::trim).take_while(|line| !line.is_empty()) {
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(line);
    }
    let message = words.strip_prefix("error: ").unwrap_or(&words);
    format!("{message}; --help shows the usage")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_usage_is_one_line() {
        for wrong in [
            &["xsend", "send", "f"][..],
            &["xsend", "send", "f", "host:70000"],
            &["xsend", "send", "f", "host:1", "--queues", "3-0"],
            &["xsend", "send", "--nonsense"],
            &["xsend", "frobnicate"],
        ] {
            let error = Cli::try_parse_from(wrong).err().map(|e| one_line(&e.render().to_string()));
            let text = error.unwrap_or_default();
            assert!(!text.is_empty() && !text.contains('\n'), "{wrong:?}: {text:?}");
            assert!(!text.starts_with("error:"), "{text}");
        }
    }
}
