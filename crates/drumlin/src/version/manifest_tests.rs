//! The manifest under crashes, faults and flipped bits.
//!
//! A workload is a list of edits; state `j` is what the first `j` of them make. Whatever happens, a
//! store that reads back must be in state `j` for some `j` from the number acknowledged to the
//! number begun, and once `create` has returned it must read back.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::dice::Dice;
use crate::env::{Env, Fault, FaultyFs, FileSystem, Keep, MemFs, PAGE_BYTES};
use crate::error::{Error, Result};
use crate::key::Lsn;
use crate::options::KeyspaceOptions;
use crate::table::{TableId, TableMeta};

/// Bytes of a seal for one of the first 127 edits.
const SEAL_BYTES: u64 = 18;

fn dir() -> &'static Path {
    Path::new("/data/stores/one")
}

fn identity() -> Identity {
    Identity {
        uuid: [0x5a; 16],
        secret: 0xfeed_beef,
        segment_bytes: 1 << 16,
        created: Duration::from_secs(7),
    }
}

fn env(fs: &Arc<impl FileSystem>) -> Env {
    Env::with_fs(Arc::clone(fs) as Arc<dyn FileSystem>)
}

fn table(id: u64, key_bytes: usize) -> TableMeta {
    TableMeta {
        id: TableId(id),
        file_bytes: 1000 + id,
        entries: 10 + id,
        smallest: [vec![b'a'; key_bytes], id.to_be_bytes().to_vec()].concat(),
        largest: [vec![b'b'; key_bytes], id.to_be_bytes().to_vec()].concat(),
        min_lsn: Lsn(id * 100),
        max_lsn: Lsn(id * 100 + 99),
        content_hash: u128::from(id) << 70,
        seed: id,
        ..TableMeta::default()
    }
}

/// Edits of every kind; `key_bytes` makes them small (within a page) or large (over several).
fn edits(count: u64, key_bytes: usize) -> Vec<VersionEdit> {
    let keyspace = KeyspaceId(1);
    let options = encode_options(&KeyspaceOptions::default());
    let mut edits = vec![
        VersionEdit::new().with(Change::SessionStart { first_segment: 0, boot_id: [1; 16] }),
        VersionEdit::new()
            .with(Change::CreateKeyspace { id: keyspace, name: "cities".into(), options: options.clone() })
            .with(Change::FlushedTo { keyspace, lsn: Lsn(5) })
            .with(Change::NextKeyspaceId(2)),
    ];
    for n in 1..=count {
        edits.push(match n % 6 {
            0 => VersionEdit::new()
                .with(Change::RemoveTable { keyspace, level: 0, id: TableId(n - 1) })
                .with(Change::AddTable { keyspace, level: 1, meta: table(n, key_bytes) }),
            1 => VersionEdit::new().with(Change::SetOptions { keyspace, options: options.clone() }),
            2 => VersionEdit::new()
                .with(Change::CreateKeyspace {
                    id: KeyspaceId(100 + n as u32),
                    name: format!("k{n}"),
                    options: options.clone(),
                })
                .with(Change::NextTableId(n)),
            3 => VersionEdit::new().with(Change::DropKeyspace { id: KeyspaceId(100 + n as u32 - 1) }),
            _ => VersionEdit::new()
                .with(Change::AddTable { keyspace, level: 0, meta: table(n, key_bytes) })
                .with(Change::FlushedTo { keyspace, lsn: Lsn(n * 100) }),
        });
    }
    edits
}

/// State `j` for every `j`.
fn states(edits: &[VersionEdit]) -> Vec<StoreState> {
    let mut states = vec![StoreState::default()];
    for edit in edits {
        let mut next = states.last().unwrap().clone();
        next.apply(edit).unwrap();
        states.push(next);
    }
    states
}

/// States are too long to print.
#[track_caller]
fn assert_same(found: &StoreState, expected: &StoreState, context: impl std::fmt::Display) {
    assert!(found == expected, "another state: {context}");
}

fn load_state(fs: &MemFs) -> Result<StoreState> {
    Manifest::load(fs, dir()).map(|(found, state, _)| {
        assert_eq!(found, identity());
        state
    })
}

/// The ways a power may fail: nothing unsynced kept, everything, and mixtures.
fn crash_clones(fs: &MemFs, seed: u64) -> Vec<Arc<MemFs>> {
    let mut clones = vec![
        fs.crash_clone(&mut |_| Keep::No),
        fs.crash_clone(&mut |_| Keep::Whole),
        fs.process_crash_clone(),
    ];
    for n in 1..=6u64 {
        let mut dice = Dice(seed.wrapping_mul(6).wrapping_add(n).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        clones.push(fs.crash_clone(&mut |_| match dice.below(4) {
            0 => Keep::No,
            1 => Keep::Whole,
            2 => Keep::Torn(dice.below(PAGE_BYTES as u64) as usize),
            _ => Keep::Sectors(dice.below(256) as u8),
        }));
    }
    clones
}

/// How far the workload is; read by the crashes.
#[derive(Default)]
struct Progress {
    created: AtomicBool,
    begun: AtomicUsize,
    acknowledged: AtomicUsize,
}

/// Creates a store and appends `edits`, reopening it in between.
fn run_workload(env: &Env, edits: &[VersionEdit], progress: &Progress) {
    let mut manifest = Manifest::create(env, dir(), identity()).unwrap();
    progress.created.store(true, Ordering::SeqCst);
    for (n, edit) in edits.iter().enumerate() {
        if n % 7 == 5 {
            drop(manifest);
            manifest = Manifest::open(env, dir()).unwrap().0;
        }
        progress.begun.store(n + 1, Ordering::SeqCst);
        manifest.append(edit).unwrap();
        progress.acknowledged.store(n + 1, Ordering::SeqCst);
    }
}

/// Checks one file system left by a crash, and that the store goes on from there.
fn check_crashed(fs: &Arc<MemFs>, states: &[StoreState], progress: &Progress, context: &str) {
    let acknowledged = progress.acknowledged.load(Ordering::SeqCst);
    let begun = progress.begun.load(Ordering::SeqCst);
    match load_state(fs) {
        Ok(state) => {
            let found = states.iter().position(|s| *s == state);
            assert!(found.is_some(), "{context}: a state that never was");
            let kept = (acknowledged..=begun).any(|j| states[j] == state);
            assert!(kept, "{context}: state {found:?}, but {acknowledged} to {begun} is allowed");
            let (mut manifest, _, opened) = Manifest::open(&env(fs), dir()).unwrap();
            assert_same(&opened, &state, context);
            manifest.append(&VersionEdit::from(Change::NextTableId(1 << 40))).unwrap();
            let reopened = load_state(&fs.crash_clone(&mut |_| Keep::No)).unwrap();
            assert_same(&reopened, manifest.state(), format!("{context}: after going on"));
        }
        Err(Error::NotFound { .. }) => {
            assert!(!progress.created.load(Ordering::SeqCst), "{context}: the store is gone");
            Manifest::create(&env(fs), dir(), identity()).unwrap();
            let again = load_state(&fs.crash_clone(&mut |_| Keep::No)).unwrap();
            assert_same(&again, &StoreState::default(), format!("{context}: created again"));
        }
        Err(other) => panic!("{context}: {other}"),
    }
}

#[test]
fn a_crash_at_any_call_loses_nothing_acknowledged() {
    for (count, key_bytes) in [(30, 20), (16, 6000)] {
        let edits = edits(count, key_bytes);
        let states = Arc::new(states(&edits));
        let progress = Arc::new(Progress::default());
        let fs = MemFs::new();
        let hook = {
            let (fs, states, progress) = (Arc::downgrade(&fs), states.clone(), progress.clone());
            move |call: &crate::env::Call<'_>| {
                let fs = fs.upgrade().unwrap();
                for (n, clone) in crash_clones(&fs, call.number).iter().enumerate() {
                    let context = format!("crash {n} before call {} {:?}", call.number, call.operation);
                    check_crashed(clone, &states, &progress, &context);
                }
            }
        };
        fs.set_hook(Some(Box::new(hook)));
        run_workload(&env(&fs), &edits, &progress);
        fs.set_hook(None);
        assert!(fs.calls() > 100, "the workload is crashed at many calls: {}", fs.calls());
        assert_eq!(progress.acknowledged.load(Ordering::SeqCst), edits.len());
    }
}

#[test]
fn a_crash_while_recovering_from_a_torn_append_loses_nothing() {
    let edits = edits(4, 6000);
    let states = states(&edits);
    let fs = MemFs::new();
    let mut manifest = Manifest::create(&env(&fs), dir(), identity()).unwrap();
    let (last, before) = edits.split_last().unwrap();
    before.iter().for_each(|edit| manifest.append(edit).unwrap());

    // A power loss at the sync of the last record, with pages of it missing.
    let torn = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let hook = {
        let (fs, torn) = (Arc::downgrade(&fs), torn.clone());
        move |call: &crate::env::Call<'_>| {
            if call.operation == crate::env::Operation::Sync {
                // Not the crash of the process: what it leaves another power loss may take.
                let mut clones = crash_clones(&fs.upgrade().unwrap(), call.number);
                clones.remove(2);
                torn.lock().extend(clones);
            }
        }
    };
    fs.set_hook(Some(Box::new(hook)));
    manifest.append(last).unwrap();
    fs.set_hook(None);

    let clones = std::mem::take(&mut *torn.lock());
    let mut tails = 0;
    for clone in clones {
        let (_, state, info) = Manifest::load(&*clone, dir()).unwrap();
        let number = states.iter().position(|s| *s == state).unwrap();
        assert!(number >= before.len());
        tails += u32::from(info.torn.is_some());
        let hook = {
            let (fs, states) = (Arc::downgrade(&clone), states.clone());
            move |call: &crate::env::Call<'_>| {
                for again in crash_clones(&fs.upgrade().unwrap(), call.number) {
                    assert_same(&load_state(&again).unwrap(), &states[number], call.number);
                }
            }
        };
        clone.set_hook(Some(Box::new(hook)));
        let (_, _, opened) = Manifest::open(&env(&clone), dir()).unwrap();
        clone.set_hook(None);
        assert_same(&opened, &states[number], "opened");
        assert_eq!(Manifest::load(&*clone, dir()).unwrap().2.torn, None, "the torn tail is left behind");
    }
    assert!(tails > 2, "some of the clones have torn tails: {tails}");
}

/// Runs the workload with whatever faults are planned; each edit is tried again once.
/// Gives the states that the store may be in afterwards; none if it could not be created.
fn run_with_faults(fs: &Arc<FaultyFs>, inner: &MemFs, edits: &[VersionEdit]) -> Vec<StoreState> {
    let mut allowed = Vec::new();
    let env = env(fs);
    let Ok(mut manifest) =
        Manifest::create(&env, dir(), identity()).or_else(|_| Manifest::create(&env, dir(), identity()))
    else {
        return allowed;
    };
    for (n, edit) in edits.iter().enumerate() {
        if n == edits.len() / 2 {
            drop(manifest);
            let opened = Manifest::open(&env, dir()).or_else(|_| Manifest::open(&env, dir()));
            manifest = opened.expect("the fault comes once").0;
        }
        let before = manifest.state().clone();
        let mut after = before.clone();
        after.apply(edit).unwrap();
        allowed = vec![after.clone()];
        if manifest.append(edit).is_ok() {
            continue;
        }
        if manifest.poisoned().is_some() {
            let again = manifest.append(edit);
            assert!(matches!(again, Err(Error::Poisoned { .. })), "poisoned for ever");
            return vec![before, after];
        }
        // Not poisoned: the edit is not in effect, whatever a power loss keeps.
        assert_same(manifest.state(), &before, "after a failed append");
        for clone in crash_clones(inner, n as u64) {
            assert_same(&load_state(&clone).unwrap(), &before, "a failed edit is not in effect");
        }
        manifest.append(edit).expect("the fault comes once");
    }
    allowed
}

#[test]
fn any_call_may_fail_once() {
    let edits = edits(8, 700);
    let faults = [
        Fault::Error(ErrorKind::Other),
        Fault::ErrorAfter(ErrorKind::Other),
        Fault::NoSpace,
        Fault::ShortWrite,
    ];
    for fault in faults {
        for number in 0.. {
            let inner = MemFs::new();
            let fs = FaultyFs::new(Arc::clone(&inner) as Arc<dyn FileSystem>);
            fs.fail_at(number, fault);
            let allowed = run_with_faults(&fs, &inner, &edits);
            if fs.calls() <= number {
                assert!(number > 60, "the workload makes many calls");
                break;
            }
            for clone in crash_clones(&inner, number) {
                match load_state(&clone) {
                    Ok(state) if allowed.is_empty() => {
                        assert_same(&state, &StoreState::default(), "created, although it failed");
                    }
                    Ok(state) => assert!(allowed.contains(&state), "{fault:?} at {number}"),
                    Err(Error::NotFound { .. }) if allowed.is_empty() => {
                        Manifest::create(&env(&clone), dir(), identity()).unwrap();
                    }
                    Err(error) => panic!("{fault:?} at {number}: {error}"),
                }
                Manifest::open(&env(&clone), dir()).unwrap();
            }
        }
    }
}

#[test]
fn a_bit_flipped_while_reading_is_found_or_harmless() {
    let edits = edits(6, 40);
    let expected = states(&edits).pop().unwrap();
    let inner = MemFs::new();
    run_workload(&env(&inner), &edits, &Progress::default());
    let sound = inner.process_crash_clone();
    let mut found = 0;
    for number in 0.. {
        for bit in (0..3000).step_by(7) {
            let clone = sound.process_crash_clone();
            let fs = FaultyFs::new(Arc::clone(&clone) as Arc<dyn FileSystem>);
            fs.fail_at(number, Fault::CorruptRead { bit });
            match Manifest::open(&env(&fs), dir()) {
                Ok((_, _, state)) => assert_same(&state, &expected, format!("call {number} bit {bit}")),
                Err(error) => {
                    assert!(error.is_corruption(), "call {number} bit {bit}: {error}");
                    found += 1;
                }
            }
            if fs.calls() <= number {
                assert!(found > 1000, "most flips are found: {found}");
                return;
            }
        }
    }
}

#[test]
fn every_flipped_bit_of_every_file_is_found_or_harmless() {
    let edits = edits(12, 30);
    let expected = states(&edits).pop().unwrap();
    let fs = MemFs::new();
    run_workload(&env(&fs), &edits, &Progress::default());
    // Also after a power loss that kept nothing unsynced: seals are durable, or a flip in the last
    // edit would pass for a torn tail.
    for clone in [fs.process_crash_clone(), fs.crash_clone(&mut |_| Keep::No)] {
        let current = Manifest::load(&*clone, dir()).unwrap().2.path;
        let mut seen = BTreeSet::new();
        for path in clone.files() {
            let bytes = clone.contents(&path).unwrap().len() as u64;
            let mut harmless = 0;
            for (offset, mask) in (0..bytes).flat_map(|o| (0..8).map(move |bit| (o, 1u8 << bit))) {
                clone.damage(&path, offset, mask).unwrap();
                match load_state(&clone) {
                    Ok(state) => {
                        assert_same(&state, &expected, format!("{} byte {offset}", path.display()));
                        harmless += 1;
                    }
                    Err(Error::Corruption(c)) => {
                        assert_eq!(c.path, path);
                        let named = c.offset.unwrap();
                        assert!(named <= offset, "byte {offset} is reported at {named}");
                    }
                    Err(other) => panic!("{} byte {offset} mask {mask}: {other}", path.display()),
                }
                clone.damage(&path, offset, mask).unwrap();
            }
            let is_manifest = path.to_string_lossy().contains("MANIFEST");
            let expected = match is_manifest {
                // The last seal only, which the edit before it does not need.
                true if path == current => SEAL_BYTES * 8,
                // An old one, whose removal was not durable yet.
                true => bytes * 8,
                false => 0,
            };
            assert_eq!(harmless, expected, "{}", path.display());
            seen.insert(path);
        }
        assert!(seen.len() >= 3, "STORE, CURRENT, a manifest: {seen:?}");
    }
}

#[test]
fn a_missing_file_is_corruption_and_never_a_new_store() {
    let fs = MemFs::new();
    run_workload(&env(&fs), &edits(6, 20), &Progress::default());
    fs.set_contents(dir().join("log/0000000000.log"), b"log").unwrap();
    for path in fs.files() {
        let clone = fs.process_crash_clone();
        clone.remove(&path).unwrap();
        let loaded = load_state(&clone);
        if path.ends_with("0000000000.log") {
            loaded.unwrap();
            continue;
        }
        match loaded {
            Err(Error::Corruption(c)) => assert_eq!(c.path, path),
            other => panic!("without {}: {other:?}", path.display()),
        }
        let created = Manifest::create(&env(&clone), dir(), identity());
        assert!(created.is_err(), "a lost file must not make room for a new store: {}", path.display());
    }
}

#[test]
fn any_trace_of_use_without_a_current_is_a_lost_store() {
    let table_name = crate::table::file_name(TableId(7), 1 << 100);
    for trace in ["log/0000000000.log", &table_name, "MANIFEST-000002", "MANIFEST-1234567"] {
        let fs = MemFs::new();
        fs.set_contents(dir().join(trace), b"x").unwrap();
        for result in [load_state(&fs).map(drop), Manifest::create(&env(&fs), dir(), identity()).map(drop)] {
            match result {
                Err(Error::Corruption(c)) => assert_eq!(c.path, dir().join("CURRENT")),
                other => panic!("{trace}: {other:?}"),
            }
        }
    }
    let left_by_a_creation = ["LOCK", "STORE", "CURRENT.tmp", "MANIFEST-000001", "log/readme", "MANIFEST-x"];
    let fs = MemFs::new();
    for name in left_by_a_creation {
        fs.set_contents(dir().join(name), b"x").unwrap();
    }
    assert!(matches!(load_state(&fs), Err(Error::NotFound { .. })));
    Manifest::create(&env(&fs), dir(), identity()).unwrap();
    assert_same(&load_state(&fs).unwrap(), &StoreState::default(), "created");
}

#[test]
fn reading_writes_nothing() {
    let fs = MemFs::new();
    let missing = Manifest::load(&*fs, dir());
    assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
    run_workload(&env(&fs), &edits(6, 20), &Progress::default());
    fs.set_hook(Some(Box::new(|call| assert!(!call.operation.writes(), "{call:?}"))));
    load_state(&fs).unwrap();
    fs.set_hook(None);
}

#[test]
fn a_full_device_refuses_edits_and_takes_them_again_when_there_is_room() {
    let edits = edits(40, 3000);
    let fs = MemFs::new();
    let mut manifest = Manifest::create(&env(&fs), dir(), identity()).unwrap();
    let mut refused = 0;
    for (n, edit) in edits.iter().enumerate() {
        // Full at this edit, with 0 to 2 pages to spare: the record may fit where the seal does not.
        fs.set_capacity(Some(fs.used_bytes() + (n % 3 * PAGE_BYTES) as u64));
        for _ in 0..2 {
            let Err(error) = manifest.append(edit) else { continue };
            if let Error::InvalidArgument(_) = error {
                continue; // The first try was taken.
            }
            assert!(error.is_no_space(), "{error}");
            assert_eq!(manifest.poisoned(), None);
            refused += 1;
        }
        let taken = load_state(&fs.crash_clone(&mut |_| Keep::No)).unwrap() == *manifest.state();
        assert!(taken, "what is on the device is what was acknowledged");
        fs.set_capacity(None);
        let mut wanted = manifest.state().clone();
        if wanted.apply(edit).is_ok() {
            manifest.append(edit).unwrap();
            assert_same(manifest.state(), &wanted, "writes resume without reopening");
        }
    }
    assert!(refused > 20, "the device was full often: {refused}");
    let mut expected = states(&edits).pop().unwrap();
    expected.session = manifest.state().session;
    assert_same(&load_state(&fs).unwrap(), &expected, "at last");
}

#[test]
fn the_file_stays_small_however_long_the_history() {
    let keyspace = KeyspaceId(1);
    let fs = MemFs::new();
    let mut manifest = Manifest::create(&env(&fs), dir(), identity()).unwrap();
    let create = Change::CreateKeyspace { id: keyspace, name: "k".into(), options: Vec::new() };
    manifest.append(&VersionEdit::from(create)).unwrap();
    let mut files = BTreeSet::new();
    for id in 1..=3000 {
        let mut edit = VersionEdit::from(Change::AddTable { keyspace, level: 0, meta: table(id, 20) });
        if id > 3 {
            edit.push(Change::RemoveTable { keyspace, level: 0, id: TableId(id - 3) });
        }
        manifest.append(&edit).unwrap();
        assert!(manifest.bytes() < REWRITE_BYTES_MIN + 1000);
        files.insert(manifest.path());
    }
    assert!(files.len() > 5, "it was rewritten: {}", files.len());
    assert_eq!(fs.files().len(), 3, "old manifests are removed: {:?}", fs.files());
    assert_same(&load_state(&fs).unwrap(), manifest.state(), "at last");
}

#[test]
fn a_failed_rewrite_is_harmless() {
    let keyspace = KeyspaceId(1);
    let inner = MemFs::new();
    let fs = FaultyFs::new(Arc::clone(&inner) as Arc<dyn FileSystem>);
    let mut manifest = Manifest::create(&env(&fs), dir(), identity()).unwrap();
    let create = Change::CreateKeyspace { id: keyspace, name: "k".into(), options: Vec::new() };
    manifest.append(&VersionEdit::from(create)).unwrap();
    fs.fail_when(|call| {
        (call.operation == crate::env::Operation::Create).then_some(Fault::Error(ErrorKind::Other))
    });
    let flip = |n: u64| VersionEdit::from(Change::SetOptions { keyspace, options: vec![n as u8; 1000] });
    for n in 0..100 {
        manifest.append(&flip(n)).unwrap();
        let kept = load_state(&inner.crash_clone(&mut |_| Keep::No)).unwrap();
        assert_same(&kept, manifest.state(), n);
    }
    assert!(manifest.bytes() > REWRITE_BYTES_MIN && manifest.rewrite_failure().is_some());
    fs.clear();
    for n in 0..100 {
        manifest.append(&flip(n)).unwrap();
    }
    assert!(manifest.rewrite_failure().is_none(), "tried again when it has doubled");
    assert!(manifest.bytes() < REWRITE_BYTES_MIN + 2000, "{}", manifest.bytes());
    assert_same(&load_state(&inner).unwrap(), manifest.state(), "at last");
}

#[test]
fn an_edit_that_does_not_fit_is_refused_before_anything_is_written() {
    let fs = MemFs::new();
    let mut manifest = Manifest::create(&env(&fs), dir(), identity()).unwrap();
    for edit in edits(7, 20) {
        manifest.append(&edit).unwrap();
    }
    let keyspace = KeyspaceId(1);
    let wrong = [
        Change::CreateKeyspace { id: keyspace, name: "again".into(), options: Vec::new() },
        Change::CreateKeyspace { id: KeyspaceId(900), name: "cities".into(), options: Vec::new() },
        Change::DropKeyspace { id: KeyspaceId(77) },
        Change::AddTable { keyspace: KeyspaceId(77), level: 0, meta: table(50, 9) },
        Change::AddTable { keyspace, level: 256, meta: table(50, 9) },
        Change::AddTable { keyspace, level: 0, meta: table(4, 9) },
        Change::AddTable { keyspace, level: 3, meta: table(4, 9) },
        Change::RemoveTable { keyspace, level: 1, id: TableId(4) },
        Change::FlushedTo { keyspace, lsn: Lsn(1) },
    ];
    let (before, bytes) = (manifest.state().clone(), manifest.bytes());
    for change in wrong {
        let edit = VersionEdit::from(Change::NextTableId(1 << 30)).with(change);
        let error = manifest.append(&edit).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{edit}: {error}");
        assert_eq!((manifest.state(), manifest.bytes()), (&before, bytes), "{edit}");
    }
    let dropped = VersionEdit::from(Change::DropKeyspace { id: keyspace });
    manifest.append(&dropped).unwrap();
    let again = Change::CreateKeyspace { id: keyspace, name: "cities".into(), options: Vec::new() };
    assert!(manifest.append(&VersionEdit::from(again)).is_err(), "an id never comes again");
    assert_same(&load_state(&fs).unwrap(), manifest.state(), "at last");
}

#[test]
fn a_table_moves_between_levels_in_either_order_of_the_changes() {
    let keyspace = KeyspaceId(1);
    let mut state = StoreState::default();
    let create = Change::CreateKeyspace { id: keyspace, name: "k".into(), options: Vec::new() };
    let add = |level| Change::AddTable { keyspace, level, meta: table(9, 5) };
    let remove = |level| Change::RemoveTable { keyspace, level, id: TableId(9) };
    state.apply(&VersionEdit::from(create).with(add(0))).unwrap();
    state.apply(&VersionEdit::from(add(1)).with(remove(0))).unwrap();
    state.apply(&VersionEdit::from(remove(1)).with(add(2))).unwrap();
    let places: Vec<_> = state.tables().map(|(k, level, meta)| (k, level, meta.id)).collect();
    assert_eq!(places, [(keyspace, 2, TableId(9))]);
    assert_eq!(state.next_table_id, 10);
}

#[test]
fn the_snapshot_of_a_state_makes_that_state() {
    for state in states(&edits(20, 15)) {
        let mut again = StoreState::default();
        again.apply(&state.snapshot()).unwrap();
        assert_eq!(again, state);
        let mut bytes = Vec::new();
        state.snapshot().encode(&mut bytes);
        assert_eq!(VersionEdit::decode(&bytes, dir(), 0).unwrap(), state.snapshot());
    }
}

#[test]
fn unknown_changes_are_skipped_if_ignorable_and_refused_if_required() {
    let known = VersionEdit::from(Change::NextTableId(5));
    let mut bytes = Vec::new();
    known.encode(&mut bytes);
    bytes.extend([0xe0, 2, 1, 1]);
    assert_eq!(VersionEdit::decode(&bytes, dir(), 0).unwrap(), known);
    bytes.extend([0x60, 2, 1, 1]);
    assert!(matches!(VersionEdit::decode(&bytes, dir(), 0), Err(Error::Unsupported { .. })));
}

#[test]
fn wrong_bytes_of_an_edit_never_panic() {
    for edit in edits(6, 10) {
        let mut bytes = Vec::new();
        edit.encode(&mut bytes);
        for length in 0..bytes.len() {
            let _ = VersionEdit::decode(&bytes[..length], dir(), 0);
        }
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            if let Ok(decoded) = VersionEdit::decode(&bad, dir(), 0) {
                let _ = StoreState::default().apply(&decoded);
            }
        }
    }
}

#[test]
fn stores_of_other_files_are_left_alone() {
    let fs = MemFs::new();
    let theirs: [PathBuf; 3] = ["notes.txt", "CURRENT.txt", "log/readme"].map(|name| dir().join(name));
    for path in &theirs {
        fs.set_contents(path, b"mine").unwrap();
    }
    run_workload(&env(&fs), &edits(12, 20), &Progress::default());
    for path in &theirs {
        assert_eq!(fs.contents(path).unwrap(), b"mine");
    }
}

#[test]
fn directories_above_that_may_not_be_synced_do_not_stop_a_creation() {
    for (kind, may) in [(ErrorKind::PermissionDenied, true), (ErrorKind::Other, false)] {
        let fs = FaultyFs::new(MemFs::new());
        fs.fail_when(move |call| {
            (call.operation == crate::env::Operation::SyncDir && call.path == Path::new("/"))
                .then_some(Fault::Error(kind))
        });
        assert_eq!(Manifest::create(&env(&fs), dir(), identity()).is_ok(), may, "{kind}");
    }
}

/// A directory of its own on the real file system, removed at the end.
struct RealDirectory(PathBuf);

impl Drop for RealDirectory {
    #[allow(clippy::disallowed_methods)]
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_store_on_the_real_file_system_is_made_opened_and_refused_as_in_memory() {
    let root = RealDirectory(std::env::temp_dir().join(format!("drumlin-manifest-{}", std::process::id())));
    let real = Env::real();
    let dir = root.0.join("made/on/the/way");
    assert!(matches!(Manifest::load(&*real.fs, &dir), Err(Error::NotFound { .. })));
    let edits = edits(12, 900);
    let mut manifest = Manifest::create(&real, &dir, identity()).unwrap();
    for edit in &edits[..6] {
        manifest.append(edit).unwrap();
    }
    drop(manifest);
    let (mut manifest, found, state) = Manifest::open(&real, &dir).unwrap();
    assert_eq!(found, identity());
    assert_same(&state, &states(&edits)[6], "opened");
    for edit in &edits[6..] {
        manifest.append(edit).unwrap();
    }
    drop(manifest);
    let (_, state, info) = Manifest::load(&*real.fs, &dir).unwrap();
    assert_same(&state, states(&edits).last().unwrap(), "at last");
    assert_eq!((info.number, info.torn), (2, None));
    assert_eq!(real.fs.list(&dir).unwrap().len(), 3, "STORE, CURRENT, a manifest");
    assert!(matches!(Manifest::create(&real, &dir, identity()), Err(Error::InvalidArgument(_))));
    real.fs.remove(&info.path).unwrap();
    assert!(Manifest::load(&*real.fs, &dir).is_err_and(|e| e.is_corruption()));
}

/// A manifest taken apart: all its edits and the state that opening comes to; and every flipped bit is told, or harmless.
#[test]
fn a_manifest_taken_apart_shows_its_edits_and_every_flipped_bit() {
    let fs = MemFs::new();
    let edits = edits(4, 12);
    let mut manifest = Manifest::create(&env(&fs), dir(), identity()).expect("creates");
    edits.iter().for_each(|edit| manifest.append(edit).expect("appends"));
    let path = manifest.path();
    let look = || super::inspect::inspect(&*fs, &path, Some(&identity())).expect("a file");
    let whole = look();
    assert_eq!((whole.edits.len(), whole.is_current), (edits.len() + 1, Some(true)));
    assert_eq!(whole.problems, []);
    assert!(whole.edits.iter().all(|edit| edit.sealed) && whole.torn.is_none());
    let changes = |n: usize| whole.edits[n + 1].changes.len();
    edits.iter().enumerate().for_each(|(n, edit)| assert_eq!(changes(n), edit.changes.len(), "edit {n}"));
    let state = load_state(&fs).expect("loads");
    assert_eq!(whole.state.next_table, state.next_table_id);
    let tables = |report: &super::inspect::ManifestReport| -> usize {
        report.state.keyspaces.iter().flat_map(|keyspace| &keyspace.levels).map(Vec::len).sum()
    };
    assert!(tables(&whole) > 0 && tables(&whole) == state.tables().count());
    for byte in 0..whole.bytes {
        for mask in [1, 0x80] {
            fs.damage(&path, byte, mask).expect("damages");
            let found = look();
            let loads = load_state(&fs);
            assert_eq!(loads.is_err(), !found.problems.is_empty(), "byte {byte}: {found:?}");
            // What is damaged costs its own edit.
            assert!(found.edits.len() >= edits.len(), "byte {byte}: {} edits are left", found.edits.len());
            fs.damage(&path, byte, mask).expect("mends");
        }
    }
    let contents = fs.contents(&path).expect("there");
    for bytes in 0..contents.len() {
        fs.set_contents(&path, &contents[..bytes]).expect("sets");
        let found = look();
        assert_eq!(load_state(&fs).is_err(), !found.problems.is_empty(), "cut to {bytes}: {found:?}");
    }
    let unknown = super::inspect::inspect(&*fs, &path, None).expect("a file");
    assert!(unknown.edits.is_empty() && unknown.unchecked.len() == 1);
}
