//! Settling: what a memtable's hash holds, put into its list by several threads.
//!
//! Place: `keyspace` calls it where somebody asks for all of it at once. A walk and a flush have those parts sorted that they come
//! to, by themselves.
//!
//! What is not sorted is cut into shares, one for each thread: each sorts its own and puts it in, wherever it belongs.
//!
//! Concurrency: writers go on meanwhile. All threads are waited for; if one panicked (as a comparator may), all is put in here
//! again, where the panic is the caller's. If the caller's own share panics, the others end by themselves.
//! Origin: FloDB §4.2 drains by several threads. Tests: tests/two_tier.rs.

use std::sync::Arc;

use crate::env::{Env, Thread};
use crate::memory::MemTable;

/// Versions that are worth a thread.
const SHARE_MIN: usize = 1 << 15;

/// Puts into the list all that was published before, by at most so many threads. O(n log n).
pub(super) fn settle(memtable: &Arc<MemTable>, env: &Env, threads: usize) {
    let Some(unsettled) = memtable.unsettled().map(Arc::new) else { return };
    let shares = threads.min(unsettled.len() / SHARE_MIN).max(1);
    let mut others: Vec<Box<dyn Thread>> = Vec::new();
    let mut left = vec![0];
    for n in 1..shares {
        let (memtable, shared) = (Arc::clone(memtable), Arc::clone(&unsettled));
        let body = move || memtable.settle_share(&shared, n, shares);
        match env.spawner.spawn(&format!("drumlin-settle-{n}"), Box::new(body)) {
            Ok(thread) => others.push(thread),
            // No thread to be had: then fewer do it.
            Err(_) => left.push(n),
        }
    }
    left.into_iter().for_each(|n| memtable.settle_share(&unsettled, n, shares));
    let ended: Vec<bool> = others.into_iter().map(|thread| thread.join()).collect();
    match Arc::into_inner(unsettled) {
        Some(unsettled) if !ended.contains(&false) => memtable.settled(unsettled),
        _ => memtable.settle(),
    }
}
