//! Finding the way to a destination in namespaces of a real kernel.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use xsend_host::{LinkError, Path, Query, Refusal, ResolveError, resolve};

use crate::lab::{FAR, FAR_IF, FAR_MAC, Lab, NEAR, NEAR_IF, NEAR_MAC};

const REMOTE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
/// Long enough for whatever answers.
const PATIENT: Duration = Duration::from_secs(30);
const IMPATIENT: Duration = Duration::from_millis(200);

fn to(destination: IpAddr) -> Query<'static> {
    Query { timeout: PATIENT, ..Query::to(destination) }
}

#[test]
fn an_unknown_neighbour_on_the_link_is_resolved() {
    let Some(lab) = Lab::build() else { return };
    assert_eq!(lab.neighbour(), "");
    let path = lab.inside(|| resolve(&to(FAR))).unwrap();
    let Path { destination, link, source, next_hop, next_hop_mac, mtu, neighbour_created, .. } = path;
    assert_eq!((destination, next_hop, next_hop_mac), (FAR, FAR, FAR_MAC));
    assert_eq!((link.name.as_str(), link.mac, source), (NEAR_IF, NEAR_MAC, NEAR));
    assert_eq!(mtu, 1500);
    assert!(neighbour_created);
    let again = lab.inside(|| resolve(&to(FAR))).unwrap();
    assert!(!again.neighbour_created, "now it is known");
}

#[test]
fn a_route_through_a_gateway_gives_its_mac_source_and_mtu() {
    let Some(lab) = Lab::build() else { return };
    lab.near(&format!("addr add 10.77.0.99/24 dev {NEAR_IF}"));
    lab.near(&format!("route add 192.0.2.0/24 via {FAR} mtu 1400 src 10.77.0.99"));
    let path = lab.inside(|| resolve(&to(REMOTE))).unwrap();
    assert_eq!((path.destination, path.next_hop, path.next_hop_mac), (REMOTE, FAR, FAR_MAC));
    assert_eq!(path.source, IpAddr::from([10, 77, 0, 99]), "the route's own choice");
    assert_eq!(path.mtu, 1400);
    let path = lab.inside(|| resolve(&Query { source: Some(NEAR), ..to(REMOTE) })).unwrap();
    assert_eq!(path.source, NEAR, "the caller's choice");
    lab.near(&format!("link set {NEAR_IF} mtu 1300"));
    let path = lab.inside(|| resolve(&to(REMOTE))).unwrap();
    assert_eq!(path.mtu, 1300, "the interface's, when smaller");
}

#[test]
fn a_source_that_is_not_ours_is_refused_with_those_that_are() {
    let Some(lab) = Lab::build() else { return };
    let stranger = IpAddr::from([10, 77, 0, 50]);
    let error = lab.inside(|| resolve(&Query { source: Some(stranger), ..to(FAR) })).unwrap_err();
    assert!(matches!(error, ResolveError::SourceNotLocal { .. }), "{error}");
    assert_eq!(error.to_string(), format!("{stranger} is not an address of this machine; there are: {NEAR}"));
}

#[test]
fn a_chosen_interface_overrides_the_better_route() {
    let Some(lab) = Lab::build() else { return };
    lab.near("link add other0 type veth peer name other1");
    lab.near("addr add 10.78.0.1/24 dev other0");
    lab.near("link set other0 up");
    lab.near("link set other1 up");
    lab.near(&format!("route add 192.0.2.0/24 via {FAR} metric 10"));
    lab.near("route add 192.0.2.0/24 via 10.78.0.2 metric 20");
    lab.near("neigh add 10.78.0.2 lladdr 02:78:00:00:00:02 dev other0");
    assert_eq!(lab.inside(|| resolve(&to(REMOTE))).unwrap().link.name, NEAR_IF);
    let path = lab.inside(|| resolve(&Query { interface: Some("other0"), ..to(REMOTE) })).unwrap();
    assert_eq!((path.link.name.as_str(), path.source), ("other0", IpAddr::from([10, 78, 0, 1])));
    assert_eq!(path.next_hop, IpAddr::from([10, 78, 0, 2]));
    // The kernel itself would now take the far end to be on the link of the other interface.
    let error = lab.inside(|| resolve(&Query { interface: Some("other0"), ..to(FAR) })).unwrap_err();
    match &error {
        ResolveError::NoRoute { destination, interface } => {
            assert_eq!((*destination, interface.as_deref()), (FAR, Some("other0")));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_missing_interface_is_refused_with_those_that_exist() {
    let Some(lab) = Lab::build() else { return };
    let error = lab.inside(|| resolve(&Query { interface: Some("eth9"), ..to(FAR) })).unwrap_err();
    assert!(matches!(error, ResolveError::Link(LinkError::NotFound { .. })), "{error}");
    assert_eq!(error.to_string(), format!("there is no interface \"eth9\"; there are: lo, {NEAR_IF}"));
}

#[test]
fn destinations_without_a_way_are_told_apart() {
    let Some(lab) = Lab::build() else { return };
    lab.near("route add unreachable 198.51.100.1");
    lab.near("route add blackhole 198.51.100.2");
    lab.near("route add prohibit 198.51.100.3");
    let refuse = |query: Query<'static>| lab.inside(move || resolve(&query)).unwrap_err();
    let error = refuse(to(REMOTE));
    assert!(matches!(error, ResolveError::NoRoute { interface: None, .. }), "{error}");
    for (last, expected) in [(1, Refusal::Unreachable), (2, Refusal::Blackhole), (3, Refusal::Prohibited)] {
        let query = to(IpAddr::from([198, 51, 100, last]));
        for query in [query, Query { interface: Some(NEAR_IF), ..query }] {
            match refuse(query) {
                ResolveError::Refused { refusal, .. } => assert_eq!(refusal, expected),
                other => panic!("{other}"),
            }
        }
    }
    let error = refuse(to(NEAR));
    assert!(matches!(error, ResolveError::ThisMachine { .. }), "{error}");
    let error = refuse(to(IpAddr::from([10, 77, 0, 255])));
    assert!(matches!(error, ResolveError::NotUnicast { .. }), "{error}");
    let error = refuse(Query { interface: Some("lo"), ..to(FAR) });
    assert!(!matches!(error, ResolveError::NoNeighbour { .. } | ResolveError::Netlink(_)), "{error}");
}

#[test]
fn a_silent_neighbour_is_an_error_after_the_deadline_and_leaves_no_entry() {
    let Some(lab) = Lab::build() else { return };
    let silent = IpAddr::from([10, 77, 0, 3]);
    let started = Instant::now();
    let error = lab.inside(|| resolve(&Query { timeout: IMPATIENT, ..to(silent) })).unwrap_err();
    assert!(started.elapsed() >= IMPATIENT, "it was waited for");
    assert_eq!(
        error.to_string(),
        format!(
            "no answer from neighbour {silent} on {NEAR_IF} in 0.2 s: is the address right and the host up?"
        )
    );
    assert_eq!(lab.near("-4 neigh show nud all"), "", "the table is as found");
    lab.near(&format!("route add 192.0.2.0/24 via {silent}"));
    let error = lab.inside(|| resolve(&Query { timeout: IMPATIENT, ..to(REMOTE) })).unwrap_err();
    assert!(error.to_string().contains(&format!("gateway {silent}")), "{error}");
}

#[test]
fn a_neighbour_that_comes_up_late_is_still_found() {
    let Some(lab) = Lab::build() else { return };
    lab.hasten();
    lab.far(&format!("addr flush dev {}", FAR_IF));
    let path = std::thread::scope(|scope| {
        let finder = scope.spawn(|| lab.inside(|| resolve(&to(FAR))));
        while !lab.neighbour().contains("FAILED") {
            assert!(!finder.is_finished(), "nobody is there to answer");
        }
        lab.far(&format!("addr add {FAR}/24 dev {}", FAR_IF));
        finder.join().unwrap()
    });
    assert_eq!(path.unwrap().next_hop_mac, FAR_MAC);
}

#[test]
fn a_stale_entry_is_verified_and_a_wrong_one_replaced() {
    let Some(lab) = Lab::build() else { return };
    lab.hasten();
    lab.near(&format!("neigh add {FAR} lladdr {FAR_MAC} nud stale dev {NEAR_IF}"));
    let path = lab.inside(|| resolve(&to(FAR))).unwrap();
    assert_eq!(path.next_hop_mac, FAR_MAC);
    assert!(!path.neighbour_created);
    lab.near(&format!("neigh replace {FAR} lladdr 02:00:00:00:be:ef nud stale dev {NEAR_IF}"));
    assert_eq!(lab.inside(|| resolve(&to(FAR))).unwrap().next_hop_mac, FAR_MAC);
}

#[test]
fn a_permanent_entry_is_believed_and_stays() {
    let Some(lab) = Lab::build() else { return };
    lab.near(&format!("neigh add {FAR} lladdr 02:00:00:00:be:ef nud permanent dev {NEAR_IF}"));
    let path = lab.inside(|| resolve(&to(FAR))).unwrap();
    assert_eq!(path.next_hop_mac.to_string(), "02:00:00:00:be:ef");
    assert!(lab.neighbour().contains("PERMANENT"), "{}", lab.neighbour());
}

#[test]
fn an_interface_that_cannot_send_is_refused() {
    let Some(lab) = Lab::build() else { return };
    lab.far(&format!("link set {} down", FAR_IF));
    let chosen = Query { interface: Some(NEAR_IF), timeout: IMPATIENT, ..to(FAR) };
    let error = lab.inside(|| resolve(&chosen)).unwrap_err();
    assert!(matches!(error, ResolveError::LinkDown { no_carrier: true, .. }), "{error}");
    lab.near(&format!("link set {NEAR_IF} down"));
    let error = lab.inside(|| resolve(&chosen)).unwrap_err();
    assert!(matches!(error, ResolveError::LinkDown { no_carrier: false, .. }), "{error}");
    assert_eq!(error.to_string(), format!("{NEAR_IF} is down: `ip link set {NEAR_IF} up`"));
}
