//! Tests of `tombstone_set`: against each tombstone asked alone, with threads, and what many of them cost.

use std::time::Duration;

use super::*;
use crate::dice::Dice;
use crate::key::Bytewise;

impl TombstoneSet {
    /// One write, then what it costs afterwards.
    fn add(
        &self,
        ranges: &[(&[u8], &[u8])],
        lsn: u64,
        batch: Option<u32>,
        committed: impl Fn(u32, Lsn) -> bool,
    ) {
        self.publish(self.reserve(&Bytewise, ranges), Lsn(lsn), batch);
        self.join(&Bytewise, committed);
    }
}

struct Written {
    ranges: Vec<(u8, u8)>,
    lsn: u64,
    batch: Option<u32>,
}

fn newest(all: &[Written], key: u8, at: u64, committed: impl Fn(u32, Lsn) -> bool) -> Option<Lsn> {
    let covers = |w: &&Written| {
        w.lsn < at
            && w.ranges.iter().any(|&(start, end)| start <= key && key < end)
            && w.batch.is_none_or(|slot| committed(slot, Lsn(w.lsn)))
    };
    all.iter().filter(covers).map(|w| Lsn(w.lsn)).max()
}

#[test]
fn a_set_answers_as_its_tombstones_would_one_by_one() {
    for seed in 0..if cfg!(miri) { 2u64 } else { 30 } {
        let mut dice = Dice(seed);
        let set = TombstoneSet::new(Arc::default());
        assert!(set.is_empty());
        let mut all: Vec<Written> = Vec::new();
        // Every other store has writes that never commit, and LSNs in any order.
        let committed = |slot: u32, _: Lsn| seed % 2 == 0 || !slot.is_multiple_of(3);
        for n in 0..if cfg!(miri) { 12u64 } else { 70 } {
            let ranges: Vec<(u8, u8)> = (0..1 + dice.below(3))
                .map(|_| {
                    let start = if dice.below(3) == 0 { 0 } else { dice.below(200) };
                    (start as u8, (start + dice.below(55)) as u8)
                })
                .collect();
            let lsn = if seed % 2 == 0 { 10 + 2 * n } else { 10 + 2 * dice.below(70) };
            let batch = (dice.below(2) == 0).then_some(dice.below(7) as u32);
            let keys: Vec<([u8; 1], [u8; 1])> = ranges.iter().map(|&(s, e)| ([s], [e])).collect();
            let borrowed: Vec<(&[u8], &[u8])> = keys.iter().map(|(s, e)| (&s[..], &e[..])).collect();
            set.add(&borrowed, lsn, batch, committed);
            all.push(Written { ranges, lsn, batch });
            for key in (0..=255u8).step_by(7) {
                for at in [0, 11, 60, 10 + n, 100, u64::MAX] {
                    let found = set.newest_covering(&Bytewise, &[key], Lsn(at), committed);
                    assert_eq!(found, newest(&all, key, at, committed), "seed {seed}: {key} at {at}");
                }
            }
            let reads = [dice.below(160), dice.below(160), u64::MAX];
            let horizons = Horizons::of_snapshots(reads.map(Lsn).to_vec());
            let joined = Tombstones::join(&Bytewise, &set.sets(&horizons), &horizons, (None, None));
            for key in (0..=255u8).step_by(5) {
                for at in reads {
                    let found = joined.newest_covering(&Bytewise, &[key], Lsn(at));
                    assert_eq!(
                        found,
                        newest(&all, key, at, |_, _| true),
                        "seed {seed}: {key} of the sets at {at}"
                    );
                }
            }
        }
        assert!(!set.is_empty());
        let account = Arc::clone(&set.account);
        assert!(account.bytes() >= set.bytes(), "also what was replaced and is not freed");
        drop(set);
        // Other tests' threads may hold the epoch up.
        let began = std::time::Instant::now();
        while account.bytes() > 0 && began.elapsed().as_secs() < 60 {
            epoch::pin().flush();
            std::thread::yield_now();
        }
        assert_eq!(account.bytes(), 0, "all of it is given back");
    }
}

#[test]
fn a_tombstone_that_covers_nothing_leaves_the_set_empty() {
    let set = TombstoneSet::new(Arc::default());
    set.add(&[(&[5], &[5])], 1, None, |_, _| true);
    set.add(&[(&[6], &[5])], 2, None, |_, _| true);
    assert!(set.is_empty());
    assert_eq!(set.bytes() + set.account.bytes(), 0);
}

#[test]
fn a_reader_outlives_what_is_added_meanwhile() {
    let set = TombstoneSet::new(Arc::default());
    for lsn in 1..6 {
        set.add(&[(&[0], &[10])], lsn, Some(0), |_, _| false);
    }
    let asked = std::cell::Cell::new(0u64);
    // Each question comes while the reader is inside the runs; the answer replaces them all.
    let lsn = set.newest_covering(&Bytewise, &[5], Lsn::MAX, |_, lsn| {
        asked.set(asked.get() + 1);
        for more in 0..20 {
            set.add(&[(&[0], &[10])], 100 * asked.get() + more, None, |_, _| true);
        }
        lsn == Lsn(1)
    });
    assert_eq!(lsn, Some(Lsn(1)), "what is added meanwhile is not seen");
    assert_eq!(asked.get(), 5);
    assert_eq!(set.newest_covering(&Bytewise, &[5], Lsn::MAX, |_, _| true), Some(Lsn(519)));
}

#[test]
fn n_tombstones_make_few_runs() {
    let set = TombstoneSet::new(Arc::default());
    for i in 0..100u8 {
        set.add(&[(&[i], &[i + 1])], u64::from(i), None, |_, _| true);
        let runs = set.read(<[_]>::len);
        assert!(runs.is_some_and(|runs| runs <= 1 + (i + 1).ilog2() as usize), "{runs:?} after {i}");
    }
}

#[test]
fn what_is_not_committed_is_joined_when_it_is() {
    let set = TombstoneSet::new(Arc::default());
    for lsn in 1..=20u8 {
        set.add(&[(&[0], &[lsn])], u64::from(lsn), Some(0), |_, lsn| lsn < Lsn(11));
    }
    assert!(set.read(<[_]>::len).is_some_and(|runs| (11..=14).contains(&runs)));
    let newest = |key| set.newest_covering(&Bytewise, &[key], Lsn::MAX, |_, lsn| lsn < Lsn(11));
    assert_eq!((newest(0), newest(9), newest(10)), (Some(Lsn(10)), Some(Lsn(10)), None));
    set.join(&Bytewise, |_, _| true);
    assert!(set.read(<[_]>::len).is_some_and(|runs| runs <= 5));
    assert_eq!(set.newest_covering(&Bytewise, &[10], Lsn::MAX, |_, _| false), Some(Lsn(20)), "known");
}

#[test]
fn readers_see_every_tombstone_while_others_are_added() {
    let set = TombstoneSet::new(Arc::default());
    let count = if cfg!(miri) { 8 } else { 200u8 };
    let added = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let known = added.load(Ordering::Acquire);
                    for key in 0..known {
                        let lsn = set.newest_covering(&Bytewise, &[key as u8], Lsn::MAX, |_, _| true);
                        assert_eq!(lsn, Some(Lsn(key + 1)));
                    }
                    let sets = set.sets(&Horizons::at(Lsn::MAX));
                    assert!(sets.iter().map(|set| set.len()).sum::<usize>() as u64 >= known);
                    // Readers join too: who comes second starts again.
                    set.join(&Bytewise, |_, _| true);
                    if known == u64::from(count) {
                        return;
                    }
                }
            });
        }
        for key in 0..count {
            set.add(&[(&[key], &[key + 1])], u64::from(key) + 1, Some(0), |_, _| true);
            added.store(u64::from(key) + 1, Ordering::Release);
        }
    });
    assert_eq!(set.read(|runs| runs.iter().map(|run| run.ranges()).sum()), Some(usize::from(count)));
}

/// The processor's time of this thread: others run beside it.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Adds `count` tombstones and asks of many keys and reads: the time of the adding, of the gets, and the bytes.
fn cost_of(count: u64, range: impl Fn(u64) -> (String, String)) -> (Duration, Duration, usize) {
    let set = TombstoneSet::new(Arc::default());
    let start = processor_time();
    for n in 0..count {
        let (start, end) = range(n);
        set.add(&[(start.as_bytes(), end.as_bytes())], n + 1, None, |_, _| true);
    }
    let adding = processor_time() - start;
    let start = processor_time();
    for n in 0..4000u64 {
        let key = format!("k{:08}", n * 7919 % (2 * count));
        // The present, any snapshot, and none that sees anything.
        for at in [u64::MAX, n * 6101 % count, 1] {
            std::hint::black_box(set.newest_covering(&Bytewise, key.as_bytes(), Lsn(at), |_, _| true));
        }
    }
    (adding, processor_time() - start, set.bytes())
}

#[test]
#[cfg_attr(miri, ignore = "a matter of time")]
fn nested_tombstones_cost_what_others_do() {
    let key = |n: u64| format!("k{n:08}");
    for count in [500, 4000] {
        let apart = cost_of(count, |n| (key(2 * n), key(2 * n + 1)));
        let shapes: [(&str, &dyn Fn(u64) -> (String, String)); 4] = [
            ("growing", &|n| (String::new(), key(n))),
            ("shrinking", &|n| (key(n), key(2 * count))),
            ("inwards", &|n| (key(n), key(2 * count - n))),
            ("outwards", &|n| (key(count - n), key(count + n))),
        ];
        for (shape, range) in shapes {
            let (adding, gets, bytes) = cost_of(count, range);
            let all = format!("{count} {shape}: {adding:?}, {gets:?}, {bytes} bytes; apart: {apart:?}");
            println!("{all}");
            assert!(bytes < 2 * apart.2, "{all}");
            assert!(bytes < count as usize * 1500, "{all}");
            assert!(adding < 8 * apart.0 + Duration::from_millis(50), "{all}");
            assert!(gets < 20 * apart.1 + Duration::from_millis(50), "{all}");
        }
    }
}
