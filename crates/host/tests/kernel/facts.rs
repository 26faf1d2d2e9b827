//! Links, devices and ports of a real kernel.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
};

use xsend_host::{
    Device, Hardware, Link, LinkError, PortError, PortReservation, Query, Queues, Underlay, UnderlayError,
    XdpMode, links, resolve,
};

use crate::lab::{FAR_LOCAL, Lab, NEAR, NEAR_IF, NEAR_LOCAL, NEAR_MAC, NEAR6, run, skip};

#[test]
fn links_are_those_of_the_threads_namespace() {
    let Some(lab) = Lab::build() else { return };
    assert_eq!(lab.inside(links).unwrap(), ["lo", NEAR_IF]);
    let link = lab.inside(|| Link::by_name(NEAR_IF)).unwrap();
    assert_eq!((link.name.as_str(), link.mac, link.mtu), (NEAR_IF, NEAR_MAC, 1500));
    assert_eq!((link.rx_queues, link.tx_queues), (3, 2));
    assert_eq!((link.kind.as_deref(), link.driver.as_deref()), (Some("veth"), Some("veth")));
    assert_eq!((link.hardware, link.xdp.clone()), (Hardware::Ethernet, None));
    assert!(link.up && link.running);
    assert_eq!(lab.inside(|| Link::by_index(link.index)).unwrap(), link);
    let all = lab.inside(Link::all).unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!((all[0].hardware, all[0].up), (Hardware::Loopback, false));
    assert!(all.contains(&link));
}

#[test]
fn a_missing_link_is_an_error_that_names_the_others() {
    let Some(lab) = Lab::build() else { return };
    for name in ["eth9", "", "a-name-longer-than-any-interface-has"] {
        match lab.inside(|| Link::by_name(name)).unwrap_err() {
            LinkError::NotFound { interface, existing } => {
                assert_eq!((interface.as_str(), existing), (name, vec!["lo".to_owned(), NEAR_IF.to_owned()]));
            }
            other => panic!("{other}"),
        }
    }
    let error = lab.inside(|| Link::by_index(4_000)).unwrap_err();
    assert!(matches!(error, LinkError::NoSuchIndex { index: 4_000 }), "{error}");
}

#[test]
fn an_attached_xdp_program_is_reported_with_its_mode_and_name() {
    let Some(lab) = Lab::build() else { return };
    let Some(object) = Object::compile() else { return };
    for (keyword, mode) in [("xdpgeneric", XdpMode::Generic), ("xdpdrv", XdpMode::Native)] {
        lab.near(&format!("link set dev {NEAR_IF} {keyword} obj {} sec xdp", object.0.display()));
        let program = lab.inside(|| Link::by_name(NEAR_IF)).unwrap().xdp.expect("a program");
        assert_eq!(program.mode, mode);
        assert_ne!(program.id, 0);
        assert_eq!(program.name.as_deref(), Some("pass_all"));
        lab.near(&format!("link set dev {NEAR_IF} {keyword} off"));
        assert_eq!(lab.inside(|| Link::by_name(NEAR_IF)).unwrap().xdp, None);
    }
}

/// A compiled XDP program that passes everything; the file is removed when dropped.
struct Object(PathBuf);

impl Object {
    fn compile() -> Option<Self> {
        let stem = std::env::temp_dir().join(format!("xhost-{}", std::process::id()));
        let (source, object) = (stem.with_extension("bpf.c"), Self(stem.with_extension("bpf.o")));
        let text = "__attribute__((section(\"xdp\"), used)) int pass_all(void *ctx) { return 2; }\n\
                    char terms[] __attribute__((section(\"license\"), used)) = \"GPL\";\n";
        fs::write(&source, text).unwrap();
        let paths = (source.to_string_lossy().into_owned(), object.0.to_string_lossy().into_owned());
        let built = run("clang", &["-O2", "-g", "-target", "bpf", "-c", &paths.0, "-o", &paths.1]);
        fs::remove_file(&source).unwrap();
        match built {
            Ok(_) => Some(object),
            Err(error) => {
                skip(&format!("needs clang: {error}"));
                None
            }
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_device_tells_its_queues_and_offloads() {
    let Some(lab) = Lab::build() else { return };
    let facts = || {
        lab.inside(|| {
            let link = Link::by_name(NEAR_IF).unwrap();
            Device::of(&link).unwrap()
        })
    };
    let before = facts();
    let channels = before.channels.expect("veth counts its queues");
    assert!((1..=3).contains(&channels.receiving()), "{channels:?}");
    assert!((1..=2).contains(&channels.transmitting()), "{channels:?}");
    assert!(before.offloads.expect("every device has features").tx_checksum);
    if let Some(xdp) = before.xdp {
        assert!(xdp.basic && xdp.redirect && !xdp.zero_copy, "{xdp:?}");
    }
    // What `ethtool -K` changes is what is told.
    let toggled = lab.inside(|| run("ethtool", &["-K", NEAR_IF, "tso", "off", "tx", "off"]));
    if let Err(error) = toggled {
        skip(&format!("needs ethtool: {error}"));
        return;
    }
    let after = facts().offloads.unwrap();
    assert!(before.offloads.unwrap().tso && !after.tso && !after.tx_checksum, "{after:?}");
}

#[test]
fn a_device_without_queues_to_count_is_no_error() {
    let Some(lab) = Lab::build() else { return };
    let device = lab.inside(|| Device::of(&Link::by_name("lo").unwrap())).unwrap();
    assert_eq!((device.channels, device.rings), (None, None));
    assert!(device.offloads.is_some());
}

#[test]
fn ports_are_those_of_the_threads_namespace_and_run_out() {
    let Some(lab) = Lab::build() else { return };
    lab.inside(|| {
        fs::write("/proc/sys/net/ipv4/ip_local_port_range", "45001 45001").unwrap();
        let any = SocketAddr::new(NEAR, 0);
        let only = PortReservation::reserve(any).unwrap();
        assert_eq!((only.port(), only.address().ip()), (45001, NEAR));
        let error = PortReservation::reserve(any).unwrap_err();
        assert!(matches!(error, PortError::NoneFree { source } if source == NEAR), "{error}");
        assert!(TcpListener::bind((NEAR, 45001)).is_err(), "nor can it be bound by name");
        drop(only);
        TcpListener::bind((NEAR, 45001)).unwrap();
        // The families' ports are different ones.
        let both = [NEAR, NEAR6].map(|source| PortReservation::reserve(SocketAddr::new(source, 45001)));
        assert!(both.iter().all(Result::is_ok), "{both:?}");
    });
}

#[test]
fn a_port_of_a_link_local_address_is_reserved_with_its_interface() {
    let Some(lab) = Lab::build() else { return };
    lab.inside(|| {
        let path = resolve(&Query { interface: Some(NEAR_IF), ..Query::to(FAR_LOCAL) }).unwrap();
        let reserved = PortReservation::reserve(path.local(0)).unwrap();
        assert_eq!(reserved.address().ip(), NEAR_LOCAL);
        let taken = TcpListener::bind(reserved.address()).unwrap_err();
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    });
}

#[test]
fn the_queues_in_use_are_those_that_were_set() {
    let Some(lab) = Lab::build() else { return };
    lab.inside(|| {
        let link = Link::by_name(NEAR_IF).unwrap();
        let has = Device::of(&link).unwrap().queues_of(&link).rx;
        let wanted = if has == 2 { 1 } else { 2 };
        let count = wanted.to_string();
        if let Err(error) = run("ethtool", &["-L", NEAR_IF, "rx", &count, "tx", &count]) {
            skip(&format!("needs ethtool: {error}"));
            return;
        }
        let device = Device::of(&link).unwrap();
        assert_eq!(device.queues_of(&link), Queues { rx: wanted, tx: wanted });
        // The network stack counts the same, where it can list them.
        assert_eq!(device.queues.map_or(wanted, |queues| queues.rx), wanted);
    });
}

#[test]
fn what_only_the_kernel_can_send_through_is_refused_by_name() {
    let Some(lab) = Lab::build() else { return };
    lab.near("link add br0 type bridge");
    lab.near(&format!("link add mv0 link {NEAR_IF} type macvlan"));
    lab.inside(|| {
        for (name, expected) in [("br0", "bridge"), ("mv0", "macvlan")] {
            match Underlay::of(&Link::by_name(name).unwrap()).unwrap_err() {
                UnderlayError::Upper { interface, kind } => {
                    assert_eq!((interface.as_str(), kind.as_str()), (name, expected));
                }
                other => panic!("{other}"),
            }
        }
        let link = Link::by_name(NEAR_IF).unwrap();
        let Underlay { device, tags } = Underlay::of(&link).unwrap();
        assert_eq!((device, tags.as_slice()), (link, &[][..]), "a veth's peer is not below it");
    });
}

#[test]
fn a_port_of_a_bridge_names_its_master() {
    let Some(lab) = Lab::build() else { return };
    lab.near("link add br0 type bridge");
    lab.near(&format!("link set {NEAR_IF} master br0"));
    lab.inside(|| {
        let bridge = Link::by_name("br0").unwrap();
        assert_eq!(Link::by_name(NEAR_IF).unwrap().master, Some(bridge.index));
        assert_eq!(bridge.master, None);
    });
}
