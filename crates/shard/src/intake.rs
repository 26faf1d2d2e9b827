//! Step (1), on the shard's side: commands, and the frames that applications have filled.

use xsend_signal::tail::Marks;
use xsend_tcp::{Connection, Instant, Seed};

use crate::command::{Command, Connect, ConnectFailure};
use crate::device::Device;
use crate::flow::{Flow, Holder};
use crate::port::Port;
use crate::shard::Shard;
use crate::table::FlowId;

/// The most commands handled in one turn.
const COMMANDS: usize = 64;

impl<D: Device> Shard<D> {
    pub(crate) fn intake(&mut self, now: Instant) {
        let mut marked = core::mem::take(&mut self.marked);
        let flows = &self.flows;
        self.marks.collect(|slot| marked.extend(flows.id_at(slot)));
        self.worked |= !marked.is_empty();
        for id in marked.drain(..) {
            if let Some(flow) = self.flows.get_mut(id) {
                take_filled(flow, &mut self.port, now);
            }
            self.touch(id);
            self.want(id);
        }
        self.marked = marked;
        for _ in 0..COMMANDS {
            let Some(command) = self.desk.take() else { break };
            self.worked = true;
            self.command(command, now);
        }
    }

    fn command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Connect(connect) => self.connect(*connect, now),
            Command::Shutdown(id) => {
                let Some(flow) = self.flows.get_mut(id) else { return };
                // Everything published before the command is seen now: it goes out before the FIN.
                take_filled(flow, &mut self.port, now);
                flow.queue_tail(&self.port.tails, now);
                flow.closing = true;
                flow.connection.on_close(now);
                self.touch(id);
                self.want(id);
            }
            Command::Abort(id) => {
                let Some(flow) = self.flows.get_mut(id) else { return };
                flow.connection.on_abort(now);
                self.touch(id);
                self.want(id);
            }
            Command::SetNodelay(id, nodelay) => {
                let Some(flow) = self.flows.get_mut(id) else { return };
                flow.connection.set_nodelay(nodelay);
                self.want(id);
            }
            Command::Info(id, answer) => {
                // Dropping the answerer says that there is no such flow any more.
                let Some(flow) = self.flows.get_mut(id) else { return };
                let _ = answer.answer(flow.connection.info());
            }
            Command::Watch(housekeeper) => self.housekeepers.push(housekeeper),
            Command::Stats(answer) => {
                let _ = answer.answer(self.stats());
            }
            Command::Stop(by) => self.stop_by = Some(self.stop_by.map_or(by, |earlier| earlier.min(by))),
        }
    }

    fn connect(&mut self, connect: Connect, now: Instant) {
        let Connect { ends, headers, config, lease, answer } = connect;
        if self.flows.find(&ends).is_some() {
            let _ = answer.answer(Err(ConnectFailure::InUse));
            return;
        }
        if self.flows.is_full() {
            let _ = answer.answer(Err(ConnectFailure::TooManyFlows));
            return;
        }
        let seed = Seed {
            iss: xsend_tcp::initial_sequence(&self.secret, ends.local, ends.remote, now),
            timestamp_offset: xsend_tcp::timestamp_offset(&self.secret, ends.local, ends.remote),
        };
        let connection = Connection::connect(&config, seed, now);
        let id = self.flows.insert(ends, |id| Flow::new(id, ends, connection, headers, answer, lease));
        self.touch(id);
        self.want(id);
    }
}

/// Takes what the stream has filled. A last frame that may still grow becomes the tail, and waits for the emit step to decide
/// whether to seal it.
pub(crate) fn take_filled<D: Device>(flow: &mut Flow, port: &mut Port<D>, now: Instant) {
    let Holder::Open(end) = &mut flow.holder else { return };
    let mut filled = core::mem::take(&mut port.filled);
    if end.filled.pop_into(usize::MAX, &mut filled) > 0 {
        flow.lent -= filled.len();
        flow.filled_at = now;
    }
    for frame in filled.drain(..) {
        // The next frame comes only after its writer has left this one, sealed or not.
        flow.queue_tail(&port.tails, now);
        let word = port.tails.read(frame.index());
        let sealed = word.marks.has(Marks::SEALED);
        if sealed && word.len == 0 {
            // Given back unused.
            port.give_back(frame);
            continue;
        }
        flow.queued += 1;
        if sealed {
            flow.queue(frame, word, now);
        } else {
            flow.tail = Some(frame);
        }
    }
    port.filled = filled;
    if flow.tail.as_ref().is_some_and(|tail| port.tails.read(tail.index()).marks.has(Marks::SEALED)) {
        flow.queue_tail(&port.tails, now);
    }
}

impl<D: Device> Shard<D> {
    /// Puts the flow on the list of those that may have something to send.
    pub(crate) fn want(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(id)
            && !flow.eager
        {
            flow.eager = true;
            self.eager.push_back(id);
        }
    }

    /// Puts the flow on the list of those to be settled at the end of the turn.
    pub(crate) fn touch(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(id)
            && !flow.touched
        {
            flow.touched = true;
            self.touched.push(id);
        }
    }
}
