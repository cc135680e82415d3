//! The turn of a generation under every interleaving: the opener turns the keyspace and opens the next
//! segment, two writers draw across the border, a flush looks whether the old generation is quiet.
//! Superversion, sequencer, slots and segment table are the product's own; a memtable's content is a
//! cell per writer.
//!
//! Run by `cargo x loom`, with at most two preemptions. The test names what fails it.

use std::ops::Range;

use crossbeam_epoch as epoch;
use loom::sync::Arc;
use loom::thread;

use crate::commit::Sequencer;
use crate::env::LogRegion;
use crate::error::Result;
use crate::key::{Lsn, bytewise};
use crate::log::{LogSegment, SEGMENT_HEAD_BYTES, SegmentTable};
use crate::memory::MemTable;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::version::Levels;

use super::superversion::{Current, Generation, SuperVersion};

/// Units of a segment, and so the border.
const UNITS: u64 = 8;

/// A mapping that nobody reads.
struct Nothing(Box<[u64]>);

impl LogRegion for Nothing {
    fn base(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut().cast()
    }
    fn bytes(&self) -> usize {
        self.0.len() * 8
    }
    fn sync(&self, _range: Range<usize>) -> Result<()> {
        Ok(())
    }
}

fn segment(index: u64) -> std::sync::Arc<LogSegment> {
    let region = Nothing(vec![0; SEGMENT_HEAD_BYTES / 8 + UNITS as usize].into());
    std::sync::Arc::new(
        LogSegment::new(index, UNITS, std::sync::Arc::new(region)).expect("it is large enough"),
    )
}

struct Turn {
    sequencer: std::sync::Arc<Sequencer>,
    table: SegmentTable,
    current: Current,
    /// By LSN from the last one before the border: the start of the generation it went to, plus one.
    went_to: [AtomicU64; 2],
}

impl Turn {
    fn write(&self, slot: u32) {
        let write = self.sequencer.begin_in(self.sequencer.slots().by_index(slot), 1);
        let lsn = write.lsn();
        while self.table.lookup(lsn.0 / UNITS).is_none() {
            thread::yield_now();
        }
        let guard = epoch::pin();
        let generation = self.current.load(&guard).generation_of(lsn);
        assert!(generation.start <= lsn && lsn < generation.end());
        assert_eq!(generation.start.0, lsn.0 / UNITS * UNITS, "a function of the LSN alone");
        self.went_to[(lsn.0 - (UNITS - 1)) as usize].store(generation.start.0 + 1, Ordering::Release);
        write.commit();
    }

    fn open_next(&self) {
        self.current.turn(Lsn(UNITS), || MemTable::new(bytewise()));
        self.table.insert(segment(1));
    }

    /// What a flush does: takes what is frozen and quiet, and counts on it to change no more.
    fn flush(&self) {
        let tail = self.sequencer.tail();
        let guard = epoch::pin();
        let now = self.current.load(&guard);
        let Some(oldest) = now.frozen().last() else { return };
        if oldest.end() <= tail && self.sequencer.completed() >= oldest.end() {
            assert_eq!(self.went_to[0].load(Ordering::Relaxed), 1, "all that belongs there is there");
        }
    }
}

/// Fails if the segment is opened before the turn, if its number is published or loaded Relaxed, or if
/// a flush does not wait for what is complete.
#[test]
fn loom_a_writer_finds_the_generation_of_its_lsn_while_it_turns() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let table = SegmentTable::new();
        table.insert(segment(0));
        let turn = Arc::new(Turn {
            sequencer: Sequencer::new(Lsn(UNITS - 1)),
            table,
            current: Current::new(SuperVersion {
                generations: vec![Generation::new(Lsn(0), MemTable::new(bytewise()))],
                levels: std::sync::Arc::new(Levels::new(bytewise(), Vec::new())),
                flushed_to: Lsn(0),
            }),
            went_to: [AtomicU64::new(0), AtomicU64::new(0)],
        });
        let slots = [turn.sequencer.slots().claim(), turn.sequencer.slots().claim()];
        let opener = {
            let turn = turn.clone();
            thread::spawn(move || turn.open_next())
        };
        let writer = {
            let turn = turn.clone();
            thread::spawn(move || turn.write(slots[0]))
        };
        let other = {
            let turn = turn.clone();
            thread::spawn(move || turn.write(slots[1]))
        };
        turn.flush();
        for thread in [opener, writer, other] {
            thread.join().unwrap();
        }
        turn.flush();
        assert_eq!(turn.went_to.each_ref().map(|cell| cell.load(Ordering::Relaxed)), [1, UNITS + 1]);
    });
}
