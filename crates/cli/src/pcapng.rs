//! A pcapng file of what is sent and received: other tools cannot see AF_XDP frames, since they pass below the
//! kernel's packet sockets.
//!
//! Four block types of the pcapng specification (draft-ietf-opsawg-pcapng) are all that is needed: a section header, one
//! interface, its packets, and the interface's statistics at the end. Every integer is little-endian, as the section header says.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which way a frame went; the two low bits of `epb_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To us.
    Inbound,
    /// From us.
    Outbound,
}

const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const LINKTYPE_ETHERNET: u16 = 1;

const OPT_END: u16 = 0;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
const ISB_IFRECV: u16 = 4;

/// Nanoseconds, as a negative power of ten.
const NANOSECONDS: u8 = 9;

/// Frames are flushed to the file at least this often while they come, so that a killed process leaves a useful file.
const FLUSH_EVERY_NS: u64 = 1_000_000_000;

/// Writes the blocks, one section with one interface.
struct Writer<W: Write> {
    out: W,
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    fn new(out: W, interface: &str) -> io::Result<Self> {
        let mut writer = Self { out, block: Vec::with_capacity(2048) };
        writer.begin(SECTION_HEADER);
        writer.put(&0x1A2B_3C4D_u32.to_le_bytes()); // byte-order magic
        writer.put(&1_u16.to_le_bytes()); // version 1.0
        writer.put(&0_u16.to_le_bytes());
        writer.put(&u64::MAX.to_le_bytes()); // section length: unknown
        writer.option(SHB_USERAPPL, concat!("xsend ", env!("CARGO_PKG_VERSION")).as_bytes());
        writer.option(OPT_END, &[]);
        writer.end()?;
        writer.begin(INTERFACE_DESCRIPTION);
        writer.put(&LINKTYPE_ETHERNET.to_le_bytes());
        writer.put(&0_u16.to_le_bytes()); // reserved
        writer.put(&0_u32.to_le_bytes()); // snap length: none
        writer.option(IF_NAME, interface.as_bytes());
        writer.option(IF_TSRESOL, &[NANOSECONDS]);
        writer.option(OPT_END, &[]);
        writer.end()?;
        Ok(writer)
    }

    fn packet(&mut self, way: Way, unix_ns: u64, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.begin(ENHANCED_PACKET);
        self.put(&0_u32.to_le_bytes()); // the only interface
        self.timestamp(unix_ns);
        self.put(&length.to_le_bytes()); // captured
        self.put(&length.to_le_bytes()); // on the wire
        self.put(bytes);
        self.pad();
        let flags: u32 = match way {
            Way::Inbound => 0b01,
            Way::Outbound => 0b10,
        };
        self.option(EPB_FLAGS, &flags.to_le_bytes());
        self.option(OPT_END, &[]);
        self.end()
    }

    fn statistics(&mut self, unix_ns: u64, frames: u64) -> io::Result<()> {
        self.begin(INTERFACE_STATISTICS);
        self.put(&0_u32.to_le_bytes());
        self.timestamp(unix_ns);
        self.option(ISB_IFRECV, &frames.to_le_bytes());
        self.option(OPT_END, &[]);
        self.end()
    }

    /// A timestamp is two 32-bit words, the high one first, whatever the byte order.
    fn timestamp(&mut self, unix_ns: u64) {
        self.put(&((unix_ns >> 32) as u32).to_le_bytes());
        self.put(&(unix_ns as u32).to_le_bytes());
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.put(&kind.to_le_bytes());
        self.put(&[0; 4]); // the length, known at the end
    }

    fn put(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = value.get(..usize::from(u16::MAX)).unwrap_or(value);
        self.put(&code.to_le_bytes());
        self.put(&(value.len() as u16).to_le_bytes());
        self.put(value);
        self.pad();
    }

    /// The total length stands at both ends of a block.
    fn end(&mut self) -> io::Result<()> {
        let length = u32::try_from(self.block.len() + 4).unwrap_or(u32::MAX).to_le_bytes();
        if let Some(field) = self.block.get_mut(4..8) {
            field.copy_from_slice(&length);
        }
        self.put(&length);
        self.out.write_all(&self.block)
    }
}

struct State {
    writer: Writer<BufWriter<File>>,
    frames: u64,
    last_ns: u64,
    flushed_ns: u64,
    /// The first failure; nothing is written after it.
    failure: Option<io::Error>,
}

/// A capture that the sending thread fills and the command finishes. Clones are the same file.
#[derive(Clone)]
pub(crate) struct Capture(Arc<Mutex<State>>);

impl Capture {
    /// Creates or truncates the file.
    pub(crate) fn create(path: &Path, interface: &str) -> io::Result<Self> {
        let file = BufWriter::with_capacity(256 * 1024, File::create(path)?);
        let writer = Writer::new(file, interface)?;
        let state = State { writer, frames: 0, last_ns: 0, flushed_ns: 0, failure: None };
        Ok(Self(Arc::new(Mutex::new(state))))
    }

    /// Notes one frame. A failure is kept for `finish`: a full disk must not end the transfer.
    pub(crate) fn frame(&self, way: Way, unix_ns: u64, bytes: &[u8]) {
        let mut state = self.lock();
        if state.failure.is_some() {
            return;
        }
        let mut written = state.writer.packet(way, unix_ns, bytes);
        if written.is_ok() && unix_ns.saturating_sub(state.flushed_ns) >= FLUSH_EVERY_NS {
            state.flushed_ns = unix_ns;
            written = state.writer.out.flush();
        }
        state.last_ns = unix_ns;
        match written {
            Ok(()) => state.frames += 1,
            Err(error) => state.failure = Some(error),
        }
    }

    /// Writes the statistics and flushes. Returns the number of frames, or why the file is incomplete.
    pub(crate) fn finish(&self) -> io::Result<u64> {
        let mut state = self.lock();
        if let Some(error) = state.failure.take() {
            return Err(error);
        }
        let (frames, last_ns) = (state.frames, state.last_ns);
        state.writer.statistics(last_ns, frames)?;
        state.writer.out.flush()?;
        Ok(frames)
    }

    /// Flushes what is there, unless the sending thread is in the middle of a frame: for a process about to end.
    pub(crate) fn flush_now(&self) {
        if let Ok(mut state) = self.0.try_lock() {
            let _ = state.writer.out.flush();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    /// Walks the blocks by their leading length and checks it against the trailing one.
    fn blocks(file: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut all = Vec::new();
        let mut at = 0;
        while at < file.len() {
            let length = word(file, at + 4) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(word(file, at + length - 4) as usize, length);
            all.push((word(file, at), file[at + 8..at + length - 4].to_vec()));
            at += length;
        }
        assert_eq!(at, file.len());
        all
    }

    #[test]
    fn blocks_are_as_specified() {
        let mut writer = Writer::new(Vec::new(), "veth0").unwrap();
        let ns = 1_700_000_000_123_456_789;
        writer.packet(Way::Outbound, ns, &[0xAA; 61]).unwrap();
        writer.packet(Way::Inbound, ns + 1, &[0xBB; 64]).unwrap();
        writer.statistics(ns + 1, 2).unwrap();
        let blocks = blocks(&writer.out);
        assert_eq!(blocks.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [SECTION_HEADER, 1, 6, 6, 5]);
        assert_eq!(word(&blocks[0].1, 0), 0x1A2B_3C4D);
        let interface = &blocks[1].1;
        assert_eq!(interface[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(interface[8..20], *b"\x02\0\x05\0veth0\0\0\0");
        assert_eq!(interface[20..28], [9, 0, 1, 0, 9, 0, 0, 0]);
        let packet = &blocks[2].1;
        assert_eq!((u64::from(word(packet, 4)) << 32) | u64::from(word(packet, 8)), ns);
        assert_eq!((word(packet, 12), word(packet, 16)), (61, 61));
        assert_eq!(packet[20..81], [0xAA; 61]);
        assert_eq!(packet[81..84], [0; 3], "padded to four bytes");
        assert_eq!(packet[84..92], [2, 0, 4, 0, 2, 0, 0, 0], "outbound");
        assert_eq!(packet[92..], [0; 4], "end of options");
        assert_eq!(word(&blocks[3].1, 20 + 64 + 4), 1, "inbound");
    }

    #[test]
    fn tshark_reads_times_directions_and_the_interface() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("two.pcapng");
        let capture = Capture::create(&path, "veth-test").unwrap();
        let mut frame = [0u8; 60];
        frame[12..14].copy_from_slice(&0x88B5_u16.to_be_bytes()); // local experimental EtherType
        capture.frame(Way::Outbound, 1_700_000_000_000_000_001, &frame);
        capture.clone().frame(Way::Inbound, 1_700_000_000_000_000_002, &frame[..59]);
        assert_eq!(capture.finish().unwrap(), 2);
        let fields =
            ["frame.time_epoch", "frame.len", "frame.packet_flags_direction", "frame.interface_name"];
        let mut command = Command::new("tshark");
        command.arg("-r").arg(&path).args(["-T", "fields"]);
        for field in fields {
            command.args(["-e", field]);
        }
        let Ok(output) = command.output() else {
            println!("SKIPPED: needs tshark");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
        assert_eq!(rows.len(), 2, "{text}");
        assert!(rows[0][0].ends_with("000000001") && rows[1][0].ends_with("000000002"), "{text}");
        assert_eq!((rows[0][1], rows[1][1]), ("60", "59"));
        let direction = |row: &[&str]| u32::from_str_radix(row[2].trim_start_matches("0x"), 16).unwrap();
        assert_eq!((direction(&rows[0]), direction(&rows[1])), (2, 1), "{text}");
        assert_eq!(rows[0][3], "veth-test");
    }

    #[test]
    fn a_full_disk_is_reported_at_the_end() {
        let capture = Capture::create(Path::new("/dev/full"), "veth0").unwrap();
        for _ in 0..400 {
            capture.frame(Way::Outbound, 1, &[0; 1514]);
        }
        assert!(capture.finish().is_err());
    }
}
