//! Large memory, straight from the system: resident is what was used, and nothing after it is given back.
//!
//! Place: `memory` gets the chunks of its arenas here, `cache` those of its slabs; `table` keeps its large buffers in a
//! [`PageVec`], `filter` its lines in a [`PackedVec`].
//! What is smaller than [`MAPPED_BYTES`] comes from the global allocator.
//!
//! Why not all from the global allocator: what is freed there may stay resident, and a large block that comes back teaches
//! some allocators to keep tens of megabytes more of everything else. Memtables, windows and filters come and go; their
//! memory has to go. What it is worth: docs/design/memory.md.
//!
//! Invariants:
//! 1. Memory is aligned as its layout asks and valid until it is given back with the same layout.
//! 2. Pages of mapped memory that were not written are not resident.
//! 3. What is given back is not resident any more, also where the system cannot unmap it: it joins neighbours to one
//!    mapping, and to take one out of the middle makes two, of which a process may have so many (`vm.max_map_count`).
//!    Then the pages go and the addresses stay taken.
//! 4. Whether memory is mapped follows from its layout's size alone, so that it goes back the way it came.
//!
//! Concurrency: none of its own. A chunk from 2 MiB on asks for huge pages: a search jumps all over the memtable, a get to
//! any block of the cache, and with 4 KiB pages the walk through the page tables costs as much as the misses.
//! Tests: `pages/tests.rs`, `memory::arena`, and under the address sanitizer `memory`.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator, Global};

use crate::sync::atomic::AtomicU64;

/// Chunks from this size on are aligned to it and ask for huge pages.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Memory from this size on comes from the system.
pub(crate) const MAPPED_BYTES: usize = 128 << 10;

/// The least alignment of what is mapped.
const PAGE_BYTES: usize = 4096;

/// A vector whose memory goes back to the system when it is large.
pub(crate) type PageVec<T> = allocator_api2::vec::Vec<T, Pages>;

/// A vector whose memory shares huge pages with others' when it has some hundred kilobytes, for what is read at random.
pub(crate) type PackedVec<T> = allocator_api2::vec::Vec<T, Packed>;

/// Appends `bytes` by one copy: the vector's own `extend_from_slice` copies one by one.
pub(crate) fn append(to: &mut PageVec<u8>, bytes: &[u8]) {
    to.reserve(bytes.len());
    let length = to.len();
    // SAFETY: there is room for so many behind the length, and nothing else can lie there. Test: what_is_appended_is_there.
    unsafe {
        to.as_mut_ptr().add(length).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        to.set_len(length + bytes.len());
    }
}

/// So many words that are 0, without a look at memory that is so already.
pub(crate) fn zeroed_words(count: usize) -> PageVec<AtomicU64> {
    #[cfg(not(loom))]
    // SAFETY: a word of zeros is an atomic 0. Test: words_are_zero.
    return unsafe { allocator_api2::boxed::Box::new_zeroed_slice_in(count, Pages).assume_init() }.into_vec();
    #[cfg(loom)]
    {
        let mut words = PageVec::with_capacity_in(count, Pages);
        words.extend((0..count).map(|_| AtomicU64::new(0)));
        words
    }
}

/// The allocator of a [`PageVec`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pages;

#[inline]
fn is_mapped(layout: Layout) -> bool {
    cfg!(all(target_os = "linux", not(miri), not(loom))) && layout.size() >= MAPPED_BYTES
}

/// A chunk for `layout`, uninitialized.
pub(crate) fn chunk(layout: Layout) -> *mut u8 {
    let fresh = if is_mapped(layout) {
        system::map(layout).map_or(std::ptr::null_mut(), NonNull::as_ptr)
    } else {
        // SAFETY: an arena's layouts are not empty. Test: memory::arena::tests::allocations_never_overlap.
        unsafe { alloc(layout) }
    };
    if fresh.is_null() {
        handle_alloc_error(layout);
    }
    fresh
}

/// Gives a chunk back.
///
/// # Safety
/// `chunk` returned it for `layout`, and nobody uses it any more.
pub(crate) unsafe fn give_back(base: *mut u8, layout: Layout) {
    if is_mapped(layout) {
        // SAFETY: mapped by `chunk` for this layout; asserted by the caller. Test: super::tests.
        unsafe { system::unmap(base, layout) };
    } else {
        // SAFETY: allocated for this layout; asserted by the caller. Test: memory::arena::tests::threads_allocate_without_overlap.
        unsafe { dealloc(base, layout) };
    }
}

// SAFETY: memory is mapped, or the global allocator's, by its layout alone, and is valid until it goes back; the allocator
// holds nothing, so copies of it are the same. Test: a_vector_keeps_its_bytes_while_it_grows_and_shrinks.
unsafe impl Allocator for Pages {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if !is_mapped(layout) {
            return Global.allocate(layout);
        }
        let huge = layout.size().is_multiple_of(HUGE_PAGE_BYTES).then_some(HUGE_PAGE_BYTES);
        let aligned = layout.align_to(huge.unwrap_or(layout.align())).or(Err(AllocError))?;
        let base = system::map(aligned).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(base, layout.size()))
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // Fresh pages are zero.
        if is_mapped(layout) { self.allocate(layout) } else { Global.allocate_zeroed(layout) }
    }

    // SAFETY: asked of the caller by the trait. Test: as above.
    #[inline]
    unsafe fn deallocate(&self, base: NonNull<u8>, layout: Layout) {
        if is_mapped(layout) {
            // SAFETY: mapped for this layout; asserted by the caller. Test: as above.
            unsafe { system::unmap(base.as_ptr(), layout) };
        } else {
            // SAFETY: as above.
            unsafe { Global.deallocate(base, layout) };
        }
    }

    unsafe fn grow(&self, base: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if is_mapped(old) && new.align() <= PAGE_BYTES {
            // SAFETY: mapped for `old`, and `new` is no smaller; asserted by the caller. Test: as above.
            if let Some(base) = unsafe { system::remap(base, old, new) } {
                return Ok(NonNull::slice_from_raw_parts(base, new.size()));
            }
            // Refused where one mapping would become two: then by hand.
        }
        let fresh = self.allocate(new)?;
        // SAFETY: both are valid for the old size, and the new memory is nobody else's. Test: as above.
        unsafe {
            base.copy_to_nonoverlapping(fresh.cast(), old.size());
            self.deallocate(base, old);
        }
        Ok(fresh)
    }
}

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod packed;
/// Elsewhere nothing is packed.
#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
pub(crate) use Pages as Packed;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub(crate) use packed::Packed;

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod system {
    use super::{HUGE_PAGE_BYTES, Layout, NonNull, PAGE_BYTES};
    use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap, munmap};

    fn fresh(bytes: usize) -> Option<*mut u8> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping, wherever the system wants it. Test: super::tests.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        mapped.ok().map(|start| start.cast())
    }

    /// Maps memory for `layout`; in huge pages if it is aligned to them.
    pub(super) fn map(layout: Layout) -> Option<NonNull<u8>> {
        if layout.align() <= PAGE_BYTES {
            return fresh(layout.size()).and_then(NonNull::new);
        }
        debug_assert!(layout.align() == HUGE_PAGE_BYTES && layout.size().is_multiple_of(HUGE_PAGE_BYTES));
        let (bytes, spare) = (layout.size(), HUGE_PAGE_BYTES);
        let start = fresh(bytes + spare)?;
        let lead = start.addr().next_multiple_of(HUGE_PAGE_BYTES) - start.addr();
        let base = start.wrapping_add(lead);
        // SAFETY: both ends lie in the mapping just made, before and behind the chunk, whole pages that nobody knows;
        // the advice does not change what the chunk holds. What is refused costs address space or speed only.
        // Test: super::tests.
        unsafe {
            if lead > 0 {
                let _ = munmap(start.cast(), lead);
            }
            if spare > lead {
                let _ = munmap(base.add(bytes).cast(), spare - lead);
            }
            let _ = madvise(base.cast(), bytes, Advice::LinuxHugepage);
        }
        NonNull::new(base)
    }

    /// # Safety
    /// `map` or `remap` returned it for `layout`, and nobody uses it any more.
    pub(super) unsafe fn unmap(base: *mut u8, layout: Layout) {
        // SAFETY: the whole of a mapping of this size; asserted by the caller. Test: super::tests.
        if unsafe { munmap(base.cast(), layout.size()) }.is_err() {
            // SAFETY: as above. Test: memory_goes_back_where_the_system_has_no_mapping_left_to_split.
            unsafe { release(base, layout.size()) };
        }
    }

    /// Gives pages back and keeps their addresses; what they hold next is 0.
    ///
    /// # Safety
    /// They are whole pages of a mapping of `map`, and nobody uses what they hold.
    pub(super) unsafe fn release(base: *mut u8, bytes: usize) {
        // SAFETY: asserted by the caller. What is refused stays resident. Test: super::tests.
        let _ = unsafe { madvise(base.cast(), bytes, Advice::LinuxDontNeed) };
    }

    /// The same bytes in a mapping for `new`; `None` if the system refuses, and then nothing changed.
    ///
    /// # Safety
    /// `map` or `remap` returned it for `old`, which is aligned to a page at most, and nobody else uses it.
    pub(super) unsafe fn remap(base: NonNull<u8>, old: Layout, new: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the whole of a mapping of the old size; asserted by the caller. Test: super::tests.
        let moved =
            unsafe { mremap(base.as_ptr().cast(), old.size(), new.size(), MremapFlags::MAYMOVE) }.ok()?;
        NonNull::new(moved.cast())
    }
}

/// Elsewhere nothing is mapped.
#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
mod system {
    use super::{Layout, NonNull};

    pub(super) fn map(_: Layout) -> Option<NonNull<u8>> {
        None
    }

    /// # Safety
    /// None: it does nothing.
    pub(super) unsafe fn unmap(_: *mut u8, _: Layout) {}

    /// # Safety
    /// None: it does nothing.
    pub(super) unsafe fn remap(_: NonNull<u8>, _: Layout, _: Layout) -> Option<NonNull<u8>> {
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
