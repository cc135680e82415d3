//! Iterators that threads keep between scans, brought up to date by a refresh instead of being made anew.
//!
//! Place: `rocksdb`, in the setting that says so.
//!
//! 1. A scan sees what was there when it began: the refresh comes first.
//! 2. No iterator outlives the store: whoever has both drops this first.
//!
//! Concurrency: a thread has a slot of its own; should two have the same, one makes an iterator of its own.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::rocksdb::{DBRawIteratorWithThreadMode, Error};

use super::base::Base;

const SLOTS: usize = 64;

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SLOT: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS);
}

type Kept<D> = Mutex<Option<DBRawIteratorWithThreadMode<'static, D>>>;

/// The slots.
pub struct Iterators<D: Base>(Box<[Kept<D>]>);

impl<D: Base> Default for Iterators<D> {
    fn default() -> Iterators<D> {
        Iterators((0..SLOTS).map(|_| Mutex::new(None)).collect())
    }
}

impl<D: Base> Iterators<D> {
    /// Calls `scan` with an iterator that sees all there is now.
    ///
    /// # Safety
    /// `self` is dropped before the store that `make` makes iterators of.
    pub unsafe fn with<'a, T>(
        &self,
        make: impl Fn() -> DBRawIteratorWithThreadMode<'a, D>,
        scan: impl FnOnce(&mut DBRawIteratorWithThreadMode<'_, D>) -> T,
    ) -> Result<T, Error> {
        let Ok(mut slot) = self.0[SLOT.get()].try_lock() else { return Ok(scan(&mut make())) };
        match &mut *slot {
            Some(kept) => {
                kept.refresh()?;
                Ok(scan(kept))
            }
            empty => {
                // SAFETY: only the lifetime changes, and the caller keeps the store until `self` has gone; the tests scan with
                // kept iterators in tests/engines.rs.
                let made: DBRawIteratorWithThreadMode<'static, D> = unsafe { std::mem::transmute(make()) };
                Ok(scan(empty.insert(made)))
            }
        }
    }
}
