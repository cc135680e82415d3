//! Parking on an address: wait until a word changes, without polling.
//!
//! A waiter publishes "somebody waits" in the word itself (a flag bit, set by compare-and-swap),
//! then parks while the word still shows the flag; whoever changes the word swaps it and, if the
//! flag was set, wakes the address. The queue's own lock closes the gap between check and sleep.

/// Checks `done` a few dozen times, for what is over in nanoseconds; the caller then parks.
pub fn spin_until(done: impl Fn() -> bool) {
    for _ in 0..40 {
        if done() {
            return;
        }
        #[cfg(not(loom))]
        #[allow(clippy::disallowed_methods, reason = "the one place that spins")]
        std::hint::spin_loop();
        #[cfg(loom)]
        return;
    }
}

/// Parks the calling thread at `address` while `still()` holds when checked under the queue's
/// lock. Returns when woken, or at once if `still()` is false. The caller checks its condition
/// again: a wake may be spurious.
#[cfg(not(loom))]
#[allow(unsafe_code)]
pub fn park_until<T>(address: &T, still: impl Fn() -> bool) {
    // SAFETY: `still` neither panics nor parks; the key is the address of a live value that the
    // waker names too. Test: commit::slots::tests.
    unsafe {
        parking_lot_core::park(
            std::ptr::from_ref(address) as usize,
            still,
            || {},
            |_, _| {},
            parking_lot_core::DEFAULT_PARK_TOKEN,
            None,
        );
    }
}

/// Wakes every thread parked at `address`.
#[cfg(not(loom))]
#[allow(unsafe_code)]
pub fn wake_all<T>(address: &T) {
    // SAFETY: the key is the address of a live value; the token is plain data.
    unsafe {
        parking_lot_core::unpark_all(
            std::ptr::from_ref(address) as usize,
            parking_lot_core::DEFAULT_UNPARK_TOKEN,
        );
    }
}

/// Under the model checker waiting is yielding.
#[cfg(loom)]
pub fn park_until<T>(_address: &T, still: impl Fn() -> bool) {
    if still() {
        loom::thread::yield_now();
    }
}

/// Under the model checker there is nobody to wake.
#[cfg(loom)]
pub fn wake_all<T>(_address: &T) {}
