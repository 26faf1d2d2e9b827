//! What can be typed.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::units::{self, HostMaybePort, Queues, Target};

/// TCP from user space over AF_XDP, to any ordinary receiver.
#[derive(Debug, Parser)]
#[command(
    name = "xsend",
    version,
    arg_required_else_help = true,
    before_help = "Example:\n  xsend send big.iso 10.0.0.2:9000"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Send(SendArgs),
    Sink(SinkArgs),
    Doctor(DoctorArgs),
}

/// Send files, or standard input, to a TCP server.
#[derive(Args, Debug)]
#[command(
    before_help = "Example:\n  xsend send big.iso 10.0.0.2:9000            (there: nc -l 9000 > big.iso)\n  tar c dir | xsend send - backup.lan:9000",
    after_help = "Exit codes: 0 every byte and the FIN acknowledged, 1 the transfer failed, 2 wrong usage, 130 interrupted."
)]
pub(crate) struct SendArgs {
    /// What to send, in this order; `-` is standard input
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) sources: Vec<PathBuf>,

    /// The TCP server: a name or an address ([IPv6] in brackets), and its port
    #[arg(value_name = "HOST:PORT")]
    pub(crate) target: Target,

    #[command(flatten)]
    pub(crate) path: PathArgs,

    /// How long to wait for the connection, in seconds
    #[arg(long, value_name = "S", default_value = "10", value_parser = units::seconds)]
    pub(crate) timeout: Duration,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What is common to everything that sends.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sending")]
pub(crate) struct PathArgs {
    /// Interface to send through [default: the one of the route to HOST]
    #[arg(long, value_name = "IF", value_parser = interface_name)]
    pub(crate) iface: Option<String>,

    /// Queues of the interface to own: 0, 0-3 or 0,2 [default: all]
    #[arg(long, value_name = "LIST", value_parser = units::queues)]
    pub(crate) queues: Option<Queues>,

    /// Core to pin the sending thread to [default: not pinned]
    #[arg(long, value_name = "N", value_parser = units::core)]
    pub(crate) cores: Option<usize>,

    /// How frames reach the device; `auto` says which one it took
    #[arg(long, value_enum, default_value_t = ModeArg::Auto)]
    pub(crate) mode: ModeArg,

    /// Attach the XDP program in generic mode, for drivers without native XDP
    #[arg(long)]
    pub(crate) generic: bool,

    /// Largest segment payload in bytes [default: what the interface and the peer allow]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(536..=65495))]
    pub(crate) mss: Option<u32>,

    /// Send buffer, such as 64Mi for a fast long path [default: 4Mi]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub(crate) sndbuf: Option<u64>,

    /// Unsent bytes below which a waiting writer is woken
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub(crate) notsent_lowat: Option<u64>,

    /// Pace to at most this rate, such as 2.5Gbit/s
    #[arg(long, value_name = "BITS", value_parser = units::rate)]
    pub(crate) max_rate: Option<u64>,

    /// Source address [default: the kernel's choice for the route]
    #[arg(long, value_name = "ADDR", value_parser = units::address)]
    pub(crate) source: Option<IpAddr>,

    /// Send small segments at once (no Nagle)
    #[arg(long)]
    pub(crate) nodelay: bool,

    /// Hold partial segments back until the end
    #[arg(long)]
    pub(crate) cork: bool,

    /// Let the kernel busy-poll the queues for this many microseconds
    #[arg(long, value_name = "US")]
    pub(crate) busy_poll: Option<u32>,

    /// Take the frames from huge pages
    #[arg(long)]
    pub(crate) huge_pages: bool,

    /// Write what is sent and received to a pcapng file
    #[arg(long, value_name = "FILE.pcapng")]
    pub(crate) pcap: Option<PathBuf>,

    /// Give up when nothing is acknowledged for this many seconds
    #[arg(long, value_name = "S", value_parser = units::seconds)]
    pub(crate) user_timeout: Option<Duration>,

    /// Send from a thread of its own instead of this one
    #[arg(long)]
    pub(crate) threaded: bool,
}

/// What is printed.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print one JSON document, with iperf3's names
    #[arg(long)]
    pub(crate) json: bool,

    /// Print nothing but errors (and the JSON document, if asked for)
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// How frames reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    /// Zero-copy where the driver has it, else copy
    Auto,
    /// Zero-copy or nothing
    ZeroCopy,
    /// The kernel copies each frame
    Copy,
}

/// Receive with a plain kernel socket; count, write or hash what comes.
#[derive(Args, Debug)]
#[command(
    before_help = "Example:\n  xsend sink --listen 0.0.0.0:9000 --once --out big.iso --sha256",
    after_help = "Exit codes: 0 received as expected, 1 a connection or a check failed, 2 wrong usage, 130 interrupted."
)]
pub(crate) struct SinkArgs {
    /// Where to listen; port 0 takes a free one and prints it
    #[arg(long, value_name = "ADDR:PORT", value_parser = units::listen)]
    pub(crate) listen: SocketAddr,

    /// Write the bytes to this file; later connections write FILE.2, FILE.3 and so on
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Print the SHA-256; with --out or --memory it is taken after the FIN, outside the timed part
    #[arg(long)]
    pub(crate) sha256: bool,

    /// Keep the bytes in memory, at most this many, and hash them after the FIN
    #[arg(
        long,
        value_name = "LIMIT",
        value_parser = units::size,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "4Gi",
        requires = "sha256",
        conflicts_with = "out"
    )]
    pub(crate) memory: Option<u64>,

    /// End after one connection
    #[arg(long)]
    pub(crate) once: bool,

    /// Fail unless a connection brings exactly this many bytes
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub(crate) bytes: Option<u64>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Say what an interface, its driver and this kernel can do, and how to get what is missing.
#[derive(Args, Debug)]
#[command(
    before_help = "Example:\n  xsend doctor --iface eth0 10.0.0.2",
    after_help = "Exit codes: 0 `send` would work, 1 it would fail, 2 wrong usage."
)]
pub(crate) struct DoctorArgs {
    /// Where one wants to send: checks the route and the neighbour too
    #[arg(value_name = "HOST")]
    pub(crate) host: Option<HostMaybePort>,

    /// Interface to look at [default: the one of the route to HOST]
    #[arg(long, value_name = "IF", value_parser = interface_name, required_unless_present = "host")]
    pub(crate) iface: Option<String>,

    /// Queues to try: 0, 0-3 or 0,2 [default: all]
    #[arg(long, value_name = "LIST", value_parser = units::queues)]
    pub(crate) queues: Option<Queues>,

    /// Mode to try
    #[arg(long, value_enum, default_value_t = ModeArg::Auto)]
    pub(crate) mode: ModeArg,

    /// Try the XDP program in generic mode
    #[arg(long)]
    pub(crate) generic: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// A name the kernel could have: IFNAMSIZ leaves 15 bytes, and a slash or a blank is never in one.
fn interface_name(text: &str) -> Result<String, String> {
    let legal = !text.is_empty()
        && text.len() <= 15
        && text != "."
        && text != ".."
        && !text.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control());
    if legal { Ok(text.to_owned()) } else { Err(format!("'{text}' cannot be the name of an interface")) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn send(words: &[&str]) -> Result<SendArgs, clap::Error> {
        let all = ["xsend", "send"].iter().chain(words);
        Cli::try_parse_from(all).map(|cli| match cli.command {
            Command::Send(args) => args,
            other => panic!("parsed as {other:?}"),
        })
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_last_word_is_the_target_and_the_others_are_sources() {
        let args = send(&["a", "-", "b", "host:9"]).unwrap();
        assert_eq!(args.sources, ["a", "-", "b"].map(PathBuf::from));
        assert_eq!(args.target.to_string(), "host:9");
        assert!(send(&["host:9"]).is_err(), "a target alone sends nothing");
    }

    #[test]
    fn options_may_stand_anywhere() {
        let args = send(&[
            "--iface",
            "veth0",
            "-",
            "host:9",
            "--sndbuf",
            "4Mi",
            "--max-rate",
            "1Gbit/s",
            "--threaded",
        ])
        .unwrap();
        assert_eq!(args.path.iface.as_deref(), Some("veth0"));
        assert_eq!(args.path.sndbuf, Some(4 << 20));
        assert_eq!(args.path.max_rate, Some(1_000_000_000));
        assert!(args.path.threaded && !args.path.generic);
    }

    #[test]
    fn wrong_values_are_usage_errors() {
        for words in [
            &["f", "host:9", "--queues", "3-0"][..],
            &["f", "host:9", "--mss", "20"],
            &["f", "host:9", "--mode", "fast"],
            &["f", "host:9", "--source", "nowhere"],
            &["f", "::1"],
            &["f", "host:9", "--timeout", "0"],
            &["f", "host:9", "--iface", "much-too-long-a-name"],
            &["f", "host:9", "--iface", "a/b"],
        ] {
            let error = send(words).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{words:?}");
        }
    }

    #[test]
    fn every_help_starts_with_an_example() {
        let mut command = Cli::command();
        for name in ["send", "sink", "doctor"] {
            let help = command.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            assert!(help.starts_with("Example:\n  xsend "), "{name}: {help}");
        }
        assert!(command.render_help().to_string().starts_with("Example:"));
    }

    #[test]
    fn memory_is_for_hashing_and_bounded() {
        let sink = |words: &[&str]| {
            let all = ["xsend", "sink", "--listen", "127.0.0.1:0"].iter().chain(words);
            Cli::try_parse_from(all).map(|cli| match cli.command {
                Command::Sink(args) => args,
                other => panic!("parsed as {other:?}"),
            })
        };
        assert_eq!(sink(&["--sha256", "--memory"]).unwrap().memory, Some(4 << 30));
        assert_eq!(sink(&["--sha256", "--memory=1Mi"]).unwrap().memory, Some(1 << 20));
        assert!(sink(&["--memory"]).is_err());
        assert!(sink(&["--sha256", "--memory", "--out", "x"]).is_err());
    }
}
