//! Ctrl-C: stop at the next record, say what is safe, exit with 130.
//!
//! Place: installed by `main`; asked by the loops of `load`, `scan`, `count` and `tour`.
//!
//! 1. The first Ctrl-C asks the command to stop. If it has not within [`GRACE`] (it may wait for
//!    standard input, or be inside a long call), the process exits where it stands: for the store that
//!    is a SIGKILL, which everything acknowledged survives.
//! 2. The second Ctrl-C does not wait.
//!
//! Concurrency: the handler runs on a thread of its own, not in signal context. `ASKED` is a plain
//! flag (Relaxed: nothing is published by it); `DONE` is guarded by its mutex.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::failure::{Failure, Result};

/// How long a command may take to stop by itself.
const GRACE: Duration = Duration::from_secs(2);
/// Exit code of an interrupted command: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

static ASKED: AtomicBool = AtomicBool::new(false);
static DONE: Mutex<bool> = Mutex::new(false);
static CHANGED: Condvar = Condvar::new();

/// Starts listening for Ctrl-C.
pub fn install() {
    // Without a handler Ctrl-C kills the process as it would any other: no reason to fail.
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED);
        }
        // The wait is apart, so that a second Ctrl-C is heard.
        let waiter = std::thread::Builder::new().name("interrupt".into()).spawn(|| {
            let done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = CHANGED.wait_timeout_while(done, GRACE, |done| !*done);
            if !*waited.unwrap_or_else(PoisonError::into_inner).0 {
                crate::output::tell("interrupted");
                std::process::exit(INTERRUPTED);
            }
        });
        if waiter.is_err() {
            std::process::exit(INTERRUPTED);
        }
    });
}

/// Whether Ctrl-C was pressed.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Fails with [`Failure::Interrupted`] if Ctrl-C was pressed.
pub fn check() -> Result<()> {
    if asked() { Err(Failure::Interrupted) } else { Ok(()) }
}

/// The command has ended: its own exit code counts from here on.
pub fn finished() {
    *DONE.lock().unwrap_or_else(PoisonError::into_inner) = true;
    CHANGED.notify_all();
}
