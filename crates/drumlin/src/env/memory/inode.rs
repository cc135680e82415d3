//! One file of the in-memory file system: what it holds now, and what a power loss leaves.
//!
//! Place: named by `names`, used by the handles, the mapped regions and `crash`.
//!
//! Invariants:
//! 1. While the file is mapped, the mapping's memory is its current content up to the length;
//!    `pull` brings it over. Otherwise `current` is.
//! 2. `durable` changes in `sync` only.
//! 3. A page that was dirty in a failed sync is in `lost` until written again: no later sync
//!    makes it durable, although it reports success (rule 4 of the medium).
//!
//! Concurrency: `state` is taken alone to read, and inside the file system's own lock by whatever
//! writes, so that a clone, which holds that lock, sees all files at one moment.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::super::PAGE_BYTES;
use super::content::{Content, Page, new_page, page_bytes, pages_of, same_page};
use super::region::Mapping;
use parking_lot::Mutex;

/// A file.
#[derive(Default)]
pub(super) struct Inode {
    pub(super) state: Mutex<FileState>,
}

/// What is known of a file.
#[derive(Default)]
pub(super) struct FileState {
    pub(super) current: Content,
    pub(super) durable: Content,
    pub(super) lost: BTreeMap<usize, Page>,
    pub(super) mapping: Option<Arc<Mapping>>,
    pub(super) locks: Locks,
}

/// Who holds the advisory lock of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Locks {
    #[default]
    Free,
    Shared(usize),
    Exclusive,
}

impl Inode {
    /// A file whose current content is durable.
    pub(super) fn durable(content: Content) -> Inode {
        let state = FileState { current: content.clone(), durable: content, ..FileState::default() };
        Inode { state: Mutex::new(state) }
    }
}

impl FileState {
    /// Brings the mapping's bytes into `current`. Pages and their words go from high to low: a
    /// store that follows another in a log lies above it, so whoever is seen has its cause seen.
    pub(super) fn pull(&mut self, pages: Range<usize>) {
        let Some(mapping) = &self.mapping else { return };
        let end = pages.end.min(self.current.pages());
        let mut bytes = [0; PAGE_BYTES];
        for index in (pages.start..end).rev() {
            mapping.copy_page(index, &mut bytes);
            if bytes == *page_bytes(self.current.page(index)) {
                continue;
            }
            let durable = self.durable.page(index);
            let page = if bytes == *page_bytes(durable) { durable.clone() } else { new_page(&bytes) };
            self.current.set_page(index, page);
        }
    }

    /// Brings the whole mapping into `current`.
    pub(super) fn pull_all(&mut self) {
        self.pull(0..usize::MAX);
    }

    /// Makes the given pages and the length durable.
    pub(super) fn sync(&mut self, pages: Range<usize>) {
        self.pull(pages.clone());
        if self.lost.is_empty() && pages.start == 0 && pages.end >= self.current.pages() {
            self.durable = self.current.clone();
            return;
        }
        self.durable.set_bytes(self.current.bytes());
        for index in pages.start..pages.end.min(self.current.pages()) {
            let page = self.current.page(index);
            if self.lost.get(&index).is_some_and(|lost| same_page(lost, page)) {
                continue;
            }
            // Written since: an ordinary page again.
            self.lost.remove(&index);
            if !same_page(page, self.durable.page(index)) {
                self.durable.set_page(index, page.clone());
            }
        }
    }

    /// What a failed sync of the given pages does: the system takes them for clean.
    pub(super) fn fail_sync(&mut self, pages: Range<usize>) {
        self.pull(pages.clone());
        for index in pages.start..pages.end.min(self.current.pages()) {
            let page = self.current.page(index);
            if !same_page(page, self.durable.page(index)) {
                self.lost.insert(index, page.clone());
            }
        }
    }

    /// Cuts, or extends with zeros.
    pub(super) fn set_bytes(&mut self, bytes: u64) {
        if let Some(mapping) = &self.mapping {
            mapping.clear_from(bytes);
        }
        self.current.set_bytes(bytes);
        self.lost.split_off(&pages_of(bytes));
    }

    /// Copies bytes from `offset`; the bytes copied before the end.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let Some(mapping) = &self.mapping else { return self.current.read(buffer, offset) };
        let wanted = self.current.bytes().saturating_sub(offset).min(buffer.len() as u64) as usize;
        mapping.read(&mut buffer[..wanted], offset);
        wanted
    }

    /// Bytes of whole pages that the file takes on the device.
    pub(super) fn device_bytes(&self) -> u64 {
        (self.current.pages() * PAGE_BYTES) as u64
    }
}
