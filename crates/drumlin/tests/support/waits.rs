//! Waits until a thread waits: for another's key, or for what is in flight below an LSN.
//!
//! Place: `variants` and `keyspaces`, instead of a nap that may be too short on a busy machine.
#![allow(dead_code)] // Each test file uses its part.

use std::sync::{Arc, Mutex, Once};
use std::thread::{JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use drumlin::Result;
use drumlin::env::{Env, Spawner, Thread};
use drumlin::failpoint;

/// Long enough for any step to be reached on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who has begun to wait so far, in this process.
static WAITED: Mutex<Vec<(ThreadId, String)>> = Mutex::new(Vec::new());

/// Takes note, from now on, of who begins to wait. Call it before the thread in question is started.
pub fn note_waits() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for point in ["stripe::waits", "commit::waits"] {
            failpoint::set(point, || {
                let thread = std::thread::current();
                WAITED.lock().unwrap().push((thread.id(), thread.name().unwrap_or_default().to_string()));
            });
        }
    });
}

/// True as soon as the thread has begun to wait for another; false if it comes to its end instead.
pub fn waits<T>(thread: &JoinHandle<T>) -> bool {
    until(|| {
        thread.is_finished() || WAITED.lock().unwrap().iter().any(|(id, _)| *id == thread.thread().id())
    });
    !thread.is_finished()
}

/// Waits until a thread of such a name has begun to wait for another.
pub fn wait_for_waiting(name: &str) {
    until(|| WAITED.lock().unwrap().iter().any(|(_, other)| other.starts_with(name)));
}

fn until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "it neither waits nor ends");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The environment, with the engine's threads named after the test: several stores of one process are told apart.
pub fn with_threads_named(test: &'static str, env: Env) -> Env {
    Env { spawner: Arc::new(Named(test, env.spawner.clone())), ..env }
}

struct Named(&'static str, Arc<dyn Spawner>);

impl Spawner for Named {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Thread>> {
        self.1.spawn(&format!("{} {name}", self.0), body)
    }
}
