//! What a link has done.

use serde_json::{Map, Value};

macro_rules! direction {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What happened to the frames of one direction.
        ///
        /// Every frame is accounted for: see [`Direction::balances`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Direction {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Direction {
            /// One number a field.
            pub fn to_json(&self) -> Value {
                let mut map = Map::new();
                $(map.insert(stringify!($name).to_owned(), self.$name.into());)*
                Value::Object(map)
            }

            /// The opposite; `None` unless every field is there.
            pub fn from_json(value: &Value) -> Option<Self> {
                Some(Self { $($name: value.get(stringify!($name))?.as_u64()?,)* })
            }
        }
    };
}

direction! {
    /// Frames that came in.
    offered,
    /// Their bytes, Ethernet headers included.
    offered_bytes,
    /// Passed unharmed, being multicast where that is spared.
    spared,
    /// Lost one by one.
    lost,
    /// Lost in bursts.
    burst_lost,
    /// Found the queue full.
    queue_dropped,
    /// Came during an outage, or while the link was cut.
    outage_dropped,
    /// Marked CE.
    marked,
    /// Had a bit flipped.
    corrupted,
    /// Copies made.
    duplicated,
    /// Held back so that later frames overtake them.
    reordered,
    /// Found no memory: the link's fault, not its doing.
    no_memory,
    /// Were longer than the MTU allows, and dropped: an offload is on that should be off.
    oversized,
    /// Went out, copies included.
    sent,
    /// Their bytes.
    sent_bytes,
    /// Were refused by the outgoing interface: it is down or gone.
    send_failed,
    /// Still on their way.
    under_way,
    /// Came to the incoming interface, but not to this process: the socket's buffer was full, or they were tagged. The
    /// link's fault. Exact when no frames come at the moment.
    missed,
    /// Were dropped by the outgoing interface after it had taken them. The link's fault.
    device_dropped,
}

impl Direction {
    /// Whether every frame that came in, and every copy, went somewhere.
    pub fn balances(&self) -> bool {
        let Self { lost, burst_lost, queue_dropped, outage_dropped, no_memory, .. } = *self;
        let dropped = lost + burst_lost + queue_dropped + outage_dropped + no_memory + self.oversized;
        self.offered + self.duplicated == dropped + self.sent + self.send_failed + self.under_way
    }

    /// Frames that were lost though nothing asked for it.
    pub fn faults(&self) -> u64 {
        self.no_memory + self.oversized + self.send_failed + self.missed + self.device_dropped
    }
}

/// What happened in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// From the sender to the receiver.
    pub forward: Direction,
    /// From the receiver to the sender.
    pub back: Direction,
}

impl Counters {
    /// `{"forward": {...}, "back": {...}}`.
    pub fn to_json(&self) -> Value {
        serde_json::json!({ "forward": self.forward.to_json(), "back": self.back.to_json() })
    }

    /// The opposite; `None` unless every field is there.
    pub fn from_json(value: &Value) -> Option<Self> {
        let direction = |name| Direction::from_json(value.get(name)?);
        Some(Self { forward: direction("forward")?, back: direction("back")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_there_and_back() {
        let forward = Direction { offered: 1, sent: u64::MAX, device_dropped: 3, ..Direction::default() };
        let counters = Counters { forward, back: Direction { lost: 7, ..Direction::default() } };
        assert_eq!(Counters::from_json(&counters.to_json()), Some(counters));
        assert_eq!(Counters::from_json(&serde_json::json!({ "forward": {}, "back": {} })), None);
    }

    #[test]
    fn a_frame_that_vanishes_shows() {
        let mut direction =
            Direction { offered: 10, duplicated: 1, lost: 3, sent: 7, ..Direction::default() };
        direction.under_way = 1;
        assert!(direction.balances());
        direction.sent -= 1;
        assert!(!direction.balances());
    }
}
