//! Several writers at once, crashed at any moment: of each writer's history a prefix is there, and
//! together they are a prefix too: what was acknowledged before a write that is there began, is there.
//!
//! Each writer has keys of its own in both keyspaces, and one pair that it always changes in one
//! batch: so its steps can be told from what is found, and half a batch is seen.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::recovery::Crash;
use super::workload::{KEYSPACES, keyspace_options, open, read_all};
use super::{rounds, within};
use crate::Db;
use crate::dice::Dice;
use crate::env::{FileSystem, MemFs};
use crate::error::Result;
use crate::options::{Durability, WriteOptions};
use crate::sync::Mutex;

const WRITERS: usize = 3;

/// One writer's progress. Its steps are numbered from 1.
#[derive(Default)]
struct Progress {
    started: AtomicU64,
    acked: AtomicU64,
    /// Acknowledged as durable.
    durable: AtomicU64,
    /// Per step: how many steps of every writer were acknowledged before it began.
    before: Mutex<Vec<[u64; WRITERS]>>,
}

type All = Arc<[Progress; WRITERS]>;

fn counts(all: &All, of: impl Fn(&Progress) -> &AtomicU64) -> [u64; WRITERS] {
    std::array::from_fn(|n| of(&all[n]).load(Ordering::SeqCst))
}

/// What the n-th step of a writer does; what it leaves is a function of writer and step.
fn step(db: &Db, all: &All, writer: usize, number: u64, dice: &mut Dice) -> Result<()> {
    let [a, b] = [KEYSPACES[0], KEYSPACES[1]].map(|name| db.keyspace(name, keyspace_options()));
    let (a, b) = (a?, b?);
    let me = &all[writer];
    let before = counts(all, |p| &p.acked);
    me.before.lock().push(before);
    me.started.store(number, Ordering::SeqCst);
    let durable = dice.below(6) == 0;
    let with = WriteOptions { durability: durable.then_some(Durability::Disk) };
    let counter = format!("{writer}/counter");
    // So much that memtables turn and the log is recycled under way.
    let filler = vec![number as u8; [10, 300, 2000][dice.below(3) as usize]];
    let mut batch = db.batch();
    batch.put(&a, &counter, number.to_le_bytes())?;
    batch.put(&a, format!("{writer}/fill/{}", number % 50), &filler)?;
    batch.put(&b, format!("{writer}/fill/{}", number % 50), &filler)?;
    if number.is_multiple_of(10) {
        batch.delete_range(&b, format!("{writer}/fill/2"), format!("{writer}/fill/3"))?;
    }
    batch.put(&b, &counter, number.to_le_bytes())?;
    batch.commit_with(with)?;
    if durable {
        me.durable.store(number, Ordering::SeqCst);
    }
    me.acked.store(number, Ordering::SeqCst);
    Ok(())
}

struct Remains {
    fs: Arc<MemFs>,
    crash: Crash,
    least: [u64; WRITERS],
    most: [u64; WRITERS],
}

fn judge(remains: &Remains, all: &All) {
    let context = format!("{:?}, {:?} to {:?}", remains.crash, remains.least, remains.most);
    let fs: Arc<dyn FileSystem> = remains.fs.clone();
    let db = open(&fs).unwrap_or_else(|e| panic!("{context}: {e}"));
    let mut found = BTreeMap::new();
    read_all(&db, &mut |keyspace, key, value| {
        if key.ends_with(b"/counter") {
            let number = u64::from_le_bytes(value.try_into().expect("eight bytes"));
            found.insert((keyspace.to_string(), key.to_vec()), number);
        }
    })
    .unwrap_or_else(|e| panic!("{context}: {e}"));
    let there: [[u64; WRITERS]; 2] = [KEYSPACES[0], KEYSPACES[1]].map(|name| {
        std::array::from_fn(|n| {
            found.get(&(name.to_string(), format!("{n}/counter").into_bytes())).copied().unwrap_or(0)
        })
    });
    assert_eq!(there[0], there[1], "{context}: half a batch");
    let there = there[0];
    for writer in 0..WRITERS {
        let within = remains.least[writer]..=remains.most[writer];
        assert!(within.contains(&there[writer]), "{context}: {there:?} is there");
        if let Some(last) = there[writer].checked_sub(1) {
            let before = all[writer].before.lock()[last as usize];
            assert!(
                before.iter().zip(&there).all(|(b, t)| b <= t),
                "{context}: step {} of writer {writer} is there, but of {before:?}, acknowledged before it began, \
                 only {there:?}",
                last + 1
            );
        }
    }
    assert!(db.verify(&mut |_| {}).expect("verify").is_sound(), "{context}");
}

fn crash_writers(seed: u64, crashes: u64) {
    let fs = MemFs::new();
    let all: All = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let (taken, remains) = mpsc::channel();
    let db = open(&(fs.clone() as Arc<dyn FileSystem>)).expect("open");
    let (watched, watcher_all) = (Arc::downgrade(&fs), all.clone());
    let mut dice = Dice(seed);
    let mut left = crashes;
    fs.set_hook(Some(Box::new(move |call| {
        let Some(fs) = watched.upgrade() else { return };
        if left == 0 || !call.operation.writes() || dice.below(10) != 0 {
            return;
        }
        left -= 1;
        let crash = match dice.below(3) {
            0 => Crash::Process,
            1 => Crash::Power { keep: 0.0, seed: 0 },
            _ => Crash::Power { keep: 0.5, seed: dice.next() },
        };
        let least = counts(&watcher_all, |p| if crash == Crash::Process { &p.acked } else { &p.durable });
        let fs = crash.clone_of(&fs);
        let most = counts(&watcher_all, |p| &p.started);
        let _ = taken.send(Remains { fs, crash, least, most });
    })));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, all, stop) = (db.clone(), all.clone(), stop.clone());
            scope.spawn(move || {
                let mut dice = Dice(seed * 100 + writer as u64);
                for number in 1.. {
                    if stop.load(Ordering::SeqCst) || step(&db, &all, writer, number, &mut dice).is_err() {
                        return;
                    }
                }
            });
        }
        let judged: Vec<_> = remains.iter().take(crashes as usize).collect();
        stop.store(true, Ordering::SeqCst);
        fs.set_hook(None);
        judged.iter().for_each(|remains| judge(remains, &all));
    });
    drop(db);
}

#[test]
fn writers_side_by_side_leave_one_prefix_of_all_their_batches() {
    let seeds = rounds("DRUMLIN_CRASH_ROUNDS").map_or(3, |rounds| rounds * 40);
    for seed in 1..=seeds {
        within(Duration::from_secs(120), &format!("seed {seed}"), || crash_writers(seed, 60));
    }
}
