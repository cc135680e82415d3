//! Room ahead of the tail: who waits for segments to open, and where.
//!
//! Place: `db` calls [`Log::ensure_room`] before it takes any lock; `writer` calls `attend` and
//! `wait_open` with an LSN in flight.
//!
//! Writers never look at the tail. Instead a record that ends beyond the `gate`'s threshold makes its
//! writer call `attend`, which wakes the opener or closes the gate. A thread whose own record went
//! beyond the threshold sees the closed gate at its next `ensure_room`: so each thread overshoots
//! by at most one small record, and the slack is there for those. Large records make a claim.
//!
//! Invariants:
//! 1. The gate is closed whenever tail + claims + slack > open_end.
//! 2. No wake-up is lost: a writer that went beyond the threshold is seen by `rethink_locked`, or sees
//!    the threshold (`gate`).
//! 3. A full device is reported here, to callers that hold nothing; each call tries once more, so
//!    writes resume by themselves.
//!
//! Tests: `tests/space.rs`, `tests/writing.rs`, `loom_tests`.

use crate::error::{Error, Result};

use super::{Log, Shared, State};

/// Room for one record. Keep it until the record's LSN is drawn, then drop it.
#[must_use = "keep it until the record's LSN is drawn"]
pub struct Room<'a> {
    log: &'a Log,
    claimed: u64,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if self.claimed > 0 {
            let shared = &self.log.shared;
            let mut state = shared.state.lock();
            state.claims -= self.claimed;
            shared.rethink_locked(&state);
            shared.progress.notify_all();
        }
    }
}

impl Log {
    /// Waits until a record of `units` units can be drawn and written without waiting for a
    /// segment. Call it before taking any lock or drawing an LSN. O(1) if there is room.
    ///
    /// Errors: [`Error::NoSpace`] if the device is full (each call tries again);
    /// [`Error::Poisoned`] after a failure that is final; [`Error::Closed`]; or why a segment
    /// could not be opened.
    #[inline]
    pub fn ensure_room(&self, units: u64) -> Result<Room<'_>> {
        if self.shared.hot.gate.is_open() && units <= self.shared.small_units {
            return Ok(Room { log: self, claimed: 0 });
        }
        self.ensure_room_slowly(units)
    }

    /// Waits until the log is open as far ahead as it should be now, or cannot be.
    pub fn wait_opened(&self) {
        let shared = &*self.shared;
        let mut state = shared.state.lock();
        while Shared::check_locked(&state).is_ok()
            && state.open_end < shared.wanted_end()
            && state.stalled.is_none()
            && !state.stop
        {
            shared.work.notify_all();
            shared.progress.wait(&mut state);
        }
    }

    #[cold]
    fn ensure_room_slowly(&self, units: u64) -> Result<Room<'_>> {
        let shared = &*self.shared;
        let mut asked_at = None;
        let mut state = shared.state.lock();
        loop {
            Shared::check_locked(&state)?;
            let need = shared.sequencer.tail().0 + state.claims + units + shared.slack;
            if need <= state.open_end {
                let claimed = if units > shared.small_units { units } else { 0 };
                state.claims += claimed;
                shared.rethink_locked(&state);
                return Ok(Room { log: self, claimed });
            }
            state.demand_end = state.demand_end.max(need);
            match asked_at {
                Some(failures) if failures != state.failures => {
                    if let Some(why) = state.stalled.clone() {
                        // Whoever still waits states its demand again.
                        state.demand_end = 0;
                        shared.progress.notify_all();
                        return Err(why);
                    }
                    asked_at = Some(state.failures);
                }
                Some(_) => {}
                None => {
                    asked_at = Some(state.failures);
                    state.retry = true;
                }
            }
            shared.work.notify_all();
            shared.progress.wait(&mut state);
        }
    }
}

impl Shared {
    /// The end of the segment after the one the tail is in: as far as the log should be open. A session that has not
    /// written anything needs no second segment: it may be one that only merges tables, on a device that is short.
    pub(super) fn wanted_end(&self) -> u64 {
        let tail = self.sequencer.tail().0;
        let ahead = if tail == self.header.session_first.0 { 1 } else { 2 };
        ((tail >> self.hot.units_shift) + ahead) << self.hot.units_shift
    }

    /// Sets gate and threshold from the state, and wakes the opener if the next segment is due. Called
    /// after every change of `open_end`, `claims`, `closed` or `poisoned`, and when a writer went
    /// beyond the threshold.
    pub(super) fn rethink_locked(&self, state: &State) {
        if state.poisoned.is_some() || state.closed {
            self.hot.gate.shut();
            return;
        }
        let gate_at = state.open_end.saturating_sub(self.slack + state.claims);
        let more_at = state.open_end.saturating_sub(self.units() + 1).max(self.header.session_first.0);
        let tail = || self.sequencer.tail_seq_cst().0;
        self.hot.gate.rethink(tail, gate_at, more_at, || {
            self.work.notify_all();
        });
    }

    /// A record ends beyond the threshold: the opener has work, or the gate must close.
    #[cold]
    pub(super) fn attend(&self) {
        self.rethink_locked(&self.state.lock());
    }

    /// Waits until the log is open up to `end`. The caller has `end - 1` in flight, and perhaps
    /// key locks: only the opener is waited for.
    pub(super) fn wait_open(&self, end: u64) -> Result<()> {
        let last = (end - 1) >> self.hot.units_shift;
        if self.table.lookup(last).is_some() {
            return Ok(());
        }
        let mut state = self.state.lock();
        loop {
            if state.open_end >= end {
                return Ok(());
            }
            if let Some(why) = &state.poisoned {
                return Err(Error::Poisoned { why: why.clone() });
            }
            if state.stop {
                return Err(Error::Closed { what: "store" });
            }
            if state.waiting_end < end {
                state.waiting_end = end;
                state.retry = true;
            }
            self.work.notify_all();
            self.progress.wait(&mut state);
        }
    }
}
