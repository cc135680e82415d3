//! Writing records straight into the mapped segments.
//!
//! Place: `db` calls [`Log::write`] and [`Log::write_pad`] with an LSN it has in flight; `sync`
//! writes marks the same way.
//!
//! Invariants:
//! 1. The header word is stored first, in one atomic store, so that a record cut short still tells
//!    its length; the checksum is stored last and is what makes the record count.
//! 2. Only the owner of an LSN range writes there; the range is never written twice in a session.
//! 3. The caller keeps its LSN in flight for the whole call. That keeps the segments mapped.
//! 4. The common path takes no lock, allocates nothing and makes no system call: one header store,
//!    one copy, one checksum pass over bytes that are in the cache.
//! 5. It may wait only for the opener, which waits for nobody that holds a lock or an LSN.
//!
//! Tests: `tests/writing.rs`, `tests/crashes.rs`.
#![allow(unsafe_code)]

use std::hash::Hasher;
use std::sync::atomic::{AtomicU64 as MappedWord, Ordering as MappedOrdering, compiler_fence};

use twox_hash::XxHash3_64;

use crate::error::Result;
use crate::key::Lsn;
use crate::sync::failpoint;

use super::entry::{RecordParts, Sink};
use super::format::{HEADER_PAGE, Keys, Mark, RECORD_HEAD, RecordKind, Word};
use super::{Log, Shared};

/// Bytes going to one place in one segment.
struct Straight {
    at: *mut u8,
}

impl Sink for Straight {
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        // SAFETY: the record's room was computed from the same entries (`RecordParts`), lies in
        // one segment and belongs to the caller. Test: `entries_round_trip_in_exactly_the_bytes_foretold`.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at, bytes.len());
            self.at = self.at.add(bytes.len());
        }
    }
}

/// Stores one unit of a mapped segment.
///
/// # Safety
/// `at` is aligned to 8, inside a mapped segment, and belongs to the caller.
#[inline(always)]
unsafe fn store_unit(at: *mut u8, value: u64) {
    // SAFETY: by the caller's promise. Test: `tests/writing.rs`.
    unsafe { MappedWord::from_ptr(at.cast()) }.store(value.to_le(), MappedOrdering::Relaxed);
}

impl Log {
    /// Writes a record at `lsn`, which the caller has drawn (exactly `record.units()` units) and
    /// keeps in flight. When it returns, the record survives a crash of the process.
    ///
    /// It waits only if the segment is not open yet. O(bytes).
    ///
    /// Errors: [`crate::Error::Poisoned`] if the segment will never open; the range is a hole then,
    /// and nothing from there on will ever be reported durable.
    #[inline]
    pub fn write(&self, lsn: Lsn, record: &RecordParts<'_>) -> Result<()> {
        let encode = |sink: &mut Straight| {
            for entry in record.entries() {
                entry.encode(sink);
            }
        };
        let shared = &*self.shared;
        if shared.write_within(lsn, RecordKind::Write, record.body_bytes(), encode) {
            return Ok(());
        }
        shared.write_across(lsn, RecordKind::Write, record.body_bytes(), |sink| {
            for entry in record.entries() {
                entry.encode(sink);
            }
        })
    }

    /// Writes a pad over `units` units at `lsn`, which the caller has drawn and keeps in flight:
    /// a reservation given up.
    ///
    /// Errors: as [`write`](Log::write).
    pub fn write_pad(&self, lsn: Lsn, units: u64) -> Result<()> {
        self.shared.write_pad(lsn, units)
    }
}

impl Shared {
    /// The common path: a record within one open segment. False if it is not that.
    #[inline(always)]
    fn write_within(
        &self,
        lsn: Lsn,
        kind: RecordKind,
        body_bytes: u32,
        encode: impl FnOnce(&mut Straight),
    ) -> bool {
        let hot = &*self.hot;
        let units = (RECORD_HEAD as u64 + u64::from(body_bytes)).div_ceil(8);
        if hot.gate.is_passed_by(lsn.0 + units) {
            self.attend();
        }
        let offset = lsn.0 & hot.units_mask;
        if offset + units > hot.units_mask + 1 {
            return false;
        }
        let Some(data) = self.table.lookup(lsn.0 >> hot.units_shift) else {
            return false;
        };
        let (word, seed) = Word::new(kind, body_bytes).encode(&hot.keys, lsn.0);
        // SAFETY: `lookup` gave the data of the segment that holds `lsn`; the record ends within
        // it, and its units belong to the caller, who has them in flight (invariants 2 and 3).
        // Test: `tests/writing.rs`.
        unsafe {
            let at = data.add(offset as usize * 8);
            store_unit(at, word);
            // The header word goes first for a crash between the stores, not for other threads.
            compiler_fence(MappedOrdering::SeqCst);
            failpoint::hit("log::header_stored");
            let body = at.add(RECORD_HEAD);
            let padded = (units as usize) * 8 - RECORD_HEAD;
            if padded != body_bytes as usize {
                store_unit(body.add(padded - 8), 0);
            }
            let mut sink = Straight { at: body };
            encode(&mut sink);
            debug_assert_eq!(sink.at, body.add(body_bytes as usize));
            failpoint::hit("log::body_copied");
            let checksum = Keys::checksum(seed, std::slice::from_raw_parts(body, padded));
            // Last, whatever the process dies of: a right checksum stands for a whole record.
            compiler_fence(MappedOrdering::SeqCst);
            store_unit(at.add(8), checksum);
        }
        true
    }

    /// A record that spans segments, or whose segment is not open yet.
    #[cold]
    fn write_across(
        &self,
        lsn: Lsn,
        kind: RecordKind,
        body_bytes: u32,
        encode: impl FnOnce(&mut Spread<'_>),
    ) -> Result<()> {
        let units = (RECORD_HEAD as u64 + u64::from(body_bytes)).div_ceil(8);
        let end = lsn.0 + units;
        self.wait_open(end)?;
        let (word, seed) = Word::new(kind, body_bytes).encode(&self.hot.keys, lsn.0);
        self.store_unit(lsn.0, word);
        compiler_fence(MappedOrdering::SeqCst);
        failpoint::hit("log::header_stored");
        let mut spread =
            Spread { shared: self, at: lsn.0 * 8 + RECORD_HEAD as u64, hasher: XxHash3_64::with_seed(seed) };
        encode(&mut spread);
        debug_assert_eq!(spread.at, lsn.0 * 8 + RECORD_HEAD as u64 + u64::from(body_bytes));
        let padding = (end * 8 - spread.at) as usize;
        spread.put(&[0; 8][..padding]);
        failpoint::hit("log::body_copied");
        compiler_fence(MappedOrdering::SeqCst);
        self.store_unit(lsn.0 + 1, spread.hasher.finish());
        self.note_span(lsn.0, end);
        Ok(())
    }

    /// Writes a mark or close record.
    pub(super) fn write_mark(&self, lsn: Lsn, kind: RecordKind, mark: &Mark) -> Result<()> {
        let body = mark.encode();
        if self.write_within(lsn, kind, body.len() as u32, |sink| sink.put(&body)) {
            return Ok(());
        }
        self.write_across(lsn, kind, body.len() as u32, |sink| sink.put(&body))
    }

    /// Writes a pad: the word, and a checksum if there is room for one.
    pub(super) fn write_pad(&self, lsn: Lsn, units: u64) -> Result<()> {
        let end = lsn.0 + units;
        if self.hot.gate.is_passed_by(end) {
            self.attend();
        }
        self.wait_open(end)?;
        let (word, seed) = Word::pad(units).encode(&self.hot.keys, lsn.0);
        self.store_unit(lsn.0, word);
        if units >= 2 {
            self.store_unit(lsn.0 + 1, Keys::checksum(seed, &[]));
        }
        self.note_span(lsn.0, end);
        Ok(())
    }

    /// Tells the segments that the record `[lsn, end)` spans into where the next record starts.
    fn note_span(&self, lsn: u64, end: u64) {
        let first = lsn >> self.hot.units_shift;
        let last = (end - 1) >> self.hot.units_shift;
        for segment in first + 1..=last {
            self.table.set_first_record(segment, Lsn(end));
        }
    }

    /// Stores one unit of an open segment that the caller has in flight.
    fn store_unit(&self, lsn: u64, value: u64) {
        let data = self.table.lookup(lsn >> self.hot.units_shift).expect("waited until it is open");
        // SAFETY: the offset is below the segment's units, and the unit belongs to the caller.
        // Test: `tests/writing.rs`.
        unsafe { store_unit(data.add((lsn & self.hot.units_mask) as usize * 8), value) };
    }
}

/// Bytes going to several segments, hashed on the way.
pub(super) struct Spread<'a> {
    shared: &'a Shared,
    /// Position in the log, in bytes.
    at: u64,
    hasher: XxHash3_64,
}

impl Sink for Spread<'_> {
    fn put(&mut self, mut bytes: &[u8]) {
        self.hasher.write(bytes);
        let hot = &*self.shared.hot;
        let segment_bytes = (hot.units_mask + 1) * 8;
        while !bytes.is_empty() {
            let segment = (self.at / 8) >> hot.units_shift;
            let offset = self.at % segment_bytes;
            let count = bytes.len().min((segment_bytes - offset) as usize);
            let (now, later) = bytes.split_at(count);
            let data = self.shared.table.lookup(segment).expect("waited until it is open");
            // SAFETY: `count` bytes from `offset` end within the segment, and belong to the caller,
            // who has them in flight. Test: `records_span_segments`.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), data.add(offset as usize), count) };
            self.at += count as u64;
            bytes = later;
        }
    }
}

const _: () = assert!(HEADER_PAGE.is_multiple_of(8), "units are aligned");
