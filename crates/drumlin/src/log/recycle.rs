//! Recycling: segments whose data is flushed become spare files, and then segments again.
//!
//! Place: `db` calls [`Log::recycle_below`] after a flush whose manifest edit is durable.
//!
//! Invariants:
//! 1. **I6** The floor never rises above what the caller says is flushed, nor above the completed
//!    prefix: a writer that is still copying keeps its segment.
//! 2. The floor is the start of a record. It is durable, in the header page of the newest open
//!    segment, before anything below it is touched; and it is not even written before the names
//!    of all open segments are durable.
//! 3. It holds the exclusive right: no sync or mark is reading the segments.
//! 4. A recycled segment keeps its mapping, but not its claim on memory: its pages are the system's to keep, and likely
//!    there when it is written again soon. There are few spares, so it is soon. The opener claims them anew as it opens
//!    the segment, while writers are in the one before, so that hardly one waits for a page that is not there.
//!
//! Tests: `tests/recycling.rs`.

use crate::env::join;
use crate::error::{Error, Result};
use crate::key::Lsn;
use crate::sync::atomic::Ordering;

use super::{Log, Shared, Spare};

/// Spare files kept, at most: what one flush frees and the next generation fills.
const SPARES_MAX: usize = 8;

impl Log {
    /// Says that nothing below `lsn` is needed any more: every version below is in tables, and the
    /// manifest that says so is durable. Whole segments below become spare files.
    /// `lsn` may be beyond the completed prefix or go back; only what is safe is done.
    /// O(segments freed), two syncs.
    ///
    /// Errors: [`Error::Poisoned`] if the floor could not be made durable, or what removing a file
    /// met; the log goes on in the second case.
    pub fn recycle_below(&self, lsn: Lsn) -> Result<()> {
        let shared = &*self.shared;
        let exclusive = shared.exclusive();
        shared.check_poison()?;
        let bound = lsn.min(shared.sequencer.completed());
        let Some((segment, floor)) = shared.floor_below(bound) else {
            return Ok(());
        };
        if let Err(why) = shared.make_floor_durable(floor) {
            shared.poison(format!("the log's floor could not be made durable: {why}"));
            return Err(Error::Poisoned { why: why.to_string() });
        }
        let surplus = shared.retire_below(segment, floor);
        drop(exclusive);
        let removed: Vec<_> = surplus.iter().map(|spare| shared.env.fs.remove(&spare.path)).collect();
        shared.work.notify_all();
        removed.into_iter().collect()
    }
}

impl Shared {
    /// The highest segment of which everything before is unneeded given `bound`, and where its
    /// first record starts; `None` if the floor would not rise.
    fn floor_below(&self, bound: Lsn) -> Option<(u64, Lsn)> {
        let state = self.state.lock();
        let open = self.table.range(0..u64::MAX);
        let newest = open.last()?.index();
        let wanted = (bound.0 >> self.hot.units_shift).min(newest);
        let old = state.old.iter().map(|s| (s.index, s.first_record));
        let candidates: Vec<_> =
            old.chain(open.iter().map(|s| (s.index(), Some(s.first_record())))).collect();
        candidates.into_iter().rev().find_map(|(index, first_record)| {
            let floor = first_record?;
            // A record that spans in must end where a file exists.
            let fits = index <= wanted && floor.0 >> self.hot.units_shift <= newest;
            (fits && floor > state.floor).then_some((index, floor))
        })
    }

    /// Writes the floor into the newest segment's header page.
    fn make_floor_durable(&self, floor: Lsn) -> Result<()> {
        let newest = self.table.newest().ok_or(Error::Closed { what: "store" })?;
        // Names first: whoever sees the floor must find the segment it points into.
        self.sync_names(newest.index())?;
        newest.write_floor(&self.hot.keys, floor);
        newest.sync_header()
    }

    /// Takes the segments below `segment` out of use. Returns the files that are too many.
    fn retire_below(&self, segment: u64, floor: Lsn) -> Vec<Spare> {
        {
            let mut sync = self.sync.lock();
            sync.mark_from = sync.mark_from.max(floor);
        }
        self.synced.fetch_max(segment << self.hot.units_shift, Ordering::AcqRel);
        let mut state = self.state.lock();
        state.floor = floor;
        while state.old.front().is_some_and(|s| s.index < segment) {
            let old = state.old.pop_front().expect("just seen");
            state.spares.push(Spare { path: old.path, region: None });
        }
        for retired in self.table.remove_below(segment) {
            let path = join(&self.dir, &super::format::segment_name(retired.index()));
            retired.cool(0..self.units());
            state.spares.push(Spare { path, region: Some(retired.region().clone()) });
        }
        state.retry = true;
        let live = self.table.count() + state.old.len() + state.prepared.len();
        let keep = self.files_max.saturating_sub(live).clamp(1, SPARES_MAX).min(state.spares.len());
        // The newest are kept: their pages are the likeliest to be in memory.
        let surplus = state.spares.len() - keep;
        state.spares.drain(..surplus).collect()
    }
}
