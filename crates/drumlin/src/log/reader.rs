//! Reading records back from segment files, whatever is in them.
//!
//! Place: used by `recover`; reads through `env`, writes nothing.
//!
//! Invariants:
//! 1. A record is `Whole` only if check bits and checksum fit this session and this LSN.
//! 2. After a hole the next record is looked for at every unit, by checksum: a length is never
//!    trusted there. The bytes of a value cannot pose as a record, since its checksum would have
//!    to be made for that LSN with the store's secret.
//! 3. Holds at most two segments and one record in memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::encoding::u64_at;
use crate::env::{FileSystem, ReadMode};
use crate::error::{Error, Result};
use crate::key::Lsn;

use super::format::{HEADER_PAGE, Keys, RECORD_HEAD, RecordKind, Word};
use super::geometry::Geometry;

/// A segment file as found.
#[derive(Clone, Debug)]
pub(super) struct SegmentFile {
    pub(super) path: PathBuf,
    /// Bytes of the file.
    pub(super) bytes: u64,
}

/// Reads units and records by LSN.
pub(super) struct Reader<'a> {
    fs: &'a dyn FileSystem,
    files: &'a BTreeMap<u64, SegmentFile>,
    geometry: Geometry,
    loaded: Vec<(u64, Arc<Vec<u8>>)>,
}

/// A whole record.
pub(super) struct Record {
    pub(super) lsn: Lsn,
    pub(super) kind: RecordKind,
    pub(super) units: u64,
    data: Arc<Vec<u8>>,
    body: Range<usize>,
}

impl Record {
    /// The body, padding excluded.
    pub(super) fn body(&self) -> &[u8] {
        &self.data[self.body.clone()]
    }

    /// The LSN after it.
    pub(super) fn end(&self) -> Lsn {
        Lsn(self.lsn.0 + self.units)
    }
}

/// What is found at an LSN.
pub(super) enum Look {
    Whole(Record),
    /// No record: why, and whether a header says that there was to be one.
    Bad {
        why: &'static str,
        begun: bool,
    },
}

impl<'a> Reader<'a> {
    /// A reader of these segments.
    pub(super) fn new(
        fs: &'a dyn FileSystem,
        files: &'a BTreeMap<u64, SegmentFile>,
        geometry: Geometry,
    ) -> Reader<'a> {
        Reader { fs, files, geometry, loaded: Vec::new() }
    }

    /// The shape of the segments.
    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// File and byte offset of an LSN, for messages.
    pub(super) fn place(&self, dir: &Path, lsn: Lsn) -> (PathBuf, u64) {
        let index = self.geometry.segment_of(lsn);
        let path = self.files.get(&index).map(|f| f.path.clone());
        (path.unwrap_or_else(|| dir.join(super::format::segment_name(index))), self.geometry.file_offset(lsn))
    }

    /// The data of a segment, as far as the file goes; `None` if there is no file.
    fn load(&mut self, index: u64) -> Result<Option<&Arc<Vec<u8>>>> {
        if let Some(at) = self.loaded.iter().position(|(i, _)| *i == index) {
            if at != 0 {
                self.loaded.swap(0, at);
            }
            return Ok(Some(&self.loaded[0].1));
        }
        let Some(file) = self.files.get(&index) else {
            return Ok(None);
        };
        let bytes = file.bytes.saturating_sub(HEADER_PAGE as u64).min(self.geometry.data_bytes());
        let mut data = vec![0; bytes as usize];
        if bytes > 0 {
            self.fs.open(&file.path, ReadMode::Buffered)?.read_exact_at(&mut data, HEADER_PAGE as u64)?;
        }
        self.loaded.truncate(1);
        self.loaded.insert(0, (index, Arc::new(data)));
        Ok(Some(&self.loaded[0].1))
    }

    /// The unit at `lsn`, if a file holds it.
    pub(super) fn unit(&mut self, lsn: u64) -> Result<Option<u64>> {
        let lsn = Lsn(lsn);
        let offset = self.geometry.data_offset(lsn);
        Ok(self.load(self.geometry.segment_of(lsn))?.and_then(|data| u64_at(data, offset)))
    }

    /// The bytes of `[start, end)` in units, gathered if they span segments.
    pub(super) fn bytes(&mut self, start: u64, end: u64) -> Result<Option<(Arc<Vec<u8>>, Range<usize>)>> {
        if start == end {
            return Ok(Some((Arc::default(), 0..0)));
        }
        let geometry = self.geometry;
        let (first, last) = (geometry.segment_of(Lsn(start)), geometry.segment_of(Lsn(end - 1)));
        let in_segment = |index: u64| {
            let (base, border) = (geometry.first_lsn(index).0, geometry.first_lsn(index + 1).0);
            (start.max(base) - base) as usize * 8..(end.min(border) - base) as usize * 8
        };
        if first == last {
            let range = in_segment(first);
            let data = self.load(first)?;
            return Ok(data.filter(|d| d.len() >= range.end).map(|d| (d.clone(), range)));
        }
        let mut gathered = Vec::new();
        for index in first..=last {
            let range = in_segment(index);
            match self.load(index)?.and_then(|data| data.get(range)) {
                Some(piece) => gathered.extend_from_slice(piece),
                None => return Ok(None),
            }
        }
        let count = gathered.len();
        Ok(Some((Arc::new(gathered), 0..count)))
    }

    /// What is at `lsn`, where a record should start; it may not end beyond `limit`.
    ///
    /// Errors: what reading met; [`Error::Unsupported`] for a whole record that only a newer
    /// version understands.
    pub(super) fn look(&mut self, keys: &Keys, lsn: u64, limit: u64) -> Result<Look> {
        let bad = |why, begun| Ok(Look::Bad { why, begun });
        let Some(raw) = self.unit(lsn)? else {
            return bad("the file that should hold the record is missing or ends before it", false);
        };
        let Some((word, seed)) = Word::decode(raw, keys, lsn) else {
            return bad("no record header (its check bits do not match)", false);
        };
        let units = word.units();
        if lsn.checked_add(units).is_none_or(|end| end > limit) {
            return bad("the record ends beyond the log", true);
        }
        let checksum = if word.has_checksum() { self.unit(lsn + 1)? } else { Some(0) };
        let Some(checksum) = checksum else {
            return bad("the file ends inside the record", true);
        };
        let (data, padded) = if word.is_pad() {
            if self.unit(lsn + units - 1)?.is_none() {
                return bad("the file ends inside the record", true);
            }
            (Arc::default(), 0..0)
        } else {
            match self.bytes(lsn + RECORD_HEAD as u64 / 8, lsn + units)? {
                Some(found) => found,
                None => return bad("the file ends inside the record", true),
            }
        };
        if word.has_checksum() && Keys::checksum(seed, &data[padded.clone()]) != checksum {
            return bad("the record's checksum does not match", true);
        }
        let kind = match RecordKind::from_u8(word.kind) {
            Some(kind) if word.flags == 0 => kind,
            None if word.kind >= 0x80 => RecordKind::Pad,
            _ => {
                let (path, offset) = self.place(Path::new(""), Lsn(lsn));
                let (kind, flags) = (word.kind, word.flags);
                let why = format!("the record at byte {offset} is of kind {kind} with flags {flags}");
                return Err(Error::Unsupported { path, why });
            }
        };
        let body_bytes = if word.is_pad() { 0 } else { word.body_bytes as usize };
        let body = padded.start..padded.start + body_bytes;
        Ok(Look::Whole(Record { lsn: Lsn(lsn), kind, units, data, body }))
    }

    /// The first LSN in `[from, limit)` where a whole record starts. Looks at every unit, since
    /// what came before is not to be trusted.
    pub(super) fn find_record(&mut self, keys: &Keys, from: u64, limit: u64) -> Result<Option<u64>> {
        let mut at = from;
        while at < limit {
            let index = self.geometry.segment_of(Lsn(at));
            let (base, border) = (self.geometry.first_lsn(index).0, self.geometry.first_lsn(index + 1).0);
            let Some(data) = self.load(index)?.cloned() else {
                // A missing segment: go on in the next.
                at = border;
                continue;
            };
            let end = limit.min(base + data.len() as u64 / 8);
            while at < end {
                let raw = u64_at(&data, (at - base) as usize * 8).unwrap_or(0);
                if raw != 0 && Self::may_start(raw, keys, at, limit) {
                    match self.look(keys, at, limit) {
                        Ok(Look::Whole(_)) => return Ok(Some(at)),
                        Ok(Look::Bad { .. }) | Err(Error::Unsupported { .. }) => {}
                        Err(other) => return Err(other),
                    }
                }
                at += 1;
            }
            at = at.max(border);
        }
        Ok(None)
    }

    /// A cheap test that passes every record that this build writes, but for pads of one unit,
    /// which have no checksum to be known by.
    fn may_start(raw: u64, keys: &Keys, lsn: u64, limit: u64) -> bool {
        Word::decode(raw, keys, lsn).is_some_and(|(word, _)| {
            word.flags == 0
                && RecordKind::from_u8(word.kind).is_some()
                && word.has_checksum()
                && word.units() <= limit - lsn
        })
    }
}
