//! Named pause points in the write path, for tests that freeze a thread there.
//!
//! Place: `failpoint::hit("write::reserved")` in `commit`, `log`, `db`; compiled to nothing unless
//! the feature `failpoints` is on. A test installs an action with `set`.

/// Runs the action installed for `name`, if any.
#[inline(always)]
pub fn hit(name: &'static str) {
    #[cfg(feature = "failpoints")]
    active::hit(name);
    #[cfg(not(feature = "failpoints"))]
    let _ = name;
}

#[cfg(feature = "failpoints")]
pub use active::{Action, clear, set};

#[cfg(feature = "failpoints")]
mod active {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex, OnceLock};

    /// What a test does to a thread that passes the point.
    pub type Action = Arc<dyn Fn() + Send + Sync>;

    static INSTALLED: AtomicUsize = AtomicUsize::new(0);

    fn table() -> &'static Mutex<HashMap<&'static str, Action>> {
        static TABLE: OnceLock<Mutex<HashMap<&'static str, Action>>> = OnceLock::new();
        TABLE.get_or_init(Mutex::default)
    }

    pub(super) fn hit(name: &'static str) {
        if INSTALLED.load(Ordering::Relaxed) == 0 {
            return;
        }
        let action = table().lock().expect("no action panics while the table is held").get(name).cloned();
        if let Some(action) = action {
            action();
        }
    }

    /// Installs `action` at `name`, process-wide.
    pub fn set(name: &'static str, action: impl Fn() + Send + Sync + 'static) {
        let mut table = table().lock().expect("no action panics while the table is held");
        table.insert(name, Arc::new(action));
        INSTALLED.store(table.len(), Ordering::Relaxed);
    }

    /// Removes the action at `name`.
    pub fn clear(name: &'static str) {
        let mut table = table().lock().expect("no action panics while the table is held");
        table.remove(name);
        INSTALLED.store(table.len(), Ordering::Relaxed);
    }
}
