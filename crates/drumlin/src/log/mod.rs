//! The log: one stream of 8-byte units in which a write's place is its version.
//!
//! Place: `db` writes records at the LSNs it drew from the [`Sequencer`], asks for durability, and
//! recycles what is flushed; `recover` reads the log back. Calls `env` for files and threads.
//!
//! The nouns:
//! - *LSN*: the number of a unit. *Segment* i holds the LSNs `[i*U, (i+1)*U)`, U units, in one
//!   mapped file `{i:010}.log`. Records may span segments, and exceed one.
//! - *Session*: one open of the store. It has a random salt, so that no bytes of another session
//!   (or another place) pass for its records, and it begins with a segment of its own.
//! - *Cut*: where recovery ended. The next session's first header states it (`prior_end`), durably
//!   before anything of that session is acknowledged: what lies behind a cut never comes back.
//! - *Mark*: a record saying that everything below an LSN is durable, with count and digest of
//!   the records. A bad record below a mark is corruption, above it a torn tail.
//! - *Floor*: nothing below it is needed. Always the start of a record; durable before anything
//!   below it is touched.
//! - *Opener*: the thread that opens segments ahead of the writers.
//!
//! Invariants (I6, I7 as in docs/ARCHITECTURE.md):
//! 1. **I6** A segment is reused or removed only when it lies below the floor, the floor is durable,
//!    and no LSN of it is in flight (`recycle`).
//! 2. **I7** `sync_to(end)` returns Ok only after everything below `end` was complete and synced,
//!    names and lengths of the segments included (`sync`).
//! 3. A mark is written after the sync that makes it true, and covers only what is complete.
//! 4. A failed sync is final: the log is poisoned, nothing is reported durable any more, and a header says so to whoever
//!    opens it in this boot.
//! 5. A segment file appears under its name only after its header is durable: a bad header under
//!    a segment's name is always corruption.
//! 6. The opener waits for no writer, no lock that a writer may hold across a wait, and never for
//!    the completed prefix; it draws no LSN.
//!
//! What `db` must do:
//! - Begin with `scan`. What the scan saw is perhaps in the system's cache only, so a power loss may cut the log further
//!   back, unless it is `clean`: either it is whole, and made durable, and the session is told that it is `clean`; or
//!   everything that is replayed is flushed, and counted by one manifest edit, before the session starts, so that a power
//!   loss finds all of it in tables, or none.
//! - Start at `first_segment_after(highest LSN in the manifest)`: after a power loss tables may be ahead of the log, and no
//!   LSN may be drawn twice.
//! - `sync_to(bound)` before the manifest edit of a flush up to `bound` is written. Else a power
//!   loss keeps the flushed keyspace's part of a batch (or of history) and loses the other's.
//! - `recycle_below(bound)` only after that edit is durable.
//! - Per write: `ensure_room`, locks, draw, drop the room, `write`, publish, commit.
//!
//! Waits: `ensure_room` (no locks held) → opener; `write` (key lock and LSN held) → opener;
//! `sync_to` → smaller LSNs, then the exclusive right; exclusive right → LSN of a mark → opener.
//! Lock order: exclusive right (`sync::Exclusive`) > `state` > `table`; never two waits nested the
//! other way.
//!
//! Origin: cLSM's timestamp, made the position in the log; group commit without a leader thread is folklore of the field;
//! everything else is our own.
//!
//! Tests: `tests/`, by property.

mod at_rest;
mod damage;
mod entry;
mod format;
mod gate;
mod geometry;
pub mod inspect;
#[cfg(all(test, loom))]
mod loom_tests;
mod opener;
mod reader;
mod recover;
mod recovered;
mod recycle;
mod room;
mod segment;
mod session;
mod start;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;
mod writer;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use crate::commit::Sequencer;
use crate::env::{Env, Thread};
use crate::error::Error;
use crate::key::Lsn;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{CachePadded, Condvar, Mutex};

pub use at_rest::{remove_temporaries, reserve};
pub use entry::{Entry, RecordParts};
pub use format::Uuid;
pub use recover::{Mode, ScanOptions, scan};
pub use recovered::{Recovered, Replayer, SegmentInfo};
pub use room::Room;
pub use start::{LogOptions, Prior};

#[cfg(all(test, loom))]
pub(crate) use format::HEADER_PAGE as SEGMENT_HEAD_BYTES;
#[cfg(all(test, loom))]
pub(crate) use segment::{Segment as LogSegment, Table as SegmentTable};

use format::{FileHeader, HEADER_PAGE, Keys};
use gate::Gate;
use segment::{Segment, Table};

/// The writing side of the log. One per open store; shared by all threads.
pub struct Log {
    shared: Arc<Shared>,
    opener: Mutex<Option<Box<dyn Thread>>>,
}

/// Whose log it is. Asked by the opener, with no lock held; it must not wait for writers, nor for the completed prefix.
pub trait Owner: Send + Sync {
    /// A segment is about to open, whose first LSN this is.
    fn on_border(&self, border: Lsn);

    /// Bytes of the device that the log must leave: for flushes that are to give back some of it.
    fn reserved_bytes(&self) -> u64;
}

/// What every write reads, and nearly nobody changes: one cache line.
struct Hot {
    gate: Gate,
    keys: Keys,
    units_shift: u32,
    units_mask: u64,
}

struct Shared {
    hot: CachePadded<Hot>,
    table: Table,
    env: Env,
    dir: PathBuf,
    secret: u64,
    /// The header of every segment of this session, but for the number.
    header: FileHeader,
    sequencer: Arc<Sequencer>,
    owner: Box<dyn Owner>,
    /// Units kept free for writers that passed `ensure_room` together.
    slack: u64,
    /// Records of at most this many units pass `ensure_room` without a claim.
    small_units: u64,
    /// Files the log may keep, spares included.
    files_max: usize,
    state: Mutex<State>,
    /// The opener waits here.
    work: Condvar,
    /// Whoever waits for the opener waits here.
    progress: Condvar,
    sync: Mutex<sync::SyncState>,
    sync_done: Condvar,
    /// Everything below is durable (or below the floor).
    synced: AtomicU64,
    /// Set with `State::poisoned`; read without the lock.
    refuses: AtomicBool,
}

/// A file that can become a segment, under the name of the segment it was.
struct Spare {
    path: PathBuf,
    region: Option<Arc<dyn crate::env::LogRegion>>,
}

/// A segment of an earlier session.
struct OldSegment {
    index: u64,
    path: PathBuf,
    bytes: u64,
    /// Where the first record that starts in it begins, if known.
    first_record: Option<Lsn>,
}

/// Guarded by `Shared::state`.
struct State {
    /// First LSN beyond the open segments.
    open_end: u64,
    /// Units promised to large records that have not been drawn yet.
    claims: u64,
    /// `ensure_room` wants the log open up to here.
    demand_end: u64,
    /// Writers in flight wait for the log to be open up to here.
    waiting_end: u64,
    /// Segments that are ready to be opened, in order.
    prepared: VecDeque<Arc<Segment>>,
    /// The number of the next segment to be prepared.
    next_index: u64,
    spares: Vec<Spare>,
    ballast: Ballast,
    /// Live segments of earlier sessions, ascending.
    old: VecDeque<OldSegment>,
    floor: Lsn,
    /// Why the opener could not open the next segment; it tries again when `retry` is set.
    stalled: Option<Error>,
    /// Failed attempts so far.
    failures: u64,
    retry: bool,
    stop: bool,
    closed: bool,
    poisoned: Option<String>,
}

/// The spare file that is kept for a full device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ballast {
    /// Not made yet, or given up; made again once there is space.
    None,
    /// Could not be made; tried again after the next segment is opened.
    Refused,
    Kept,
}

impl Shared {
    /// Log units per segment.
    fn units(&self) -> u64 {
        self.hot.units_mask + 1
    }

    /// Bytes of a segment file.
    fn file_bytes(&self) -> usize {
        HEADER_PAGE + self.units() as usize * 8
    }

    fn segment_path(&self, index: u64) -> PathBuf {
        self.dir.join(format::segment_name(index))
    }

    /// Stops the log for good: nothing is reported durable, no new write is let in.
    fn poison(&self, why: String) {
        {
            let mut state = self.state.lock();
            if state.poisoned.is_none() {
                // A later sync may succeed for what the system gave up: in this boot nobody may take the log for durable.
                self.table.newest().iter().for_each(|newest| newest.write_doubt(&self.hot.keys));
            }
            state.poisoned.get_or_insert(why);
            self.refuses.store(true, Ordering::Release);
            self.rethink_locked(&state);
        }
        self.progress.notify_all();
        self.work.notify_all();
        // The lock orders this after the check of whoever is about to wait.
        drop(self.sync.lock());
        self.sync_done.notify_all();
    }

    /// The error of a log that takes no more, if it is one.
    fn check_locked(state: &State) -> Result<(), Error> {
        if let Some(why) = &state.poisoned {
            return Err(Error::Poisoned { why: why.clone() });
        }
        if state.closed {
            return Err(Error::Closed { what: "store" });
        }
        Ok(())
    }

    /// Fails if the log is poisoned (not if it is closed).
    fn check_poison(&self) -> Result<(), Error> {
        if !self.refuses.load(Ordering::Acquire) {
            return Ok(());
        }
        match &self.state.lock().poisoned {
            Some(why) => Err(Error::Poisoned { why: why.clone() }),
            None => Ok(()),
        }
    }
}

impl Log {
    /// Why the log takes no more writes, if a failure made it so.
    #[cfg(all(test, not(loom)))]
    pub fn poisoned(&self) -> Option<String> {
        self.shared.state.lock().poisoned.clone()
    }

    /// Log units per segment: a border is a multiple of this.
    pub fn units_per_segment(&self) -> u64 {
        self.shared.units()
    }

    /// Bytes of the segments that hold needed data (or are open for it), earlier sessions included.
    pub fn live_bytes(&self) -> u64 {
        let open = self.shared.table.count() as u64 * self.shared.file_bytes() as u64;
        open + self.shared.state.lock().old.iter().map(|s| s.bytes).sum::<u64>()
    }

    /// Bytes of log that this session has drawn so far.
    pub fn written_bytes(&self) -> u64 {
        self.shared.sequencer.tail().0.saturating_sub(self.shared.header.session_first.0) * Lsn::UNIT_BYTES
    }

    /// Bytes of mapped files: open segments, prepared ones and spares.
    pub fn mapped_bytes(&self) -> u64 {
        let open = self.shared.table.count();
        let state = self.shared.state.lock();
        let spares = state.spares.iter().filter(|s| s.region.is_some()).count();
        ((open + state.prepared.len() + spares) * self.shared.file_bytes()) as u64
    }

    /// The first LSN that may still be needed.
    #[cfg(all(test, not(loom)))]
    pub fn floor(&self) -> Lsn {
        self.shared.state.lock().floor
    }

    /// Everything below is durable, or flushed.
    pub fn durable(&self) -> Lsn {
        Lsn(self.shared.synced.load(Ordering::Acquire))
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("dir", &self.shared.dir).field("durable", &self.durable()).finish()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.stop_opener();
    }
}
