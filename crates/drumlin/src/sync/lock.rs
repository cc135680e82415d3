//! Mutex and condition variable, switched for loom.

#[cfg(not(loom))]
mod imp {
    pub use parking_lot::{Condvar, Mutex, MutexGuard};
}

#[cfg(loom)]
mod imp {
    pub use loom::sync::MutexGuard;

    /// The interface of `parking_lot::Mutex` over loom's.
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// A free lock.
        pub fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }
        /// Takes the lock.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("loom ends the model at the first panic")
        }
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    /// The interface of `parking_lot::Condvar`; nothing model-checked waits on one.
    #[derive(Default)]
    pub struct Condvar;

    impl Condvar {
        /// Nobody waits.
        pub fn new() -> Self {
            Self
        }
        /// Wakes nobody.
        pub fn notify_all(&self) -> usize {
            0
        }
        /// Wakes nobody.
        pub fn notify_one(&self) -> bool {
            false
        }
        /// Gives the lock up and takes it again.
        pub fn wait<T>(&self, _guard: &mut MutexGuard<'_, T>) {
            loom::thread::yield_now();
        }
    }
}

pub use imp::{Condvar, Mutex, MutexGuard};
