//! Limits: what the machine can do at most, beside which a store's figures mean something.
//!
//! Place: `drumlin limits` prints them; `bench --limits` sets figures against them.
//!
//! 1. A limit does the least that a store cannot do without, with nothing around it: no store is faster than that, with
//!    data far beyond what the processor's caches hold.
//! 2. Each is measured for the same short time (`scheduler` for longer), with one thread and with as many as were asked for
//!    where that differs: with each of several numbers, so that its own scaling is seen.
//! 3. A limit that cannot be measured here says why, and the others are measured all the same.
//!
//! Parts: `processor`, `memory`, `scheduler`, `device` measure; `words` is memory that threads share; `beside` sets figures against limits.
//! Tests: every limit is measured for a moment.

pub mod beside;
mod device;
mod memory;
mod processor;
mod scheduler;
mod words;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::engine::Result;
use crate::latency::Percentiles;
use crate::report::{grouped, time};

/// Where and for how long limits are measured.
#[derive(Clone, Debug)]
pub struct Ground {
    /// A directory on the device; files are made in it and removed.
    pub directory: PathBuf,
    /// For each limit.
    pub time: Duration,
    /// Threads, for limits that depend on them: one number or several.
    pub threads: Vec<usize>,
    /// Bytes of memory that are far more than all caches hold.
    pub far_bytes: usize,
    /// Bytes of a file that is written in one go.
    pub file_bytes: usize,
    /// How late threads woke, once that was measured.
    lateness: OnceLock<Percentiles>,
}

impl Ground {
    /// Half a second each, half a gibibyte of memory and of file.
    pub fn new(directory: &Path, threads: usize) -> Ground {
        Ground {
            directory: directory.into(),
            time: Duration::from_millis(500),
            threads: vec![threads.max(1)],
            far_bytes: 512 << 20,
            file_bytes: 512 << 20,
            lateness: OnceLock::new(),
        }
    }
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// So many a second.
    PerSecond,
    /// Bytes a second.
    BytesPerSecond,
    /// Nanoseconds each.
    Nanoseconds,
    /// Bits for each key.
    BitsPerKey,
}

/// A measured limit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Limit {
    /// Its name; the same on every machine.
    pub name: Cow<'static, str>,
    /// What was done.
    pub what: Cow<'static, str>,
    /// Threads that did it.
    pub threads: usize,
    /// How much of it went.
    pub figure: Option<f64>,
    /// In what.
    pub unit: Unit,
    /// Why there is no figure.
    pub failure: Option<String>,
}

impl Limit {
    /// Its figure in words, or why there is none.
    pub fn told(&self) -> String {
        match (self.figure, self.unit, &self.failure) {
            (Some(figure), Unit::PerSecond, _) => format!("{}/s", grouped(figure)),
            (Some(figure), Unit::BytesPerSecond, _) => {
                format!("{} MiB/s", grouped(figure / f64::from(1 << 20)))
            }
            (Some(figure), Unit::Nanoseconds, _) => time(figure),
            (Some(figure), Unit::BitsPerKey, _) => format!("{figure:.2} bits a key"),
            (None, _, why) => why.clone().unwrap_or_default(),
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:24} {:>3} {:>16}  {}", self.name, self.threads, self.told(), self.what)
    }
}

/// How many threads measure a limit.
#[derive(Clone, Copy)]
enum Threads {
    /// One, and each number that was asked for.
    Asked,
    /// The most that were asked for.
    All,
    /// So many.
    Exactly(usize),
}

/// How a limit is measured.
struct Measure {
    name: &'static str,
    what: &'static str,
    unit: Unit,
    threads: Threads,
    run: fn(&Ground, usize) -> Result<f64>,
}

const fn measure(
    name: &'static str,
    what: &'static str,
    unit: Unit,
    threads: Threads,
    run: fn(&Ground, usize) -> Result<f64>,
) -> Measure {
    Measure { name, what, unit, threads, run }
}

const ONE: Threads = Threads::Exactly(1);

use Threads::{All, Asked, Exactly};
use Unit::{BitsPerKey, BytesPerSecond, Nanoseconds, PerSecond};

const MEASURES: &[Measure] = &[
    measure("fetch-add", "one counter that all threads raise", PerSecond, Asked, processor::fetch_add),
    measure("checksum", "XXH3 over 4 KiB blocks", BytesPerSecond, Asked, processor::checksum),
    measure("checksum-small", "XXH3 over 128 bytes", PerSecond, Asked, processor::checksum_small),
    measure("checksum-crc32c", "CRC32C over 4 KiB blocks", BytesPerSecond, Asked, processor::crc32c),
    measure("decompress", "LZ4, blocks of 4 KiB that halve", BytesPerSecond, Asked, processor::decompress),
    measure("sort", "radix sort of random 8-byte keys", PerSecond, ONE, processor::sort),
    measure(
        "filter-bits",
        "least bits of a filter with 1 % wrong answers",
        BitsPerKey,
        ONE,
        processor::filter_bits,
    ),
    measure("chase", "one cache miss after the other in memory", Nanoseconds, Asked, memory::chase),
    measure("chase-huge", "the same on huge pages", Nanoseconds, Asked, memory::chase_huge),
    measure(
        "update-line",
        "changes of random 64-byte lines in memory",
        PerSecond,
        Asked,
        memory::update_line,
    ),
    measure("update-line-huge", "the same on huge pages", PerSecond, Asked, memory::update_line_huge),
    measure("read-memory", "memory read from end to end", BytesPerSecond, Asked, memory::read),
    measure(
        "log-copy",
        "raise a counter, copy 128 bytes there in a mapped file",
        PerSecond,
        Asked,
        memory::log_copy,
    ),
    measure(
        "log-call",
        "append 128 bytes to a file by a call of their own",
        PerSecond,
        Asked,
        device::log_call,
    ),
    measure(
        "log-copy-update",
        "the same, and change a random line of a table under its lock",
        PerSecond,
        Asked,
        memory::log_copy_update,
    ),
    measure("read-cached", "4 KiB from the system's page cache", PerSecond, Asked, device::read_cached),
    measure("read-mapped", "the same from a mapped file", PerSecond, Asked, memory::read_mapped),
    measure("read-device", "4 KiB past the page cache", PerSecond, Asked, device::read_direct),
    measure("read-device-32", "the same by 32 threads at once", PerSecond, Exactly(32), device::read_direct),
    measure(
        "read-device-128",
        "the same by 128 threads at once",
        PerSecond,
        Exactly(128),
        device::read_direct,
    ),
    measure(
        "wake-late",
        "999 of 1000 wakings beside threads that compute",
        Nanoseconds,
        All,
        scheduler::wake_late,
    ),
    measure(
        "wake-latest",
        "the latest of all, in a run of its own",
        Nanoseconds,
        All,
        scheduler::wake_latest,
    ),
    measure("write-device", "a file from end to end, synced", BytesPerSecond, ONE, device::write),
    measure("sync", "4 KiB, synced", PerSecond, ONE, device::sync),
];

/// The names of all limits.
pub fn names() -> impl Iterator<Item = &'static str> {
    MEASURES.iter().map(|measure| measure.name)
}

/// Measures the limits that are `wanted` by name, and calls `on_limit` for each as it is done.
pub fn run(
    ground: &Ground,
    wanted: &dyn Fn(&str) -> bool,
    on_limit: &mut dyn FnMut(Limit) -> Result<()>,
) -> Result<()> {
    for measure in MEASURES.iter().filter(|measure| wanted(measure.name)) {
        let threads: BTreeSet<usize> = match measure.threads {
            Asked => ground.threads.iter().copied().chain([1]).collect(),
            All => ground.threads.iter().copied().max().into_iter().collect(),
            Exactly(threads) => [threads].into(),
        };
        for threads in threads {
            let (figure, failure) = match (measure.run)(ground, threads) {
                Ok(figure) => (Some(figure), None),
                Err(error) => (None, Some(error.to_string())),
            };
            let Measure { name, what, unit, .. } = *measure;
            let (name, what) = (name.into(), what.into());
            on_limit(Limit { name, what, threads, figure, unit, failure })?;
        }
    }
    Ok(())
}

/// How often a thread looks whether its time is over.
const LOOK_EVERY: u64 = 256;

/// What is wrong with a choice of limits by name, if anything.
pub fn check(names: &[String]) -> Result<(), String> {
    let known: Vec<&str> = self::names().collect();
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        Some(unknown) => Err(format!("there is no limit {unknown}; there are {}", known.join(", "))),
        None => Ok(()),
    }
}

/// Calls of `step` a second, by so many threads at once. Each thread makes a step of its own.
fn rate<S: FnMut(u64)>(threads: usize, time: Duration, begin: impl Fn(usize) -> S + Sync) -> f64 {
    let (over, ready) = (AtomicBool::new(false), Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        let hands: Vec<_> = (0..threads)
            .map(|thread| {
                let (begin, over, ready) = (&begin, &over, &ready);
                scope.spawn(move || {
                    let mut step = begin(thread);
                    ready.wait();
                    ready.wait();
                    let mut done = 0;
                    // Once at least: where all processors are busy, it may come to it when the time is over.
                    loop {
                        (done..done + LOOK_EVERY).for_each(&mut step);
                        done += LOOK_EVERY;
                        if over.load(Ordering::Relaxed) {
                            return done;
                        }
                    }
                })
            })
            .collect();
        ready.wait();
        // All have made what they need. The clock runs before the first of them goes on: where all processors are busy, this
        // thread may be the last to leave the barrier.
        let began = Instant::now();
        ready.wait();
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        let done: u64 = hands.into_iter().map(|hand| hand.join().expect("a limit's panic is its own")).sum();
        done as f64 / began.elapsed().as_secs_f64()
    })
}

/// The same for steps that may fail; the first failure is the result.
fn rate_of<S: FnMut(u64) -> Result<()>>(
    threads: usize,
    time: Duration,
    begin: impl Fn(usize) -> S + Sync,
) -> Result<f64> {
    let failure = std::sync::Mutex::new(None);
    let rate = rate(threads, time, |thread| {
        let (mut step, failure) = (begin(thread), &failure);
        move |number| {
            if let Err(error) = step(number) {
                failure.lock().expect("nobody panics with it").get_or_insert(error);
            }
        }
    });
    failure.into_inner().expect("nobody panics with it").map_or(Ok(rate), Err)
}

/// A file in the ground's directory that goes when this does.
struct Scrap(PathBuf);

impl Scrap {
    fn new(ground: &Ground, name: &str) -> Scrap {
        Scrap(ground.directory.join(format!("limit-{}-{name}", std::process::id())))
    }
}

impl Drop for Scrap {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_measured_with_one_thread_and_with_each_number_that_was_asked_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut ground = Ground::new(directory.path(), 1);
        (ground.time, ground.far_bytes) = (Duration::from_millis(2), 1 << 20);
        ground.threads = vec![3, 2, 3];
        let mut on = Vec::new();
        run(&ground, &|name| ["chase-huge", "wake-latest"].contains(&name), &mut |limit| {
            on.push((limit.name.into_owned(), limit.threads));
            Ok(())
        })
        .expect("none is refused");
        let right = [("chase-huge", 1), ("chase-huge", 2), ("chase-huge", 3), ("wake-latest", 3)];
        assert_eq!(on, right.map(|(name, threads)| (name.to_string(), threads)));
    }

    #[test]
    fn every_limit_is_measured_and_leaves_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let ground = Ground {
            time: Duration::from_millis(5),
            far_bytes: 4 << 20,
            file_bytes: 1 << 20,
            ..Ground::new(directory.path(), 2)
        };
        let mut limits = Vec::new();
        run(&ground, &|_| true, &mut |limit| {
            limits.push(limit);
            Ok(())
        })
        .expect("none is refused");
        for limit in &limits {
            // Not every file system reads past its cache.
            let may_fail = limit.name.starts_with("read-device");
            assert!(limit.figure.is_some_and(|figure| figure > 0.0) || may_fail, "{limit:?}");
        }
        assert!(limits.iter().filter(|limit| limit.threads == 2).count() >= 10);
        assert!(limits.iter().any(|limit| limit.threads == 32));
        assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 0);
    }
}
