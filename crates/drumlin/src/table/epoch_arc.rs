//! A shared pointer that is replaced while others read it.
//!
//! Place: a table's resident parts, opened on first use and dropped under memory pressure.
//!
//! Invariants: the pointer is null or owns one count of its `Arc`; a count that is taken out is
//! given back only after every thread that was pinned then has moved on.
//!
//! Concurrency: `replace` publishes with Release and retires through the epoch; `load` consumes
//! with Acquire and may be read as long as the guard lives. Tests: below.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use crossbeam_epoch::Guard;

/// An optional `Arc<T>` behind one atomic pointer.
pub(super) struct EpochArc<T: Send + Sync + 'static> {
    pointer: AtomicPtr<T>,
    owns: PhantomData<Arc<T>>,
}

impl<T: Send + Sync + 'static> EpochArc<T> {
    /// Holds nothing.
    pub(super) fn empty() -> EpochArc<T> {
        EpochArc { pointer: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// What it holds, readable while pinned.
    #[inline]
    pub(super) fn load<'g>(&'g self, _guard: &'g Guard) -> Option<&'g T> {
        // SAFETY: null or from `Arc::into_raw`; its count is given back only after the epoch of
        // `_guard`. Test: readers_hold_what_they_loaded.
        unsafe { self.pointer.load(Ordering::Acquire).as_ref() }
    }

    /// A count of its own of what it holds.
    pub(super) fn get(&self) -> Option<Arc<T>> {
        let _guard = crossbeam_epoch::pin();
        let pointer = self.pointer.load(Ordering::Acquire);
        if pointer.is_null() {
            return None;
        }
        // SAFETY: from `Arc::into_raw`, and while pinned its count is not given back, so it is at
        // least 1 when another is added. Test: readers_hold_what_they_loaded.
        unsafe {
            Arc::increment_strong_count(pointer);
            Some(Arc::from_raw(pointer))
        }
    }

    /// Puts `value` in and retires what was there.
    pub(super) fn replace(&self, value: Option<Arc<T>>) {
        let new = value.map_or(ptr::null_mut(), |value| Arc::into_raw(value).cast_mut());
        let guard = crossbeam_epoch::pin();
        let old = self.pointer.swap(new, Ordering::AcqRel);
        if old.is_null() {
            return;
        }
        // SAFETY: from `Arc::into_raw`, taken out above, so given back once. `T` is Send, so any
        // thread may drop it. Test: readers_hold_what_they_loaded.
        unsafe {
            let old = Arc::from_raw(old);
            guard.defer_unchecked(move || drop(old));
        }
    }
}

impl<T: Send + Sync + 'static> Drop for EpochArc<T> {
    fn drop(&mut self) {
        let pointer = *self.pointer.get_mut();
        if !pointer.is_null() {
            // SAFETY: from `Arc::into_raw`; nobody else can reach `self`, and a reader that loaded
            // from it borrowed it. Test: readers_hold_what_they_loaded.
            drop(unsafe { Arc::from_raw(pointer) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn readers_hold_what_they_loaded() {
        let cell = EpochArc::<Vec<u64>>::empty();
        assert!(cell.get().is_none());
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let guard = crossbeam_epoch::pin();
                        if let Some(numbers) = cell.load(&guard) {
                            assert!(numbers.iter().all(|&n| n == numbers[0]));
                        }
                        drop(guard);
                        if let Some(numbers) = cell.get() {
                            assert!(numbers.iter().all(|&n| n == numbers[0]));
                        }
                    }
                });
            }
            for n in 0..20_000u64 {
                cell.replace((n % 5 != 0).then(|| Arc::new(vec![n; 20])));
            }
            stop.store(true, Ordering::Relaxed);
        });
        let last = Arc::new(vec![1]);
        cell.replace(Some(last.clone()));
        assert_eq!(Arc::strong_count(&last), 2);
        drop(cell);
        assert_eq!(Arc::strong_count(&last), 1, "the count is given back");
    }
}
