//! The memory of one memtable: space is handed out once and given back all together.
//!
//! Place: `node` lays nodes out in it, `guide` its arrays; nothing else touches it. It takes memory from `pool` and `pages`
//! (once per chunk and per large value, never per node).
//!
//! Space is addressed by *units* of 8 bytes: a `u32` names 32 GiB. Chunk `c` holds the units
//! [2^(13+c), 2^(14+c)): 64 KiB, then twice as much each time, so the chunk of a unit is its
//! highest bit and the place in the chunk the bits below. Units under 2^13 do not exist; 0 is null.
//! A chunk's pages are first touched when a node is written there; from 2 MiB on, huge pages are
//! asked for, which takes a third off every search in a large memtable.
//!
//! Invariants:
//! 1. No two allocations overlap, and none crosses the end of its chunk.
//! 2. A chunk, once installed, never moves and lives as long as the arena.
//! 3. `bytes()` is what has been handed out, unfinished blocks counted whole; it never falls. It is charged to the
//!    pool's account until the arena is dropped.
//! 4. Pages of a chunk that were not handed out are not resident, whatever the allocator used them for before, but for
//!    chunks of the pool, where they count as residue. A large chunk of which half or more was used, or that came from the pool,
//!    is the pool's again, and counts there as resident as a whole; any other is the system's.
//!
//! Concurrency: any thread may allocate. Each draws from the block of its shard (a padded line
//! that is as good as its own); a shard whose block is used up draws the next from the central
//! tail, so the line all threads share is touched once per block.
//! - chunk pointer: compare-and-swap AcqRel by the installer; Acquire by who allocates from it. Who
//!   was *told* a unit (through a shard's cursor or a published link, both Release/Acquire) knows
//!   its chunk already and loads Relaxed.
//! - shard cursor: Release by who refills it; Acquire by who draws.
//!
//! Origin: sLSM §2.2 keeps its list in arrays; the blocks per core are ours.
//! Tests: below and `loom_tests`; leaks and overruns by the address sanitizer over both test files.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::pages;
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::local;
use super::pool::Pool;

/// Bytes of a unit.
pub(super) const UNIT_BYTES: usize = 8;
/// Units of a cache line; every chunk and block begins at a line.
pub(super) const LINE_UNITS: u32 = 8;
/// log2 of the units of the first chunk, and the first unit.
const FIRST_LOG2: u32 = 13;
const FIRST_UNIT: u64 = 1 << FIRST_LOG2;
/// Chunks until the units are used up.
const CHUNKS: usize = 32 - FIRST_LOG2 as usize;
/// First unit that cannot be handed out: one line short, so that ends fit in a `u32` too.
const UNIT_LIMIT: u64 = (1 << 32) - LINE_UNITS as u64;
/// Blocks are this fraction of what is in use, within the limits below, in units: a small
/// memtable must not be used up by blocks that are handed out and still empty.
const BLOCK_FRACTION: u64 = 256;
const BLOCK_UNITS_MIN: u64 = 2048 / UNIT_BYTES as u64;
const BLOCK_UNITS_MAX: u64 = 16384 / UNIT_BYTES as u64;
/// Alignment of a small chunk.
const LINE_BYTES: usize = LINE_UNITS as usize * UNIT_BYTES;

/// How an allocation lies around its *origin*, in units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Before the origin.
    pub lead: u32,
    /// From the origin on.
    pub body: u32,
    /// The part that must not cross a cache line: so many units before the origin ...
    pub hot_before: u32,
    /// ... and so many from it on; together at most [`LINE_UNITS`].
    pub hot_after: u32,
}

impl Shape {
    /// The origin if the allocation begins at `start` or as little later as keeps the hot part
    /// within a line, and the end.
    #[inline]
    fn place(self, start: u64) -> (u64, u64) {
        let line = u64::from(LINE_UNITS);
        let mut origin = start + u64::from(self.lead);
        let in_line = (origin - u64::from(self.hot_before)) % line;
        if in_line + u64::from(self.hot_before + self.hot_after) > line {
            origin += line - in_line;
        }
        (origin, origin + u64::from(self.body))
    }

    /// Units that surely suffice, wherever they begin; whole lines.
    fn units_max(self) -> u64 {
        let line = u64::from(LINE_UNITS);
        (u64::from(self.lead) + u64::from(self.body) + line - 1).next_multiple_of(line)
    }
}

/// A bump allocator with 32-bit addresses. O(1) per allocation.
pub(super) struct Arena {
    /// Read by every access, written once per chunk.
    chunks: CachePadded<[AtomicPtr<u8>; CHUNKS]>,
    central: CachePadded<Central>,
    /// A power of two.
    shards: Box<[CachePadded<Shard>]>,
    pool: Arc<Pool>,
}

struct Central {
    /// First unit that belongs to nobody.
    tail: AtomicU64,
    /// Bytes of the large values.
    large_bytes: AtomicU64,
    /// The large value added last.
    large: AtomicPtr<Large>,
    /// Chunks that came from the pool as resident, a bit each. Relaxed, as the next: sums.
    resident: AtomicU64,
    /// Bytes of them that were settled with the pool.
    settled: AtomicU64,
}

struct Shard {
    /// The rest of the shard's block: end << 32 | next, in units. Blocks are handed out once, so
    /// the word never takes the same value again.
    block: AtomicU64,
    /// Entries counted here; see [`Arena::count_entry`].
    entries: AtomicU64,
}

/// Header of a value too large for a chunk; the value's bytes follow.
#[repr(C)]
struct Large {
    next: *mut Large,
    bytes: usize,
}

impl Arena {
    /// An empty arena; no chunk is allocated before its first use.
    pub(super) fn new(pool: Arc<Pool>) -> Self {
        Self::with_shards(shard_count(), pool)
    }

    fn with_shards(shards: usize, pool: Arc<Pool>) -> Self {
        let shard = || Shard { block: AtomicU64::new(0), entries: AtomicU64::new(0) };
        Self {
            chunks: CachePadded::new(std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()))),
            central: CachePadded::new(Central {
                tail: AtomicU64::new(FIRST_UNIT),
                large_bytes: AtomicU64::new(0),
                large: AtomicPtr::new(ptr::null_mut()),
                resident: AtomicU64::new(0),
                settled: AtomicU64::new(0),
            }),
            shards: (0..shards.next_power_of_two()).map(|_| CachePadded::new(shard())).collect(),
            pool,
        }
    }

    /// Bytes handed out.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        let units = self.central.tail.load(Ordering::Relaxed) - FIRST_UNIT;
        units as usize * UNIT_BYTES + self.central.large_bytes.load(Ordering::Relaxed) as usize
    }

    /// As many threads as can allocate without meeting; a power of two.
    pub(super) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Adds one to [`Arena::entries`], on the calling thread's line.
    #[inline]
    pub(super) fn count_entry(&self) {
        self.shard().entries.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds so many to [`Arena::entries`].
    pub(super) fn count_entries(&self, count: usize) {
        self.shard().entries.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// What [`Arena::count_entry`] and [`Arena::count_entries`] added. O(shards).
    pub(super) fn entries(&self) -> usize {
        self.shards.iter().map(|shard| shard.entries.load(Ordering::Relaxed) as usize).sum()
    }

    /// The address of a unit.
    ///
    /// # Safety
    /// `unit` is an origin that `allocate` of this arena returned, and its return happened before
    /// this call.
    #[inline]
    pub(super) unsafe fn address(&self, unit: u32) -> NonNull<u8> {
        let log2 = 31 - unit.leading_zeros();
        let chunk = log2.wrapping_sub(FIRST_LOG2) as usize;
        debug_assert!(chunk < CHUNKS, "unit {unit} was never handed out");
        // SAFETY: units handed out are at least 2^13, so `chunk` is below 32 - 13 = CHUNKS. The
        // chunk was installed before `allocate` returned, and it holds the unit (invariant 1).
        // Test: allocations_never_overlap.
        unsafe {
            let base = installed(self.chunks.get_unchecked(chunk));
            let offset = (unit ^ 1 << log2) as usize * UNIT_BYTES;
            NonNull::new_unchecked(base.add(offset))
        }
    }

    /// Hands out space of the given shape and returns its origin. The bytes are not initialized.
    ///
    /// # Panics
    /// If the arena has handed out 32 GiB: its owner turns it long before that.
    pub(super) fn allocate(&self, shape: Shape) -> u32 {
        debug_assert!(shape.hot_before <= shape.lead && shape.hot_before + shape.hot_after <= LINE_UNITS);
        let shard = self.shard();
        let mut block = shard.block.load(Ordering::Acquire);
        loop {
            let (next, end) = (block & u64::from(u32::MAX), block >> 32);
            let (origin, stop) = shape.place(next.max(FIRST_UNIT));
            if stop > end {
                break;
            }
            match shard.block.compare_exchange_weak(
                block,
                end << 32 | stop,
                Ordering::Relaxed,
                Ordering::Acquire,
            ) {
                Ok(_) => return origin as u32,
                Err(now) => block = now,
            }
        }
        let most = shape.units_max();
        let in_use = self.central.tail.load(Ordering::Relaxed) - FIRST_UNIT;
        let units = (in_use / BLOCK_FRACTION)
            .clamp(BLOCK_UNITS_MIN, BLOCK_UNITS_MAX)
            .next_multiple_of(u64::from(LINE_UNITS));
        if most > units / 4 {
            // Too much for a block: its rest would be wasted.
            return shape.place(self.draw(most)).0 as u32;
        }
        let start = self.draw(units);
        let (origin, stop) = shape.place(start);
        // If another thread of this shard was faster, the rest of this block stays unused.
        let _ = shard.block.compare_exchange(
            block,
            (start + units) << 32 | stop,
            Ordering::Release,
            Ordering::Relaxed,
        );
        origin as u32
    }

    /// Copies a value into memory of its own and returns where it is, for the arena's lifetime.
    pub(super) fn allocate_large(&self, value: &[u8]) -> *const u8 {
        let layout = large_layout(value.len());
        // SAFETY: header and value lie within it (see `large_layout`), and
        // nobody else knows the memory yet. Test: a_large_value_has_memory_of_its_own.
        let (large, copy) = unsafe {
            let large = pages::chunk(layout).cast::<Large>();
            let copy = large.add(1).cast::<u8>();
            large.write(Large { next: ptr::null_mut(), bytes: value.len() });
            ptr::copy_nonoverlapping(value.as_ptr(), copy, value.len());
            (large, copy)
        };
        let mut next = self.central.large.load(Ordering::Relaxed);
        loop {
            // SAFETY: the header is still this thread's own. Test: as above.
            unsafe { (*large).next = next };
            match self.central.large.compare_exchange_weak(next, large, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => next = now,
            }
        }
        self.central.large_bytes.fetch_add(layout.size() as u64, Ordering::Relaxed);
        self.pool.account().add(layout.size());
        self.pool.make_room();
        copy
    }

    #[inline]
    fn shard(&self) -> &Shard {
        &self.shards[local::thread_number() as usize & (self.shards.len() - 1)]
    }

    /// Takes `units`, whole lines within one chunk, from the central tail; installs the chunk.
    #[cold]
    fn draw(&self, units: u64) -> u64 {
        let mut tail = self.central.tail.load(Ordering::Relaxed);
        let start = loop {
            let mut start = tail;
            // The rest of a chunk that is too short is left unused, as are chunks too small.
            while start + units > chunk_end(start) {
                start = chunk_end(start);
            }
            assert!(start + units <= UNIT_LIMIT, "a memtable cannot hold more than 32 GiB");
            match self.central.tail.compare_exchange_weak(
                tail,
                start + units,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break start,
                Err(now) => tail = now,
            }
        };
        self.install(chunk_index(start));
        self.pool.account().add((start + units - tail) as usize * UNIT_BYTES);
        self.settle(start, units);
        // What was left unused of the chunk before counts as handed out.
        self.settle(tail, start.min(chunk_end(tail)) - tail);
        self.pool.make_room();
        start
    }

    /// Units of one chunk were handed out.
    fn settle(&self, start: u64, units: u64) {
        if units > 0 && self.central.resident.load(Ordering::Relaxed) & 1 << chunk_index(start) != 0 {
            self.central.settled.fetch_add(units * UNIT_BYTES as u64, Ordering::Relaxed);
            self.pool.settle(units as usize * UNIT_BYTES);
        }
    }

    /// Makes sure that chunk `index` exists.
    fn install(&self, index: usize) {
        let chunk = &self.chunks[index];
        if !chunk.load(Ordering::Acquire).is_null() {
            return;
        }
        let layout = chunk_layout(index);
        let (mine, was_used) =
            if is_pooled(layout) { self.pool.take(layout) } else { (pages::chunk(layout), false) };
        if chunk.compare_exchange(ptr::null_mut(), mine, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            // Who draws from it before this leaves its part residue, until the arena is dropped.
            self.central.resident.fetch_or(u64::from(was_used) << index, Ordering::Relaxed);
            return;
        }
        if was_used {
            self.pool.settle(layout.size());
        }
        // SAFETY: allocated above with this layout and shown to nobody.
        // Test: threads_allocate_without_overlap.
        unsafe { self.let_go(mine, layout, was_used) };
    }

    /// Gives a chunk back.
    ///
    /// # Safety
    /// It was made by `install` for this layout, and nobody uses it any more.
    unsafe fn let_go(&self, base: *mut u8, layout: Layout, is_resident: bool) {
        // SAFETY: both as their layouts ask; asserted by the caller. Test: chunks_come_back_and_what_they_hold_is_counted.
        unsafe {
            match is_pooled(layout) {
                true => self.pool.give_back(base, layout, is_resident),
                false => pages::give_back(base, layout),
            }
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.pool.account().give_back(self.bytes());
        let tail = self.central.tail.load(Ordering::Relaxed);
        let resident = self.central.resident.load(Ordering::Relaxed);
        let used: usize = (0..CHUNKS)
            .filter(|index| resident & 1 << index != 0)
            .map(|index| chunk_layout(index).size())
            .sum();
        self.pool.settle(used - self.central.settled.load(Ordering::Relaxed) as usize);
        for (index, chunk) in self.chunks.iter().enumerate() {
            let base = chunk.load(Ordering::Relaxed);
            if !base.is_null() {
                // The last one is half of the arena.
                let is_half_used = tail >= 3 << (FIRST_LOG2 as usize + index - 1);
                let is_resident = resident & 1 << index != 0 || is_half_used;
                // SAFETY: installed by `install` with this layout; `&mut self` ends every use.
                // Test: every test below, under the address sanitizer (leaks, double frees).
                unsafe { self.let_go(base, chunk_layout(index), is_resident) };
            }
        }
        let mut large = self.central.large.load(Ordering::Relaxed);
        while !large.is_null() {
            // SAFETY: pushed by `allocate_large` with this layout; `&mut self` ends every use.
            // Test: a_large_value_has_memory_of_its_own, under the address sanitizer.
            unsafe {
                let Large { next, bytes } = large.read();
                pages::give_back(large.cast(), large_layout(bytes));
                large = next;
            }
        }
    }
}

/// The base of a chunk that is known to be installed.
///
/// # Safety
/// The installation happened before this call.
#[inline]
unsafe fn installed(chunk: &AtomicPtr<u8>) -> *mut u8 {
    #[cfg(not(loom))]
    return chunk.load(Ordering::Relaxed);
    // The model checker is to object if the installation does not happen before this.
    // SAFETY: asserted by the caller and checked by loom.
    #[cfg(loom)]
    return unsafe { chunk.unsync_load() };
}

/// The number of the chunk of `unit`.
fn chunk_index(unit: u64) -> usize {
    (unit.ilog2() - FIRST_LOG2) as usize
}

/// The first unit after the chunk of `unit`.
fn chunk_end(unit: u64) -> u64 {
    1 << (unit.ilog2() + 1)
}

fn chunk_layout(index: usize) -> Layout {
    let bytes = (UNIT_BYTES << FIRST_LOG2) << index;
    let align = if bytes >= pages::HUGE_PAGE_BYTES { pages::HUGE_PAGE_BYTES } else { LINE_BYTES };
    Layout::from_size_align(bytes, align).expect("a chunk is at most 16 GiB and its alignment a power of two")
}

/// Chunks of huge pages are the pool's; what is smaller is little.
fn is_pooled(layout: Layout) -> bool {
    layout.align() == pages::HUGE_PAGE_BYTES
}

fn large_layout(bytes: usize) -> Layout {
    Layout::from_size_align(size_of::<Large>() + bytes, align_of::<Large>())
        .expect("a value is at most 512 MiB")
}

/// Shards of an arena: enough for each core, read once.
fn shard_count() -> usize {
    if cfg!(any(loom, miri)) {
        return 1;
    }
    static CORES: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(8, |cores| cores.get().min(64)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn plain(units: u32) -> Shape {
        Shape { lead: 0, body: units, hot_before: 0, hot_after: 1 }
    }

    /// Sorted, no span begins before the one before it ends.
    fn assert_disjoint(mut spans: Vec<(u32, u32)>) {
        spans.sort_unstable();
        for pair in spans.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
        }
    }

    #[test]
    fn allocations_never_overlap() {
        let arena = Arena::with_shards(1, Arc::default());
        let mut spans = Vec::new();
        let rounds = if cfg!(miri) { 200 } else { 20_000 };
        for i in 0..rounds {
            let units = 1 + i * 7919 % 97 + if i % 50 == 0 { 12_000 } else { 0 };
            let unit = arena.allocate(plain(units));
            // SAFETY: just allocated; the span is `units` long.
            unsafe {
                let address = arena.address(unit);
                assert!(address.addr().get().is_multiple_of(UNIT_BYTES));
                address.write_bytes(i as u8, units as usize * UNIT_BYTES);
            }
            assert_eq!(unit.ilog2(), (unit + units - 1).ilog2(), "crosses the end of its chunk");
            spans.push((unit, units));
        }
        for (i, &(unit, units)) in spans.iter().enumerate() {
            // SAFETY: allocated and filled above.
            let bytes = unsafe {
                std::slice::from_raw_parts(arena.address(unit).as_ptr(), units as usize * UNIT_BYTES)
            };
            assert!(bytes.iter().all(|&byte| byte == i as u8), "allocation {i} was overwritten");
        }
        let handed_out: usize = spans.iter().map(|&(_, units)| units as usize * UNIT_BYTES).sum();
        assert!(arena.bytes() >= handed_out);
        assert!(arena.bytes() <= 2 * handed_out, "{} for {handed_out}", arena.bytes());
        assert_disjoint(spans);
    }

    #[test]
    fn threads_allocate_without_overlap() {
        for shards in [1, 4] {
            let arena = Arena::with_shards(shards, Arc::default());
            let rounds = if cfg!(miri) { 40 } else { 20_000 };
            let spans: Vec<(u32, u32)> = std::thread::scope(|scope| {
                let allocate = |seed: u32| {
                    let arena = &arena;
                    move || {
                        let units = |i: u32| 1 + (i * 31 + seed * 17) % 40 + (i % 64) / 63 * 3000;
                        (0..rounds).map(|i| (arena.allocate(plain(units(i))), units(i))).collect::<Vec<_>>()
                    }
                };
                let threads: Vec<_> = (0..4).map(|seed| scope.spawn(allocate(seed))).collect();
                threads.into_iter().flat_map(|t| t.join().expect("allocates without panic")).collect()
            });
            assert_eq!(spans.len(), 4 * rounds as usize);
            assert_disjoint(spans);
        }
    }

    #[test]
    fn the_hot_part_never_crosses_a_cache_line() {
        let arena = Arena::with_shards(1, Arc::default());
        for i in 0..1000 {
            let shape = Shape { lead: 1 + i % 12, body: 4 + i % 37, hot_before: 1, hot_after: 1 + i % 7 };
            let unit = arena.allocate(shape);
            let (first, last) = (unit - shape.hot_before, unit + shape.hot_after - 1);
            assert_eq!(first / LINE_UNITS, last / LINE_UNITS, "{shape:?} at {unit}");
        }
    }

    #[test]
    fn a_large_value_has_memory_of_its_own() {
        let arena = Arena::new(Arc::default());
        let before = arena.bytes();
        let values: Vec<Vec<u8>> = (0..5u8).map(|i| vec![i; 100_000 + usize::from(i)]).collect();
        let copies: Vec<*const u8> = values.iter().map(|value| arena.allocate_large(value)).collect();
        for (value, &copy) in values.iter().zip(&copies) {
            // SAFETY: the copy lives as long as the arena.
            assert_eq!(unsafe { std::slice::from_raw_parts(copy, value.len()) }, value.as_slice());
        }
        let bytes: usize = values.iter().map(Vec::len).sum();
        assert!((bytes..bytes + 200).contains(&(arena.bytes() - before)));
    }

    #[test]
    fn chunks_come_back_and_what_they_hold_is_counted() {
        const MIB: usize = 1 << 20;
        let pool = Arc::new(Pool::new(64 * MIB));
        let fill = |arena: &Arena, bytes: usize| {
            while arena.bytes() < bytes {
                let unit = arena.allocate(plain(50));
                // SAFETY: just allocated, 50 units.
                unsafe { arena.address(unit).write_bytes(7, 50 * UNIT_BYTES) };
            }
        };
        let first = Arena::with_shards(1, Arc::clone(&pool));
        fill(&first, 5 * MIB);
        assert!(pool.spare_bytes() == 0 && pool.bytes() == first.bytes());
        drop(first);
        assert_eq!(
            (pool.bytes(), pool.spare_bytes()),
            (0, 2 * MIB),
            "the chunk that was used up, and no more"
        );
        let second = Arena::with_shards(1, Arc::clone(&pool));
        fill(&second, MIB);
        assert_eq!(pool.bytes(), second.bytes(), "small ones are not the pool's");
        fill(&second, 3 * MIB);
        let rest = 4 * MIB - (FIRST_UNIT as usize * UNIT_BYTES) - second.bytes();
        assert_eq!(pool.bytes(), second.bytes() + rest, "resident as a whole");
        assert_eq!(pool.spare_bytes(), rest);
        drop(second);
        assert_eq!((pool.bytes(), pool.spare_bytes()), (0, 2 * MIB), "resident, though it was not used up");
        let third = Arena::with_shards(1, Arc::clone(&pool));
        fill(&third, 9 * MIB);
        assert_eq!((pool.bytes(), pool.spare_bytes()), (third.bytes(), 0));
        drop(third);
        assert_eq!(pool.spare_bytes(), 6 * MIB);
        let fourth = Arena::with_shards(1, Arc::clone(&pool));
        fill(&fourth, 13 * MIB);
        drop(fourth);
        assert_eq!(pool.spare_bytes(), 14 * MIB, "and the one that was used for the most part");
    }

    /// Regression: chunks that were idle stayed beside values of their own memory, by half of the share.
    #[test]
    fn large_values_take_the_place_of_idle_chunks() {
        const MIB: usize = 1 << 20;
        let pool = Arc::new(Pool::new(16 * MIB));
        let arena = Arena::with_shards(1, Arc::clone(&pool));
        while arena.bytes() < 15 * MIB {
            arena.allocate(plain(50));
        }
        drop(arena);
        assert!(pool.spare_bytes() >= 6 * MIB, "{}", pool.spare_bytes());
        let arena = Arena::with_shards(1, Arc::clone(&pool));
        let value = vec![7; 2 * MIB - 100];
        for _ in 0..7 {
            arena.allocate_large(&value);
            assert!(pool.bytes() + pool.spare_bytes() <= 16 * MIB, "{} idle", pool.spare_bytes());
        }
    }

    #[test]
    fn an_empty_arena_holds_no_chunk() {
        let arena = Arena::new(Arc::default());
        assert_eq!(arena.bytes(), 0);
        assert!(arena.chunks.iter().all(|chunk| chunk.load(Ordering::Relaxed).is_null()));
    }

    #[test]
    #[should_panic(expected = "32 GiB")]
    fn the_address_space_ends_with_a_clear_message() {
        let arena = Arena::with_shards(1, Arc::default());
        arena.central.tail.store(UNIT_LIMIT - 8, Ordering::Relaxed);
        arena.allocate(plain(100));
    }
}
