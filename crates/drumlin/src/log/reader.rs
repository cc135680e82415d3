//! Reading records back from segment files, whatever is in them.
//!
//! Place: used by `recover`; reads through `env`, writes nothing.
//!
//! Invariants:
//! 1. A record is `Whole` only if check bits and checksum fit this session and this LSN.
//! 2. After a hole the next record is looked for at every unit, by checksum: a length is never
//!    trusted there. The bytes of a value cannot pose as a record, since its checksum would have
//!    to be made for that LSN with the store's secret.
//! 3. Holds at most two windows of a segment and one record in memory. Going on from record to record, it reads every
//!    byte once, and those of a record that goes beyond its window once more.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::encoding::u64_at;
use crate::env::{FileSystem, ReadMode, ReadableFile};
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

/// Bytes that are read at once; the processor's caches hold them while they are looked at.
const WINDOW_BYTES: u64 = 256 << 10;

/// A part of a segment's data, as it was read.
struct Window {
    /// Its first LSN.
    start: u64,
    /// The first that it does not hold whole.
    end: u64,
    data: Arc<Vec<u8>>,
}

/// Reads units and records by LSN.
pub(super) struct Reader<'a> {
    fs: &'a dyn FileSystem,
    files: &'a BTreeMap<u64, SegmentFile>,
    geometry: Geometry,
    /// The file read last.
    open: Option<(u64, Arc<dyn ReadableFile>)>,
    /// The one used last comes first.
    windows: Vec<Window>,
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
        Reader { fs, files, geometry, open: None, windows: Vec::new() }
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

    /// Bytes of data that a segment's file has; `None` if there is no file.
    fn data_bytes(&self, index: u64) -> Option<u64> {
        let file = self.files.get(&index)?;
        Some(file.bytes.saturating_sub(HEADER_PAGE as u64).min(self.geometry.data_bytes()))
    }

    /// Reads data of a segment that has a file of that length.
    fn read(&mut self, index: u64, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != index) {
            let Some(file) = self.files.get(&index) else { return Ok(()) };
            self.open = Some((index, self.fs.open(&file.path, ReadMode::Buffered)?));
        }
        let Some((_, file)) = &self.open else { return Ok(()) };
        file.read_exact_at(buffer, HEADER_PAGE as u64 + offset)
    }

    /// The window with the unit at `lsn`; `None` if no file holds it.
    #[inline]
    fn window(&mut self, lsn: u64) -> Result<Option<&Window>> {
        let holds = |window: &Window| (window.start..window.end).contains(&lsn);
        if self.windows.first().is_some_and(holds) {
            return Ok(self.windows.first());
        }
        self.move_to(lsn)
    }

    /// The same, of one that is not the first.
    #[cold]
    fn move_to(&mut self, lsn: u64) -> Result<Option<&Window>> {
        let holds = |window: &Window| (window.start..window.end).contains(&lsn);
        if let Some(at) = self.windows.iter().position(holds) {
            self.windows.swap(0, at);
            return Ok(self.windows.first());
        }
        let index = self.geometry.segment_of(Lsn(lsn));
        let offset = self.geometry.data_offset(Lsn(lsn)) as u64;
        let Some(bytes) = self.data_bytes(index).filter(|bytes| offset + Lsn::UNIT_BYTES <= *bytes) else {
            return Ok(None);
        };
        let from = offset / WINDOW_BYTES * WINDOW_BYTES;
        let length = WINDOW_BYTES.min(bytes - from) as usize;
        let old = if self.windows.len() == 2 { self.windows.pop() } else { None };
        // Its memory again, unless a record still refers to it.
        let mut data = old.and_then(|old| Arc::try_unwrap(old.data).ok()).unwrap_or_default();
        data.resize(length, 0);
        self.read(index, from, &mut data)?;
        let start = self.geometry.first_lsn(index).0 + from / Lsn::UNIT_BYTES;
        let end = start + length as u64 / Lsn::UNIT_BYTES;
        self.windows.insert(0, Window { start, end, data: Arc::new(data) });
        Ok(self.windows.first())
    }

    /// The unit at `lsn`, if a file holds it.
    pub(super) fn unit(&mut self, lsn: u64) -> Result<Option<u64>> {
        let window = self.window(lsn)?;
        Ok(window.and_then(|window| u64_at(&window.data, (lsn - window.start) as usize * 8)))
    }

    /// The bytes of `[start, end)` in units, gathered if no window holds them all.
    pub(super) fn bytes(&mut self, start: u64, end: u64) -> Result<Option<(Arc<Vec<u8>>, Range<usize>)>> {
        if start == end {
            return Ok(Some((Arc::default(), 0..0)));
        }
        if let Some(window) = self.windows.first().filter(|w| w.start <= start && end <= w.end) {
            let range = (start - window.start) as usize * 8..(end - window.start) as usize * 8;
            return Ok(Some((window.data.clone(), range)));
        }
        let geometry = self.geometry;
        let (first, last) = (geometry.segment_of(Lsn(start)), geometry.segment_of(Lsn(end - 1)));
        let in_segment = |index: u64| {
            let (base, border) = (geometry.first_lsn(index).0, geometry.first_lsn(index + 1).0);
            (start.max(base) - base) * 8..(end.min(border) - base) * 8
        };
        // First whether it is all there: what a damaged length asks for may be large.
        if (first..=last).any(|i| self.data_bytes(i).is_none_or(|bytes| bytes < in_segment(i).end)) {
            return Ok(None);
        }
        let mut gathered = vec![0; (end - start) as usize * 8];
        let mut rest = &mut gathered[..];
        for index in first..=last {
            let range = in_segment(index);
            let (piece, behind) = rest.split_at_mut((range.end - range.start) as usize);
            self.read(index, range.start, piece)?;
            rest = behind;
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
        let Some(window) = self.window(lsn)? else {
            return bad("the file that should hold the record is missing or ends before it", false);
        };
        let (at, left) = ((lsn - window.start) as usize * 8, window.end - lsn);
        let Some((word, seed)) = u64_at(&window.data, at).and_then(|raw| Word::decode(raw, keys, lsn)) else {
            return bad("no record header (its check bits do not match)", false);
        };
        let units = word.units();
        if lsn.checked_add(units).is_none_or(|end| end > limit) {
            return bad("the record ends beyond the log", true);
        }
        // Most records lie in the window that they begin in.
        let (checksum, data, padded) = if units <= left && !word.is_pad() {
            let body = at + RECORD_HEAD..at + units as usize * 8;
            (u64_at(&window.data, at + 8), window.data.clone(), body)
        } else {
            let checksum = if word.has_checksum() { self.unit(lsn + 1)? } else { Some(0) };
            let found = if !word.is_pad() {
                self.bytes(lsn + RECORD_HEAD as u64 / 8, lsn + units)?
            } else {
                self.unit(lsn + units - 1)?.map(|_| (Arc::default(), 0..0))
            };
            match found {
                Some((data, padded)) => (checksum, data, padded),
                None => return bad("the file ends inside the record", true),
            }
        };
        let Some(checksum) = checksum else {
            return bad("the file ends inside the record", true);
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
            let Some(window) = self.window(at)? else {
                // A missing segment, or the end of its file: go on in the next.
                at = self.geometry.first_lsn(self.geometry.segment_of(Lsn(at)) + 1).0;
                continue;
            };
            let (base, end, data) = (window.start, limit.min(window.end), window.data.clone());
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
