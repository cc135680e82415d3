//! Mapped log files of the in-memory file system.
//!
//! Place: made by `MemFs::map_log`; the memory belongs to the inode while a handle lives.
//!
//! Invariants:
//! 1. All handles of one file share one memory; when the last is dropped, its bytes go back to
//!    the inode's pages.
//! 2. This file system reads and clears the memory by atomic words only, Acquire and Release, so
//!    that it may do so while writers store.
//! 3. Words are read from high to low addresses (see `inode`).
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Range;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::super::{LogRegion, Operation, PAGE_BYTES, region_range};
use super::Shared;
use super::content::{Content, PageBytes, page_bytes, pages_of};
use super::inode::Inode;
use crate::error::{Error, Result};

const WORD_BYTES: usize = size_of::<u64>();

/// Page-aligned memory that stands for a shared mapping.
pub(super) struct Mapping {
    base: NonNull<u8>,
    /// Length asked for; the memory is rounded up to whole pages.
    bytes: usize,
}

// SAFETY: the memory is owned, lives as long as the value, and is touched through atomics only.
// Whoever stores through `LogRegion::base` does so by the log's protocol.
// Test: tests::clones::mapped_stores_of_many_threads_reach_a_clone.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Memory of `bytes` bytes, at least one, with the given content.
    pub(super) fn new(bytes: usize, content: &Content) -> Mapping {
        let layout = Mapping::layout(bytes);
        // SAFETY: the layout is not empty, `bytes` being at least one.
        // Test: tests::calls::a_mapped_file_reads_as_its_memory.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        let mapping = Mapping { base, bytes };
        for index in 0..content.pages().min(mapping.pages()) {
            if content.page(index).is_some() {
                let bytes = page_bytes(content.page(index)).chunks_exact(WORD_BYTES);
                for (word, to) in bytes.zip(mapping.page(index)) {
                    let word = u64::from_ne_bytes(word.try_into().expect("chunks of a word's length"));
                    to.store(word, Ordering::Relaxed);
                }
            }
        }
        mapping
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(pages_of(bytes as u64) * PAGE_BYTES, PAGE_BYTES)
            .expect("a page is a power of two, and the length fits the address space")
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn pages(&self) -> usize {
        pages_of(self.bytes as u64)
    }

    /// All of it, the padding of the last page included.
    fn words(&self) -> &[AtomicU64] {
        let words = self.pages() * PAGE_BYTES / WORD_BYTES;
        // SAFETY: so much is allocated, aligned to a page, initialised with zeros, alive as long
        // as `self`, and shared as atomics only. Test: tests::calls::a_mapped_file_reads_as_its_memory.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), words) }
    }

    fn page(&self, index: usize) -> &[AtomicU64] {
        const WORDS: usize = PAGE_BYTES / WORD_BYTES;
        &self.words()[index * WORDS..(index + 1) * WORDS]
    }

    /// Copies a page, from its last word to its first.
    pub(super) fn copy_page(&self, index: usize, bytes: &mut PageBytes) {
        for (word, from) in bytes.chunks_exact_mut(WORD_BYTES).zip(self.page(index)).rev() {
            word.copy_from_slice(&from.load(Ordering::Acquire).to_ne_bytes());
        }
    }

    /// Copies bytes; `offset` and the length are within the mapping.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) {
        let mut at = offset as usize;
        let mut rest = buffer;
        while !rest.is_empty() {
            let within = at % WORD_BYTES;
            let n = rest.len().min(WORD_BYTES - within);
            let word = self.words()[at / WORD_BYTES].load(Ordering::Acquire).to_ne_bytes();
            let (part, behind) = rest.split_at_mut(n);
            part.copy_from_slice(&word[within..within + n]);
            at += n;
            rest = behind;
        }
    }

    /// Zeroes everything from byte `from`.
    pub(super) fn clear_from(&self, from: u64) {
        let end = self.pages() * PAGE_BYTES;
        let from = usize::try_from(from).unwrap_or(end).min(end);
        for at in from..from.next_multiple_of(WORD_BYTES) {
            // SAFETY: below `end`, which is a multiple of the word; alive as long as `self`.
            // Test: tests::calls::truncating_a_mapped_file_clears_its_memory.
            unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(at)) }.store(0, Ordering::Release);
        }
        for word in &self.words()[from.div_ceil(WORD_BYTES)..] {
            word.store(0, Ordering::Release);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and freed here only.
        // Test: tests::calls::a_mapped_file_reads_as_its_memory.
        unsafe { dealloc(self.base.as_ptr(), Mapping::layout(self.bytes)) }
    }
}

/// A handle on a mapped file.
pub(super) struct MemRegion {
    pub(super) shared: Arc<Shared>,
    pub(super) inode: Arc<Inode>,
    pub(super) mapping: Arc<Mapping>,
    pub(super) path: PathBuf,
}

impl LogRegion for MemRegion {
    fn base(&self) -> *mut u8 {
        self.mapping.base.as_ptr()
    }

    fn bytes(&self) -> usize {
        self.mapping.bytes
    }

    /// By words: the range is rounded in to them.
    fn fill(&self, range: Range<usize>, _piece: usize) {
        for word in &self.mapping.words()[range.start.div_ceil(WORD_BYTES)..range.end / WORD_BYTES] {
            word.store(0, Ordering::Release);
        }
    }

    fn sync(&self, range: Range<usize>) -> Result<()> {
        region_range(&self.path, &range, self.mapping.bytes)?;
        let entered = self.shared.enter(Operation::SyncRegion, &self.path);
        let pages = range.start / PAGE_BYTES..pages_of(range.end as u64);
        let _world = self.shared.world.lock();
        let mut state = self.inode.state.lock();
        match entered {
            Ok(()) => state.sync(pages),
            Err(_) => state.fail_sync(pages),
        }
        entered
    }
}

impl Drop for MemRegion {
    fn drop(&mut self) {
        let _world = self.shared.world.lock();
        let mut state = self.inode.state.lock();
        // Counted under the lock that `map_log` holds when it hands out another: this handle and
        // the inode's own.
        if Arc::strong_count(&self.mapping) == 2 {
            state.pull_all();
            state.mapping = None;
        }
    }
}

/// Gives the file its length and maps it, sharing what is mapped already.
pub(super) fn map(
    shared: &Arc<Shared>,
    inode: &Arc<Inode>,
    path: PathBuf,
    bytes: usize,
) -> Result<MemRegion> {
    let mut state = inode.state.lock();
    let mapping = match &state.mapping {
        Some(mapping) if mapping.bytes() == bytes => {
            let mapping = mapping.clone();
            state.set_bytes(bytes as u64);
            mapping
        }
        Some(mapping) => {
            let now = mapping.bytes();
            return Err(Error::invalid(format!(
                "{} is mapped with {now} bytes, not {bytes}",
                path.display()
            )));
        }
        None => {
            state.set_bytes(bytes as u64);
            let mapping = Arc::new(Mapping::new(bytes, &state.current));
            state.mapping = Some(mapping.clone());
            mapping
        }
    };
    Ok(MemRegion { shared: shared.clone(), inode: inode.clone(), mapping, path })
}
