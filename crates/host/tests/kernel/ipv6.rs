//! IPv6: ways, neighbours and what becomes of them, in namespaces of a real kernel.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use xsend_host::{
    Change, LinkError, Path, PathWatch, Query, Refusal, ResolveError, Route, resolve, resolve_back,
};
use xsend_wire::Mac;

use crate::{
    lab::{FAR_IF, FAR_LOCAL, FAR_MAC, FAR6, Lab, NEAR, NEAR_IF, NEAR_LOCAL, NEAR_MAC, NEAR6},
    watch::await_change,
};

/// Long enough for whatever answers.
const PATIENT: Duration = Duration::from_secs(60);
const IMPATIENT: Duration = Duration::from_millis(200);

fn remote() -> IpAddr {
    "2001:db8::9".parse().unwrap()
}

fn to(destination: IpAddr) -> Query<'static> {
    Query { timeout: PATIENT, ..Query::to(destination) }
}

fn watch(lab: &Lab, destination: IpAddr) -> PathWatch {
    lab.inside(|| PathWatch::new(&resolve(&to(destination)).unwrap()).unwrap())
}

#[test]
fn an_unknown_neighbour_on_the_link_is_resolved() {
    let Some(lab) = Lab::build() else { return };
    assert_eq!(lab.neighbour_at(FAR6), "");
    let path = lab.inside(|| resolve(&to(FAR6))).unwrap();
    let Path { destination, link, device, tags, source, next_hop, next_hop_mac, mtu, .. } = &path;
    assert_eq!((*destination, *next_hop, *next_hop_mac), (FAR6, FAR6, FAR_MAC));
    assert_eq!((link.name.as_str(), link.mac, *source), (NEAR_IF, NEAR_MAC, NEAR6));
    assert_eq!((device, tags.as_slice(), *mtu), (link, &[][..], 1500));
    assert!(path.neighbour_created && !path.interface_chosen);
    assert_eq!(path.local(5), SocketAddr::new(NEAR6, 5));
    let again = lab.inside(|| resolve(&to(FAR6))).unwrap();
    assert!(!again.neighbour_created, "now it is known");
    // An IPv4 address in IPv6's clothes.
    let mapped = "::ffff:10.77.0.2".parse::<IpAddr>().unwrap();
    assert_eq!(lab.inside(|| resolve(&to(mapped))).unwrap().source, NEAR);
}

#[test]
fn a_route_through_a_link_local_gateway_gives_its_mac_source_and_mtu() {
    let Some(lab) = Lab::build() else { return };
    lab.near(&format!("-6 route add 2001:db8::/32 via {FAR_LOCAL} dev {NEAR_IF} mtu 1400"));
    let path = lab.inside(|| resolve(&to(remote()))).unwrap();
    assert_eq!((path.next_hop, path.next_hop_mac), (FAR_LOCAL, FAR_MAC));
    assert_eq!((path.source, path.mtu), (NEAR6, 1400));
    lab.inside(|| std::fs::write(format!("/proc/sys/net/ipv6/conf/{NEAR_IF}/mtu"), "1300")).unwrap();
    let path = lab.inside(|| resolve(&to(remote()))).unwrap();
    assert_eq!((path.mtu, path.link.mtu), (1300, 1500), "IPv6's own, when smaller");
    lab.near(&format!("addr add fd77::99/64 dev {NEAR_IF} nodad"));
    let chosen = "fd77::99".parse().unwrap();
    let path = lab.inside(|| resolve(&Query { source: Some(chosen), ..to(remote()) })).unwrap();
    assert_eq!(path.source, chosen, "the caller's choice");
    let error = lab.inside(|| resolve(&Query { source: Some(FAR6), ..to(remote()) })).unwrap_err();
    assert!(matches!(error, ResolveError::SourceNotLocal { .. }), "{error}");
    assert!(error.to_string().contains(&NEAR6.to_string()), "{error}");
}

#[test]
fn the_way_back_takes_the_senders_mac_at_its_word_and_the_watch_mends_it() {
    let Some(lab) = Lab::build() else { return };
    let believed = Mac([2, 0x77, 0, 0, 0, 0x99]);
    let silent: IpAddr = "fd77::3".parse().unwrap();
    let path = lab.inside(|| resolve_back(&to(silent), believed)).unwrap();
    assert_eq!((path.next_hop_mac, path.source), (believed, NEAR6));
    assert_eq!(lab.neighbour_at(silent), "", "nobody was asked");
    let path = lab.inside(|| resolve_back(&to(FAR6), believed)).unwrap();
    let mut watch = lab.inside(|| PathWatch::new(&path).unwrap());
    await_change(|wait| watch.poll(wait), Change::NextHopMac(FAR_MAC));
    drop(watch);
    assert_eq!(lab.neighbour_at(FAR6), "", "the table is as found");
}

#[test]
fn an_ipv4_destination_may_have_an_ipv6_gateway() {
    let Some(lab) = Lab::build() else { return };
    lab.near(&format!("route add 203.0.113.0/24 via inet6 {FAR_LOCAL} dev {NEAR_IF}"));
    let destination = IpAddr::from([203, 0, 113, 1]);
    let path = lab.inside(|| resolve(&to(destination))).unwrap();
    assert_eq!((path.next_hop, path.next_hop_mac, path.source), (FAR_LOCAL, FAR_MAC, NEAR));
    let mut watch = lab.inside(|| PathWatch::new(&path)).unwrap();
    assert_eq!(watch.poll(Duration::ZERO).unwrap(), []);
}

#[test]
fn a_link_local_destination_is_reached_through_the_interface_it_names() {
    let Some(lab) = Lab::build() else { return };
    let index = lab.inside(|| xsend_host::Link::by_name(NEAR_IF)).unwrap().index;
    for zone in [NEAR_IF.to_owned(), index.to_string()] {
        let query = Query { timeout: PATIENT, interface: Some(&zone), ..Query::to(FAR_LOCAL) };
        let path = lab.inside(|| resolve(&query)).unwrap();
        assert_eq!((path.source, path.next_hop_mac), (NEAR_LOCAL, FAR_MAC));
        assert!(path.interface_chosen);
        match path.remote(80) {
            SocketAddr::V6(end) => assert_eq!((end.scope_id(), end.port()), (index, 80)),
            SocketAddr::V4(end) => panic!("{end}"),
        }
    }
    let error = lab.inside(|| resolve(&to(FAR_LOCAL))).unwrap_err();
    assert!(matches!(error, ResolveError::NeedsInterface { .. }), "{error}");
    let nowhere = Query { interface: Some("eth9"), ..Query::to(FAR_LOCAL) };
    let error = lab.inside(|| resolve(&nowhere)).unwrap_err();
    assert!(matches!(error, ResolveError::Link(LinkError::NotFound { .. })), "{error}");
}

#[test]
fn destinations_without_a_way_are_told_apart() {
    let Some(lab) = Lab::build() else { return };
    lab.near("-6 route add unreachable 2001:db8:1::1");
    lab.near("-6 route add blackhole 2001:db8:1::2");
    lab.near("-6 route add prohibit 2001:db8:1::3");
    let refuse = |query: Query<'static>| lab.inside(move || resolve(&query)).unwrap_err();
    let error = refuse(to(remote()));
    assert!(matches!(error, ResolveError::NoRoute { interface: None, .. }), "{error}");
    for (last, expected) in [(1, Refusal::Unreachable), (2, Refusal::Blackhole), (3, Refusal::Prohibited)] {
        match refuse(to(format!("2001:db8:1::{last}").parse().unwrap())) {
            ResolveError::Refused { refusal, .. } => assert_eq!(refusal, expected),
            other => panic!("{other}"),
        }
    }
    let error = refuse(to(NEAR6));
    assert!(matches!(error, ResolveError::ThisMachine { .. }), "{error}");
    lab.near("link add other0 type veth peer name other1");
    lab.near("link set other0 up");
    lab.near("link set other1 up");
    for source in [None, Some(NEAR6)] {
        let error = refuse(Query { interface: Some("other0"), source, ..to(FAR6) });
        assert!(matches!(error, ResolveError::NoRoute { interface: Some(_), .. }), "{error}");
    }
}

#[test]
fn a_silent_neighbour_is_an_error_after_the_deadline_and_leaves_no_entry() {
    let Some(lab) = Lab::build() else { return };
    let silent: IpAddr = "fd77::3".parse().unwrap();
    let started = Instant::now();
    let error = lab.inside(|| resolve(&Query { timeout: IMPATIENT, ..to(silent) })).unwrap_err();
    assert!(started.elapsed() >= IMPATIENT, "it was waited for");
    assert!(matches!(error, ResolveError::NoNeighbour { gateway: false, .. }), "{error}");
    assert_eq!(lab.neighbour_at(silent), "", "the table is as found");
}

#[test]
fn a_neighbour_is_kept_known_and_its_entry_removed_in_the_end() {
    let Some(lab) = Lab::build() else { return };
    lab.hasten();
    let mut watch = watch(&lab, FAR6);
    // Long enough for it to have gone stale, and been verified, many times over.
    let until = Instant::now() + Duration::from_secs(5);
    let mut probed = false;
    while Instant::now() < until {
        assert_eq!(watch.poll(Duration::from_millis(20)).unwrap(), [], "nothing changes");
        let entry = lab.neighbour_at(FAR6);
        assert!(entry.contains(&FAR_MAC.to_string()), "{entry}");
        probed |= entry.contains("STALE");
        if probed && entry.contains("REACHABLE") {
            break;
        }
    }
    assert!(Instant::now() < until, "it is never verified again: {}", lab.neighbour_at(FAR6));
    drop(watch);
    assert_eq!(lab.neighbour_at(FAR6), "", "the table is as found");
}

#[test]
fn a_change_of_mac_is_found_out_even_if_the_next_hop_says_nothing() {
    let Some(lab) = Lab::build() else { return };
    lab.hasten();
    let mut watch = watch(&lab, FAR6);
    let moved = Mac([2, 0x77, 0, 0, 0, 0x22]);
    lab.far(&format!("link set {FAR_IF} address {moved}"));
    await_change(|wait| watch.poll(wait), Change::NextHopMac(moved));
}

#[test]
fn a_next_hop_that_dies_and_comes_back_is_told() {
    let Some(lab) = Lab::build() else { return };
    lab.hasten();
    let mut watch = watch(&lab, FAR6);
    lab.far(&format!("-6 addr flush dev {FAR_IF}"));
    await_change(|wait| watch.poll(wait), Change::Reachable(false));
    lab.far_ipv6();
    await_change(|wait| watch.poll(wait), Change::Reachable(true));
    lab.opposite(|| UdpSocket::bind((FAR6, 0)).unwrap());
}

#[test]
fn a_source_that_is_removed_and_a_route_that_changes_are_told() {
    let Some(lab) = Lab::build() else { return };
    lab.near(&format!("-6 route add 2001:db8::/32 via {FAR_LOCAL} dev {NEAR_IF}"));
    let mut watch = watch(&lab, remote());
    assert_eq!(watch.poll(Duration::ZERO).unwrap(), []);
    let egress = lab.inside(|| xsend_host::Link::by_name(NEAR_IF)).unwrap().index;
    lab.near(&format!("-6 route add 2001:db8::/48 via {FAR6} dev {NEAR_IF}"));
    await_change(|wait| watch.poll(wait), Change::Route(Some(Route { egress, next_hop: FAR6 })));
    lab.near("-6 route del 2001:db8::/48");
    await_change(|wait| watch.poll(wait), Change::Route(Some(Route { egress, next_hop: FAR_LOCAL })));
    lab.near("-6 route del 2001:db8::/32");
    await_change(|wait| watch.poll(wait), Change::Route(None));
    lab.near(&format!("addr del {NEAR6}/64 dev {NEAR_IF}"));
    await_change(|wait| watch.poll(wait), Change::Source(false));
    lab.near(&format!("addr add {NEAR6}/64 dev {NEAR_IF} nodad"));
    await_change(|wait| watch.poll(wait), Change::Source(true));
}
