//! A census of memtables: what each keyspace has in memory at one moment, and what follows for turns and pads.
//!
//! Place: `turn` takes one, asks it, and does what it says. Figures only: it locks nothing and changes nothing.
//!
//! Concurrency: a value. Tests: below; in a store, `store_tests` and those that `turn` names.

use std::cmp::Reverse;

use crate::key::Lsn;

/// While memory is short, the log is padded for a flush of the memtables' share divided by this, or more.
const PAD_PARTS: usize = 8;

/// The memtables of one keyspace.
#[derive(Clone, Copy)]
pub(super) struct Tally {
    /// First LSN of the newest.
    pub start: Lsn,
    /// Bytes of the newest.
    pub bytes: usize,
    pub is_empty: bool,
    /// Where the frozen one ends that the log is to pass before the oldest is flushed, and its bytes; none while nothing waits for a
    /// flush. Mostly it is the oldest (`runs`).
    pub gate: Option<(Lsn, usize)>,
    /// Frozen ones hold older parts of the log, and go first if it is over its bound: they are runs.
    pub has_runs: bool,
    /// Bytes at which one is turned.
    pub limit: usize,
    pub is_logged: bool,
    /// What is written goes to a frozen one yet, which has outgrown its limit: the log has not come to where it ends.
    pub is_behind: bool,
    /// Somebody waits for its flush.
    pub is_asked: bool,
    /// Its flushes fail.
    pub fails: bool,
}

/// Those of all keyspaces.
pub(super) struct Census {
    pub keyspaces: Vec<Tally>,
    /// Bytes that all of them may take.
    pub share: usize,
    pub is_short: bool,
    /// Writers wait, for memory or for space.
    pub is_stopped: bool,
    pub is_flushing: bool,
}

/// A border that the log comes to.
pub(super) struct Border {
    pub at: Lsn,
    /// Bytes of a segment.
    pub segment: usize,
    /// The log holds more than it should: what pins its oldest part has to go.
    pub log_is_over: bool,
    /// The device has hardly room for the tables of what the log holds: everything has to go there.
    pub space_is_scarce: bool,
}

impl Border {
    /// Bytes that may come until the next one: a segment is written before this border comes, and one before the next does.
    fn ahead(&self) -> usize {
        self.segment + self.segment / 2
    }
}

impl Tally {
    fn outgrows_before_the_next(&self, border: &Border) -> bool {
        self.bytes + border.ahead().min(self.limit / 2) >= self.limit
    }

    /// It has outgrown its limit and is not logged: that hardly moves the log, so no border comes by itself. Where runs rest, the
    /// one that was turned is filled until then, too.
    fn no_border_comes(&self) -> bool {
        !self.is_logged && (!self.is_empty && self.bytes >= self.limit || self.is_behind)
    }
}

impl Census {
    /// Which keyspaces turn at the border, by their place in the census: those whose memtable would outgrow its limit, that
    /// hold the oldest log beyond its bound, that are asked for, and the largest while all together crowd their share; all
    /// where space is scarce. If memory is short and nothing waits for its flush, one at least.
    pub fn turns_at(&self, border: &Border) -> Vec<usize> {
        let of = |place: &usize| &self.keyspaces[*place];
        let is_turnable = |place: &usize| !of(place).is_empty && of(place).start < border.at;
        let mut turnable: Vec<usize> = (0..self.keyspaces.len()).filter(is_turnable).collect();
        // The largest first: they make the most room.
        turnable.sort_by_key(|place| Reverse(of(place).bytes));
        let oldest = turnable.iter().map(of).filter(|k| k.is_logged).map(|k| k.start).min();
        let mut staying: usize = turnable.iter().map(|place| of(place).bytes).sum();
        let mut relieves = self.is_short && self.nothing_waits();
        turnable.retain(|place| {
            let keyspace = of(place);
            let pins = border.log_is_over
                && keyspace.is_logged
                && Some(keyspace.start) == oldest
                && !keyspace.has_runs
                || border.space_is_scarce;
            let crowds = staying + border.ahead() >= self.share / 2;
            let relieved = relieves && !keyspace.fails;
            let turns =
                keyspace.outgrows_before_the_next(border) || pins || crowds || keyspace.is_asked || relieved;
            if turns {
                relieves = false;
                staying -= keyspace.bytes;
            }
            turns
        });
        turnable
    }

    /// True if no flush can be expected of what is frozen.
    fn nothing_waits(&self) -> bool {
        self.keyspaces.iter().all(|k| k.gate.is_none() || k.fails)
    }

    /// True if padding the log to its next border lets a flush start that is worth it, or brings one nearer: nothing can
    /// be flushed at `tail` and none is. What fails to be flushed counts for neither.
    pub fn wants_pad(&self, tail: Lsn) -> bool {
        // No border helps what fails, and on a full device a pad takes the space that it waits for.
        let able: Vec<&Tally> = self.keyspaces.iter().filter(|k| !k.fails).collect();
        if self.is_flushing {
            false
        } else if able.iter().all(|k| k.gate.is_none()) {
            self.wants_turn(&able)
        } else {
            self.wants_flush(&able, tail)
        }
    }

    /// Nothing is frozen. True if a memtable that is not logged has outgrown its limit, or if memory is short: the border
    /// turns the largest.
    fn wants_turn(&self, able: &[&Tally]) -> bool {
        let is_outgrown = able.iter().any(|k| k.no_border_comes());
        let bytes: usize = able.iter().map(|k| k.bytes).sum();
        // Else it is readers who hold the memory, and a border helps nobody.
        is_outgrown || self.is_short && bytes >= self.share / 4
    }

    /// True if what is frozen ends beyond the tail, and it holds much and memory is short, or has outgrown its limit, or
    /// a memtable has that is not logged, or writers wait.
    fn wants_flush(&self, able: &[&Tally], tail: Lsn) -> bool {
        let frozen = || able.iter().filter_map(|k| Some((k.gate?, k.limit)));
        if frozen().any(|((end, _), _)| end <= tail) {
            return false;
        }
        let is_outgrown =
            frozen().any(|((_, bytes), limit)| bytes >= limit) || able.iter().any(|k| k.no_border_comes());
        let bytes: usize = frozen().map(|((_, bytes), _)| bytes).sum();
        // Writers that are stopped wait for whatever there is.
        is_outgrown || self.is_short && bytes >= self.share / PAD_PARTS || self.is_stopped
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SHARE: usize = 1 << 20;
    const SEGMENT: usize = 64 << 10;
    const BORDER: Border =
        Border { at: Lsn(1000), segment: SEGMENT, log_is_over: false, space_is_scarce: false };

    fn tally(start: u64, bytes: usize) -> Tally {
        Tally {
            start: Lsn(start),
            bytes,
            is_empty: bytes == 0,
            gate: None,
            has_runs: false,
            limit: SHARE / 2,
            is_logged: true,
            is_behind: false,
            is_asked: false,
            fails: false,
        }
    }

    fn census(keyspaces: &[Tally]) -> Census {
        let keyspaces = keyspaces.to_vec();
        Census { keyspaces, share: SHARE, is_short: false, is_stopped: false, is_flushing: false }
    }

    #[test]
    fn only_what_would_outgrow_its_limit_turns_at_a_border_of_a_store_at_ease() {
        let full = Tally { limit: 30_000, ..tally(5, 20_000) };
        assert_eq!(census(&[tally(1, 20_000), full]).turns_at(&BORDER), [1]);
        // Nothing turns that is empty, or begins at the border or behind.
        assert!(
            census(&[Tally { limit: 0, ..tally(5, 0) }, Tally { limit: 0, ..tally(1000, 9) }])
                .turns_at(&BORDER)
                .is_empty()
        );
    }

    #[test]
    fn the_largest_turn_until_the_rest_leaves_half_of_the_share() {
        let turns = census(&[tally(1, 100_000), tally(2, 400_000), tally(3, 200_000)]).turns_at(&BORDER);
        assert_eq!(turns, [1], "300,000 and what comes fit into a half");
        assert_eq!(
            census(&[tally(1, 300_000), tally(2, 400_000), tally(3, 310_000)]).turns_at(&BORDER),
            [1, 2]
        );
    }

    #[test]
    fn a_log_beyond_its_bound_turns_what_holds_its_oldest_part() {
        let border = Border { log_is_over: true, ..BORDER };
        assert_eq!(census(&[tally(7, 9), tally(3, 5), tally(4, 6)]).turns_at(&border), [1]);
        let border = Border { space_is_scarce: true, ..BORDER };
        assert_eq!(census(&[tally(7, 9), tally(3, 5), tally(4, 6)]).turns_at(&border), [0, 2, 1], "all");
    }

    /// Regression: a keyspace that is not logged was turned for the log's sake, and stood before what did hold it.
    #[test]
    fn what_is_not_logged_pins_no_log() {
        let border = Border { log_is_over: true, ..BORDER };
        let unlogged = Tally { is_logged: false, ..tally(3, 5) };
        assert_eq!(census(&[tally(7, 9), unlogged, tally(4, 6)]).turns_at(&border), [2]);
        assert!(census(&[unlogged]).turns_at(&border).is_empty());
    }

    #[test]
    fn short_memory_turns_the_largest_that_can_be_flushed_unless_a_flush_is_to_come() {
        let fails = Tally { fails: true, gate: Some((Lsn(9), 1)), ..tally(1, 90) };
        let mut short = census(&[fails, tally(2, 50), tally(3, 60)]);
        assert!(short.turns_at(&BORDER).is_empty());
        short.is_short = true;
        assert_eq!(short.turns_at(&BORDER), [2]);
        short.keyspaces[1].gate = Some((Lsn(9), 1));
        assert!(short.turns_at(&BORDER).is_empty());
    }

    #[test]
    fn the_log_is_padded_for_what_is_frozen_beyond_the_tail_and_worth_it() {
        let frozen = |bytes| Tally { gate: Some((Lsn(900), bytes)), ..tally(900, 0) };
        let tail = Lsn(500);
        let mut short = census(&[frozen(SHARE / 8), tally(1, 10)]);
        assert!(!short.wants_pad(tail));
        short.is_short = true;
        assert!(short.wants_pad(tail));
        assert!(!short.wants_pad(Lsn(900)), "it can be flushed");
        short.is_flushing = true;
        assert!(!short.wants_pad(tail));
        assert!(!Census { is_short: true, ..census(&[frozen(SHARE / 8 - 1)]) }.wants_pad(tail));
        assert!(Census { is_stopped: true, ..census(&[frozen(1)]) }.wants_pad(tail));
        assert!(census(&[frozen(SHARE / 2)]).wants_pad(tail), "it has outgrown its limit");
        let fails = Tally { fails: true, ..frozen(SHARE / 2) };
        assert!(!Census { is_stopped: true, is_short: true, ..census(&[fails]) }.wants_pad(tail));
    }

    #[test]
    fn the_log_is_padded_to_turn_what_no_border_comes_for_by_itself() {
        let unlogged = |bytes| Tally { is_logged: false, ..tally(1, bytes) };
        assert!(census(&[unlogged(SHARE / 2)]).wants_pad(Lsn(1)));
        assert!(!census(&[unlogged(SHARE / 2 - 1), tally(1, SHARE / 2)]).wants_pad(Lsn(1)));
        let empty = Tally { is_empty: true, ..unlogged(SHARE / 2) };
        assert!(!census(&[empty]).wants_pad(Lsn(1)), "it takes as much again right after it is turned");
        let short = |bytes| Census { is_short: true, ..census(&[tally(1, bytes)]) };
        assert!(short(SHARE / 4).wants_pad(Lsn(1)));
        assert!(!short(SHARE / 4 - 1).wants_pad(Lsn(1)), "readers hold the memory");
        let frozen = Tally { gate: Some((Lsn(900), 1)), ..tally(900, 0) };
        assert!(census(&[frozen, unlogged(SHARE / 2)]).wants_pad(Lsn(1)), "whatever else waits");
        assert!(!census(&[frozen, unlogged(SHARE / 2)]).wants_pad(Lsn(900)), "a flush comes first");
        let behind = Tally { is_behind: true, ..unlogged(0) };
        assert!(
            census(&[behind]).wants_pad(Lsn(1)),
            "a run that rests is written to until the log has passed it"
        );
        assert!(
            !census(&[Tally { is_logged: true, ..behind }]).wants_pad(Lsn(1)),
            "the log comes there by itself"
        );
    }
}
