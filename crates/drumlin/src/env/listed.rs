//! Reads of a list, for the tests of `env`.

use std::sync::Arc;

use super::{Read, ReadableFile, Reads};
use crate::error::Result;

/// Asks for ranges of a file, and keeps what was found.
struct Listed<'a> {
    file: &'a Arc<dyn ReadableFile>,
    ranges: &'a [(u64, usize)],
    begun: usize,
    /// So many under way at a time: behind these it asks for no more, as a get that needs one block to find the next.
    together: usize,
    found: Vec<Option<Result<Vec<u8>>>>,
}

impl Reads for Listed<'_> {
    fn next(&mut self) -> Option<Read> {
        let taken = self.found.iter().flatten().count();
        let (offset, bytes) = *self.ranges.get(self.begun).filter(|_| self.begun < taken + self.together)?;
        self.begun += 1;
        Some(Read { file: self.file.clone(), offset, bytes, tag: self.begun - 1 })
    }

    fn take(&mut self, tag: usize, found: Result<&[u8]>) {
        assert!(tag < self.begun, "it was asked for");
        let before = self.found[tag].replace(found.map(<[u8]>::to_vec));
        assert!(before.is_none(), "once");
    }
}

/// Has the ranges read, so many at a time; what each came to, in their order.
pub(super) fn read_listed(
    read_each: impl FnOnce(&mut dyn Reads),
    file: &Arc<dyn ReadableFile>,
    ranges: &[(u64, usize)],
    together: usize,
) -> Vec<Result<Vec<u8>>> {
    let found = ranges.iter().map(|_| None).collect();
    let mut listed = Listed { file, ranges, begun: 0, together, found };
    read_each(&mut listed);
    listed.found.into_iter().map(|found| found.expect("each is read")).collect()
}
