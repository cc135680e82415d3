//! Turns: when a keyspace gets a new memtable, and when the log is padded to get there.
//!
//! Place: the log calls `on_border` before a segment opens; workers call `is_pad_due` and `pad_to_border` when they find
//! nothing to do, `manual` when a flush was asked for.
//!
//! A memtable turns at a segment border (I2), one segment ahead of the tail; it is flushed once the tail is there.
//!
//! Invariants:
//! 1. While memory is short, no memtable that is worth a flush waits for the tail: the log is padded to its border. So it
//!    is with one that has outgrown its limit. A pad costs space in the log, and each brings a flush nearer: there is none
//!    while a flush runs, and none for little.
//! 2. A border that is reached while memory is short has something turned.
//!
//! Concurrency: `on_border` runs on the thread that opens segments and waits for nobody. A pad is a write like any other,
//! under a key lock. Tests: `store_tests`, `tests/memory.rs`, `tests/graveyard.rs`.

use crate::error::Result;
use crate::key::Lsn;

use super::keyspace::KeyspaceState;
use super::store::Store;
use super::superversion::Generation;

/// A memtable is turned at half of what an arena can hold, whatever the options say.
const MEMTABLE_BYTES_MAX: usize = 16 << 30;

/// While memory is short, the log is padded for a flush of the memtables' share divided by this, or more.
const PAD_PARTS: usize = 8;

impl Store {
    /// Bytes at which a keyspace's memtable is turned.
    pub fn memtable_limit(&self, keyspace: &KeyspaceState) -> usize {
        keyspace
            .options
            .memtable_bytes
            .unwrap_or(usize::MAX)
            .min(self.memory.memtable_share / 2)
            .min(MEMTABLE_BYTES_MAX)
    }

    /// A version was reserved in `generation`: tells the workers, once, of a memtable that has outgrown its limit and is not
    /// logged, since no border comes for it.
    #[inline]
    pub fn note_growth(&self, keyspace: &KeyspaceState, generation: &Generation) {
        if !keyspace.options.logged
            && generation.memtable.bytes() >= self.memtable_limit(keyspace)
            && generation.is_first_to_tell()
        {
            self.background.wake();
        }
    }

    /// Called by the log before the segment that begins at `border` opens: turns the keyspaces whose
    /// memtable would outgrow its limit, those that hold the oldest log beyond its bound, and, if memory is short and
    /// nothing waits for its flush, the one that holds most.
    pub fn on_border(&self, border: Lsn) {
        let keyspaces = self.keyspaces.all();
        let guard = crossbeam_epoch::pin();
        let segment = self.identity.segment_bytes as usize;
        let log_over = self.log.get().is_some_and(|log| {
            let live = log.live_bytes();
            live + segment as u64 > self.options.log_bytes_max as u64
                || self.is_scarce(live + 2 * segment as u64)
        });
        let mut turnable: Vec<_> = keyspaces
            .values()
            .map(|k| (k, k.current.load(&guard).active()))
            .filter(|(_, active)| !active.memtable.is_empty() && active.start < border)
            .collect();
        // The largest first: they make the most room.
        turnable.sort_by_key(|(_, active)| std::cmp::Reverse(active.memtable.bytes()));
        let oldest = turnable.iter().map(|(_, active)| active.start).min();
        let fails = |k: &KeyspaceState| self.background.fails_to_flush(k.id);
        let nothing_waits =
            keyspaces.values().all(|k| k.current.load(&guard).frozen().is_empty() || fails(k));
        let mut relieves = nothing_waits && self.memory.is_short();
        let mut staying: usize = turnable.iter().map(|(_, active)| active.memtable.bytes()).sum();
        for (keyspace, active) in turnable {
            let bytes = active.memtable.bytes();
            let limit = self.memtable_limit(keyspace);
            // A segment is written before this border comes, and one before the next one does.
            let ahead = (segment + segment / 2).min(limit / 2);
            let outgrown = bytes + ahead >= limit;
            let pins = log_over && Some(active.start) == oldest;
            let crowds = staying + segment + segment / 2 >= self.memory.memtable_share / 2;
            let asked = self.background.flush_asked(keyspace.id);
            let relieved = relieves && !fails(keyspace);
            if outgrown || pins || crowds || asked || relieved {
                relieves = false;
                let comparator = keyspace.options.comparator.clone();
                keyspace.current.turn(border, || self.memory.memtable(&comparator));
                staying -= bytes.min(staying);
            }
        }
        drop(guard);
        self.measure_pressure();
        self.background.wake();
    }

    /// True if padding the log to its next border lets a flush start that is worth it, or brings one nearer: nothing can
    /// be flushed at `tail` and none is, and
    /// - what is frozen ends beyond the tail, and it holds much and memory is short, or has outgrown its limit, or memory is full; or
    /// - memory is short and nothing is frozen: the border turns the largest memtable; or
    /// - nothing is frozen, and a memtable that is not logged has outgrown its limit.
    ///
    /// What fails to be flushed counts for neither.
    ///
    /// The tail is the one by which the caller found nothing to flush: with a later one neither of the two might see work.
    pub fn is_pad_due(&self, tail: Lsn) -> bool {
        let keyspaces = self.keyspaces.all();
        let guard = crossbeam_epoch::pin();
        // No border helps what fails, and on a full device a pad takes the space that it waits for.
        let able: Vec<_> = keyspaces.values().filter(|k| !self.background.fails_to_flush(k.id)).collect();
        let mut frozen =
            able.iter().filter_map(|k| Some((k, k.current.load(&guard).frozen().last()?))).peekable();
        let is_short = self.memory.is_short();
        if self.background.is_flushing() {
            return false;
        }
        if frozen.peek().is_none() {
            let actives = able.iter().map(|k| (k, k.current.load(&guard).active().memtable.bytes()));
            let (mut all, mut is_outgrown) = (0, false);
            for (keyspace, bytes) in actives {
                all += bytes;
                // What is not logged hardly moves the log, so no border comes by itself.
                is_outgrown |= !keyspace.options.logged && bytes >= self.memtable_limit(keyspace);
            }
            // Else it is readers who hold the memory, and a border helps nobody.
            return is_outgrown || is_short && all >= self.memory.memtable_share / 4;
        }
        let (mut bytes, mut is_outgrown) = (0, false);
        for (keyspace, oldest) in frozen {
            if oldest.end() <= tail {
                return false;
            }
            bytes += oldest.memtable.bytes();
            is_outgrown |= oldest.memtable.bytes() >= self.memtable_limit(keyspace);
        }
        // Writers that are stopped wait for whatever there is.
        is_outgrown || is_short && bytes >= self.memory.memtable_share / PAD_PARTS || self.is_full()
    }

    /// Fills the log up to the next segment border, so that what was turned there can be flushed.
    pub fn pad_to_border(&self) -> Result<()> {
        let log = self.log()?;
        let room = log.ensure_room(log.units_per_segment())?;
        // Close waits for every key lock, and what comes later sees the mark: no pad behind the last record.
        let held = self.stripes.lock(0);
        self.check_writable()?;
        let pad = self.sequencer.begin_to_border(log.units_per_segment());
        drop(room);
        log.write_pad(pad.lsn(), pad.end().0 - pad.lsn().0)?;
        pad.commit();
        drop(held);
        Ok(())
    }

    /// True if the device has less than `needed` bytes left. What the log holds becomes tables while
    /// there is room for both: on a device full of log nothing could be flushed.
    fn is_scarce(&self, needed: u64) -> bool {
        matches!(self.env.fs.free_bytes(&self.directory), Ok(Some(free)) if free < needed)
    }
}
