use std::io::Write as _;
use std::net::{Ipv4Addr, Shutdown, TcpStream};

use super::*;
use crate::args::OutputArgs;

fn args() -> SinkArgs {
    SinkArgs {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        out: None,
        sha256: false,
        memory: None,
        once: true,
        bytes: None,
        output: OutputArgs { json: true, quiet: true },
    }
}

/// Serves while `client` runs against it; what was noted comes back as the JSON document.
fn serve(args: &SinkArgs, client: impl FnOnce(SocketAddr) + Send) -> (Result<Exit, Problem>, Value) {
    let listener = TcpListener::bind(args.listen).unwrap();
    let address = listener.local_addr().unwrap();
    let mut service = Service::new(args);
    let exit = thread::scope(|scope| {
        scope.spawn(move || client(address));
        service.serve(listener, &Interrupts::never())
    });
    let document = service.document(address, &settings(args, address), exit.as_ref().err());
    (exit, document)
}

fn at<'a>(document: &'a Value, pointer: &str) -> &'a Value {
    document.pointer(pointer).unwrap_or(&Value::Null)
}

#[test]
fn bytes_are_counted_and_hashed() {
    let args = SinkArgs { sha256: true, ..args() };
    let (exit, document) = serve(&args, |address| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"abc").unwrap();
    });
    assert_eq!(exit.unwrap(), Exit::Done);
    assert_eq!(at(&document, "/end/sum_received/bytes"), 3);
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(at(&document, "/end/xsend/sha256"), digest);
    assert_eq!(at(&document, "/end/streams/0/sha256"), digest);
    assert_eq!(at(&document, "/end/xsend/failed"), 0);
    assert!(document.get("error").is_none());
}

#[test]
fn an_empty_connection_is_a_result_too() {
    let args = SinkArgs { bytes: Some(0), ..args() };
    let (exit, document) = serve(&args, |address| drop(TcpStream::connect(address).unwrap()));
    assert_eq!(exit.unwrap(), Exit::Done);
    assert_eq!(at(&document, "/end/sum_received/bytes"), 0);
    assert_eq!(at(&document, "/end/sum_received/bits_per_second"), 0.0);
    assert_eq!(at(&document, "/end/xsend/failed"), 0);
}

#[test]
fn a_file_holds_what_was_sent_and_is_hashed_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out");
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
    let args = SinkArgs { out: Some(path.clone()), sha256: true, bytes: Some(bytes.len() as u64), ..args() };
    let mut client_hash = None;
    let (exit, document) = serve(&args, |address| {
        use sha2::{Digest as _, Sha256};
        client_hash = Some(Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect::<String>());
        TcpStream::connect(address).unwrap().write_all(&bytes).unwrap();
    });
    assert_eq!(exit.unwrap(), Exit::Done);
    assert!(std::fs::read(&path).unwrap() == bytes);
    assert_eq!(at(&document, "/end/xsend/sha256").as_str(), client_hash.as_deref());
}

#[test]
fn too_few_bytes_are_a_failure() {
    let args = SinkArgs { bytes: Some(4), ..args() };
    let (_, document) =
        serve(&args, |address| TcpStream::connect(address).unwrap().write_all(b"abc").unwrap());
    assert_eq!(at(&document, "/end/xsend/failed"), 1);
    assert!(at(&document, "/error").as_str().unwrap().contains("expected 4 bytes, received 3"));
}

#[test]
fn a_reset_is_a_failure_not_an_end() {
    let (_, document) = serve(&args(), |address| {
        let stream = TcpStream::connect(address).unwrap();
        (&stream).write_all(b"abc").unwrap();
        let lingering = socket2::SockRef::from(&stream);
        lingering.set_linger(Some(Duration::ZERO)).unwrap();
    });
    assert_eq!(at(&document, "/end/xsend/failed"), 1);
    assert!(at(&document, "/error").as_str().unwrap().contains("reset"));
}

#[test]
fn connections_are_served_at_the_same_time_into_files_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out");
    let args = SinkArgs { out: Some(path.clone()), once: false, ..args() };
    let listener = TcpListener::bind(args.listen).unwrap();
    let address = listener.local_addr().unwrap();
    let mut service = Service::new(&args);
    // The first connection stays open while the second comes and goes, then everything is ended as by a signal.
    let (end, ended) = mpsc::channel::<()>();
    let interrupts = Interrupts::from_channel(ended);
    thread::scope(|scope| {
        scope.spawn(move || {
            let first = TcpStream::connect(address).unwrap();
            (&first).write_all(b"fir").unwrap();
            let mut second = TcpStream::connect(address).unwrap();
            second.write_all(b"second").unwrap();
            second.shutdown(Shutdown::Write).unwrap();
            wait_for_end(&second);
            (&first).write_all(b"st").unwrap();
            first.shutdown(Shutdown::Write).unwrap();
            wait_for_end(&first);
            end.send(()).unwrap();
        });
        assert_eq!(service.serve(listener, &interrupts).unwrap(), Exit::Interrupted);
    });
    assert_eq!(std::fs::read(&path).unwrap(), b"first");
    assert_eq!(std::fs::read(directory.path().join("out.2")).unwrap(), b"second");
    assert_eq!((service.connections, service.failed, service.bytes), (2, 0, 11));
}

/// The sink closes when it has everything.
fn wait_for_end(mut stream: &TcpStream) {
    let mut nothing = [0; 1];
    assert_eq!(std::io::Read::read(&mut stream, &mut nothing).unwrap(), 0);
}

#[test]
fn lines_and_names_are_stable() {
    let now = Instant::now();
    let received = Received { bytes: 1000, span: Some((now, now + Duration::from_millis(1))), error: None };
    let one = Finished {
        number: 1,
        peer: (Ipv4Addr::LOCALHOST, 9).into(),
        received,
        sha256: Some("ab".to_owned()),
        error: None,
    };
    assert_eq!(
        one.line(),
        "connection=1 peer=127.0.0.1:9 bytes=1000 seconds=0.001000 bits_per_second=8000000 rate=8.00Mbit/s sha256=ab\n"
    );
    assert_eq!(numbered(Path::new("a/b.bin"), 1), Path::new("a/b.bin"));
    assert_eq!(numbered(Path::new("a/b.bin"), 3), Path::new("a/b.bin.3"));
}
