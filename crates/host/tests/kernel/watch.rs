//! Watching a path while the network changes under it.

use std::{
    net::UdpSocket,
    time::{Duration, Instant},
};

use xsend_host::{Change, DeviceWatch, Link, PathWatch, Query, Queues, Route, WatchError, resolve};
use xsend_wire::Mac;

use crate::lab::{FAR, FAR_IF, FAR_MAC, Lab, NEAR, NEAR_IF, NEAR6, run, skip};

/// Long enough for any change to be told; never waited for when all is well.
const PATIENT: Duration = Duration::from_secs(60);

fn watch(lab: &Lab) -> PathWatch {
    lab.inside(|| {
        let path = resolve(&Query { timeout: PATIENT, ..Query::to(FAR) }).unwrap();
        PathWatch::new(&path).unwrap()
    })
}

/// Polls until `expected` is told.
pub fn await_change(mut poll: impl FnMut(Duration) -> Result<Vec<Change>, WatchError>, expected: Change) {
    let deadline = Instant::now() + PATIENT;
    let mut told = Vec::new();
    while Instant::now() < deadline {
        told.extend(poll(deadline.saturating_duration_since(Instant::now())).unwrap());
        if told.contains(&expected) {
            return;
        }
    }
    panic!("{expected:?} was not told, but {told:?}");
}

#[test]
fn nothing_is_told_while_nothing_changes() {
    let Some(lab) = Lab::build() else { return };
    let mut watch = watch(&lab);
    assert_eq!(watch.poll(Duration::ZERO).unwrap(), []);
    assert_eq!(watch.poll(Duration::from_millis(50)).unwrap(), []);
    let state = watch.state();
    assert_eq!((state.next_hop_mac, state.mtu), (FAR_MAC, 1500));
    assert!(state.reachable && state.link.present && state.link.up && state.link.running);
}

#[test]
fn a_next_hop_that_changes_its_mac_is_told() {
    let Some(lab) = Lab::build() else { return };
    lab.hasten();
    let mut watch = watch(&lab);
    assert_eq!(watch.poll(Duration::ZERO).unwrap(), []);
    let moved = Mac([2, 0x77, 0, 0, 0, 0x22]);
    lab.far(&format!("link set {FAR_IF} address {moved}"));
    lab.opposite(|| {
        // To say anything it must first ask who we are, and that tells who it is.
        let socket = UdpSocket::bind((FAR, 0)).unwrap();
        socket.send_to(b"?", (NEAR, 9)).unwrap();
    });
    await_change(|wait| watch.poll(wait), Change::NextHopMac(moved));
    assert_eq!(watch.state().next_hop_mac, moved);
}

#[test]
fn a_change_of_mac_is_found_out_even_if_the_next_hop_says_nothing() {
    let Some(lab) = Lab::build() else { return };
    lab.hasten();
    let mut watch = watch(&lab);
    let moved = Mac([2, 0x77, 0, 0, 0, 0x22]);
    lab.far(&format!("link set {FAR_IF} address {moved}"));
    await_change(|wait| watch.poll(wait), Change::NextHopMac(moved));
}

#[test]
fn a_next_hop_that_dies_and_comes_back_is_told() {
    let Some(lab) = Lab::build() else { return };
    lab.hasten();
    let mut watch = watch(&lab);
    lab.far(&format!("addr flush dev {FAR_IF}"));
    await_change(|wait| watch.poll(wait), Change::Reachable(false));
    assert_eq!(watch.state().next_hop_mac, FAR_MAC, "the last one known");
    lab.far(&format!("addr add {FAR}/24 dev {FAR_IF}"));
    await_change(|wait| watch.poll(wait), Change::Reachable(true));
}

#[test]
fn an_entry_that_is_removed_is_resolved_again() {
    let Some(lab) = Lab::build() else { return };
    let mut watch = watch(&lab);
    assert_eq!(watch.poll(Duration::ZERO).unwrap(), []);
    lab.near(&format!("neigh del {FAR} dev {NEAR_IF}"));
    await_change(|wait| watch.poll(wait), Change::NextHopKnown(false));
    await_change(|wait| watch.poll(wait), Change::NextHopKnown(true));
    let state = watch.state();
    assert_eq!((state.next_hop_mac, state.reachable), (FAR_MAC, true), "it is the same neighbour");
    assert!(lab.neighbour().contains(&FAR_MAC.to_string()), "{}", lab.neighbour());
}

#[test]
fn a_route_that_leads_elsewhere_is_told() {
    let Some(lab) = Lab::build() else { return };
    let remote = std::net::IpAddr::from([192, 0, 2, 9]);
    lab.near(&format!("route add 192.0.2.0/24 via {FAR}"));
    let mut watch = lab.inside(|| {
        let path = resolve(&Query { timeout: PATIENT, ..Query::to(remote) }).unwrap();
        PathWatch::new(&path).unwrap()
    });
    assert_eq!(watch.poll(Duration::ZERO).unwrap(), []);
    let egress = lab.inside(|| Link::by_name(NEAR_IF)).unwrap().index;
    lab.near("route add 192.0.2.0/28 via 10.77.0.3");
    let elsewhere = Route { egress, next_hop: std::net::IpAddr::from([10, 77, 0, 3]) };
    await_change(|wait| watch.poll(wait), Change::Route(Some(elsewhere)));
    lab.near("route del 192.0.2.0/28");
    await_change(|wait| watch.poll(wait), Change::Route(Some(Route { egress, next_hop: FAR })));
    lab.near(&format!("route change 192.0.2.0/24 via {FAR} mtu 1300"));
    await_change(|wait| watch.poll(wait), Change::Mtu(1300));
    lab.near("route replace unreachable 192.0.2.0/24");
    await_change(|wait| watch.poll(wait), Change::Route(None));
}

#[test]
fn a_source_that_is_removed_is_told() {
    let Some(lab) = Lab::build() else { return };
    let mut watch = watch(&lab);
    lab.near("addr add 10.99.0.1/24 dev lo");
    lab.near(&format!("addr del {NEAR}/24 dev {NEAR_IF}"));
    await_change(|wait| watch.poll(wait), Change::Source(false));
    lab.near(&format!("addr add {NEAR}/24 dev {NEAR_IF}"));
    await_change(|wait| watch.poll(wait), Change::Source(true));
}

#[test]
fn a_device_tells_of_its_state_its_queues_and_its_addresses() {
    let Some(lab) = Lab::build() else { return };
    let mut watch = lab.inside(|| DeviceWatch::new(&Link::by_name(NEAR_IF).unwrap()).unwrap());
    assert_eq!(watch.poll(Duration::ZERO).unwrap(), []);
    assert!(watch.addresses().contains(&NEAR) && watch.addresses().contains(&NEAR6));
    let added = std::net::IpAddr::from([10, 77, 0, 50]);
    lab.near(&format!("addr add {added}/24 dev {NEAR_IF}"));
    await_change(|wait| watch.poll(wait), Change::Address { address: added, present: true });
    lab.near(&format!("addr del {NEAR6}/64 dev {NEAR_IF}"));
    await_change(|wait| watch.poll(wait), Change::Address { address: NEAR6, present: false });
    lab.near(&format!("link set {NEAR_IF} mtu 1400"));
    await_change(|wait| watch.poll(wait), Change::Mtu(1400));
    lab.far(&format!("link set {FAR_IF} down"));
    await_change(|wait| watch.poll(wait), Change::Running(false));
    lab.near(&format!("link set {NEAR_IF} down"));
    await_change(|wait| watch.poll(wait), Change::Up(false));
    lab.near(&format!("link set {NEAR_IF} up"));
    await_change(|wait| watch.poll(wait), Change::Up(true));
    lab.near(&format!("link del {NEAR_IF}"));
    await_change(|wait| watch.poll(wait), Change::LinkGone);
    assert!(!watch.state().link.present);
}

#[test]
fn a_changed_number_of_queues_is_told_at_once() {
    let Some(lab) = Lab::build() else { return };
    let set = |rx: u32| lab.inside(|| run("ethtool", &["-L", NEAR_IF, "rx", &rx.to_string(), "tx", "1"]));
    if let Err(error) = set(1) {
        skip(&format!("needs ethtool: {error}"));
        return;
    }
    let mut watch = lab.inside(|| DeviceWatch::new(&Link::by_name(NEAR_IF).unwrap()).unwrap());
    assert_eq!(watch.poll(Duration::ZERO).unwrap(), []);
    assert_eq!(watch.state().queues, Queues { rx: 1, tx: 1 });
    set(2).unwrap();
    // Without waiting: it was told, not looked for.
    assert_eq!(watch.poll(Duration::ZERO).unwrap(), [Change::Queues(Queues { rx: 2, tx: 1 })]);
}

#[test]
fn changes_of_mtu_and_link_state_are_told() {
    let Some(lab) = Lab::build() else { return };
    let mut watch = watch(&lab);
    lab.near(&format!("link set {NEAR_IF} mtu 1400"));
    await_change(|wait| watch.poll(wait), Change::Mtu(1400));
    lab.far(&format!("link set {FAR_IF} down"));
    await_change(|wait| watch.poll(wait), Change::Running(false));
    assert!(watch.state().link.up, "only the carrier is gone");
    lab.far(&format!("link set {FAR_IF} up"));
    await_change(|wait| watch.poll(wait), Change::Running(true));
    lab.near(&format!("link set {NEAR_IF} down"));
    await_change(|wait| watch.poll(wait), Change::Up(false));
    lab.near(&format!("link set {NEAR_IF} up"));
    await_change(|wait| watch.poll(wait), Change::Up(true));
    let renumbered = Mac([2, 0x77, 0, 0, 0, 0x11]);
    lab.near(&format!("link set {NEAR_IF} address {renumbered}"));
    await_change(|wait| watch.poll(wait), Change::Mac(renumbered));
    lab.near(&format!("link del {NEAR_IF}"));
    await_change(|wait| watch.poll(wait), Change::LinkGone);
    assert_eq!(watch.poll(Duration::ZERO).unwrap(), [], "and that is the end of it");
}

#[test]
fn what_changed_before_the_watch_began_is_told_first() {
    let Some(lab) = Lab::build() else { return };
    let path = lab.inside(|| resolve(&Query { timeout: PATIENT, ..Query::to(FAR) })).unwrap();
    lab.near(&format!("link set {NEAR_IF} mtu 1350"));
    let mut watch = lab.inside(|| PathWatch::new(&path)).unwrap();
    assert_eq!(watch.poll(Duration::ZERO).unwrap(), [Change::Mtu(1350)]);
}

#[test]
fn changes_elsewhere_are_not_told() {
    let Some(lab) = Lab::build() else { return };
    let mut watch = watch(&lab);
    assert_eq!(watch.poll(Duration::ZERO).unwrap(), []);
    lab.near("link add other0 type veth peer name other1");
    lab.near("link set other0 up");
    lab.near("addr add 10.78.0.1/24 dev other0");
    lab.near(&format!("neigh add {FAR} lladdr 02:00:00:00:be:ef dev other0"));
    lab.near("link set other0 mtu 1234");
    assert_eq!(watch.poll(Duration::from_millis(50)).unwrap(), []);
    lab.near("link del other0");
    assert_eq!(watch.poll(Duration::from_millis(50)).unwrap(), []);
}

#[test]
fn an_entry_that_was_made_is_removed_and_one_that_was_found_stays() {
    let Some(lab) = Lab::build() else { return };
    assert_eq!(lab.neighbour(), "");
    let mut made = watch(&lab);
    made.poll(Duration::ZERO).unwrap();
    assert!(lab.neighbour().contains(&FAR_MAC.to_string()));
    drop(made);
    assert_eq!(lab.neighbour(), "", "the table is as found");

    lab.near(&format!("neigh add {FAR} lladdr {FAR_MAC} nud stale dev {NEAR_IF}"));
    let mut found = watch(&lab);
    found.poll(Duration::ZERO).unwrap();
    drop(found);
    assert!(lab.neighbour().contains(&FAR_MAC.to_string()), "{}", lab.neighbour());
}

/// An entry of the watch's own making, then taken over by somebody else, outlives a refresh and the watch's end.
fn left_alone(setting: &str, shown_as: &str) {
    let Some(lab) = Lab::build() else { return };
    lab.hasten();
    let mut watch = watch(&lab);
    lab.near(&format!("neigh replace {FAR} {setting} dev {NEAR_IF}"));
    let refreshed = Instant::now() + Duration::from_secs(3);
    while Instant::now() < refreshed {
        watch.poll(refreshed.saturating_duration_since(Instant::now())).unwrap();
    }
    drop(watch);
    let shown = lab.neighbour();
    assert!(shown.contains(shown_as), "{shown:?}");
}

#[test]
fn a_permanent_entry_is_left_alone() {
    left_alone(&format!("lladdr {FAR_MAC} nud permanent"), "PERMANENT");
}

#[test]
fn an_entry_learnt_elsewhere_is_left_alone() {
    left_alone(&format!("lladdr {FAR_MAC} nud stale extern_learn"), "extern_learn");
}

#[test]
fn a_managed_entry_is_left_alone() {
    left_alone("managed", "managed");
}
