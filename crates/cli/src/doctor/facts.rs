//! What can be read about an interface and a destination without touching either.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use xsend_host::{Device, Link, Path, PathWatch, PortReservation, Privileges, Query};

/// What the kernel said, or why it did not.
pub(super) struct Facts {
    /// The interface looked at: the one named, or the one of the route.
    pub(super) interface: Option<String>,
    /// Where one wants to send.
    pub(super) destination: Option<IpAddr>,
    /// The port there, if one was named.
    pub(super) port: Option<u16>,
    /// `6.18.44-amd64`.
    pub(super) kernel: Option<String>,
    /// What this process may do.
    pub(super) privileges: Result<Privileges, String>,
    /// The interface.
    pub(super) link: Option<Result<Link, String>>,
    /// Its driver's abilities.
    pub(super) device: Option<Result<Device, String>>,
    /// The way to the destination.
    pub(super) path: Option<Result<Path, String>>,
    /// Whether a local port can be had.
    pub(super) local_port: Result<u16, String>,
    /// The kernel's range of ephemeral ports, first and last.
    pub(super) port_range: Option<(u16, u16)>,
}

impl Facts {
    /// Asks the kernel.
    pub(super) fn gather(named: Option<&str>, destination: Option<IpAddr>, port: Option<u16>) -> Self {
        let path = destination.map(|destination| way(named, destination));
        let interface = named.map(str::to_owned).or_else(|| match &path {
            Some(Ok(path)) => Some(path.link.name.clone()),
            _ => None,
        });
        let link = interface.as_deref().map(|name| Link::by_name(name).map_err(|error| error.to_string()));
        let device = match &link {
            Some(Ok(link)) => Some(Device::of(link).map_err(|error| error.to_string())),
            _ => None,
        };
        let source = match &path {
            Some(Ok(path)) => path.source,
            _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        Self {
            interface,
            destination,
            port,
            kernel: line_of("/proc/sys/kernel/osrelease"),
            privileges: Privileges::read().map_err(|error| error.to_string()),
            link,
            device,
            path,
            local_port: PortReservation::reserve(SocketAddr::new(source, 0))
                .map(|reserved| reserved.port())
                .map_err(|error| error.to_string()),
            port_range: line_of("/proc/sys/net/ipv4/ip_local_port_range").as_deref().and_then(range),
        }
    }
}

/// Resolves the next hop, and takes back what the kernel noted for it.
fn way(interface: Option<&str>, destination: IpAddr) -> Result<Path, String> {
    let query = Query { interface, ..Query::to(destination) };
    let path = xsend_host::resolve(&query).map_err(|error| error.to_string())?;
    // A watch removes the neighbour entry that the question made, once it is dropped.
    drop(PathWatch::new(&path));
    Ok(path)
}

fn line_of(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once(char::is_whitespace)?;
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_range_is_two_numbers() {
        assert_eq!(range("32768\t60999"), Some((32768, 60999)));
        assert_eq!(range("32768"), None);
        assert_eq!(range("a b"), None);
    }
}
