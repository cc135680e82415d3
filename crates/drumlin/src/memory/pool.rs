//! What the memtables of a store share: the account that they are charged to, and the memory of those that are gone.
//!
//! Place: `db::memory` owns one; every `Arena` takes its large chunks from it and gives them back to it, and hashes and filters
//! their [`Words`]. It takes memory from `pages`.
//!
//! A page that comes from the system is cleared first, which is a seventh of what a put costs, and on a virtual machine whose
//! host has to find the page it stops a put for milliseconds; memory that was written before is ready. So what a memtable used
//! up waits here for the next one, which asks for the same sizes. Words are 0 again by then: whoever frees them sees to it, in
//! the background.
//!
//! Invariants:
//! 1. A chunk is here or in one arena, words here or in one hash or filter. At least half of what is here is resident; it counts
//!    as if all were.
//! 2. `idle` is the bytes of what is here. `residue` is those of used chunks that an arena took and has not handed out yet: they
//!    are resident, and no memtable is charged for them. Words are charged for as a whole by who takes them.
//! 3. Something is kept only while everything that memtables hold, with `idle` and `residue`, is within their share, and `idle`
//!    within half of it. What is beyond that goes back to the system.
//! 4. A used chunk is given out only while that leaves memtables within three quarters of their share: it counts as a whole
//!    from then on, where a fresh one counts as it is used. One that is asked for beyond that goes back to the system.
//!
//! Concurrency: sums are Relaxed, as in `budget`; what is here is under locks that are held for a push or a pop, asked for once
//! per chunk of 2 MiB or more, and for as many words.
//! Tests: below, `arena`, tests/memory.rs.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ops::Deref;
use std::sync::Arc;

use crate::budget::{Account, Charge};
use crate::pages::{self, PageVec, Pages, zeroed_words};
use crate::sync::Mutex;
use crate::sync::atomic::AtomicU64;

/// Of the share, in percent: beyond it a chunk that is resident as a whole would make writers wait early.
const TAKEN_UNTIL_PERCENT: usize = 75;

/// See the module.
#[derive(Default)]
pub struct Pool {
    /// Bytes handed out by all memtables that are not freed.
    account: Arc<Account>,
    /// Bytes that they may take; 0 for none that comes back.
    share: usize,
    idle: Account,
    residue: Account,
    chunks: Mutex<Vec<Chunk>>,
    words: Mutex<Vec<PageVec<AtomicU64>>>,
}

/// Words that began as 0, charged to the account of a pool, to which they go back.
pub(super) struct Words {
    words: PageVec<AtomicU64>,
    charge: Option<Charge>,
    pool: Arc<Pool>,
}

impl Words {
    /// So many.
    pub(super) fn new(count: usize, pool: &Arc<Pool>) -> Words {
        let words = pool.take_words(count);
        let charge = Some(pool.account.charge(bytes_of(count)));
        pool.make_room();
        Words { words, charge, pool: Arc::clone(pool) }
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        &self.words
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // No more in use, before it is idle.
        self.charge = None;
        self.pool.keep_words(std::mem::replace(&mut self.words, PageVec::new_in(Pages)));
    }
}

/// A chunk of nobody.
struct Chunk {
    base: *mut u8,
    layout: Layout,
}

// SAFETY: a pointer to memory that nobody else knows. Test: what_was_given_back_is_taken_again.
unsafe impl Send for Chunk {}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: made by `pages::chunk` with this layout, asserted by who gave it back; nobody's since.
        // Test: what_was_given_back_is_taken_again, under the address sanitizer.
        unsafe { pages::give_back(self.base, self.layout) };
    }
}

/// Fewer words come from the system faster than from here.
fn is_kept(count: usize) -> bool {
    bytes_of(count) >= pages::HUGE_PAGE_BYTES
}

fn bytes_of(count: usize) -> usize {
    count * size_of::<AtomicU64>()
}

impl Pool {
    /// Of memtables that may take `share` bytes.
    pub fn new(share: usize) -> Pool {
        Pool { share, account: Arc::new(Account::bounded(share)), ..Pool::default() }
    }

    /// What memtables hold is charged to it.
    #[inline]
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Bytes that memtables hold, with those of their chunks that are resident before they are handed out.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.account.bytes() + self.residue.bytes()
    }

    /// Bytes that memtables may take yet.
    pub(super) fn room(&self) -> usize {
        self.account.room().saturating_sub(self.residue.bytes())
    }

    /// Bytes that are resident for memtables to come, or for what is still to be written to those there are.
    pub fn spare_bytes(&self) -> usize {
        self.idle.bytes() + self.residue.bytes()
    }

    /// A chunk of this layout, its bytes whatever they are: one that was used, and true, if there is one. It is residue
    /// until it is [settled](Pool::settle).
    pub(super) fn take(&self, layout: Layout) -> (*mut u8, bool) {
        let used = self
            .find(layout)
            .filter(|_| self.bytes() + layout.size() <= self.share / 100 * TAKEN_UNTIL_PERCENT);
        let Some(used) = used else { return (pages::chunk(layout), false) };
        self.residue.add(layout.size());
        (std::mem::ManuallyDrop::new(used).base, true)
    }

    fn find(&self, layout: Layout) -> Option<Chunk> {
        if self.idle.bytes() == 0 {
            return None;
        }
        let mut chunks = self.chunks.lock();
        let at = chunks.iter().position(|chunk| chunk.layout == layout)?;
        self.idle.give_back(layout.size());
        Some(chunks.swap_remove(at))
    }

    /// So many words that are 0: some that were given back, if there are such, else fresh ones.
    fn take_words(&self, count: usize) -> PageVec<AtomicU64> {
        let kept = || {
            let mut words = self.words.lock();
            let at = words.iter().position(|words| words.len() == count)?;
            self.idle.give_back(bytes_of(count));
            Some(words.swap_remove(at))
        };
        let kept = if self.idle.bytes() > 0 && is_kept(count) { kept() } else { None };
        kept.unwrap_or_else(|| zeroed_words(count))
    }

    /// Takes words back, for another to take if there is room, else for the system.
    fn keep_words(&self, words: PageVec<AtomicU64>) {
        let bytes = bytes_of(words.len());
        if !is_kept(words.len()) || !self.has_room_for(bytes) {
            return;
        }
        // Loom's words are never so many.
        #[cfg(not(loom))]
        {
            let mut words = words;
            words.iter_mut().for_each(|word| *word.get_mut() = 0);
            let mut kept = self.words.lock();
            self.idle.add(bytes);
            kept.push(words);
        }
    }

    /// True if so many bytes more may be idle.
    fn has_room_for(&self, bytes: usize) -> bool {
        let idle = self.idle.bytes() + bytes;
        idle <= self.share / 2 && self.bytes() + idle <= self.share
    }

    /// So many bytes of a chunk that was taken used are no residue any more: they are handed out, or it is given back.
    pub(super) fn settle(&self, bytes: usize) {
        self.residue.give_back(bytes);
    }

    /// More was charged to the account: what is idle goes where it is too much.
    #[inline]
    pub(super) fn make_room(&self) {
        while self.idle.bytes() > 0 && self.bytes() + self.idle.bytes() > self.share {
            let chunk = self.chunks.lock().pop().map(|chunk| chunk.layout.size());
            let freed = chunk.or_else(|| self.words.lock().pop().map(|words| bytes_of(words.len())));
            let Some(freed) = freed else { return };
            self.idle.give_back(freed);
        }
    }

    /// Takes a chunk back, for another to take if it `is_resident` as a whole and there is room, else for the system.
    ///
    /// # Safety
    /// [`Pool::take`] gave it for this layout, and nobody uses it any more. What of it was residue is settled, and what was
    /// charged for it given back.
    pub(super) unsafe fn give_back(&self, base: *mut u8, layout: Layout, is_resident: bool) {
        let chunk = Chunk { base, layout };
        if is_resident && self.has_room_for(layout.size()) {
            let mut chunks = self.chunks.lock();
            self.idle.add(layout.size());
            chunks.push(chunk);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn layout(mib: usize) -> Layout {
        Layout::from_size_align(mib << 20, pages::HUGE_PAGE_BYTES).expect("a power of two")
    }

    #[test]
    fn what_was_given_back_is_taken_again() {
        let pool = Pool::new(32 << 20);
        let (base, used) = pool.take(layout(2));
        assert!(!used);
        // SAFETY: taken for this layout, and given back once each time.
        unsafe { pool.give_back(base, layout(2), true) };
        assert_eq!((pool.spare_bytes(), pool.bytes()), (2 << 20, 0));
        let (other, used) = pool.take(layout(4));
        assert!(!used, "of another size");
        assert_eq!(pool.take(layout(2)), (base, true));
        assert_eq!(
            (pool.spare_bytes(), pool.bytes()),
            (2 << 20, 2 << 20),
            "as long as nothing of it is handed out"
        );
        pool.settle(2 << 20);
        assert_eq!(pool.spare_bytes(), 0);
        // SAFETY: as above.
        unsafe {
            pool.give_back(base, layout(2), true);
            pool.give_back(other, layout(4), false);
        }
        assert_eq!(pool.spare_bytes(), 2 << 20, "what is not resident goes to the system");
    }

    #[test]
    fn words_that_come_back_are_zero_and_are_counted() {
        use crate::sync::atomic::Ordering::Relaxed;
        const COUNT: usize = pages::HUGE_PAGE_BYTES / 8;
        let pool = Arc::new(Pool::new(8 << 20));
        let words = Words::new(COUNT, &pool);
        assert_eq!((pool.bytes(), pool.spare_bytes()), (2 << 20, 0));
        words.iter().for_each(|word| word.store(7, Relaxed));
        let place = words.as_ptr();
        drop(words);
        assert_eq!((pool.bytes(), pool.spare_bytes()), (0, 2 << 20));
        drop(Words::new(COUNT / 2, &pool));
        assert_eq!(pool.spare_bytes(), 2 << 20, "few are not kept");
        let again = Words::new(COUNT, &pool);
        assert_eq!((again.as_ptr(), pool.bytes(), pool.spare_bytes()), (place, 2 << 20, 0));
        assert!(again.iter().all(|word| word.load(Relaxed) == 0));
        let others = [Words::new(COUNT, &pool), Words::new(COUNT, &pool)];
        drop(again);
        drop(others);
        assert_eq!(pool.spare_bytes(), 4 << 20, "half of the share");
        let charge = pool.account().charge(5 << 20);
        pool.make_room();
        assert_eq!(pool.spare_bytes(), 2 << 20);
        drop(charge);
    }

    #[test]
    fn what_is_kept_stays_within_the_share() {
        let pool = Pool::new(16 << 20);
        let chunks: Vec<*mut u8> = (0..6).map(|_| pool.take(layout(2)).0).collect();
        // SAFETY: taken for this layout, given back once.
        chunks.into_iter().for_each(|base| unsafe { pool.give_back(base, layout(2), true) });
        assert_eq!(pool.spare_bytes(), 8 << 20, "half of it");
        let charge = pool.account().charge(11 << 20);
        pool.make_room();
        assert_eq!(pool.spare_bytes(), 4 << 20, "and with all that memtables hold the whole");
        let (base, used) = pool.take(layout(2));
        assert!(!used, "it would be near the bound at once");
        drop(charge);
        let more = pool.account().charge(14 << 20);
        // SAFETY: as above.
        unsafe { pool.give_back(base, layout(2), true) };
        pool.make_room();
        assert_eq!(pool.spare_bytes(), 2 << 20);
        drop(more);
        let none = Pool::default();
        let (base, _) = none.take(layout(2));
        // SAFETY: as above.
        unsafe { none.give_back(base, layout(2), true) };
        assert_eq!(none.spare_bytes(), 0);
    }
}
