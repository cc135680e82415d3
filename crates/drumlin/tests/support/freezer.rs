//! Stops one thread at one of the engine's pause points, until it is told to go on.
//!
//! Place: `frozen`, `variants` and `keyspaces`, which run many at once: a freezer knows its thread by name.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use drumlin::failpoint;

/// Long enough for any step to be reached on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Stops the thread of its name.
pub struct Freezer {
    /// The thread's name.
    pub thread: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    inside: bool,
    may_go: bool,
}

impl Freezer {
    /// One for `thread` at `point`. It stays for the life of the process.
    pub fn at(point: &'static str, thread: String) -> Arc<Freezer> {
        type Table = Mutex<HashMap<&'static str, Arc<Mutex<Vec<Arc<Freezer>>>>>>;
        static TABLE: OnceLock<Table> = OnceLock::new();
        let freezer = Arc::new(Freezer { thread, state: Mutex::default(), changed: Condvar::new() });
        let here = TABLE.get_or_init(Table::default).lock().unwrap().entry(point).or_default().clone();
        here.lock().unwrap().push(freezer.clone());
        failpoint::set(point, move || {
            let thread = std::thread::current();
            let found =
                here.lock().unwrap().iter().find(|f| Some(f.thread.as_str()) == thread.name()).cloned();
            if let Some(freezer) = found {
                freezer.pass();
            }
        });
        freezer
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.inside = true;
        self.changed.notify_all();
        // Not for ever: a test that fails thaws nobody, and who stands still keeps all that is replaced in memory.
        drop(self.changed.wait_timeout_while(state, PATIENCE, |state| !state.may_go).unwrap());
    }

    /// Waits until the thread has got there.
    pub fn wait_until_inside(&self) {
        let state = self.state.lock().unwrap();
        let (state, _) = self.changed.wait_timeout_while(state, PATIENCE, |s| !s.inside).unwrap();
        assert!(state.inside, "{}: the pause point is not on its way", self.thread);
    }

    /// Lets it go on, now and whenever it comes by.
    pub fn thaw(&self) {
        self.state.lock().unwrap().may_go = true;
        self.changed.notify_all();
    }
}

/// A thread that stands at a pause point.
pub struct Frozen<T> {
    freezer: Arc<Freezer>,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> Frozen<T> {
    /// Runs `body` in a thread of its own until it comes to `point`.
    pub fn at(point: &'static str, name: &str, body: impl FnOnce() -> T + Send + 'static) -> Frozen<T> {
        let freezer = Freezer::at(point, format!("{name} at {point}"));
        let thread = spawn(&freezer.thread, body);
        freezer.wait_until_inside();
        Frozen { freezer, thread }
    }

    /// Lets it go on, and waits for its end.
    pub fn thaw(self) -> T {
        self.freezer.thaw();
        self.thread.join().unwrap()
    }
}

/// A thread of this name.
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::Builder::new().name(name.into()).spawn(body).unwrap()
}
