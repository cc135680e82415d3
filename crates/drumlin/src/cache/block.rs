//! A block's bytes, shared by whoever reads them: counted, with what the cache knows of it in front.
//!
//! Place: what `table` reads becomes one; `buckets` links those that are kept, `slab` gives them their place.
//!
//! Invariants:
//! 1. The bytes change only while one reference is left, and that one is `&mut`.
//! 2. A block's memory goes back where it came from when the last reference does: to its chunk, or to the allocator.
//! 3. `table` and `offset` change only in `identify`, before the block is linked.
//!
//! Concurrency: references are counted by `holders`. `referenced` is Relaxed: a hint. `shortcut` changes under the mutex of the
//! block's shard (`shortcuts`).
//!
//! Layout in memory: a head of 40 bytes, aligned to a cache line, and the bytes behind it: a look-up that has compared the
//! head has the beginning of the block, too.
//! Tests: below, `cache/tests.rs`.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crossbeam_epoch::Guard;

use super::holders::Holders;
use super::shortcuts::Shortcut;
use super::slab;

/// Bytes before those of the block.
pub(super) const HEAD_BYTES: usize = std::mem::offset_of!(Head, first);
/// Every block begins at a line: six bits of its address are free for `buckets`.
const ALIGN: usize = align_of::<Head>();

/// The head, and the first bytes of the block.
#[repr(C, align(64))]
pub(super) struct Head {
    references: Holders,
    /// Used since the hand of the cache passed it.
    referenced: AtomicBool,
    /// In a chunk of a slab.
    in_slab: bool,
    length: usize,
    table: u64,
    offset: u64,
    /// That which leads here; null if none does.
    shortcut: AtomicPtr<Shortcut>,
    /// Of `get_mut` and `deref` alone: a short block leaves them unwritten.
    first: [MaybeUninit<u8>; 24],
}

impl Head {
    /// True if it is that block.
    #[inline]
    pub(super) fn is(&self, table: u64, offset: u64) -> bool {
        self.offset == offset && self.table == table
    }

    /// The table it is of, and where it begins in the file.
    #[inline]
    pub(super) fn identity(&self) -> (u64, u64) {
        (self.table, self.offset)
    }

    /// Marks it as used; writes only if it was not.
    #[inline]
    pub(super) fn touch(&self) {
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// True if it is marked as used.
    #[inline]
    pub(super) fn is_touched(&self) -> bool {
        self.referenced.load(Ordering::Relaxed)
    }

    /// True if it was used since the last call.
    pub(super) fn take_touched(&self) -> bool {
        self.referenced.swap(false, Ordering::Relaxed)
    }

    /// Leads the shortcut that led here nowhere. Under the mutex of the block's shard, before the block is given up.
    pub(super) fn cut_off(&self) {
        let shortcut = self.shortcut.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: null, or that of shortcuts which are there: before they go they ask for the mutex and clear this.
        // Test: shortcuts_that_go_leave_no_way_back.
        if let Some(shortcut) = unsafe { shortcut.as_ref() } {
            shortcut.cut();
        }
    }

    /// True if it lies in a chunk of a slab.
    pub(super) fn is_in_slab(&self) -> bool {
        self.in_slab
    }

    /// Bytes that it takes, with its slot in the cache (of which five in eight are empty, at least).
    pub(super) fn charge(&self) -> usize {
        charge(self.length, self.in_slab)
    }
}

/// Bytes that a cached block of `length` bytes takes.
pub(super) fn charge(length: usize, in_slab: bool) -> usize {
    let bytes = HEAD_BYTES + length;
    let taken = if in_slab { slab::taken_bytes(bytes) } else { bytes.next_multiple_of(ALIGN) };
    taken + 4 * size_of::<usize>()
}

/// The bytes of a block; see the module. Cloning adds a reference.
pub struct SharedBlock(NonNull<Head>);

// SAFETY: a counted reference to bytes that nobody changes while there are two; the head's other fields are atomic, or
// change only before the block is linked. Test: cache::tests::readers_race_writers_and_see_only_their_own_blocks.
unsafe impl Send for SharedBlock {}
// SAFETY: as above.
unsafe impl Sync for SharedBlock {}

fn heap_layout(length: usize) -> Layout {
    let bytes = size_of::<Head>().max(HEAD_BYTES.saturating_add(length));
    Layout::from_size_align(bytes, ALIGN).expect("a block is far smaller than the address space")
}

/// Memory for a block of `length` bytes that `allocate` gives.
fn allocated(length: usize, allocate: unsafe fn(Layout) -> *mut u8) -> NonNull<u8> {
    let layout = heap_layout(length);
    // SAFETY: the layout is not empty. Test: a_block_keeps_its_bytes_until_the_last_reference_goes.
    let fresh = unsafe { allocate(layout) };
    NonNull::new(fresh).unwrap_or_else(|| handle_alloc_error(layout))
}

impl SharedBlock {
    /// A block of `length` zero bytes, from the allocator.
    pub fn zeroed(length: usize) -> SharedBlock {
        // SAFETY: large and aligned enough for a head, zero, and nobody else's.
        // Test: a_block_keeps_its_bytes_until_the_last_reference_goes.
        unsafe { SharedBlock::in_place(allocated(length, alloc_zeroed), length, false) }
    }

    /// A block of these bytes, from the allocator.
    pub fn copy_of(bytes: &[u8]) -> SharedBlock {
        // SAFETY: as in `zeroed`; the bytes are written before it is a block. Test: as above.
        unsafe {
            let fresh = allocated(bytes.len(), alloc);
            fresh.add(HEAD_BYTES).as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            SharedBlock::in_place(fresh, bytes.len(), false)
        }
    }

    /// Makes the memory at `place` a block of `length` bytes, which are there already, with one reference.
    ///
    /// # Safety
    /// The memory is aligned to a line, holds `HEAD_BYTES`, `length` bytes that are initialized, and no less than a head,
    /// is nobody else's, and goes back as `drop` gives it back. The pointer may reach all of it, and the whole chunk if it
    /// lies in one.
    pub(super) unsafe fn in_place(place: NonNull<u8>, length: usize, in_slab: bool) -> SharedBlock {
        let head = place.cast::<Head>();
        // SAFETY: asserted by the caller; field by field, so that the bytes stay. Test: as above, and
        // slab::tests::blocks_keep_their_bytes_whoever_comes_and_goes.
        unsafe {
            (&raw mut (*head.as_ptr()).references).write(Holders::one());
            (&raw mut (*head.as_ptr()).referenced).write(AtomicBool::new(false));
            (&raw mut (*head.as_ptr()).in_slab).write(in_slab);
            (&raw mut (*head.as_ptr()).length).write(length);
            (&raw mut (*head.as_ptr()).table).write(u64::MAX);
            (&raw mut (*head.as_ptr()).offset).write(u64::MAX);
            (&raw mut (*head.as_ptr()).shortcut).write(AtomicPtr::default());
        }
        SharedBlock(head)
    }

    /// The bytes, if this is the only reference.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        if !self.head().references.is_one() {
            return None;
        }
        let length = self.head().length;
        // SAFETY: the only reference is borrowed as `&mut`, so nobody reads. Test: as above.
        Some(unsafe { std::slice::from_raw_parts_mut(self.bytes_from(), length) })
    }

    /// From now on it is the block of `table` at `offset`. False, and nothing changes, if there is another reference.
    pub(super) fn identify(&mut self, table: u64, offset: u64) -> bool {
        if !self.head().references.is_one() {
            return false;
        }
        // SAFETY: the only reference is borrowed as `&mut`, so nobody reads the head. Test: as above.
        unsafe {
            (&raw mut (*self.0.as_ptr()).table).write(table);
            (&raw mut (*self.0.as_ptr()).offset).write(offset);
        }
        true
    }

    /// The head, which lives as long as the reference.
    #[inline]
    pub(super) fn head(&self) -> &Head {
        // SAFETY: a reference keeps the memory, and the head is never written but through atomics while others have it.
        // Test: as above.
        unsafe { self.0.as_ref() }
    }

    /// True if it lies in a chunk that is out of use.
    pub(super) fn is_out(&self) -> bool {
        // Not from the head: what borrows that may not look beyond it.
        // SAFETY: in a slab, and this is a reference. Test: cache::tests::a_cache_that_shrinks_gives_chunks_back.
        self.head().in_slab && unsafe { slab::is_out(self.0.cast()) }
    }

    #[inline]
    fn bytes_from(&self) -> *mut u8 {
        self.0.as_ptr().cast::<u8>().wrapping_add(HEAD_BYTES)
    }

    /// The reference as a pointer, not counted down.
    pub(super) fn into_raw(self) -> *const Head {
        ManuallyDrop::new(self).0.as_ptr()
    }

    /// The reference that `into_raw` made a pointer.
    ///
    /// # Safety
    /// `into_raw` gave it, and it is taken back once.
    pub(super) unsafe fn from_raw(head: *const Head) -> SharedBlock {
        // SAFETY: it was a reference, so it is not null. Test: cache::tests::dropping_the_cache_drops_the_blocks.
        SharedBlock(unsafe { NonNull::new_unchecked(head.cast_mut()) })
    }

    /// References to it.
    #[cfg(test)]
    pub(super) fn references(&self) -> usize {
        self.head().references.count()
    }
}

/// A block that the cache keeps as long as the guard under which it was found: a reference that is not counted.
pub struct BlockRef<'g>(ManuallyDrop<SharedBlock>, PhantomData<&'g Guard>);

impl BlockRef<'_> {
    /// Borrows the reference that `head` was made of.
    ///
    /// # Safety
    /// [`SharedBlock::into_raw`] gave it, and nobody takes that reference back before the guard goes.
    #[inline]
    pub(super) unsafe fn new(head: *const Head) -> Self {
        // SAFETY: asserted by the caller; it is never dropped, so the reference is not given up here.
        // Test: cache::tests::a_found_block_stays_valid_while_pinned.
        BlockRef(ManuallyDrop::new(unsafe { SharedBlock::from_raw(head) }), PhantomData)
    }

    /// Leads `shortcut` here, unless another does. Under the mutex of the block's shard, which has the block in a bucket.
    pub(super) fn connect(&self, shortcut: &Shortcut) {
        let back = &self.head().shortcut;
        if back.load(Ordering::Relaxed).is_null() && shortcut.end().is_null() {
            back.store(ptr::from_ref(shortcut).cast_mut(), Ordering::Relaxed);
            shortcut.connect(self.0.0.as_ptr());
        }
    }

    /// Where it lies.
    pub(super) fn address(&self) -> usize {
        self.0.0.addr().get()
    }

    /// True if somebody looked it up, of late.
    pub fn is_used(&self) -> bool {
        self.head().is_touched()
    }

    /// The block, counted.
    pub fn share(&self) -> SharedBlock {
        SharedBlock::clone(&self.0)
    }

    #[inline]
    pub(super) fn head(&self) -> &Head {
        self.0.head()
    }
}

impl Deref for BlockRef<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for SharedBlock {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let length = self.head().length;
        // SAFETY: a reference keeps the memory; the bytes behind the head are so many, initialized, and nobody changes them
        // while this is borrowed. Test: as above.
        unsafe { std::slice::from_raw_parts(self.bytes_from(), length) }
    }
}

impl Clone for SharedBlock {
    #[inline]
    fn clone(&self) -> SharedBlock {
        self.head().references.join();
        SharedBlock(self.0)
    }
}

impl Drop for SharedBlock {
    fn drop(&mut self) {
        if !self.head().references.leave() {
            return;
        }
        let (length, in_slab) = (self.head().length, self.head().in_slab);
        // SAFETY: the last reference; its memory came from where `in_slab` says, with this length. Test: as above.
        unsafe {
            if in_slab {
                slab::give_back(self.0.cast(), HEAD_BYTES + length);
            } else {
                dealloc(self.0.as_ptr().cast(), heap_layout(length));
            }
        }
    }
}

impl std::fmt::Debug for SharedBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedBlock({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_keeps_its_bytes_until_the_last_reference_goes() {
        for length in [0, 1, 23, 24, 25, 31, 32, 33, 4096, if cfg!(miri) { 5000 } else { 200_000 }] {
            let bytes: Vec<u8> = (0..length).map(|n| (n * 31 + length) as u8).collect();
            let mut block = SharedBlock::copy_of(&bytes);
            let other = block.clone();
            assert!(block.get_mut().is_none() && !block.identify(1, 2), "another may read");
            assert_eq!((&*block, &*other), (&bytes[..], &bytes[..]));
            let there = std::thread::spawn(move || other.iter().map(|&byte| u64::from(byte)).sum::<u64>());
            let sum: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
            assert_eq!(there.join().expect("no panic"), sum);
            assert_eq!(block.references(), 1);
            assert!(block.identify(1, 2) && block.head().is(1, 2) && !block.head().is(2, 1));
            assert_eq!(block.get_mut().map(|bytes| bytes.len()), Some(length));
            assert_eq!(*block, bytes[..], "its name is not among its bytes");
        }
    }
}
