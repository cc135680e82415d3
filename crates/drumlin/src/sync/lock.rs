//! Mutex and condition variable, switched for loom.

#[cfg(not(loom))]
mod imp {
    use std::time::Duration;

    pub use parking_lot::{Mutex, MutexGuard};

    /// A condition variable.
    #[derive(Default)]
    pub struct Condvar(parking_lot::Condvar);

    impl Condvar {
        /// Nobody waits.
        pub const fn new() -> Self {
            Self(parking_lot::Condvar::new())
        }
        /// Wakes all who wait.
        pub fn notify_all(&self) -> usize {
            self.0.notify_all()
        }
        /// Gives the lock up, waits, takes it again.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            self.0.wait(guard);
        }
        /// As `wait`, for at most `time`. True if the time ran out.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> bool {
            self.0.wait_for(guard, time).timed_out()
        }
        /// As `wait`, for a guard of `mutex`; works under the model checker too.
        pub fn wait_on<'a, T>(
            &self,
            _mutex: &'a Mutex<T>,
            mut guard: MutexGuard<'a, T>,
        ) -> MutexGuard<'a, T> {
            self.0.wait(&mut guard);
            guard
        }
    }
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
        /// Takes the lock if it is free.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    /// The condition variable under the model checker: who waits through `wait_on` stands still until
    /// it is woken, so that a lost wake-up is a deadlock, which the checker reports.
    pub struct Condvar(loom::sync::Condvar);

    impl Default for Condvar {
        fn default() -> Self {
            Self::new()
        }
    }

    impl Condvar {
        /// Nobody waits.
        pub fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }
        /// Wakes all who wait.
        pub fn notify_all(&self) -> usize {
            self.0.notify_all();
            0
        }
        /// Yields, the lock held: nothing model-checked waits this way.
        pub fn wait<T>(&self, _guard: &mut MutexGuard<'_, T>) {
            loom::thread::yield_now();
        }
        /// As `wait`.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _time: std::time::Duration) -> bool {
            self.wait(guard);
            true
        }
        /// Gives the lock up, waits, takes it again.
        pub fn wait_on<'a, T>(&self, _mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).expect("loom ends the model at the first panic")
        }
    }
}

pub use imp::{Condvar, Mutex, MutexGuard};
