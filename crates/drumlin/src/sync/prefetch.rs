//! Loading a cache line before it is needed.
//!
//! Place: searches that know several places at once, and would else wait for one after the other.
//!
//! It has no effect but on the cache: any address will do, and nothing is read.
#![allow(unsafe_code)]

/// Starts to load the line of `address`.
#[inline(always)]
pub(crate) fn prefetch<T>(address: *const T) {
    // SAFETY: the instruction neither faults nor writes. Test: every walk of `skiplist_tests`.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    // SAFETY: as above. Test: as above.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
