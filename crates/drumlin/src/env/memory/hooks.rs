//! Hooks of the in-memory file system: run before every call, to look on or to fail it.
//!
//! Place: asked by `Shared::enter`; installed by tests through `MemFs`.
//!
//! Invariants:
//! 1. A hook runs on the calling thread with no lock of the file system held, so it may clone it
//!    or call it. The calls a hook makes of its own file system are neither counted nor told.
//!    Neither are those of a thread whose thread-local values are gone already.
//! 2. Calls of several threads run one hook one after the other.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::Call;
use parking_lot::Mutex;

/// Looks at a call.
pub type CallHook = Box<dyn FnMut(&Call<'_>) + Send>;

/// Looks at a call; `Some` fails it.
pub type FaultHook = Box<dyn FnMut(&Call<'_>) -> Option<io::ErrorKind> + Send>;

thread_local! {
    /// The file systems in whose hooks this thread is, by address.
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A place for one hook.
#[derive(Default)]
pub(super) struct HookSlot {
    hook: Mutex<Option<Arc<Mutex<FaultHook>>>>,
    /// Spares callers the lock. Release when set, Acquire when read.
    is_set: AtomicBool,
}

impl HookSlot {
    pub(super) fn set(&self, hook: Option<FaultHook>) {
        let mut slot = self.hook.lock();
        self.is_set.store(hook.is_some(), Ordering::Release);
        *slot = hook.map(|hook| Arc::new(Mutex::new(hook)));
    }

    /// Runs the hook, if there is one.
    pub(super) fn run(&self, call: &Call<'_>) -> Option<io::ErrorKind> {
        if !self.is_set.load(Ordering::Acquire) {
            return None;
        }
        let hook = self.hook.lock().clone()?;
        let mut hook = hook.lock();
        (*hook)(call)
    }
}

/// True if this thread runs a hook of the file system at `address`, or cannot say: a thread that is
/// ending has no such list any more, and what it still drops may remove files. No hook sees that.
pub(super) fn is_inside(address: usize) -> bool {
    INSIDE.try_with(|inside| inside.borrow().contains(&address)).unwrap_or(true)
}

/// Marks this thread as running a hook, until dropped.
pub(super) struct Inside;

impl Inside {
    /// None if the thread is ending: what it still drops (tables that nobody reads any more) calls
    /// the file system, but it could not tell a hook's calls from others, so hooks are not run.
    pub(super) fn enter(address: usize) -> Option<Inside> {
        INSIDE.try_with(|inside| inside.borrow_mut().push(address)).ok().map(|()| Inside)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().pop());
    }
}
