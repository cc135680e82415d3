//! The values that a cursor has loaded: the one that it stands on, and what a walk forward will ask for next.
//!
//! Place: of a [`TableCursor`](crate::table::TableCursor), which knows the references behind the one it is on.
//!
//! A scan's values lie here and there in the files: those of the next entries of its block are read side by side, one at first, and twice
//! as many each time that it came to the last.
//!
//! Invariants:
//! 1. What is given out for a reference is its value, whatever was loaded before.
//! 2. What cannot be read ahead fails nobody: it is asked for again when the cursor comes to it.
//! 3. It holds at most [`AHEAD_MAX`] values, and as many bytes as [`AHEAD_BYTES`] and one value.
//!
//! Concurrency: one thread. Tests: `table/tests/values.rs`, tests/values.rs.

use super::{Reader, ValueRef};
use crate::cache::SharedBlock;
use crate::env::ReadMode;
use crate::error::Result;
use crate::table::TableHandle;

/// Values that a scan reads at once, at most.
const AHEAD_MAX: usize = 32;
/// The same where the page cache may have them: what the scan ends before is copied for nothing.
const AHEAD_BUFFERED_MAX: usize = 8;
/// Bytes from which on it asks for no more.
const AHEAD_BYTES: u64 = 256 << 10;

/// See the module.
#[derive(Default)]
pub(in crate::table) struct Loaded {
    values: Vec<(Vec<u8>, SharedBlock)>,
    /// Of these, the one that was asked for last.
    at: usize,
    /// How many are asked for at once, though fewer may be there.
    ahead: usize,
}

impl Loaded {
    /// The value of this reference, if it is the one that was loaded last.
    #[inline]
    pub(in crate::table) fn get(&self, reference: &[u8]) -> Option<&SharedBlock> {
        self.values.get(self.at).filter(|(loaded, _)| loaded == reference).map(|(_, value)| value)
    }

    /// Loads a value; `next` are the references that come behind it.
    pub(in crate::table) fn load<'r>(
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
}
