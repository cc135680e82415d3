//! What a scan found: sessions, segments, holes, and the records to be replayed.
//!
//! Place: made by `recover`; `db` replays it and hands its [`Prior`] to the next session; what
//! it says of the session before is in `db`'s `RecoveryReport`.
//!
//! Invariants:
//! 1. `replay` gives exactly the records in `pieces`, checked once more as they are read.
//! 2. Nothing is written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::encoding::Decoder;
use crate::env::FileSystem;
use crate::error::{Corruption, Error, Result};
use crate::key::Lsn;

use super::entry::{Entry, EntryFault, decode_entry};
use super::format::{Keys, RecordKind};
use super::geometry::Geometry;
use super::reader::{Look, Reader, SegmentFile};
use super::start::Prior;

/// A stretch of log without whole records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Its first LSN.
    pub start: Lsn,
    /// The next whole record, or where the log ends.
    pub end: Lsn,
    /// The file in which it starts.
    pub path: PathBuf,
    /// Byte offset of its start in that file.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}

impl Hole {
    pub(super) fn corruption(&self, told_by: &str) -> Corruption {
        Corruption {
            path: self.path.clone(),
            offset: Some(self.offset),
            what: format!("{}, at LSN {}, though {told_by}", self.what, self.start),
        }
    }

    /// The same, of a record that was whole once.
    pub(super) fn damage(&self, byte: u64) -> Corruption {
        let what = format!(
            "{}, at LSN {}; it was written whole, and byte {byte} of it has changed since",
            self.what, self.start
        );
        Corruption { path: self.path.clone(), offset: Some(self.offset), what }
    }
}

/// One segment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its number.
    pub index: u64,
    /// The file.
    pub path: PathBuf,
    /// Bytes of the file.
    pub bytes: u64,
    /// The first LSN of the session it belongs to; `None` if below the floor or unreadable.
    pub session_first: Option<Lsn>,
    /// The first record that starts in it or after it, if one does.
    pub first_record: Option<Lsn>,
    /// Records that start in it.
    pub records: u64,
    /// It was read for records: it counts, and it is known to which session it belongs.
    pub read: bool,
}

/// One session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its first LSN.
    pub first: Lsn,
    /// Where it was, or is now, cut.
    pub end: Lsn,
    /// True if its last record is that of a clean close.
    pub clean: bool,
    /// True if it ran in the present boot.
    pub same_boot: bool,
    /// Write records that count.
    pub writes: u64,
    /// Durable marks that count.
    pub marks: u64,
    /// Everything below had been durable, as its last mark says.
    pub durable: Lsn,
    /// Holes below the end.
    pub holes: u64,
}

/// A log as it was found.
pub struct Recovered {
    /// Where the last session is cut; 0 if there is no log.
    pub end: Lsn,
    /// True if the last session was closed cleanly, or there is no log.
    pub clean: bool,
    /// The first segment of which there is no file. Never 0. The next session starts there or
    /// later: see [`Recovered::first_segment_after`].
    pub next_segment: u64,
    /// Nothing below is needed.
    pub floor: Lsn,
    /// What was cut off at the end: the first hole of the last session, if anything was there.
    pub torn: Option<Hole>,
    /// Whole writes behind the cut. A power loss leaves some, if they were never synced.
    pub dropped_writes: u64,
    /// Bytes of whole records behind the cut.
    pub dropped_bytes: u64,
    /// Sessions, oldest first.
    pub sessions: Vec<SessionInfo>,
    /// Segment files, ascending.
    pub segments: Vec<SegmentInfo>,
    /// What is wrong (`Mode::Inspect` only).
    pub problems: Vec<Corruption>,
    /// Stretches of whole records that count, none of them long, with the keys of their session.
    pub(super) pieces: Vec<(Lsn, Lsn, Keys)>,
    /// A sync of the last session failed: of what it wrote a later sync tells nothing.
    pub(super) is_doubted: bool,
    /// A segment of the last session that has a file, and the session's keys.
    pub(super) last: Option<(u64, Keys)>,
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) dir: PathBuf,
    pub(super) files: BTreeMap<u64, SegmentFile>,
    pub(super) geometry: Geometry,
}

impl Recovered {
    /// A log of these files in which no session was found yet.
    pub(super) fn empty(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        files: BTreeMap<u64, SegmentFile>,
        geometry: Geometry,
        floor: Lsn,
        next_segment: u64,
    ) -> Recovered {
        Recovered {
            end: Lsn::ZERO,
            clean: true,
            next_segment,
            floor,
            torn: None,
            dropped_writes: 0,
            dropped_bytes: 0,
            sessions: Vec::new(),
            segments: Vec::new(),
            problems: Vec::new(),
            pieces: Vec::new(),
            is_doubted: false,
            last: None,
            fs,
            dir: dir.to_path_buf(),
            files,
            geometry,
        }
    }

    /// What the next session must know ([`super::LogOptions::prior`]).
    pub fn prior(&self) -> Prior {
        Prior {
            end: self.end,
            clean: self.clean,
            floor: self.floor,
            first_records: self.segments.iter().filter_map(|s| Some((s.index, s.first_record?))).collect(),
        }
    }

    /// The segment that the next session may start with, if versions up to `newest` are known from
    /// elsewhere. A flush syncs the log first, but what a damaged or foreign log says must not
    /// matter here: an LSN is never drawn twice.
    pub fn first_segment_after(&self, newest: Lsn) -> u64 {
        self.next_segment.max(self.geometry.segment_of(newest) + 1)
    }

    /// Gives every entry of every record that counts and has LSN ≥ `from` to `apply`, in the
    /// order of LSNs. The entries of one batch have one LSN.
    ///
    /// Errors: as [`Replayer::replay`].
    pub fn replay(&self, from: Lsn, apply: &mut dyn FnMut(Lsn, Entry<'_>) -> Result<()>) -> Result<()> {
        let mut replayer = self.replayer();
        (0..self.pieces.len()).try_for_each(|piece| replayer.replay(piece, from, &mut *apply))
    }

    /// Replays piece by piece.
    pub fn replayer(&self) -> Replayer<'_> {
        Replayer { recovered: self, reader: Reader::new(&*self.fs, &self.files, self.geometry) }
    }

    /// Pieces to be replayed.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Where a piece begins, or the log ends if there are no more: between two records.
    pub fn piece_start(&self, piece: usize) -> Lsn {
        self.pieces.get(piece).map_or(self.end, |(start, ..)| *start)
    }
}

/// Reads pieces of a log that was scanned.
pub struct Replayer<'a> {
    recovered: &'a Recovered,
    reader: Reader<'a>,
}

impl Replayer<'_> {
    /// Gives every entry of a piece's records with LSN ≥ `from` to `apply`, in the order of LSNs.
    ///
    /// Errors: what `apply` returns; [`Error::Corruption`] if a record changed since the scan or
    /// its entries make no sense; [`Error::Unsupported`] for entries of a newer version.
    pub fn replay(
        &mut self,
        piece: usize,
        from: Lsn,
        mut apply: impl FnMut(Lsn, Entry<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some((start, end, keys)) = self.recovered.pieces.get(piece) else { return Ok(()) };
        if *end <= from {
            return Ok(());
        }
        let mut at = *start;
        while at < *end {
            let record = match self.reader.look(keys, at.0, end.0)? {
                Look::Whole(record) => record,
                Look::Bad { why, .. } => {
                    let (path, offset) = self.reader.place(&self.recovered.dir, at);
                    return Err(Error::corruption(path, offset, why));
                }
            };
            if record.kind == RecordKind::Write && record.lsn >= from {
                self.replay_record(record.lsn, record.body(), &mut apply)?;
            }
            at = record.end();
        }
        Ok(())
    }

    fn replay_record(
        &self,
        lsn: Lsn,
        body: &[u8],
        apply: &mut impl FnMut(Lsn, Entry<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut body = Decoder::new(body);
        while !body.is_empty() {
            match decode_entry(&mut body) {
                Ok(Some(entry)) => apply(lsn, entry)?,
                Ok(None) => {}
                Err(fault) => {
                    let (path, offset) = self.reader.place(&self.recovered.dir, lsn);
                    return Err(match fault {
                        EntryFault::Bad(what) => Error::corruption(path, offset, what),
                        EntryFault::Newer => Error::Unsupported {
                            path,
                            why: format!("the record at byte {offset} has entries of a newer kind"),
                        },
                    });
                }
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Recovered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recovered")
            .field("end", &self.end)
            .field("clean", &self.clean)
            .field("next_segment", &self.next_segment)
            .field("floor", &self.floor)
            .field("torn", &self.torn)
            .field("dropped_writes", &self.dropped_writes)
            .field("sessions", &self.sessions)
            .field("segments", &self.segments)
            .field("problems", &self.problems)
            .field("pieces", &self.pieces.len())
            .finish_non_exhaustive()
    }
}
