use xsend_host::{Offloads, Privileges, XdpFeatures, XdpProgram};

use super::*;
use crate::args::OutputArgs;
use crate::units;

fn veth() -> Link {
    Link {
        index: 2,
        name: "veth0".to_owned(),
        mac: Default::default(),
        mtu: 1500,
        ipv6_mtu: None,
        up: true,
        running: true,
        hardware: Hardware::Ethernet,
        kind: Some("veth".to_owned()),
        driver: Some("veth".to_owned()),
        rx_queues: 1,
        tx_queues: 1,
        vlan: None,
        master: None,
        xdp: None,
    }
}

fn device() -> Device {
    Device {
        channels: Some(Channels { rx: 1, tx: 1, rx_max: 1, tx_max: 1, ..Channels::default() }),
        xdp: Some(XdpFeatures {
            basic: true,
            redirect: true,
            rx_multi_buffer: true,
            ..XdpFeatures::default()
        }),
        offloads: Some(Offloads::default()),
        ..Device::default()
    }
}

fn privileges() -> Privileges {
    let everything = Privileges::read().unwrap();
    Privileges { effective: u64::MAX, in_user_namespace: false, ..everything }
}

fn facts() -> Facts {
    Facts {
        interface: Some("veth0".to_owned()),
        destination: None,
        port: None,
        kernel: Some("6.18.44-amd64".to_owned()),
        privileges: Ok(privileges()),
        link: Some(Ok(veth())),
        device: Some(Ok(device())),
        path: None,
        local_port: Ok(40000),
        port_range: Some((32768, 60999)),
    }
}

fn args() -> DoctorArgs {
    DoctorArgs {
        host: None,
        iface: Some("veth0".to_owned()),
        queues: None,
        mode: ModeArg::Auto,
        generic: false,
        output: OutputArgs { json: false, quiet: false },
    }
}

#[track_caller]
fn expect(check: &Check, verdict: Verdict, word: &str) {
    assert_eq!(check.verdict, verdict, "{check:?}");
    assert!(check.sentence().contains(word), "{check:?} does not say {word:?}");
}

fn one(checks: Vec<Check>, name: &str) -> Check {
    checks.into_iter().find(|check| check.name == name).unwrap()
}

#[test]
fn a_sound_interface_passes_everything() {
    for check in all(&facts(), &args()) {
        assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
        assert_eq!(check.line().lines().count(), 1, "{check:?}");
    }
}

#[test]
fn kernels_are_judged_by_what_they_lack() {
    expect(&kernel(Some("6.18.44-fc")), Verdict::Ok, "6.18");
    expect(&kernel(Some("6.6.1")), Verdict::Warn, "6.17");
    expect(&kernel(Some("6.1.0-18-amd64")), Verdict::Warn, "6.3");
    expect(&kernel(Some("5.15.0")), Verdict::Fail, "5.18");
    expect(&kernel(Some("weird")), Verdict::Warn, "version");
    expect(&kernel(None), Verdict::Warn, "version");
}

#[test]
fn missing_privileges_fail_and_are_named() {
    let nothing = Privileges { effective: 0, ..privileges() };
    let facts = Facts { privileges: Ok(nothing), ..facts() };
    expect(&one(all(&facts, &args()), "privileges"), Verdict::Fail, "CAP_NET_ADMIN");
}

#[test]
fn links_that_carry_nothing_fail() {
    expect(&link(&Link { up: false, running: false, ..veth() }), Verdict::Fail, "ip link set veth0 up");
    expect(&link(&Link { running: false, ..veth() }), Verdict::Fail, "carrier");
    expect(&link(&Link { hardware: Hardware::Loopback, ..veth() }), Verdict::Fail, "loopback");
    expect(&link(&Link { hardware: Hardware::Other(65534), ..veth() }), Verdict::Fail, "Ethernet");
    let facts = Facts { link: Some(Err("no interface nosuch0".to_owned())), device: None, ..facts() };
    expect(&one(all(&facts, &args()), "interface"), Verdict::Fail, "nosuch0");
}

#[test]
fn queues_that_are_not_there_fail_with_the_count() {
    let named = |text: &str| units::queues(text).unwrap();
    expect(&queues(&veth(), &device(), Some(&named("7"))), Verdict::Fail, "1 queue");
    let four = Device { channels: Some(Channels { combined: 4, ..Channels::default() }), ..device() };
    expect(&queues(&veth(), &four, Some(&named("2-4"))), Verdict::Fail, "4 queues");
    expect(&queues(&veth(), &four, Some(&named("3"))), Verdict::Warn, "answers must arrive there");
    expect(&queues(&veth(), &four, Some(&named("0-3"))), Verdict::Ok, "all would be used");
    expect(&queues(&veth(), &four, None), Verdict::Ok, "4 queues");
    // Without channels the allocated queues are all that is known.
    let link = Link { rx_queues: 8, tx_queues: 2, ..veth() };
    expect(&queues(&link, &Device::default(), Some(&named("2"))), Verdict::Fail, "2 queues");
    expect(&queues(&link, &Device::default(), None), Verdict::Fail, "rx 2 tx 2");
}

#[test]
fn a_program_in_the_way_is_named() {
    let program = XdpProgram { id: 42, name: Some("filter".to_owned()), mode: XdpMode::Native };
    let check = program_of(Some(program));
    expect(&check, Verdict::Fail, "42 'filter' (native)");
    expect(&program_of(None), Verdict::Ok, "no XDP program");
}

fn program_of(xdp: Option<XdpProgram>) -> Check {
    program(&Link { xdp, ..veth() })
}

#[test]
fn drivers_are_judged_by_what_was_asked_of_them() {
    let with = |xdp| Device { xdp, ..device() };
    let none = with(Some(XdpFeatures::default()));
    let zero =
        with(Some(XdpFeatures { basic: true, redirect: true, zero_copy: true, ..XdpFeatures::default() }));
    expect(&native(&veth(), &none, false), Verdict::Fail, "--generic");
    expect(&native(&veth(), &none, true), Verdict::Warn, "generic");
    expect(&native(&veth(), &with(None), false), Verdict::Warn, "not known");
    expect(&zero_copy(&none, ModeArg::ZeroCopy), Verdict::Fail, "--mode");
    expect(&zero_copy(&none, ModeArg::Auto), Verdict::Ok, "copied");
    expect(&zero_copy(&zero, ModeArg::ZeroCopy), Verdict::Ok, "has it");
    expect(&zero_copy(&zero, ModeArg::Copy), Verdict::Warn, "auto");
}

#[test]
fn veth_with_segmentation_offload_is_slow_and_says_why() {
    let on = Device { offloads: Some(Offloads { tso: true, ..Offloads::default() }), ..device() };
    expect(&offloads(&veth(), &on).unwrap(), Verdict::Warn, "ethtool -K veth0 tso off");
    let physical = Link { kind: None, driver: Some("ice".to_owned()), ..veth() };
    expect(&offloads(&physical, &on).unwrap(), Verdict::Ok, "TSO on");
}

#[test]
fn jumbo_needs_multi_buffer() {
    let jumbo = Link { mtu: 9000, ..veth() };
    expect(&mtu(&jumbo, &device()), Verdict::Ok, "multi-buffer");
    let without = Device { xdp: Some(XdpFeatures::default()), ..device() };
    expect(&mtu(&jumbo, &without), Verdict::Warn, "mtu 1500");
}

#[test]
fn checks_are_described_for_programs_too() {
    let described = queues(&veth(), &device(), Some(&units::queues("7").unwrap())).describe();
    assert_eq!((&described["name"], &described["verdict"]), (&json!("queues"), &json!("fail")));
    assert!(described["remedy"].as_str().unwrap().contains("--queues"));
    assert_eq!(program_of(None).describe()["remedy"], Value::Null);
}
