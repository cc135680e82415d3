//! A frame as it was read, in memory that its thread uses again: a get searches the block where it lies.
//!
//! Place: `resident` reads into one; of what the cache does not take, `handle` searches it here, and no copy is made.
//!
//! Invariant: it has the bytes that were asked for, and nothing else of what the memory held before.
//! Concurrency: each thread has its own spare; one that is in use is its owner's. Memory: [`SPARE_BYTES`] a thread at most.
//! Tests: below, `table/tests/`.

use std::cell::Cell;
use std::ops::Deref;

use crate::env::ReadableFile;
use crate::error::Result;
use crate::pages::{PageVec, Pages};

/// Larger memory goes back to the allocator.
const SPARE_BYTES: usize = 32 << 10;

thread_local! {
    static SPARE: Cell<Option<PageVec<u8>>> = const { Cell::new(None) };
}

/// See the module.
pub(super) struct Stored {
    memory: PageVec<u8>,
    length: usize,
}

impl Stored {
    /// The bytes of a file from `offset` on. One read.
    pub(super) fn read(file: &dyn ReadableFile, offset: u64, length: usize) -> Result<Stored> {
        // Of a thread that is being torn down there is none.
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        let mut stored = Stored { memory: spare.unwrap_or_else(|| PageVec::new_in(Pages)), length };
        if stored.memory.len() < length {
            stored.memory.clear();
            stored.memory.resize(length, 0);
        }
        file.read_exact_at(&mut stored.memory[..length], offset)?;
        Ok(stored)
    }
}

impl Deref for Stored {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.memory[..self.length]
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
    use crate::env::{FileSystem, MemFs, ReadMode};

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
