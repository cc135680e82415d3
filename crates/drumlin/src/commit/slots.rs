//! In-flight slots: one padded word per writing thread, telling what it has in flight.
//!
//! Place: owned by the [`Sequencer`](super::Sequencer); read by whoever computes the completed
//! prefix, and by gets that meet a batch part.
//!
//! A slot's word is IDLE, a *lower bound* (the end of its previous record, or P if that is higher:
//! everything this thread may yet draw is at or above it), or the exact LSN in flight. Bit 63 says that somebody is
//! parked on the word.
//!
//! Invariants:
//! 1. The lower bound is stored after the key locks are held and before the LSN is drawn.
//! 2. A word that shows an LSN is changed by `swap` only, so a waiter's flag is never lost.
//! 3. The lower bound is at or above the *end* of the previous record, never its LSN: a get that compares
//!    a batch part's LSN with the word must not take a finished batch for an unfinished one.
//! 4. A slot joins the list before its first draw.
//!
//! Concurrency: all stores Release, all loads Acquire. Published by the owner; consumed by
//! `Sequencer::completed` (after it loaded the tail) and by `is_in_flight`.
//!
//! Tests: `loom_tests`, `sequencer::tests`.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock, Weak};

use crate::key::Lsn;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{CachePadded, Mutex, park_until, wake_all};

const WAITED_FOR: u64 = 1 << 63;
const IDLE: u64 = WAITED_FOR - 1;

#[cfg(not(loom))]
const CHUNKS: usize = 16;
#[cfg(loom)]
const CHUNKS: usize = 1;

/// Slots in chunk `i`; 2 million threads in all.
#[cfg(not(loom))]
const fn chunk_slots(chunk: usize) -> u32 {
    32 << chunk
}
#[cfg(loom)]
const fn chunk_slots(_chunk: usize) -> u32 {
    3
}

pub(super) struct Slot {
    state: AtomicU64,
    /// End of the owner's previous record. Written by the owner alone.
    last_end: AtomicU64,
}

impl Slot {
    fn new() -> Self {
        Slot { state: AtomicU64::new(IDLE), last_end: AtomicU64::new(0) }
    }

    /// The lower bound, stored over IDLE (nobody can be parked on IDLE): the end of the previous
    /// record, or the completed prefix if that is higher. Nothing below P is ever drawn again, and
    /// a thread that was idle for long, once frozen here, then holds P back by little.
    pub(super) fn announce(&self, completed: Lsn) {
        debug_assert_eq!(self.state.load(Ordering::Relaxed), IDLE, "a slot has one write in flight");
        let bound = self.last_end.load(Ordering::Relaxed).max(completed.0);
        self.state.store(bound, Ordering::Release);
    }

    /// The exact LSN, and the end of its record for the next lower bound.
    pub(super) fn publish(&self, lsn: Lsn, end: Lsn) {
        self.last_end.store(end.0, Ordering::Relaxed);
        self.change(lsn.0);
    }

    /// Nothing in flight any more.
    pub(super) fn clear(&self) {
        self.change(IDLE);
    }

    fn change(&self, to: u64) {
        if self.state.swap(to, Ordering::AcqRel) & WAITED_FOR != 0 {
            wake_all(&self.state);
        }
    }

    /// What is in flight: a lower bound of it, or `Lsn::MAX`.
    pub(super) fn bound(&self) -> Lsn {
        match self.state.load(Ordering::Acquire) & !WAITED_FOR {
            IDLE => Lsn::MAX,
            lsn => Lsn(lsn),
        }
    }

    /// Parks until the word changes, if it is still below `wanted` and `give_up` is false.
    pub(super) fn park_while_below(&self, wanted: Lsn, give_up: impl Fn() -> bool) {
        let seen = self.state.load(Ordering::Acquire);
        if seen & !WAITED_FOR >= wanted.0 {
            return;
        }
        let flagged = seen | WAITED_FOR;
        if seen != flagged
            && self.state.compare_exchange(seen, flagged, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return;
        }
        park_until(&self.state, || self.state.load(Ordering::Acquire) == flagged && !give_up());
    }

    /// Wakes whoever is parked, without a change: the owner has died.
    pub(super) fn wake(&self) {
        wake_all(&self.state);
    }
}

/// All slots of one store.
pub struct Slots {
    id: u64,
    chunks: [OnceLock<Box<[CachePadded<Slot>]>>; CHUNKS],
    /// Slots ever handed out. Release by `claim`, Acquire by readers.
    count: AtomicU32,
    free: Mutex<Vec<u32>>,
}

/// The calling thread's slot.
#[derive(Clone, Copy)]
pub struct SlotRef<'a> {
    pub(super) slot: &'a Slot,
    index: u32,
}

impl SlotRef<'_> {
    /// Its number, stored with batch parts.
    pub fn index(&self) -> u32 {
        self.index
    }
}

/// Gives a thread's slots back when the thread ends.
struct Claims(Vec<(u64, Weak<Slots>, u32)>);

impl Drop for Claims {
    fn drop(&mut self) {
        for (_, slots, index) in self.0.drain(..) {
            if let Some(slots) = slots.upgrade() {
                slots.release(index);
            }
        }
    }
}

thread_local! {
    static CLAIMS: RefCell<Claims> = const { RefCell::new(Claims(Vec::new())) };
}

impl Slots {
    /// No slots yet.
    pub fn new() -> Arc<Slots> {
        static NEXT_ID: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        Arc::new(Slots {
            id: NEXT_ID.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            chunks: [const { OnceLock::new() }; CHUNKS],
            count: AtomicU32::new(0),
            free: Mutex::new(Vec::new()),
        })
    }

    /// The calling thread's slot; claimed at its first call. O(1).
    /// `tail` is asked for the tail then: whatever the thread draws will be at or above it.
    pub fn mine(self: &Arc<Self>, tail: impl Fn() -> Lsn) -> SlotRef<'_> {
        let find = |claims: &RefCell<Claims>| claims.borrow().0.iter().find(|c| c.0 == self.id).map(|c| c.2);
        let known = CLAIMS.try_with(find).ok().flatten();
        let index = known.unwrap_or_else(|| {
            let index = self.claim();
            self.by_index(index).slot.last_end.fetch_max(tail().0, Ordering::Relaxed);
            // A thread that is ending (it drops the last handle of a store, which closes it) has no
            // memory any more: its few calls take a slot each, for as long as the store is open.
            let _ = CLAIMS.try_with(|claims| {
                let claims = &mut claims.borrow_mut().0;
                claims.retain(|(_, slots, _)| slots.strong_count() > 0);
                claims.push((self.id, Arc::downgrade(self), index));
            });
            index
        });
        self.by_index(index)
    }

    /// Takes a free slot, or a new one.
    pub(crate) fn claim(&self) -> u32 {
        let mut free = self.free.lock();
        if let Some(index) = free.pop() {
            return index;
        }
        let index = self.count.load(Ordering::Relaxed);
        let (chunk, _) = locate(index);
        self.chunks[chunk]
            .get_or_init(|| (0..chunk_slots(chunk)).map(|_| CachePadded::new(Slot::new())).collect());
        self.count.store(index + 1, Ordering::Release);
        index
    }

    /// Gives a slot back. One whose owner died in flight goes on showing what it had begun.
    fn release(&self, index: u32) {
        if self.by_index(index).slot.bound() == Lsn::MAX {
            self.free.lock().push(index);
        }
    }

    /// Slots ever handed out.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// The slot of that number, which was claimed.
    pub(crate) fn by_index(&self, index: u32) -> SlotRef<'_> {
        let (chunk, at) = locate(index);
        let chunk = self.chunks[chunk].get().expect("an index is handed out after its chunk is made");
        SlotRef { slot: &chunk[at as usize], index }
    }

    /// True while the write at `lsn` of the slot's owner is not committed. For batch parts.
    /// Acquire: if it is false, every part of that batch is visible to what follows.
    #[inline]
    pub fn is_in_flight(&self, index: u32, lsn: Lsn) -> bool {
        self.by_index(index).slot.bound() == lsn
    }
}

fn locate(index: u32) -> (usize, u32) {
    let mut rest = index;
    let mut chunk = 0;
    while rest >= chunk_slots(chunk) {
        rest -= chunk_slots(chunk);
        chunk += 1;
    }
    (chunk, rest)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_slot_and_gives_it_back_when_it_ends() {
        let slots = Slots::new();
        let first = std::thread::scope(|s| {
            s.spawn(|| {
                let a = slots.mine(|| Lsn::ZERO).index();
                assert_eq!(slots.mine(|| Lsn::ZERO).index(), a);
                a
            })
            .join()
            .expect("no panic")
        });
        let second =
            std::thread::scope(|s| s.spawn(|| slots.mine(|| Lsn::ZERO).index()).join().expect("no panic"));
        assert_eq!(first, second, "the slot of an ended thread is used again");
        assert_eq!(slots.count(), 1);
    }

    #[test]
    fn many_threads_get_distinct_slots() {
        let slots = Slots::new();
        let barrier = std::sync::Barrier::new(100);
        let mut seen: Vec<u32> = std::thread::scope(|s| {
            let handles: Vec<_> = (0..100)
                .map(|_| {
                    s.spawn(|| {
                        let index = slots.mine(|| Lsn::ZERO).index();
                        barrier.wait();
                        index
                    })
                })
                .collect();
            handles.into_iter().map(|h| h.join().expect("no panic")).collect()
        });
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 100);
    }
}
