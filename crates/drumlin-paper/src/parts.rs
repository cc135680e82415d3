//! The memory component's parts alone: a hash, a skiplist, and both, with no log and no tables.
//!
//! Place: figures 5, 7, 8 and 17 of FloDB.
//!
//! 1. Keys are numbers, spread over all of eight bytes, so that partitions by their first bits are alike.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use drumlin::map::{SortedMap, TieredMap};
use drumlin_bench::canvas::short;
use drumlin_bench::engine::Result;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use crate::figure::Tell;
use crate::lab::Lab;
use crate::point::Point;

/// A map under test.
trait Map: Sync {
    fn put(&self, key: &[u8], value: &[u8]);
    fn get(&self, key: &[u8]) -> bool;
}

impl Map for SortedMap {
    fn put(&self, key: &[u8], value: &[u8]) {
        SortedMap::put(self, key, value);
    }

    fn get(&self, key: &[u8]) -> bool {
        SortedMap::get(self, key, |value| !value.is_empty()) == Some(true)
    }
}

impl Map for TieredMap {
    fn put(&self, key: &[u8], value: &[u8]) {
        TieredMap::put(self, key, value);
    }

    fn get(&self, key: &[u8]) -> bool {
        TieredMap::get(self, key, |value| !value.is_empty()) == Some(true)
    }
}

/// The key of a number below `count`.
fn key(number: u64, count: u64) -> [u8; 8] {
    (number * (u64::MAX / count.max(1))).to_be_bytes()
}

/// Entries of the maps of figures 5 and 7, where the paper had 32 thousand, a million, 33 million and a billion: the large
/// ones at the scale, where that is more than the one before.
fn entries(lab: &Lab<'_>) -> Vec<u64> {
    let mut all = vec![1 << 15, 1 << 20];
    for paper in [1u64 << 25, 1 << 30] {
        let scaled = (paper as f64 * lab.setting.scale) as u64;
        if scaled > all[all.len() - 1] {
            all.push(scaled.next_power_of_two());
        }
    }
    all
}

/// What a curve of so many entries is called.
pub fn named(what: &str, entries: u64) -> String {
    format!("{what}, {}", short(entries as f64))
}

/// A hash alone, by threads and entries.
pub fn hash(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    for entries in entries(lab) {
        for &threads in &lab.setting.threads {
            let make = || TieredMap::new(entries as usize, usize::MAX, 0, true);
            let rate = half_gets(lab, threads, entries, make);
            tell(Point::new(named("hash", entries), threads as f64, rate))?;
        }
    }
    Ok(())
}

/// A skiplist alone, and beside it a hash.
pub fn list(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    for entries in entries(lab) {
        for &threads in &lab.setting.threads {
            let rate = half_gets(lab, threads, entries, SortedMap::new);
            tell(Point::new(named("skiplist", entries), threads as f64, rate))?;
            let make = || TieredMap::new(entries as usize, usize::MAX, 0, true);
            let rate = half_gets(lab, threads, entries, make);
            tell(Point::new(named("hash", entries), threads as f64, rate))?;
        }
    }
    Ok(())
}

/// Operations a second, half gets and half puts of keys that are there. A map keeps every version, so each one is used for as
/// many operations as it has entries, and small ones are made again until the time is over.
fn half_gets<M: Map>(lab: &Lab<'_>, threads: u64, entries: u64, make: impl Fn() -> M) -> f64 {
    let time = Duration::from_secs_f64(lab.setting.seconds);
    let (mut operations, mut took) = (0, Duration::ZERO);
    let mut seed = lab.setting.seed;
    while took < time {
        let map = make();
        (0..entries).for_each(|number| {
            // In no order.
            let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % entries;
            map.put(&key(number, entries), b"eight by");
        });
        seed = seed.wrapping_add(threads);
        let each = entries / threads;
        took += side_by_side(threads, |thread| {
            let mut random = SmallRng::seed_from_u64(seed.wrapping_add(thread));
            for _ in 0..each {
                let key = key(random.random_range(0..entries), entries);
                if random.random() {
                    std::hint::black_box(map.get(&key));
                } else {
                    map.put(&key, b"eight by");
                }
            }
        });
        operations += each * threads;
    }
    operations as f64 / took.as_secs_f64()
}

/// Has threads do something at once; how long it took from when the first began until the last was done.
fn side_by_side(threads: u64, work: impl Fn(u64) + Sync) -> Duration {
    let ready = Barrier::new(threads as usize);
    let times: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let working: Vec<_> = (0..threads)
            .map(|thread| {
                let (ready, work) = (&ready, &work);
                scope.spawn(move || {
                    ready.wait();
                    let began = Instant::now();
                    work(thread);
                    (began, Instant::now())
                })
            })
            .collect();
        working.into_iter().map(|one| one.join().expect("a map's panic is the figure's")).collect()
    });
    let first = times.iter().map(|(began, _)| *began).min();
    let last = times.iter().map(|(_, ended)| *ended).max();
    first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first)
}

/// Keys of one multi-insert.
const TOGETHER: usize = 5;

/// Inserts one by one, and five at once, by how near each other the five are.
pub fn neighbourhoods(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    let entries = lab.setting.records(100e6);
    // Every second key is there.
    let keys = entries * 2;
    let threads = lab.setting.cores;
    let sizes = std::iter::successors(Some(10u64), |size| Some(size * 10)).take_while(|size| *size < keys);
    for size in sizes {
        for (series, at_once) in [("one by one", false), ("5 at once", true)] {
            let map = SortedMap::new();
            for number in (0..entries).map(|number| number * 2) {
                map.put(&key(number, keys), b"eight by");
            }
            // The list is to stay about as large.
            let each = entries / 4 / threads / TOGETHER as u64 + 1;
            let took = side_by_side(threads, |thread| {
                let mut random = SmallRng::seed_from_u64(lab.setting.seed.wrapping_add(thread));
                let mut near = [[0; 8]; TOGETHER];
                for _ in 0..each {
                    let from = random.random_range(0..keys);
                    near.fill_with(|| key((from + random.random_range(0..size * 2)).min(keys - 1), keys));
                    if at_once {
                        near.sort_unstable();
                        let mut records: [(&[u8], &[u8]); TOGETHER] = [(b"", b"eight by"); TOGETHER];
                        records.iter_mut().zip(&near).for_each(|(record, key)| record.0 = key);
                        map.multi_insert(&records);
                    } else {
                        near.iter().for_each(|key| map.put(key, b"eight by"));
                    }
                }
            });
            let rate = (each * threads * TOGETHER as u64) as f64 / took.as_secs_f64();
            tell(Point::new(series, size as f64, rate))?;
        }
    }
    Ok(())
}

/// A memory component of figure 17.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Component {
    NoHash,
    Hash { near: bool },
}

enum Memory {
    Sorted(SortedMap),
    Tiered(TieredMap),
}

impl Memory {
    fn new(component: Component, bytes: usize) -> Memory {
        match component {
            Component::NoHash => Memory::Sorted(SortedMap::new()),
            // A quarter for the hash, as in the paper.
            Component::Hash { near } => Memory::Tiered(TieredMap::new(0, bytes / 4, 6, near)),
        }
    }

    fn put(&self, key: &[u8], value: &[u8]) {
        match self {
            Memory::Sorted(map) => map.put(key, value),
            Memory::Tiered(map) => map.put(key, value),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Memory::Sorted(map) => map.bytes(),
            Memory::Tiered(map) => map.bytes(),
        }
    }

    fn settle(&self) {
        if let Memory::Tiered(map) = self {
            map.settle();
        }
    }

    /// Puts that went into the list at once, for want of a slot.
    fn direct(&self) -> u64 {
        match self {
            Memory::Sorted(map) => map.puts() as u64,
            Memory::Tiered(map) => map.puts_into_the_list(),
        }
    }
}

/// The generation that is written to, and those before it on their way to who sorts and drops them.
struct Generations {
    component: Component,
    bytes: usize,
    number: AtomicU64,
    current: Mutex<Arc<Memory>>,
    frozen: mpsc::SyncSender<Memory>,
}

impl Generations {
    fn current(&self) -> (u64, Arc<Memory>) {
        let current = self.current.lock().expect("nobody panics with it");
        (self.number.load(Ordering::Relaxed), Arc::clone(&current))
    }

    /// Gives one up. The last who leaves one that is not written to any more hands it over, and waits while another one before
    /// it is not sorted and dropped.
    fn leave(&self, memory: Arc<Memory>) {
        if let Some(memory) = Arc::into_inner(memory) {
            // Nobody receives only when all is over.
            let _ = self.frozen.send(memory);
        }
    }

    /// Makes a new one, if `seen` is the current one still.
    fn turn(&self, seen: u64) {
        let mut current = self.current.lock().expect("nobody panics with it");
        if self.number.load(Ordering::Relaxed) != seen {
            return;
        }
        let old = std::mem::replace(&mut *current, Arc::new(Memory::new(self.component, self.bytes)));
        self.number.store(seen + 1, Ordering::Release);
        // Who waits to hand over holds up nobody.
        drop(current);
        self.leave(old);
    }
}

/// Operations between two looks at the size and at the clock.
const LOOK_EVERY: u64 = 256;

/// Without a hash, with one that is sorted by a search for each, and by multi-inserts; frozen memory is sorted and dropped. One
/// thread, and many.
pub fn components(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    let many = lab.setting.threads_many();
    for &size in &lab.setting.sizes {
        for (series, component) in [
            ("no hash", Component::NoHash),
            ("hash, simple inserts", Component::Hash { near: false }),
            ("hash, multi-inserts", Component::Hash { near: true }),
        ] {
            for threads in [1, many] {
                let (rate, direct) = filled(lab, threads, (size as usize) << 20, component);
                let name = if threads == 1 { format!("{series}, 1 thread") } else { series.to_string() };
                let raw = json!({"threads": threads, "into_the_hash": 1.0 - direct});
                tell(Point { series: name, x: size as f64, y: rate, raw })?;
            }
        }
    }
    Ok(())
}

/// Puts a second until all was sorted, and the part that found no slot in the hash.
fn filled(lab: &Lab<'_>, threads: u64, bytes: usize, component: Component) -> (f64, f64) {
    let keys = lab.setting.records(300e9 / 264.0);
    let time = Duration::from_secs_f64(lab.setting.seconds);
    let (frozen, to_drop) = mpsc::sync_channel::<Memory>(1);
    let first = Arc::new(Memory::new(component, bytes));
    let generations =
        Generations { component, bytes, number: AtomicU64::new(0), current: Mutex::new(first), frozen };
    let (over, puts, direct) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let finish = |memory: &Memory| {
        memory.settle();
        direct.fetch_add(memory.direct(), Ordering::Relaxed);
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        let drainer = scope.spawn(|| {
            // It alone has the receiver.
            let to_drop = to_drop;
            while !over.load(Ordering::Acquire) {
                let (_, now) = generations.current();
                now.settle();
                // It may be the last to leave.
                Arc::into_inner(now).iter().for_each(finish);
                match to_drop.recv_timeout(Duration::from_millis(1)) {
                    Ok(old) => finish(&old),
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                }
            }
            to_drop.try_iter().for_each(|old| finish(&old));
            finish(&generations.current().1);
        });
        side_by_side(threads, |thread| {
            let mut random = SmallRng::seed_from_u64(lab.setting.seed.wrapping_add(thread));
            let value = [7u8; 256];
            let (mut number, mut memory) = generations.current();
            let mut done = 0u64;
            loop {
                if generations.number.load(Ordering::Acquire) != number {
                    generations.leave(memory);
                    (number, memory) = generations.current();
                }
                memory.put(&key(random.random_range(0..keys), keys), &value);
                done += 1;
                if done.is_multiple_of(LOOK_EVERY) {
                    if began.elapsed() >= time {
                        break;
                    }
                    if memory.bytes() >= bytes {
                        generations.turn(number);
                    }
                }
            }
            generations.leave(memory);
            puts.fetch_add(done, Ordering::Relaxed);
        });
        over.store(true, Ordering::Release);
        drainer.join().expect("it sorts");
    });
    let puts = puts.into_inner();
    (puts as f64 / began.elapsed().as_secs_f64(), direct.into_inner() as f64 / puts.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_spread_and_ascend() {
        let keys: Vec<_> = (0..100).map(|number| key(number, 100)).collect();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(keys[0][0] == 0 && keys[99][0] > 250);
    }
}
