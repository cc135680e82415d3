//! A store of lists without a disk: policies' plans carried out by the rules of `retain`, several at a time.
//!
//! Place: the tests of the policies. A table is a description and a list of its entries; what a read finds is compared with the
//! whole history.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use crate::cache::BlockCache;
use crate::compaction::retain::{Retention, Verdict};
use crate::dice::Dice;
use crate::env::MemFs;
use crate::iter::{RangeTombstone, Tombstones};
use crate::key::{Bytewise, KeyHasher, Kind, Lsn, bytewise};
use crate::layout::plan::{CompactionPlan, span_of};
use crate::layout::tiered::Tiers;
use crate::layout::{Border, KeySpan, KeySpans, ManualPick, Running, debt_bytes, pick, pick_manual};
use crate::options::{KeyspaceOptions, Layout};
use crate::table::{Sample, Shelf, TableHandle, TableId, TableMeta, TableOptions};
use crate::version::Levels;

const ENTRY_BYTES: u64 = 100;

#[derive(Clone, Default, Debug)]
pub struct Content {
    /// (key, LSN, is a put), in internal order.
    pub points: Vec<(Vec<u8>, u64, bool)>,
    pub ranges: Vec<RangeTombstone>,
}

impl Content {
    pub fn order(&mut self) {
        self.points.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    }

    /// The newest that a read at `at` finds of the key in this part: (LSN, is a put).
    pub fn read(&self, key: &[u8], at: u64) -> Option<(u64, bool)> {
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

#[derive(Clone)]
pub struct Job {
    pub plan: CompactionPlan,
    pub snapshots: Vec<u64>,
}

#[derive(Clone)]
pub struct Sim {
    pub options: KeyspaceOptions,
    pub entries_per_table: usize,
    pub shelf: Arc<Shelf>,
    pub levels: Levels,
    pub contents: HashMap<TableId, Content>,
    pub next_id: u64,
    pub memtable: Content,
    pub lsn: u64,
    pub model: BTreeMap<Vec<u8>, Vec<(u64, bool)>>,
    pub model_ranges: Vec<RangeTombstone>,
    pub snapshots: Vec<u64>,
    pub running: Running,
    pub jobs: Vec<Job>,
    pub flushed_entries: u64,
    pub written_entries: u64,
    /// Plans begun that move tables.
    pub moves: usize,
    /// The deepest level that a plan was to write to.
    pub deepest: u32,
    /// Bytes of the largest merge so far.
    pub largest_job: u64,
    /// Jobs that ran at a time.
    pub most_jobs: usize,
}

impl Sim {
    pub fn new(entries_per_table: usize, level1_tables: u64, ratio: u64) -> Sim {
        let table_bytes = entries_per_table as u64 * ENTRY_BYTES;
        Sim {
            options: KeyspaceOptions {
                layout: Layout::Leveled,
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
            moves: 0,
            deepest: 0,
            largest_job: 0,
            most_jobs: 0,
        }
    }

    pub fn oldest_snapshot(&self) -> Lsn {
        self.snapshots.iter().min().map_or(Lsn::MAX, |&s| Lsn(s))
    }

    pub fn write(&mut self, key: Vec<u8>, is_put: bool) {
        self.lsn += 1;
        self.memtable.points.push((key.clone(), self.lsn, is_put));
        self.model.entry(key).or_default().push((self.lsn, is_put));
    }

    pub fn delete_range(&mut self, start: Vec<u8>, end: Vec<u8>) {
        self.lsn += 1;
        let tombstone = RangeTombstone { start, end, lsn: Lsn(self.lsn) };
        self.memtable.ranges.push(tombstone.clone());
        self.model_ranges.push(tombstone);
    }

    /// By the definition, over the whole history.
    pub fn expected(&self, key: &[u8], at: u64) -> Option<u64> {
        let versions = self.model.get(key)?;
        let &(lsn, is_put) = versions.iter().rev().find(|v| v.0 < at)?;
        let covering =
            self.model_ranges.iter().filter(|t| t.start.as_slice() <= key && key < t.end.as_slice());
        let hidden = covering.map(|t| t.lsn.0).any(|t| lsn < t && t < at);
        (is_put && !hidden).then_some(lsn)
    }

    /// As a get reads: newest part first, stopping at the first that knows the key.
    pub fn read(&self, key: &[u8], at: u64) -> Option<u64> {
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

    pub fn check_reads(&self, keys: impl Iterator<Item = Vec<u8>>, story: &str) {
        for key in keys {
            for at in self.snapshots.iter().copied().chain([u64::MAX]) {
                assert_eq!(self.read(&key, at), self.expected(&key, at), "{key:?} at {at}: {story}");
            }
        }
    }

    /// As a writer takes it of keys behind their places.
    fn sample(&self, content: &Content) -> Sample {
        if self.options.is_ordered() {
            return Sample::default();
        }
        let mut newest = content.points.clone();
        newest.dedup_by(|a, b| a.0 == b.0);
        Sample::of(newest.iter().map(|(key, _, is_put)| (KeyHasher::new(1).hash(key), !is_put)))
    }

    pub fn add_table(&mut self, content: Content) -> Arc<TableHandle> {
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
            hidden: content.points.windows(2).filter(|pair| pair[0].0 == pair[1].0).count() as u64,
            range_tombstones: content.ranges.len() as u64,
            smallest: span.start,
            largest: span.end,
            largest_exclusive: span.end_exclusive,
            min_lsn: Lsn(lsns().min().unwrap()),
            max_lsn: Lsn(lsns().max().unwrap()),
            sample: self.sample(&content),
            ..TableMeta::default()
        };
        self.next_id += 1;
        self.contents.insert(meta.id, content);
        let options = TableOptions::new(&self.options, KeyHasher::new(1));
        TableHandle::new(&self.shelf, PathBuf::from("/tables"), meta, options)
    }

    pub fn flush(&mut self) {
        let mut content = std::mem::take(&mut self.memtable);
        content.order();
        self.flushed_entries += (content.points.len() + content.ranges.len()) as u64;
        let outputs = self.retained(vec![content], &self.snapshots, KeySpans::EVERYTHING, usize::MAX, 0, &[]);
        for (_, output) in outputs {
            let table = self.add_table(output);
            self.levels = self.levels.apply(&[(0, table)], &[]);
        }
    }

    /// What a job makes of its inputs.
    pub fn retained(
        &self,
        inputs: Vec<Content>,
        snapshots: &[u64],
        deeper: KeySpans,
        table_entries: usize,
        mut level: u32,
        borders: &[Border],
    ) -> Vec<(u32, Content)> {
        let mut all = Content::default();
        for input in inputs {
            all.points.extend(input.points);
            all.ranges.extend(input.ranges);
        }
        all.order();
        let tombstones = [Arc::new(Tombstones::of_all(&Bytewise, &all.ranges))];
        let snapshots = snapshots.iter().map(|&s| Lsn(s)).collect();
        let rules = Retention::new(self.options.comparator.clone(), snapshots, &tombstones, deeper);
        let mut outputs: Vec<(u32, Content)> = Vec::new();
        let mut borders = borders.iter().peekable();
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
            while let Some(border) = borders.next_if(|border| fresh && border.key <= key) {
                current.ranges = owned(&rules.tombstones(cut.as_deref(), Some(&border.key)));
                outputs.push((level, std::mem::take(&mut current)));
                (cut, level) = (Some(border.key.clone()), border.level);
            }
            if current.points.len() >= table_entries && fresh {
                current.ranges = owned(&rules.tombstones(cut.as_deref(), Some(&key)));
                outputs.push((level, std::mem::take(&mut current)));
                cut = Some(key.clone());
            }
            fresh = false;
            current.points.push((key, lsn, is_put));
        }
        for border in borders {
            current.ranges = owned(&rules.tombstones(cut.as_deref(), Some(&border.key)));
            outputs.push((level, std::mem::take(&mut current)));
            (cut, level) = (Some(border.key.clone()), border.level);
        }
        current.ranges = owned(&rules.tombstones(cut.as_deref(), None));
        outputs.push((level, current));
        outputs.retain(|(_, content)| !content.points.is_empty() || !content.ranges.is_empty());
        outputs
    }

    pub fn begin(&mut self, plan: CompactionPlan) {
        self.check_plan(&plan);
        if !plan.trivial_move {
            self.largest_job = self.largest_job.max(plan.input_bytes());
        }
        self.running.begin(&plan);
        self.jobs.push(Job { plan, snapshots: self.snapshots.clone() });
    }

    /// The promises in the header of `plan`.
    pub fn check_plan(&self, plan: &CompactionPlan) {
        let taken: Vec<TableId> = plan.tables().map(|(_, table)| table.meta().id).collect();
        let first = plan.input_level as usize;
        let deepest = plan.tables().map(|(level, _)| level as usize).max().expect("a plan has inputs");
        for (output, span) in plan.landings() {
            // In a trie the filters of all that stays under it in its pile go with it.
            let under = Tiers::of(&self.options).map_or(0..0, |tiers| tiers.under(output as usize));
            for table in under.flat_map(|level| self.levels.level(level)) {
                let id = table.meta().id;
                let stays = !taken.contains(&id) && span_of(table.meta()).overlaps(&Bytewise, &span);
                assert!(
                    !stays || plan.pile.iter().any(|of| of.meta().id == id),
                    "{plan}: {id:?} is forgotten"
                );
            }
            let last = deepest.max(output as usize);
            let from = if output as usize > first { first + 1 } else { output.max(1) as usize };
            for level in from..=last {
                let is_written = self.running.writes(&Bytewise, level as u32, &span);
                assert!(!is_written, "{plan}: level {level} is written");
                for table in self.levels.level(level) {
                    let stays =
                        !taken.contains(&table.meta().id) && span_of(table.meta()).overlaps(&Bytewise, &span);
                    assert!(!stays, "{plan}: {} of level {level} is passed by", table.meta().id);
                }
            }
        }
        for table in plan.tables().map(|(_, table)| table.meta()) {
            assert!(!self.running.reads(table.id), "{plan}: {} is busy", table.id);
        }
        for table in self.levels.level(0).iter().filter(|_| first == 0) {
            let meta = table.meta();
            if taken.contains(&meta.id) {
                continue;
            }
            for input in plan.tables().filter(|(level, _)| *level == 0).map(|(_, table)| table.meta()) {
                let older = meta.max_lsn < input.min_lsn;
                assert!(!older || !meta.overlaps_table(&Bytewise, input), "{plan}: leaves an older table");
            }
        }
        let bounds = plan.cuts.iter().map(|cut| cut.as_slice());
        assert!(
            plan.cuts.is_sorted_by(|a, b| a < b)
                && bounds.clone().all(|cut| plan.span.contains(&Bytewise, cut))
        );
        assert_eq!(plan.bottom, plan.deeper.is_empty());
    }

    pub fn finish(&mut self, at: usize) {
        let Job { plan, snapshots } = self.jobs.swap_remove(at);
        let removed: Vec<TableId> = plan.tables().map(|(_, table)| table.meta().id).collect();
        let added: Vec<(u32, Arc<TableHandle>)> = if plan.trivial_move {
            plan.tables().map(|(_, table)| (plan.output_level, table.clone())).collect()
        } else {
            let inputs = removed.iter().map(|id| self.contents[id].clone()).collect();
            let (deeper, entries) = ((*plan.deeper).clone(), self.entries_per_table);
            let made = self.retained(inputs, &snapshots, deeper, entries, plan.output_level, &plan.borders);
            let entries: usize = made.iter().map(|(_, c)| c.points.len() + c.ranges.len()).sum();
            self.written_entries += entries as u64;
            made.into_iter().map(|(level, content)| (level, self.add_table(content))).collect()
        };
        let removed: Vec<(u32, TableId)> = plan.tables().map(|(l, table)| (l, table.meta().id)).collect();
        self.levels = self.levels.apply(&added, &removed);
        for (level, _) in plan.landings() {
            for pair in self.levels.level(level as usize).windows(2) {
                let overlap = pair[0].meta().overlaps_table(&Bytewise, pair[1].meta());
                assert!(!overlap, "{plan} leaves an overlap: {:?} {:?}", pair[0].meta(), pair[1].meta());
            }
        }
        self.running.end(&plan);
    }

    pub fn settle(&mut self) {
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

    pub fn compact_manually(&mut self, start: Option<&[u8]>, end: Option<&[u8]>) {
        for _ in 0..10_000 {
            match pick_manual(&self.levels, &self.options, &self.running, self.oldest_snapshot(), start, end)
            {
                ManualPick::Plan(plan) => self.begin(plan),
                ManualPick::Busy => self.finish(0),
                ManualPick::Done => return,
            }
        }
        panic!("a manual compaction never ends: {:?}", self.shape());
    }

    pub fn shape(&self) -> Vec<usize> {
        (0..self.levels.depth()).map(|level| self.levels.level(level).len()).collect()
    }
}

pub fn small_key(number: u64) -> Vec<u8> {
    vec![b'k', number as u8]
}

impl Sim {
    /// One of 64 keys, as the layout would have them: in a trie spread over all places.
    fn key(&self, number: u64) -> Vec<u8> {
        match self.options.is_ordered() {
            true => small_key(number),
            false => [&(number << 58).to_be_bytes()[..], &small_key(number)].concat(),
        }
    }

    fn check_all(&self, keys: u64, story: &str) {
        self.check_reads((0..keys).map(|number| self.key(number)), story);
    }

    /// Writes a key; with so many entries the memtable is flushed, and all that is due is done.
    pub fn feed(&mut self, key: Vec<u8>, is_put: bool, entries: usize) {
        self.write(key, is_put);
        if self.memtable.points.len() == entries {
            self.flush();
            self.settle();
        }
    }

    /// One of the things that happen to a store, by chance: writes, deletes, snapshots, flushes, jobs that begin and that end,
    /// in any order. After each job every key is read.
    pub fn happen(&mut self, dice: &mut Dice, keys: u64, story: &str) {
        match dice.below(16) {
            0..=7 => {
                let is_put = dice.below(3) > 0;
                let base = dice.below(keys);
                for number in base..base + dice.below(4) {
                    let key = self.key(number % keys);
                    self.write(key, is_put);
                }
            }
            8 if dice.below(3) == 0 && self.options.is_ordered() => {
                let start = dice.below(keys);
                let end = start + dice.below(20);
                self.delete_range(self.key(start), self.key(end));
            }
            9 if self.lsn > 0 && dice.below(3) == 0 => self.snapshots.push(self.lsn + 1),
            10 if !self.snapshots.is_empty() => {
                let gone = dice.below(self.snapshots.len() as u64) as usize;
                self.snapshots.remove(gone);
            }
            11 => self.flush(),
            12 | 13 => {
                let oldest = self.oldest_snapshot();
                let (levels, options, running) = (&self.levels, &self.options, &self.running);
                let plan = if dice.below(8) == 0 {
                    let (start, end) = (self.key(dice.below(keys)), self.key(dice.below(keys)));
                    match pick_manual(levels, options, running, oldest, Some(&start), Some(&end)) {
                        ManualPick::Plan(plan) => Some(plan),
                        _ => None,
                    }
                } else {
                    pick(levels, options, running, oldest)
                };
                if let Some(plan) = plan {
                    self.moves += usize::from(plan.trivial_move);
                    self.deepest = self.deepest.max(plan.output_level);
                    self.begin(plan);
                    self.most_jobs = self.most_jobs.max(self.jobs.len());
                }
            }
            _ if !self.jobs.is_empty() => {
                let at = dice.below(self.jobs.len() as u64) as usize;
                self.finish(at);
                self.check_all(keys, story);
            }
            _ => {}
        }
    }

    /// Everything is flushed, done, and compacted once nothing needs old versions; reads are right all the while, and in the end
    /// there is one version of each key and no tombstone.
    pub fn wind_up(&mut self, keys: u64, story: &str) {
        self.flush();
        self.settle();
        self.check_all(keys, &format!("{story}, settled"));
        assert_eq!(
            debt_bytes(&self.levels, &self.options, self.oldest_snapshot()),
            0,
            "{story}: {:?}",
            self.shape()
        );
        self.snapshots.clear();
        self.compact_manually(None, None);
        self.check_all(keys, &format!("{story}, compacted"));
        let tables: Vec<&TableMeta> = self.levels.tables().map(|table| table.meta()).collect();
        for (at, table) in tables.iter().enumerate() {
            assert_eq!(
                (table.deletes, table.range_tombstones, table.hidden),
                (0, 0, 0),
                "{story}: no tombstone and no old version stays without a snapshot"
            );
            let over = tables[..at].iter().find(|other| other.overlaps_table(&Bytewise, table));
            assert!(over.is_none(), "{story}: {:?}", self.shape());
        }
    }
}

impl Sim {
    /// A table of puts at `level`, made out of nothing.
    pub fn place(&mut self, level: u32, keys: &[u64]) -> TableId {
        self.place_keys(level, keys.iter().map(|key| small_key(*key)))
    }

    pub fn place_keys(&mut self, level: u32, keys: impl Iterator<Item = Vec<u8>>) -> TableId {
        let mut content = Content::default();
        for key in keys {
            self.lsn += 1;
            content.points.push((key.clone(), self.lsn, true));
            self.model.entry(key).or_default().push((self.lsn, true));
        }
        content.order();
        let table = self.add_table(content);
        self.levels = self.levels.apply(&[(level, table.clone())], &[]);
        table.meta().id
    }

    pub fn manual(&self, start: u64, end: u64) -> ManualPick {
        let (start, end) = (small_key(start), small_key(end));
        pick_manual(&self.levels, &self.options, &self.running, Lsn::MAX, Some(&start), Some(&end))
    }
}

/// What a pick is asked to give.
pub fn expect_plan(pick: ManualPick) -> CompactionPlan {
    match pick {
        ManualPick::Plan(plan) => plan,
        other => panic!("no plan but {other:?}"),
    }
}

fn owned(tombstones: &Tombstones) -> Vec<RangeTombstone> {
    tombstones.iter().map(RangeTombstone::owned).collect()
}
