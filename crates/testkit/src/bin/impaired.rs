//! A link between two interfaces that delays, loses, reorders, duplicates, corrupts, limits and marks what crosses
//! it. `impaired --help` has the options; [`xsend_testkit::impaired`] says how it works.

#![forbid(unsafe_code)]

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use xsend_testkit::impaired::forwarder;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let options = match forwarder::parse(&words) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{}", forwarder::help());
            return ExitCode::SUCCESS;
        }
        Err(what) => {
            eprintln!("impaired: {what}\nTry: impaired --help");
            return ExitCode::from(2);
        }
    };
    match forwarder::run(&options) {
        Ok(counters) => {
            // After the death of whoever started it nobody reads this.
            let _ = writeln!(io::stdout(), "{}", counters.to_json());
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("impaired: {e}");
            ExitCode::FAILURE
        }
    }
}
