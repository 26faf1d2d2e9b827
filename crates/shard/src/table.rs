//! Where a received segment's flow is: slots with generations, and a table from addresses to slots.
//!
//! Both are allocated once, for the most flows a shard may hold, and never grow.

use core::net::SocketAddr;
use std::collections::HashMap;

/// A flow of this shard. The generation tells a flow from an earlier one in the same slot, so that a completion or
/// a timer that outlives its flow finds nothing instead of somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    slot: u32,
    generation: u32,
}

impl FlowId {
    /// The flow's slot, which is also its place in the set of ready marks.
    pub fn slot(self) -> u32 {
        self.slot
    }
}

/// The two ends of a flow, as this host sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// The flows of a shard, found by id or by their ends.
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    by_ends: HashMap<Ends, FlowId>,
}

impl<T> Table<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            slots: (0..capacity).map(|_| Slot { generation: 0, value: None }).collect(),
            free: (0..capacity as u32).rev().collect(),
            by_ends: HashMap::with_capacity(capacity),
        }
    }

    /// Whether no more flows can be added.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Adds the flow that `make` makes of its id. The table must not be [full](Self::is_full), nor the ends taken.
    pub(crate) fn insert(&mut self, ends: Ends, make: impl FnOnce(FlowId) -> T) -> FlowId {
        debug_assert!(!self.by_ends.contains_key(&ends), "a flow between these ends exists");
        let slot = self.free.pop().unwrap_or_else(|| unreachable!("the caller has looked for room"));
        let place = &mut self.slots[slot as usize];
        let id = FlowId { slot, generation: place.generation };
        place.value = Some(make(id));
        self.by_ends.insert(ends, id);
        id
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The flow that is in this slot now.
    pub(crate) fn id_at(&self, slot: u32) -> Option<FlowId> {
        let place = self.slots.get(slot as usize)?;
        place.value.as_ref().map(|_| FlowId { slot, generation: place.generation })
    }

    pub(crate) fn remove(&mut self, id: FlowId, ends: &Ends) -> Option<T> {
        let place = self.slots.get_mut(id.slot as usize)?;
        if place.generation != id.generation {
            return None;
        }
        let value = place.value.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(id.slot);
        self.by_ends.remove(ends);
        Some(value)
    }

    pub(crate) fn find(&self, ends: &Ends) -> Option<FlowId> {
        self.by_ends.get(ends).copied()
    }

    pub(crate) fn get_mut(&mut self, id: FlowId) -> Option<&mut T> {
        let place = self.slots.get_mut(id.slot as usize)?;
        if place.generation == id.generation { place.value.as_mut() } else { None }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_ends.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.by_ends.values().filter_map(|id| self.slots[id.slot as usize].value.as_ref())
    }

    pub(crate) fn for_each_mut(&mut self, on: impl FnMut(&mut T)) {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut()).for_each(on);
    }

    pub(crate) fn ids_into(&self, out: &mut Vec<FlowId>) {
        out.extend(self.by_ends.values().copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(port: u16) -> Ends {
        Ends { local: ([10, 0, 0, 1], port).into(), remote: ([10, 0, 0, 2], 80).into() }
    }

    #[test]
    fn an_old_id_finds_nothing_in_a_reused_slot() {
        let mut table = Table::new(1);
        let first = table.insert(ends(1), |_| 'a');
        assert!(table.is_full());
        assert_eq!(table.remove(first, &ends(1)), Some('a'));
        let second = table.insert(ends(2), |_| 'b');
        assert_eq!(first.slot(), second.slot());
        assert_eq!(table.get_mut(first), None);
        assert_eq!(table.get_mut(second), Some(&mut 'b'));
        assert_eq!(table.remove(first, &ends(2)), None);
        assert_eq!(table.find(&ends(2)), Some(second));
        assert_eq!(table.find(&ends(1)), None);
        assert_eq!(table.id_at(second.slot()), Some(second));
    }
}
