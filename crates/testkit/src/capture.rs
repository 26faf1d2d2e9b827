//! What tshark finds wrong with a capture.

use std::io;
use std::path::Path;

use crate::shell;

/// Counts of one capture file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Frames in the file.
    pub frames: usize,
    /// TCP segments among them.
    pub segments: usize,
    /// Frame numbers that are malformed, or whose IP or TCP checksum is wrong, with what tshark says of each.
    pub bad: Vec<String>,
    /// TCP segments whose checksum tshark could not verify (cut short in the file).
    pub unverified: usize,
}

/// Reads a capture with `tshark`, every checksum verified.
///
/// # Errors
/// When `tshark` is missing or refuses the file.
pub fn check(file: &Path) -> io::Result<Checked> {
    let mut checked = Checked::default();
    let fields = ["frame.number", "ip.checksum.status", "tcp.checksum.status", "_ws.malformed"];
    for line in columns(file, None, &fields)?.lines() {
        checked.frames += 1;
        let mut columns = line.split('\t');
        let (number, ip, tcp) = (columns.next(), columns.next().unwrap_or(""), columns.next().unwrap_or(""));
        let malformed = columns.next().unwrap_or("");
        // An ICMP error quotes another header: statuses may be lists, "1,2". 0 is bad, 1 good, 2 unverified.
        let has = |list: &str, status: &str| list.split(',').any(|one| one == status);
        if !tcp.is_empty() {
            checked.segments += 1;
        }
        if has(ip, "0") || has(tcp, "0") || !malformed.is_empty() {
            checked.bad.push(format!(
                "frame {}: ip.checksum.status {ip:?}, tcp.checksum.status {tcp:?}, malformed {malformed:?}",
                number.unwrap_or("?")
            ));
        }
        if has(tcp, "2") {
            checked.unverified += 1;
        }
    }
    Ok(checked)
}

/// The frames that a tshark display filter lets through, one line each.
///
/// # Errors
/// When `tshark` is missing, or refuses the file or the filter.
pub fn matching(file: &Path, filter: &str) -> io::Result<Vec<String>> {
    let fields = [
        "frame.number",
        "frame.time_relative",
        "ip.src",
        "tcp.flags.str",
        "tcp.seq",
        "tcp.len",
        "tcp.window_size",
    ];
    Ok(columns(file, Some(filter), &fields)?.lines().map(str::to_owned).collect())
}

fn columns(file: &Path, filter: Option<&str>, fields: &[&str]) -> io::Result<String> {
    let file = file.to_string_lossy();
    let mut args = vec!["-n", "-r", &*file, "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"];
    args.extend(filter.iter().flat_map(|filter| ["-Y", filter]));
    args.extend(["-T", "fields"]);
    args.extend(fields.iter().flat_map(|field| ["-e", field]));
    shell::run("tshark", &args)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Scratch;

    /// One TCP SYN in a classic pcap file, its checksums right (RFC 1071 done by hand), then spoiled on demand.
    fn capture(spoil: Option<usize>) -> Vec<u8> {
        let mut frame = vec![
            2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, // Ethernet
            0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2, // IPv4
            0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0, // TCP
        ];
        let sum = |bytes: &[u8], start: u32| {
            let sum =
                bytes.chunks(2).fold(start, |sum, two| sum + u32::from(two[0]) * 256 + u32::from(two[1]));
            !((sum & 0xffff) + (sum >> 16)) as u16
        };
        let ip = sum(&frame[14..34], 0).to_be_bytes();
        frame[24..26].copy_from_slice(&ip);
        let tcp = sum(&frame[34..54], 2 * 198 * 256 + 2 * 18 + 1 + 2 + 6 + 20).to_be_bytes();
        frame[50..52].copy_from_slice(&tcp);
        if let Some(at) = spoil {
            frame[at] ^= 0x10;
        }
        let mut file = Vec::new();
        for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1, 0, 0, 54, 54] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
        file
    }

    fn checked(spoil: Option<usize>) -> Option<Checked> {
        if shell::run("tshark", &["--version"]).is_err() {
            let required = std::env::var("XSEND_E2E_REQUIRED").is_ok_and(|value| value == "1");
            assert!(!required, "needs tshark, and XSEND_E2E_REQUIRED=1 forbids to skip it");
            eprintln!("SKIPPED: needs tshark");
            return None;
        }
        let scratch = Scratch::new().unwrap();
        let file = scratch.file("one.pcap");
        fs::write(&file, capture(spoil)).unwrap();
        Some(check(&file).unwrap())
    }

    #[test]
    fn a_sound_segment_passes_and_spoiled_ones_do_not() {
        let Some(sound) = checked(None) else { return };
        assert_eq!(sound, Checked { frames: 1, segments: 1, bad: Vec::new(), unverified: 0 });
        for (what, at) in [("IPv4 header", 26), ("TCP header", 36)] {
            assert_eq!(checked(Some(at)).unwrap().bad.len(), 1, "{what}");
        }
    }
}
