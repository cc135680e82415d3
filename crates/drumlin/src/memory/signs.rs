//! Signs: some nodes of the list in its order, each with eight bytes of its key, beside one another in memory.
//!
//! Place: the leaves and the inner nodes of `guide` are such arrays.
//!
//! Invariants:
//! 1. Below `count`, once its change is over, the signs are in the order of the list, heads ascend, and all keys begin
//!    with the guide's prefix up to `skip`; a head is the eight bytes of the key behind that.
//! 2. Every unit that was ever in `units` is that of a node of the list.
//! 3. What is read while somebody changes the array may be out of order or twice there: it is a hint, and whoever takes it
//!    compares the node itself.
//!
//! Concurrency: one thread at a time changes an array (`taken`); nobody waits for it: who finds it taken for long goes
//! without.
//! - `taken`: compare-and-swap Acquire, store Release: the next to change it sees what the last one wrote.
//! - units and children: stored with Release, loaded with Acquire: whoever reads a unit may read the node's bytes, and
//!   whoever reads a child its array. The thread that stores a unit knows the node, having linked it or having read the
//!   unit here while it held `taken`.
//! - heads, `count`, `skip`: Relaxed, they are hints. Below a count that was read there may still be a unit or a child that
//!   reads as 0: none.
//!
//! Origin: ours. Tests: below, `guide`, `skiplist_tests`, `loom_tests`.

use crate::key::{Side, behind_prefix, key_prefix, shared_prefix};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{prefetch, spin_until};

use super::node::Link;

/// What a place is compared by: its key, and what all keys of the guide may begin with.
#[derive(Clone, Copy)]
pub(super) struct Target<'k> {
    pub key: &'k [u8],
    pub prefix: &'k [u8],
}

impl Target<'_> {
    /// The eight bytes behind `skip` bytes of the prefix; or where the key lies to all keys that begin with these.
    #[inline]
    fn head(&self, skip: usize) -> Result<u64, Side> {
        behind_prefix(self.key, &self.prefix[..skip.min(self.prefix.len())]).map(key_prefix)
    }
}

/// At most `CAPACITY` signs; `CHILDREN` is as many, or 0 in a leaf.
#[repr(C, align(64))]
pub(super) struct Signs<const CAPACITY: usize, const CHILDREN: usize> {
    taken: AtomicU32,
    count: Link,
    skip: AtomicU32,
    heads: [AtomicU64; CAPACITY],
    units: [Link; CAPACITY],
    children: [Link; CHILDREN],
}

impl<const CAPACITY: usize, const CHILDREN: usize> Signs<CAPACITY, CHILDREN> {
    /// No signs yet; their keys share `skip` bytes of the prefix.
    pub(super) fn new(skip: usize) -> Self {
        Self {
            taken: AtomicU32::new(0),
            count: Link::new(0),
            skip: AtomicU32::new(skip as u32),
            heads: std::array::from_fn(|_| AtomicU64::new(0)),
            units: std::array::from_fn(|_| Link::new(0)),
            children: std::array::from_fn(|_| Link::new(0)),
        }
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        (self.count.load(Ordering::Relaxed) as usize).min(CAPACITY)
    }

    pub(super) fn skip(&self) -> usize {
        self.skip.load(Ordering::Relaxed) as usize
    }

    /// The node of the n-th sign.
    #[inline]
    pub(super) fn unit(&self, n: usize) -> u32 {
        self.units[n].load(Ordering::Acquire)
    }

    /// What is found from the n-th sign on.
    #[inline]
    pub(super) fn child(&self, n: usize) -> u32 {
        self.children[n].load(Ordering::Acquire)
    }

    /// The nodes of all signs.
    pub(super) fn all_units(&self) -> Vec<u32> {
        (0..self.count()).map(|n| self.unit(n)).filter(|unit| *unit != 0).collect()
    }

    /// What is found from each sign on.
    pub(super) fn all_children(&self) -> Vec<u32> {
        (0..self.count()).map(|n| self.child(n)).filter(|unit| *unit != 0).collect()
    }

    /// Starts to load what a search of it compares.
    #[inline]
    pub(super) fn prefetch_heads(&self) {
        let start: *const u8 = std::ptr::from_ref(self).cast();
        (0..std::mem::offset_of!(Self, units)).step_by(64).for_each(|at| prefetch(start.wrapping_add(at)));
    }

    /// How many signs are before the target: the first if there are children, for what is before it is found in the first
    /// child, too. Of signs with the same head `is_before` tells. O(log CAPACITY).
    #[inline]
    pub(super) fn before(&self, target: Target<'_>, is_before: impl Fn(u32) -> bool) -> usize {
        let (first, alike) = self.alike(target);
        first + self.before_of(first, alike, is_before)
    }

    /// The same, but where a single one has the same head it passes for one behind, and its node is not waited for: whoever
    /// loads those on both sides meets it at once.
    #[inline]
    pub(super) fn about(&self, target: Target<'_>, is_before: impl Fn(u32) -> bool) -> usize {
        let (first, alike) = self.alike(target);
        if alike == 1 { first } else { first + self.before_of(first, alike, is_before) }
    }

    /// How many of so many signs from the n-th on have a node that is before.
    #[inline]
    fn before_of(&self, n: usize, signs: usize, is_before: impl Fn(u32) -> bool) -> usize {
        self.units[n..n + signs].partition_point(|unit| match unit.load(Ordering::Acquire) {
            0 => false,
            unit => is_before(unit),
        })
    }

    /// How many signs have a head before the target's (see `before`), and how many the same.
    #[inline]
    fn alike(&self, target: Target<'_>) -> (usize, usize) {
        let from = usize::from(CHILDREN > 0);
        let count = self.count().max(from);
        let head = match target.head(self.skip()) {
            Ok(head) => head,
            Err(Side::Before) => return (from, 0),
            Err(Side::Behind) => return (count, 0),
        };
        let heads = &self.heads[..count];
        let first = from + heads[from..].partition_point(|known| known.load(Ordering::Relaxed) < head);
        let alike = heads[first..].iter().take_while(|known| known.load(Ordering::Relaxed) == head).count();
        (first, alike)
    }

    /// The right to change it, unless somebody else has it for long.
    #[inline]
    pub(super) fn take(&self) -> Option<Taken<'_, CAPACITY, CHILDREN>> {
        spin_until(|| self.taken.load(Ordering::Relaxed) == 0);
        let taken = self.taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        // Made only then: dropped, it gives back what another one holds.
        taken.is_ok().then(|| Taken(self))
    }
}

/// The right to change an array.
pub(super) struct Taken<'s, const CAPACITY: usize, const CHILDREN: usize>(&'s Signs<CAPACITY, CHILDREN>);

impl<const CAPACITY: usize, const CHILDREN: usize> Taken<'_, CAPACITY, CHILDREN> {
    pub(super) fn is_full(&self) -> bool {
        self.0.count() == CAPACITY
    }

    /// Makes the heads those behind what `target` shares with the other keys; the target's.
    pub(super) fn fit(&self, target: Target<'_>) -> u64 {
        let skip = self.0.skip();
        let shared = shared_prefix(target.key, &target.prefix[..skip]);
        if shared < skip {
            for head in &self.0.heads[..self.0.count()] {
                let mut bytes = [0; 16];
                let more = &target.prefix[shared..skip.min(shared + 8)];
                bytes[..more.len()].copy_from_slice(more);
                bytes[more.len()..more.len() + 8]
                    .copy_from_slice(&head.load(Ordering::Relaxed).to_be_bytes());
                head.store(key_prefix(&bytes), Ordering::Relaxed);
            }
            self.0.skip.store(shared as u32, Ordering::Relaxed);
        }
        key_prefix(&target.key[shared..])
    }

    /// Puts a sign in as the n-th; there must be room.
    pub(super) fn insert(&self, n: usize, head: u64, unit: u32, child: u32) {
        let signs = self.0;
        let count = signs.count();
        for n in (n..count).rev() {
            self.copy(n, signs, n + 1);
        }
        signs.heads[n].store(head, Ordering::Relaxed);
        // Release: whoever reads the unit finds the node, whoever reads the child its signs.
        signs.units[n].store(unit, Ordering::Release);
        if CHILDREN > 0 {
            signs.children[n].store(child, Ordering::Release);
        }
        signs.count.store(count as u32 + 1, Ordering::Relaxed);
    }

    /// Appends the signs from the n-th on to `other`, which has the same `skip`.
    pub(super) fn copy_from(&self, n: usize, other: &Self) {
        let (from, count) = (other.0.count(), self.0.count());
        for (at, n) in (n..count).enumerate() {
            self.copy(n, other.0, from + at);
        }
        other.0.count.store((from + count - n) as u32, Ordering::Relaxed);
    }

    /// Copies the n-th sign to the place `at` of `to`.
    #[inline]
    fn copy(&self, n: usize, to: &Signs<CAPACITY, CHILDREN>, at: usize) {
        to.heads[at].store(self.0.heads[n].load(Ordering::Relaxed), Ordering::Relaxed);
        // Relaxed loads: only who holds `taken` stores.
        to.units[at].store(self.0.units[n].load(Ordering::Relaxed), Ordering::Release);
        if CHILDREN > 0 {
            to.children[at].store(self.0.children[n].load(Ordering::Relaxed), Ordering::Release);
        }
    }

    /// Leaves the first `count` only.
    pub(super) fn cut(&self, count: usize) {
        self.0.count.store(count as u32, Ordering::Relaxed);
    }
}

impl<const CAPACITY: usize, const CHILDREN: usize> Drop for Taken<'_, CAPACITY, CHILDREN> {
    fn drop(&mut self) {
        self.0.taken.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Keys come in any order; some share less of the prefix than those before.
    #[test]
    fn signs_stay_in_order_when_their_keys_share_less() {
        let prefix = b"customer/0001/";
        let keys: Vec<&[u8]> = vec![
            b"customer/0001/order/7",
            b"customer/0001/order/3",
            b"customer/0001/",
            b"customer/0001/order/31",
            b"customer/0002",
            b"customer/00",
            b"customer/0001/order/3\0",
            b"customs",
            b"a",
            b"",
            b"zebra",
        ];
        let signs = Signs::<16, 0>::new(prefix.len());
        let mut known: Vec<&[u8]> = Vec::new();
        for (n, key) in keys.iter().enumerate() {
            let target = Target { key, prefix };
            let held = signs.take().expect("nobody else has it");
            let head = held.fit(target);
            let is_before = |unit: u32| keys[unit as usize - 1] < *key;
            let at = signs.before(target, is_before);
            assert_eq!(at, known.iter().filter(|other| *other < key).count(), "{key:?} among {known:?}");
            held.insert(at, head, n as u32 + 1, 0);
            known.insert(at, key);
            drop(held);
            for key in &keys {
                let target = Target { key, prefix };
                let before = signs.before(target, |unit| keys[unit as usize - 1] < *key);
                assert_eq!(before, known.iter().filter(|other| *other < key).count(), "{key:?} of {known:?}");
            }
        }
        assert!((0..keys.len()).all(|n| keys[signs.unit(n) as usize - 1] == known[n]));
    }

    #[test]
    fn one_at_a_time_changes_an_array() {
        let signs = Signs::<4, 4>::new(0);
        let held = signs.take();
        // Who went without has given nothing back.
        assert!(held.is_some() && signs.take().is_none() && signs.take().is_none());
        drop(held);
        assert!(signs.take().is_some());
    }
}
