//! Parts of the files from which a merge relocates values.
//!
//! Place: of a part of a merge, which asks for the values of one key after the other.
//!
//! In each file values lie in the order of keys, so a merge takes them along as they lie there: it reads a window of a file at a time,
//! garbage among it. The memory that it has for this is divided among the files that it will meet, whichever of its inputs refer to them.
//!
//! Invariants:
//! 1. What is given out for a reference is its value, whatever the windows hold.
//! 2. They hold the bytes that they were given, at most. If these are too few for the files, some are read value by value: windows that
//!    take turns would be read for one value each.
//!
//! Complexity: a look for the file among them, and one read for a window of values. Concurrency: one thread. Tests:
//! `table/tests/values.rs`, tests/values.rs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Reader, ValueFile, ValueRef};
use crate::cache::SharedBlock;
use crate::error::Result;
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

    /// Bytes that they may come to hold.
    pub fn bytes_max(&self) -> usize {
        self.windows_max * self.window_bytes
    }

    /// Bytes that they hold.
    pub fn memory_bytes(&self) -> usize {
        self.windows.len() * self.window_bytes
    }

    /// The value that a reference leads to.
    pub fn load(&mut self, value: &ValueRef) -> Result<SharedBlock> {
        let shelf = &self.shelf;
        let file = match self.files.get(&value.file) {
            Some(file) => file.clone(),
            None => {
                let file = shelf.value_file(value.file)?;
                self.files.insert(value.file, file.clone());
                file
            }
        };
        if let Some(cached) = file.peek(shelf, value) {
            return Ok(cached);
        }
        match self.window(&file, value)? {
            Some(stored) => file.decoded(value, stored),
            None => file.read(&self.shelf, value, Reader::Merge),
        }
    }

    /// What is stored of a value, through a window; none if there is no window for its file.
    fn window(&mut self, file: &ValueFile, value: &ValueRef) -> Result<Option<&[u8]>> {
        if self.windows_max == 0 || value.place.bytes > self.window_bytes as u64 / 2 {
            return Ok(None);
        }
        self.turn += 1;
        let turn = self.turn;
        let at = match self.windows.iter().position(|window| window.file == file.id()) {
            Some(at) => at,
            None if self.windows.len() < self.windows_max => {
                self.windows.push(Window::new());
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
}

impl Window {
    fn new() -> Window {
        Window { file: TableId::default(), offset: 0, bytes: PageVec::new_in(Pages), used: 0 }
    }

    fn frame(&self, value: &ValueRef) -> Option<&[u8]> {
        let start = usize::try_from(value.place.offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(usize::try_from(value.place.bytes).ok()?)?)
    }

    fn fill(&mut self, shelf: &Shelf, file: &ValueFile, value: &ValueRef, bytes: usize) -> Result<()> {
        let open = file.opened(shelf)?;
        let end = value.place.offset.saturating_add(bytes as u64).min(open.file().bytes());
        (self.file, self.offset) = (file.id(), value.place.offset);
        self.bytes.resize(end.saturating_sub(self.offset) as usize, 0);
        let read = open.file().read_exact_at(&mut self.bytes, self.offset);
        if read.is_err() {
            // A failed read leaves nothing that could be taken for the file.
            self.bytes.clear();
        }
        read
    }
}
