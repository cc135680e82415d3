//! What a crash left: opens it, finds the prefix of the history that it amounts to, and checks that
//! the store goes on from there.

use std::sync::Arc;

use super::workload::{KEYSPACES, Oracle, keyspace_options, open, read_all, record_number, state_number};
use crate::Db;
use crate::env::{FileSystem, MemFs};
use crate::error::Result;
use crate::options::{Durability, WriteOptions};
use crate::sync::Mutex;

/// How the machine or the process came to its end.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Crash {
    Process,
    /// Unsynced changes are kept with this probability, by this seed.
    Power {
        keep: f64,
        seed: u64,
    },
}

impl Crash {
    pub fn clone_of(self, fs: &MemFs) -> Arc<MemFs> {
        match self {
            Crash::Process => fs.process_crash_clone(),
            Crash::Power { keep, seed } => fs.crash_clone_random(seed, keep),
        }
    }
}

/// What must be there.
#[derive(Clone)]
pub enum Expected {
    /// The state after some prefix of the history, from so many operations to so many.
    Prefix(Oracle, usize, usize),
    /// Exactly this state.
    State(u64),
}

/// A crashed store to be judged.
pub struct Remains {
    pub fs: Arc<MemFs>,
    pub crash: Crash,
    pub expected: Expected,
    /// Operations that survive a power loss behind a crash of the process.
    pub durable: usize,
    /// Where it crashed.
    pub place: String,
}

/// Opens the remains and fails unless everything is as it must be. `depth`: how many more crashes
/// to put into the recovery itself.
pub fn judge(remains: &Remains, depth: u32, salt: u64) {
    let before = copy_of(remains);
    let state = judge_once(remains, salt);
    if depth == 0 {
        return;
    }
    let samples = crashes_in_recovery(before, remains, salt);
    for sample in samples {
        // What was durable before the first crash is durable now: only a power loss behind a crash
        // of the process can still take anything.
        let exact = !(remains.crash == Crash::Process && sample.crash != Crash::Process);
        let expected = match &sample.expected {
            Expected::Prefix(oracle, _, to) if !exact => {
                Expected::Prefix(oracle.clone(), sample.durable, *to)
            }
            _ => Expected::State(state),
        };
        judge(&Remains { expected, ..sample }, depth - 1, salt.wrapping_add(1));
    }
}

/// The same again, for a second life.
fn copy_of(remains: &Remains) -> Arc<MemFs> {
    match remains.crash {
        Crash::Process => remains.fs.process_crash_clone(),
        Crash::Power { .. } => remains.fs.crash_clone(&mut |_| crate::env::Keep::Whole),
    }
}

fn judge_once(remains: &Remains, salt: u64) -> u64 {
    let context = format!("{:?} {}", remains.crash, remains.place);
    let fail = |what: &str, error: &dyn std::fmt::Display| -> ! { panic!("{context}: {what}: {error}") };
    let fs: Arc<dyn FileSystem> = remains.fs.clone();
    let db = open(&fs).unwrap_or_else(|error| fail("the store does not open", &error));
    let state = state_number(&db).unwrap_or_else(|error| fail("it cannot be read", &error));
    check_state(remains, &context, &db, state);
    let report = db.verify(&mut |_| {}).unwrap_or_else(|error| fail("verify fails", &error));
    assert!(report.is_sound(), "{context}: {:?}", report.problems);

    // It goes on: a durable write is there after whatever comes next.
    let (key, value) = (b"afterwards".as_slice(), salt.to_le_bytes());
    let disk = WriteOptions { durability: Some(Durability::Disk) };
    let write = |db: &Db| db.keyspace(KEYSPACES[0], keyspace_options())?.put_with(key, value, disk);
    write(&db).unwrap_or_else(|error| fail("it cannot be written", &error));
    let state_after = state.wrapping_add(record_number(KEYSPACES[0], key, &value));
    let next: Arc<dyn FileSystem> = match salt % 3 {
        0 => {
            db.close().unwrap_or_else(|error| fail("it cannot be closed", &error));
            fs
        }
        1 => remains.fs.process_crash_clone(),
        _ => remains.fs.crash_clone_random(salt, (salt / 3 % 5) as f64 / 4.0),
    };
    let db = open(&next).unwrap_or_else(|error| fail("it does not open again", &error));
    let again = state_number(&db).unwrap_or_else(|error| fail("it cannot be read again", &error));
    assert_eq!(again, state_after, "{context}: after one more write and ending {}", salt % 3);
    state
}

fn check_state(remains: &Remains, context: &str, db: &Db, state: u64) {
    match &remains.expected {
        Expected::State(expected) => {
            assert_eq!(state, *expected, "{context}: not the state of the recovery that crashed")
        }
        Expected::Prefix(oracle, from, to) => {
            let told = oracle.lock();
            if told.states[*from..=*to].contains(&state) {
                return;
            }
            let elsewhere = told.states.iter().position(|s| *s == state);
            let mut sizes = Vec::new();
            let _ = read_all(db, &mut |name, key, value| {
                sizes.push(format!("{name}/{}={}", key.escape_ascii(), value.len()));
            });
            let ops: Vec<_> = (*from..*to).map(|at| format!("{}: {}", at + 1, told.log[at])).collect();
            panic!(
                "{context}: not the state after {from} to {to} operations (it is that after {elsewhere:?})\n\
                 operations in question: {ops:#?}\nfound: {sizes:?}"
            );
        }
    }
}

/// Crashes the recovery of `fs` at a few of its calls.
fn crashes_in_recovery(fs: Arc<MemFs>, remains: &Remains, salt: u64) -> Vec<Remains> {
    let taken: Arc<Mutex<Vec<Remains>>> = Arc::default();
    let hook = {
        let (fs, taken) = (Arc::downgrade(&fs), taken.clone());
        let (expected, durable) = (remains.expected.clone(), remains.durable);
        let place = format!("{:?} {}", remains.crash, remains.place);
        let mut dice = crate::dice::Dice(salt);
        move |call: &crate::env::Call<'_>| {
            let Some(fs) = fs.upgrade() else { return };
            if !call.operation.writes() || dice.below(12) != 0 || taken.lock().len() >= 4 {
                return;
            }
            let crash = match dice.below(3) {
                0 => Crash::Process,
                1 => Crash::Power { keep: 0.0, seed: 0 },
                _ => Crash::Power { keep: 0.5, seed: dice.next() },
            };
            let place = format!("{place}, then in recovery at {:?} {}", call.operation, call.path.display());
            let (fs, expected) = (crash.clone_of(&fs), expected.clone());
            taken.lock().push(Remains { fs, crash, expected, durable, place });
        }
    };
    fs.set_hook(Some(Box::new(hook)));
    let opened: Result<Db> = open(&(fs.clone() as Arc<dyn FileSystem>));
    fs.set_hook(None);
    drop(opened);
    std::mem::take(&mut *taken.lock())
}
