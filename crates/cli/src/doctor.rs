//! `xsend doctor`: what the interface, its driver, the kernel and this process can do, and how to get what is missing.
//!
//! First what can be read without touching anything ([`facts`]), judged by plain functions ([`judge`]); then, if nothing
//! stands against it, the queues are really opened and given back.

mod facts;
mod judge;

use serde_json::{Value, json};

use crate::args::{DoctorArgs, ModeArg};
use crate::json;
use crate::problem::{Exit, Problem};
use crate::report::{self, Settings};
use crate::signals::Interrupts;
use crate::transfer;
use facts::Facts;
use judge::{Check, Verdict};

/// Runs the command.
pub(crate) fn run(args: &DoctorArgs) -> Result<Exit, Problem> {
    // A signal ends the process wherever it is: what is open hangs on descriptors.
    let _interrupts = Interrupts::install()?;
    let destination = args.host.as_ref().map(|host| host.host.resolve(0)).transpose()?.map(|to| to.ip());
    let facts =
        Facts::gather(args.iface.as_deref(), destination, args.host.as_ref().and_then(|host| host.port));
    let mut checks = judge::all(&facts, args);
    checks.push(socket(&facts, &checks, args));
    let settings = settings(&facts, args);
    if args.output.json {
        json::print(&document(&settings, &checks))?;
    } else if !args.output.quiet {
        let lines: String = checks.iter().map(Check::line).collect();
        report::print(&(settings.to_text() + &lines))?;
    }
    match checks.iter().find(|check| check.verdict == Verdict::Fail) {
        Some(check) => Err(Problem::failed(format!("send would fail: {}", check.sentence()))),
        None => Ok(Exit::Done),
    }
}

/// Opens the queues as `send` would, and gives them back.
fn socket(facts: &Facts, checks: &[Check], args: &DoctorArgs) -> Check {
    let name = "socket";
    let Some(interface) = &facts.interface else {
        return Check::warn(name, "not tried, there is no interface", "name one with --iface");
    };
    if let Some(failed) = checks.iter().find(|check| check.verdict == Verdict::Fail) {
        let remedy = format!("get `{}` right first", failed.name);
        return Check::warn(name, "not tried, since it would fail", remedy);
    }
    match transfer::try_queues(interface, args.queues.as_ref(), args.mode, args.generic) {
        Ok(settings) => {
            let mode = settings.get("mode").unwrap_or("unknown");
            let queues = settings.get("queues").unwrap_or("unknown");
            let text = format!("queues {queues} of {interface} opened in {mode} mode and given back");
            match args.mode {
                ModeArg::Auto if mode == "copy" => Check::ok(name, text + "; the kernel copies each frame"),
                _ => Check::ok(name, text),
            }
        }
        Err(why) => Check::fail(name, why, ""),
    }
}

fn settings(facts: &Facts, args: &DoctorArgs) -> Settings {
    let mut settings = Settings::default();
    settings.set("interface", facts.interface.as_deref().unwrap_or("none"));
    settings.set_some("queues", args.queues.as_ref());
    let mode = match args.mode {
        ModeArg::Auto => "auto",
        ModeArg::ZeroCopy => "zero-copy",
        ModeArg::Copy => "copy",
    };
    settings.set("mode", mode);
    settings.set("generic", args.generic);
    settings.set_some("host", args.host.as_ref().map(|host| &host.host));
    settings.set_some("destination", facts.destination);
    settings
}

fn document(settings: &Settings, checks: &[Check]) -> Value {
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let failed = count(Verdict::Fail);
    json!({
        "start": {
            "version": json::version(),
            "timestamp": json::timestamp(),
            "xsend": { "settings": json::settings(settings) },
        },
        "checks": checks.iter().map(Check::describe).collect::<Vec<_>>(),
        "end": {
            "ok": count(Verdict::Ok),
            "warn": count(Verdict::Warn),
            "fail": failed,
            "send_would_work": failed == 0,
        },
    })
}
