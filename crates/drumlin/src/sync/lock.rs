//! Mutex, condition variable and the one-word lock of the stripes, switched for loom.
//!
//! Place: used by whatever locks or waits. Tests: the stripes of `commit` exercise `RawLock`, also under loom.

#[cfg(not(loom))]
mod imp {
    use parking_lot::lock_api::RawMutex as _;
    pub use parking_lot::{Condvar, Mutex, MutexGuard};

    /// A lock of one byte without a guard: taken and released by hand.
    pub struct RawLock(parking_lot::RawMutex);

    impl Default for RawLock {
        fn default() -> Self {
            Self(parking_lot::RawMutex::INIT)
        }
    }

    impl RawLock {
        /// Takes the lock; spins shortly, then parks. Acquire.
        #[inline]
        pub fn lock(&self) {
            self.0.lock();
        }

        /// Gives the lock back. Release.
        ///
        /// # Safety
        /// The calling thread holds it.
        #[inline]
        #[allow(unsafe_code)]
        pub unsafe fn unlock(&self) {
            // SAFETY: the caller holds the lock. Test: commit::stripes.
            unsafe { self.0.unlock() }
        }
    }
}

#[cfg(loom)]
mod imp {
    use loom::sync::atomic::{AtomicBool, Ordering};

    /// The interface of `parking_lot::Mutex` over loom's.
    pub struct Mutex<T>(loom::sync::Mutex<T>);
    pub use loom::sync::MutexGuard;

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    /// The interface of `parking_lot::Condvar`, by yielding.
    #[derive(Default)]
    pub struct Condvar;

    impl Condvar {
        pub fn new() -> Self {
            Self
        }
        pub fn notify_all(&self) -> usize {
            0
        }
        pub fn notify_one(&self) -> bool {
            false
        }
    }

    pub struct RawLock(AtomicBool);

    impl Default for RawLock {
        fn default() -> Self {
            Self(AtomicBool::new(false))
        }
    }

    impl RawLock {
        pub fn lock(&self) {
            while self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
                loom::thread::yield_now();
            }
        }
        /// # Safety
        /// The calling thread holds it.
        #[allow(unsafe_code)]
        pub unsafe fn unlock(&self) {
            self.0.store(false, Ordering::Release);
        }
    }
}

pub use imp::{Condvar, Mutex, MutexGuard, RawLock};
