//! VLAN sub-interfaces of a real kernel. The kernel needs 802.1Q (`CONFIG_VLAN_8021Q`).

use std::{io::Write, time::Duration};

use xsend_host::{Link, PathWatch, Query, ResolveError, Underlay, UnderlayError, resolve};

use crate::lab::{FAR_IF, FAR_MAC, Lab, NEAR_IF, run};

/// Adds a VLAN to both ends; false, after saying so, if this kernel has none.
fn add(lab: &Lab, below: (&str, &str), id: u16, names: (&str, &str)) -> bool {
    let add = |name: &str, below: &str| {
        run("ip", &["link", "add", "link", below, "name", name, "type", "vlan", "id", &id.to_string()])
    };
    let near = lab.inside(|| add(names.0, below.0));
    if let Err(error) = &near
        && (error.contains("Unknown device type") || error.contains("not supported"))
    {
        let _ = writeln!(std::io::stderr(), "SKIPPED: needs a kernel with 802.1Q VLANs");
        return false;
    }
    near.unwrap();
    lab.opposite(|| add(names.1, below.1)).unwrap();
    lab.near(&format!("link set {} up", names.0));
    lab.far(&format!("link set {} up", names.1));
    true
}

#[test]
fn a_way_through_a_vlan_is_the_device_below_and_its_tag() {
    let Some(lab) = Lab::build() else { return };
    if !add(&lab, (NEAR_IF, FAR_IF), 10, ("near0.10", "far0.10")) {
        return;
    }
    lab.near("addr add 10.79.0.1/24 dev near0.10");
    lab.far("addr add 10.79.0.2/24 dev far0.10");
    lab.near("link set near0.10 mtu 1400");
    lab.inside(|| {
        let to: std::net::IpAddr = "10.79.0.2".parse().unwrap();
        let path = resolve(&Query { timeout: Duration::from_secs(30), ..Query::to(to) }).unwrap();
        assert_eq!((path.link.name.as_str(), path.device.name.as_str()), ("near0.10", NEAR_IF));
        assert_eq!(path.tags.as_slice().iter().map(|tag| tag.vlan()).collect::<Vec<_>>(), [10]);
        assert_eq!((path.next_hop_mac, path.mtu), (FAR_MAC, 1400));
        let mut watch = PathWatch::new(&path).unwrap();
        assert_eq!(watch.poll(Duration::ZERO).unwrap(), []);
    });
}

#[test]
fn two_tags_are_told_outermost_first_and_three_are_refused() {
    let Some(lab) = Lab::build() else { return };
    if !add(&lab, (NEAR_IF, FAR_IF), 5, ("n5", "f5")) {
        return;
    }
    assert!(add(&lab, ("n5", "f5"), 10, ("n5.10", "f5.10")));
    assert!(add(&lab, ("n5.10", "f5.10"), 20, ("n5.10.20", "f5.10.20")));
    lab.inside(|| {
        let Underlay { device, tags } = Underlay::of(&Link::by_name("n5.10").unwrap()).unwrap();
        assert_eq!(device.name, NEAR_IF);
        assert_eq!(tags.as_slice().iter().map(|tag| tag.vlan()).collect::<Vec<_>>(), [5, 10]);
        let error = Underlay::of(&Link::by_name("n5.10.20").unwrap()).unwrap_err();
        assert!(matches!(error, UnderlayError::TooManyTags { .. }), "{error}");
    });
}

#[test]
fn a_way_through_a_bridge_is_refused() {
    let Some(lab) = Lab::build() else { return };
    lab.near("link add br0 type bridge");
    lab.near("addr add 10.79.0.1/24 dev br0");
    lab.near("link set br0 up");
    lab.inside(|| {
        let to: std::net::IpAddr = "10.79.0.2".parse().unwrap();
        let error = resolve(&Query::to(to)).unwrap_err();
        assert!(matches!(error, ResolveError::Underlay(UnderlayError::Upper { .. })), "{error}");
        assert!(error.to_string().contains("br0 is a bridge"), "{error}");
    });
}
