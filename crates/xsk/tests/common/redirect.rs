//! The smallest XDP program there is to receive with: whatever comes to a queue that has a socket goes there.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_sys as bpf;
use xsend_xsk::link::{attach_xdp, interface_index};

/// The program on one interface, and its map of sockets. Detached when dropped.
pub struct Redirect {
    map: OwnedFd,
    _link: OwnedFd,
}

impl Redirect {
    /// Attaches to `interface` of the calling thread's namespace, natively and ready for packets in several
    /// buffers. What comes to a queue without a socket is passed on to the kernel.
    pub fn attach(interface: &str) -> Self {
        let map = xsk_map(64);
        let program = load(&instructions(&map));
        let index = interface_index(interface).expect("the interface exists");
        let link = attach_xdp(std::os::fd::AsFd::as_fd(&program), index, true).expect("attaching");
        Self { map, _link: link }
    }

    /// Receive from `queue` with this socket.
    pub fn insert(&self, queue: u32, socket: BorrowedFd<'_>) {
        let value = socket.as_raw_fd() as u32;
        // SAFETY: key and value are four readable bytes each, as the map was made for.
        let failed = unsafe {
            bpf::bpf_map_update_elem(
                self.map.as_raw_fd(),
                (&raw const queue).cast(),
                (&raw const value).cast(),
                0,
            )
        };
        assert_eq!(failed, 0, "entering a socket in the map");
    }
}

fn owned(fd: i32, what: &str) -> OwnedFd {
    assert!(fd >= 0, "{what}: {}", std::io::Error::from_raw_os_error(-fd));
    // SAFETY: the library has just made this descriptor for us.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn xsk_map(entries: u32) -> OwnedFd {
    let name = CString::new("xsks").unwrap();
    // SAFETY: the name ends in a zero byte; no options are given.
    let fd = unsafe {
        bpf::bpf_map_create(bpf::BPF_MAP_TYPE_XSKMAP, name.as_ptr(), 4, 4, entries, std::ptr::null())
    };
    owned(fd, "making a map of sockets")
}

/// `return bpf_redirect_map(map, context->rx_queue_index, XDP_PASS);`
fn instructions(map: &OwnedFd) -> Vec<bpf::bpf_insn> {
    let instruction = |code, destination: u8, source: u8, offset, value| {
        let mut instruction = bpf::bpf_insn { code, off: offset, imm: value, ..Default::default() };
        instruction.set_dst_reg(destination);
        instruction.set_src_reg(source);
        instruction
    };
    const LOAD_WORD: u8 = 0x61;
    const LOAD_WIDE: u8 = 0x18;
    const MAP_DESCRIPTOR: u8 = 1;
    const MOVE: u8 = 0xb7;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const RX_QUEUE_INDEX: i16 = 16;
    const REDIRECT_MAP: i32 = 51;
    vec![
        instruction(LOAD_WORD, 2, 1, RX_QUEUE_INDEX, 0),
        instruction(LOAD_WIDE, 1, MAP_DESCRIPTOR, 0, map.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        instruction(MOVE, 3, 0, 0, bpf::XDP_PASS as i32),
        instruction(CALL, 0, 0, 0, REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

fn load(instructions: &[bpf::bpf_insn]) -> OwnedFd {
    let (name, license) = (CString::new("redirect").unwrap(), CString::new("GPL").unwrap());
    // SAFETY: plain data, for which zeroes are valid and what the library wants in the fields that are not
    // used.
    let mut options: bpf::bpf_prog_load_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of::<bpf::bpf_prog_load_opts>() as bpf::size_t;
    options.expected_attach_type = bpf::BPF_XDP;
    options.prog_flags = bpf::BPF_F_XDP_HAS_FRAGS;
    // SAFETY: the names end in a zero byte, the instructions are as many as announced, and all of it outlives
    // the call.
    let fd = unsafe {
        bpf::bpf_prog_load(
            bpf::BPF_PROG_TYPE_XDP,
            name.as_ptr(),
            license.as_ptr(),
            instructions.as_ptr(),
            instructions.len() as bpf::size_t,
            &mut options,
        )
    };
    owned(fd, "loading the program")
}
