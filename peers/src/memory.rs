//! The process's memory: in huge pages, kept for what comes next, and given back between engines.
//!
//! Place: `main` has it set up before anything else; `contest` gives back what one engine has freed before it opens the next, so
//! that resident memory tells of that one.

#[cfg(target_env = "gnu")]
use std::os::unix::process::CommandExt;

/// Has the allocator ask for huge pages, as Drumlin does for its own memory: starts the program once more, since that is settled
/// before it begins. `GLIBC_TUNABLES=glibc.malloc.hugetlb=0` keeps it from that.
pub fn in_huge_pages() {
    #[cfg(target_env = "gnu")]
    {
        const TUNABLES: &str = "GLIBC_TUNABLES";
        let set = std::env::var(TUNABLES).unwrap_or_default();
        let Some(program) = std::env::current_exe().ok().filter(|_| !set.contains("malloc.hugetlb")) else {
            return;
        };
        let set = [set.as_str(), "glibc.malloc.hugetlb=1"].join(":");
        let arguments = std::env::args_os().skip(1);
        // It returns if it failed: then memory is in small pages.
        let _ = std::process::Command::new(program)
            .args(arguments)
            .env(TUNABLES, set.trim_start_matches(':'))
            .exec();
    }
}

/// Keeps free memory for what comes next: an engine whose blocks come and go would have its pages cleared again and again.
pub fn keep() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes numbers, and no other thread runs when `main` calls it; every run of the program does.
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
