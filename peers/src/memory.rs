//! The process's memory, between engines: what one has freed is given back to the system before the next one is opened.
//!
//! Place: `contest` calls it before it opens an engine, so that resident memory tells of that engine.

/// Keeps free memory for what comes next: an engine whose blocks come and go would have its pages cleared again and again.
pub fn keep() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes numbers, and no other thread runs when `main` calls it; the program's tests start with it.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 30);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
    }
}

/// Gives free memory back, where the allocator can.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer and may be called at any time; every run of the tests calls it.
    unsafe {
        libc::malloc_trim(0);
    }
}
