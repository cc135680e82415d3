//! Turns: when a keyspace gets a new memtable, and when the log is padded to get there.
//!
//! Place: the log calls `on_border` before a segment opens, and asks before that how much of the device to leave; workers
//! call `is_pad_due` and `pad_to_border` when they find nothing to do, `manual` when a flush was asked for. What turns, and
//! whether a pad is due, `census` decides.
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
//! under a key lock. Tests: `census`, `store_tests`, tests/memory.rs, tests/graveyard.rs, tests/standing_still.rs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crossbeam_epoch as epoch;

use crate::error::Result;
use crate::key::Lsn;
use crate::log::{self, Room};

use super::census::{Border, Census, Tally};
use super::keyspace::KeyspaceState;
use super::keyspaces::KeyspaceMap;
use super::runs::gate;
use super::store::Store;
use super::superversion::Generation;

impl log::Owner for Weak<Store> {
    fn on_border(&self, border: Lsn) {
        if let Some(store) = self.upgrade() {
            store.on_border(border);
        }
    }

    fn reserved_bytes(&self) -> u64 {
        self.upgrade().map_or(0, |store| store.frozen_bytes())
    }
}

impl Store {
    /// Bytes at which a keyspace's memtable is turned.
    pub fn memtable_limit(&self, keyspace: &KeyspaceState) -> usize {
        // Asked by every write of a keyspace that is not logged: no lock.
        keyspace.memtable_limit.load(Ordering::Relaxed)
    }

    /// A version was reserved in `generation`: tells the workers, once, of a memtable that has outgrown its limit and is not
    /// logged, since no border comes for it; and of a hash that has enough to be sorted.
    #[inline]
    pub fn note_growth(&self, keyspace: &KeyspaceState, generation: &Generation) {
        if !keyspace.logged
            && generation.memtable.bytes() >= self.memtable_limit(keyspace)
            && generation.is_first_to_tell()
        {
            self.background.wake();
        }
        if generation.memtable.is_first_to_tell_of_a_drain() && self.options.two_tier.drain_threads > 0 {
            self.background.wake();
        }
    }

    /// Called by the log before the segment that begins at `border` opens: turns what the [`Census`] says.
    pub fn on_border(&self, border: Lsn) {
        let keyspaces = self.keyspaces.all();
        let segment = self.identity.segment_bytes as usize;
        let live = self.log.get().map_or(0, |log| log.live_bytes());
        let border_ahead = Border {
            at: border,
            segment,
            log_is_over: live + segment as u64 > self.options.log_bytes() as u64,
            space_is_scarce: self.is_scarce(live + 4 * segment as u64),
        };
        let turns = self.census(&keyspaces).turns_at(&border_ahead);
        let keyspaces: Vec<_> = keyspaces.values().collect();
        for place in turns {
            let keyspace = keyspaces[place];
            keyspace.current.turn(border, || keyspace.next_memtable(&self.memory));
        }
        self.measure_pressure();
        self.background.wake();
    }

    /// Bytes of what is frozen: its tables take no more.
    fn frozen_bytes(&self) -> u64 {
        let guard = epoch::pin();
        let keyspaces = self.keyspaces.all();
        let frozen = keyspaces.values().flat_map(|k| k.current.load(&guard).frozen());
        frozen.map(|generation| generation.memtable.bytes() as u64).sum()
    }

    /// True if the log is to be padded to its next border: see [`Census::wants_pad`].
    ///
    /// The tail is the one by which the caller found nothing to flush: with a later one neither of the two might see work.
    pub fn is_pad_due(&self, tail: Lsn) -> bool {
        self.census(&self.keyspaces.all()).wants_pad(tail)
    }

    fn census(&self, keyspaces: &KeyspaceMap) -> Census {
        let strain = self.strain(keyspaces);
        let guard = epoch::pin();
        let state = self.background.state.lock();
        let tally = |keyspace: &Arc<KeyspaceState>| {
            let now = keyspace.current.load(&guard);
            let active = now.active();
            let gate = gate(now.frozen(), strain.wanted(keyspace, now, &state));
            let limit = self.memtable_limit(keyspace);
            let newest = now.frozen().first().filter(|frozen| frozen.end() > self.sequencer.tail());
            Tally {
                start: active.start,
                bytes: active.memtable.bytes(),
                is_empty: active.memtable.is_empty(),
                gate: gate.map(|gate| (gate.end(), gate.memtable.bytes())),
                has_runs: keyspace.options().memory.runs() > 1 && !now.frozen().is_empty(),
                limit,
                is_logged: keyspace.logged,
                is_behind: newest.is_some_and(|frozen| frozen.memtable.bytes() >= limit),
                is_asked: state.asked.contains_key(&keyspace.id),
                fails: state.failures.of_flush(keyspace.id).is_some(),
            }
        };
        Census {
            keyspaces: keyspaces.values().map(tally).collect(),
            share: self.memory.memtable_share,
            is_short: self.memory.is_short(),
            is_stopped: self.is_full() || state.waiting_for_room > 0,
            is_flushing: !state.flushing.is_empty(),
        }
    }

    /// Fills the log up to the next segment border, so that what was turned there can be flushed.
    /// The room is a segment's.
    pub fn pad_to_border(&self, room: Room<'_>) -> Result<()> {
        let log = self.log()?;
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
    pub(super) fn is_scarce(&self, needed: u64) -> bool {
        matches!(self.env.fs.free_bytes(&self.directory), Ok(Some(free)) if free < needed)
    }
}
