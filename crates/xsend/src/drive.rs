//! Two ways to run, one code: the shard has a thread of its own, or the application's thread turns it.
//!
//! Everything that differs between the two is in this file: how a shard hears that there is something to do, and how an application
//! waits for it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use xsend_shard::{AfXdp, Command, Progress, ReceivedBytes, Shard};
use xsend_signal::Waited;
use xsend_signal::answer::{NoAnswer, Pending};
use xsend_signal::desk::{Caller, Refused};
use xsend_signal::doorbell::Ringer;
use xsend_signal::inbox::Reader;
use xsend_signal::life::View;
use xsend_signal::space::{self, Waiter};

use crate::clock::Clock;

/// How a stream reaches its shard. Sealed: [`Launched`] and [`Inline`] are all there is.
pub trait Drive: Clone + sealed::Sealed {
    /// Something was published for the shard.
    #[doc(hidden)]
    fn ring(&self);
    /// Waits for write space. `ready` may look at anything a shard publishes.
    #[doc(hidden)]
    fn wait_space(
        &self,
        space: &mut Waiter,
        life: &View,
        deadline: Option<Instant>,
        ready: &mut dyn FnMut(space::Progress) -> bool,
    ) -> Waited;
    /// Waits for received bytes.
    #[doc(hidden)]
    fn wait_received(
        &self,
        reader: &mut Reader<ReceivedBytes>,
        life: &View,
        deadline: Option<Instant>,
    ) -> Waited;
    /// Waits for the answer to a command.
    #[doc(hidden)]
    fn wait_answer<A: Send>(
        &self,
        pending: &mut Pending<A>,
        deadline: Option<Instant>,
    ) -> Result<A, NoAnswer>;
    /// Ends the shard once nothing waits to be acknowledged, at the latest at this time (given on both clocks).
    #[doc(hidden)]
    fn end(&self, caller: &Caller<Command>, by: xsend_tcp::Instant, deadline: Instant);
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Launched {}
    impl Sealed for super::Inline {}
}

/// The shard has a pinned thread of its own; streams may be used from other threads.
#[derive(Clone)]
pub struct Launched {
    pub(crate) ringer: Ringer,
}

impl Drive for Launched {
    #[inline]
    fn ring(&self) {
        self.ringer.ring();
    }

    fn wait_space(
        &self,
        space: &mut Waiter,
        _life: &View,
        deadline: Option<Instant>,
        ready: &mut dyn FnMut(space::Progress) -> bool,
    ) -> Waited {
        space.wait_space(deadline, ready)
    }

    fn wait_received(
        &self,
        reader: &mut Reader<ReceivedBytes>,
        _life: &View,
        deadline: Option<Instant>,
    ) -> Waited {
        reader.wait_data(deadline)
    }

    fn wait_answer<A: Send>(
        &self,
        pending: &mut Pending<A>,
        deadline: Option<Instant>,
    ) -> Result<A, NoAnswer> {
        pending.wait(deadline)
    }

    fn end(&self, caller: &Caller<Command>, by: xsend_tcp::Instant, _deadline: Instant) {
        // A full desk empties within a turn; a dead shard needs no telling.
        while let Err(Refused::Full(_)) = caller.call(Command::Stop(by)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The application's own thread turns the shard, whenever it writes, reads or waits: on one core no second thread is paid for.
///
/// Nothing moves between calls. An application that neither writes, reads nor waits for long must call
/// [`Sender::drive`](crate::Sender::drive), or acknowledgements go unanswered and timers late.
#[derive(Clone)]
pub struct Inline(pub(crate) Rc<Turner>);

pub(crate) struct Turner {
    pub(crate) shard: RefCell<Shard<AfXdp>>,
    pub(crate) clock: Clock,
    pub(crate) spin: Duration,
}

impl Inline {
    fn turn(&self) -> Progress {
        self.0.shard.borrow_mut().turn(self.0.clock.now())
    }

    /// Turns until `look` finds something, or the deadline has passed (`None`).
    pub(crate) fn turn_until<R>(
        &self,
        deadline: Option<Instant>,
        mut look: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        let Turner { shard, clock, spin } = &*self.0;
        let mut worked = None;
        loop {
            if let Some(found) = look() {
                return Some(found);
            }
            let instant = Instant::now();
            if deadline.is_some_and(|at| instant >= at) {
                return None;
            }
            let now = clock.at(instant);
            let mut shard = shard.borrow_mut();
            if shard.turn(now) == Progress::Worked {
                worked = Some(now);
                continue;
            }
            // Spin a bounded time, then sleep: being woken costs far more than a few empty turns.
            if now.saturating_since(*worked.get_or_insert(now)) < *spin {
                core::hint::spin_loop();
                continue;
            }
            let most = deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(instant));
            if shard.sleep(now, most).is_err() {
                // The device cannot be waited for: do not turn this into a busy loop, its flows' timers will tell.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Drive for Inline {
    #[inline]
    fn ring(&self) {
        self.turn();
    }

    fn wait_space(
        &self,
        space: &mut Waiter,
        life: &View,
        deadline: Option<Instant>,
        ready: &mut dyn FnMut(space::Progress) -> bool,
    ) -> Waited {
        let look = || {
            let state = life.state();
            if state.ends_writing() {
                return Some(Waited::Ended(state));
            }
            ready(space.progress()).then_some(Waited::Ready)
        };
        self.turn_until(deadline, look).unwrap_or(Waited::TimedOut)
    }

    fn wait_received(
        &self,
        reader: &mut Reader<ReceivedBytes>,
        life: &View,
        deadline: Option<Instant>,
    ) -> Waited {
        let look = || {
            // The state first: the bytes that came before it are then seen.
            let state = life.state();
            if !reader.is_empty() {
                return Some(Waited::Ready);
            }
            state.ends_reading().then_some(Waited::Ended(state))
        };
        self.turn_until(deadline, look).unwrap_or(Waited::TimedOut)
    }

    fn wait_answer<A: Send>(
        &self,
        pending: &mut Pending<A>,
        deadline: Option<Instant>,
    ) -> Result<A, NoAnswer> {
        self.turn_until(deadline, || pending.try_take()).unwrap_or(Err(NoAnswer::TimedOut))
    }

    fn end(&self, _caller: &Caller<Command>, _by: xsend_tcp::Instant, deadline: Instant) {
        let shard = &self.0.shard;
        self.turn_until(Some(deadline), || (shard.borrow().unfinished() == 0).then_some(()));
        let now = self.0.clock.now();
        let mut shard = shard.borrow_mut();
        shard.abort_all(now);
        shard.turn(now);
    }
}
