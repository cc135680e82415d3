//! Recovery: what the log says, read without writing a byte.
//!
//! Place: `db` scans at open and replays what is not in tables; its `verify` scans in
//! [`Mode::Inspect`]. `session` reads one session; this file finds the sessions and judges.
//!
//! Rules:
//! 1. A session that a later one followed is sealed: it counts up to `prior_end` in the later
//!    header, and not a unit further. If the header does not call it clean and another boot has come since,
//!    only up to its first hole: what had been behind it was flushed before the later session
//!    wrote anything.
//! 2. The last session, same boot (the process died): every whole record counts, holes between
//!    them were never acknowledged.
//! 3. The last session, another boot (the power went): it counts up to its first hole.
//! 4. A hole below a durable mark of its session, or before the close record of a sealed session
//!    that the later header calls clean, is corruption: what was there had been durable. So is a missing segment, unless rule 3 says
//!    that it may never have been.
//!    So is a record that was whole once and has one byte changed (`damage`), and
//!    a hole below the LSN that the log had reached, as the manifest knows, and a log that ends
//!    before it: then the files of its end are gone, or all of them.
//! 5. A session of which a sync failed says so in a header, in the system's cache: what it wrote may be there and yet never
//!    become durable. Its records count; but nobody may build on them where they are (`at_rest`).
//! 6. Segments below the floor do not count. The floor is the highest that any good header names.
//!
//! Invariants: no file is written; no bytes make it panic; every corruption names file and offset.
//!
//! Tests: `tests/crashes.rs`, `tests/flips.rs`, `tests/sessions.rs`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::env::{FileSystem, ReadMode};
use crate::error::{Corruption, Error, Result};
use crate::key::Lsn;

use super::damage::{After, changed_byte};
use super::format::{self, FileHeader, HEADER_PAGE, HeaderFault, Keys, MARK_UNITS, Uuid};
use super::geometry::Geometry;
use super::reader::{Reader, SegmentFile};
use super::recovered::{Recovered, SegmentInfo, SessionInfo};
use super::session::{SessionScan, scan_session};

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
    /// The log had been durable up to here, says the manifest.
    pub reaches: Lsn,
    /// What the scan is for.
    pub mode: Mode,
}

/// The segments of one session.
struct Session {
    header: FileHeader,
    keys: Keys,
    indexes: Vec<u64>,
    /// One of its headers says that a sync failed.
    is_doubted: bool,
}

/// Reads the log in `dir`. A directory that is missing or empty is an empty log. Reads every byte
/// of the log once, plus the record heads below each mark.
///
/// Errors: what reading met; [`Error::Corruption`] (unless inspecting) with file and offset;
/// [`Error::Unsupported`] for what only a newer version understands.
pub fn scan(fs: &Arc<dyn FileSystem>, dir: &Path, options: ScanOptions) -> Result<Recovered> {
    let geometry = Geometry::new(options.segment_bytes);
    let mut scan = Scan { fs, dir, options, geometry, reaches: options.reaches, problems: Vec::new() };
    let mut files = scan.list_segments()?;
    let newest = files.keys().next_back().copied();
    let mut segments: Segments = files.iter().map(|(i, f)| (*i, segment_info(*i, f))).collect();
    let headers = scan.read_headers(&files)?;
    let floor = scan.floor(&headers, &files)?;
    let floor_segment = geometry.segment_of(floor);
    files.retain(|index, _| *index >= floor_segment);
    let sessions = scan.group(&headers, &files)?;
    if newest.is_some() && !files.contains_key(&floor_segment) {
        scan.missing(floor_segment)?;
    }
    // Without the last header it is not known where the log ends.
    if newest.is_some_and(|newest| headers.get(&newest).is_none_or(|head| head.header.is_err())) {
        scan.reaches = Lsn::ZERO;
    }

    let next_segment = newest.map_or(1, |n| n + 1).max(1);
    let mut recovered = Recovered::empty(fs.clone(), dir, files.clone(), geometry, floor, next_segment);
    let mut reader = Reader::new(&**fs, &files, geometry);
    for (at, session) in sessions.iter().enumerate() {
        let later = sessions.get(at + 1).map(|s| &s.header);
        let same_boot = session.header.boot_id == fs.boot_id();
        let start = floor.max(session.header.session_first);
        let last_end = geometry.first_lsn(session.indexes.last().map_or(0, |i| i + 1));
        let limit = later.map_or(last_end, |l| l.prior_end);
        let problem = &mut |problem| scan.problem(problem);
        let mut found = scan_session(&mut reader, dir, &session.keys, start, limit, problem)?;
        match later {
            Some(later) => scan.judge_sealed(&mut found, later, same_boot)?,
            None => {
                let after = After { same_boot, limit: last_end };
                scan.judge_last(&mut found, &mut reader, session, &after)?;
                recovered.end = found.end;
                recovered.clean = found.closed;
                recovered.torn = found.torn.clone();
                recovered.is_doubted = session.is_doubted;
                recovered.last = session.indexes.last().map(|index| (*index, session.keys));
                (recovered.dropped_writes, recovered.dropped_bytes) = found.dropped;
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
        let first_segment = geometry.segment_of(start);
        let is_lost = |index: &u64| !files.contains_key(index) && *index != floor_segment;
        let mut lost = (first_segment..geometry.segment_from(present_to)).filter(is_lost);
        lost.try_for_each(|index| scan.missing(index))?;
        scan.check_lengths(session, &found, &files)?;
        note_segments(&mut segments, session, &found);
        let range = first_segment..geometry.segment_from(limit).max(first_segment);
        segments.range_mut(range).for_each(|(_, info)| info.read = true);
        recovered.sessions.push(session_info(session, &found, same_boot));
        recovered.pieces.extend(found.pieces().map(|(start, end)| (start, end, session.keys)));
    }
    scan.check_reaches(recovered.end, newest)?;
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
        read: false,
    }
}

/// Fills in what the scan of a session says about its segments.
fn note_segments(segments: &mut Segments, session: &Session, found: &SessionScan) {
    for index in &session.indexes {
        if let Some(info) = segments.get_mut(index) {
            info.session_first = Some(session.header.session_first);
            info.records = found.starts.get(index).map_or(0, |(_, count)| *count);
            info.first_record = found.starts.range(index..).next().map(|(_, (first, _))| *first);
        }
    }
}

/// What a file's header page says.
struct Head {
    header: Result<FileHeader>,
    floor: Option<Lsn>,
    is_doubted: bool,
}

type Headers = BTreeMap<u64, Head>;

/// What is told of each segment, by number.
type Segments = BTreeMap<u64, SegmentInfo>;

/// The scan of one log: what it reads, and what it has met.
struct Scan<'a> {
    fs: &'a Arc<dyn FileSystem>,
    dir: &'a Path,
    options: ScanOptions,
    geometry: Geometry,
    /// The log must reach this far; ZERO once it is told that it does not, or cannot be known.
    reaches: Lsn,
    problems: Vec<Corruption>,
}

impl Scan<'_> {
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

    fn list_segments(&mut self) -> Result<BTreeMap<u64, SegmentFile>> {
        let (fs, dir) = (self.fs, self.dir);
        let mut files = BTreeMap::new();
        if !fs.exists(dir)? {
            return Ok(files);
        }
        for entry in fs.list(dir)?.into_iter().filter(|e| !e.is_dir) {
            let Some(index) = format::parse_segment_name(&entry.name) else { continue };
            let path = dir.join(&entry.name);
            if index.checked_mul(self.geometry.units()).is_none_or(|first| first >= Lsn::END.0) {
                self.problem(Error::corruption(path, None, format!("a log cannot have segment {index}")))?;
                continue;
            }
            files.insert(index, SegmentFile { path, bytes: entry.bytes });
        }
        Ok(files)
    }

    /// The header of every file, or what is wrong with it, and its floor if the header is good.
    fn read_headers(&self, files: &BTreeMap<u64, SegmentFile>) -> Result<Headers> {
        let mut headers = Headers::new();
        for (&index, file) in files {
            let mut page = vec![0; HEADER_PAGE.min(file.bytes as usize)];
            self.fs.open(&file.path, ReadMode::Buffered)?.read_exact_at(&mut page, 0)?;
            let header = self.check_header(&page, index, file);
            let keys = header.as_ref().ok().map(|header| Keys::new(self.options.secret, header.salt));
            let floor = keys.and_then(|keys| keys.decode_floor(index, &page));
            let is_doubted = keys.is_some_and(|keys| keys.decode_doubt(index, &page));
            headers.insert(index, Head { header, floor, is_doubted });
        }
        Ok(headers)
    }

    fn check_header(&self, page: &[u8], index: u64, file: &SegmentFile) -> Result<FileHeader> {
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
        let data_bytes = self.geometry.data_bytes();
        if header.segment != index || header.segment_bytes != data_bytes {
            return bad(format!(
                "the header says segment {} of {} bytes, but it should be segment {index} of {data_bytes} bytes",
                header.segment, header.segment_bytes,
            ));
        }
        if header.session_first > self.geometry.first_lsn(index)
            || !header.session_first.0.is_multiple_of(self.geometry.units())
        {
            return bad(format!("the header says that its session began at LSN {}", header.session_first));
        }
        if header.prior_end > header.session_first {
            return bad(format!("the header says that the session before ended at LSN {}", header.prior_end));
        }
        Ok(header)
    }

    /// The highest floor that a good header names. A log without one is damaged.
    fn floor(&mut self, headers: &Headers, files: &BTreeMap<u64, SegmentFile>) -> Result<Lsn> {
        let floor = headers.values().filter_map(|head| head.floor).max();
        if let (None, Some(first)) = (floor, files.values().next()) {
            let what = "no header page names the log's floor";
            self.problem(Error::corruption(&first.path, format::FLOOR_SLOTS[0] as u64, what))?;
        }
        Ok(floor.unwrap_or_default())
    }

    /// The sessions of the segments from the floor on, oldest first.
    fn group(&mut self, headers: &Headers, files: &BTreeMap<u64, SegmentFile>) -> Result<Vec<Session>> {
        let mut sessions: Vec<Session> = Vec::new();
        for index in files.keys() {
            let Some(head) = headers.get(index) else { continue };
            let (header, is_doubted) = match &head.header {
                Ok(header) => (*header, head.is_doubted),
                Err(why) => {
                    self.problem(why.clone())?;
                    continue;
                }
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
                    last.is_doubted |= is_doubted;
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
                    sessions.push(Session { header, keys, indexes: vec![*index], is_doubted });
                }
            }
        }
        Ok(sessions)
    }

    /// Rules 1 and 4 for a session that `later` sealed.
    fn judge_sealed(&mut self, found: &mut SessionScan, later: &FileHeader, same_boot: bool) -> Result<()> {
        let limit = later.prior_end;
        found.end_sealed(limit, later.prior_clean, same_boot);
        // The close record itself was perhaps never synced: the process may have died there.
        let lost = found.holes.iter().find(|h| h.start.0 + MARK_UNITS != limit.0);
        match lost {
            Some(hole) if later.prior_clean => {
                self.problem(Error::Corruption(hole.corruption("the session was closed cleanly")))
            }
            _ => Ok(()),
        }
    }

    /// Rules 2 to 4 for the last session.
    fn judge_last(
        &mut self,
        found: &mut SessionScan,
        reader: &mut Reader<'_>,
        session: &Session,
        after: &After,
    ) -> Result<()> {
        found.end_last(after.same_boot);
        for hole in found.suspects(after.same_boot) {
            if let Some(byte) = changed_byte(reader, &session.keys, hole.start, after)? {
                self.problem(Error::Corruption(hole.damage(byte)))?;
            }
        }
        if let Some(hole) = found.hole_below(self.reaches, after.limit) {
            let told = format!("the manifest says that the log reached {}", self.reaches);
            self.problem(Error::Corruption(hole.corruption(&told)))?;
            self.reaches = Lsn::ZERO;
        }
        Ok(())
    }

    /// Rule 4 for a log that ends at `end`, in or before the segment `newest`.
    fn check_reaches(&mut self, end: Lsn, newest: Option<u64>) -> Result<()> {
        let reaches = self.reaches;
        if end >= reaches {
            return Ok(());
        }
        let last = newest.map_or("there is none".into(), |newest| format!("the last one is {newest}"));
        let what = format!(
            "the log ends at LSN {end}, but the manifest says that it reached {reaches}: this segment or a later one is missing ({last})"
        );
        let path = self.dir.join(format::segment_name(self.geometry.segment_of(reaches)));
        self.problem(Error::corruption(path, None, what))
    }

    /// Segment files have their full length before they get their names; only a clean close cuts
    /// one, the one in which it ends.
    fn check_lengths(
        &mut self,
        session: &Session,
        found: &SessionScan,
        files: &BTreeMap<u64, SegmentFile>,
    ) -> Result<()> {
        let closed_in = found.closed.then(|| self.geometry.segment_of(Lsn(found.end.0.saturating_sub(1))));
        for index in &session.indexes {
            let Some(file) = files.get(index) else { continue };
            if file.bytes < self.geometry.file_bytes() && closed_in != Some(*index) {
                self.problem(Error::corruption(&file.path, file.bytes, "the segment has been cut short"))?;
            }
        }
        Ok(())
    }

    fn missing(&mut self, index: u64) -> Result<()> {
        let path = self.dir.join(format::segment_name(index));
        self.problem(Error::corruption(path, None, format!("log segment {index} is missing")))
    }
}
