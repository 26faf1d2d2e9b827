//! Links, devices and ports of a real kernel.

use std::{fs, net::TcpListener, path::PathBuf};

use xsend_host::{Device, Hardware, Link, LinkError, PortError, PortReservation, XdpMode, links};

use crate::lab::{Lab, NEAR, NEAR_IF, NEAR_MAC, run, skip};

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
        let only = PortReservation::reserve(NEAR, None).unwrap();
        assert_eq!((only.port(), *only.address().ip()), (45001, NEAR));
        let error = PortReservation::reserve(NEAR, None).unwrap_err();
        assert!(matches!(error, PortError::NoneFree { source } if source == NEAR), "{error}");
        assert!(TcpListener::bind((NEAR, 45001)).is_err(), "nor can it be bound by name");
        drop(only);
        TcpListener::bind((NEAR, 45001)).unwrap();
    });
}
