//! Durability: group commit without a leader thread, durable marks, the clean close.
//!
//! Place: `db` calls [`Log::sync_to`] before it acknowledges a `Disk` write, and [`Log::close`].
//!
//! Whoever needs a sync and finds none running does it for everybody who is complete by then;
//! whoever finds one running waits for it, and if it began too early one of them does the next.
//!
//! Invariants:
//! 1. `synced` rises only after every byte below it, and the names of the segments that hold them,
//!    are durable.
//! 2. A mark is written after that, covers `[mark_from, through)` with `through` ≤ the completed
//!    prefix as read before the sync, and both ends are ends of records.
//! 3. Marks are written by the holder of the exclusive right, so their ranges join.
//! 4. A failed sync poisons the log before anybody who waited is told.
//! 5. What a mark needs is room that is there: it waits for no segment to be made, and is left out
//!    if the log is full. (It is no part of durability.)
//!
//! Tests: `tests/durability.rs`, `tests/faults.rs`, `loom_tests`.

use crate::error::{Error, Result};
use crate::key::Lsn;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};

use super::format::{MARK_UNITS, Mark, RecordKind, Word};
use super::{Log, Shared};

/// What is read for a mark is given up again by so many units: 1 MiB.
const PIECE_UNITS: u64 = 1 << 17;

/// Guarded by `Shared::sync`.
pub(super) struct SyncState {
    /// Somebody has the exclusive right.
    pub(super) busy: bool,
    /// Everything below is covered by marks; the end of a record.
    pub(super) mark_from: Lsn,
    /// Segments below this number have durable names.
    pub(super) names_below: u64,
}

/// The right to sync, mark and recycle; one holder at a time.
pub(super) struct Exclusive<'a>(&'a Shared);

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        give_up(&self.0.sync, &self.0.sync_done);
    }
}

/// Waits until `is_done`, then false; or takes the exclusive right, then true.
pub(super) fn lead_or_follow(
    sync: &Mutex<SyncState>,
    sync_done: &Condvar,
    is_done: impl Fn() -> Result<bool>,
) -> Result<bool> {
    let mut state = sync.lock();
    loop {
        if is_done()? {
            return Ok(false);
        }
        if !state.busy {
            state.busy = true;
            return Ok(true);
        }
        state = sync_done.wait_on(sync, state);
    }
}

/// Gives the exclusive right back.
pub(super) fn give_up(sync: &Mutex<SyncState>, sync_done: &Condvar) {
    sync.lock().busy = false;
    sync_done.notify_all();
}

/// Says that everything below `through` is durable, to all who wait.
pub(super) fn announce(sync: &Mutex<SyncState>, sync_done: &Condvar, synced: &AtomicU64, through: u64) {
    synced.fetch_max(through, Ordering::AcqRel);
    // The lock orders this after the check of whoever is about to wait.
    drop(sync.lock());
    sync_done.notify_all();
}

/// What lies between two ends of records.
struct Stretch {
    from: Lsn,
    to: Lsn,
    count: u64,
    digest: u64,
    only_marks: bool,
}

impl Log {
    /// Makes everything below `end` durable; `end` is the end of a record that the caller (or
    /// somebody it heard of) has drawn. No locks may be held, and nothing in flight.
    /// Concurrent callers share one sync.
    ///
    /// Errors: [`Error::Poisoned`] if this or an earlier sync failed, or a writer died in flight.
    pub fn sync_to(&self, end: Lsn) -> Result<()> {
        let shared = &*self.shared;
        shared.check_poison()?;
        if shared.synced.load(Ordering::Acquire) >= end.0 {
            return Ok(());
        }
        shared.sequencer.wait_completed(end)?;
        let leads = lead_or_follow(&shared.sync, &shared.sync_done, || {
            shared.check_poison()?;
            Ok(shared.synced.load(Ordering::Acquire) >= end.0)
        })?;
        if !leads {
            return Ok(());
        }
        let exclusive = Exclusive(shared);
        let through = shared.sync_round(&exclusive)?;
        shared.mark_to(&exclusive, through)
    }

    /// Ends the session. Every write must have ended. If `clean`, the log says at its end that it
    /// is whole, everything is durable, and the next open has nothing to repair. Further calls do
    /// nothing.
    ///
    /// Errors: as [`sync_to`](Log::sync_to); the session then ends as after a crash.
    pub fn close(&self, clean: bool) -> Result<()> {
        {
            let mut state = self.shared.state.lock();
            if std::mem::replace(&mut state.closed, true) {
                return Ok(());
            }
            self.shared.refuses.store(true, Ordering::Release);
            self.shared.rethink_locked(&state);
            self.shared.progress.notify_all();
        }
        let result = if clean { self.close_cleanly() } else { Ok(()) };
        self.stop_opener();
        if clean && result.is_ok() {
            return self.tidy_up();
        }
        result
    }

    fn close_cleanly(&self) -> Result<()> {
        let shared = &*self.shared;
        shared.check_poison()?;
        shared.sequencer.wait_completed(shared.sequencer.tail())?;
        let exclusive = shared.exclusive();
        shared.check_poison()?;
        // Durable before the close record counts it: that may survive alone.
        let through = shared.sync_round(&exclusive)?;
        if shared.sequencer.tail().0 + MARK_UNITS > shared.state.lock().open_end {
            // Only on a full device, with more writers in flight than the slack is for.
            return Err(Error::NoSpace { path: shared.dir.clone(), shortage: None });
        }
        let stretch = shared.unmarked(&exclusive, through)?;
        shared.write_mark_record(&exclusive, RecordKind::Close, &stretch)?;
        shared.sync_round(&exclusive)?;
        Ok(())
    }

    /// After a clean close: cuts the last file to its used pages, removes what is in stock. Whether
    /// a power loss takes back the cut or a removal makes no difference, so neither is synced.
    fn tidy_up(&self) -> Result<()> {
        let shared = &*self.shared;
        let tail = shared.sequencer.tail().0;
        let last = (tail - 1) >> shared.hot.units_shift;
        // Until now the floor may have stood only in the header of a segment that is about to go.
        let floor = shared.state.lock().floor;
        for segment in shared.table.range(last..last + 1) {
            segment.write_floor(&shared.hot.keys, floor);
            segment.sync_header()?;
        }
        let (prepared, spares) = {
            let mut state = shared.state.lock();
            (std::mem::take(&mut state.prepared), std::mem::take(&mut state.spares))
        };
        // From the end backwards, so that a crash in between, or a failure, leaves no gap.
        let unused = shared.table.range(last + 1..u64::MAX);
        for segment in unused.iter().chain(&prepared).rev() {
            if shared.env.fs.remove(&shared.segment_path(segment.index())).is_err() {
                break;
            }
        }
        if !shared.table.range(last..last + 1).is_empty() {
            let path = shared.segment_path(last);
            let used = tail - (last << shared.hot.units_shift);
            let bytes = (super::HEADER_PAGE + used as usize * 8).next_multiple_of(crate::env::PAGE_BYTES);
            if bytes < shared.file_bytes() {
                shared.env.fs.truncate(&path, bytes as u64)?;
            }
        }
        for spare in spares {
            shared.remove_quietly(&spare.path);
        }
        shared.give_up_ballast();
        Ok(())
    }
}

impl Shared {
    /// Waits for the exclusive right.
    pub(super) fn exclusive(&self) -> Exclusive<'_> {
        let leads = lead_or_follow(&self.sync, &self.sync_done, || Ok(false));
        debug_assert!(matches!(leads, Ok(true)));
        Exclusive(self)
    }

    /// Makes everything complete durable, and tells who waits. Returns the new `synced`.
    fn sync_round(&self, _exclusive: &Exclusive<'_>) -> Result<Lsn> {
        let through = self.sequencer.completed().0;
        let from = self.synced.load(Ordering::Acquire);
        if through > from
            && let Err(why) = self.sync_range(from, through)
        {
            self.poison(format!("the log could not be synced: {why}"));
            return Err(Error::Poisoned { why: why.to_string() });
        }
        announce(&self.sync, &self.sync_done, &self.synced, through);
        Ok(Lsn(through))
    }

    fn sync_range(&self, from: u64, through: u64) -> Result<()> {
        let units = self.units();
        let last = (through - 1) / units;
        for segment in self.table.range(from / units..last + 1) {
            let first = segment.index() * units;
            segment.sync_units(from.max(first) - first..through.min(first + units) - first)?;
        }
        self.sync_names(last)
    }

    /// Makes the names of all segments up to `last` durable.
    pub(super) fn sync_names(&self, last: u64) -> Result<()> {
        if self.sync.lock().names_below > last {
            return Ok(());
        }
        // Every open segment got its name before it was opened.
        let named = self.state.lock().open_end / self.units();
        self.env.fs.sync_dir(&self.dir)?;
        self.sync.lock().names_below = named;
        Ok(())
    }

    /// Writes a mark for what is durable, if that is more than marks.
    fn mark_to(&self, exclusive: &Exclusive<'_>, through: Lsn) -> Result<()> {
        if through <= self.sync.lock().mark_from || !self.has_room_now(MARK_UNITS) {
            return Ok(());
        }
        let stretch = self.unmarked(exclusive, through)?;
        if stretch.only_marks {
            return Ok(());
        }
        self.write_mark_record(exclusive, RecordKind::Mark, &stretch)
    }

    /// What no mark covers yet of everything up to `through`, which is durable.
    fn unmarked(&self, _exclusive: &Exclusive<'_>, through: Lsn) -> Result<Stretch> {
        let from = self.sync.lock().mark_from.min(through);
        self.walk(from, through)
    }

    /// Writes a mark or close record that covers what is not marked.
    fn write_mark_record(&self, _: &Exclusive<'_>, kind: RecordKind, unmarked: &Stretch) -> Result<()> {
        let &Stretch { from, to, count, digest, .. } = unmarked;
        let mark = Mark { from, complete_to: to, count, digest };
        let in_flight = self.sequencer.begin(MARK_UNITS);
        let written = self.write_mark(in_flight.lsn(), kind, &mark);
        // If it could not be written, the log is poisoned and the hole is never reported durable.
        in_flight.commit();
        written?;
        self.sync.lock().mark_from = to;
        Ok(())
    }

    /// True if `units` units can be drawn without touching what others were promised.
    fn has_room_now(&self, units: u64) -> bool {
        let state = self.state.lock();
        let taken = self.sequencer.tail().0 + state.claims + self.slack;
        taken + units <= state.open_end
    }

    /// Counts and digests the records in `[from, to)`, which are complete.
    fn walk(&self, from: Lsn, to: Lsn) -> Result<Stretch> {
        let mut stretch = Stretch { from, to, count: 0, digest: 0, only_marks: true };
        if from >= to {
            return Ok(stretch);
        }
        let shift = self.hot.units_shift;
        let first = from.0 >> shift;
        let segments = self.table.range(first..((to.0 - 1) >> shift) + 1);
        let load = |lsn: u64| {
            let segment = segments.get(((lsn >> shift) - first) as usize)?;
            (segment.index() == lsn >> shift).then(|| segment.load(lsn & self.hot.units_mask))
        };
        let piece = PIECE_UNITS.min(self.units());
        let mut at = from.0;
        while at < to.0 {
            let raw = load(at);
            let Some((raw, (word, _))) = raw.and_then(|r| Some((r, Word::decode(r, &self.hot.keys, at)?)))
            else {
                return Err(self.hole_found(at));
            };
            let checksum = if word.has_checksum() { load(at + 1).unwrap_or(0) } else { 0 };
            stretch.digest = self.hot.keys.digest(stretch.digest, raw, checksum);
            stretch.count += 1;
            stretch.only_marks &= word.kind == RecordKind::Mark as u8;
            let next = at + word.units();
            if at / piece != next / piece {
                self.cool(at / piece * piece..next / piece * piece);
            }
            at = next;
        }
        if at != to.0 {
            return Err(self.hole_found(at));
        }
        Ok(stretch)
    }

    /// A hole below the completed prefix: somebody committed what was never written, or the memory
    /// went bad. Nothing from there on may be called durable.
    fn hole_found(&self, at: u64) -> Error {
        let why = format!("the log has a hole at LSN {at}, below what was reported complete");
        self.poison(why.clone());
        Error::Poisoned { why }
    }
}
