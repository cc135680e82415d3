//! The whole store under faults: crashes at every call, failures, a full device, rotten bytes.
//!
//! Place: tests of `db` over `env::MemFs`. `workload` is what is done to the store and what must be
//! there afterwards; `recovery` opens what a crash left and judges it; the rest are the tests.

mod carried;
mod closing;
mod crash;
mod dropping;
mod ends;
mod failures;
mod full;
mod jobs;
mod killed;
mod lost;
mod places;
mod recovery;
mod rot;
mod scarce;
mod starving;
mod stopped;
mod verify;
mod workload;
mod writers;

use std::sync::mpsc;
use std::time::Duration;

/// Runs `body` and fails the test if it takes longer: nothing may wait for ever.
fn within<T: Send>(limit: Duration, what: &str, body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let (done, is_done) = mpsc::channel();
        let worker = scope.spawn(move || {
            let result = body();
            let _ = done.send(());
            result
        });
        if matches!(is_done.recv_timeout(limit), Err(mpsc::RecvTimeoutError::Timeout)) {
            // The scope would wait for it for ever.
            eprintln!("{what} hangs: not done after {limit:?}");
            std::process::abort();
        }
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The number in a variable of the environment, which makes a test heavy.
fn rounds(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
