//! The way into a large list: the tall nodes' keys in one array, so that a search need not walk down to them.
//!
//! Place: `skiplist` asks it where to begin, and lets inserts build it, a few nodes at a time.
//!
//! A search of n nodes meets about log2 n of them, each in a cache line of its own. The guide holds the nodes of one level,
//! at most [`ENTRIES_MAX`], eight bytes of each key beside one another: halving them touches few lines, and what is
//! left is a walk down from that level. It is built anew whenever the list has doubled, and says nothing before the list is
//! [`FIRST_ENTRIES`] long.
//!
//! Invariants:
//! 1. An entry of a stage of level l is a node that was met on level l. Entries are in the order of the list, and so are
//!    their heads: eight bytes of the key behind what all keys of the stage have in common.
//! 2. A stage never changes and lives as long as the list. Each is about twice as large as the one before, so all of them
//!    together are twice the last.
//! 3. It is a hint: what it names is before the place asked for. How far before is for the list to find out.
//!
//! Concurrency: `current` is stored with Release after its stage is complete, and loaded with Acquire: who reads a stage
//! knows the nodes that the builder knew. One inserting thread at a time builds; the others pass by.
//!
//! Origin: ours; sLSM §2.4's fence pointers, turned on memory. Order of bytes only.
//! Tests: below, `skiplist_tests`, `loom_tests`.

use std::sync::{Arc, OnceLock};

use crate::budget::{Account, Charge};
use crate::key::{key_prefix, shared_prefix};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Nodes of the list from which on a guide pays.
const FIRST_ENTRIES: usize = if cfg!(loom) {
    1
} else if cfg!(test) {
    1 << 6
} else {
    1 << 12
};
/// Most entries of a stage.
const ENTRIES_MAX: usize = 1 << 20;
/// The lowest level a stage is made of: one node of eight. Measured against levels 2, 4 and 5: docs/design/speed.md.
const LEVEL_MIN: u32 = if cfg!(loom) { 1 } else { 3 };
/// Nodes that one insert looks at.
const STEP: usize = 8;
/// Bytes of an entry.
const ENTRY_BYTES: usize = size_of::<u64>() + size_of::<u32>();
/// Doublings until a list is as long as can be.
const STAGES: usize = 32;

/// Nodes of one level, with eight bytes of each key.
pub(super) struct Stage {
    level: usize,
    /// What all keys begin with.
    common: Box<[u8]>,
    heads: Vec<u64>,
    units: Vec<u32>,
    charge: Charge,
}

impl Stage {
    /// Its nodes are on this level.
    #[inline]
    pub(super) fn level(&self) -> usize {
        self.level
    }

    /// Takes the next node. A key that came in before the first or behind the last may have less in common: it is left out.
    #[inline]
    pub(super) fn push(&mut self, key: &[u8], unit: u32) {
        if let Some(rest) = key.strip_prefix(&*self.common) {
            self.heads.push(key_prefix(rest));
            self.units.push(unit);
        }
    }

    /// The last node that is surely before `key`. None before the first; none behind the last either, since keys that come
    /// in order all go there, and would have all that came since to pass.
    #[inline]
    fn before(&self, key: &[u8]) -> Option<u32> {
        let head = key_prefix(key.strip_prefix(&*self.common)?);
        let behind = self.heads.partition_point(|&known| known < head);
        if behind == self.heads.len() { None } else { Some(self.units[behind.checked_sub(1)?]) }
    }
}

/// What is being built.
struct Building {
    stage: Option<Stage>,
    /// The node that was looked at last; 0 for the head.
    at: u32,
    /// Stages before it.
    complete: usize,
    /// Nodes of the list from which on the next is due.
    due: usize,
}

/// The list, as far as building needs it.
pub(super) trait Levels {
    /// Nodes in it.
    fn entries(&self) -> usize;
    /// The keys of the first and the last node.
    fn ends(&self) -> Option<(&[u8], &[u8])>;
    /// The node behind one that this named on `level` before, or behind the head (0), and its key.
    fn next_on(&self, level: usize, unit: u32) -> Option<(u32, &[u8])>;
}

/// See the module.
pub(super) struct Guide {
    stages: [OnceLock<Stage>; STAGES],
    /// Number of complete stages.
    current: AtomicUsize,
    building: Mutex<Building>,
    account: Arc<Account>,
    bytes: AtomicUsize,
}

impl Guide {
    pub(super) fn new(account: Arc<Account>) -> Guide {
        Guide {
            stages: [const { OnceLock::new() }; STAGES],
            current: AtomicUsize::new(0),
            building: Mutex::new(Building { stage: None, at: 0, complete: 0, due: FIRST_ENTRIES }),
            account,
            bytes: AtomicUsize::new(0),
        }
    }

    /// A node before all versions of `key`, and a level it was met on, if the guide knows one. O(log entries).
    #[inline]
    pub(super) fn before(&self, key: &[u8]) -> Option<(u32, usize)> {
        let current = self.current.load(Ordering::Acquire);
        let stage = self.stages[current.checked_sub(1)?].get()?;
        Some((stage.before(key)?, stage.level))
    }

    /// Bytes it takes.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Builds on, a few nodes, if a stage is due and nobody else is at it.
    pub(super) fn advance(&self, list: &impl Levels) {
        let Some(mut building) = self.building.try_lock() else { return };
        let building = &mut *building;
        if building.stage.is_none() {
            let entries = list.entries();
            if entries < building.due {
                return;
            }
            let Some((first, last)) = list.ends() else { return };
            building.due = entries * 2;
            building.at = 0;
            building.stage = Some(self.stage(entries, &first[..shared_prefix(first, last)]));
        }
        let Some(stage) = &mut building.stage else { return };
        for _ in 0..STEP {
            let Some((unit, key)) = list.next_on(stage.level, building.at) else {
                building.complete += self.complete(building.complete, building.stage.take());
                return;
            };
            building.at = unit;
            stage.push(key, unit);
        }
    }

    /// The first stage of a list that is loaded with so many nodes, whose keys have `common` in common; `None` if it is not
    /// worth one. Its nodes are pushed by the caller, in order.
    pub(super) fn begin(&self, entries: usize, common: &[u8]) -> Option<Stage> {
        (entries >= FIRST_ENTRIES).then(|| self.stage(entries, common))
    }

    /// Shows the stage that [`Guide::begin`] gave.
    pub(super) fn end(&self, stage: Option<Stage>, entries: usize) {
        if stage.is_some() {
            let mut building = self.building.lock();
            building.complete += self.complete(building.complete, stage);
            building.due = entries * 2;
        }
    }

    /// An empty stage for a list of so many nodes.
    fn stage(&self, entries: usize, common: &[u8]) -> Stage {
        let level = entries.max(1).ilog2().saturating_sub(ENTRIES_MAX.ilog2()).max(LEVEL_MIN) as usize;
        // Half as many again as are expected: heights are random, and inserts go on.
        let room = (entries >> level) * 3 / 2;
        Stage {
            level,
            common: common.into(),
            heads: Vec::with_capacity(room),
            units: Vec::with_capacity(room),
            charge: self.account.charge(common.len() + room * ENTRY_BYTES),
        }
    }

    /// Shows a stage, the one behind so many; how many that are.
    fn complete(&self, current: usize, stage: Option<Stage>) -> usize {
        let (Some(mut stage), Some(place)) = (stage, self.stages.get(current)) else { return 0 };
        let bytes = stage.common.len() + stage.heads.capacity() * ENTRY_BYTES;
        stage.charge.set(bytes);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Under the lock, so it is empty.
        let shown = usize::from(place.set(stage).is_ok());
        self.current.store(current + shown, Ordering::Release);
        shown
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A list of keys, all of them on every level; a unit is a place in it, counted from 1.
    struct Plain(Vec<Vec<u8>>);

    impl Levels for Plain {
        fn entries(&self) -> usize {
            // Enough for a stage of the lowest level.
            self.0.len().max(FIRST_ENTRIES)
        }
        fn ends(&self) -> Option<(&[u8], &[u8])> {
            Some((self.0.first()?, self.0.last()?))
        }
        fn next_on(&self, _: usize, unit: u32) -> Option<(u32, &[u8])> {
            Some((unit + 1, self.0.get(unit as usize)?))
        }
    }

    fn built(list: &Plain, account: &Arc<Account>) -> Guide {
        let guide = Guide::new(Arc::clone(account));
        for _ in 0..list.0.len() / STEP + 2 {
            guide.advance(list);
        }
        guide
    }

    #[test]
    fn what_it_names_is_the_last_with_smaller_eight_bytes() {
        let keys = |common: &str, count: usize| -> Vec<Vec<u8>> {
            (0..count)
                .map(|n| format!("{common}{:05}{}", n / 3 * 7, "!".repeat(n % 3)).into_bytes())
                .collect()
        };
        for list in [Plain(keys("", 50)), Plain(keys("all begin like this ", 200)), Plain(keys("x", 3))] {
            let guide = built(&list, &Arc::default());
            let common = shared_prefix(&list.0[0], &list.0[list.0.len() - 1]);
            let probes = list.0.iter().cloned().chain(list.0.iter().map(|key| [&key[..], b"\xff"].concat()));
            for key in probes.chain([b"".to_vec(), b"a".to_vec(), b"~~~".to_vec()]) {
                let before = |known: &Vec<u8>| key_prefix(&known[common..]) < key_prefix(&key[common..]);
                let wanted = match key.starts_with(&list.0[0][..common]) {
                    true => list.0.iter().rposition(before).filter(|&last| last + 1 < list.0.len()),
                    false => None,
                };
                assert_eq!(
                    guide.before(&key).map(|(unit, _)| unit as usize),
                    wanted.map(|n| n + 1),
                    "{key:?}"
                );
            }
        }
    }

    #[test]
    fn it_is_built_anew_when_the_list_has_doubled_and_its_bytes_arecharged() {
        let account = Arc::<Account>::default();
        let mut list = Plain((0..200u32).map(|n| n.to_be_bytes().to_vec()).collect());
        let guide = built(&list, &account);
        let (bytes, unit) = (guide.bytes(), guide.before(&100u32.to_be_bytes()));
        assert!(bytes >= 200 * ENTRY_BYTES && account.bytes() == bytes, "{bytes}");
        list.0 = (0..399u32).map(|n| (n / 2).to_be_bytes().to_vec()).collect();
        (0..100).for_each(|_| guide.advance(&list));
        assert_eq!(guide.before(&100u32.to_be_bytes()), unit, "not yet");
        list.0.push(u32::MAX.to_be_bytes().to_vec());
        (0..100).for_each(|_| guide.advance(&list));
        assert_eq!(guide.before(&100u32.to_be_bytes()).map(|(unit, _)| unit), Some(200));
        drop(guide);
        assert_eq!(account.bytes(), 0);
    }
}
