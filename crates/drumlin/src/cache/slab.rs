//! The memory of cached blocks: chunks in huge pages, handed out in runs of units.
//!
//! Place: `BlockCache` puts what it keeps here; a block gives its run back by itself, wherever it is dropped.
//!
//! Blocks of the global allocator lie in pages of 4 KiB, each block in one or two of them, and a processor remembers the
//! places of a few thousand pages: beyond some megabytes of cache every look at a block waits for a walk through the
//! page tables, too. What it is worth: docs/design/speed.md.
//!
//! Invariants:
//! 1. Runs do not overlap each other or the head of their chunk (`units`).
//! 2. A chunk lives until it has left its slab and its last block has gone: whichever is last unmaps it.
//! 3. A slab has at most `limit` chunks. One beyond is taken out: nothing is placed there any more, and its blocks are to
//!    be evicted.
//! 4. `accounts.chunks` counts a chunk from when it is mapped until it is unmapped.
//!
//! Concurrency: the mutex guards the list of chunks and taking runs; nothing else is taken under it. Giving back takes no
//! lock: bits (`units`), then the hold on the chunk (`holders`).
//! A block may have been placed in a chunk that is taken out before it is linked. Whoever takes chunks out first marks
//! them and then walks the shards; whoever links a block looks at the mark under the shard's mutex. If the walk comes first,
//! the mutex shows the mark, and the block is not linked; else the walk finds the block. So the mark itself is Relaxed.
//!
//! Layout in memory: a chunk is [`CHUNK_BYTES`] at a multiple of that, so that the head is found from any address in it:
//! bits and counts, then blocks, each at a multiple of [`UNIT_BYTES`].
//! Tests: below, `units`, `cache/tests.rs`.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::accounts::Accounts;
use super::block::{HEAD_BYTES, SharedBlock};
use super::holders::Holders;
use super::units::Units;
use crate::pages::{self, HUGE_PAGE_BYTES};
use crate::sync::Mutex;

/// Bytes of a chunk: a huge page.
pub(super) const CHUNK_BYTES: usize = HUGE_PAGE_BYTES;
/// Bytes of a unit.
const UNIT_BYTES: usize = 256;
/// Words of bits.
const WORDS: usize = CHUNK_BYTES / UNIT_BYTES / 64;
/// Units of a chunk's head.
const HEAD_UNITS: usize = size_of::<Chunk>().div_ceil(UNIT_BYTES);
/// Runs longer than this are hard to find between others, and what is that large has few pages for its bytes anyway.
pub(super) const RUN_BYTES_MAX: usize = CHUNK_BYTES / 32;
/// Chunks in which a run is looked for, before a new one is taken or none is found.
const LOOKS: usize = 8;

/// The head of a chunk.
#[repr(C, align(64))]
struct Chunk {
    units: Units<WORDS>,
    /// Blocks in it, and the slab.
    holders: Holders,
    /// It was taken out of its slab.
    is_out: AtomicBool,
    accounts: Arc<Accounts>,
}

/// Bytes that a run for `bytes` takes.
pub(super) fn taken_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(UNIT_BYTES)
}

fn layout() -> Layout {
    Layout::from_size_align(CHUNK_BYTES, CHUNK_BYTES).expect("a power of two")
}

/// A slab; see the module.
pub(super) struct Slab {
    state: Mutex<State>,
    accounts: Arc<Accounts>,
}

struct State {
    chunks: Vec<NonNull<Chunk>>,
    /// Most chunks.
    limit: usize,
    /// Where the last run was taken: a chunk, and the unit behind.
    at: (usize, usize),
}

// SAFETY: the pointers are references to chunks, one counted holder each; chunks are shared by threads through atomics.
// Test: blocks_keep_their_bytes_whoever_comes_and_goes.
unsafe impl Send for State {}

impl Slab {
    /// A slab of so many chunks at most.
    pub(super) fn new(limit: usize, accounts: Arc<Accounts>) -> Slab {
        Slab { state: Mutex::new(State { chunks: Vec::new(), limit, at: (0, 0) }), accounts }
    }

    /// A block of these bytes, if a run for it is found. O(units of a few chunks) at most.
    pub(super) fn place(&self, bytes: &[u8]) -> Option<SharedBlock> {
        let count = taken_bytes(HEAD_BYTES + bytes.len()) / UNIT_BYTES;
        debug_assert!(HEAD_BYTES + bytes.len() <= RUN_BYTES_MAX);
        let (chunk, unit) = self.state.lock().take(count, &self.accounts)?;
        // SAFETY: the run was taken for this block alone: large enough, at a multiple of a line, in a chunk that counts the
        // block among its holders. The block's bytes are written before it is one. Test: as above.
        unsafe {
            let run = chunk.cast::<u8>().add(unit * UNIT_BYTES);
            run.add(HEAD_BYTES).as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            Some(SharedBlock::in_place(run, bytes.len(), true))
        }
    }

    /// From now on it has at most `limit` chunks. Where those are that were taken out: blocks there are to be evicted.
    pub(super) fn set_limit(&self, limit: usize) -> Vec<usize> {
        let mut out = Vec::new();
        let mut state = self.state.lock();
        state.limit = limit;
        while state.chunks.len() > limit {
            // SAFETY: a listed chunk lives. Test: as above.
            let free = |chunk: &NonNull<Chunk>| unsafe { chunk.as_ref() }.units.free();
            let emptiest = (0..state.chunks.len()).max_by_key(|&n| free(&state.chunks[n]));
            let Some(emptiest) = emptiest else { break };
            out.push(state.chunks.swap_remove(emptiest));
        }
        drop(state);
        for &chunk in &out {
            // SAFETY: taken out here, so the slab's hold on it is given up once. Test: as above.
            unsafe {
                chunk.as_ref().is_out.store(true, Ordering::Relaxed);
                let_go(chunk);
            }
        }
        out.iter().map(|chunk| chunk.addr().get()).collect()
    }

    /// Chunks in use.
    #[cfg(test)]
    pub(super) fn chunks(&self) -> usize {
        self.state.lock().chunks.len()
    }
}

impl State {
    /// Takes `count` units: where it was taken last, in one of the next chunks, in a new one. What follows a failure looks
    /// further on.
    fn take(&mut self, count: usize, accounts: &Arc<Accounts>) -> Option<(NonNull<Chunk>, usize)> {
        for _ in 0..self.chunks.len().min(LOOKS) {
            let (chunk, from) = self.at;
            if let Some(&found) = self.chunks.get(chunk)
                && let Some(unit) = take_in(found, from, count)
            {
                self.at = (chunk, unit + count);
                return Some((found, unit));
            }
            self.at = ((chunk + 1) % self.chunks.len(), 0);
        }
        if self.chunks.len() >= self.limit {
            return None;
        }
        let fresh = new_chunk(Arc::clone(accounts));
        self.chunks.push(fresh);
        let unit = take_in(fresh, 0, count)?;
        self.at = (self.chunks.len() - 1, unit + count);
        Some((fresh, unit))
    }
}

fn new_chunk(accounts: Arc<Accounts>) -> NonNull<Chunk> {
    let fresh = NonNull::new(pages::chunk(layout())).expect("it does not return null").cast::<Chunk>();
    accounts.chunks.add(CHUNK_BYTES);
    let (units, is_out) = (Units::new(HEAD_UNITS), AtomicBool::new(false));
    let head = Chunk { units, holders: Holders::one(), is_out, accounts };
    // SAFETY: fresh memory of a chunk's size and alignment. Test: as above.
    unsafe { fresh.write(head) };
    fresh
}

/// Takes `count` units of a listed chunk from `from` on, and counts their block among its holders.
fn take_in(chunk: NonNull<Chunk>, from: usize, count: usize) -> Option<usize> {
    // SAFETY: a listed chunk lives. Test: as above.
    let chunk = unsafe { chunk.as_ref() };
    let unit = chunk.units.take(from, count)?;
    chunk.holders.join();
    Some(unit)
}

/// Where the chunk begins that has this address.
pub(super) fn chunk_address(address: usize) -> usize {
    address & !(CHUNK_BYTES - 1)
}

/// The chunk of a block in a slab.
///
/// # Safety
/// A slab placed the block, and it has a reference left.
unsafe fn chunk_of(block: NonNull<u8>) -> NonNull<Chunk> {
    let inside = block.addr().get() - chunk_address(block.addr().get());
    // SAFETY: the chunk begins so many bytes before; asserted by the caller. Test: as above.
    unsafe { block.sub(inside).cast() }
}

/// True if the chunk of a block in a slab is out of use.
///
/// # Safety
/// As for [`chunk_of`].
pub(super) unsafe fn is_out(block: NonNull<u8>) -> bool {
    // SAFETY: the block holds its chunk; asserted by the caller. Test: as above.
    unsafe { chunk_of(block).as_ref() }.is_out.load(Ordering::Relaxed)
}

/// Gives the run of a block back that took `bytes`, head included.
///
/// # Safety
/// A slab placed it, this was its last reference, and nobody uses it any more.
pub(super) unsafe fn give_back(block: NonNull<u8>, bytes: usize) {
    // SAFETY: until `let_go` the block holds its chunk; asserted by the caller. Test: as above.
    unsafe {
        let chunk = chunk_of(block);
        let unit = (block.addr().get() - chunk.addr().get()) / UNIT_BYTES;
        chunk.as_ref().units.give_back(unit, taken_bytes(bytes) / UNIT_BYTES);
        let_go(chunk);
    }
}

/// Gives up one hold on a chunk; the last one gives its memory back.
///
/// # Safety
/// The caller had one, and gives it up once.
unsafe fn let_go(chunk: NonNull<Chunk>) {
    // SAFETY: held until here; asserted by the caller. Behind the last hold nobody knows it. Test: as above.
    unsafe {
        if chunk.as_ref().holders.leave() {
            let head = chunk.read();
            pages::give_back(chunk.as_ptr().cast(), layout());
            head.accounts.chunks.give_back(CHUNK_BYTES);
        }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        self.set_limit(0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn bytes_of(seed: usize) -> Vec<u8> {
        let length = (seed * 7919) % 9000;
        (0..length).map(|n| (n ^ seed) as u8).collect()
    }

    #[test]
    fn blocks_keep_their_bytes_whoever_comes_and_goes() {
        let rounds = if cfg!(miri) { 60 } else { 4000 };
        let slab = Slab::new(2, Arc::default());
        let refused: usize = std::thread::scope(|scope| {
            let fill = |first: usize| {
                let slab = &slab;
                scope.spawn(move || {
                    let (mut kept, mut refused) = (std::collections::VecDeque::new(), 0);
                    for n in 0..rounds {
                        let seed = first + n * 2;
                        match slab.place(&bytes_of(seed)) {
                            Some(block) => kept.push_back((seed, block)),
                            None => refused += 1,
                        }
                        // Each wants more than there is at times, in case the other has no processor meanwhile.
                        if kept.len() > 400 + (n / 1024 % 2) * 900 || (n % 3 == 0 && kept.len() > 300) {
                            let (seed, block) = kept.pop_front().expect("not empty");
                            assert_eq!(*block, bytes_of(seed)[..]);
                        }
                    }
                    kept.iter().for_each(|(seed, block)| assert_eq!(**block, bytes_of(*seed)[..]));
                    refused
                })
            };
            let threads = [fill(0), fill(1)];
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert!(cfg!(miri) || (refused > 0 && slab.chunks() == 2), "{refused} refused");
        let chunks = slab.state.lock().chunks.clone();
        for chunk in chunks {
            // SAFETY: listed.
            let chunk = unsafe { chunk.as_ref() };
            assert_eq!(chunk.units.free(), WORDS * 64 - HEAD_UNITS, "all was given back");
            assert_eq!(chunk.holders.count(), 1);
        }
    }

    #[test]
    fn a_block_outlives_its_slab_and_chunks_go_with_their_last_blocks() {
        let accounts = Arc::<Accounts>::default();
        let mapped = || accounts.chunks.bytes() / CHUNK_BYTES;
        let slab = Slab::new(4, Arc::clone(&accounts));
        let block = |seed: usize| slab.place(&vec![seed as u8; 60_000]).expect("there is room");
        let blocks: Vec<SharedBlock> = (0..110).map(block).collect();
        assert_eq!((slab.chunks(), mapped()), (4, 4));
        assert!(slab.place(&vec![0; 60_000]).is_some() && slab.chunks() == 4, "in the rest of a chunk");
        let gone = slab.set_limit(1);
        assert_eq!((gone.len(), slab.chunks(), mapped()), (3, 1, 4), "there are blocks in all of them");
        let (out, left): (Vec<_>, Vec<_>) = blocks.iter().partition(|block| block.is_out());
        let place = |block: &SharedBlock| chunk_address(&raw const block[0] as usize);
        assert!(out.iter().all(|block| gone.contains(&place(block))));
        assert!((30..40).contains(&left.len()) && !left.iter().any(|block| gone.contains(&place(block))));
        assert!(slab.place(&vec![0; 60_000]).is_none_or(|block| !block.is_out()));
        drop(slab);
        blocks.iter().enumerate().for_each(|(n, block)| assert_eq!(**block, [n as u8; 60_000]));
        assert_eq!(mapped(), 4);
        drop(blocks);
        assert_eq!(mapped(), 0);
    }
}
