//! Histories recorded from a store are linearizable; and the checker that says so is tried on histories with a known
//! answer.
//!
//! Of the store: a million operations of eight clients on 64 keys, over more than fifty turns of generations
//! (`cargo x soak linearizability` does more: `DRUMLIN_HISTORY_MILLIONS`), and the same recording spoiled a hundred times.
//!
//! Of the checker:
//! 1. Valid histories of every shape are accepted.
//! 2. Spoiled histories are all rejected, each way of spoiling many times.
//! 3. On small histories with random results, checker and a search over all permutations agree.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support {
    pub mod checker;
    pub mod dice;
    pub mod drive;
    pub mod generate;
    pub mod history;
    pub mod mutate;
}

use std::path::PathBuf;

use drumlin::{Db, Options};
use support::checker::{Refusal, linearizable, recent_snapshots_serializable};
use support::dice::Dice;
use support::drive::{Load, Target};
use support::generate::{Shape, valid};
use support::history::{ABSENT, Class, History, KEYS_MAX, Op, Seen, Value};
use support::mutate::{ALL, Mutation, spoil};

fn accepted(history: &History) -> Result<(), String> {
    linearizable(history).map_err(|refusal| refusal.violation().to_string())?;
    recent_snapshots_serializable(history)
        .map_err(|refusal| format!("recent snapshots: {}", refusal.violation()))?;
    Ok(())
}

#[test]
fn valid_histories_are_accepted() {
    for seed in 0..200 {
        let mut rng = Dice(seed);
        let shape = Shape {
            ops: 2000,
            threads: 1 + rng.below(12) as u8,
            keys: 1 + rng.below(64) as u8,
            spacing: 1 + rng.below(30),
        };
        if let Err(why) = accepted(&valid(seed, shape)) {
            panic!("seed {seed}, {shape:?}: {why}");
        }
    }
}

#[test]
fn spoiled_histories_are_rejected() {
    let mut rejected = [0; ALL.len()];
    for seed in 0..40 {
        let mut rng = Dice(seed);
        let shape =
            Shape { ops: 1500, threads: 8, keys: 1 + rng.below(16) as u8, spacing: 4 + rng.below(30) };
        let history = valid(seed, shape);
        for (count, mutation) in rejected.iter_mut().zip(ALL) {
            let Some(spoiled) = spoil(&history, mutation, &mut rng) else { continue };
            let verdict = accepted(&spoiled);
            assert!(verdict.is_err(), "seed {seed}, {shape:?}: {mutation:?} was accepted");
            *count += 1;
        }
    }
    for (count, mutation) in rejected.iter().zip(ALL) {
        assert!(*count >= 12, "{mutation:?} fitted {count} histories only");
    }
    assert!(rejected.iter().sum::<u32>() >= 100);
}

#[test]
fn the_two_properties_are_told_apart() {
    // Stale for a linearizable snapshot, fine for a recent one.
    let op = |class, invoke, reads: &[Value], writes: &[Value]| Op {
        thread: 0,
        class,
        invoke,
        ret: invoke + 1,
        reads: reads.iter().map(|v| (0, Seen::Exactly(*v))).collect(),
        writes: writes.iter().map(|v| (0, *v)).collect(),
    };
    let history = |class| History::new(vec![op(Class::Write, 10, &[], &[1]), op(class, 20, &[ABSENT], &[])]);
    assert!(accepted(&history(Class::Recent)).is_ok());
    assert!(accepted(&history(Class::Snapshot)).is_err());
    assert!(accepted(&history(Class::Get)).is_err());
}

/// A small history with random results: some possible, most not.
fn small(rng: &mut Dice, class_of_snapshots: Class) -> History {
    let keys = 1 + rng.below(2) as u8;
    let count = 3 + rng.below(4);
    let ops = (0..count).map(|i| {
        let invoke = rng.below(24);
        let mut op = Op {
            thread: i as u8,
            class: Class::Write,
            invoke,
            ret: invoke + rng.below(12),
            reads: vec![],
            writes: vec![],
        };
        let key = rng.below(u64::from(keys)) as u8;
        let value = |rng: &mut Dice| rng.below(4) as Value;
        match rng.below(6) {
            0 | 1 => op.writes.push((key, value(rng))),
            2 => {
                op.class = Class::Get;
                op.reads
                    .push((key, if rng.below(4) == 0 { Seen::Present } else { Seen::Exactly(value(rng)) }));
            }
            3 => {
                op.reads.push((key, Seen::Exactly(value(rng))));
                op.writes.push((key, value(rng)));
            }
            4 => op.writes.extend((0..keys).map(|k| (k, value(rng)))),
            _ => {
                op.class = class_of_snapshots;
                op.reads.extend((0..keys).map(|k| (k, Seen::Exactly(value(rng)))));
            }
        }
        op
    });
    History::new(ops.collect())
}

/// Tries every order.
fn some_order_exists(left: &mut Vec<(u64, &Op)>, state: [Value; KEYS_MAX]) -> bool {
    if left.is_empty() {
        return true;
    }
    (0..left.len()).any(|i| {
        let (_, op) = left[i];
        let is_first = left.iter().all(|(_, other)| other.ret >= left[i].0);
        let fits = op.reads.iter().all(|(key, seen)| match seen {
            Seen::Exactly(value) => state[usize::from(*key)] == *value,
            Seen::Present => state[usize::from(*key)] != ABSENT,
        });
        if !is_first || !fits {
            return false;
        }
        let mut then = state;
        for (key, value) in &op.writes {
            then[usize::from(*key)] = *value;
        }
        let taken = left.remove(i);
        let found = some_order_exists(left, then);
        left.insert(i, taken);
        found
    })
}

#[test]
fn checker_and_exhaustive_search_agree() {
    let mut rng = Dice(7);
    let mut possible = [0; 2];
    let rounds = 60_000;
    for round in 0..rounds {
        let history = small(&mut rng, Class::Snapshot);
        let exists =
            some_order_exists(&mut history.ops.iter().map(|op| (op.invoke, op)).collect(), history.initial);
        assert_eq!(linearizable(&history).is_ok(), exists, "round {round}: {:#?}", history.ops);
        possible[0] += u32::from(exists);

        let history = small(&mut rng, Class::Recent);
        let judged = history.ops.iter().filter(|op| op.class != Class::Get);
        let exists = some_order_exists(
            &mut judged.map(|op| (if op.class == Class::Recent { 0 } else { op.invoke }, op)).collect(),
            history.initial,
        );
        let verdict = recent_snapshots_serializable(&history);
        assert_eq!(verdict.is_ok(), exists, "round {round}: {:#?}", history.ops);
        possible[1] += u32::from(exists);
    }
    for possible in possible {
        assert!(
            possible > rounds / 20 && possible < rounds * 19 / 20,
            "both answers occur often: {possible}"
        );
    }
}

#[test]
fn every_mutation_is_tried() {
    // `spoil` must not be able to hide a mutation behind "does not fit".
    let shape = Shape { ops: 20_000, threads: 8, keys: 12, spacing: 20 };
    let history = valid(3, shape);
    for mutation in ALL {
        assert!(spoil(&history, mutation, &mut Dice(1)).is_some(), "{mutation:?}");
    }
    assert!(spoil(&History::new(vec![]), Mutation::StaleGet, &mut Dice(1)).is_none());
}

fn directory(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

/// Small everything: generations turn, tables are flushed and merged many times a second.
fn small_store(name: &str) -> (PathBuf, Target) {
    let path = directory(name);
    let options = Options {
        memory_bytes: 8 << 20,
        segment_bytes: 64 << 10,
        log_bytes_max: Some(4 << 20),
        ..Options::default()
    };
    let db = Db::open(&path, options).expect("a new store opens");
    (path, Target::new(db).expect("keyspaces are made"))
}

fn seed() -> u64 {
    match std::env::var("DRUMLIN_HISTORY_SEED") {
        Ok(seed) => seed.parse().expect("a seed"),
        Err(_) => std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64,
    }
}

/// Recorded histories that may say nothing.
const UNDECIDED_MAX: u64 = 2;

#[test]
fn recorded_histories_are_linearizable() {
    let millions: u64 = std::env::var("DRUMLIN_HISTORY_MILLIONS").map_or(1, |n| n.parse().expect("millions"));
    let (path, target) = small_store("linearizability");
    let seed = seed();
    let (mut decided, mut undecided) = (0, 0);
    while decided < millions {
        let load = Load {
            seed: seed + decided + undecided,
            threads: 8,
            ops_per_thread: 126_000,
            padding_bytes: 240,
        };
        let flushes = target.db.stats().flushes;
        let began = std::time::Instant::now();
        let history = target.run(load).expect("the store serves");
        let recorded = began.elapsed();
        let flushes = target.db.stats().flushes - flushes;
        assert!(flushes >= 50, "only {flushes} generations were flushed");
        let judged = std::thread::scope(|scope| {
            let recent = scope.spawn(|| recent_snapshots_serializable(&history));
            [linearizable(&history), recent.join().expect("a judgement ends")]
        });
        for refusal in judged.iter().filter_map(|judged| judged.as_ref().err()) {
            if let Refusal::Violation(violation) = refusal {
                panic!("{load:?}: {violation}");
            }
        }
        let [Ok(strict), Ok(recent)] = judged else {
            // Where threads stand still in the middle of an operation, since others have the processors, so much overlaps now and then
            // that the history says nothing.
            undecided += 1;
            assert!(
                undecided <= UNDECIDED_MAX,
                "{load:?}: undecided once more: too many orders are possible"
            );
            println!("seed {}: undecided, recorded anew", load.seed);
            continue;
        };
        decided += 1;
        println!(
            "seed {}: {} operations recorded in {:.1} s, {flushes} flushes, judged in {:.1} s: {strict:?}, {recent:?}",
            load.seed,
            history.ops.len(),
            recorded.as_secs_f64(),
            (began.elapsed() - recorded).as_secs_f64()
        );
    }
    target.db.close().expect("the store closes");
    std::fs::remove_dir_all(path).expect("the store is no longer in use");
}

#[test]
fn recorded_histories_are_rejected_once_spoiled() {
    let (path, target) = small_store("spoiled");
    let mut rng = Dice(seed());
    let history = target
        .run(Load { seed: rng.next(), threads: 8, ops_per_thread: 1500, padding_bytes: 100 })
        .expect("the store serves");
    if let Err(why) = accepted(&history) {
        panic!("before it was spoiled: {why}");
    }
    let mut rejected = 0;
    for mutation in ALL.iter().cycle().take(135) {
        let Some(spoiled) = spoil(&history, *mutation, &mut rng) else { continue };
        assert!(accepted(&spoiled).is_err(), "{mutation:?} was accepted");
        rejected += 1;
    }
    assert!(rejected >= 100, "only {rejected} mutations fitted");
    target.db.close().expect("the store closes");
    std::fs::remove_dir_all(path).expect("the store is no longer in use");
}
