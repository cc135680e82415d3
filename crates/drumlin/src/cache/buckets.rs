//! One shard of the block cache: buckets of eight pointers to blocks, and the CLOCK hand.
//!
//! Place: [`super::BlockCache`] picks the shard by hash and keeps the sum of bytes.
//!
//! Invariants:
//! 1. Every linked block lies in the bucket that its hash names, and at most once in a shard. Its slot is one reference.
//! 2. `State::entries` is the number of non-null slots of the current array.
//! 3. Slots and the array change only under the shard's mutex.
//! 4. No destructor of anybody else runs under the mutex: garbage is handed over after it was given back.
//! 5. No block is linked whose chunk is out by then (`slab`).
//! 6. A shortcut leads to a linked block only: cut off before it is given up (`shortcuts`).
//!
//! Concurrency: see `cache/mod.rs`. A reader may still walk an array that was replaced: its pointers lead to blocks whose
//! slot's reference is given up, at the earliest, after that reader's epoch, since a block is retired after the array was
//! replaced or together with its removal from the current one.
//! Tests: `cache/tests.rs`.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_epoch::{Atomic, Guard, Owned, Shared, unprotected};

use super::Stage;
use super::accounts::Accounts;
use super::block::{BlockRef, Head, SharedBlock};
use super::shortcuts::Shortcut;
use crate::sync::{Mutex, MutexGuard, prefetch};

/// Blocks in a bucket: one cache line of pointers.
const WAYS: usize = 8;
/// Blocks for each bucket, in the mean, at which there are to be twice as many buckets: then hardly any bucket is full
/// before, and blocks that meet in a full one drive each other out, however large the cache is.
const FILL: usize = 3;
/// Buckets of a new shard.
const BUCKETS_MIN: usize = 16;
/// Bytes of evicted blocks after which a thread hands its garbage over.
const FLUSH_BYTES: usize = 256 << 10;

/// Bytes of a cache line, and lines of a block that are loaded ahead: its head, its heads and ends, mostly.
const LINE_BYTES: usize = 64;
const BLOCK_LINES: usize = 5;

#[derive(Default)]
#[repr(align(64))]
struct Bucket([Atomic<Head>; WAYS]);

struct Buckets(Box<[Bucket]>);

impl Buckets {
    fn new(count: usize) -> Buckets {
        Buckets((0..count).map(|_| Bucket::default()).collect())
    }

    #[inline]
    fn of(&self, hash: u64) -> &Bucket {
        &self.0[hash as usize & (self.0.len() - 1)]
    }
}

/// What the mutex guards besides the slots.
struct State {
    entries: usize,
    /// The slot the hand looks at next.
    hand: usize,
    /// Bytes retired since the garbage was last handed over.
    retired: usize,
}

impl State {
    /// True if it is time to hand the garbage over.
    fn is_garbage_due(&mut self) -> bool {
        let due = self.retired >= FLUSH_BYTES;
        if due {
            self.retired = 0;
        }
        due
    }
}

/// One shard.
pub(super) struct Shard {
    buckets: Atomic<Buckets>,
    state: Mutex<State>,
    accounts: Arc<Accounts>,
}

#[inline]
fn tag(hash: u64) -> usize {
    (hash >> 50) as usize & 63
}

impl Shard {
    pub(super) fn new(accounts: Arc<Accounts>) -> Shard {
        Shard {
            accounts,
            buckets: Atomic::new(Buckets::new(BUCKETS_MIN)),
            state: Mutex::new(State { entries: 0, hand: 0, retired: 0 }),
        }
    }

    #[inline]
    fn buckets<'g>(&self, guard: &'g Guard) -> &'g Buckets {
        // SAFETY: the pointer is never null, and the array it names is retired through the epoch
        // only after being replaced. Test: readers_race_writers_and_see_only_their_own_blocks.
        unsafe { self.buckets.load(Ordering::Acquire, guard).deref() }
    }

    /// The block of (table, offset), which the cache keeps referenced as long as the guard.
    #[inline]
    pub(super) fn find<'g>(
        &self,
        hash: u64,
        table: u64,
        offset: u64,
        guard: &'g Guard,
    ) -> Option<BlockRef<'g>> {
        let bucket = &self.buckets(guard).of(hash).0;
        bucket.iter().find_map(|slot| is_of(slot, hash, table, offset, guard))
    }

    /// Starts to load what `stage` of a look-up reads.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64, stage: Stage, guard: &Guard) {
        let bucket = self.buckets(guard).of(hash);
        match stage {
            Stage::Bucket => prefetch(bucket),
            Stage::Block => {
                for slot in &bucket.0 {
                    let shared = slot.load(Ordering::Acquire, guard);
                    if shared.tag() == tag(hash) && !shared.is_null() {
                        let head: *const u8 = shared.as_raw().cast();
                        (0..BLOCK_LINES).for_each(|line| prefetch(head.wrapping_add(line * LINE_BYTES)));
                    }
                }
            }
        }
    }

    /// Links a block, unless one of its name is there already, or its chunk is out. Returns the bytes that are not in
    /// the shard (any more): those of a block that had to go, or of the new one if it was not linked.
    pub(super) fn insert(&self, hash: u64, block: SharedBlock, guard: &Guard) -> usize {
        let (table, offset) = block.head().identity();
        let mut state = self.state.lock();
        if self.find(hash, table, offset, guard).is_some() || block.is_out() {
            return block.head().charge();
        }
        let mut buckets = self.buckets(guard);
        if state.entries >= buckets.0.len() * FILL {
            buckets = self.grow_locked(buckets, guard);
        }
        let mut removed = 0;
        let bucket = &buckets.of(hash).0;
        let slot = match bucket.iter().position(|slot| slot.load(Ordering::Relaxed, guard).is_null()) {
            Some(free) => free,
            None => {
                let victim = second_chance(bucket, state.hand, guard);
                removed = self.retire(&bucket[victim], &mut state, guard);
                victim
            }
        };
        if !block.head().is_in_slab() {
            self.accounts.outside.add(block.head().charge());
        }
        bucket[slot].store(Shared::from(block.into_raw()).with_tag(tag(hash)), Ordering::Release);
        state.entries += 1;
        hand_over(state, guard);
        removed
    }

    /// Leads `shortcut` to the block of (table, offset), if it is still there and nobody holds the mutex.
    pub(super) fn connect(&self, shortcut: &Shortcut, hash: u64, table: u64, offset: u64, guard: &Guard) {
        if let Some(_held) = self.state.try_lock()
            && let Some(block) = self.find(hash, table, offset, guard)
        {
            block.connect(shortcut);
        }
    }

    /// Leads `shortcut`, which led to a block of this shard, nowhere.
    pub(super) fn disconnect(&self, shortcut: &Shortcut, _guard: &Guard) {
        let _held = self.state.lock();
        // SAFETY: under the mutex it leads to a linked block or, by now, nowhere; and whoever asks is pinned.
        // Test: shortcuts_that_go_leave_no_way_back.
        if let Some(head) = unsafe { shortcut.end().as_ref() } {
            head.cut_off();
        }
    }

    /// Unlinks the block of (table, offset); the bytes freed.
    pub(super) fn remove(&self, hash: u64, table: u64, offset: u64, guard: &Guard) -> usize {
        let mut state = self.state.lock();
        let bucket = &self.buckets(guard).of(hash).0;
        let slot = bucket.iter().find(|slot| is_of(slot, hash, table, offset, guard).is_some());
        let freed = slot.map_or(0, |slot| self.retire(slot, &mut state, guard));
        hand_over(state, guard);
        freed
    }

    /// Replaces the array by one of twice the size.
    fn grow_locked<'g>(&self, old: &Buckets, guard: &'g Guard) -> &'g Buckets {
        let new = Buckets::new(old.0.len() * 2);
        for bucket in &old.0 {
            for slot in &bucket.0 {
                let shared = slot.load(Ordering::Relaxed, guard);
                // SAFETY: slots change only under the mutex, which is held.
                // Test: a_growing_cache_keeps_every_entry.
                let Some(entry) = (unsafe { shared.as_ref() }) else { continue };
                let (table, offset) = entry.identity();
                let hash = super::hash(table, offset);
                let free = new.of(hash).0.iter().find(|slot| slot.load(Ordering::Relaxed, guard).is_null());
                // A bucket splits in two, so its entries always fit.
                if let Some(free) = free {
                    free.store(shared, Ordering::Relaxed);
                }
            }
        }
        let old = self.buckets.swap(Owned::new(new), Ordering::AcqRel, guard);
        // SAFETY: the array is no longer reachable for readers that pin from now on; dropping it
        // does not drop entries. Test: a_growing_cache_keeps_every_entry.
        unsafe { guard.defer_destroy(old) };
        self.buckets(guard)
    }

    /// Turns the hand until `bytes` were freed or the shard is empty; the bytes freed.
    pub(super) fn evict(&self, bytes: usize, guard: &Guard) -> usize {
        let mut state = self.state.lock();
        let buckets = self.buckets(guard);
        let slots = buckets.0.len() * WAYS;
        let mut freed = 0;
        // Two rounds clear and take everything that nobody touches meanwhile; a third takes the rest.
        for step in 0..3 * slots {
            if freed >= bytes || state.entries == 0 {
                break;
            }
            let at = state.hand & (slots - 1);
            state.hand = at + 1;
            let slot = &buckets.0[at / WAYS].0[at % WAYS];
            // SAFETY: slots change only under the mutex, which is held.
            // Test: bytes_stay_within_capacity.
            let Some(entry) = (unsafe { slot.load(Ordering::Relaxed, guard).as_ref() }) else { continue };
            if step < 2 * slots && entry.take_touched() {
                continue;
            }
            freed += self.retire(slot, &mut state, guard);
        }
        hand_over(state, guard);
        freed
    }

    /// Unlinks every block that is `meant`; the bytes freed. Leaves handing over to the next insert.
    pub(super) fn evict_if(&self, meant: &dyn Fn(&BlockRef<'_>) -> bool, guard: &Guard) -> usize {
        let mut state = self.state.lock();
        let mut freed = 0;
        for slot in self.buckets(guard).0.iter().flat_map(|bucket| &bucket.0) {
            let shared = slot.load(Ordering::Relaxed, guard);
            // SAFETY: slots change only under the mutex, which is held.
            // Test: evicting_a_table_leaves_the_others.
            if !shared.is_null() && meant(&unsafe { BlockRef::new(shared.as_raw()) }) {
                freed += self.retire(slot, &mut state, guard);
            }
        }
        freed
    }

    /// Empties a slot (the caller holds the mutex) and leaves its reference to the epoch; the bytes freed.
    fn retire(&self, slot: &Atomic<Head>, state: &mut State, guard: &Guard) -> usize {
        let entry = slot.swap(Shared::null(), Ordering::AcqRel, guard);
        // SAFETY: the entry was in the slot, and only the holder of the mutex removes entries.
        // Test: readers_race_writers_and_see_only_their_own_blocks.
        let Some(head) = (unsafe { entry.as_ref() }) else { return 0 };
        head.cut_off();
        let charge = head.charge();
        self.accounts.garbage.add(charge);
        let accounts = Arc::clone(&self.accounts);
        // SAFETY: as above; no reader that pins from now on reaches it, since it was in one slot of the current array, and
        // earlier arrays are out of reach. It is taken once, here. What is dropped is Send. Test: as above.
        unsafe {
            guard.defer_unchecked(move || {
                let block = SharedBlock::from_raw(entry.as_raw());
                if !block.head().is_in_slab() {
                    accounts.outside.give_back(charge);
                }
                drop(block);
                accounts.garbage.give_back(charge);
            });
        }
        state.entries -= 1;
        state.retired += charge;
        charge
    }
}

/// The block in the slot, if it is the one of (table, offset).
#[inline]
fn is_of<'g>(
    slot: &Atomic<Head>,
    hash: u64,
    table: u64,
    offset: u64,
    guard: &'g Guard,
) -> Option<BlockRef<'g>> {
    let shared = slot.load(Ordering::Acquire, guard);
    if shared.tag() != tag(hash) {
        return None;
    }
    // SAFETY: what a slot holds is null or a block whose reference is given up through the epoch.
    // Test: readers_race_writers_and_see_only_their_own_blocks.
    unsafe {
        let is_it = shared.as_ref().is_some_and(|head| head.is(table, offset));
        is_it.then(|| BlockRef::new(shared.as_raw()))
    }
}

/// The way to reuse in a full bucket: the first unreferenced from the hand on, clearing what it passes.
fn second_chance(bucket: &[Atomic<Head>; WAYS], hand: usize, guard: &Guard) -> usize {
    for step in 0..WAYS {
        let way = (hand + step) % WAYS;
        // SAFETY: slots change only under the mutex, which the caller holds.
        // Test: bytes_stay_within_capacity.
        if !unsafe { bucket[way].load(Ordering::Relaxed, guard).as_ref() }.is_some_and(Head::take_touched) {
            return way;
        }
    }
    hand % WAYS
}

/// Gives the mutex back and then, if there is enough, hands the garbage over. In this order: handing over
/// runs whatever destructors are due, and who knows what they call.
/// Test: a_destructor_run_by_the_cache_may_use_the_cache.
fn hand_over(mut state: MutexGuard<'_, State>, guard: &Guard) {
    let due = state.is_garbage_due();
    drop(state);
    if due {
        guard.flush();
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        // SAFETY: `&mut self`: no reader and no writer is left; every entry is in exactly one slot of
        // the current array. Test: dropping_the_cache_drops_the_blocks.
        unsafe {
            let guard = unprotected();
            let buckets = self.buckets.swap(Shared::null(), Ordering::Relaxed, guard).into_owned();
            for slot in buckets.0.iter().flat_map(|bucket| &bucket.0) {
                let entry = slot.swap(Shared::null(), Ordering::Relaxed, guard);
                if !entry.is_null() {
                    drop(SharedBlock::from_raw(entry.as_raw()));
                }
            }
        }
    }
}
