//! The library over veth against the kernel's TCP: every way to write, both ways to run.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{Cursor, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use xsend::{Builder, ConnectError, Drive, Inline, LaunchError, Launched, Sender, Stream};
use xsend_testkit::receiver::{Behaviour, End};
use xsend_testkit::scene::SOON;
use xsend_testkit::{Pair, Scene, payload, require_root};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 253) as u8).collect()
}

fn in_time() -> Option<Instant> {
    Some(Instant::now() + SOON)
}

/// The same bytes by turns with `write`, `try_write` announcing more, `splice_from` and `reserve`, in sizes that end inside segments.
fn write_all_ways<D: Drive>(stream: &mut Stream<D>, bytes: &[u8]) {
    let segment = stream.segment_bytes();
    let sizes = [1, segment - 1, 3 * segment, 70_001, 5, segment, 200_000, 2 * segment + 17];
    let mut rest = bytes;
    for (turn, size) in sizes.into_iter().cycle().enumerate() {
        if rest.is_empty() {
            return;
        }
        let (piece, others) = rest.split_at(size.min(rest.len()));
        rest = others;
        match turn % 4 {
            0 => stream.write_all(piece).unwrap(),
            1 => more(stream, piece),
            2 => splice(stream, piece),
            _ => fill(stream, piece),
        }
    }
}

fn more<D: Drive>(stream: &mut Stream<D>, mut piece: &[u8]) {
    while !piece.is_empty() {
        let count = stream.try_write_more(piece).unwrap();
        piece = &piece[count..];
        if count == 0 {
            let _ = stream.wait_writable(in_time()).unwrap();
        }
    }
}

fn splice<D: Drive>(stream: &mut Stream<D>, piece: &[u8]) {
    let mut source = Cursor::new(piece);
    let mut moved = 0;
    while moved < piece.len() {
        moved += stream.splice_from(&mut source, piece.len() - moved).unwrap();
    }
    assert_eq!(stream.splice_from(&mut source, 1).unwrap(), 0, "the end of the source");
}

fn fill<D: Drive>(stream: &mut Stream<D>, mut piece: &[u8]) {
    while !piece.is_empty() {
        let mut room = stream.reserve(piece.len()).unwrap();
        let mut used = 0;
        for buffer in room.buffers() {
            let take = buffer.len().min(piece.len() - used);
            buffer[..take].copy_from_slice(&piece[used..used + take]);
            used += take;
        }
        room.commit(used);
        piece = &piece[used..];
        if used == 0 {
            // A reservation needs a whole frame; the tail's room does not count.
            stream.write_all(&piece[..1]).unwrap();
            piece = &piece[1..];
        }
    }
}

fn exercise<D: Drive>(sender: &Sender<D>, to: std::net::SocketAddr, bytes: &[u8]) {
    let mut stream = sender.connect(to).unwrap();
    write_all_ways(&mut stream, bytes);
    stream.close(in_time()).unwrap();
    let stats = stream.stats();
    assert_eq!((stats.written, stats.acknowledged), (bytes.len() as u64, bytes.len() as u64));
    // What never was reserved or written is room again, and the end is an end.
    assert!(stream.write(b"late").is_err());
    let mut buffer = [0; 16];
    assert_eq!(stream.read(&mut buffer).unwrap(), 0, "the peer closed too");
}

/// Sends by a sender that `start` makes and `close` ends, and compares what arrived.
fn arrives_in_order<D: Drive>(
    scene: &Scene,
    start: fn(Builder) -> Result<Sender<D>, LaunchError>,
    close: fn(Sender<D>, Instant),
) {
    let receiver = scene.receiver(Behaviour::Drain).unwrap();
    let bytes = pattern(3_000_000);
    let (link, to) = (scene.pair.sender_link.as_str(), receiver.addr());
    scene
        .pair
        .sender
        .run(|| {
            let sender = start(Sender::builder(link)).unwrap();
            exercise(&sender, to, &bytes);
            close(sender, Instant::now() + Duration::from_secs(5));
        })
        .unwrap();
    let received = receiver.next(SOON);
    assert_eq!((received.end, received.sha256), (End::Fin, payload::sha256(bytes.as_slice()).unwrap()));
    scene.assert_left_as_found();
}

#[test]
fn every_way_to_write_arrives_in_order_both_ways_to_run() {
    require_root!();
    let scene = Scene::with(Pair::builder()).unwrap();
    arrives_in_order(&scene, Builder::inline, Sender::<Inline>::close);
    arrives_in_order(&scene, Builder::launch, Sender::<Launched>::close);
}

/// "More follows" holds back segments that are not full, and only those. One that became full by growing leaves as soon as one that
/// was full from the beginning; left to a timer it would take hundreds of times as long.
#[test]
fn a_segment_that_became_full_leaves_though_more_was_announced() {
    require_root!();
    let scene = Scene::with(Pair::builder()).unwrap();
    let address = (scene.pair.receiver_addr, 0);
    let listener = scene.pair.receiver.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let (link, to) = (scene.pair.sender_link.as_str(), listener.local_addr().unwrap());
    scene
        .pair
        .sender
        .run(|| {
            let sender = Sender::builder(link).launch().unwrap();
            let mut stream = sender.connect(to).unwrap();
            let (mut peer, _) = listener.accept().unwrap();
            let segment = pattern(stream.segment_bytes());
            let (most, last) = segment.split_at(segment.len() - 1);
            let mut received = vec![0; segment.len()];
            let (mut whole, mut grown) = (Vec::new(), Vec::new());
            for _ in 0..9 {
                for (first, rest, times) in [(&[][..], &segment[..], &mut whole), (most, last, &mut grown)] {
                    more(&mut stream, first);
                    peer.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
                    assert!(peer.read(&mut received).is_err(), "a segment that is not full waits");
                    peer.set_read_timeout(Some(SOON)).unwrap();
                    let begun = Instant::now();
                    more(&mut stream, rest);
                    peer.read_exact(&mut received).unwrap();
                    assert_eq!(received, segment);
                    times.push(begun.elapsed());
                }
            }
            let median = |times: &mut Vec<Duration>| {
                times.sort_unstable();
                times[times.len() / 2]
            };
            let (whole, grown) = (median(&mut whole), median(&mut grown));
            assert!(grown < 50 * whole, "{grown:?} grown, {whole:?} whole");
            drop(peer);
            stream.close(in_time()).unwrap();
            sender.close(Instant::now() + Duration::from_secs(5));
        })
        .unwrap();
    scene.assert_left_as_found();
}

#[test]
fn idle_streams_do_not_starve_later_ones() {
    require_root!();
    const STREAMS: usize = 400;
    let scene = Scene::with(Pair::builder()).unwrap();
    let bytes = pattern(30_000);
    let address = (scene.pair.receiver_addr, 0);
    let listener = scene.pair.receiver.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let (link, to) = (scene.pair.sender_link.as_str(), listener.local_addr().unwrap());
    // All at once: each connection has a thread that reads it to its end.
    let receiving = std::thread::spawn(move || {
        let drain =
            |peer: TcpStream| std::thread::spawn(move || std::io::copy(&mut &peer, &mut std::io::sink()));
        let readers: Vec<_> = listener.incoming().take(STREAMS).map(|peer| drain(peer.unwrap())).collect();
        readers.into_iter().map(|reader| reader.join().unwrap().unwrap()).collect::<Vec<_>>()
    });
    scene
        .pair
        .sender
        .run(|| {
            let sender = Sender::builder(link).inline().unwrap();
            let mut streams = Vec::new();
            for number in 0..STREAMS {
                let mut stream =
                    sender.connect(to).unwrap_or_else(|error| panic!("stream {number}: {error}"));
                let mut rest = bytes.as_slice();
                while !rest.is_empty() {
                    let count = stream.try_write(rest).unwrap();
                    rest = &rest[count..];
                    if count == 0 {
                        let waited = stream.wait_writable(in_time()).unwrap();
                        assert_eq!(waited, xsend::Writable::Ready, "stream {number} of {STREAMS} starves");
                    }
                }
                streams.push(stream);
            }
            for mut stream in streams {
                stream.close(in_time()).unwrap();
            }
            sender.close(Instant::now() + Duration::from_secs(5));
        })
        .unwrap();
    assert_eq!(receiving.join().unwrap(), vec![bytes.len() as u64; STREAMS]);
    scene.assert_left_as_found();
}

#[test]
fn a_connect_can_be_given_up() {
    require_root!();
    let scene = Scene::with(Pair::builder().silent_neighbour()).unwrap();
    let link = scene.pair.sender_link.as_str();
    // A neighbour that is there, and answers no SYN.
    let to = scene.pair.silent_neighbour(9);
    scene
        .pair
        .sender
        .run(|| {
            let sender = Sender::builder(link).inline().unwrap();
            let mut asked = 0;
            let result = sender.connect_unless(to, &xsend::ConnectOptions::default(), || {
                asked += 1;
                asked > 2
            });
            assert!(matches!(result, Err(ConnectError::Cancelled)));
            sender.close(Instant::now() + Duration::from_secs(5));
        })
        .unwrap();
    scene.assert_left_as_found();
}
