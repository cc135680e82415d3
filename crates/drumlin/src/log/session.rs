//! Reading one session: its runs of whole records, the holes between them, its marks.
//!
//! Place: called by `recover` for each session, in order.
//!
//! Invariants:
//! 1. Runs and holes alternate and cover `[start, end)`.
//! 2. Every mark that is read is checked: no hole below it, and count and digest of its range,
//!    as far as the range is still there.
//! 3. The session's own marks judge it, also those behind a hole: they were written after the sync
//!    that made them true, so they are true even if what lies before them is gone.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Error, Result};
use crate::key::Lsn;

use super::format::{Keys, Mark, RecordKind, Word};
use super::reader::{Look, Reader, Record};
use super::recovered::Hole;

/// A stretch of whole records.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) start: Lsn,
    pub(super) end: Lsn,
    writes: u64,
    marks: u64,
}

/// What a session holds.
pub(super) struct SessionScan {
    pub(super) runs: Vec<Run>,
    /// Holes followed by a whole record, or, in a sealed session, by its end.
    pub(super) holes: Vec<Hole>,
    /// What comes after the last whole record, and whether a header says that one was to be there.
    tail: Option<(Hole, bool)>,
    /// Where the session is cut.
    pub(super) end: Lsn,
    /// The last record is that of a clean close.
    pub(super) closed: bool,
    /// The highest LSN that a mark calls durable.
    pub(super) durable: Lsn,
    /// What was cut off.
    pub(super) torn: Option<Hole>,
    /// Writes in whole records behind the cut, and the bytes of those records.
    pub(super) dropped: (u64, u64),
    /// Per segment in which records start: the first of them, and how many.
    pub(super) starts: BTreeMap<u64, (Lsn, u64)>,
    /// Starts of records, about so many bytes of log from one to the next.
    cuts: Vec<Lsn>,
}

/// Log that is replayed at once, in bytes, or a segment if that is less.
const PIECE_BYTES: u64 = 1 << 20;

/// Receives corruptions; an error from it ends the scan.
pub(super) type OnProblem<'a> = &'a mut dyn FnMut(Error) -> Result<()>;

struct Scanner<'r, 'f, 'k> {
    reader: &'r mut Reader<'f>,
    dir: &'r Path,
    keys: &'k Keys,
    start: Lsn,
    found: SessionScan,
    /// The first record of the segment that is being read, and how many so far.
    segment: Option<(Lsn, u64)>,
    /// Records below are of that segment and of the last piece.
    same_to: Lsn,
}

/// Reads the session's records in `[start, limit)`; `start` is where one starts.
pub(super) fn scan_session(
    reader: &mut Reader<'_>,
    dir: &Path,
    keys: &Keys,
    start: Lsn,
    limit: Lsn,
    problem: OnProblem<'_>,
) -> Result<SessionScan> {
    let found = SessionScan {
        runs: Vec::new(),
        holes: Vec::new(),
        tail: None,
        end: start,
        closed: false,
        durable: Lsn::ZERO,
        torn: None,
        dropped: (0, 0),
        starts: BTreeMap::new(),
        cuts: Vec::new(),
    };
    let mut scanner = Scanner { reader, dir, keys, start, found, segment: None, same_to: Lsn::ZERO };
    scanner.run(limit, problem)?;
    scanner.end_segment();
    Ok(scanner.found)
}

impl Scanner<'_, '_, '_> {
    fn run(&mut self, limit: Lsn, problem: OnProblem<'_>) -> Result<()> {
        let mut run = Run { start: self.start, end: self.start, writes: 0, marks: 0 };
        while run.end < limit {
            match self.reader.look(self.keys, run.end.0, limit.0)? {
                Look::Whole(record) => self.take(&record, &mut run, problem)?,
                Look::Bad { why, begun } => {
                    let at = run.end;
                    if run.start < run.end {
                        self.found.runs.push(run);
                    }
                    let next = self.reader.find_record(self.keys, at.0 + 1, limit.0)?;
                    let (path, offset) = self.reader.place(self.dir, at);
                    let end = Lsn(next.unwrap_or(limit.0));
                    let hole = Hole { start: at, end, path, offset, what: why.into() };
                    if next.is_none() {
                        self.found.tail = Some((hole, begun));
                        return Ok(());
                    }
                    self.found.closed = false;
                    self.found.holes.push(hole);
                    run = Run { start: end, end, writes: 0, marks: 0 };
                }
            }
        }
        if run.start < run.end {
            self.found.runs.push(run);
        }
        Ok(())
    }

    fn take(&mut self, record: &Record, run: &mut Run, problem: OnProblem<'_>) -> Result<()> {
        if record.lsn >= self.same_to {
            self.begin_piece(record.lsn);
        }
        if let Some((_, count)) = &mut self.segment {
            *count += 1;
        }
        run.end = record.end();
        self.found.closed = record.kind == RecordKind::Close;
        match record.kind {
            RecordKind::Write => run.writes += 1,
            RecordKind::Pad => {}
            RecordKind::Mark | RecordKind::Close => {
                run.marks += 1;
                self.check_mark(record, problem)?;
            }
        }
        Ok(())
    }

    /// A record is the first of a piece, perhaps of a segment.
    fn begin_piece(&mut self, lsn: Lsn) {
        let geometry = self.reader.geometry();
        let border = geometry.first_lsn(geometry.segment_of(lsn));
        if self.segment.is_none_or(|(first, _)| first < border) {
            self.end_segment();
            self.segment = Some((lsn, 0));
        }
        let units = geometry.units().min(PIECE_BYTES / Lsn::UNIT_BYTES);
        self.same_to = Lsn((lsn.0 / units + 1) * units);
        self.found.cuts.push(lsn);
    }

    fn end_segment(&mut self) {
        if let Some((first, count)) = self.segment.take() {
            self.found.starts.insert(self.reader.geometry().segment_of(first), (first, count));
        }
    }

    fn check_mark(&mut self, record: &Record, problem: OnProblem<'_>) -> Result<()> {
        let at = record.lsn;
        let mark = Mark::decode(record.body()).filter(|m| m.from <= m.complete_to && m.complete_to <= at);
        let Some(mark) = mark else {
            return problem(self.corruption(at, format!("the mark at LSN {at} makes no sense")));
        };
        let new =
            self.found.holes.iter().filter(|h| h.start < mark.complete_to && h.start >= self.found.durable);
        let holes: Vec<_> =
            new.map(|h| h.corruption(&format!("the mark at LSN {at} says it was durable"))).collect();
        for hole in holes.iter() {
            problem(Error::Corruption(hole.clone()))?;
        }
        if holes.is_empty()
            && mark.from >= self.start
            && self.digest(mark.from, mark.complete_to)? != Some(mark)
        {
            let (from, to) = (mark.from, mark.complete_to);
            let what = format!(
                "the records from LSN {from} to {to} are not those that the mark at LSN {at} counted"
            );
            problem(self.corruption(from, what))?;
        }
        self.found.durable = self.found.durable.max(mark.complete_to);
        Ok(())
    }

    /// The mark that the records in `[from, to)` should have, if both are ends of records.
    fn digest(&mut self, from: Lsn, to: Lsn) -> Result<Option<Mark>> {
        let mut mark = Mark { from, complete_to: to, count: 0, digest: 0 };
        let mut at = from.0;
        while at < to.0 {
            let Some(raw) = self.reader.unit(at)? else { return Ok(None) };
            let Some((word, _)) = Word::decode(raw, self.keys, at) else { return Ok(None) };
            let checksum = if word.has_checksum() { self.reader.unit(at + 1)? } else { Some(0) };
            let Some(checksum) = checksum else { return Ok(None) };
            mark.digest = self.keys.digest(mark.digest, raw, checksum);
            mark.count += 1;
            at += word.units();
        }
        Ok((at == to.0).then_some(mark))
    }

    fn corruption(&self, at: Lsn, what: String) -> Error {
        let (path, offset) = self.reader.place(self.dir, at);
        Error::corruption(path, offset, what)
    }
}

impl SessionScan {
    /// Cuts the last session: after a crash of the process (`same_boot`) behind its last whole
    /// record, after a power loss at its first hole.
    pub(super) fn end_last(&mut self, same_boot: bool) {
        if let (false, Some(first)) = (same_boot, self.holes.first()) {
            let cut = first.start;
            self.torn = Some(first.clone());
            for run in self.runs.iter().filter(|run| run.end > cut) {
                self.dropped.0 += run.writes;
                self.dropped.1 += (run.end.0 - run.start.0) * Lsn::UNIT_BYTES;
            }
            self.runs.retain(|run| run.end <= cut);
            self.closed = false;
        } else if let Some((hole, true)) = &self.tail {
            self.torn = Some(hole.clone());
        }
        self.end = self.runs.last().map_or(self.end, |run| run.end);
    }

    /// The holes of the last session at which a damaged record may pass for one that was never
    /// finished: after a power loss only the first matters.
    pub(super) fn suspects(&self, same_boot: bool) -> impl Iterator<Item = &Hole> {
        let count = if same_boot { usize::MAX } else { 1 };
        self.holes.iter().chain(self.tail.iter().map(|(hole, _)| hole)).take(count)
    }

    /// What comes after the last whole record, if anything, and whether a header says that one was to be there.
    pub(super) fn tail(&self) -> Option<(&Hole, bool)> {
        self.tail.as_ref().map(|(hole, begun)| (hole, *begun))
    }

    /// The first hole below `reaches`, in a session whose files go up to `last_end`. What comes after
    /// the last record is none if more files should follow.
    pub(super) fn hole_below(&self, reaches: Lsn, last_end: Lsn) -> Option<&Hole> {
        let tail = self.tail.iter().map(|(hole, _)| hole).filter(|_| reaches <= last_end);
        self.holes.iter().chain(tail).find(|hole| hole.start < reaches)
    }

    /// Cuts a session where the later one says; and at its first hole, if it was not closed
    /// cleanly and the power has gone since: then either all of it is flushed, or the later
    /// session had not begun to write.
    pub(super) fn end_sealed(&mut self, limit: Lsn, clean: bool, same_boot: bool) {
        self.end = self.end.max(limit);
        if let Some((hole, _)) = self.tail.take() {
            self.holes.push(hole);
        }
        if let (false, false, Some(first)) = (clean, same_boot, self.holes.first()) {
            self.end = first.start;
            self.runs.retain(|run| run.end <= first.start);
        }
    }

    /// The runs that count, cut into pieces that can be replayed by themselves.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (Lsn, Lsn)> {
        self.runs.iter().flat_map(|run| {
            let from = self.cuts.partition_point(|cut| *cut <= run.start);
            let to = self.cuts.partition_point(|cut| *cut < run.end);
            let starts = std::iter::once(run.start).chain(self.cuts[from..to].iter().copied());
            let ends = self.cuts[from..to].iter().copied().chain([run.end]);
            starts.zip(ends)
        })
    }

    /// Write records that count.
    pub(super) fn writes(&self) -> u64 {
        self.runs.iter().map(|run| run.writes).sum()
    }

    /// Marks that count.
    pub(super) fn marks(&self) -> u64 {
        self.runs.iter().map(|run| run.marks).sum()
    }
}
