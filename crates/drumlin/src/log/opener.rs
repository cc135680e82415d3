//! The opener: the one thread that opens segments, ahead of the writers.
//!
//! Place: started by `start`, woken by `room`, `writer` and `recycle`; calls `env`, and the
//! [`Owner`](super::Owner).
//!
//! Keeps one segment open beyond the one that the tail is in, and, once the log is really in use,
//! one more prepared (file and header ready, not yet open) and a ballast file for a full device.
//!
//! Invariants:
//! 1. It does its I/O and asks the owner without holding any lock, draws no LSN, and waits for
//!    nobody but its own condition variable: a writer that waits for it holds key locks.
//! 2. A file gets a segment's name only after its header is durable. Names become durable later,
//!    with the first sync that needs them (`sync`).
//! 3. A segment is opened after `on_border` of it has returned.
//! 4. Segments open in order, without gaps.
//! 5. Should this thread die, the log is poisoned and every waiter is told.
//!
//! A full device: the opener says so to whoever asks for room and tries again when asked. The
//! ballast becomes the next segment if writers in flight are already beyond the end; else it is
//! given up, so that what is in memory can be flushed, and no segment is made, of a new file or of a
//! spare, unless as much stays free or in spares. Nor does the log grow into the space that the flush of what is frozen
//! takes.
//!
//! Tests: `tests/space.rs`, `tests/faults.rs`.

use std::ops::Range;
use std::sync::Arc;

use crate::env::PAGE_BYTES;
use crate::error::{Error, Purpose, Result, Shortage};
use crate::key::Lsn;
use crate::sync::atomic::Ordering;

use super::segment::Segment;
use super::{Ballast, Log, Shared, Spare, State};

/// The zeros of a new segment are written in pieces of so many bytes: docs/design/speed.md has how fast others are.
const FILL_BYTES: usize = 64 << 10;

/// The name of the ballast file.
pub(super) const BALLAST: &str = "ballast.tmp";

/// What the opener does next.
enum Task {
    Stop,
    Open(Arc<Segment>),
    Prepare,
    MakeBallast,
}

/// Poisons the log if the opener panics.
struct Watch<'a>(&'a Shared);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison("the thread that opens log segments died".into());
        }
    }
}

impl Shared {
    /// The body of the opener's thread.
    pub(super) fn run_opener(&self) {
        let _watch = Watch(self);
        loop {
            match self.next_task() {
                Task::Stop => return,
                Task::Open(segment) => self.open_segment(segment),
                Task::Prepare => self.prepare_next(),
                Task::MakeBallast => self.make_ballast(),
            }
        }
    }

    /// Waits for work.
    fn next_task(&self) -> Task {
        let mut state = self.state.lock();
        loop {
            if state.stop || state.poisoned.is_some() {
                return Task::Stop;
            }
            let wanted = self.wanted_end().max(state.demand_end).max(state.waiting_end);
            let may_try = state.stalled.is_none() || state.retry;
            if state.open_end < wanted {
                if let Some(segment) = state.prepared.pop_front() {
                    return Task::Open(segment);
                }
                if may_try {
                    state.retry = false;
                    return Task::Prepare;
                }
            } else if self.in_real_use(&state) && state.stalled.is_none() {
                if state.prepared.is_empty() {
                    return Task::Prepare;
                }
                if state.ballast == Ballast::None {
                    return Task::MakeBallast;
                }
            }
            // Stores the thresholds and looks at the tail once more: a writer that went beyond
            // them meanwhile is seen by this loop, or sees them.
            self.rethink_locked(&state);
            if state.open_end < self.wanted_end() && (!state.prepared.is_empty() || may_try) {
                continue;
            }
            self.work.wait(&mut state);
        }
    }

    /// True once the session has gone beyond its first segment: an idle store needs no stock.
    fn in_real_use(&self, state: &State) -> bool {
        state.next_index >= self.header.segment + 3
    }

    /// Opens a prepared segment to the writers.
    fn open_segment(&self, segment: Arc<Segment>) {
        let index = segment.index();
        self.owner.on_border(Lsn(index << self.hot.units_shift));
        self.publish(segment.clone());
        // The tail is near the border of the one before.
        self.cool(index.saturating_sub(2) * self.units()..(index - 1) * self.units());
        segment.region().warm();
    }

    /// Gives up the process's claim on the pages of LSNs that are taken. Whoever still copies there, or reads it once more for
    /// a mark, has them mapped again.
    pub(super) fn cool(&self, lsns: Range<u64>) {
        let units = self.units();
        for segment in self.table.range(lsns.start / units..lsns.end.div_ceil(units)) {
            let first = segment.index() * units;
            segment.cool(lsns.start.saturating_sub(first)..(lsns.end - first).min(units));
        }
    }

    /// Puts a segment where writers find it.
    pub(super) fn publish(&self, segment: Arc<Segment>) {
        let mut state = self.state.lock();
        let end = (segment.index() + 1) << self.hot.units_shift;
        self.table.insert(segment);
        state.open_end = end;
        if state.ballast == Ballast::Refused {
            state.ballast = Ballast::None;
        }
        self.rethink_locked(&state);
        self.progress.notify_all();
    }

    /// Makes the next segment's file and header.
    fn prepare_next(&self) {
        if let Err(why) = self.check_space() {
            self.give_up_ballast();
            return self.note_failure(why);
        }
        let (index, floor, spare) = {
            let mut state = self.state.lock();
            (state.next_index, state.floor, state.spares.pop())
        };
        let from_spare = spare.is_some();
        let prepared = match self.prepare(index, floor, spare) {
            Err(why) if why.is_no_space() => self.prepare_on_full_device(index, floor, why),
            other => other,
        };
        let mut state = self.state.lock();
        match prepared {
            Ok(segment) => {
                state.next_index = index + 1;
                state.prepared.push_back(segment);
                state.stalled = None;
            }
            Err(Error::Poisoned { .. }) => {}
            // Another spare, or a new file, may do.
            Err(_) if from_spare => {}
            Err(why) => {
                drop(state);
                self.note_failure(why);
            }
        }
    }

    /// Tells everybody who waits that the next segment could not be made. Writers in flight hold
    /// key locks and cannot go back: for them a full device is waited out, anything else is final.
    fn note_failure(&self, why: Error) {
        let fatal = {
            let mut state = self.state.lock();
            let fatal = state.waiting_end > state.open_end && !why.is_no_space();
            state.failures += 1;
            state.stalled = Some(why.clone());
            fatal
        };
        self.progress.notify_all();
        if fatal {
            self.poison(format!("a log segment that writers wait for could not be opened: {why}"));
        }
    }

    /// Fails if the next segment would leave the device without what others need: the rest of the
    /// record that is waited for (a batch must not fill the device with segments only to find that
    /// the last one does not fit), what the owner has to flush, and the ballast's worth, once the ballast itself is given
    /// up. Spares count as free, since a flush gets them, and using one up is taking it from a flush. Writers in flight get
    /// whatever there is.
    fn check_space(&self) -> Result<()> {
        let reserved = self.owner.reserved_bytes();
        let file_bytes = self.file_bytes() as u64;
        let (needed, spare) = {
            let state = self.state.lock();
            if state.waiting_end > state.open_end {
                return Ok(());
            }
            let missing = state.demand_end.saturating_sub(state.open_end).div_ceil(self.units()).max(1);
            let reserve = u64::from(self.in_real_use(&state) && state.ballast != Ballast::Kept);
            ((missing + reserve) * file_bytes + reserved, state.spares.len() as u64 * file_bytes)
        };
        match self.env.fs.free_bytes(&self.dir) {
            Ok(Some(free)) if free + spare < needed => {
                let shortage = Shortage { purpose: Purpose::Grow, needed, free: Some(free + spare) };
                Err(Error::NoSpace { path: self.dir.clone(), shortage: Some(shortage) })
            }
            _ => Ok(()),
        }
    }

    /// True if a segment or more went by without a sync: what a sync writes besides does not matter then.
    fn is_seldom_synced(&self) -> bool {
        let since = self.sequencer.tail().0.saturating_sub(self.synced.load(Ordering::Relaxed));
        since >= self.units()
    }

    /// A segment's file: a spare, or a new one. Header durable, under its final name.
    pub(super) fn prepare(&self, index: u64, floor: Lsn, spare: Option<Spare>) -> Result<Arc<Segment>> {
        let path = self.segment_path(index);
        let is_new = spare.is_none();
        let (from, mapped) = match spare {
            Some(Spare { path, region }) => (path, region),
            None => (path.with_extension("tmp"), None),
        };
        let region = match mapped {
            Some(region) => Ok(region),
            None => self.env.fs.map_log(&from, self.file_bytes()),
        };
        let result = region.and_then(|region| {
            let filled = is_new && self.is_seldom_synced();
            let first = FILL_BYTES.min(self.file_bytes());
            if filled {
                // The header's first store would else have the system read far around it, in single pages, which then stay.
                region.fill(0..first, first);
            }
            let segment = self.finish_segment(index, floor, region)?;
            if filled {
                // Behind the header's sync: the first sync of a file writes all there is.
                segment.region().fill(first..self.file_bytes(), first);
            }
            self.env.fs.rename(&from, &path)?;
            Ok(segment)
        });
        if result.is_err() {
            self.remove_quietly(&from);
            // A rename that failed may have happened.
            self.remove_quietly(&path);
        }
        result
    }

    /// Writes the header and makes it durable. A failed sync is final.
    fn finish_segment(
        &self,
        index: u64,
        floor: Lsn,
        region: Arc<dyn crate::env::LogRegion>,
    ) -> Result<Arc<Segment>> {
        let segment = Segment::new(index, self.units(), region)?;
        let header = super::FileHeader { segment: index, ..self.header };
        segment.write_header(&header, self.secret, &self.hot.keys, floor);
        if let Err(why) = segment.sync_header() {
            self.poison(format!("the header of log segment {index} could not be synced: {why}"));
            return Err(Error::Poisoned { why: why.to_string() });
        }
        Ok(Arc::new(segment))
    }

    /// The device is full: the ballast serves writers that are in flight beyond the end, or is
    /// given up for flushes.
    fn prepare_on_full_device(&self, index: u64, floor: Lsn, why: Error) -> Result<Arc<Segment>> {
        let beyond_end = {
            let state = self.state.lock();
            (state.ballast == Ballast::Kept).then(|| self.sequencer.tail().0 > state.open_end)
        };
        match beyond_end {
            Some(true) => {
                self.state.lock().ballast = Ballast::None;
                self.prepare(index, floor, Some(Spare { path: self.dir.join(BALLAST), region: None }))
            }
            Some(false) => {
                self.give_up_ballast();
                Err(why)
            }
            None => Err(why),
        }
    }

    /// Removes the ballast, for its space. Bytes freed.
    pub(super) fn give_up_ballast(&self) -> u64 {
        {
            let mut state = self.state.lock();
            if state.ballast != Ballast::Kept {
                return 0;
            }
            state.ballast = Ballast::Refused;
        }
        self.remove_quietly(&self.dir.join(BALLAST));
        self.file_bytes() as u64
    }

    fn make_ballast(&self) {
        let path = self.dir.join(BALLAST);
        let made = self.env.fs.map_log(&path, self.file_bytes().next_multiple_of(PAGE_BYTES)).is_ok();
        if !made {
            self.remove_quietly(&path);
        }
        self.state.lock().ballast = if made { Ballast::Kept } else { Ballast::Refused };
    }

    /// Removes a file that nobody needs; the next start tries again if it is still there.
    pub(super) fn remove_quietly(&self, path: &std::path::Path) {
        let _ = self.env.fs.remove(path);
    }
}

impl Log {
    /// Gives the files kept in stock back to the device, for a flush that found it full.
    /// Returns the bytes freed. They are made again once there is space.
    pub fn give_up_stock(&self) -> u64 {
        let shared = &*self.shared;
        let spares = std::mem::take(&mut shared.state.lock().spares);
        let mut freed = shared.give_up_ballast();
        for spare in &spares {
            shared.remove_quietly(&spare.path);
            freed += shared.file_bytes() as u64;
        }
        freed
    }

    /// Stops the opener and waits for its end.
    pub(super) fn stop_opener(&self) {
        self.shared.state.lock().stop = true;
        self.shared.work.notify_all();
        self.shared.progress.notify_all();
        if let Some(thread) = self.opener.lock().take() {
            thread.join();
        }
    }
}
