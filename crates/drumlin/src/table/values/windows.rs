//! Parts of the files from which a merge relocates values.
//!
//! Place: a part of a job has them (`compaction::apart`), and asks for the values of one key after the other.
//!
//! In each file values lie in the order of keys, so a merge takes them along as they lie there: it reads a window of a file at a time,
//! garbage among it. The memory that it has for this is divided among the files that it will meet, whichever of its inputs refer to them.
//!
//! Invariants:
//! 1. What is given out for a reference is its value, whatever the windows hold; garbage that cannot be read fails nobody: where a window
//!    cannot be read its values are read one by one.
//! 2. They hold the bytes that they were given, at most. If these are too few for the files, some are read value by value: windows that
//!    take turns would be read for one value each.
//!
//! Complexity: a look for the file among them, and one read for a window of values. Concurrency: one thread. Tests:
//! `table/tests/values.rs`, tests/values.rs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::{Reader, ValueFile, ValueRef};
use crate::cache::SharedBlock;
use crate::error::{Error, Result};
use crate::pages::{PageVec, Pages};
use crate::table::{Shelf, TableId};

/// Bytes of a window, at least and at most. A value of more than half as many is read alone.
const WINDOW_BYTES: (usize, usize) = (32 << 10, 128 << 10);
/// So many values for each window are read before one that gave none of them is given up.
const WINDOW_TURNS: u64 = 16;

/// See the module.
pub struct ValueWindows {
    shelf: Arc<Shelf>,
    window_bytes: usize,
    windows_max: usize,
    windows: Vec<Window>,
    /// The files that were met.
    files: BTreeMap<TableId, Arc<ValueFile>>,
    /// Values that were read through windows.
    turn: u64,
}

impl ValueWindows {
    /// None yet, of `bytes` at most, for so many files.
    pub fn new(shelf: &Arc<Shelf>, bytes: usize, files: usize) -> ValueWindows {
        let (least, most) = WINDOW_BYTES;
        let window_bytes = (bytes / files.max(1) / least * least).clamp(least, most);
        ValueWindows {
            shelf: shelf.clone(),
            window_bytes,
            windows_max: (bytes / window_bytes).min(files),
            windows: Vec::new(),
            files: BTreeMap::new(),
            turn: 0,
        }
    }

    /// None, for who relocates nothing.
    pub fn none(shelf: &Arc<Shelf>) -> ValueWindows {
        ValueWindows::new(shelf, 0, 0)
    }

    /// Gives their memory back.
    pub fn clear(&mut self) {
        self.windows = Vec::new();
    }

    /// Bytes that they may come to hold.
    pub fn bytes_max(&self) -> usize {
        self.windows_max * self.window_bytes
    }

    /// Bytes that they hold.
    pub fn memory_bytes(&self) -> usize {
        self.windows.len() * self.window_bytes
    }

    /// The value that a reference leads to. If it is damaged, so is its file from now on.
    pub fn load(&mut self, value: &ValueRef) -> Result<SharedBlock> {
        let shelf = &self.shelf;
        let file = match self.files.get(&value.file) {
            Some(file) => file.clone(),
            None => {
                let file = shelf.value_file_of(value.file)?;
                self.files.insert(value.file, file.clone());
                file
            }
        };
        if let Some(cached) = file.glance(shelf, value) {
            return Ok(cached);
        }
        let loaded = match self.window(&file, value) {
            Ok(Some(stored)) => file.decoded(value, stored),
            Ok(None) => file.read(&self.shelf, value, Reader::Merge),
            // It cannot be opened.
            Err(error) => Err(error),
        };
        if let Err(Error::Corruption(_)) = &loaded {
            file.mark_damaged();
        }
        loaded
    }

    /// What is stored of a value, through a window; none if there is no window for its file, or the value is long.
    fn window(&mut self, file: &ValueFile, value: &ValueRef) -> Result<Option<&[u8]>> {
        if self.windows_max == 0 || value.place.bytes > self.window_bytes as u64 / 2 {
            return Ok(None);
        }
        self.turn += 1;
        let turn = self.turn;
        let at = match self.windows.iter().position(|window| window.file == file.id()) {
            Some(at) => at,
            None if self.windows.len() < self.windows_max => {
                self.windows.push(Window::new(self.window_bytes));
                self.windows.len() - 1
            }
            None => {
                let oldest = self.windows.iter().enumerate().min_by_key(|(_, window)| window.used);
                // One that is still read is not given up.
                let left = |window: &Window| turn - window.used > WINDOW_TURNS * self.windows.len() as u64;
                match oldest {
                    Some((at, window)) if left(window) => at,
                    _ => return Ok(None),
                }
            }
        };
        let window = &mut self.windows[at];
        window.used = turn;
        if window.file != file.id() || window.frame(value).is_none() {
            if window.is_unreadable(file, value) {
                return Ok(None);
            }
            window.fill(&self.shelf, file, value, self.window_bytes)?;
        }
        Ok(self.windows[at].frame(value))
    }
}

/// A part of a file.
struct Window {
    file: TableId,
    offset: u64,
    bytes: PageVec<u8>,
    /// The turn in which it was read last.
    used: u64,
    /// What could not be read last, in `file`.
    unreadable: Range<u64>,
}

impl Window {
    /// An empty one; it is never of more than `bytes`.
    fn new(bytes: usize) -> Window {
        let bytes = PageVec::with_capacity_in(bytes, Pages);
        Window { file: TableId::default(), offset: 0, bytes, used: 0, unreadable: 0..0 }
    }

    /// True if what lies about the value was asked for before, and could not be read.
    fn is_unreadable(&self, file: &ValueFile, value: &ValueRef) -> bool {
        self.file == file.id() && self.unreadable.contains(&value.place.offset)
    }

    fn frame(&self, value: &ValueRef) -> Option<&[u8]> {
        let start = usize::try_from(value.place.offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(usize::try_from(value.place.bytes).ok()?)?)
    }

    fn fill(&mut self, shelf: &Shelf, file: &ValueFile, value: &ValueRef, bytes: usize) -> Result<()> {
        let open = file.opened(shelf)?;
        let start = value.place.offset;
        let end = start.saturating_add(bytes as u64).min(open.file().bytes());
        (self.file, self.offset, self.unreadable) = (file.id(), start, 0..0);
        // What ends behind the file is told of by who reads it alone.
        self.bytes.resize(end.saturating_sub(start) as usize, 0);
        if end > start && open.file().read_exact_at(&mut self.bytes, start).is_err() {
            // A failed read leaves nothing that could be taken for the file.
            self.bytes.clear();
            self.unreadable = start..end;
        }
        Ok(())
    }
}
