//! Tests of flushes and compactions on files: right answers, whole files, nothing left behind.

use std::collections::{BTreeMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use super::*;
use crate::cache::BlockCache;
use crate::compaction::{OnBytes, run_flush};
use crate::dice::Dice;
use crate::env::{Env, Fault, FaultyFs, FileSystem, Keep, MemFs, Operation};
use crate::iter::merge::tests::{Entry, VecCursor, put};
use crate::iter::{Cursor, Horizons, RangeTombstone};
use crate::key::{Bytewise, KeyForm, KeyHash, KeyHasher, Kind, Lsn, bytewise, key_prefix};
use crate::layout::{FilterBits, KeySpans, ManualPick, Reason, Running, hull, pick_manual};
use crate::options::{KeyspaceOptions, Layout, ValueSeparation};
use crate::table::{Shelf, TableOptions, verify_values};
use crate::version::Levels;

const DIR: &str = "/store";

/// A keyspace of files in memory, without a log or a manifest.
struct Rig {
    options: KeyspaceOptions,
    context: JobContext,
    levels: Levels,
    entries: Vec<Entry>,
    tombstones: Vec<RangeTombstone>,
    /// Every version ever written: by key, LSN and value (`None` is a delete); and every range.
    model: BTreeMap<Vec<u8>, Vec<(u64, Option<Vec<u8>>)>>,
    model_ranges: Vec<RangeTombstone>,
    lsn: u64,
}

impl Rig {
    fn new(fs: Arc<dyn FileSystem>) -> Rig {
        fs.create_dir_all(Path::new(DIR)).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        let options = KeyspaceOptions {
            // Others leave a table alone that nothing lies over, with what snapshots have kept of it.
            layout: Layout::Leveled,
            table_bytes: 4 << 10,
            level1_bytes: 16 << 10,
            level_ratio: 4,
            block_bytes: 512,
            value_separation: None,
            ..KeyspaceOptions::default()
        };
        let context = JobContext {
            env: Env::with_fs(fs.clone()),
            dir: Arc::new(|_| PathBuf::from(DIR)),
            next_table_id: Arc::new(AtomicU64::new(1)),
            table_options: TableOptions::new(&options, KeyHasher::new(7)),
            filter_bits: FilterBits::uniform(options.filter_bits_per_key),
            separated_bytes_min: None,
            table_bytes: options.table_bytes,
            shelf: Shelf::new(fs, Arc::new(BlockCache::new(1 << 20))),
            snapshots: Vec::new(),
            buffers: Arc::default(),
            job_bytes: usize::MAX,
            cancel: Arc::default(),
            on_bytes: None,
            parallelism: 1,
        };
        Rig {
            options,
            context,
            levels: Levels::new(bytewise(), Vec::new()),
            entries: Vec::new(),
            tombstones: Vec::new(),
            model: BTreeMap::new(),
            model_ranges: Vec::new(),
            lsn: 1,
        }
    }

    /// From now on jobs lay all values apart.
    fn lay_apart(mut self) -> Rig {
        self.options.value_separation = Some(ValueSeparation { min_bytes: 16, space_percent: 120 });
        self.context.separated_bytes_min = Some(16);
        self
    }

    fn put(&mut self, key: impl AsRef<[u8]>) {
        let mut entry = put(key, self.lsn);
        // Some bytes that do not compress, so that sizes mean something.
        let mut dice = Dice(self.lsn);
        entry.value.extend((0..60).map(|_| dice.below(256) as u8));
        self.model.entry(entry.key.clone()).or_default().push((self.lsn, Some(entry.value.clone())));
        self.entries.push(entry);
        self.lsn += 1;
    }

    fn delete(&mut self, key: impl AsRef<[u8]>) {
        let key = key.as_ref().to_vec();
        self.model.entry(key.clone()).or_default().push((self.lsn, None));
        self.entries.push(Entry { key, lsn: Lsn(self.lsn), kind: Kind::Delete, value: Vec::new() });
        self.lsn += 1;
    }

    fn delete_range(&mut self, start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) {
        let (start, end) = (start.as_ref().to_vec(), end.as_ref().to_vec());
        let tombstone = RangeTombstone { start, end, lsn: Lsn(self.lsn) };
        self.model_ranges.push(tombstone.clone());
        self.tombstones.push(tombstone);
        self.lsn += 1;
    }

    fn flush(&mut self) -> Result<()> {
        let cursor = VecCursor::new(bytewise(), self.entries.clone());
        let tombstones = [Arc::new(Tombstones::of_all(&Bytewise, &self.tombstones))];
        let outcome = run_flush(vec![cursor], &tombstones, &self.context)?;
        self.entries.clear();
        self.tombstones.clear();
        self.apply(outcome);
        Ok(())
    }

    fn apply(&mut self, outcome: CompactionOutcome) {
        let added: Vec<_> = outcome.added.iter().map(|(level, _, table)| (*level, table.clone())).collect();
        self.levels = self.levels.apply(&added, &outcome.removed);
        outcome.obsolete.iter().for_each(|table| table.mark_obsolete());
        drop(outcome);
        self.context.shelf.sweep();
    }

    /// All of a level and what it overlaps, into the next.
    fn plan(&self, level: u32) -> CompactionPlan {
        let next = level + 1;
        let inputs: Vec<_> = [level, next]
            .map(|level| (level, self.levels.level(level as usize).to_vec()))
            .into_iter()
            .filter(|(_, tables)| !tables.is_empty())
            .collect();
        let below = self.levels.level(next as usize + 1).to_vec();
        let deeper =
            KeySpans::new(&Bytewise, below.iter().map(|t| crate::layout::span_of(t.meta())).collect());
        CompactionPlan {
            input_level: level,
            output_level: next,
            span: hull(&Bytewise, inputs.iter().flat_map(|(_, tables)| tables)).unwrap(),
            inputs,
            bottom: deeper.is_empty(),
            deeper: Arc::new(deeper),
            below: below.into(),
            pile: Box::default(),
            borders: Box::default(),
            cuts: Vec::new(),
            collected: Arc::default(),
            trivial_move: false,
            reason: Reason::Manual,
        }
    }

    fn compact(&mut self, level: u32) -> Result<()> {
        let outcome = run_compaction(&self.plan(level), &self.context)?;
        self.apply(outcome);
        Ok(())
    }

    fn compact_to_the_bottom(&mut self) {
        let oldest = self.context.snapshots.iter().min().copied().unwrap_or(Lsn::MAX);
        while let ManualPick::Plan(plan) =
            pick_manual(&self.levels, &self.options, &Running::new(), oldest, None, None)
        {
            let outcome = run_compaction(&plan, &self.context).unwrap();
            self.apply(outcome);
        }
    }

    fn expected(&self, key: &[u8], at: Lsn) -> Option<&[u8]> {
        let (lsn, value) = self.model.get(key)?.iter().rev().find(|(lsn, _)| Lsn(*lsn) < at)?;
        let covers = |t: &&RangeTombstone| t.start.as_slice() <= key && key < t.end.as_slice();
        let hidden = self.model_ranges.iter().filter(covers).any(|t| Lsn(*lsn) < t.lsn && t.lsn < at);
        value.as_deref().filter(|_| !hidden)
    }

    /// Every key ever written, at every snapshot and now, by gets; and every table by `verify`.
    fn check(&self, story: &str) {
        for table in self.levels.tables() {
            table.verify(&mut |_| {}).sound().unwrap();
        }
        let hasher = KeyHasher::new(7);
        for key in self.model.keys() {
            for at in self.context.snapshots.iter().copied().chain([Lsn::MAX]) {
                let found = self.levels.get(key, hasher.hash(key), at).unwrap();
                let found = found.filter(|version| version.kind == Kind::Put).map(|version| version.value);
                assert_eq!(found.as_deref(), self.expected(key, at), "{key:?} at {at}: {story}");
            }
        }
    }

    fn live_files(&self) -> HashSet<PathBuf> {
        let values = self.levels.values().files().map(|used| Path::new(DIR).join(used.file_name()));
        self.levels.tables().map(|table| table.path().to_path_buf()).chain(values).collect()
    }

    /// Versions of a level as the files hold them.
    fn entries_of(&self, level: usize) -> Vec<(Vec<u8>, Lsn, Kind, Vec<u8>)> {
        let mut all = Vec::new();
        for table in self.levels.level(level) {
            let mut cursor = table.cursor(CursorOptions::default());
            cursor.seek_first().unwrap();
            while cursor.valid() {
                all.push((cursor.key().to_vec(), cursor.lsn(), cursor.kind(), cursor.value().to_vec()));
                cursor.next().unwrap();
            }
        }
        all
    }
}

fn files(fs: &MemFs) -> HashSet<PathBuf> {
    fs.files().into_iter().collect()
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// Two tables at level 0, three at level 1, deletes and a range among them.
fn loaded(fs: Arc<dyn FileSystem>) -> Rig {
    loaded_with(fs, false)
}

/// The same, with a snapshot before the range and the deletes.
fn loaded_with(fs: Arc<dyn FileSystem>, snapshot: bool) -> Rig {
    load(Rig::new(fs), snapshot)
}

fn load(mut rig: Rig, snapshot: bool) -> Rig {
    (0..120).for_each(|n| rig.put(key(n)));
    rig.flush().unwrap();
    rig.compact(0).unwrap();
    if snapshot {
        rig.context.snapshots.push(Lsn(rig.lsn));
    }
    (0..120).step_by(3).for_each(|n| rig.put(key(n)));
    rig.delete_range(key(30), key(50));
    rig.flush().unwrap();
    (0..120).step_by(5).for_each(|n| rig.delete(key(n)));
    rig.flush().unwrap();
    rig
}

#[test]
fn random_flushes_and_compactions_answer_as_the_history_does() {
    for seed in 0..12 {
        let fs = MemFs::new();
        let mut rig = Rig::new(fs.clone());
        if seed % 2 == 1 {
            rig = rig.lay_apart();
        }
        let mut dice = Dice(seed);
        rig.context.parallelism = 1 + dice.below(3) as usize;
        for _ in 0..12 {
            for _ in 0..dice.below(80) {
                let at = dice.below(300);
                match dice.below(20) {
                    0..=11 => rig.put(key(at)),
                    12..=18 => rig.delete(key(at)),
                    _ => rig.delete_range(key(at), key(at + dice.below(60))),
                }
            }
            rig.flush().unwrap();
            if dice.below(3) == 0 {
                rig.context.snapshots.push(Lsn(rig.lsn));
            }
            if dice.below(6) == 0 {
                rig.context.snapshots.clear();
            }
            let oldest = rig.context.snapshots.iter().min().copied().unwrap_or(Lsn::MAX);
            while let Some(plan) = crate::layout::pick(&rig.levels, &rig.options, &Running::new(), oldest) {
                let outcome = run_compaction(&plan, &rig.context).unwrap();
                rig.apply(outcome);
            }
            rig.check(&format!("seed {seed}"));
            let space = rig.levels.values();
            assert!(space.amplification() <= 1.2, "seed {seed}: {space:?}");
            rig.context.shelf.sweep();
            rig.context.shelf.sweep();
            assert_eq!(files(&fs), rig.live_files(), "no file but the live tables");
        }
        rig.context.snapshots.clear();
        rig.compact_to_the_bottom();
        rig.context.shelf.sweep();
        rig.check(&format!("seed {seed}, compacted"));
        let live = rig.model.keys().filter(|key| rig.expected(key, Lsn::MAX).is_some()).count() as u64;
        assert_eq!(rig.levels.tables().map(|t| t.meta().entries).sum::<u64>(), live);
        assert!(rig.levels.tables().all(|t| t.meta().range_tombstones + t.meta().deletes == 0));
        assert_eq!(rig.live_files(), files(&fs));
    }
}

#[test]
fn a_flush_keeps_what_snapshots_and_the_present_see_and_no_more() {
    let mut rig = Rig::new(MemFs::new());
    for round in 0..1000 {
        if round == 500 {
            rig.context.snapshots.push(Lsn(rig.lsn));
        }
        (0..10).for_each(|n| rig.put(key(n)));
    }
    rig.flush().unwrap();
    assert_eq!(rig.levels.tables().map(|t| t.meta().entries).sum::<u64>(), 20);
    rig.check("after the flush");
}

#[test]
fn an_empty_flush_makes_no_table_and_tombstones_alone_make_one() {
    let fs = MemFs::new();
    let mut rig = Rig::new(fs.clone());
    rig.flush().unwrap();
    assert!(files(&fs).is_empty());
    rig.put(key(1));
    rig.flush().unwrap();
    rig.delete_range(key(0), key(9));
    rig.flush().unwrap();
    rig.check("tombstones alone");
    rig.compact(0).unwrap();
    assert_eq!(files(&fs), HashSet::new(), "nothing is left of a deleted range");
}

#[test]
fn outputs_are_cut_between_keys_at_the_size_asked_for() {
    let mut rig = Rig::new(MemFs::new());
    // A snapshot after every write: all versions of a key are kept, 40 to a key.
    for _ in 0..40 {
        for n in 0..20 {
            rig.context.snapshots.push(Lsn(rig.lsn));
            rig.put(key(n));
        }
    }
    rig.flush().unwrap();
    rig.compact(0).unwrap();
    let tables = rig.levels.level(1);
    assert!(tables.len() > 5, "{}", tables.len());
    for pair in tables.windows(2) {
        assert!(pair[0].meta().largest < pair[1].meta().smallest, "no key in two tables");
        // 40 versions of about 90 bytes more than asked for, at most.
        let bytes = pair[0].meta().file_bytes;
        assert!((4 << 10..12 << 10).contains(&bytes), "{bytes}");
    }
    rig.check("cut");
}

#[test]
fn outputs_are_cut_where_they_would_overlap_too_much_below() {
    let mut rig = Rig::new(MemFs::new());
    (0..6000).for_each(|n| rig.put(key(n)));
    rig.flush().unwrap();
    rig.compact(0).unwrap();
    rig.compact(1).unwrap();
    let below = rig.levels.level(2).len() as u64;
    (0..6000).step_by(100).for_each(|n| rig.put(key(n)));
    rig.flush().unwrap();
    rig.context.table_bytes = 8 << 10;
    rig.compact(0).unwrap();
    assert!(rig.levels.level(1).len() as u64 >= below / 24, "{} over {below}", rig.levels.level(1).len());
    for table in rig.levels.level(1) {
        let met = rig.levels.level(2).iter().filter(|t| t.meta().overlaps_table(&Bytewise, table.meta()));
        let bytes: u64 = met.map(|t| t.meta().file_bytes).sum();
        assert!(bytes < 2 * 10 * (8 << 10), "{bytes}");
    }
}

#[test]
fn parts_side_by_side_write_what_one_would() {
    let mut outcomes = Vec::new();
    for parallelism in [1, 2, 3, 5] {
        for cuts in [Vec::new(), vec![key(20), key(40), key(60), key(61), key(100)]] {
            let mut rig = loaded_with(MemFs::new(), true);
            rig.context.parallelism = parallelism;
            rig.context.table_bytes = 1 << 10;
            let plan = CompactionPlan { cuts, ..rig.plan(0) };
            let job = Job::new(plan.clone(), rig.context.clone()).unwrap();
            assert_eq!(!job.cuts.is_empty(), parallelism > 1, "{:?}", job.cuts);
            assert!(job.cuts.len() < parallelism && job.cuts.is_sorted());
            let outcome = run_compaction(&plan, &rig.context).unwrap();
            rig.apply(outcome);
            rig.check(&format!("{parallelism} threads"));
            let sets = rig.levels.tombstones(None, None).unwrap();
            let horizons = Horizons::of_snapshots(rig.context.snapshots.clone());
            let tombstones = Tombstones::join(&Bytewise, &sets, &horizons, (None, None));
            outcomes.push((rig.entries_of(1), tombstones));
        }
    }
    assert!(!outcomes[0].1.is_empty());
    assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]));
}

/// Regression: with little memory a trie's outputs were cut at a quarter of a merge's share, and its inputs held twice of it. So
/// there were so many tables that few could stay open, and most gets opened one.
#[test]
fn a_job_that_stages_its_outputs_has_parts_of_some_size_and_keeps_to_its_memory() {
    const MIB: usize = 1 << 20;
    let mut rig = Rig::new(MemFs::new());
    let hasher = KeyHasher::new(7);
    rig.context.table_options = TableOptions {
        form: KeyForm::Placed(hasher.placer(KeyHash::Sip)),
        hashed: true,
        hasher: hasher.of_places(),
        block_bytes: 4 << 10,
        ..rig.context.table_options
    };
    rig.context.table_bytes = MIB as u64;
    let form = rig.context.table_options.form;
    for flush in 0..9 {
        (0..6000).for_each(|n| rig.put(form.to_stored(&key(n * 9 + flush))));
        rig.entries.sort_by(|a, b| a.key.cmp(&b.key));
        rig.flush().unwrap();
    }
    rig.context.parallelism = 4;
    let plan = rig.plan(0);
    // Some 26 keys a column.
    let trie =
        KeyspaceOptions { layout: Layout::TRIE, table_bytes: MIB as u64, ..KeyspaceOptions::default() };
    rig.context.filter_bits = FilterBits::uniform(16.0).with_memory(&rig.levels, &trie, 0);
    let grid = rig.context.filter_bits.grid(1).unwrap();
    for (job_bytes, parts, tables_max) in
        [(2 * MIB, 1, 11), (3 * MIB, 1, 7), (5 * MIB, 2, 8), (64 * MIB, 2, 8)]
    {
        rig.context.job_bytes = job_bytes;
        let (buffers, peak) = (rig.context.buffers.clone(), Arc::new(AtomicUsize::new(0)));
        let seen = peak.clone();
        rig.context.on_bytes = Some(Arc::new(move |_, _| {
            seen.fetch_max(buffers.bytes(), Ordering::Relaxed);
        }));
        assert_eq!(Job::new(plan.clone(), rig.context.clone()).unwrap().cuts.len() + 1, parts);
        let outcome = run_compaction(&plan, &rig.context).unwrap();
        let (tables, peak) = (outcome.added.len(), peak.load(Ordering::Relaxed));
        println!("{job_bytes} bytes: {parts} parts, {tables} tables, {peak} held at most");
        for tables in outcome.added.windows(2).filter(|tables| tables[0].1.largest < tables[1].1.smallest) {
            let [last, first] = [&tables[0].1.largest, &tables[1].1.smallest].map(|key| key_prefix(key));
            assert!(!grid.is_shared(last, first), "both have a part of the column {}", grid.column(first));
        }
        outcome.discard();
        assert!(tables <= tables_max, "{job_bytes}: {tables}");
        // A part looks at what it holds once per so many bytes that it reads.
        assert!(peak <= job_bytes + parts * (256 << 10), "{job_bytes}: {peak}");
    }
}

#[test]
fn every_failing_call_fails_the_job_and_leaves_no_file() {
    for fault in [
        Fault::Error(ErrorKind::Other),
        Fault::NoSpace,
        Fault::ShortWrite,
        Fault::ErrorAfter(ErrorKind::Other),
    ] {
        for (parallelism, apart) in [(1, false), (3, false), (2, true)] {
            let (mut failures, mut number) = (0, 0);
            loop {
                let fs = MemFs::new();
                let faulty = FaultyFs::new(fs.clone());
                let rig = Rig::new(faulty.clone());
                let mut rig = load(if apart { rig.lay_apart() } else { rig }, false);
                rig.levels.tables().for_each(|table| table.evict());
                rig.context.parallelism = parallelism;
                rig.context.table_bytes = 2 << 10;
                rig.context.shelf.cache().set_is_read(true);
                let before = files(&fs);
                let mut plan = rig.plan(0);
                // Some are carried on, others collected.
                let old = rig.levels.values().files().map(|used| used.file).filter(|file| file.0 % 2 == 0);
                plan.collected = Arc::new(old.collect());
                let (first, done) = (faulty.calls(), faulty.injected());
                let is_of_values = Arc::new(AtomicBool::new(false));
                let told = Arc::clone(&is_of_values);
                faulty.fail_when(move |call| {
                    (call.number == first + number).then(|| {
                        let is_values = call.path.extension().is_some_and(|end| end == "val");
                        told.store(is_values && call.operation == Operation::Read, Ordering::Relaxed);
                        fault
                    })
                });
                let outcome = run_compaction(&plan, &rig.context);
                let calls = faulty.calls() - first;
                faulty.clear();
                if is_of_values.load(Ordering::Relaxed)
                    && let Ok(outcome) = outcome
                {
                    // A window: what lay in it was read one by one.
                    outcome.discard();
                    rig.check("after a window that could not be read");
                } else if faulty.injected() > done {
                    failures += 1;
                    assert!(outcome.is_err(), "call {number}: {fault:?} was not noticed");
                    assert_eq!(files(&fs), before, "call {number}: {fault:?}");
                    assert_eq!(rig.context.shelf.cache().bytes(), 0, "call {number}: {fault:?}");
                    rig.check("after a failure");
                    rig.compact(0).unwrap();
                    rig.check("after a failure, tried again");
                } else {
                    assert!(outcome.is_ok());
                }
                number += 1;
                if number > calls {
                    break;
                }
            }
            let enough = if fault == Fault::ShortWrite { 2 } else { 10 };
            assert!(failures >= enough, "{failures} with {fault:?}");
        }
    }
}

#[test]
fn blocks_in_use_count_as_such_when_they_were_merged() {
    let mut rig = loaded(MemFs::new());
    let cache = Arc::clone(rig.context.shelf.cache());
    // Nobody reads: nothing is kept.
    rig.compact(0).unwrap();
    assert_eq!(cache.bytes(), 0);
    // Everything is in use, twice over.
    (0..3).for_each(|_| rig.check("before"));
    cache.set_is_read(true);
    (0..120).step_by(4).for_each(|n| rig.put(key(n)));
    rig.flush().unwrap();
    rig.compact(0).unwrap();
    rig.compact(1).unwrap();
    let guard = crossbeam_epoch::pin();
    let first_blocks = rig.levels.tables().map(|table| cache.glance(table.meta().id.0, 0, &guard));
    let in_use = first_blocks.filter(|block| block.as_ref().is_some_and(|block| block.is_used())).count();
    assert!(in_use * 2 > rig.levels.tables().count(), "{in_use} first blocks count as in use");
    let misses = cache.misses();
    rig.check("after");
    assert_eq!(cache.misses(), misses, "all that was written is in the cache");
    // What is gone is gone from the cache, too.
    let tables = || rig.levels.tables().map(|table| table.meta().file_bytes).sum::<u64>();
    assert!(cache.bytes() as u64 <= tables() * 2, "{} for {}", cache.bytes(), tables());
    rig.levels.tables().for_each(|table| cache.evict_table(table.meta().id.0));
    assert_eq!(cache.bytes(), 0);
}

#[test]
fn every_failing_call_fails_the_flush_and_leaves_no_file() {
    let mut failures = 0;
    for number in 0.. {
        let fs = MemFs::new();
        let faulty = FaultyFs::new(fs.clone());
        let mut rig = loaded(faulty.clone());
        let before = files(&fs);
        (0..50).for_each(|n| rig.put(key(n)));
        let first = faulty.calls();
        faulty.fail_at(first + number, Fault::Error(ErrorKind::Other));
        let outcome = rig.flush();
        faulty.clear();
        if outcome.is_ok() {
            break;
        }
        failures += 1;
        assert_eq!(files(&fs), before);
        rig.flush().unwrap();
        rig.check("flushed again");
    }
    assert!(failures >= 5, "create, append, sync, rename, sync of the directory: {failures}");
}

#[test]
fn a_cancelled_job_ends_soon_and_leaves_no_file() {
    for parallelism in [1, 3] {
        for calls_before in 0..4 {
            let fs = MemFs::new();
            let mut rig = Rig::new(fs.clone());
            (0..4000).for_each(|n| rig.put(key(n)));
            rig.flush().unwrap();
            rig.context.parallelism = parallelism;
            let before = files(&fs);
            let (cancel, calls) = (Arc::new(AtomicBool::new(calls_before == 0)), AtomicU64::new(0));
            let told = cancel.clone();
            let on_bytes: OnBytes = Arc::new(move |_, _| {
                let calls = calls.fetch_add(1, Ordering::Relaxed) + 1;
                told.store(calls >= calls_before, Ordering::Relaxed);
            });
            rig.context.cancel = cancel;
            rig.context.on_bytes = Some(on_bytes);
            let outcome = run_compaction(&rig.plan(0), &rig.context);
            assert!(matches!(outcome, Err(Error::Closed { .. })), "{outcome:?}");
            assert_eq!(files(&fs), before);
        }
    }
}

#[test]
fn progress_adds_up_to_what_was_read_and_written() {
    let mut rig = Rig::new(MemFs::new());
    (0..4000).for_each(|n| rig.put(key(n)));
    rig.flush().unwrap();
    let raw: u64 = rig.levels.tables().map(|t| t.meta().raw_bytes).sum();
    let sums = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let told = sums.clone();
    rig.context.on_bytes = Some(Arc::new(move |read, written| {
        told.0.fetch_add(read, Ordering::Relaxed);
        told.1.fetch_add(written, Ordering::Relaxed);
    }));
    let outcome = run_compaction(&rig.plan(0), &rig.context).unwrap();
    let (read, written) = (sums.0.load(Ordering::Relaxed), sums.1.load(Ordering::Relaxed));
    assert_eq!(read, raw);
    assert!(written.abs_diff(outcome.written_bytes) * 50 < outcome.written_bytes, "{written} {outcome:?}");
    assert_eq!(outcome.written_bytes, outcome.added.iter().map(|(_, meta, _)| meta.file_bytes).sum::<u64>());
    assert_eq!(outcome.added.iter().map(|(_, meta, _)| meta.entries).sum::<u64>(), 4000);
}

#[test]
fn what_a_job_returns_survives_a_power_loss() {
    let fs = MemFs::new();
    let mut rig = loaded(fs.clone());
    rig.context.table_bytes = 2 << 10;
    let plan = rig.plan(0);
    let mut rig = rig.lay_apart();
    // Tables on another device than values.
    fs.create_dir_all(Path::new("/tables")).unwrap();
    rig.context.dir = Arc::new(|_| PathBuf::from("/tables"));
    let apart = run_compaction(&plan, &rig.context).unwrap();
    let after = fs.crash_clone(&mut |_| Keep::No);
    let uses: Vec<_> = apart.added.iter().flat_map(|(_, meta, _)| &meta.values).collect();
    assert!(uses.len() > 1);
    for used in uses {
        let path = Path::new(DIR).join(used.file_name());
        let check = verify_values(&*after, &path, used.file, used.file_bytes, used.hash, &mut |_| {});
        check.sound().unwrap();
    }
    rig.context.dir = Arc::new(|_| PathBuf::from(DIR));
    rig.context.separated_bytes_min = None;
    let outcome = run_compaction(&plan, &rig.context).unwrap();
    let after = fs.crash_clone(&mut |_| Keep::No);
    for (_, meta, table) in &outcome.added {
        assert_eq!(after.contents(table.path()).unwrap().len() as u64, meta.file_bytes);
        let shelf = Shelf::new(after.clone(), rig.context.shelf.cache().clone());
        let options = rig.context.table_options.clone();
        let handle = TableHandle::new(&shelf, PathBuf::from(DIR), meta.clone(), options);
        handle.verify(&mut |_| {}).sound().unwrap();
    }
    assert!(outcome.added.len() > 1);
}

#[test]
fn a_crash_inside_a_job_leaves_the_inputs_as_they_were() {
    let fs = MemFs::new();
    let mut rig = loaded(fs.clone());
    rig.context.table_bytes = 1 << 10;
    let inputs: Vec<(PathBuf, Vec<u8>)> =
        rig.levels.tables().map(|t| (t.path().to_path_buf(), fs.contents(t.path()).unwrap())).collect();
    let clones = Arc::new(Mutex::new(Vec::new()));
    let (keep, world) = (clones.clone(), fs.clone());
    fs.set_hook(Some(Box::new(move |call| {
        if call.operation.writes() {
            keep.lock().push(world.crash_clone_random(call.number, 0.5));
        }
    })));
    run_compaction(&rig.plan(0), &rig.context).unwrap();
    fs.set_hook(None);
    let clones = std::mem::take(&mut *clones.lock());
    assert!(clones.len() > 10);
    for clone in clones {
        for (path, bytes) in &inputs {
            assert_eq!(&clone.contents(path).unwrap(), bytes);
        }
    }
}

#[test]
fn tables_that_a_range_tombstone_hides_are_not_read() {
    let fs = MemFs::new();
    let mut rig = Rig::new(fs.clone());
    (0..400).for_each(|n| rig.put(key(n)));
    rig.flush().unwrap();
    rig.compact(0).unwrap();
    rig.delete_range(key(0), key(1000));
    rig.put(key(7));
    rig.flush().unwrap();
    let hidden: Vec<PathBuf> = rig.levels.level(1).iter().map(|t| t.path().to_path_buf()).collect();
    assert!(hidden.len() > 3);
    let reads = Arc::new(AtomicU64::new(0));
    let counted = reads.clone();
    fs.set_hook(Some(Box::new(move |call| {
        if hidden.iter().any(|path| path == call.path) && call.operation == Operation::Read {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    })));
    rig.levels.tables().for_each(|table| table.evict());
    rig.compact(0).unwrap();
    fs.set_hook(None);
    assert_eq!(reads.load(Ordering::Relaxed), 0);
    rig.check("dropped");
    assert_eq!(rig.levels.tables().map(|t| t.meta().entries).sum::<u64>(), 1);
}

#[test]
fn a_snapshot_keeps_hidden_tables_from_being_dropped() {
    let mut rig = Rig::new(MemFs::new());
    (0..400).for_each(|n| rig.put(key(n)));
    rig.flush().unwrap();
    rig.compact(0).unwrap();
    rig.context.snapshots.push(Lsn(rig.lsn));
    rig.delete_range(key(0), key(1000));
    rig.flush().unwrap();
    rig.compact(0).unwrap();
    rig.check("the snapshot still sees them");
    assert_eq!(rig.levels.tables().map(|t| t.meta().entries).sum::<u64>(), 400);
}

#[test]
fn a_damaged_input_fails_the_job_and_names_the_file() {
    let fs = MemFs::new();
    let rig = loaded(fs.clone());
    let victim = rig.levels.level(1)[0].path().to_path_buf();
    rig.levels.tables().for_each(|table| table.evict());
    let before = files(&fs);
    fs.damage(&victim, 100, 0x10).unwrap();
    let error = run_compaction(&rig.plan(0), &rig.context).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains(&*victim.to_string_lossy()), "{error}");
    assert_eq!(files(&fs), before);
}

#[test]
fn an_input_with_fewer_entries_than_described_fails_the_job() {
    let rig = loaded(MemFs::new());
    let mut plan = rig.plan(0);
    let table = &plan.inputs[1].1[0];
    let meta = TableMeta { entries: table.meta().entries + 1, ..table.meta().clone() };
    let options = rig.context.table_options.clone();
    let lying = TableHandle::new(&rig.context.shelf, PathBuf::from(DIR), meta, options);
    plan.inputs[1].1[0] = lying;
    assert!(run_compaction(&plan, &rig.context).unwrap_err().is_corruption(), "its file says otherwise");

    // And if all files agree, but reading them gives fewer.
    let plan = rig.plan(0);
    let all: u64 = plan.tables().map(|(_, table)| table.meta().entries).sum();
    let job = Job::new(plan, rig.context.clone()).unwrap();
    assert!(job.check_entries(all).is_ok());
    assert!([all - 1, all + 1].iter().all(|&read| job.check_entries(read).is_err_and(|e| e.is_corruption())));
}

#[test]
fn a_move_changes_levels_without_a_write_unless_their_directories_differ() {
    let fs = MemFs::new();
    let mut rig = loaded(fs.clone());
    rig.compact(0).unwrap();
    let plan = CompactionPlan { trivial_move: true, ..rig.plan(1) };
    let calls = fs.calls();
    let outcome = run_compaction(&plan, &rig.context).unwrap();
    assert_eq!(fs.calls(), calls);
    assert!(outcome.obsolete.is_empty() && outcome.added.len() == plan.inputs[0].1.len());
    outcome.discard();

    fs.create_dir_all(Path::new("/cold")).unwrap();
    rig.context.dir = Arc::new(|level| PathBuf::from(if level < 2 { DIR } else { "/cold" }));
    let outcome = run_compaction(&plan, &rig.context).unwrap();
    assert!(outcome.added.iter().all(|(level, _, table)| *level == 2 && table.path().starts_with("/cold")));
    rig.apply(outcome);
    drop(plan);
    rig.context.shelf.sweep();
    rig.check("moved to another directory");
    assert_eq!(files(&fs), rig.live_files());
}

#[test]
fn a_discarded_outcome_takes_its_files_along() {
    let fs = MemFs::new();
    let rig = loaded(fs.clone());
    rig.context.shelf.sweep();
    let before = files(&fs);
    run_compaction(&rig.plan(0), &rig.context).unwrap().discard();
    rig.context.shelf.sweep();
    assert_eq!(files(&fs), before);
}
