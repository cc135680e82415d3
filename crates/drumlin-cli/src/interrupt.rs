//! Ctrl-C, SIGTERM and SIGHUP: stop at the next record, say what is safe, exit with 130.
//!
//! Place: installed by `main`; asked by the loops of `load`, `scan`, `count` and `tour`; told by `input::Stream`
//! how to end a wait for input.
//!
//! 1. The first signal asks the command to stop. If it has not within [`GRACE`] (it may be inside a long call),
//!    the process exits where it stands: for the store that is a SIGKILL, which everything acknowledged survives.
//! 2. The second signal does not wait.
//! 3. A SIGHUP that was ignored before (`nohup`) stays ignored.
//! 4. SIGXFSZ kills nobody: the write that was too much fails, and its error is told.
//!
//! Concurrency: a thread waits for signals, none runs in signal context. `ASKED` is set before the bells are rung;
//! a bell added later is rung at once if it is set, so no wait for input misses it. `DONE` is guarded by its mutex.

use std::ffi::c_int;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, Result};

/// How long a command may take to stop by itself.
const GRACE: Duration = Duration::from_secs(2);
/// Exit code of an interrupted command: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

static ASKED: AtomicBool = AtomicBool::new(false);
static DONE: Mutex<bool> = Mutex::new(false);
static CHANGED: Condvar = Condvar::new();
static BELLS: Mutex<Vec<Bell>> = Mutex::new(Vec::new());

/// Ends a wait.
type Bell = Box<dyn Fn() + Send>;

/// Starts listening. `last_words` tells the user that a command was ended that did not stop by itself.
pub fn install(last_words: impl Fn() + Send + Sync + Clone + 'static) {
    // Without this a signal kills the process as it would any other: no reason to fail.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    let mut heard = vec![SIGINT, SIGTERM];
    if !is_ignored(SIGHUP) {
        heard.push(SIGHUP);
    }
    let Ok(mut signals) = Signals::new(heard) else { return };
    let listen = move || {
        for _ in signals.forever() {
            if ASKED.swap(true, Ordering::SeqCst) {
                std::process::exit(INTERRUPTED);
            }
            BELLS.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|bell| bell());
            // The wait is apart, so that a second signal is heard.
            let last_words = last_words.clone();
            let waiter = thread::Builder::new().name("interrupt".into()).spawn(move || {
                let done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = CHANGED.wait_timeout_while(done, GRACE, |done| !*done);
                if !*waited.unwrap_or_else(PoisonError::into_inner).0 {
                    last_words();
                    std::process::exit(INTERRUPTED);
                }
            });
            if waiter.is_err() {
                std::process::exit(INTERRUPTED);
            }
        }
    };
    let _ = thread::Builder::new().name("signals".into()).spawn(listen);
}

/// Whether who started the program had it ignore this signal.
fn is_ignored(signal: c_int) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Whether the command was asked to stop.
pub fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}

/// Fails with [`Failure::Interrupted`] if the command was asked to stop.
pub fn check() -> Result<()> {
    if asked() { Err(Failure::Interrupted) } else { Ok(()) }
}

/// Calls `bell` when the command is asked to stop.
pub fn on_ask(bell: impl Fn() + Send + 'static) {
    let mut bells = BELLS.lock().unwrap_or_else(PoisonError::into_inner);
    if asked() {
        bell();
    }
    bells.push(Box::new(bell));
}

/// The command has ended: its own exit code counts from here on.
pub fn finished() {
    *DONE.lock().unwrap_or_else(PoisonError::into_inner) = true;
    CHANGED.notify_all();
}
