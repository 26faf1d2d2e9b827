//! What is steered for as long as somebody holds it.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::{MapError, Steer, Vlans, keys};

/// A connection to steer: its two ends, and the VLANs it lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end, of the same family.
    pub remote: SocketAddr,
    /// The tags that its frames have. A frame without any is also taken for the flow's, because many devices take the
    /// tags off as they receive.
    pub vlans: Vlans,
}

/// A port to accept connections at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Listener {
    /// Our end. With the unspecified address (`0.0.0.0`, `::`) every address of the family, also those of other hosts
    /// that this one forwards to: where it is a router, name the address.
    pub local: SocketAddr,
    /// As [`Flow::vlans`].
    pub vlans: Vlans,
}

/// Keeps a flow steered until it is dropped; keeps the program attached, too.
#[derive(Debug)]
pub struct FlowLease {
    steer: Arc<Steer>,
    flow: Flow,
}

impl FlowLease {
    /// Steers `flow` from now on: before its first segment is sent, so that the kernel, which knows nothing of it,
    /// does not answer the peer's with RST.
    ///
    /// # Errors
    /// [`MapError::Taken`] when somebody holds it already, [`MapError::MixedFamilies`], [`MapError::Full`], or the
    /// kernel's refusal.
    pub fn take(steer: &Arc<Steer>, flow: Flow) -> Result<Self, MapError> {
        let Flow { local, remote, vlans } = flow;
        if local.ip().to_canonical().is_ipv4() != remote.ip().to_canonical().is_ipv4() {
            return Err(MapError::MixedFamilies { local, remote });
        }
        steer.add_flow(&keys::flow(local, remote), local, vlans)?;
        Ok(Self { steer: steer.clone(), flow })
    }

    /// What is steered.
    pub fn flow(&self) -> Flow {
        self.flow
    }
}

impl Drop for FlowLease {
    fn drop(&mut self) {
        // Fails only when the map is gone, and with it the entry.
        let _ = self.steer.remove_flow(&keys::flow(self.flow.local, self.flow.remote));
    }
}

/// Keeps all TCP to a port steered, whoever sends it, until it is dropped; keeps the program attached, too.
///
/// Connections that were accepted and outlive the listener need a [`FlowLease`] each, taken before this is dropped.
#[derive(Debug)]
pub struct ListenerLease {
    steer: Arc<Steer>,
    listener: Listener,
}

impl ListenerLease {
    /// Steers all segments to `listener` from now on. The kernel's own sockets at that port get none any more: reserve
    /// the port first.
    ///
    /// # Errors
    /// [`MapError::Taken`] when somebody holds it already, [`MapError::Full`], or the kernel's refusal.
    pub fn take(steer: &Arc<Steer>, listener: Listener) -> Result<Self, MapError> {
        let Listener { local, vlans } = listener;
        steer.add_listener(&keys::listener(local), local, vlans)?;
        Ok(Self { steer: steer.clone(), listener })
    }

    /// What is steered.
    pub fn listener(&self) -> Listener {
        self.listener
    }
}

impl Drop for ListenerLease {
    fn drop(&mut self) {
        // Fails only when the map is gone, and with it the entry.
        let _ = self.steer.remove_listener(&keys::listener(self.listener.local));
    }
}
