//! The chunks of an arena, as the system sees them: resident is what was used, and nothing after they are given back.
//!
//! Place: `arena` gets each chunk here. Large chunks come straight from the system, small ones from the global allocator.
//!
//! Why not all from the global allocator: what is freed there may stay resident, and a large block that comes back teaches
//! some allocators to keep tens of megabytes more of everything else. Memtables come and go; their memory has to go.
//!
//! Invariants:
//! 1. A chunk is aligned as its layout asks and valid until it is given back with the same layout.
//! 2. Pages of a large chunk that were not written are not resident.
//!
//! Concurrency: none of its own. From 2 MiB on huge pages are asked for: a search jumps all over the memtable, and with
//! 4 KiB pages its walk through the page tables costs as much as the misses.
//! Tests: below, `arena`, and under the address sanitizer `memory`.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

/// Chunks from this size on come from the system.
pub(super) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A chunk for `layout`, uninitialized.
pub(super) fn allocate(layout: Layout) -> *mut u8 {
    #[cfg(all(target_os = "linux", not(miri), not(loom)))]
    if layout.size() >= HUGE_PAGE_BYTES {
        return system::map(layout);
    }
    // SAFETY: an arena's layouts are not empty. Test: arena::tests::allocations_never_overlap.
    let fresh = unsafe { alloc(layout) };
    if fresh.is_null() {
        handle_alloc_error(layout);
    }
    fresh
}

/// Gives a chunk back.
///
/// # Safety
/// `allocate` returned it for `layout`, and nobody uses it any more.
pub(super) unsafe fn give_back(base: *mut u8, layout: Layout) {
    #[cfg(all(target_os = "linux", not(miri), not(loom)))]
    if layout.size() >= HUGE_PAGE_BYTES {
        // SAFETY: mapped by `allocate` with this size; asserted by the caller. Test: below.
        let _ = unsafe { rustix::mm::munmap(base.cast(), layout.size()) };
        return;
    }
    // SAFETY: allocated with this layout; asserted by the caller. Test: arena::tests::threads_allocate_without_overlap.
    unsafe { dealloc(base, layout) };
}

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod system {
    use super::{HUGE_PAGE_BYTES, Layout, handle_alloc_error};
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    /// Maps a chunk, aligned to a huge page.
    pub(super) fn map(layout: Layout) -> *mut u8 {
        debug_assert!(layout.align() <= HUGE_PAGE_BYTES && layout.size().is_multiple_of(HUGE_PAGE_BYTES));
        let (bytes, spare) = (layout.size(), HUGE_PAGE_BYTES);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping, wherever the system wants it. Test: super::tests.
        let mapped =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes + spare, access, MapFlags::PRIVATE) };
        let Ok(start) = mapped.map(|start| start.cast::<u8>()) else { handle_alloc_error(layout) };
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
        base
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_aligned_and_hold_what_is_written() {
        for power in 16..25 {
            let bytes = 1usize << power;
            let align = if bytes >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { 64 };
            let layout = Layout::from_size_align(bytes, align).expect("a power of two");
            let chunks: Vec<*mut u8> = (0..3).map(|_| allocate(layout)).collect();
            for (n, &chunk) in chunks.iter().enumerate() {
                assert!(chunk.addr().is_multiple_of(align), "{bytes} bytes");
                // SAFETY: `bytes` long, and this test's own.
                unsafe { chunk.write_bytes(n as u8 + 1, bytes) };
            }
            for (n, &chunk) in chunks.iter().enumerate() {
                // SAFETY: written above, given back once.
                unsafe {
                    let held = std::slice::from_raw_parts(chunk, bytes);
                    assert!(held.iter().all(|&byte| byte == n as u8 + 1), "{bytes} bytes");
                    give_back(chunk, layout);
                }
            }
        }
    }
}
