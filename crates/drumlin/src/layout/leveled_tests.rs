//! Tests of the leveled policy: a store of lists without a disk, whose plans are carried out by the
//! rules of `retain`, several at a time.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use super::*;
use crate::cache::BlockCache;
use crate::compaction::retain::{Retention, Verdict};
use crate::dice::Dice;
use crate::env::MemFs;
use crate::iter::{RangeTombstone, Tombstones};
use crate::key::{Bytewise, KeyHasher, Kind, bytewise};
use crate::layout::{ManualPick, debt_bytes, pick, pick_manual};
use crate::table::{Shelf, TableId, TableOptions};

const ENTRY_BYTES: u64 = 100;

#[derive(Clone, Default, Debug)]
struct Content {
    /// (key, LSN, is a put), in internal order.
    points: Vec<(Vec<u8>, u64, bool)>,
    ranges: Vec<RangeTombstone>,
}

impl Content {
    fn order(&mut self) {
        self.points.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    }

    /// The newest that a read at `at` finds of the key in this part: (LSN, is a put).
    fn read(&self, key: &[u8], at: u64) -> Option<(u64, bool)> {
        let from = self.points.partition_point(|p| p.0.as_slice() < key);
        let point = self.points[from..].iter().take_while(|p| p.0 == key).find(|p| p.1 < at);
        let covering = self.ranges.iter().filter(|t| t.start.as_slice() <= key && key < t.end.as_slice());
        let hidden = covering.map(|t| t.lsn.0).filter(|&l| l < at).max();
        match (point, hidden) {
            (Some(point), Some(hidden)) if hidden > point.1 => Some((hidden, false)),
            (Some(point), _) => Some((point.1, point.2)),
            (None, hidden) => hidden.map(|lsn| (lsn, false)),
        }
    }
}

struct Job {
    plan: CompactionPlan,
    snapshots: Vec<u64>,
}

struct Sim {
    options: KeyspaceOptions,
    entries_per_table: usize,
    shelf: Arc<Shelf>,
    levels: Levels,
    contents: HashMap<TableId, Content>,
    next_id: u64,
    memtable: Content,
    lsn: u64,
    model: BTreeMap<Vec<u8>, Vec<(u64, bool)>>,
    model_ranges: Vec<RangeTombstone>,
    snapshots: Vec<u64>,
    running: Running,
    jobs: Vec<Job>,
    flushed_entries: u64,
    written_entries: u64,
}

impl Sim {
    fn new(entries_per_table: usize, level1_tables: u64, ratio: u64) -> Sim {
        let table_bytes = entries_per_table as u64 * ENTRY_BYTES;
        Sim {
            options: KeyspaceOptions {
                table_bytes,
                level0_tables: 3,
                level1_bytes: level1_tables * table_bytes,
                level_ratio: ratio,
                ..KeyspaceOptions::default()
            },
            entries_per_table,
            shelf: Shelf::new(MemFs::new(), Arc::new(BlockCache::new(0))),
            levels: Levels::new(bytewise(), Vec::new()),
            contents: HashMap::new(),
            next_id: 1,
            memtable: Content::default(),
            lsn: 0,
            model: BTreeMap::new(),
            model_ranges: Vec::new(),
            snapshots: Vec::new(),
            running: Running::new(),
            jobs: Vec::new(),
            flushed_entries: 0,
            written_entries: 0,
        }
    }

    fn oldest_snapshot(&self) -> Lsn {
        self.snapshots.iter().min().map_or(Lsn::MAX, |&s| Lsn(s))
    }

    fn write(&mut self, key: Vec<u8>, is_put: bool) {
        self.lsn += 1;
        self.memtable.points.push((key.clone(), self.lsn, is_put));
        self.model.entry(key).or_default().push((self.lsn, is_put));
    }

    fn delete_range(&mut self, start: Vec<u8>, end: Vec<u8>) {
        self.lsn += 1;
        let tombstone = RangeTombstone { start, end, lsn: Lsn(self.lsn) };
        self.memtable.ranges.push(tombstone.clone());
        self.model_ranges.push(tombstone);
    }

    /// By the definition, over the whole history.
    fn expected(&self, key: &[u8], at: u64) -> Option<u64> {
        let versions = self.model.get(key)?;
        let &(lsn, is_put) = versions.iter().rev().find(|v| v.0 < at)?;
        let covering =
            self.model_ranges.iter().filter(|t| t.start.as_slice() <= key && key < t.end.as_slice());
        let hidden = covering.map(|t| t.lsn.0).any(|t| lsn < t && t < at);
        (is_put && !hidden).then_some(lsn)
    }

    /// As a get reads: newest part first, stopping at the first that knows the key.
    fn read(&self, key: &[u8], at: u64) -> Option<u64> {
        let mut memtable = self.memtable.clone();
        memtable.order();
        let mut found = memtable.read(key, at);
        for table in self.levels.tables() {
            if found.is_some() {
                break;
            }
            if table.meta().covers(&Bytewise, key) {
                found = self.contents[&table.meta().id].read(key, at);
            }
        }
        found.filter(|found| found.1).map(|found| found.0)
    }

    fn check_reads(&self, keys: impl Iterator<Item = Vec<u8>>, story: &str) {
        for key in keys {
            for at in self.snapshots.iter().copied().chain([u64::MAX]) {
                assert_eq!(self.read(&key, at), self.expected(&key, at), "{key:?} at {at}: {story}");
            }
        }
    }

    fn add_table(&mut self, content: Content) -> Arc<TableHandle> {
        let mut span: Option<KeySpan> = None;
        let points = content.points.iter();
        let points = points.map(|p| KeySpan { start: p.0.clone(), end: p.0.clone(), end_exclusive: false });
        let ranges = content.ranges.iter();
        let ranges =
            ranges.map(|t| KeySpan { start: t.start.clone(), end: t.end.clone(), end_exclusive: true });
        for part in points.chain(ranges) {
            match &mut span {
                Some(span) => span.extend(&Bytewise, &part),
                None => span = Some(part),
            }
        }
        let span = span.expect("no empty table");
        let lsns = || content.points.iter().map(|p| p.1).chain(content.ranges.iter().map(|t| t.lsn.0));
        let meta = TableMeta {
            id: TableId(self.next_id),
            file_bytes: (content.points.len() + content.ranges.len()) as u64 * ENTRY_BYTES,
            entries: content.points.len() as u64,
            deletes: content.points.iter().filter(|p| !p.2).count() as u64,
            range_tombstones: content.ranges.len() as u64,
            smallest: span.start,
            largest: span.end,
            largest_exclusive: span.end_exclusive,
            min_lsn: Lsn(lsns().min().unwrap()),
            max_lsn: Lsn(lsns().max().unwrap()),
            ..TableMeta::default()
        };
        self.next_id += 1;
        self.contents.insert(meta.id, content);
        let options = TableOptions::new(&self.options, KeyHasher::new(1));
        TableHandle::new(&self.shelf, PathBuf::from("/tables"), meta, options)
    }

    fn flush(&mut self) {
        let mut content = std::mem::take(&mut self.memtable);
        content.order();
        self.flushed_entries += (content.points.len() + content.ranges.len()) as u64;
        let outputs = self.retained(vec![content], &self.snapshots, KeySpans::EVERYTHING, usize::MAX);
        for output in outputs {
            let table = self.add_table(output);
            self.levels = self.levels.apply(&[(0, table)], &[]);
        }
    }

    /// What a job makes of its inputs.
    fn retained(
        &self,
        inputs: Vec<Content>,
        snapshots: &[u64],
        deeper: KeySpans,
        table_entries: usize,
    ) -> Vec<Content> {
        let mut all = Content::default();
        for input in inputs {
            all.points.extend(input.points);
            all.ranges.extend(input.ranges);
        }
        all.order();
        let tombstones = [Arc::new(Tombstones::of_all(&Bytewise, &all.ranges))];
        let snapshots = snapshots.iter().map(|&s| Lsn(s)).collect();
        let rules = Retention::new(self.options.comparator.clone(), snapshots, &tombstones, deeper);
        let mut outputs: Vec<Content> = Vec::new();
        let mut current = Content::default();
        let mut cut: Option<Vec<u8>> = None;
        let mut walk = rules.walk(None);
        let mut fresh = false;
        for (key, lsn, is_put) in all.points {
            let kind = if is_put { Kind::Put } else { Kind::Delete };
            let verdict = walk.judge(&key, Lsn(lsn), kind);
            fresh |= walk.is_first_of_key();
            if verdict != Verdict::Keep {
                continue;
            }
            if current.points.len() >= table_entries && fresh {
                current.ranges = owned(&rules.tombstones(cut.as_deref(), Some(&key)));
                outputs.push(std::mem::take(&mut current));
                cut = Some(key.clone());
            }
            fresh = false;
            current.points.push((key, lsn, is_put));
        }
        current.ranges = owned(&rules.tombstones(cut.as_deref(), None));
        if !current.points.is_empty() || !current.ranges.is_empty() {
            outputs.push(current);
        }
        outputs
    }

    fn begin(&mut self, plan: CompactionPlan) {
        self.check_plan(&plan);
        self.running.begin(&plan);
        self.jobs.push(Job { plan, snapshots: self.snapshots.clone() });
    }

    /// The promises in the header of `plan`.
    fn check_plan(&self, plan: &CompactionPlan) {
        let taken: Vec<TableId> = plan.tables().map(|(_, table)| table.meta().id).collect();
        for level in 0..self.levels.depth() {
            for table in self.levels.level(level) {
                let meta = table.meta();
                assert!(
                    !taken.contains(&meta.id) || !self.running.reads(meta.id),
                    "{plan}: {} is busy",
                    meta.id
                );
                let stays = !taken.contains(&meta.id) && span_of(meta).overlaps(&Bytewise, &plan.span);
                if stays && level == plan.output_level as usize {
                    panic!("{plan}: {} of the output level overlaps", meta.id);
                }
                if stays && level == 0 && plan.input_level == 0 {
                    for input in plan.tables().filter(|(level, _)| *level == 0).map(|(_, table)| table.meta())
                    {
                        let older = meta.max_lsn < input.min_lsn;
                        assert!(
                            !older || !meta.overlaps_table(&Bytewise, input),
                            "{plan}: leaves an older table"
                        );
                    }
                }
            }
        }
        let bounds = plan.cuts.iter().map(|cut| cut.as_slice());
        assert!(
            plan.cuts.is_sorted_by(|a, b| a < b)
                && bounds.clone().all(|cut| plan.span.contains(&Bytewise, cut))
        );
        assert_eq!(plan.bottom, plan.deeper.is_empty());
    }

    fn finish(&mut self, at: usize) {
        let Job { plan, snapshots } = self.jobs.swap_remove(at);
        let removed: Vec<TableId> = plan.tables().map(|(_, table)| table.meta().id).collect();
        let outputs: Vec<Arc<TableHandle>> = if plan.trivial_move {
            plan.tables().map(|(_, table)| table.clone()).collect()
        } else {
            let inputs = removed.iter().map(|id| self.contents[id].clone()).collect();
            let made = self.retained(inputs, &snapshots, plan.deeper.clone(), self.entries_per_table);
            let entries: usize = made.iter().map(|c| c.points.len() + c.ranges.len()).sum();
            self.written_entries += entries as u64;
            made.into_iter().map(|content| self.add_table(content)).collect()
        };
        let removed: Vec<(u32, TableId)> = plan.tables().map(|(l, table)| (l, table.meta().id)).collect();
        let added: Vec<(u32, Arc<TableHandle>)> =
            outputs.into_iter().map(|table| (plan.output_level, table)).collect();
        self.levels = self.levels.apply(&added, &removed);
        for pair in self.levels.level(plan.output_level as usize).windows(2) {
            let overlap = pair[0].meta().overlaps_table(&Bytewise, pair[1].meta());
            assert!(!overlap, "{plan} leaves an overlap: {:?} {:?}", pair[0].meta(), pair[1].meta());
        }
        self.running.end(&plan);
    }

    fn settle(&mut self) {
        for _ in 0..10_000 {
            while !self.jobs.is_empty() {
                self.finish(0);
            }
            match pick(&self.levels, &self.options, &self.running, self.oldest_snapshot()) {
                Some(plan) => self.begin(plan),
                None => return,
            }
        }
        panic!("the policy never comes to rest");
    }

    fn compact_manually(&mut self, start: Option<&[u8]>, end: Option<&[u8]>) {
        for _ in 0..10_000 {
            match pick_manual(&self.levels, &self.options, &self.running, self.oldest_snapshot(), start, end)
            {
                ManualPick::Plan(plan) => self.begin(plan),
                ManualPick::Busy => self.finish(0),
                ManualPick::Done => return,
            }
        }
        panic!("a manual compaction never ends");
    }

    fn shape(&self) -> Vec<usize> {
        (0..self.levels.depth()).map(|level| self.levels.level(level).len()).collect()
    }
}

fn small_key(number: u64) -> Vec<u8> {
    vec![b'k', number as u8]
}

#[test]
fn every_read_stays_right_while_jobs_of_all_levels_run_side_by_side() {
    const KEYS: u64 = 60;
    let (mut most_jobs, mut moves, mut deepest) = (0, 0, 0);
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let mut sim = Sim::new(3 + dice.below(4) as usize, 2, 2 + dice.below(2));
        for step in 0..700 {
            match dice.below(16) {
                0..=7 => {
                    let is_put = dice.below(3) > 0;
                    let base = dice.below(KEYS);
                    for number in base..base + dice.below(4) {
                        sim.write(small_key(number % KEYS), is_put);
                    }
                }
                8 if dice.below(3) == 0 => {
                    let start = dice.below(KEYS);
                    sim.delete_range(small_key(start), small_key(start + dice.below(20)));
                }
                9 if sim.lsn > 0 && dice.below(3) == 0 => sim.snapshots.push(sim.lsn + 1),
                10 if !sim.snapshots.is_empty() => {
                    let gone = dice.below(sim.snapshots.len() as u64) as usize;
                    sim.snapshots.remove(gone);
                }
                11 => sim.flush(),
                12 | 13 => {
                    let (levels, options, running) = (&sim.levels, &sim.options, &sim.running);
                    let plan = if dice.below(8) == 0 {
                        let (start, end) = (small_key(dice.below(KEYS)), small_key(dice.below(KEYS)));
                        match pick_manual(
                            levels,
                            options,
                            running,
                            sim.oldest_snapshot(),
                            Some(&start),
                            Some(&end),
                        ) {
                            ManualPick::Plan(plan) => Some(plan),
                            _ => None,
                        }
                    } else {
                        pick(levels, options, running, sim.oldest_snapshot())
                    };
                    if let Some(plan) = plan {
                        moves += usize::from(plan.trivial_move);
                        deepest = deepest.max(plan.output_level);
                        sim.begin(plan);
                        most_jobs = most_jobs.max(sim.running.jobs());
                    }
                }
                _ if !sim.jobs.is_empty() => {
                    let at = dice.below(sim.jobs.len() as u64) as usize;
                    sim.finish(at);
                    sim.check_reads((0..KEYS).map(small_key), &format!("seed {seed} step {step}"));
                }
                _ => {}
            }
        }
        sim.flush();
        sim.settle();
        sim.check_reads((0..KEYS).map(small_key), &format!("seed {seed}, settled"));
        assert_eq!(debt_bytes(&sim.levels, &sim.options), 0, "{:?}", sim.shape());
        sim.snapshots.clear();
        sim.compact_manually(None, None);
        sim.check_reads((0..KEYS).map(small_key), &format!("seed {seed}, compacted"));
        let shape = sim.shape();
        assert!(shape.iter().rev().skip_while(|&&n| n == 0).skip(1).all(|&n| n == 0), "one level: {shape:?}");
        for table in sim.levels.tables() {
            assert_eq!(tombstones_of(table.meta()), 0, "no tombstone stays without a snapshot");
        }
    }
    assert!(most_jobs >= 3 && moves > 50 && deepest >= 3, "{most_jobs} {moves} {deepest}");
}

#[test]
fn a_sequential_load_is_moved_and_never_rewritten() {
    let mut sim = Sim::new(50, 4, 4);
    for number in 0..20_000u64 {
        sim.write(number.to_be_bytes().to_vec(), true);
        if sim.memtable.points.len() == 50 {
            sim.flush();
            sim.settle();
        }
    }
    assert_eq!(sim.written_entries, 0, "{:?}", sim.shape());
    assert!(sim.levels.depth() >= 4);
}

#[test]
fn a_random_load_is_rewritten_no_more_than_the_levels_explain() {
    let mut sim = Sim::new(250, 4, 4);
    let mut dice = Dice(1);
    for _ in 0..150_000 {
        sim.write(dice.below(100_000).to_be_bytes().to_vec(), true);
        if sim.memtable.points.len() == 250 {
            sim.flush();
            sim.settle();
        }
    }
    let amplification = sim.written_entries as f64 / sim.flushed_entries as f64;
    // Levels of 1000, 4000, 16000 and 64000 entries: at most (ratio + 1) a level.
    assert!(amplification < 14.0, "{amplification:.1} {:?}", sim.shape());
    assert!(sim.shape()[1..].iter().filter(|&&tables| tables > 0).count() >= 4, "{:?}", sim.shape());
}

#[test]
fn deleted_ranges_give_their_space_back_without_being_asked() {
    let mut sim = Sim::new(50, 4, 4);
    let mut dice = Dice(2);
    for number in 0..10_000u64 {
        sim.write(dice.below(5000).to_be_bytes().to_vec(), true);
        if number % 50 == 49 {
            sim.flush();
            sim.settle();
        }
    }
    let full: u64 = bytes_of(sim.levels.tables());
    sim.delete_range(1000u64.to_be_bytes().to_vec(), 4000u64.to_be_bytes().to_vec());
    sim.flush();
    sim.settle();
    // The tombstone waits at level 0 until that is compacted; a few more flushes see to it.
    for number in 0..150u64 {
        sim.write(number.to_be_bytes().to_vec(), true);
        if number % 50 == 49 {
            sim.flush();
            sim.settle();
        }
    }
    let left: u64 = bytes_of(sim.levels.tables());
    assert!(left * 2 < full, "{left} of {full} bytes are left: {:?}", sim.shape());
    sim.check_reads((0..5000u64).step_by(7).map(|n| n.to_be_bytes().to_vec()), "after the deletion");
}

#[test]
fn tombstones_that_a_snapshot_holds_are_rewritten_once_it_is_gone() {
    let mut sim = Sim::new(10, 4, 4);
    (0..8).for_each(|n| sim.write(small_key(n), true));
    sim.flush();
    sim.snapshots.push(sim.lsn + 1);
    (0..8).for_each(|n| sim.write(small_key(n), false));
    sim.flush();
    sim.compact_manually(None, None);
    sim.settle();
    let deletes = |sim: &Sim| sim.levels.tables().map(|t| t.meta().deletes).sum::<u64>();
    assert_eq!(deletes(&sim), 8, "the snapshot still needs the puts, and the present the deletes");
    sim.check_reads((0..8).map(small_key), "held");
    sim.snapshots.clear();
    sim.settle();
    assert!(sim.levels.depth() == 0, "{:?}", sim.shape());
}

impl Sim {
    /// A table of puts at `level`, made out of nothing.
    fn place(&mut self, level: u32, keys: &[u64]) -> TableId {
        let mut content = Content::default();
        for &key in keys {
            self.lsn += 1;
            content.points.push((small_key(key), self.lsn, true));
            self.model.entry(small_key(key)).or_default().push((self.lsn, true));
        }
        content.order();
        let table = self.add_table(content);
        self.levels = self.levels.apply(&[(level, table.clone())], &[]);
        table.meta().id
    }

    fn manual(&self, start: u64, end: u64) -> ManualPick {
        let (start, end) = (small_key(start), small_key(end));
        pick_manual(&self.levels, &self.options, &self.running, Lsn::MAX, Some(&start), Some(&end))
    }
}

/// What a pick is asked to give.
fn expect_plan(pick: ManualPick) -> CompactionPlan {
    match pick {
        ManualPick::Plan(plan) => plan,
        other => panic!("no plan but {other:?}"),
    }
}

#[test]
fn nothing_slips_into_a_gap_that_a_running_job_may_write_over() {
    let mut sim = Sim::new(100, 4, 4);
    sim.place(2, &[14, 16]);
    sim.place(1, &[10, 15]);
    sim.place(1, &[30, 31]);
    // Both tables of level 1 in one job: the second brings nothing more of level 2 along.
    let plan = expect_plan(sim.manual(10, 11));
    assert_eq!(plan.inputs[0].1.len(), 2, "{plan}");
    sim.begin(plan);
    // Meanwhile a table comes into the gap of level 1, which nothing of level 2 covers.
    sim.place(1, &[20, 21]);
    assert!(
        matches!(sim.manual(20, 22), ManualPick::Busy),
        "the running job will write one table over the gap"
    );
    sim.finish(0);
    assert_eq!(sim.levels.level(2).len(), 1);
    let plan = expect_plan(sim.manual(20, 22));
    sim.begin(plan);
    sim.finish(0);
    sim.check_reads((0..40).map(small_key), "done");
}

#[test]
fn a_busy_neighbour_is_left_out_of_a_plan() {
    let mut sim = Sim::new(100, 4, 4);
    sim.place(2, &[14, 16]);
    sim.place(2, &[50]);
    sim.place(1, &[10, 15]);
    sim.place(1, &[30, 31]);
    let moved = expect_plan(sim.manual(30, 31));
    assert!(moved.trivial_move && moved.inputs[0].1.len() == 1, "{moved}");
    sim.begin(moved);
    let plan = expect_plan(sim.manual(10, 11));
    assert_eq!(plan.inputs[0].1.len(), 1, "{plan}");
}

#[test]
fn disjoint_parts_of_level_0_are_compacted_side_by_side_and_others_are_not() {
    let mut sim = Sim::new(100, 4, 4);
    let old = sim.place(0, &[1, 5]);
    sim.place(0, &[20, 25]);
    let new = sim.place(0, &[3, 9]);
    let first = expect_plan(sim.manual(1, 2));
    let taken: Vec<TableId> = first.tables().map(|(_, table)| table.meta().id).collect();
    assert_eq!(taken, [new, old], "newest first, and the old one not without the new");
    sim.begin(first);
    let second = expect_plan(sim.manual(20, 30));
    sim.begin(second);
    sim.place(0, &[4, 6]);
    assert!(matches!(sim.manual(4, 5), ManualPick::Busy), "newer versions must not arrive first");
    sim.finish(1);
    sim.finish(0);
    sim.begin(expect_plan(sim.manual(4, 5)));
    sim.finish(0);
    sim.check_reads((0..30).map(small_key), "done");
}

#[test]
fn a_plan_prints_what_it_does() {
    let mut sim = Sim::new(10, 4, 4);
    for round in 0..3 {
        (0..10).for_each(|n| sim.write(small_key(n + round), true));
        sim.flush();
    }
    let plan = pick(&sim.levels, &sim.options, &sim.running, Lsn::MAX).unwrap();
    assert_eq!(plan.to_string(), "merge L0{3 2 1} -> L1, 3000 bytes, bottom (3 tables at level 0)");
}

fn owned(tombstones: &Tombstones) -> Vec<RangeTombstone> {
    tombstones.iter().map(RangeTombstone::owned).collect()
}
