//! Open segments: the mapped files, and the table by which writers find them without a lock.
//!
//! Place: the opener inserts, recycling removes, `writer` looks up, `sync` walks.
//!
//! Invariants:
//! 1. A table entry whose number is `i + 1` has the base of segment `i`, and both stay until no
//!    LSN of segment `i` is in flight and none of its data is needed.
//! 2. So whoever has an LSN of segment `i` in flight may use what `lookup(i)` gave for as long as
//!    it is in flight, and no longer.
//! 3. A segment's number is used once in a session: an old table shows for a segment that is in
//!    flight either nothing or the truth.
//!
//! Concurrency: an entry is published by storing its base (Relaxed), then its number (Release);
//! `lookup` loads the number (Acquire), then the base. When the live segments outgrow the table, a
//! larger one is filled and published (Release / Acquire); outgrown ones live as long as the log,
//! since a writer may still be reading them, and together are smaller than the newest.
//! All changes are made under the mutex in here.
//!
//! Tests: `tests/writing.rs` (growth, concurrent writers), `tests/recycling.rs`.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
// Mapped bytes are shared with the kernel: they take the machine's atomics, never a model's.
use std::sync::atomic::AtomicU64 as MappedWord;

use crate::env::{LogRegion, PAGE_BYTES};
use crate::error::{Error, Result};
use crate::key::Lsn;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::format::{DOUBT_SLOT, FLOOR_BYTES, FLOOR_SLOTS, FileHeader, HEADER_BYTES, HEADER_PAGE, Keys};

/// One mapped segment file.
pub(crate) struct Segment {
    index: u64,
    region: Arc<dyn LogRegion>,
    /// The first record that starts here. Stored by the writer of a record that spans into the
    /// segment, before its commit; read below the completed prefix.
    first_record: AtomicU64,
    /// Floor slots written so far.
    floors: AtomicU64,
}

impl Segment {
    /// A segment of `units` units in `region`.
    pub(crate) fn new(index: u64, units: u64, region: Arc<dyn LogRegion>) -> Result<Segment> {
        let wanted = HEADER_PAGE + units as usize * 8;
        if region.bytes() < wanted || region.base().align_offset(8) != 0 {
            return Err(Error::invalid(format!(
                "a log region of {} bytes at {:?} cannot hold a segment of {wanted} bytes",
                region.bytes(),
                region.base()
            )));
        }
        Ok(Segment { index, region, first_record: AtomicU64::new(index * units), floors: AtomicU64::new(0) })
    }

    /// The segment's number.
    pub(super) fn index(&self) -> u64 {
        self.index
    }

    /// The mapping.
    pub(super) fn region(&self) -> &Arc<dyn LogRegion> {
        &self.region
    }

    /// Gives up the process's claim on the pages of these units, as far as they hold no others.
    pub(super) fn cool(&self, units: Range<u64>) {
        self.region.cool(HEADER_PAGE + units.start as usize * 8..HEADER_PAGE + units.end as usize * 8);
    }

    /// Where LSNs of the segment lie.
    #[inline]
    pub(super) fn data(&self) -> *mut u8 {
        // SAFETY: `new` checked that the region is longer than its header page.
        // Test: every one in `tests/writing.rs`.
        unsafe { self.region.base().add(HEADER_PAGE) }
    }

    /// The unit at `offset` units. Only below the completed prefix, or one's own.
    pub(super) fn load(&self, offset: u64) -> u64 {
        let bytes = HEADER_PAGE + offset as usize * 8;
        assert!(bytes + 8 <= self.region.bytes(), "a unit beyond its segment");
        // SAFETY: in bounds by the assertion; aligned since the base is; the mapping lives as long
        // as `self`. Test: `tests/durability.rs`.
        let word = unsafe { MappedWord::from_ptr(self.region.base().add(bytes).cast()) };
        u64::from_le(word.load(Ordering::Relaxed))
    }

    /// Fills the header page of a segment that nobody else uses yet.
    pub(super) fn write_header(&self, header: &FileHeader, secret: u64, keys: &Keys, floor: Lsn) {
        let mut page = [0; HEADER_PAGE];
        page[..HEADER_BYTES].copy_from_slice(&header.encode(secret));
        page[FLOOR_SLOTS[0]..FLOOR_SLOTS[0] + FLOOR_BYTES]
            .copy_from_slice(&keys.encode_floor(self.index, 0, floor));
        // SAFETY: the region is at least a header page long, and the segment is not published, so
        // nobody else writes there. Test: `tests/recycling.rs`.
        unsafe { std::ptr::copy_nonoverlapping(page.as_ptr(), self.region.base(), HEADER_PAGE) };
        self.floors.store(1, Ordering::Relaxed);
    }

    /// Writes a floor into the older of the two floor slots. One caller at a time.
    pub(super) fn write_floor(&self, keys: &Keys, floor: Lsn) {
        let slot = (self.floors.fetch_add(1, Ordering::Relaxed) % 2) as usize;
        let bytes = keys.encode_floor(self.index, slot, floor);
        // SAFETY: the slots lie inside the header page; writers never touch that page, and the
        // caller is the only one that writes floors. Test: `tests/recycling.rs`.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.region.base().add(FLOOR_SLOTS[slot]),
                FLOOR_BYTES,
            );
        };
    }

    /// Says in the header page that a sync of the session failed. One caller at a time.
    pub(super) fn write_doubt(&self, keys: &Keys) {
        write_doubt(&*self.region, keys, self.index);
    }

    /// Makes the header page durable.
    pub(super) fn sync_header(&self) -> Result<()> {
        self.region.sync(0..HEADER_PAGE)
    }

    /// Makes a range of units durable.
    pub(super) fn sync_units(&self, units: Range<u64>) -> Result<()> {
        let start = (HEADER_PAGE + units.start as usize * 8) / PAGE_BYTES * PAGE_BYTES;
        let end = (HEADER_PAGE + units.end as usize * 8).next_multiple_of(PAGE_BYTES);
        self.region.sync(start..end.min(self.region.bytes()))
    }

    /// The first record that starts in or after this segment.
    pub(super) fn first_record(&self) -> Lsn {
        Lsn(self.first_record.load(Ordering::Relaxed))
    }

    /// Notes where the record that spans into this segment ends. Published by the writer's commit.
    pub(super) fn set_first_record(&self, lsn: Lsn) {
        self.first_record.store(lsn.0, Ordering::Relaxed);
    }
}

/// Says in the header page of a segment's file that a sync of its session failed. One caller at a time.
pub(super) fn write_doubt(region: &dyn LogRegion, keys: &Keys, index: u64) {
    let bytes = keys.encode_doubt(index);
    if region.bytes() < HEADER_PAGE {
        return;
    }
    // SAFETY: the slot lies inside the header page, which the region has; writers never touch that page, and the caller is
    // the only one that writes doubt. Test: a_log_of_which_a_sync_failed_is_flushed_by_the_next_open.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), region.base().add(DOUBT_SLOT), FLOOR_BYTES);
    };
}

#[derive(Default)]
struct Entry {
    /// Segment number + 1; 0 for none.
    number: AtomicU64,
    segment: AtomicPtr<Segment>,
    data: AtomicPtr<u8>,
}

struct Entries {
    mask: u64,
    entries: Box<[Entry]>,
}

impl Entries {
    fn new(count: usize) -> *mut Entries {
        let entries = (0..count).map(|_| Entry {
            number: AtomicU64::new(0),
            segment: AtomicPtr::new(std::ptr::null_mut()),
            data: AtomicPtr::new(std::ptr::null_mut()),
        });
        Box::into_raw(Box::new(Entries { mask: count as u64 - 1, entries: entries.collect() }))
    }

    #[inline(always)]
    fn at(&self, index: u64) -> &Entry {
        &self.entries[(index & self.mask) as usize]
    }

    fn set(&self, segment: &Arc<Segment>) {
        let entry = self.at(segment.index);
        entry.segment.store(Arc::as_ptr(segment).cast_mut(), Ordering::Relaxed);
        entry.data.store(segment.data(), Ordering::Relaxed);
        entry.number.store(segment.index + 1, Ordering::Release);
    }
}

struct Live {
    /// Ascending, without gaps.
    segments: VecDeque<Arc<Segment>>,
    /// Every table there ever was; the last is the current one.
    tables: Vec<*mut Entries>,
}

/// The live segments of a session.
pub(crate) struct Table {
    current: AtomicPtr<Entries>,
    live: Mutex<Live>,
}

// SAFETY: the pointers name heap values that this table owns until it is dropped; all are shared
// by the rules of the header. Test: `tests/writing.rs`.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    /// No segments.
    pub(crate) fn new() -> Table {
        let first = Entries::new(16);
        Table {
            current: AtomicPtr::new(first),
            live: Mutex::new(Live { segments: VecDeque::new(), tables: vec![first] }),
        }
    }

    #[inline(always)]
    fn current(&self) -> &Entries {
        // SAFETY: tables live until `self` is dropped. Test: `tests/writing.rs`.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Where the LSNs of segment `index` lie, if it is open. The caller has an LSN of it in flight.
    #[inline(always)]
    pub(crate) fn lookup(&self, index: u64) -> Option<*mut u8> {
        let entry = self.current().at(index);
        (entry.number.load(Ordering::Acquire) == index + 1).then(|| entry.data.load(Ordering::Relaxed))
    }

    /// Notes that the first record to start at or after segment `index` is `lsn`. The caller has
    /// an LSN of the segment in flight, and it is open.
    pub(super) fn set_first_record(&self, index: u64, lsn: Lsn) {
        let entry = self.current().at(index);
        if entry.number.load(Ordering::Acquire) == index + 1 {
            // SAFETY: the entry's segment lives while an LSN of it is in flight (invariant 2), and
            // the caller has one. Test: `tests/recycling.rs`.
            unsafe { &*entry.segment.load(Ordering::Relaxed) }.set_first_record(lsn);
        }
    }

    /// Publishes the segment that follows the last live one.
    pub(crate) fn insert(&self, segment: Arc<Segment>) {
        let mut live = self.live.lock();
        debug_assert!(live.segments.back().is_none_or(|last| last.index + 1 == segment.index));
        live.segments.push_back(segment);
        let count = live.segments.len();
        let entries = self.current();
        if count as u64 <= entries.mask + 1 {
            entries.set(&live.segments[count - 1]);
            return;
        }
        let larger = Entries::new(2 * count.next_power_of_two());
        for segment in &live.segments {
            // SAFETY: just made, and not yet shared. Test: `tests/writing.rs`.
            unsafe { &*larger }.set(segment);
        }
        live.tables.push(larger);
        self.current.store(larger, Ordering::Release);
    }

    /// Takes out every segment below `index`. None of their LSNs is in flight.
    pub(super) fn remove_below(&self, index: u64) -> Vec<Arc<Segment>> {
        let mut live = self.live.lock();
        let mut removed = Vec::new();
        while live.segments.front().is_some_and(|s| s.index < index) {
            let segment = live.segments.pop_front().expect("just seen");
            self.current().at(segment.index).number.store(0, Ordering::Release);
            removed.push(segment);
        }
        removed
    }

    /// The live segments with numbers in `range`.
    pub(super) fn range(&self, range: Range<u64>) -> Vec<Arc<Segment>> {
        self.live.lock().segments.iter().filter(|s| range.contains(&s.index)).cloned().collect()
    }

    /// The newest live segment.
    pub(super) fn newest(&self) -> Option<Arc<Segment>> {
        self.live.lock().segments.back().cloned()
    }

    /// Live segments.
    pub(super) fn count(&self) -> usize {
        self.live.lock().segments.len()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        for table in self.live.lock().tables.drain(..) {
            // SAFETY: made by `Entries::new`, listed once, and nobody else has `self` any more.
            // Test: every one that drops a log.
            drop(unsafe { Box::from_raw(table) });
        }
    }
}
