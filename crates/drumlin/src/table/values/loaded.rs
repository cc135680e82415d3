//! The values that a cursor has loaded: the one that it stands on, and what a walk forward will ask for next.
//!
//! Place: of a [`TableCursor`](crate::table::TableCursor), which knows the references behind the one it is on.
//!
//! A scan's values lie here and there in the files: those of the next entries of its block are read side by side, one at first, and twice
//! as many each time that it came to the last. A merge takes values along in the order in which they lie in each file: it reads a window
//! of the file at a time, garbage among it.
//!
//! Invariants:
//! 1. What is given out for a reference is its value, whatever was loaded before.
//! 2. What cannot be read ahead fails nobody: it is asked for again when the cursor comes to it.
//! 3. A scan holds at most [`AHEAD_MAX`] values, and as many bytes as [`AHEAD_BYTES`] and one value; a merge as many windows as the bytes
//!    that it is given hold. Where they are too few for its files, some are read value by value: windows that take turns would be
//!    read for one value each.
//!
//! Concurrency: one thread. Tests: `table/tests/values.rs`, tests/values.rs.

use super::{Reader, ValueFile, ValueRef};
use crate::cache::SharedBlock;
use crate::env::ReadMode;
use crate::error::Result;
use crate::pages::{PageVec, Pages};
use crate::table::{Shelf, TableHandle, TableId};

/// Values that a scan reads at once, at most.
const AHEAD_MAX: usize = 32;
/// The same where the page cache may have them: what the scan ends before is copied for nothing.
const AHEAD_BUFFERED_MAX: usize = 8;
/// Bytes from which on it asks for no more.
const AHEAD_BYTES: u64 = 256 << 10;
/// Bytes of a window; a value of more than half as many is read alone.
const WINDOW_BYTES: usize = 128 << 10;
/// So many values for each window are read before one that gave none of them is given up.
const WINDOW_TURNS: u64 = 16;

/// See the module.
#[derive(Default)]
pub(in crate::table) struct Loaded {
    values: Vec<(Vec<u8>, SharedBlock)>,
    /// Of these, the one that was asked for last.
    at: usize,
    /// How many are asked for at once, though fewer may be there.
    ahead: usize,
    windows: Vec<Window>,
    /// Values that were read through them.
    turn: u64,
}

impl Loaded {
    /// The value of this reference, if it is the one that was loaded last.
    #[inline]
    pub(in crate::table) fn get(&self, reference: &[u8]) -> Option<&SharedBlock> {
        self.values.get(self.at).filter(|(loaded, _)| loaded == reference).map(|(_, value)| value)
    }

    /// Loads a value for a scan; `next` are the references that come behind it.
    pub(in crate::table) fn scan<'r>(
        &mut self,
        table: &TableHandle,
        reference: &'r [u8],
        next: impl Iterator<Item = &'r [u8]>,
    ) -> Result<()> {
        let behind = self.values.iter().skip(self.at).position(|(loaded, _)| loaded == reference);
        if let Some(steps) = behind {
            self.at += steps;
            return Ok(());
        }
        let came_to_the_last = self.at + 1 == self.values.len();
        let most = if table.shelf().reads == ReadMode::Buffered { AHEAD_BUFFERED_MAX } else { AHEAD_MAX };
        self.ahead = if came_to_the_last { (2 * self.ahead).min(most) } else { 1 };
        let mut bytes = 0;
        let next = next.take_while(|reference| {
            bytes += ValueRef::decode(reference).map_or(0, |value| value.value_bytes);
            bytes < AHEAD_BYTES
        });
        let wanted: Vec<&[u8]> = std::iter::once(reference).chain(next).take(self.ahead).collect();
        let values = match table.values_together(&wanted) {
            Err(_) if wanted.len() > 1 => vec![table.value(reference, Reader::Scan)?],
            read => read?,
        };
        self.at = 0;
        self.values.clear();
        self.values.extend(wanted.into_iter().map(<[u8]>::to_vec).zip(values));
        Ok(())
    }

    /// Loads a value for a merge that holds so many bytes of windows.
    pub(in crate::table) fn merge(
        &mut self,
        table: &TableHandle,
        reference: &[u8],
        windows_bytes: usize,
    ) -> Result<()> {
        let shelf = table.shelf();
        let (file, value) = table.value_file(reference)?;
        let block = match file.peek(shelf, &value) {
            Some(cached) => cached,
            None => match self.window(shelf, file, &value, windows_bytes)? {
                Some(stored) => file.decoded(&value, stored)?,
                None => file.read(shelf, &value, Reader::Merge)?,
            },
        };
        self.at = 0;
        self.values.clear();
        self.values.push((reference.to_vec(), block));
        Ok(())
    }

    /// What is stored of a value, through a window; none if there is no window for its file.
    fn window(
        &mut self,
        shelf: &Shelf,
        file: &ValueFile,
        value: &ValueRef,
        all_bytes: usize,
    ) -> Result<Option<&[u8]>> {
        let windows_max = all_bytes / WINDOW_BYTES;
        if windows_max == 0 || value.place.bytes > WINDOW_BYTES as u64 / 2 {
            return Ok(None);
        }
        self.turn += 1;
        let turn = self.turn;
        let at = match self.windows.iter().position(|window| window.file == file.id()) {
            Some(at) => at,
            None if self.windows.len() < windows_max => {
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
            window.fill(shelf, file, value)?;
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

    fn fill(&mut self, shelf: &Shelf, file: &ValueFile, value: &ValueRef) -> Result<()> {
        let open = file.opened(shelf)?;
        let end = value.place.offset.saturating_add(WINDOW_BYTES as u64).min(open.file().bytes());
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
