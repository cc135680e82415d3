//! A pointer to the current one of something that is replaced now and then and read all the time.
//!
//! Place: `superversion` has one per keyspace. A load writes nothing shared.
//!
//! Invariant (I5): what was replaced is freed past every epoch that was pinned before, so whoever
//! loaded it under a guard may use it for as long as the guard is pinned.
//!
//! Orderings: `SEE` for loads, `REPLACE` for replacements: who sees the pointer sees what it points to.
//! Under the model checker a pointer of its own stands in, with the same orderings, which keeps
//! everything until it is dropped.
//!
//! Tests: `superversion::tests`, `loom_tests`.
#![allow(unsafe_code)]

use crossbeam_epoch::Guard;

use crate::sync::atomic::Ordering;

const SEE: Ordering = Ordering::Acquire;
const REPLACE: Ordering = Ordering::AcqRel;

#[cfg(not(loom))]
mod imp {
    use super::*;
    use crossbeam_epoch::{self as epoch, Owned, Shared};

    /// See the module.
    pub(crate) struct Pointer<T>(epoch::Atomic<T>);

    impl<T: Send + Sync> Pointer<T> {
        pub fn new(first: T) -> Self {
            Self(epoch::Atomic::new(first))
        }

        /// The current one, valid while `guard` is pinned.
        #[inline]
        pub fn load<'g>(&self, guard: &'g Guard) -> &'g T {
            let shared = self.0.load(SEE, guard);
            // SAFETY: never null (made in `new`, replaced in `replace`), and freed only by
            // `defer_destroy`, past every guard pinned before the replacement.
            // Test: superversion::tests, tests/model.rs.
            unsafe { shared.deref() }
        }

        /// Puts another in its place. One caller at a time.
        pub fn replace(&self, next: T, guard: &Guard) {
            let old = self.0.swap(Owned::new(next), REPLACE, guard);
            // SAFETY: `old` is unreachable for whoever pins from now on. Test: superversion::tests.
            unsafe { guard.defer_destroy(old) };
            guard.flush();
        }
    }

    impl<T> Drop for Pointer<T> {
        fn drop(&mut self) {
            // SAFETY: `&mut self`: nobody else can load the pointer any more.
            // Test: superversion::tests.
            unsafe {
                let shared: Shared<'_, T> = self.0.load(Ordering::Relaxed, epoch::unprotected());
                drop(shared.into_owned());
            }
        }
    }
}

#[cfg(loom)]
mod imp {
    use super::*;
    use crate::sync::atomic::AtomicPtr;

    /// See the module.
    pub(crate) struct Pointer<T> {
        now: AtomicPtr<T>,
        all: std::sync::Mutex<Vec<*mut T>>,
    }

    // SAFETY: hands out shared references only, to values that live as long as it does.
    // Test: every one of `loom_tests`.
    unsafe impl<T: Send + Sync> Send for Pointer<T> {}
    // SAFETY: as above.
    unsafe impl<T: Send + Sync> Sync for Pointer<T> {}

    impl<T: Send + Sync> Pointer<T> {
        pub fn new(first: T) -> Self {
            let first = Box::into_raw(Box::new(first));
            Self { now: AtomicPtr::new(first), all: vec![first].into() }
        }

        pub fn load<'g>(&self, _guard: &'g Guard) -> &'g T {
            // SAFETY: kept until the model is over. Test: every one of `loom_tests`.
            unsafe { &*self.now.load(SEE) }
        }

        pub fn replace(&self, next: T, _guard: &Guard) {
            let next = Box::into_raw(Box::new(next));
            self.all.lock().expect("loom ends the model at the first panic").push(next);
            self.now.swap(next, REPLACE);
        }
    }

    impl<T> Drop for Pointer<T> {
        fn drop(&mut self) {
            for value in self.all.lock().expect("as above").drain(..) {
                // SAFETY: made by `Box::into_raw`, listed once. Test: every one of `loom_tests`.
                drop(unsafe { Box::from_raw(value) });
            }
        }
    }
}

pub(crate) use imp::Pointer;
