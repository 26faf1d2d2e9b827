//! Segments that belong to no connection of the engine's: before it has one, and once it is over.

use core::net::SocketAddr;

use xsend_tcp::{Config, Connection, Heard, Instant, Seed, cookie_syn_ack, listen, reset_for};
use xsend_wire::tcp::Header;

use super::{Endpoint, Output};
use crate::codec::{ENGINE, PEER};
use crate::trace::{Seen, Trace};

/// The engine while it listens.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) config: Config,
    pub(super) seed: Seed,
    pub(super) by_cookie: bool,
}

/// What the engine's cookies are baked with.
const SECRET: [u8; 16] = *b"a simulated oven";

impl Endpoint {
    /// A segment arrives while the engine listens. Says whether there is a connection now that is to have it.
    pub(super) fn listen(
        &mut self,
        now: Instant,
        header: &Header,
        payload_len: usize,
        trace: &mut Trace,
        out: &mut Vec<Output>,
    ) -> bool {
        let Some(Listening { config, seed, by_cookie }) = &self.listening else { return true };
        let (local, remote) = (SocketAddr::V4(ENGINE), SocketAddr::V4(PEER));
        match listen(header, payload_len as u32) {
            Heard::Request if *by_cookie => {
                self.audit.got(now, header, payload_len);
                let syn_ack = cookie_syn_ack(config, &SECRET, local, remote, header, now).header(0, 0);
                trace.segment(now, Seen::EngineSent, &syn_ack, 0);
                out.push(Output::Frame(self.codec.control(&syn_ack, &[])));
                false
            }
            Heard::Request => {
                self.audit.got(now, header, payload_len);
                self.connection = Connection::accept(config, header, *seed, now);
                self.listening = None;
                false
            }
            Heard::Acknowledgment(_) if *by_cookie => {
                let found = Connection::from_cookie(config, &SECRET, local, remote, header, now);
                let Some(connection) = found else { return false };
                let info = connection.info();
                let scaling = config.window_scaling && info.timestamps && info.rcv_wscale > 0;
                self.audit.resume(header.ack.wrapping_sub(1), scaling.then_some(info.rcv_wscale));
                self.connection = connection;
                self.listening = None;
                true
            }
            Heard::Acknowledgment(_) | Heard::Nothing => false,
        }
    }

    /// RFC 9293, 3.10.7.1: the connection is over and forgotten, its holder answers with a reset.
    pub(super) fn answer_stray(
        &mut self,
        now: Instant,
        header: &Header,
        payload_len: usize,
        trace: &mut Trace,
        out: &mut Vec<Output>,
    ) {
        let Some(reset) = reset_for(header, payload_len as u32) else { return };
        let reset = reset.header(0, 0);
        trace.segment(now, Seen::EngineSent, &reset, 0);
        out.push(Output::Frame(self.codec.control(&reset, &[])));
    }
}
