//! The per-core loop.

use core::time::Duration;
use std::collections::VecDeque;
use std::io;

use xsend_signal::desk::{self, Caller, Desk};
use xsend_signal::doorbell::{self, Bell, Park, Ringer, Wake};
use xsend_signal::ready::{self, Collector};
use xsend_tcp::Instant;
use xsend_wire::Mac;
use xsend_xsk::{Frame, Received, Umem};

use crate::agenda::Agenda;
use crate::command::Command;
use crate::config::{Config, Stats};
use crate::device::Device;
use crate::flow::{Flow, Settled};
use crate::intake::take_filled;
use crate::port::{Port, Tap};
use crate::table::{FlowId, Table};

/// Commands that may wait at a shard's desk.
const DESK: usize = 256;

/// Flows that a turn asks for frames they do not use, when another found none.
const LOOKS_FOR_RELIEF: u32 = 16;

/// The longest sleep while frames are in the TX ring: `poll` on an AF_XDP socket does not report completions.
const LONGEST_SLEEP_IN_FLIGHT: Duration = Duration::from_millis(1);
/// The longest sleep at all, so that no lost event of any kind can stop a shard.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// Whether a turn found anything to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It did something: turn again.
    Worked,
    /// There was nothing to do.
    Idle,
}

/// Asked now and then what has changed about the path to the peers.
pub trait Housekeeper: Send {
    /// The next change, or `None` when there is none now. Must not block.
    fn poll(&mut self) -> Option<Change>;
}

/// A change of what a flow's headers were made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The next hop has another hardware address.
    NextHopMoved {
        /// The address so far.
        from: Mac,
        /// The address from now on.
        to: Mac,
    },
}

/// What a shard is made from.
pub struct Parts<D> {
    /// The queue.
    pub device: D,
    /// Its memory.
    pub umem: Umem,
    /// All frames of that memory that the device does not hold.
    pub frames: Vec<Frame>,
    /// Bounds.
    pub config: Config,
    /// 128 random bits, for initial sequence numbers (RFC 6528).
    pub secret: [u8; 16],
    /// Wakes the shard out of [`Device::wait`].
    pub wake: Box<dyn Wake>,
    /// Sees every frame, if there is one.
    pub tap: Option<Box<dyn Tap>>,
}

/// What application threads hold of a shard: the way in for commands, and the bell.
pub struct Handle {
    /// Hands commands over, and rings.
    pub caller: Caller<Command>,
    /// Rings the bell after frames were filled.
    pub ringer: Ringer,
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Self { caller: self.caller.clone(), ringer: self.ringer.clone() }
    }
}

/// A core's loop: it owns a queue, its memory and the flows that live on it. One thread at a time calls
/// [`turn`](Self::turn), the shard's own or the application's.
pub struct Shard<D: Device> {
    pub(crate) port: Port<D>,
    pub(crate) flows: Table<Flow>,
    pub(crate) config: Config,
    pub(crate) secret: [u8; 16],
    pub(crate) marks: Collector,
    pub(crate) desk: Desk<Command>,
    bell: Bell,
    agenda: Agenda,
    /// Flows that may have something to send.
    pub(crate) eager: VecDeque<FlowId>,
    /// Flows to settle at the end of this turn.
    pub(crate) touched: Vec<FlowId>,
    pub(crate) marked: Vec<FlowId>,
    pub(crate) arrivals: Vec<(usize, Received)>,
    completed: Vec<FlowId>,
    /// By place: the last received chunk was not the last of its packet.
    pub(crate) continued: Box<[bool]>,
    pub(crate) worked: bool,
    pub(crate) housekeepers: Vec<Box<dyn Housekeeper>>,
    next_housekeeping: Instant,
    /// The slot of the flow that was last asked for frames it does not use.
    relief_at: u32,
    /// When to end at the latest, once that was asked for.
    pub(crate) stop_by: Option<Instant>,
}

impl<D: Device> Shard<D> {
    /// A shard and the handle to it.
    pub fn new(parts: Parts<D>) -> (Self, Handle) {
        let Parts { device, umem, frames, config, secret, wake, tap } = parts;
        let (ringer, bell) = doorbell::channel(wake);
        let (caller, desk) = desk::channel(DESK, ringer.clone());
        let (flows, places) = (config.max_flows, device.places());
        let shard = Self {
            marked: Vec::with_capacity(flows),
            completed: Vec::with_capacity(flows),
            touched: Vec::with_capacity(flows),
            eager: VecDeque::with_capacity(flows),
            arrivals: Vec::with_capacity(umem.frames() as usize),
            port: Port::new(device, umem, frames, tap),
            flows: Table::new(flows),
            agenda: Agenda::new(flows),
            marks: ready::set(flows as u32),
            config,
            secret,
            desk,
            bell,
            continued: vec![false; places].into_boxed_slice(),
            worked: false,
            housekeepers: Vec::new(),
            next_housekeeping: Instant::ZERO,
            relief_at: 0,
            stop_by: None,
        };
        (shard, Handle { caller, ringer })
    }

    /// The map of the program, one line a step. The numbers are those of a byte's way.
    pub fn turn(&mut self, now: Instant) -> Progress {
        self.worked = false;
        self.reap(now); //    (5) completions: TSQ credit, corked flows released
        self.ingress(now); //     ACKs in, engine updated
        self.timers(now); //      RTO, delayed ACK, persist, TIME-WAIT
        self.intake(now); //  (1) frames the applications filled
        self.emit(now); //    (2) engine -> (3) headers -> (4) TX ring, one kick
        self.notify(now) //   (6) write-space wake-ups, closed streams, frames lent
    }

    /// Step (5), first half. Completed is not acknowledged: this frees the ring and the flow's share of it, no payload.
    fn reap(&mut self, now: Instant) {
        let Self { port, flows, completed, .. } = self;
        let reaped = port.reap(|entry| {
            let Some(flow) = flows.get_mut(entry.flow) else { return };
            flow.left_ring(1, entry.bytes);
            if flow.uncredited == 1 {
                completed.push(entry.flow);
            }
        });
        self.worked |= reaped > 0;
        let mut completed = core::mem::take(&mut self.completed);
        for id in completed.drain(..) {
            if let Some(flow) = self.flows.get_mut(id)
                && flow.credit()
            {
                take_filled(flow, &mut self.port, now);
            }
            self.touch(id);
            self.want(id);
        }
        self.completed = completed;
    }

    fn timers(&mut self, now: Instant) {
        while let Some((at, id)) = self.agenda.due(now) {
            let Some(flow) = self.flows.get_mut(id) else { continue };
            if flow.armed != Some(at) {
                // An entry that was left behind by an earlier deadline.
                continue;
            }
            flow.armed = None;
            if flow.connection.poll_timeout().is_some_and(|due| due <= now) {
                flow.connection.on_timeout(now);
                self.worked = true;
            }
            self.touch(id);
            self.want(id);
        }
        if now >= self.next_housekeeping {
            self.next_housekeeping = now + self.config.housekeeping_interval;
            self.keep_house(now);
        }
    }

    fn keep_house(&mut self, now: Instant) {
        let Self { flows, port, config, .. } = self;
        flows.for_each_mut(|flow| {
            flow.take_back_if_idle(port, config, config.idle_bound, now);
        });
        for housekeeper in &mut self.housekeepers {
            let Some(Change::NextHopMoved { from, to }) = housekeeper.poll() else { continue };
            self.flows.for_each_mut(|flow| {
                if flow.headers.destination_mac == from {
                    flow.headers.destination_mac = to;
                    flow.template.set_destination_mac(to);
                }
            });
        }
    }

    /// Step (6): every flow that this turn touched is settled, and its timer armed.
    fn notify(&mut self, now: Instant) -> Progress {
        let mut touched = core::mem::take(&mut self.touched);
        let share = self.share();
        for id in touched.drain(..) {
            let Self { flows, port, config, marks, agenda, .. } = self;
            let Some(flow) = flows.get_mut(id) else { continue };
            flow.touched = false;
            let settled = flow.settle(port, config, share, || marks.mark(id.slot()), now);
            if settled == Settled::Over {
                let ends = flow.ends;
                flow.dissolve(port);
                flows.remove(id, &ends);
                continue;
            }
            arm(flow, agenda, config, now);
            if settled == Settled::Urgent {
                self.want(id);
            }
        }
        self.touched = touched;
        self.relieve(now);
        self.port.look_into_limbo();
        self.port.top_up();
        self.port.stats.turns += 1;
        debug_assert!(!self.port.stats.turns.is_multiple_of(64) || self.books_balance());
        if self.worked { Progress::Worked } else { Progress::Idle }
    }

    /// A stream found no frame to be lent: a few others, in rotation, are asked for what they do not use.
    fn relieve(&mut self, now: Instant) {
        let Some(pressed) = self.port.pressed.take() else { return };
        let mut relieved = 0;
        for _ in 0..self.flows.slots().min(LOOKS_FOR_RELIEF) {
            self.relief_at = (self.relief_at + 1) % self.flows.slots();
            let Self { port, flows, config, .. } = self;
            let Some(flow) = flows.id_at(self.relief_at).and_then(|id| flows.get_mut(id)) else { continue };
            relieved += flow.take_back_if_idle(port, config, config.idle_bound_pressed, now);
        }
        if relieved > 0 {
            self.touch(pressed);
        }
    }

    /// The most frames one stream may be lent, so that the first to come does not take them all.
    fn share(&self) -> usize {
        let lendable = (self.port.umem.frames() as usize).saturating_sub(self.config.reserve_frames);
        (lendable / (2 * self.flows.len().max(1))).max(1)
    }

    /// When a turn is due though nothing happens: a timer, or a kick to be repeated.
    pub fn next_deadline(&self) -> Option<Instant> {
        let kick = self.port.device.next_kick_ns().map(Instant::from_nanos);
        match (self.agenda.next(), kick) {
            (Some(timer), Some(kick)) => Some(timer.min(kick)),
            (timer, kick) => timer.or(kick),
        }
    }

    /// Sleeps until the device or an application has something, or a deadline comes, but never for long while frames are in the
    /// TX ring. Spin first: being woken costs far more than a few empty turns.
    ///
    /// # Errors
    /// When the device cannot be waited for.
    pub fn sleep(&mut self, now: Instant, most: Duration) -> io::Result<()> {
        let mut most = most.min(LONGEST_SLEEP);
        if self.port.stats.frames > self.port.stats.completions {
            most = most.min(LONGEST_SLEEP_IN_FLIGHT);
        }
        if let Some(at) = self.next_deadline() {
            most = most.min(at.saturating_since(now));
        }
        if most.is_zero() || !self.eager.is_empty() {
            return Ok(());
        }
        let Self { bell, marks, desk, .. } = self;
        if bell.park(|| marks.any() || !desk.is_empty()) == Park::Stay {
            return Ok(());
        }
        let slept = self.port.device.wait(most);
        self.bell.awake();
        slept
    }

    /// Turns until [`Command::Stop`] has been given and obeyed. `spin` is how long to turn idly before sleeping.
    ///
    /// # Errors
    /// When the device cannot be waited for.
    pub fn run(&mut self, clock: impl Fn() -> Instant, spin: Duration) -> io::Result<()> {
        let mut worked = clock();
        loop {
            let now = clock();
            match self.turn(now) {
                Progress::Worked => worked = now,
                Progress::Idle if now.saturating_since(worked) < spin => core::hint::spin_loop(),
                Progress::Idle => self.sleep(now, LONGEST_SLEEP)?,
            }
            let Some(stop_by) = self.stop_by else { continue };
            if self.unfinished() == 0 || now >= stop_by {
                self.abort_all(now);
                self.turn(now);
                return Ok(());
            }
        }
    }

    /// The shard's counters.
    pub fn stats(&self) -> Stats {
        let device = &self.port.device;
        Stats { kicks: device.kicks(), tx_invalid_descs: device.invalid_descriptors(), ..self.port.stats }
    }

    /// Flows that have not ended, TIME-WAIT and flows without an application included.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Whether any flow still has something to send or to be acknowledged: what a process should wait for before it ends.
    pub fn unfinished(&self) -> usize {
        self.flows.iter().filter(|flow| flow.is_unfinished()).count()
    }

    /// Resets every flow that is not over. Turn once more to send the resets.
    pub fn abort_all(&mut self, now: Instant) {
        let mut ids = core::mem::take(&mut self.marked);
        self.flows.ids_into(&mut ids);
        for id in ids.drain(..) {
            if let Some(flow) = self.flows.get_mut(id).filter(|flow| flow.is_unfinished()) {
                flow.connection.on_abort(now);
                self.touch(id);
                self.want(id);
            }
        }
        self.marked = ids;
    }

    /// The device, to ask what only it knows.
    pub fn device(&self) -> &D {
        &self.port.device
    }

    /// The device, for whoever made it up.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.port.device
    }

    /// Every frame is somewhere, and in one place only.
    pub fn books_balance(&self) -> bool {
        let books = self.port.device.books();
        let held = self.port.free() + self.port.in_limbo();
        let owned: usize = self.flows.iter().map(Flow::owned).sum();
        let balanced = held + owned == (books.held + books.held_in_ring) as usize;
        debug_assert!(balanced, "{held} free or in limbo + {owned} with flows, but {books:?}");
        balanced
    }
}

/// Puts the flow's next deadline on the agenda, unless an earlier entry will ask again anyway.
fn arm(flow: &mut Flow, agenda: &mut Agenda, config: &Config, now: Instant) {
    let bound =
        |since: Option<Instant>| since.map(|since| since + config.completion_bound).filter(|at| *at > now);
    let waits = [flow.connection.poll_timeout(), bound(flow.blocked_since), bound(flow.starved_since)];
    let Some(due) = waits.into_iter().flatten().min() else { return };
    if flow.armed.is_none_or(|armed| due < armed) {
        flow.armed = Some(due);
        agenda.add(due, flow.id);
    }
}
