//! Recovery: what the log says, read without writing a byte.
//!
//! Place: `db` scans at open and replays what is not in tables; `verify` and `inspect` scan in
//! [`Mode::Inspect`]. `session` reads one session; this file finds the sessions and judges.
//!
//! Rules:
//! 1. A session that a later one followed is sealed: it counts up to `prior_end` in the later
//!    header, and not a unit further. If it was not closed cleanly and another boot has come since,
//!    only up to its first hole: what had been behind it was flushed before the later session
//!    wrote anything.
//! 2. The last session, same boot (the process died): every whole record counts, holes between
//!    them were never acknowledged.
//! 3. The last session, another boot (the power went): it counts up to its first hole.
//! 4. A hole below a durable mark of its session, or before the close record of a sealed session
//!    that was closed cleanly, is corruption: what was there had been durable. So is a missing segment, unless rule 3 says
//!    that it may never have been.
//! 5. Segments below the floor do not count. The floor is the highest that any good header names.
//!
//! Invariants: no file is written; no bytes make it panic; every corruption names file and offset.
//!
//! Tests: `tests/crashes.rs`, `tests/flips.rs`, `tests/sessions.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::env::{FileSystem, ReadMode};
use crate::error::{Corruption, Error, Result};
use crate::key::Lsn;

use super::entry::{EntryFault, EntryView, decode_entry};
use super::format::{self, FileHeader, HEADER_PAGE, HeaderFault, Keys, MARK_UNITS, RecordKind, Uuid};
use super::reader::{Look, Reader, SegmentFile};
use super::session::{SessionScan, scan_session};
use super::start::Prior;

/// What a scan is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// To open the store: the first corruption ends it.
    #[default]
    Recover,
    /// To look: corruptions are collected in [`Recovered::problems`].
    Inspect,
}

/// How to read a log.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions {
    /// The store's secret.
    pub secret: u64,
    /// The store's identity.
    pub uuid: Uuid,
    /// Bytes of data of one segment.
    pub segment_bytes: usize,
    /// What the scan is for.
    pub mode: Mode,
}

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
    /// Sessions, oldest first.
    pub sessions: Vec<SessionInfo>,
    /// Segment files, ascending.
    pub segments: Vec<SegmentInfo>,
    /// What is wrong ([`Mode::Inspect`] only).
    pub problems: Vec<Corruption>,
    /// Stretches of whole records that count, with the keys of their session.
    runs: Vec<(Lsn, Lsn, Keys)>,
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    files: BTreeMap<u64, SegmentFile>,
    units: u64,
}

/// The segments of one session.
struct Session {
    header: FileHeader,
    keys: Keys,
    indexes: Vec<u64>,
}

/// Reads the log in `dir`. A directory that is missing or empty is an empty log. Reads every byte
/// of the log once, plus the record heads below each mark.
///
/// Errors: what reading met; [`Error::Corruption`] (unless inspecting) with file and offset;
/// [`Error::Unsupported`] for what only a newer version understands.
pub fn scan(fs: &Arc<dyn FileSystem>, dir: &Path, options: ScanOptions) -> Result<Recovered> {
    let mut scan = Scan { options, problems: Vec::new() };
    let units = (options.segment_bytes / 8).max(1) as u64;
    let mut files = list_segments(fs, dir)?;
    let newest = files.keys().next_back().copied();
    let mut segments: BTreeMap<u64, SegmentInfo> =
        files.iter().map(|(i, f)| (*i, segment_info(*i, f))).collect();
    let headers = scan.read_headers(fs, &files, units)?;
    let floor = headers.values().filter_map(|(_, floor)| *floor).max();
    if floor.is_none() && newest.is_some() {
        let path = files.values().next().map(|f| f.path.clone()).unwrap_or_default();
        scan.problem(Error::corruption(
            path,
            format::FLOOR_SLOTS[0] as u64,
            "no header page names the log's floor",
        ))?;
    }
    let floor = floor.unwrap_or_default();
    files.retain(|index, _| *index >= floor.0 / units);
    let sessions = scan.group(&headers, &files)?;

    let mut recovered = Recovered {
        end: Lsn::ZERO,
        clean: true,
        next_segment: newest.map_or(1, |n| n + 1).max(1),
        floor,
        torn: None,
        sessions: Vec::new(),
        segments: Vec::new(),
        problems: Vec::new(),
        runs: Vec::new(),
        fs: fs.clone(),
        dir: dir.to_path_buf(),
        files: files.clone(),
        units,
    };
    if newest.is_some() && !files.contains_key(&(floor.0 / units)) {
        scan.missing(dir, floor.0 / units)?;
    }
    let mut reader = Reader::new(&**fs, &files, units);
    for (at, session) in sessions.iter().enumerate() {
        let later = sessions.get(at + 1).map(|s| &s.header);
        let same_boot = session.header.boot_id == fs.boot_id();
        let start = floor.max(session.header.session_first);
        let last_end = Lsn(session.indexes.last().map_or(0, |i| i + 1) * units);
        let limit = later.map_or(last_end, |l| l.prior_end);
        let problem = &mut |problem| scan.problem(problem);
        let mut found = scan_session(&mut reader, dir, &session.keys, start, limit, problem)?;
        match later {
            Some(later) => {
                found.end_sealed(limit, later.prior_clean, same_boot);
                // The close record itself was perhaps never synced: the process may have died there.
                let lost = found.holes.iter().find(|h| h.start.0 + MARK_UNITS != limit.0);
                if let (true, Some(hole)) = (later.prior_clean, lost) {
                    scan.problem(Error::Corruption(hole.corruption("the session was closed cleanly")))?;
                }
            }
            None => {
                found.end_last(same_boot);
                recovered.end = found.end;
                recovered.clean = found.closed;
                recovered.torn = found.torn.clone();
            }
        }
        // After a power loss the names of the last session's segments may be gone, but the first;
        // and a clean close removes what it did not use.
        let present_to = if later.is_some() {
            limit
        } else if found.closed || !same_boot {
            Lsn(found.end.0.max(start.0 + 1))
        } else {
            last_end
        };
        for index in start.0 / units..present_to.0.div_ceil(units) {
            if !files.contains_key(&index) && index != floor.0 / units {
                scan.missing(dir, index)?;
            }
        }
        scan.check_lengths(session, &found, &files, units)?;
        note_segments(&mut segments, session, &found);
        recovered.sessions.push(session_info(session, &found, same_boot));
        recovered.runs.extend(found.runs.iter().map(|run| (run.start, run.end, session.keys)));
    }
    recovered.segments = segments.into_values().collect();
    recovered.problems = scan.problems;
    Ok(recovered)
}

fn session_info(session: &Session, found: &SessionScan, same_boot: bool) -> SessionInfo {
    SessionInfo {
        first: session.header.session_first,
        end: found.end,
        clean: found.closed,
        same_boot,
        writes: found.writes(),
        marks: found.marks(),
        durable: found.durable,
        holes: found.holes.iter().filter(|h| h.start < found.end).count() as u64,
    }
}

fn segment_info(index: u64, file: &SegmentFile) -> SegmentInfo {
    SegmentInfo {
        index,
        path: file.path.clone(),
        bytes: file.bytes,
        session_first: None,
        first_record: None,
        records: 0,
    }
}

/// Fills in what the scan of a session says about its segments.
fn note_segments(segments: &mut BTreeMap<u64, SegmentInfo>, session: &Session, found: &SessionScan) {
    for index in &session.indexes {
        if let Some(info) = segments.get_mut(index) {
            info.session_first = Some(session.header.session_first);
            info.records = found.starts.get(index).map_or(0, |(_, count)| *count);
            info.first_record = found.starts.range(index..).next().map(|(_, (first, _))| *first);
        }
    }
}

fn list_segments(fs: &Arc<dyn FileSystem>, dir: &Path) -> Result<BTreeMap<u64, SegmentFile>> {
    if !fs.exists(dir)? {
        return Ok(BTreeMap::new());
    }
    let named = fs.list(dir)?.into_iter().filter(|e| !e.is_dir);
    Ok(named
        .filter_map(|e| {
            let index = format::parse_segment_name(&e.name)?;
            Some((index, SegmentFile { path: dir.join(&e.name), bytes: e.bytes }))
        })
        .collect())
}

type Headers = BTreeMap<u64, (Result<FileHeader>, Option<Lsn>)>;

struct Scan {
    options: ScanOptions,
    problems: Vec<Corruption>,
}

impl Scan {
    /// Keeps a corruption when inspecting; else, and for other errors, gives it back.
    fn problem(&mut self, problem: Error) -> Result<()> {
        match problem {
            Error::Corruption(c) if self.options.mode == Mode::Inspect => {
                self.problems.push(c);
                Ok(())
            }
            other => Err(other),
        }
    }

    /// The header of every file, or what is wrong with it, and its floor if the header is good.
    fn read_headers(
        &self,
        fs: &Arc<dyn FileSystem>,
        files: &BTreeMap<u64, SegmentFile>,
        units: u64,
    ) -> Result<Headers> {
        let mut headers = Headers::new();
        for (&index, file) in files {
            let mut page = vec![0; HEADER_PAGE.min(file.bytes as usize)];
            fs.open(&file.path, ReadMode::Buffered)?.read_exact_at(&mut page, 0)?;
            let header = self.check_header(&page, index, file, units);
            let floor = header
                .as_ref()
                .ok()
                .and_then(|h| Keys::new(self.options.secret, h.salt).decode_floor(index, &page));
            headers.insert(index, (header, floor));
        }
        Ok(headers)
    }

    fn check_header(&self, page: &[u8], index: u64, file: &SegmentFile, units: u64) -> Result<FileHeader> {
        let bad = |what: String| Err(Error::corruption(&file.path, 0, what));
        let header = match FileHeader::decode(page, self.options.secret) {
            Ok(header) => header,
            Err(HeaderFault::Bad(what)) => return bad(what.into()),
            Err(HeaderFault::Newer(version)) => {
                let why = format!("it is a log segment of version {version}");
                return Err(Error::Unsupported { path: file.path.clone(), why });
            }
        };
        if header.uuid != self.options.uuid {
            return bad("the segment belongs to another store".into());
        }
        if header.segment != index || header.segment_bytes != units * 8 {
            return bad(format!(
                "the header says segment {} of {} bytes, but it should be segment {index} of {} bytes",
                header.segment,
                header.segment_bytes,
                units * 8
            ));
        }
        if header.session_first.0 > index * units || !header.session_first.0.is_multiple_of(units) {
            return bad(format!("the header says that its session began at LSN {}", header.session_first));
        }
        if header.prior_end > header.session_first {
            return bad(format!("the header says that the session before ended at LSN {}", header.prior_end));
        }
        Ok(header)
    }

    /// The sessions of the segments from the floor on, oldest first.
    fn group(&mut self, headers: &Headers, files: &BTreeMap<u64, SegmentFile>) -> Result<Vec<Session>> {
        let mut sessions: Vec<Session> = Vec::new();
        for index in files.keys() {
            let header = match headers.get(index) {
                Some((Ok(header), _)) => *header,
                Some((Err(why), _)) => {
                    self.problem(why.clone())?;
                    continue;
                }
                None => continue,
            };
            match sessions.last_mut() {
                Some(last) if last.header.salt == header.salt => {
                    if last.header != (FileHeader { segment: last.header.segment, ..header }) {
                        let path = &files[index].path;
                        self.problem(Error::corruption(
                            path,
                            0,
                            "the header disagrees with its session's first",
                        ))?;
                    }
                    last.indexes.push(*index);
                }
                last => {
                    let wanted = last.map(|l| l.header.session_first);
                    if wanted.is_some_and(|first| header.prior_end < first) {
                        let path = &files[index].path;
                        self.problem(Error::corruption(
                            path,
                            80,
                            "it seals a session that is not the one before",
                        ))?;
                    }
                    let keys = Keys::new(self.options.secret, header.salt);
                    sessions.push(Session { header, keys, indexes: vec![*index] });
                }
            }
        }
        Ok(sessions)
    }

    /// Segment files have their full length before they get their names; only a clean close cuts
    /// one, the one in which it ends.
    fn check_lengths(
        &mut self,
        session: &Session,
        found: &SessionScan,
        files: &BTreeMap<u64, SegmentFile>,
        units: u64,
    ) -> Result<()> {
        let closed_in = found.closed.then(|| found.end.0.saturating_sub(1) / units);
        for index in &session.indexes {
            let Some(file) = files.get(index) else { continue };
            if file.bytes < HEADER_PAGE as u64 + units * 8 && closed_in != Some(*index) {
                self.problem(Error::corruption(&file.path, file.bytes, "the segment has been cut short"))?;
            }
        }
        Ok(())
    }

    fn missing(&mut self, dir: &Path, index: u64) -> Result<()> {
        let path = dir.join(format::segment_name(index));
        self.problem(Error::corruption(path, None, format!("log segment {index} is missing")))
    }
}

impl Recovered {
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
    /// elsewhere. After a power loss the log may end before what tables hold (a flush does not
    /// sync the log); an LSN must never be drawn twice all the same.
    pub fn first_segment_after(&self, newest: Lsn) -> u64 {
        self.next_segment.max(newest.0 / self.units + 1)
    }

    /// Gives every entry of every record that counts and has LSN ≥ `from` to `apply`, in the
    /// order of LSNs. The entries of one batch have one LSN.
    ///
    /// Errors: what `apply` returns; [`Error::Corruption`] if a record changed since the scan or
    /// its entries make no sense; [`Error::Unsupported`] for entries of a newer version.
    pub fn replay(&self, from: Lsn, apply: &mut dyn FnMut(Lsn, EntryView<'_>) -> Result<()>) -> Result<()> {
        let mut reader = Reader::new(&*self.fs, &self.files, self.units);
        for (start, end, keys) in &self.runs {
            if *end <= from {
                continue;
            }
            let mut at = *start;
            while at < *end {
                let record = match reader.look(keys, at.0, end.0)? {
                    Look::Whole(record) => record,
                    Look::Bad { why, .. } => {
                        let (path, offset) = reader.place(&self.dir, at);
                        return Err(Error::corruption(path, offset, why));
                    }
                };
                if record.kind == RecordKind::Write && record.lsn >= from {
                    self.replay_record(&reader, record.lsn, record.body(), apply)?;
                }
                at = record.end();
            }
        }
        Ok(())
    }

    fn replay_record(
        &self,
        reader: &Reader<'_>,
        lsn: Lsn,
        body: &[u8],
        apply: &mut dyn FnMut(Lsn, EntryView<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut at = 0;
        while at < body.len() {
            match decode_entry(body, &mut at) {
                Ok(Some(entry)) => apply(lsn, entry)?,
                Ok(None) => {}
                Err(fault) => {
                    let (path, offset) = reader.place(&self.dir, lsn);
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
            .field("sessions", &self.sessions)
            .field("segments", &self.segments)
            .field("problems", &self.problems)
            .field("runs", &self.runs.len())
            .finish_non_exhaustive()
    }
}
