//! A frame as it was read, in memory that its thread uses again: a get searches the block where it lies.
//!
//! Place: `resident` reads into one; of what the cache does not take, `handle` searches it here, and no copy is made.
//!
//! Invariant: it shows the bytes that were asked for, and nothing else of what the memory holds.
//! Concurrency: each thread has its own spare; one that is in use is its owner's. Memory: [`SPARE_BYTES`] a thread at most.
//! Tests: below, `table/tests/`.

use std::cell::Cell;
use std::ops::Deref;

use crate::env::{PAGE_BYTES, ReadableFile};
use crate::error::Result;
use crate::pages::{PageVec, Pages};

/// Larger memory goes back to the allocator.
const SPARE_BYTES: usize = 32 << 10;

const PAGE: u64 = PAGE_BYTES as u64;

thread_local! {
    static SPARE: Cell<Option<PageVec<u8>>> = const { Cell::new(None) };
}

/// See the module.
pub(super) struct Stored {
    memory: PageVec<u8>,
    /// Where the frame begins in it.
    start: usize,
    length: usize,
}

impl Stored {
    /// The bytes of a file from `offset` on. One read: past the page cache of whole pages, into memory that is aligned as they are, so that
    /// nothing is copied on the way.
    pub(super) fn read(file: &dyn ReadableFile, offset: u64, length: usize) -> Result<Stored> {
        let (mut from, mut to) = (offset, offset + length as u64);
        let is_whole = from.is_multiple_of(PAGE) && to.is_multiple_of(PAGE);
        if !is_whole && file.descriptor().is_some() {
            (from, to) = (from - from % PAGE, to.next_multiple_of(PAGE).min(file.bytes().max(to)));
        }
        let bytes = (to - from) as usize;
        // Of a thread that is being torn down there is none.
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        let mut memory = spare.unwrap_or_else(|| PageVec::new_in(Pages));
        if memory.len() < bytes + PAGE_BYTES {
            memory.clear();
            memory.resize(bytes + PAGE_BYTES, 0);
        }
        let aligned = memory.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        file.read_exact_at(&mut memory[aligned..aligned + bytes], from)?;
        Ok(Stored { memory, start: aligned + (offset - from) as usize, length })
    }
}

impl Deref for Stored {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        if self.memory.capacity() <= SPARE_BYTES {
            let memory = std::mem::replace(&mut self.memory, PageVec::new_in(Pages));
            let _ = SPARE.try_with(|spare| spare.set(Some(memory)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::env::{FileSystem, MemFs, ReadMode, RealFs};

    /// Past the page cache it is read in whole pages, up to a file's end that is in the middle of one.
    #[test]
    fn what_is_read_past_the_page_cache_is_what_the_file_has() {
        let path = std::env::temp_dir().join(format!("drumlin-stored-{}", std::process::id()));
        let bytes: Vec<u8> = (0..50_000u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(&path, &bytes).expect("written");
        let file = RealFs::new().open(&path, ReadMode::Direct).expect("opens");
        for (offset, length) in
            [(0, 4096), (4096, 8192), (4000, 100), (5, 20_000), (49_000, 1000), (49_999, 1)]
        {
            let stored = Stored::read(&*file, offset as u64, length).expect("read");
            assert_eq!(*stored, bytes[offset..offset + length], "{offset}");
        }
        assert!(Stored::read(&*file, 49_999, 2).is_err(), "the file ends before");
        assert!(Stored::read(&*file, 49_152, 4096).is_err(), "the file ends before");
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn what_is_read_is_what_the_file_has_whatever_was_read_before() {
        let fs = MemFs::new();
        let bytes: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        let mut file = fs.create(Path::new("/file")).expect("made");
        file.append(&bytes).expect("written");
        drop(file);
        let file = fs.open(Path::new("/file"), ReadMode::Buffered).expect("there");
        let mut held = Vec::new();
        for (offset, length) in [(0, 4096), (4096, 100), (100, 32 << 10), (7, 150_000), (199_999, 1), (5, 0)]
        {
            let stored = Stored::read(&*file, offset as u64, length).expect("read");
            assert_eq!(*stored, bytes[offset..offset + length]);
            assert!(Stored::read(&*file, 199_999, 2).is_err(), "the file ends before");
            assert_eq!(*stored, bytes[offset..offset + length], "another read had the same memory");
            held.push((offset, length, stored));
        }
        assert!(held.iter().all(|(offset, length, stored)| **stored == bytes[*offset..offset + length]));
        drop(held);
        let spare = SPARE.take().expect("one is kept");
        assert!(spare.capacity() <= SPARE_BYTES, "and no large one: {}", spare.capacity());
    }
}
