//! Pieces of some hundred kilobytes, side by side in huge pages.
//!
//! Place: `filter` keeps a table's lines in a [`super::PackedVec`]. What is smaller than [`PACKED_BYTES`] or larger than a region is left
//! to [`Pages`].
//!
//! A get asks the filters of some ten tables, each at a random line. Mapped one by one they lie in pages of 4 KiB, and each
//! question begins with a walk through the page tables. A table's filter is too small for a huge page of its own; so filters share
//! them, in regions of [`REGION_BYTES`]. What it is worth: docs/design/memory.md.
//!
//! Invariants:
//! 1. Pieces that are held at the same time share no byte; each begins and ends with a page.
//! 2. When a piece has gone, what is resident and nobody's ([`Regions::idle`]) is at most a quarter of what is held and one huge
//!    page: a huge page that nobody has a piece of goes back at once; beyond the bound all holes in others go back. That takes
//!    those huge pages apart; a piece that comes to lie in the hole has small pages, until the system joins them again.
//! 3. A region of which nothing is held is unmapped.
//!
//! Concurrency: one lock, held for O(holes) and the calls of the system. It is taken when a filter is made or goes; who reads a
//! piece takes none.
//! Tests: `pages/tests.rs`: pieces keep their bytes while others come and go, and the system is asked what is resident.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

use super::{HUGE_PAGE_BYTES, PAGE_BYTES, Pages, system};
use crate::sync::Mutex;

/// From this size on a piece lies in a region: whole pages waste an eighth of it at most.
pub(super) const PACKED_BYTES: usize = 32 << 10;
/// Bytes of a region.
pub(super) const REGION_BYTES: usize = 32 << 20;
/// How a region is mapped.
const REGION: Layout = match Layout::from_size_align(REGION_BYTES, HUGE_PAGE_BYTES) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two"),
};
/// Pages of a huge page.
const HUGE_PAGES: usize = HUGE_PAGE_BYTES / PAGE_BYTES;
/// Pages of a region.
const REGION_PAGES: usize = REGION_BYTES / PAGE_BYTES;

/// The regions of this process.
static REGIONS: Mutex<Regions> = Mutex::new(Regions::new());

/// The allocator of a [`super::PackedVec`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Packed;

/// How many pages of a region a layout takes; `None` if it lies in none.
fn pages_of(layout: Layout) -> Option<usize> {
    let fits = (PACKED_BYTES..=REGION_BYTES).contains(&layout.size()) && layout.align() <= PAGE_BYTES;
    fits.then(|| layout.size().div_ceil(PAGE_BYTES))
}

/// What is larger than a region, in whole huge pages of its own.
fn of_its_own(layout: Layout) -> Layout {
    if layout.size() <= REGION_BYTES {
        return layout;
    }
    Layout::from_size_align(layout.size().next_multiple_of(HUGE_PAGE_BYTES), layout.align()).unwrap_or(layout)
}

// SAFETY: by invariant 1 a piece is its holder's alone until it goes back; where it lies follows from its layout. The allocator
// holds nothing, so copies of it are the same. Test: pages::tests::packed_vectors_keep_their_bytes.
unsafe impl Allocator for Packed {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let Some(pages) = pages_of(layout) else { return Pages.allocate(of_its_own(layout)) };
        let base = REGIONS.lock().take(pages).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(base, layout.size()))
    }

    // SAFETY: asked of the caller by the trait. Test: as above.
    unsafe fn deallocate(&self, base: NonNull<u8>, layout: Layout) {
        match pages_of(layout) {
            // SAFETY: `take` returned it for so many pages, by the layout; asserted by the caller. Test: as above.
            Some(pages) => unsafe { REGIONS.lock().give_back(base, pages) },
            // SAFETY: allocated there for this layout; asserted by the caller. Test: as above.
            None => unsafe { Pages.deallocate(base, of_its_own(layout)) },
        }
    }
}

/// All regions, by address.
pub(super) struct Regions {
    regions: BTreeMap<usize, Region>,
    /// Pages that are held.
    held: usize,
    /// Pages that are resident and not held.
    idle: usize,
}

impl Regions {
    pub(super) const fn new() -> Regions {
        Regions { regions: BTreeMap::new(), held: 0, idle: 0 }
    }

    /// So many pages in a row, uninitialized; `None` if the system has no memory. The first hole that has room for them, so
    /// that the last regions become empty. O(holes).
    pub(super) fn take(&mut self, pages: usize) -> Option<NonNull<u8>> {
        for region in self.regions.values_mut() {
            if let Some(start) = region.holes.take(pages) {
                self.held += pages;
                self.idle = self.idle + region.hold(start..start + pages) - pages;
                return Some(region.at(start));
            }
        }
        let base = system::map(REGION)?;
        self.regions.insert(base.as_ptr().addr(), Region::new(base));
        self.take(pages)
    }

    /// # Safety
    /// `take` returned it for so many pages, and nobody uses it any more.
    pub(super) unsafe fn give_back(&mut self, piece: NonNull<u8>, pages: usize) {
        let address = piece.as_ptr().addr();
        let (&base, region) =
            self.regions.range_mut(..=address).next_back().expect("it was taken from a region");
        let start = (address - base) / PAGE_BYTES;
        region.holes.put(start, pages);
        self.held -= pages;
        self.idle = self.idle + pages - region.let_go(start..start + pages);
        if region.holes.pages == REGION_PAGES {
            // SAFETY: mapped by `take`; no piece of it is held. Test: pages::tests::packed_memory_goes_back.
            unsafe { system::unmap(region.at(0).as_ptr(), REGION) };
            self.regions.remove(&base);
        }
        if self.idle > self.held / 4 + HUGE_PAGES {
            self.regions.values_mut().for_each(Region::give_up_holes);
            self.idle = 0;
        }
    }

    /// Bytes that are resident and nobody's.
    #[cfg(test)]
    pub(super) fn idle(&self) -> usize {
        self.idle * PAGE_BYTES
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.regions.len()
    }
}

/// Address space of [`REGION_BYTES`], and who has what of it.
struct Region {
    base: NonNull<u8>,
    holes: Holes,
    huge: [HugePage; REGION_PAGES / HUGE_PAGES],
}

/// What is known of a huge page.
#[derive(Clone, Copy, Default)]
struct HugePage {
    /// Pages of it that are held.
    held: usize,
    /// All of it is resident: since it was touched none of it was given back.
    is_whole: bool,
}

// SAFETY: a region is memory and numbers; whose a page is does not depend on the thread. Test: as for `Packed`.
unsafe impl Send for Region {}

impl Region {
    fn new(base: NonNull<u8>) -> Region {
        Region { base, holes: Holes::all(), huge: Default::default() }
    }

    fn at(&self, page: usize) -> NonNull<u8> {
        NonNull::new(self.base.as_ptr().wrapping_add(page * PAGE_BYTES)).expect("it lies in a mapping")
    }

    /// Notes that pages are held now. Returns how many pages become resident by it: all of a huge page that nobody had a
    /// piece of.
    fn hold(&mut self, pages: Range<usize>) -> usize {
        let mut resident = 0;
        for (n, part) in huge_pages(pages) {
            let huge = &mut self.huge[n];
            if huge.held == 0 {
                huge.is_whole = true;
                resident += HUGE_PAGES;
            } else if !huge.is_whole {
                resident += part.len();
            }
            huge.held += part.len();
        }
        resident
    }

    /// Notes that pages are nobody's any more, and gives back what is not to be kept. Returns how many pages are not
    /// resident any more by it.
    fn let_go(&mut self, pages: Range<usize>) -> usize {
        let mut gone = 0;
        for (n, part) in huge_pages(pages) {
            self.huge[n].held -= part.len();
            let HugePage { held, is_whole } = self.huge[n];
            if held == 0 {
                self.release(n * HUGE_PAGES..(n + 1) * HUGE_PAGES);
                gone += if is_whole { HUGE_PAGES } else { part.len() };
            } else if !is_whole {
                gone += part.len();
                self.release(part);
            }
        }
        gone
    }

    /// Gives back all holes that are resident.
    fn give_up_holes(&mut self) {
        for (&start, &pages) in &self.holes.by_start {
            for (n, part) in huge_pages(start..start + pages) {
                if self.huge[n].is_whole && self.huge[n].held > 0 {
                    self.release(part);
                }
            }
        }
        // Those without a hole stay as they are.
        let torn = self.huge.iter_mut().filter(|huge| huge.held < HUGE_PAGES);
        torn.for_each(|huge| huge.is_whole = false);
    }

    fn release(&self, pages: Range<usize>) {
        // SAFETY: pages of this region, of holes: nobody has a piece there. Test: pages::tests::packed_memory_goes_back.
        unsafe { system::release(self.at(pages.start).as_ptr(), pages.len() * PAGE_BYTES) };
    }
}

/// The huge pages that a range of pages lies in, each with its part of the range.
fn huge_pages(pages: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    (pages.start / HUGE_PAGES..pages.end.div_ceil(HUGE_PAGES)).map(move |n| {
        let (start, end) = (n * HUGE_PAGES, (n + 1) * HUGE_PAGES);
        (n, start.max(pages.start)..end.min(pages.end))
    })
}

/// The pages of a region that nobody holds, as ranges that do not touch.
struct Holes {
    /// Lengths by first page.
    by_start: BTreeMap<usize, usize>,
    /// Their sum.
    pages: usize,
}

impl Holes {
    fn all() -> Holes {
        Holes { by_start: BTreeMap::from([(0, REGION_PAGES)]), pages: REGION_PAGES }
    }

    /// The first so many in a row.
    fn take(&mut self, pages: usize) -> Option<usize> {
        if self.pages < pages {
            return None;
        }
        let (&start, &length) = self.by_start.iter().find(|&(_, &length)| length >= pages)?;
        self.by_start.remove(&start);
        if length > pages {
            self.by_start.insert(start + pages, length - pages);
        }
        self.pages -= pages;
        Some(start)
    }

    fn put(&mut self, mut start: usize, pages: usize) {
        let mut length = pages;
        if let Some(behind) = self.by_start.remove(&(start + pages)) {
            length += behind;
        }
        if let Some((&before, &its_length)) = self.by_start.range(..start).next_back()
            && before + its_length == start
        {
            start = before;
            length += its_length;
        }
        self.by_start.insert(start, length);
        self.pages += pages;
    }
}
