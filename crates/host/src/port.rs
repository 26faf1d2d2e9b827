//! Reserving a local TCP port with the kernel.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
};

use socket2::{Domain, Protocol, Socket, Type};

/// A local TCP address and port that the kernel gives to nobody else while this lives.
///
/// It is a bound socket that neither listens nor connects: it refuses the port to others, but does not by itself stop
/// the kernel from answering segments for that port (a bound socket without a connection answers RST).
#[derive(Debug)]
pub struct PortReservation {
    address: SocketAddr,
    /// Never used again: it holds the port until it is closed.
    _socket: Socket,
}

/// Why a port could not be reserved.
#[derive(Debug)]
pub enum PortError {
    /// Another socket has the port.
    InUse {
        /// The address and port asked for.
        address: SocketAddr,
    },
    /// Every ephemeral port is in use.
    NoneFree {
        /// The address asked for.
        source: IpAddr,
    },
    /// The address belongs to no interface of this machine.
    NotLocal {
        /// The address asked for.
        source: IpAddr,
    },
    /// The port is below `net.ipv4.ip_unprivileged_port_start`, and the process has no `CAP_NET_BIND_SERVICE`.
    Privileged {
        /// The port asked for.
        port: u16,
    },
    /// The system failed otherwise.
    System {
        /// The address and port asked for (port 0: any).
        address: SocketAddr,
        /// The system's reason.
        error: io::Error,
    },
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { address } => write!(
                f,
                "local port {address} is in use: choose another (who has it: `ss -tanp sport = :{}`)",
                address.port()
            ),
            Self::NoneFree { source } => write!(
                f,
                "no local port of {source} is free: close connections, or widen net.ipv4.ip_local_port_range"
            ),
            Self::NotLocal { source } => write!(f, "{source} is not an address of this machine"),
            Self::Privileged { port } => {
                write!(f, "local port {port} is reserved for root: choose one of 1024 or more")
            }
            Self::System { address, error } => write!(f, "cannot reserve local port {address}: {error}"),
        }
    }
}

impl std::error::Error for PortError {}

impl PortReservation {
    /// Reserves the port of `local`, or an ephemeral one if that is 0. Others can bind it neither with that address nor
    /// with the wildcard, and the kernel does not choose it for a connection, until this is dropped.
    ///
    /// For a listener on all addresses of a family, `local` has the unspecified one; the port must then be free on every
    /// address. A link-local IPv6 address needs its interface's index as the scope
    /// ([`Path::local`](crate::Path::local) has it).
    ///
    /// # Errors
    ///
    /// See [`PortError`]. A port of which the kernel still has a connection in TIME-WAIT counts as in use.
    pub fn reserve(local: SocketAddr) -> Result<Self, PortError> {
        let source = local.ip();
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse if local.port() == 0 => PortError::NoneFree { source },
            io::ErrorKind::AddrInUse => PortError::InUse { address: local },
            io::ErrorKind::AddrNotAvailable => PortError::NotLocal { source },
            io::ErrorKind::PermissionDenied => PortError::Privileged { port: local.port() },
            _ => PortError::System { address: local, error },
        };
        // Without SO_REUSEADDR: with it, another socket that sets it too could bind the same port.
        let socket =
            Socket::new(Domain::for_address(local), Type::STREAM, Some(Protocol::TCP)).map_err(failed)?;
        if local.is_ipv6() {
            // The other family's port is another one.
            socket.set_only_v6(true).map_err(failed)?;
        }
        socket.bind(&local.into()).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?.as_socket().unwrap_or(local);
        Ok(Self { address, _socket: socket })
    }

    /// The reserved port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The reserved address and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};

    use super::*;

    const HERE: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

    fn any_port(source: IpAddr) -> SocketAddr {
        SocketAddr::new(source, 0)
    }

    fn unspecified(like: IpAddr) -> IpAddr {
        if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
    }

    #[test]
    fn a_reserved_port_is_refused_to_others_until_it_is_dropped() {
        for here in HERE {
            let reservation = PortReservation::reserve(any_port(here)).unwrap();
            let address = reservation.address();
            assert_ne!(address.port(), 0);
            assert_eq!(address.port(), reservation.port());
            // The standard library's listener sets SO_REUSEADDR, which must not help it.
            let taken = TcpListener::bind(address).unwrap_err();
            assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
            let wildcard = TcpListener::bind((unspecified(here), address.port())).unwrap_err();
            assert_eq!(wildcard.kind(), io::ErrorKind::AddrInUse);
            let again = PortReservation::reserve(address).unwrap_err();
            assert!(matches!(again, PortError::InUse { address: a } if a == address), "{again}");
            drop(reservation);
            PortReservation::reserve(address).unwrap();
        }
    }

    #[test]
    fn a_listeners_port_is_reserved_on_all_addresses_of_its_family_only() {
        let all = PortReservation::reserve(any_port(unspecified(HERE[1]))).unwrap();
        let taken = TcpListener::bind((HERE[1], all.port())).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        // Unless some other process has it.
        if let Err(error) = PortReservation::reserve(SocketAddr::new(unspecified(HERE[0]), all.port())) {
            assert!(matches!(error, PortError::InUse { .. }), "{error}");
        }
        let taken = TcpListener::bind((HERE[0], 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = PortReservation::reserve(SocketAddr::new(unspecified(HERE[0]), port)).unwrap_err();
        assert!(matches!(error, PortError::InUse { .. }), "somebody listens on one of them: {error}");
    }

    #[test]
    fn a_port_that_others_listen_on_is_in_use() {
        let listener = TcpListener::bind((HERE[0], 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let error = PortReservation::reserve(address).unwrap_err();
        assert!(matches!(error, PortError::InUse { .. }), "{error}");
        assert!(error.to_string().contains(&address.port().to_string()));
    }

    #[test]
    fn a_reservation_does_not_listen() {
        let reservation = PortReservation::reserve(any_port(HERE[0])).unwrap();
        let error = TcpStream::connect(reservation.address()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn an_address_of_another_machine_is_not_local() {
        for source in ["192.0.2.77", "2001:db8::77"].map(|text| text.parse().unwrap()) {
            let error = PortReservation::reserve(any_port(source)).unwrap_err();
            assert!(matches!(error, PortError::NotLocal { source: s } if s == source), "{error}");
        }
    }
}
