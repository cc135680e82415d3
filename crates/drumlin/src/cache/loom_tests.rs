//! Runs, holders and shortcuts under the model checker: the memory that they stand for is a cell that objects to an access which the
//! last one does not happen before.
//!
//! Run by `cargo x loom`. Each test names what fails it, and asserts that every outcome occurred.

use std::collections::BTreeSet;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering, fence};
use loom::thread;

use super::holders::Holders;
use super::shortcuts::Shortcut;
use super::units::Units;
use crate::sync::Mutex;

/// Runs every interleaving and returns the different outcomes.
fn outcomes<T: Ord + Send + 'static>(test: impl Fn() -> T + Send + Sync + 'static) -> BTreeSet<T> {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let collect = seen.clone();
    loom::model(move || {
        let outcome = test();
        collect.lock().unwrap().insert(outcome);
    });
    std::mem::take(&mut *seen.lock().unwrap())
}

/// Memory, and whoever is asked for it.
struct Shared<T> {
    keeper: T,
    memory: UnsafeCell<()>,
}

// SAFETY: the checker watches the cell. Test: every test below.
#[allow(unsafe_code)]
unsafe impl<T: Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn new(keeper: T) -> Arc<Shared<T>> {
        Arc::new(Shared { keeper, memory: UnsafeCell::new(()) })
    }

    fn read(&self) {
        self.memory.with(|_| ());
    }

    fn write(&self) {
        self.memory.with_mut(|_| ());
    }
}

/// Who takes a run writes after all that its owners of before have read, also where two of them cleared one word. Fails
/// with bits that are cleared Relaxed, or loaded Relaxed by `take`.
#[test]
fn loom_a_run_is_written_after_its_last_owners_have_read_it() {
    let seen = outcomes(|| {
        let chunk = Shared::new(Units::<1>::new(60));
        let runs = [chunk.keeper.take(60, 2).unwrap(), chunk.keeper.take(60, 2).unwrap()];
        chunk.write();
        let owners = runs.map(|run| {
            let chunk = chunk.clone();
            thread::spawn(move || {
                chunk.read();
                chunk.keeper.give_back(run, 2);
            })
        });
        let taken = chunk.keeper.take(60, 4);
        if taken.is_some() {
            chunk.write();
        }
        owners.into_iter().for_each(|owner| owner.join().unwrap());
        assert_eq!(chunk.keeper.free(), if taken.is_some() { 0 } else { 4 });
        taken
    });
    assert_eq!(seen, BTreeSet::from([None, Some(60)]));
}

/// The last holder, whoever it is, may give the memory back. Fails if `leave` counts down Relaxed, or if the last one
/// loads Relaxed.
#[test]
fn loom_memory_goes_after_all_holders_have_read_it() {
    let seen = outcomes(|| {
        let block = Shared::new(Holders::one());
        block.keeper.join();
        let use_and_leave = |block: &Shared<Holders>| {
            block.read();
            let is_last = block.keeper.leave();
            if is_last {
                block.write();
            }
            is_last
        };
        let other = thread::spawn({
            let block = block.clone();
            move || use_and_leave(&block)
        });
        let last = [use_and_leave(&block), other.join().unwrap()];
        assert_eq!(last.iter().filter(|&&last| last).count(), 1);
        last
    });
    assert_eq!(seen, BTreeSet::from([[false, true], [true, false]]));
}

/// Whoever is alone may write. Fails if `is_one` loads Relaxed.
#[test]
fn loom_who_is_alone_writes_after_all_others_have_read() {
    let seen = outcomes(|| {
        let block = Shared::new(Holders::one());
        block.keeper.join();
        let other = thread::spawn({
            let block = block.clone();
            move || {
                block.read();
                block.keeper.leave()
            }
        });
        let is_alone = block.keeper.is_one();
        if is_alone {
            block.write();
        }
        assert!(!other.join().unwrap());
        is_alone
    });
    assert_eq!(seen, BTreeSet::from([false, true]));
}

/// A block with the shortcut to it, the bucket that has it or not, and what the epoch does: who is pinned.
struct Cached {
    shortcut: Shortcut<()>,
    is_linked: Mutex<bool>,
    pinned: [AtomicBool; 2],
}

impl Shared<Cached> {
    fn pinned<R>(&self, who: usize, read: impl FnOnce() -> R) -> R {
        self.keeper.pinned[who].store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let read = read();
        self.keeper.pinned[who].store(false, Ordering::Release);
        read
    }

    /// As `Shard::retire`, and what the epoch does behind it: true if nobody was pinned, so that the memory went.
    fn retire(&self) -> bool {
        let mut is_linked = self.keeper.is_linked.lock();
        *is_linked = false;
        self.keeper.shortcut.cut();
        drop(is_linked);
        fence(Ordering::SeqCst);
        let is_free = self.keeper.pinned.iter().all(|pinned| !pinned.load(Ordering::Acquire));
        if is_free {
            self.write();
        }
        is_free
    }
}

/// Who follows a shortcut reads a block that was written before and is freed behind. Fails with a block that is not cut off, or
/// only once it is given up; if it is connected without looking whether it is still linked; and if an end is published or read
/// Relaxed.
#[test]
fn loom_a_shortcut_leads_to_no_block_that_was_given_up() {
    let seen = outcomes(|| {
        let keeper = Cached {
            shortcut: Shortcut::nowhere(),
            is_linked: Mutex::new(false),
            pinned: [AtomicBool::new(false), AtomicBool::new(false)],
        };
        let block = Shared::new(keeper);
        let connects = block.clone();
        let connects = thread::spawn(move || {
            connects.pinned(0, || {
                let Some(is_linked) = connects.keeper.is_linked.try_lock().filter(|is_linked| **is_linked)
                else {
                    return;
                };
                connects.keeper.shortcut.connect(std::ptr::dangling());
                drop(is_linked);
            });
        });
        let follows = block.clone();
        let follows = thread::spawn(move || {
            follows.pinned(1, || {
                let found = !follows.keeper.shortcut.end().is_null();
                if found {
                    follows.read();
                }
                found
            })
        });
        block.write();
        *block.keeper.is_linked.lock() = true;
        let is_free = block.retire();
        connects.join().unwrap();
        let found = follows.join().unwrap();
        assert!(block.keeper.shortcut.end().is_null());
        (found, is_free)
    });
    assert_eq!(seen, BTreeSet::from([(false, false), (false, true), (true, false), (true, true)]));
}
