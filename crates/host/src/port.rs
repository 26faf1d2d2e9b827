//! Reserving a local TCP port with the kernel.

use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddrV4},
};

use socket2::{Domain, Protocol, Socket, Type};

/// A local TCP address and port that the kernel gives to nobody else while this lives.
///
/// It is a bound socket that neither listens nor connects: it refuses the port to others, but does not by itself stop
/// the kernel from answering segments for that port (a bound socket without a connection answers RST).
#[derive(Debug)]
pub struct PortReservation {
    address: SocketAddrV4,
    /// Never used again: it holds the port until it is closed.
    _socket: Socket,
}

/// Why a port could not be reserved.
#[derive(Debug)]
pub enum PortError {
    /// Another socket has the port.
    InUse {
        /// The address and port asked for.
        address: SocketAddrV4,
    },
    /// Every ephemeral port is in use.
    NoneFree {
        /// The address asked for.
        source: Ipv4Addr,
    },
    /// The address belongs to no interface of this machine.
    NotLocal {
        /// The address asked for.
        source: Ipv4Addr,
    },
    /// The port is below `net.ipv4.ip_unprivileged_port_start`, and the process has no `CAP_NET_BIND_SERVICE`.
    Privileged {
        /// The port asked for.
        port: u16,
    },
    /// The system failed otherwise.
    System {
        /// The address and port asked for (port 0: any).
        address: SocketAddrV4,
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
    /// Reserves `port` of `source`, or an ephemeral one if none (or 0) is given. Others can bind it neither with that
    /// address nor with the wildcard, and the kernel does not choose it for a connection, until this is dropped.
    ///
    /// # Errors
    ///
    /// See [`PortError`]. A port of which the kernel still has a connection in TIME-WAIT counts as in use.
    pub fn reserve(source: Ipv4Addr, port: Option<u16>) -> Result<Self, PortError> {
        let asked = SocketAddrV4::new(source, port.unwrap_or(0));
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse if asked.port() == 0 => PortError::NoneFree { source },
            io::ErrorKind::AddrInUse => PortError::InUse { address: asked },
            io::ErrorKind::AddrNotAvailable => PortError::NotLocal { source },
            io::ErrorKind::PermissionDenied => PortError::Privileged { port: asked.port() },
            _ => PortError::System { address: asked, error },
        };
        // Without SO_REUSEADDR: with it, another socket that sets it too could bind the same port.
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).map_err(failed)?;
        socket.bind(&asked.into()).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?.as_socket_ipv4().unwrap_or(asked);
        Ok(Self { address, _socket: socket })
    }

    /// The reserved port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The reserved address and port.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

    #[test]
    fn a_reserved_port_is_refused_to_others_until_it_is_dropped() {
        let reservation = PortReservation::reserve(HERE, None).unwrap();
        let address = reservation.address();
        assert_ne!(address.port(), 0);
        assert_eq!(address.port(), reservation.port());
        // The standard library's listener sets SO_REUSEADDR, which must not help it.
        let taken = TcpListener::bind(address).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        let wildcard = TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).unwrap_err();
        assert_eq!(wildcard.kind(), io::ErrorKind::AddrInUse);
        let again = PortReservation::reserve(HERE, Some(address.port())).unwrap_err();
        assert!(matches!(again, PortError::InUse { address: a } if a == address), "{again}");
        drop(reservation);
        PortReservation::reserve(HERE, Some(address.port())).unwrap();
    }

    #[test]
    fn a_port_that_others_listen_on_is_in_use() {
        let listener = TcpListener::bind((HERE, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let error = PortReservation::reserve(HERE, Some(port)).unwrap_err();
        assert!(matches!(error, PortError::InUse { .. }), "{error}");
        assert!(error.to_string().contains(&port.to_string()));
    }

    #[test]
    fn a_reservation_does_not_listen() {
        let reservation = PortReservation::reserve(HERE, None).unwrap();
        let error = TcpStream::connect(reservation.address()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn an_address_of_another_machine_is_not_local() {
        let source = Ipv4Addr::new(192, 0, 2, 77);
        let error = PortReservation::reserve(source, None).unwrap_err();
        assert!(matches!(error, PortError::NotLocal { source: s } if s == source), "{error}");
    }
}
