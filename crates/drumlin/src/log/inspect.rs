//! Taking one segment file of the log apart for whoever wants to see what is in it.
//!
//! Place: behind [`crate::inspect::log`]. Reads as recovery does, by `reader` and `session`; but one file, whichever it
//! is, and with no manifest to say how far the log must reach.
//!
//! Invariants:
//! 1. What is shown as a record has a checksum that fits its session and its place.
//! 2. Everything from the header page to the end of the file is shown: as a record, or as a gap with its reason.
//! 3. Only what cannot come of any crash is called a problem: a header or a mark that does not fit, a gap below a mark,
//!    a record that was whole once. A record that was never finished is none.
//!
//! The segments beside it are looked at where a record goes on in the next, and for where a later session cut this one.
//!
//! Memory: two segments and one record. Tests: `tests/inspect.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::encoding::Decoder;
use crate::env::{FileSystem, ReadMode, join};
use crate::error::{Corruption, Error, Result};
use crate::key::{Kind, Lsn};

use super::Uuid;
use super::damage::{After, changed_byte};
use super::entry::decode_entry;
use super::format::{self, FileHeader, HEADER_PAGE, HeaderFault, Keys, Mark, RecordKind, Word};
use super::geometry::Geometry;
use super::reader::{Look, Reader, Record, SegmentFile};
use super::recovered::Hole;
use super::session::{SessionScan, scan_session};

/// The header of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogHeader {
    /// The number of the segment.
    pub segment: u64,
    /// Bytes of data of every segment of the store.
    pub segment_bytes: u64,
    /// The store it belongs to.
    pub store: [u8; 16],
    /// The boot of the machine in which it was written.
    pub boot: [u8; 16],
    /// Whether that is the present boot.
    pub same_boot: bool,
    /// Where its session begins: one opening of the store.
    pub session_first: u64,
    /// Where the session before was cut.
    pub prior_end: u64,
    /// Whether the session before was closed cleanly.
    pub prior_clean: bool,
}

/// One version in a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The keyspace's number; the manifest names it.
    pub keyspace: u32,
    /// `put`, `delete` or `delete_range`.
    pub kind: &'static str,
    /// The key; the start of a range delete.
    pub key: Vec<u8>,
    /// The end of a range delete.
    pub end: Option<Vec<u8>>,
    /// Bytes of the value; 0 for deletes.
    pub value_bytes: u64,
    /// For a read-modify-write: the version that it read.
    pub expected: Option<u64>,
}

/// What a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRecordKind {
    /// Versions that were written together, and why some cannot be read, if so.
    Write(Vec<LogEntry>, Option<&'static str>),
    /// Nothing: room that was given up.
    Pad,
    /// Everything below was durable when this was written.
    Mark {
        /// Where the records begin that it counts.
        from: u64,
        /// Everything below was durable.
        durable: u64,
        /// How many records it counts.
        records: u64,
    },
    /// The same, by a clean close.
    Close {
        /// As for a mark.
        from: u64,
        /// As for a mark.
        durable: u64,
        /// As for a mark.
        records: u64,
    },
}

/// A whole record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Its position, which is the version of all that it writes.
    pub lsn: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// Its bytes, head and padding included.
    pub bytes: u64,
    /// What it is.
    pub kind: LogRecordKind,
}

/// A stretch without whole records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogGap {
    /// Its first position.
    pub lsn: u64,
    /// The first position behind it.
    pub end: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// What it is.
    pub kind: LogGapKind,
    /// What was found at its first position.
    pub what: String,
}

/// Why there is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogGapKind {
    /// Before the first record of the file: the end of one that begins in the segment before.
    Earlier,
    /// Between records: what was written there was not finished, or is damaged.
    Hole,
    /// Behind the last record, one that was begun: torn, or damaged.
    Torn,
    /// Behind the last record, nothing of this session.
    Unwritten,
}

/// A piece of a segment, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogItem<'a> {
    /// A whole record.
    Record(&'a LogRecord),
    /// A stretch without.
    Gap(&'a LogGap),
}

/// What a segment file is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogReport {
    /// The file.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// The header; as it stands, if its checksum could not be looked at or does not fit.
    pub header: Option<LogHeader>,
    /// Nothing below is needed, says this file.
    pub floor: Option<u64>,
    /// The first position of the segment, and the first behind it.
    pub span: (u64, u64),
    /// Whole records that begin in it.
    pub records: u64,
    /// Of these, writes.
    pub writes: u64,
    /// Versions in them.
    pub entries: u64,
    /// Of the records, pads.
    pub pads: u64,
    /// Of the records, marks, that of a close included.
    pub marks: u64,
    /// Gaps between records.
    pub holes: u64,
    /// Everything below was durable, as its last mark says.
    pub durable: u64,
    /// Where the readable part ends: position, and offset in the file; `None` if none was looked for.
    pub readable_to: Option<(u64, u64)>,
    /// Why it ends there.
    pub end: String,
    /// Where the session that came after has cut this one, and the segment whose header says so.
    pub cut: Option<(u64, u64)>,
    /// Everything that is not as it was written.
    pub problems: Vec<Corruption>,
    /// What could not be checked, and why.
    pub unchecked: Vec<String>,
}

/// Takes the segment at `path` apart; `on_item` is shown each piece, in order. Without the store's secret only the header
/// can be shown.
///
/// Errors: why files cannot be opened or read; [`Error::Unsupported`] for what only a newer version understands.
pub fn inspect(
    fs: &dyn FileSystem,
    path: &Path,
    identity: Option<(u64, Uuid)>,
    on_item: &mut dyn FnMut(LogItem<'_>),
) -> Result<LogReport> {
    let file = fs.open(path, ReadMode::Buffered)?;
    let mut report = LogReport { path: path.to_path_buf(), bytes: file.bytes(), ..LogReport::default() };
    let mut page = vec![0; HEADER_PAGE.min(file.bytes() as usize)];
    file.read_exact_at(&mut page, 0)?;
    let Some(header) = read_header(&mut report, &page, identity)? else { return Ok(report) };
    report.header = Some(LogHeader {
        segment: header.segment,
        segment_bytes: header.segment_bytes,
        store: header.uuid,
        boot: header.boot_id,
        same_boot: header.boot_id == fs.boot_id(),
        session_first: header.session_first.0,
        prior_end: header.prior_end.0,
        prior_clean: header.prior_clean,
    });
    let segment = named(path).unwrap_or(header.segment);
    if segment != header.segment {
        let what = format!("the header says that it is segment {}, the name {segment}", header.segment);
        report.note(Error::corruption(path, 32, what))?;
    }
    let possible = header.segment_bytes.is_power_of_two()
        && header.segment_bytes < Lsn::END.0
        && segment
            .checked_mul(header.segment_bytes / Lsn::UNIT_BYTES)
            .is_some_and(|first| first < Lsn::END.0);
    if !possible || header.segment_bytes < Lsn::UNIT_BYTES {
        report.unchecked.push("the records: the header names no possible segment".into());
        return Ok(report);
    }
    let geometry = Geometry::new(header.segment_bytes as usize);
    report.span = (geometry.first_lsn(segment).0, geometry.first_lsn(segment + 1).0);
    let Some((secret, _)) = identity else {
        report.unchecked.push("the records: the key of their checksums is in the store's file STORE".into());
        return Ok(report);
    };
    let keys = Keys::new(secret, header.salt);
    report.floor = keys.decode_floor(header.segment, &page).map(|floor| floor.0);
    let (files, later) = beside(fs, path, segment, report.bytes, secret)?;
    report.cut =
        later.into_iter().find(|(_, next)| next.salt != header.salt).map(|(n, h)| (h.prior_end.0, n));
    let mut segment = Segment {
        dir: path.parent().unwrap_or(Path::new("")),
        number: segment,
        header,
        keys,
        report,
        on_item,
    };
    segment.records(fs, &files, geometry)?;
    Ok(segment.report)
}

/// The header, if there is one to be believed.
fn read_header(
    report: &mut LogReport,
    page: &[u8],
    identity: Option<(u64, Uuid)>,
) -> Result<Option<FileHeader>> {
    let path = report.path.clone();
    let decoded = match identity {
        Some((secret, _)) => FileHeader::decode(page, secret),
        None => FileHeader::as_it_stands(page),
    };
    let header = match decoded {
        Ok(header) => header,
        Err(HeaderFault::Newer(version)) => {
            let why = format!("it is a log segment of version {version}");
            return Err(Error::Unsupported { path, why });
        }
        Err(HeaderFault::Bad(what)) => {
            report.note(Error::corruption(&path, 0, what))?;
            let Ok(header) = FileHeader::as_it_stands(page) else {
                report
                    .unchecked
                    .push("the records: the header, which says how to read them, is corrupt".into());
                return Ok(None);
            };
            header
        }
    };
    if identity.is_none() {
        report.unchecked.push("the header: the key of its checksum is in the store's file STORE".into());
    } else if identity.is_some_and(|(_, uuid)| uuid != header.uuid) {
        report.note(Error::corruption(&path, 16, "the segment belongs to another store"))?;
    }
    Ok(Some(header))
}

/// The number in a segment's name.
fn named(path: &Path) -> Option<u64> {
    format::parse_segment_name(path.file_name()?.to_str()?)
}

/// The segments of the log around one, by number, and the headers of those behind it that are sound.
type Beside = (BTreeMap<u64, SegmentFile>, BTreeMap<u64, FileHeader>);

fn beside(fs: &dyn FileSystem, path: &Path, segment: u64, bytes: u64, secret: u64) -> Result<Beside> {
    let mut files = BTreeMap::from([(segment, SegmentFile { path: path.to_path_buf(), bytes })]);
    let mut later = BTreeMap::new();
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if named(path) != Some(segment) {
        return Ok((files, later));
    }
    for entry in fs.list(dir)?.into_iter().filter(|entry| !entry.is_dir) {
        let Some(number) = format::parse_segment_name(&entry.name).filter(|number| *number > segment) else {
            continue;
        };
        let path = join(dir, &entry.name);
        let mut page = vec![0; HEADER_PAGE.min(entry.bytes as usize)];
        fs.open(&path, ReadMode::Buffered)?.read_exact_at(&mut page, 0)?;
        if let Ok(header) = FileHeader::decode(&page, secret)
            && header.segment == number
        {
            later.insert(number, header);
        }
        files.insert(number, SegmentFile { path, bytes: entry.bytes });
    }
    Ok((files, later))
}

/// One segment under the glass.
struct Segment<'a> {
    dir: &'a Path,
    number: u64,
    header: FileHeader,
    keys: Keys,
    report: LogReport,
    on_item: &'a mut dyn FnMut(LogItem<'_>),
}

impl Segment<'_> {
    fn records(
        &mut self,
        fs: &dyn FileSystem,
        files: &BTreeMap<u64, SegmentFile>,
        geometry: Geometry,
    ) -> Result<()> {
        let mut reader = Reader::new(fs, files, geometry);
        let (first, border) = (geometry.first_lsn(self.number), geometry.first_lsn(self.number + 1));
        // Where the file ends; records may go on in those behind.
        let data_bytes = self.report.bytes.saturating_sub(HEADER_PAGE as u64);
        let limit = border.min(Lsn(first.0 + data_bytes / Lsn::UNIT_BYTES));
        let mut wide = self.number + 1;
        while files.contains_key(&wide) {
            wide += 1;
        }
        let wide = geometry.first_lsn(wide);
        let begins = self.begins(&mut reader, first, limit, wide)?;
        let mut problems = Vec::new();
        let mut problem = |error| match error {
            Error::Corruption(problem) => {
                problems.push(problem);
                Ok(())
            }
            other => Err(other),
        };
        let found = scan_session(&mut reader, self.dir, &self.keys, begins, limit, &mut problem)?;
        self.report.problems.append(&mut problems);
        self.report.durable = found.durable.0;
        if begins > first {
            self.gap(&geometry, first, begins, LogGapKind::Earlier, "no record begins here".into());
        }
        self.damaged(&mut reader, &found, limit)?;
        self.pieces(&mut reader, &found, limit, wide)?;
        let full = geometry.file_bytes();
        if self.report.bytes < full && !found.closed {
            let what = format!("the segment has been cut short: it should have {full} bytes");
            self.report.note(Error::corruption(self.report.path.clone(), self.report.bytes, what))?;
        }
        Ok(())
    }

    /// Where the first record begins, or a hole that this segment alone accounts for; `limit` if none does.
    fn begins(&self, reader: &mut Reader<'_>, first: Lsn, limit: Lsn, wide: Lsn) -> Result<Lsn> {
        let known = first == self.header.session_first
            || matches!(reader.look(&self.keys, first.0, wide.0)?, Look::Whole(_))
            || changed_byte(reader, &self.keys, first, &self.after(limit))?.is_some();
        if known {
            return Ok(first);
        }
        Ok(Lsn(reader.find_record(&self.keys, first.0 + 1, limit.0)?.unwrap_or(limit.0)))
    }

    /// How the session ended, for judging what it left.
    fn after(&self, limit: Lsn) -> After {
        After { same_boot: self.report.header.as_ref().is_some_and(|header| header.same_boot), limit }
    }

    /// Tells of records that were whole once.
    fn damaged(&mut self, reader: &mut Reader<'_>, found: &SessionScan, limit: Lsn) -> Result<()> {
        let after = self.after(limit);
        let suspects: Vec<Hole> = found.suspects(true).cloned().collect();
        for hole in suspects {
            if let Some(byte) = changed_byte(reader, &self.keys, hole.start, &after)? {
                self.report.note(Error::Corruption(hole.damage(byte)))?;
            }
        }
        Ok(())
    }

    /// Shows runs and holes, and what follows.
    fn pieces(&mut self, reader: &mut Reader<'_>, found: &SessionScan, limit: Lsn, wide: Lsn) -> Result<()> {
        let geometry = reader.geometry();
        let mut holes = found.holes.iter().peekable();
        let mut end = Lsn(self.report.span.0);
        for run in &found.runs {
            while let Some(hole) = holes.next_if(|hole| hole.end <= run.start) {
                self.hole(&geometry, hole);
            }
            let mut at = run.start;
            while at < run.end {
                let Look::Whole(record) = reader.look(&self.keys, at.0, limit.0)? else { break };
                at = record.end();
                self.record(&geometry, &record);
            }
            end = at;
        }
        let Some((hole, begun)) = found.tail() else {
            self.report.end = if found.closed {
                "the session was closed here".into()
            } else {
                "the segment is full".into()
            };
            self.ends(&geometry, end);
            return Ok(());
        };
        // It may go on in the next segment.
        if let Look::Whole(record) = reader.look(&self.keys, hole.start.0, wide.0)? {
            self.record(&geometry, &record);
            self.report.end = "the segment is full; its last record ends in the next".into();
            self.ends(&geometry, record.end());
            return Ok(());
        }
        let raw = reader.unit(hole.start.0)?.unwrap_or(0);
        let head = Word::decode(raw, &self.keys, hole.start.0).map(|(word, _)| word);
        let (kind, what) = match head.filter(|_| begun) {
            Some(word) => {
                let name = RecordKind::from_u8(word.kind).map_or("unknown", RecordKind::name);
                let bytes = word.units() * Lsn::UNIT_BYTES;
                (LogGapKind::Torn, format!("a record ({name}, {bytes} bytes) begins here, but {}", hole.what))
            }
            None if raw == 0 => (LogGapKind::Unwritten, "nothing was written here".into()),
            None => (LogGapKind::Unwritten, "no record of this session begins here".into()),
        };
        self.report.end = if found.closed { "the session was closed here".into() } else { what.clone() };
        self.ends(&geometry, hole.start);
        self.gap(&geometry, hole.start, limit, kind, what);
        Ok(())
    }

    fn ends(&mut self, geometry: &Geometry, lsn: Lsn) {
        let from_start = (lsn.0 - self.report.span.0) * Lsn::UNIT_BYTES;
        let last = geometry.file_bytes().min(self.report.bytes);
        self.report.readable_to = Some((lsn.0, (HEADER_PAGE as u64 + from_start).min(last)));
    }

    fn hole(&mut self, geometry: &Geometry, hole: &Hole) {
        self.report.holes += 1;
        self.gap(geometry, hole.start, hole.end, LogGapKind::Hole, hole.what.clone());
    }

    fn gap(&mut self, geometry: &Geometry, start: Lsn, end: Lsn, kind: LogGapKind, what: String) {
        let bytes = end.0.saturating_sub(start.0) * Lsn::UNIT_BYTES;
        if bytes > 0 {
            let offset = geometry.file_offset(start);
            (self.on_item)(LogItem::Gap(&LogGap { lsn: start.0, end: end.0, offset, bytes, kind, what }));
        }
    }

    fn record(&mut self, geometry: &Geometry, record: &Record) {
        let report = &mut self.report;
        report.records += 1;
        let kind = match record.kind {
            RecordKind::Write => {
                let (entries, problem) = entries(record.body());
                report.writes += 1;
                report.entries += entries.len() as u64;
                LogRecordKind::Write(entries, problem)
            }
            RecordKind::Pad => {
                report.pads += 1;
                LogRecordKind::Pad
            }
            RecordKind::Mark | RecordKind::Close => {
                report.marks += 1;
                let mark = Mark::decode(record.body()).unwrap_or_default();
                let (from, durable, records) = (mark.from.0, mark.complete_to.0, mark.count);
                match record.kind {
                    RecordKind::Close => LogRecordKind::Close { from, durable, records },
                    _ => LogRecordKind::Mark { from, durable, records },
                }
            }
        };
        let (lsn, offset) = (record.lsn.0, geometry.file_offset(record.lsn));
        let bytes = record.units * Lsn::UNIT_BYTES;
        (self.on_item)(LogItem::Record(&LogRecord { lsn, offset, bytes, kind }));
    }
}

impl LogReport {
    /// Keeps a corruption; other errors are given back.
    fn note(&mut self, error: Error) -> Result<()> {
        let Error::Corruption(problem) = error else { return Err(error) };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
        Ok(())
    }
}

/// The entries of a write, and why there may be more.
fn entries(body: &[u8]) -> (Vec<LogEntry>, Option<&'static str>) {
    let mut body = Decoder::new(body);
    let mut entries = Vec::new();
    while !body.is_empty() {
        match decode_entry(&mut body) {
            Ok(Some(entry)) => {
                let is_range = entry.kind == Kind::RangeDelete;
                entries.push(LogEntry {
                    keyspace: entry.keyspace,
                    kind: entry.kind.name(),
                    key: entry.key.to_vec(),
                    end: is_range.then(|| entry.value.to_vec()),
                    value_bytes: if is_range { 0 } else { entry.value.len() as u64 },
                    expected: entry.expected.map(|lsn| lsn.0),
                });
            }
            Ok(None) => {}
            Err(super::entry::EntryFault::Bad(what)) => return (entries, Some(what)),
            Err(super::entry::EntryFault::Newer) => {
                return (entries, Some("an entry that only a newer version understands"));
            }
        }
    }
    (entries, None)
}
