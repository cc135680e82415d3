//! Key locks: one lock per key in flight, found through a table of stripes.
//!
//! Place: `db::write` holds a key's lock from before its LSN is drawn until its version is
//! published.
//!
//! A stripe's word holds the hash of the one key locked in it, or 0. So the common case is one
//! compare-and-swap to lock and one to unlock, and a key that merely shares the stripe with a
//! locked one is seen to be another: it goes to the stripe's *overflow*, a list under a mutex held
//! for nanoseconds, and does not wait. A writer that is frozen inside a put holds up its own key only.
//!
//! Invariants:
//! 1. (I1) A version of k is drawn and published under `lock(hash(k))`, so that per key lock order,
//!    LSN order and publish order are one. Two keys with the same 63-bit hash share a lock.
//! 2. While CROWDED is set in a word, everybody goes through the mutex. It is set and cleared under
//!    the mutex only, and cleared only when the overflow is empty; so a key is never held twice.
//! 3. Several keys are always taken in ascending (stripe, hash): no deadlock between batches. A
//!    range deletion takes every stripe whole, in the same order; while it waits at one it bars only
//!    who holds nothing yet, so that it never waits for a batch that waits for it.
//! 4. A range deletion that meets a held key gives back what it has and waits until those that hold keys in
//!    that stripe have gone: whoever stands still with a key stops nobody else by it. When others came in
//!    between in every one of a few rounds, it takes its turn, stripe by stripe, and then waits for those only that
//!    were there before it.
//! 5. The table belongs to the store, not to a generation: a key keeps its lock across a turn, so
//!    writers of the next generation exclude those of the last one by themselves.
//!
//! Orderings: locking is Acquire, unlocking Release, on the word or on the mutex; a holder in the
//! overflow left through the mutex, which the next holder of the same key passes too (2).
//!
//! Origin: replaces cLSM's shared-exclusive lock and its Algorithm 3 (docs/papers/clsm.md).
//! Tests: below, and `loom_tests`.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{CachePadded, Condvar, Mutex, MutexGuard, failpoint, spin_until};

#[cfg(not(loom))]
const STRIPES: usize = 1024;
#[cfg(loom)]
const STRIPES: usize = 1;

/// Rounds in which a range deletion waits with nothing held.
const ROUNDS: usize = if cfg!(loom) { 1 } else { 8 };

/// The overflow is, or may be, in use.
const CROWDED: u64 = 1 << 63;

/// The lock table.
pub struct Stripes {
    stripes: Box<[CachePadded<Stripe>]>,
}

#[derive(Default)]
struct Stripe {
    /// The hash of the key held by the fast way (0: none), and CROWDED.
    word: AtomicU64,
    overflow: Mutex<Overflow>,
    changed: Condvar,
}

#[derive(Default)]
struct Overflow {
    /// Keys held through the mutex, each with the number of its taking.
    held: Vec<(u64, u64)>,
    /// The next number.
    takings: u64,
    /// Somebody holds the whole stripe.
    whole: bool,
    /// Range deletions whose turn it is: who holds nothing yet lets them go first.
    turns: usize,
    waiting: usize,
}

impl Overflow {
    fn holds(&self, name: u64) -> bool {
        self.held.iter().any(|&(held, _)| held == name)
    }
}

/// Locks held; given back on drop, in the order they were taken.
#[must_use = "a lock that is not kept is given back at once"]
pub struct HeldStripes<'a> {
    table: &'a Stripes,
    which: Which,
}

enum Which {
    One(u64),
    Many(Vec<u64>),
    All,
}

/// A key's hash as it stands in a word: 63 bits, never 0.
fn name_of(hash: u64) -> u64 {
    (hash & !CROWDED).max(1)
}

fn stripe_of(name: u64) -> usize {
    // The high half: filters and caches use the low bits.
    (name >> 40) as usize % STRIPES
}

impl Stripe {
    /// Takes the lock of a key; `first` if the caller holds no other.
    #[inline]
    fn lock(&self, name: u64, first: bool) {
        let free = || self.word.compare_exchange(0, name, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !free() {
            self.lock_slowly(name, first);
        }
    }

    #[cold]
    fn lock_slowly(&self, name: u64, first: bool) {
        // The same key: its holder is about to publish.
        let mine = |seen: u64| seen & !CROWDED == name;
        if mine(self.word.load(Ordering::Relaxed)) {
            spin_until(|| !mine(self.word.load(Ordering::Relaxed)));
        }
        let mut overflow = self.crowd();
        while overflow.whole
            || first && overflow.turns > 0
            || mine(self.word.load(Ordering::Acquire))
            || overflow.holds(name)
        {
            overflow = self.wait(overflow);
        }
        let number = overflow.takings;
        overflow.takings += 1;
        overflow.held.push((name, number));
    }

    /// The mutex, with CROWDED set: from now on nobody takes the fast way in or out.
    fn crowd(&self) -> MutexGuard<'_, Overflow> {
        let overflow = self.overflow.lock();
        self.word.fetch_or(CROWDED, Ordering::AcqRel);
        overflow
    }

    fn wait<'a>(&'a self, mut overflow: MutexGuard<'a, Overflow>) -> MutexGuard<'a, Overflow> {
        overflow.waiting += 1;
        failpoint::hit("stripe::waits");
        let mut overflow = self.changed.wait_on(&self.overflow, overflow);
        overflow.waiting -= 1;
        overflow
    }

    #[inline]
    fn unlock(&self, name: u64) {
        if self.word.compare_exchange(name, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            self.unlock_slowly(name);
        }
    }

    #[cold]
    fn unlock_slowly(&self, name: u64) {
        let mut overflow = self.overflow.lock();
        match overflow.held.iter().position(|&(held, _)| held == name) {
            Some(at) => {
                overflow.held.swap_remove(at);
            }
            // Held by the fast way; CROWDED came while it was held. Nobody else changes the name.
            None => {
                self.word.fetch_and(CROWDED, Ordering::AcqRel);
            }
        }
        self.settle(&overflow);
    }

    /// After a change under the mutex: wakes those who wait, or opens the fast way again.
    fn settle(&self, overflow: &Overflow) {
        if overflow.waiting > 0 {
            self.changed.notify_all();
        } else if overflow.held.is_empty() && !overflow.whole {
            self.word.fetch_and(!CROWDED, Ordering::AcqRel);
        }
    }

    fn is_held(&self, overflow: &Overflow) -> bool {
        overflow.whole || self.word.load(Ordering::Acquire) & !CROWDED != 0 || !overflow.held.is_empty()
    }

    /// Takes the stripe whole, if nobody holds a key of it.
    fn try_lock_whole(&self) -> bool {
        let mut overflow = self.crowd();
        let free = !self.is_held(&overflow);
        if free {
            overflow.whole = true;
        } else {
            self.settle(&overflow);
        }
        free
    }

    /// Takes the stripe whole as soon as those that hold keys of it have gone.
    fn lock_whole(&self) {
        let mut overflow = self.crowd();
        overflow.turns += 1;
        while self.is_held(&overflow) {
            overflow = self.wait(overflow);
        }
        overflow.turns -= 1;
        overflow.whole = true;
    }

    /// Waits until all that hold the stripe, or keys of it, now have let go of them once.
    fn outwait(&self) {
        let mut overflow = self.crowd();
        let next = overflow.takings;
        // Nobody takes the fast way while somebody waits: the name in the word is one that was there before.
        while overflow.whole
            || self.word.load(Ordering::Acquire) & !CROWDED != 0
            || overflow.held.iter().any(|&(_, number)| number < next)
        {
            overflow = self.wait(overflow);
        }
        self.settle(&overflow);
    }

    fn unlock_whole(&self) {
        let mut overflow = self.overflow.lock();
        overflow.whole = false;
        self.settle(&overflow);
    }
}

impl Default for Stripes {
    fn default() -> Self {
        Stripes { stripes: (0..STRIPES).map(|_| CachePadded::new(Stripe::default())).collect() }
    }
}

impl Stripes {
    /// Takes the lock of the key with this hash. O(1).
    #[inline]
    pub fn lock(&self, hash: u64) -> HeldStripes<'_> {
        let name = name_of(hash);
        self.stripes[stripe_of(name)].lock(name, true);
        HeldStripes { table: self, which: Which::One(name) }
    }

    /// Takes the locks of all these keys. O(n log n).
    pub fn lock_many(&self, hashes: impl Iterator<Item = u64>) -> HeldStripes<'_> {
        let mut names: Vec<u64> = hashes.map(name_of).collect();
        names.sort_unstable_by_key(|&name| (stripe_of(name), name));
        names.dedup();
        for (at, &name) in names.iter().enumerate() {
            self.stripes[stripe_of(name)].lock(name, at == 0);
        }
        HeldStripes { table: self, which: Which::Many(names) }
    }

    /// Takes the locks of all keys there are: some tens of microseconds, when nobody holds one. See invariant 4.
    pub fn lock_all(&self) -> HeldStripes<'_> {
        for _ in 0..ROUNDS {
            let Some(busy) = self.stripes.iter().position(|stripe| !stripe.try_lock_whole()) else {
                return HeldStripes { table: self, which: Which::All };
            };
            self.stripes[..busy].iter().for_each(|stripe| stripe.unlock_whole());
            self.stripes[busy].outwait();
        }
        self.stripes.iter().for_each(|stripe| stripe.lock_whole());
        HeldStripes { table: self, which: Which::All }
    }
}

impl Drop for HeldStripes<'_> {
    #[inline]
    fn drop(&mut self) {
        let unlock = |name: u64| self.table.stripes[stripe_of(name)].unlock(name);
        match &self.which {
            Which::One(name) => unlock(*name),
            Which::Many(names) => names.iter().copied().for_each(unlock),
            Which::All => self.table.stripes.iter().for_each(|stripe| stripe.unlock_whole()),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Hashes of one stripe.
    fn crowd(n: u64) -> Vec<u64> {
        (1..=n).map(|i| (7 << 40) | i).collect()
    }

    #[test]
    fn each_key_excludes_itself_whoever_holds_it_and_however() {
        let stripes = Stripes::default();
        let hashes = crowd(5);
        let inside: Vec<AtomicU32> = (0..5).map(|_| AtomicU32::new(0)).collect();
        let enter = |keys: &[usize]| {
            for &k in keys {
                assert_eq!(
                    inside[k].fetch_add(1, std::sync::atomic::Ordering::SeqCst),
                    0,
                    "key {k} is held twice"
                );
            }
            for &k in keys {
                inside[k].fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            }
        };
        std::thread::scope(|s| {
            for thread in 0..4usize {
                let (stripes, hashes, enter) = (&stripes, &hashes, &enter);
                s.spawn(move || {
                    for round in 0..20_000 {
                        let k = (thread + round) % 5;
                        match (thread * 31 + round) % 50 {
                            0 => {
                                let _held = stripes.lock_all();
                                enter(&[0, 1, 2, 3, 4]);
                            }
                            1..25 => {
                                // In either order: the table takes them in its own.
                                let pair = if round % 2 == 0 { [k, (k + 2) % 5] } else { [(k + 2) % 5, k] };
                                let _held = stripes.lock_many(pair.into_iter().map(|i| hashes[i]));
                                enter(&pair);
                            }
                            _ => {
                                let _held = stripes.lock(hashes[k]);
                                enter(&[k]);
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(stripes.stripes[7].word.load(Ordering::Relaxed), 0, "the fast way is open again");
    }

    #[test]
    fn a_held_key_does_not_hold_up_its_neighbours_in_the_stripe() {
        let stripes = Stripes::default();
        let hashes = crowd(3);
        let frozen = stripes.lock(hashes[0]);
        std::thread::scope(|s| {
            s.spawn(|| {
                drop(stripes.lock(hashes[1]));
                drop(stripes.lock_many(hashes[1..].iter().copied()));
            })
            .join()
            .expect("neighbours go on");
            let (got, waits) = mpsc::channel();
            let (stripes, hashes) = (&stripes, &hashes);
            s.spawn(move || {
                drop(stripes.lock(hashes[0]));
                got.send(()).expect("the test waits");
            });
            assert!(waits.recv_timeout(Duration::from_millis(50)).is_err(), "the key itself is held");
            drop(frozen);
            waits.recv_timeout(Duration::from_secs(20)).expect("woken by the unlock");
        });
    }

    /// Regression: a range deletion kept what it had while it waited for a key whose holder stood still, and so stopped the
    /// writers of all keys.
    #[test]
    fn a_held_key_and_all_keys_wanted_beside_it_stop_nobody_else() {
        let stripes = Stripes::default();
        let hashes = crowd(3);
        let frozen = stripes.lock(hashes[0]);
        std::thread::scope(|s| {
            let (got, waits) = mpsc::channel();
            let stripes = &stripes;
            s.spawn(move || {
                drop(stripes.lock_all());
                got.send(()).expect("the test waits");
            });
            assert!(waits.recv_timeout(Duration::from_millis(50)).is_err(), "one key is held");
            let (done, others) = mpsc::channel();
            let hashes = &hashes;
            s.spawn(move || {
                for other in (0..200).map(|stripe| (stripe << 40) | 2).chain(hashes[1..].iter().copied()) {
                    drop(stripes.lock(other));
                }
                done.send(()).expect("the test waits");
            });
            let others_went_on = others.recv_timeout(Duration::from_secs(20));
            drop(frozen);
            waits.recv_timeout(Duration::from_secs(20)).expect("it gets its turn");
            others_went_on.expect("neighbours in all stripes go on");
        });
    }

    /// Regression: among threads that held many keys for long, a range deletion found no moment at which a stripe was free.
    #[test]
    fn who_holds_nothing_lets_a_range_deletion_go_first_and_who_holds_something_goes_on() {
        let stripes = Stripes::default();
        let stripe = &stripes.stripes[7];
        let names = crowd(3);
        stripe.lock(names[0], true);
        std::thread::scope(|s| {
            let (got, waits) = mpsc::channel();
            s.spawn(move || {
                stripe.lock_whole();
                stripe.unlock_whole();
                got.send(()).expect("the test waits");
            });
            while stripe.overflow.lock().turns == 0 {
                std::thread::yield_now();
            }
            let (came, newcomer) = mpsc::channel();
            let name = names[1];
            s.spawn(move || {
                stripe.lock(name, true);
                came.send(()).expect("the test waits");
                stripe.unlock(name);
            });
            let barred = newcomer.recv_timeout(Duration::from_millis(50)).is_err();
            // A batch that holds the first key and needs another one; else the two would wait for each other.
            stripe.lock(names[2], false);
            stripe.unlock(names[2]);
            stripe.unlock(names[0]);
            waits.recv_timeout(Duration::from_secs(20)).expect("its turn comes");
            newcomer.recv_timeout(Duration::from_secs(20)).expect("and then the newcomer's");
            assert!(barred, "a newcomer went first");
        });
        assert_eq!(stripe.word.load(Ordering::Relaxed), 0, "the fast way is open again");
    }
}
