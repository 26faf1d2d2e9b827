//! A program, its socket, and another socket to send it frames with.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use xsend_steer::{AttachMode, Counts, Flow, FlowLease, Steer, Vlans};
use xsend_xsk::{Frame, Socket, Umem};

use crate::common::{Pair, config, eventually, send};

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// Our flow, seen from the near end.
pub fn flow() -> Flow {
    Flow { local: at("10.77.0.1:40000"), remote: at("10.77.0.2:80"), vlans: Vlans::NONE }
}

/// Its ports in a frame that comes from the far end.
pub const OURS: (u16, u16) = (80, 40000);

pub fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A socket with frames to receive into, and one to send with.
pub struct End {
    pub socket: Socket,
    umem: Umem,
    frames: Vec<Frame>,
}

impl End {
    pub fn open(interface: &str, queue: u32) -> Self {
        let (mut socket, umem, mut frames) = Socket::open(&config(interface, queue)).unwrap();
        for _ in 0..128 {
            socket.refill(frames.pop().unwrap()).unwrap();
        }
        assert_eq!(socket.receive(|_| ()), 0);
        Self { socket, umem, frames }
    }

    pub fn send(&mut self, packet: &[u8]) {
        send(&mut self.socket, &self.umem, &mut self.frames[0], packet);
    }

    /// Waits for `count` frames and gives their bytes; their frames go back to be filled again.
    pub fn receive(&mut self, count: usize) -> Vec<Vec<u8>> {
        let Self { socket, umem, .. } = self;
        let mut packets = vec![];
        eventually("receiving", || {
            let mut taken = vec![];
            socket.receive(|received| {
                assert!(!received.more);
                packets.push(umem.received(&received.frame, received.offset, received.len).to_vec());
                taken.push(received.frame);
            });
            for frame in taken {
                socket.refill(frame).unwrap();
            }
            packets.len() >= count
        });
        packets
    }
}

/// The near end steers our flow to a socket on queue 0; frames sent by the far end's socket are judged.
pub fn judged(
    queues: u32,
    mode: AttachMode,
    flow: Flow,
    body: impl FnOnce(&Pair, &Arc<Steer>, &mut End, &mut End) + Send,
) -> Option<()> {
    let pair = Pair::new(queues)?;
    let mut far = pair.in_far(|| End::open("vb", queues - 1));
    pair.in_near(|| {
        let steer = Arc::new(Steer::attach("va", mode, queues).unwrap());
        let mut near = End::open("va", 0);
        steer.add_socket(0, near.socket.fd()).unwrap();
        let _held = FlowLease::take(&steer, flow).unwrap();
        body(&pair, &steer, &mut near, &mut far);
        let books = near.socket.books();
        assert_eq!(books.tokens_out() + books.fill, books.total, "{books:?}");
    });
    Some(())
}

/// Waits until the counts are what is expected; none of the counted frames is still on its way then.
pub fn expect_counts(steer: &Steer, expected: Counts) {
    let mut seen = Counts::default();
    let start = std::time::Instant::now();
    while seen != expected && start.elapsed() < Duration::from_secs(10) {
        seen = steer.counts().unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(seen, expected);
}
