//! An acknowledgement printed before SIGKILL, at any instant, is there afterwards.
//!
//! The parent starts this test binary again as a child. The child opens the store and lets four writers work; each
//! prints the number of every step that was acknowledged. The parent kills the child at a random instant, then opens
//! the store itself and compares it, key by key, with what each writer's acknowledged steps amount to.
//!
//! A writer's steps are a pure function of (writer, step), so the parent can work out what must be there: the state
//! after the last acknowledged step, or after one more, since the acknowledgement of that one may have been on its way.
//! Anything else is a loss, a resurrection, half a batch or a stranger.
//!
//! The store is kept from round to round, so that recoveries pile up; some rounds kill the child while it is still
//! opening. `cargo x soak kill` runs 200 rounds (`DRUMLIN_KILL_ROUNDS`).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use drumlin::{Db, Keyspace};
use drumlin::{Durability, KeyspaceOptions, Layout, Options, WriteOptions};

const WRITERS: usize = 4;
/// Keys a writer uses per keyspace.
const KEYS: u64 = 1500;
const STORE: &str = "DRUMLIN_KILL_STORE";
const STEPS: &str = "DRUMLIN_KILL_STEPS";

/// What one writer's steps amount to: its keys and values in each of the two keyspaces.
type State = [BTreeMap<Vec<u8>, Vec<u8>>; 2];

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What a step does.
#[derive(Debug)]
enum Step {
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
        durability: Option<Durability>,
    },
    Delete {
        key: Vec<u8>,
    },
    /// The first in keyspace 0, the second in keyspace 1; one of the keys of before is deleted in both.
    Batch {
        keys: [Vec<u8>; 2],
        value: Vec<u8>,
        gone: Vec<u8>,
    },
    DeleteRange {
        start: Vec<u8>,
        end: Vec<u8>,
    },
    /// Appends to the value, or begins it.
    Update {
        key: Vec<u8>,
        suffix: u8,
    },
}

fn key(writer: usize, number: u64) -> Vec<u8> {
    format!("w{writer}/{:05}", number % KEYS).into_bytes()
}

fn step(writer: usize, number: u64) -> Step {
    let random = mix(number.wrapping_mul(8) + writer as u64 + 1);
    let at = |shift: u32| key(writer, random >> shift);
    let mut value = format!("writer {writer} step {number} ").into_bytes();
    value.resize(value.len() + (random >> 50) as usize % 400, b'.');
    match random % 32 {
        0..20 => Step::Put { key: at(8), value, durability: None },
        20 => Step::Put { key: at(8), value, durability: Some(Durability::Disk) },
        21..24 => Step::Delete { key: at(8) },
        24..28 => Step::Batch { keys: [at(8), at(12)], value, gone: at(16) },
        28 => {
            let from = (random >> 8) % (KEYS - 5);
            Step::DeleteRange { start: key(writer, from), end: key(writer, from + 5) }
        }
        _ => Step::Update { key: at(8), suffix: b'a' + (random >> 20) as u8 % 26 },
    }
}

fn updated(old: Option<&[u8]>, suffix: u8) -> Vec<u8> {
    let mut value = old.unwrap_or(b"fresh ").to_vec();
    value.push(suffix);
    value
}

fn apply(state: &mut State, step: Step) {
    match step {
        Step::Put { key, value, .. } => {
            state[0].insert(key, value);
        }
        Step::Delete { key } => {
            state[0].remove(&key);
        }
        Step::Batch { keys: [first, second], value, gone } => {
            // The last write of a key in a batch wins.
            state[0].insert(first, value.clone());
            state[1].insert(second, value);
            state[0].remove(&gone);
            state[1].remove(&gone);
        }
        Step::DeleteRange { start, end } => {
            state[0].retain(|key, _| *key < start || *key >= end);
        }
        Step::Update { key, suffix } => {
            let value = updated(state[0].get(&key).map(Vec::as_slice), suffix);
            state[0].insert(key, value);
        }
    }
}

fn run_step(db: &Db, keyspaces: &[Keyspace; 2], step: Step) -> drumlin::Result<()> {
    let [first, second] = keyspaces;
    match step {
        Step::Put { key, value, durability } => first.put_with(&key, &value, WriteOptions { durability }),
        Step::Delete { key } => first.delete(&key),
        Step::Batch { keys, value, gone } => {
            let mut batch = db.batch();
            batch.put(first, &keys[0], &value)?;
            batch.put(second, &keys[1], &value)?;
            batch.delete(first, &gone)?;
            batch.delete(second, &gone)?;
            batch.commit()
        }
        Step::DeleteRange { start, end } => first.delete_range(&start, &end),
        Step::Update { key, suffix } => first.update(&key, |old| Some(updated(old, suffix))).map(drop),
    }
}

/// Small everything, so that segments, memtables and tables turn over within a round.
fn options() -> Options {
    Options {
        memory_bytes: 8 << 20,
        segment_bytes: 64 << 10,
        log_bytes_max: Some(1 << 20),
        ..Options::default()
    }
}

fn keyspaces(db: &Db) -> drumlin::Result<[Keyspace; 2]> {
    let small = |layout| KeyspaceOptions {
        layout,
        memtable_bytes: Some(128 << 10),
        table_bytes: 64 << 10,
        level1_bytes: 256 << 10,
        ..KeyspaceOptions::default()
    };
    Ok([db.keyspace("first", small(Layout::default()))?, db.keyspace("second", small(Layout::LAZY_LEVELED))?])
}

/// Not a test of its own: the process that the test below kills.
#[test]
#[ignore = "started by acknowledged_writes_survive_sigkill"]
fn child_writes_until_killed() {
    let (Ok(store), Ok(steps)) = (std::env::var(STORE), std::env::var(STEPS)) else {
        panic!("only acknowledged_writes_survive_sigkill may start this");
    };
    let steps: Vec<u64> = steps.split(',').map(|n| n.parse().expect("a number")).collect();
    let db = Db::open(&store, options()).expect("the store opens after a kill");
    let keyspaces = keyspaces(&db).expect("its keyspaces open");
    println!("\nready");
    std::thread::scope(|scope| {
        for (writer, from) in steps.into_iter().enumerate() {
            let (db, keyspaces) = (&db, &keyspaces);
            scope.spawn(move || {
                for number in from.. {
                    run_step(db, keyspaces, step(writer, number)).expect("the step is acknowledged");
                    let mut out = std::io::stdout().lock();
                    out.write_all(format!("ack {writer} {number}\n").as_bytes()).expect("the parent reads");
                    out.flush().expect("the parent reads");
                }
            });
        }
    });
}

/// What one round's child printed before it died.
struct Printed {
    acknowledged: [Option<u64>; WRITERS],
    ready: bool,
}

/// Starts the child, kills it, and returns what it printed.
fn round(store: &Path, next: &[u64; WRITERS], while_opening: bool, random: u64) -> Printed {
    let mut child = Command::new(std::env::current_exe().expect("this test's own binary"))
        .args(["child_writes_until_killed", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(STORE, store)
        .env(STEPS, next.map(|n| n.to_string()).join(","))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let output = child.stdout.take().expect("it is piped");
    let mut errors = child.stderr.take().expect("it is piped");
    let complaints = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = std::io::Read::read_to_string(&mut errors, &mut text);
        text
    });
    let (acknowledged, loading) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut printed = Printed { acknowledged: [None; WRITERS], ready: false };
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        // A line without its end was cut by the kill: it acknowledges nothing.
        while output.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) && line.ends_with(b"\n") {
            let text = String::from_utf8_lossy(&line).into_owned();
            let mut words = text.split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (Some("ready"), ..) => {
                    printed.ready = true;
                }
                (Some("ack"), Some(writer), Some(number)) => {
                    let writer: usize = writer.parse().expect("a writer");
                    printed.acknowledged[writer] = Some(number.parse().expect("a step"));
                    let _ = acknowledged.send(());
                }
                _ => {}
            }
            line.clear();
        }
        printed
    });
    if while_opening {
        std::thread::sleep(Duration::from_micros(random % 30_000));
    } else if loading.recv_timeout(Duration::from_secs(60)).is_ok() {
        // Counted from the first step, so that the kill comes in mid-load however slow the child is to begin.
        std::thread::sleep(Duration::from_micros(random % 120_000));
    }
    // SIGKILL, or an error if it ended by itself, which the status below tells.
    let _ = child.kill();
    let status = child.wait().expect("the child has ended");
    let printed = reader.join().expect("the reader reads to the end");
    let complaints = complaints.join().expect("the reader reads to the end");
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(status.signal(), Some(9), "the child died by itself: {complaints}");
    assert!(while_opening || printed.ready, "the child did not open the store within a minute: {complaints}");
    printed
}

/// Reads what the store holds of every writer.
fn found(db: &Db) -> drumlin::Result<[State; WRITERS]> {
    let mut states: [State; WRITERS] = Default::default();
    for (place, name) in ["first", "second"].into_iter().enumerate() {
        // A kill during the first opening may have come before the keyspace existed.
        let keyspace = match db.open_keyspace(name) {
            Ok(keyspace) => keyspace,
            Err(drumlin::Error::NotFound { .. }) => continue,
            Err(why) => return Err(why),
        };
        for entry in keyspace.iter()? {
            let (key, value) = entry?;
            let writer = usize::from(key[1] - b'0');
            states[writer][place].insert(key.to_vec(), value.to_vec());
        }
    }
    Ok(states)
}

/// Where two states differ, for people.
fn difference(expected: &State, found: &State) -> String {
    let mut lines = Vec::new();
    for place in 0..2 {
        let keys: std::collections::BTreeSet<_> = expected[place].keys().chain(found[place].keys()).collect();
        for key in keys {
            let (want, have) = (expected[place].get(key), found[place].get(key));
            if want != have {
                let show = |v: Option<&Vec<u8>>| {
                    v.map_or("-".into(), |v| String::from_utf8_lossy(v).trim_end_matches('.').to_string())
                };
                lines.push(format!(
                    "  {place} {}: expected {}, found {}",
                    String::from_utf8_lossy(key),
                    show(want),
                    show(have)
                ));
            }
        }
    }
    let more = lines.len().saturating_sub(8);
    lines.truncate(8);
    format!("{}\n  and {more} more", lines.join("\n"))
}

#[test]
fn acknowledged_writes_survive_sigkill() {
    let rounds: u64 =
        std::env::var("DRUMLIN_KILL_ROUNDS").map_or(8, |n| n.parse().expect("a number of rounds"));
    let seed = std::env::var("DRUMLIN_KILL_SEED").map_or_else(
        |_| {
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos()
                as u64
        },
        |n| n.parse().expect("a seed"),
    );
    let store = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("kill-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&store);
    println!("seed {seed}, {rounds} rounds in {}", store.display());
    let started = Instant::now();
    let mut next = [0u64; WRITERS];
    let mut states: [State; WRITERS] = Default::default();
    let (mut mid_load, mut acknowledged, mut unacknowledged) = (0, 0, 0);
    for number in 0..rounds {
        let random = mix(seed ^ mix(number));
        let while_opening = number % 16 == 15;
        let printed = round(&store, &next, while_opening, random >> 8);
        mid_load += u64::from(!while_opening && printed.acknowledged.iter().any(Option::is_some));

        // Every other time without writing a byte, so that the next child has to recover by itself.
        let read_only = number % 2 == 0;
        let opened = Db::open(&store, Options { read_only, ..options() });
        let db = match opened {
            Ok(db) => db,
            // Killed before the store existed.
            Err(drumlin::Error::NotFound { .. }) if read_only && while_opening && !printed.ready => continue,
            Err(why) => panic!("round {number}: the store does not open after the kill: {why}"),
        };
        let found = found(&db).unwrap_or_else(|why| panic!("round {number}: {why}"));
        for writer in 0..WRITERS {
            let until = printed.acknowledged[writer].map_or(next[writer], |last| last + 1);
            for step_number in next[writer]..until {
                apply(&mut states[writer], step(writer, step_number));
            }
            acknowledged += until - next[writer];
            next[writer] = until;
            if states[writer] != found[writer] {
                let without = difference(&states[writer], &found[writer]);
                apply(&mut states[writer], step(writer, until));
                next[writer] += 1;
                unacknowledged += 1;
                assert!(
                    states[writer] == found[writer],
                    "round {number}, writer {writer}: neither the {until} acknowledged steps:\n{without}\nnor one more ({:?}):\n{}",
                    step(writer, until),
                    difference(&states[writer], &found[writer]),
                );
            }
        }
        if number % 8 == 7 {
            let report = db.verify(&mut |_| {}).expect("verify runs");
            assert!(report.problems.is_empty(), "round {number}: {:?}", report.problems);
        }
        if !read_only {
            db.close().expect("the store closes");
        }
    }
    println!(
        "{rounds} kills, {mid_load} of them in mid-load; {acknowledged} acknowledged steps all there, \
         {unacknowledged} survived without; {:.1} s",
        started.elapsed().as_secs_f64()
    );
    assert!(acknowledged > rounds, "the writers wrote");
    assert!(mid_load * 10 >= rounds * 9, "too few kills in mid-load");
    std::fs::remove_dir_all(&store).expect("the store is no longer in use");
}
