//! Words: memory that many threads read and write, a word at a time.
//!
//! Place: what `memory` measures in: far more of it than the caches hold, or a file as the log maps it.
//!
//! 1. Every access is an atomic one of a whole aligned word, so that threads may do what they like.
//!
//! Tests: below; `limits::tests::every_limit_is_measured_and_leaves_nothing` has two threads at it.
#![allow(unsafe_code)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use drumlin::env::{FileSystem, LogRegion, RealFs};
use memmap2::{Advice, MmapMut};

use crate::engine::Result;

/// Who owns the memory.
enum Owner {
    Anonymous { _map: MmapMut },
    File { _region: Arc<dyn LogRegion> },
}

/// Shared words, as long as they live.
pub(super) struct Words {
    _owner: Owner,
    base: *const AtomicU64,
    count: usize,
}

// SAFETY: the words are atomics, in memory that the owner keeps mapped; where it lies is no thread's own. Test: below.
unsafe impl Send for Words {}
// SAFETY: as above; a shared reference gives atomics only.
unsafe impl Sync for Words {}

impl Words {
    /// Anonymous memory, all of it resident; on huge pages if the system has any.
    pub(super) fn anonymous(bytes: usize, huge: bool) -> Result<Words> {
        let mut map = MmapMut::map_anon(bytes)?;
        // Refused by kernels without: then the figure is that of small pages.
        let _ = map.advise(if huge { Advice::HugePage } else { Advice::NoHugePage });
        map.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        let (base, count) = (map.as_ptr().cast(), map.len() / 8);
        Ok(Words { _owner: Owner::Anonymous { _map: map }, base, count })
    }

    /// A new file, mapped as the log maps its segments, all of it resident.
    pub(super) fn file(path: &Path, bytes: usize) -> Result<Words> {
        let region = RealFs::new().map_log(path, bytes)?;
        let (base, count) = (region.base().cast_const().cast(), region.bytes() / 8);
        let words = Words { _owner: Owner::File { _region: region }, base, count };
        words.all().iter().step_by(512).for_each(|word| word.store(1, std::sync::atomic::Ordering::Relaxed));
        Ok(words)
    }

    /// All of them.
    pub(super) fn all(&self) -> &[AtomicU64] {
        // SAFETY: both kinds of memory are mapped at a page's alignment for `count` words at least, stay mapped as long as
        // their owner lives, and are reached through this slice only. Test: what_one_thread_stores_another_loads.
        unsafe { std::slice::from_raw_parts(self.base, self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn what_one_thread_stores_another_loads() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("words");
        for words in
            [Words::anonymous(1 << 20, false), Words::anonymous(1 << 20, true), Words::file(&path, 1 << 20)]
        {
            let words = words.expect("memory");
            assert_eq!(words.all().len(), 1 << 17);
            std::thread::scope(|scope| {
                let store = |from: usize| {
                    let words = &words;
                    move || {
                        for (at, word) in words.all().iter().enumerate().skip(from).step_by(2) {
                            word.store(at as u64, Ordering::Relaxed);
                        }
                    }
                };
                scope.spawn(store(0));
                scope.spawn(store(1));
            });
            let all = words.all().iter().enumerate();
            assert!(all.clone().all(|(at, word)| word.load(Ordering::Relaxed) == at as u64));
        }
        let bytes = std::fs::read(&path).expect("the mapped file");
        assert_eq!(bytes[8..16], 1u64.to_ne_bytes());
    }
}
