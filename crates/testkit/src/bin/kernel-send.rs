//! The kernel's own TCP sender, as good as it gets: one file over one connection, in large writes or by
//! `sendfile(2)`, with a named congestion control. Prints one JSON line: what it sent, how long it took, and what CPU
//! time the process used. Over veth, writes of 256 KiB from a warm buffer are the faster way and `sendfile` the one with
//! less CPU time; writes are the default.
//!
//! `kernel-send [--congestion NAME] [--write | --sendfile] [--buffer BYTES] FILE ADDR:PORT`

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, fmt};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::sendfile::sendfile;
use nix::sys::time::TimeVal;
use socket2::SockRef;

const USAGE: &str =
    "usage: kernel-send [--congestion NAME] [--write | --sendfile] [--buffer BYTES] FILE ADDR:PORT";

/// Large enough that system calls do not matter, small enough to stay in the second-level cache.
const BUFFER: usize = 256 << 10;

/// The most that Linux moves in one sendfile(2) call is just under 2 GiB.
const SENDFILE_MOST: usize = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Write,
    Sendfile,
}

#[derive(Debug)]
struct Arguments {
    congestion: String,
    how: How,
    buffer: usize,
    file: String,
    to: SocketAddr,
}

enum Failure {
    Usage(String),
    Run(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Run(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) => write!(f, "kernel-send: {what}\n{USAGE}"),
            Self::Run(what) => write!(f, "kernel-send: {what}"),
        }
    }
}

fn main() -> ExitCode {
    match parse(env::args().skip(1)).and_then(|arguments| run(&arguments)) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(if matches!(failure, Failure::Usage(_)) { 2 } else { 1 })
        }
    }
}

fn parse(words: impl Iterator<Item = String>) -> Result<Arguments, Failure> {
    let (mut congestion, mut how, mut buffer) = ("cubic".to_owned(), How::Write, BUFFER);
    let mut plain = Vec::new();
    let mut words = words;
    while let Some(word) = words.next() {
        let mut value =
            |name: &str| words.next().ok_or_else(|| Failure::Usage(format!("{name} needs a value")));
        match word.as_str() {
            "--congestion" => congestion = value("--congestion")?,
            "--sendfile" => how = How::Sendfile,
            "--write" => how = How::Write,
            "--buffer" => {
                let text = value("--buffer")?;
                buffer =
                    text.parse().ok().filter(|bytes| (1..=1 << 30).contains(bytes)).ok_or_else(|| {
                        Failure::Usage(format!("--buffer {text}: not from 1 to 1073741824"))
                    })?;
            }
            option if option.starts_with('-') => {
                return Err(Failure::Usage(format!("unknown option {option}")));
            }
            _ => plain.push(word),
        }
    }
    let [file, to] =
        <[String; 2]>::try_from(plain).map_err(|_| Failure::Usage("FILE and ADDR:PORT".into()))?;
    let to = to.parse().map_err(|_| Failure::Usage(format!("{to} is not an ADDR:PORT")))?;
    Ok(Arguments { congestion, how, buffer, file, to })
}

fn run(arguments: &Arguments) -> Result<String, Failure> {
    let Arguments { congestion, how, buffer, file: name, to } = arguments;
    let mut file = File::open(name).map_err(|e| Failure::Run(format!("{name}: {e}")))?;
    let stream = TcpStream::connect(to).map_err(|e| Failure::Run(format!("{to}: {e}")))?;
    SockRef::from(&stream)
        .set_tcp_congestion(congestion.as_bytes())
        .map_err(|e| Failure::Run(format!("congestion control {congestion}: {e}")))?;
    let begun = Instant::now();
    let bytes = match how {
        How::Write => by_write(&mut file, &stream, *buffer),
        How::Sendfile => by_sendfile(&file, &stream),
    }?;
    stream.shutdown(Shutdown::Write)?;
    // The peer's FIN tells that it has taken everything; a sink sends nothing before it.
    let mut stream = stream;
    io::copy(&mut stream, &mut io::sink())?;
    let seconds = begun.elapsed().as_secs_f64();
    let usage = getrusage(UsageWho::RUSAGE_SELF).map_err(io::Error::from)?;
    let (user, system) = (duration(usage.user_time()), duration(usage.system_time()));
    Ok(format!(
        "{{\"bytes\":{bytes},\"seconds\":{seconds:.6},\"cpu_user_seconds\":{:.6},\"cpu_system_seconds\":{:.6},\
         \"congestion\":\"{}\",\"how\":\"{}\"}}",
        user.as_secs_f64(),
        system.as_secs_f64(),
        used_congestion(&stream)?,
        if *how == How::Write { "write" } else { "sendfile" },
    ))
}

fn by_write(file: &mut File, mut stream: &TcpStream, buffer: usize) -> io::Result<u64> {
    let mut buffer = vec![0; buffer];
    let mut total = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(total),
            n => {
                stream.write_all(&buffer[..n])?;
                total += n as u64;
            }
        }
    }
}

fn by_sendfile(file: &File, stream: &TcpStream) -> io::Result<u64> {
    let mut total = 0;
    loop {
        match sendfile(stream, file, None, SENDFILE_MOST)? {
            0 => return Ok(total),
            n => total += n as u64,
        }
    }
}

/// The congestion control in use, as the kernel tells it: printable ASCII, NUL-padded.
fn used_congestion(stream: &TcpStream) -> io::Result<String> {
    let name = SockRef::from(stream).tcp_congestion()?;
    Ok(name.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect())
}

fn duration(time: TimeVal) -> Duration {
    let micros =
        u64::try_from(time.tv_sec()).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec()).unwrap_or(0);
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Arguments, Failure> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn defaults_and_options() {
        let Ok(plain) = words("f 127.0.0.1:9") else { panic!("refused") };
        assert_eq!((plain.congestion.as_str(), plain.how, plain.buffer), ("cubic", How::Write, BUFFER));
        let Ok(full) = words("--congestion reno --sendfile --buffer 4096 f 127.0.0.1:9") else {
            panic!("refused")
        };
        assert_eq!((full.congestion.as_str(), full.how, full.buffer), ("reno", How::Sendfile, 4096));
    }

    #[test]
    fn wrong_usage_is_told() {
        for line in
            ["", "f", "f 127.0.0.1", "--what f 127.0.0.1:9", "--buffer 0 f 127.0.0.1:9", "f 127.0.0.1:9 x"]
        {
            assert!(matches!(words(line), Err(Failure::Usage(_))), "{line:?}");
        }
    }
}
