//! A file's bytes as pages that are shared until written.
//!
//! Place: the current and the durable content of every file of `memory`.
//!
//! Invariants:
//! 1. Bytes of the last page behind the length are zero; a page of only zeros may be absent.
//! 2. Two contents that share a page by pointer have the same bytes in it; the other way round
//!    need not hold. "Unsynced" is a difference of pointers, so it errs towards unsynced.
//! 3. A copy of a content costs one counter; a write copies the list of pages and the page it
//!    touches only while they are shared.

use std::sync::Arc;

use super::super::PAGE_BYTES;

/// The bytes of one page.
pub(super) type PageBytes = [u8; PAGE_BYTES];

/// A page; `None` is all zeros.
pub(super) type Page = Option<Arc<PageBytes>>;

const ZEROS: PageBytes = [0; PAGE_BYTES];

/// True if both are the same page, without looking at the bytes.
pub(super) fn same_page(a: &Page, b: &Page) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        _ => false,
    }
}

/// The bytes of a page.
pub(super) fn page_bytes(page: &Page) -> &PageBytes {
    page.as_deref().unwrap_or(&ZEROS)
}

/// A page of the given bytes.
pub(super) fn new_page(bytes: &PageBytes) -> Page {
    if *bytes == ZEROS { None } else { Some(Arc::new(*bytes)) }
}

/// Pages that hold `bytes` bytes.
pub(super) fn pages_of(bytes: u64) -> usize {
    bytes.div_ceil(PAGE_BYTES as u64) as usize
}

/// A file's bytes.
#[derive(Clone, Default)]
pub(super) struct Content {
    bytes: u64,
    pages: Arc<Vec<Page>>,
}

impl Content {
    /// Length in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if both are the same content, without looking at the bytes.
    pub(super) fn is_same(&self, other: &Content) -> bool {
        self.bytes == other.bytes && Arc::ptr_eq(&self.pages, &other.pages)
    }

    /// Number of pages.
    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// The page at `index`; zeros behind the end.
    pub(super) fn page(&self, index: usize) -> &Page {
        self.pages.get(index).unwrap_or(&None)
    }

    /// Replaces a page within the length. The bytes behind the length become zero.
    pub(super) fn set_page(&mut self, index: usize, page: Page) {
        Arc::make_mut(&mut self.pages)[index] = page;
        if index + 1 == self.pages.len() {
            self.clear_tail();
        }
    }

    /// Cuts, or extends with zeros.
    pub(super) fn set_bytes(&mut self, bytes: u64) {
        if bytes == self.bytes {
            return;
        }
        let cut = bytes < self.bytes;
        self.bytes = bytes;
        if self.pages.len() != pages_of(bytes) {
            Arc::make_mut(&mut self.pages).resize(pages_of(bytes), None);
        }
        if cut {
            self.clear_tail();
        }
    }

    /// Zeroes the last page behind the length.
    fn clear_tail(&mut self) {
        let used = (self.bytes % PAGE_BYTES as u64) as usize;
        let is_clear = |page: &Page| used == 0 || page_bytes(page)[used..].iter().all(|b| *b == 0);
        if self.pages.last().is_none_or(is_clear) {
            return;
        }
        if let Some(Some(page)) = Arc::make_mut(&mut self.pages).last_mut() {
            Arc::make_mut(page)[used..].fill(0);
        }
    }

    /// Adds bytes at the end.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        let start = self.bytes;
        self.bytes += bytes.len() as u64;
        Arc::make_mut(&mut self.pages).resize(pages_of(self.bytes), None);
        self.write(start, bytes);
    }

    /// Overwrites bytes within the length.
    pub(super) fn write(&mut self, offset: u64, mut bytes: &[u8]) {
        let pages = Arc::make_mut(&mut self.pages);
        let mut index = (offset / PAGE_BYTES as u64) as usize;
        let mut within = (offset % PAGE_BYTES as u64) as usize;
        while !bytes.is_empty() {
            let n = bytes.len().min(PAGE_BYTES - within);
            let page = pages[index].get_or_insert_with(|| Arc::new(ZEROS));
            Arc::make_mut(page)[within..within + n].copy_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            index += 1;
            within = 0;
        }
    }

    /// Copies bytes from `offset` until `buffer` is full or the content ends; the bytes copied.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let wanted = self.bytes.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            let within = (at % PAGE_BYTES as u64) as usize;
            let n = (wanted - done).min(PAGE_BYTES - within);
            let page = page_bytes(self.page((at / PAGE_BYTES as u64) as usize));
            buffer[done..done + n].copy_from_slice(&page[within..within + n]);
            done += n;
        }
        wanted
    }
}
