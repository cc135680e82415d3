//! Memory between engines: what one has freed is given back to the system before the next one is opened.
//!
//! Place: `contest` calls it before it opens an engine, so that resident memory tells of that engine.

/// Gives free memory back, where the allocator can.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer and may be called at any time; every run of the tests calls it.
    unsafe {
        libc::malloc_trim(0);
    }
}
