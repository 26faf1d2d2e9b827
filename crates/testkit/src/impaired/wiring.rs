//! The namespaces and interfaces around an impaired link.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Namespace;
use crate::shell;

/// One of the two veths: a host at one end, the link at the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<'a> {
    pub(crate) host: &'a Namespace,
    /// The host's interface.
    pub(crate) link: &'a str,
    /// The other end, in the middle.
    pub(crate) port: &'a str,
    pub(crate) mtu: u32,
    pub(crate) queues: u32,
}

/// Joins a host to the middle. Both ends are up, but the host's has no address, and says nothing.
///
/// What crosses is what would be on a wire: the host makes whole checksums and cuts its segments itself, and the port
/// joins none. The port's `tso off` lets the host receive through NAPI, as it would from another host.
pub(crate) fn join(middle: &Namespace, side: Side<'_>) -> io::Result<()> {
    let Side { host, link, port, mtu, queues } = side;
    let queues = format!("numtxqueues {queues} numrxqueues {queues}");
    let (h, m) = (host.name(), middle.name());
    shell::ip(&format!(
        "link add {link} netns {h} mtu {mtu} {queues} type veth peer name {port} netns {m} mtu {mtu} {queues}"
    ))?;
    host.shell(&format!("ethtool -K {link} tx off tso off"))?;
    middle.shell(&format!("ethtool -K {port} tx off tso off gro off lro off"))?;
    middle.ip(&format!("link set {port} up"))?;
    host.ip(&format!("link set {link} up")).map(drop)
}

/// Gives a host's interface its addresses.
///
/// Nothing is left to happen later: addresses are not tried for duplicates, and no router is asked for.
pub(crate) fn set_up(host: &Namespace, link: &str, v4: Ipv4Addr, v6: Ipv6Addr) -> io::Result<()> {
    host.shell(&format!(
        "cd /proc/sys/net/ipv6/conf/{link} && echo 0 > accept_dad && echo 0 > router_solicitations && \
         echo 0 > disable_ipv6"
    ))?;
    host.ip(&format!("address add {v4}/24 dev {link}"))?;
    host.ip(&format!("address add {v6}/64 dev {link} nodad")).map(drop)
}

/// Tells a host where its peer is, for good.
pub(crate) fn introduce(
    host: &Namespace,
    link: &str,
    peer: &Namespace,
    peer_link: &str,
    addrs: [IpAddr; 2],
) -> io::Result<()> {
    let mac = peer.shell(&format!("cat /sys/class/net/{peer_link}/address"))?;
    for addr in addrs {
        host.ip(&format!("neigh replace {addr} lladdr {} nud permanent dev {link}", mac.trim()))?;
    }
    Ok(())
}
