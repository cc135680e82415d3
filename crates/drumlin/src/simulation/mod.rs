//! Simulation: what a layout comes to, without a disk: the store's own policies over tables that are descriptions only.
//!
//! Place: for programs, and for `drumlin simulate`; asks `layout` as the scheduler of `db` does, and carries plans out by
//! expectation instead of `compaction`.
//!
//! What is expected: keys are drawn evenly from a space of N, or come in order. A table that spans a part f of the space has its
//! keys spread evenly over f N. Of runs with n1, n2, .. of these keys, a merge leaves f N (1 - (1 - n1 / f N) (1 - n2 / f N) ..):
//! of versions of a key one stays.
//!
//! A trie's containers are alike, so one path is followed, from the root to the first container of each level: what comes to others
//! is counted and let go of. A level has as many times the tables of its one container as it has containers, so a store of billions
//! of tables takes no more than one of a thousand.
//!
//! Left out: deletes, snapshots, and time; of a trie, the columns of other tables that stand with filters, and where tables are cut within
//! a container. A merge is done before the next flush, so that what a slow device would pile up at level 0 is not there.
//!
//! Invariants:
//! 1. Shape and writes are those of the policies that a store runs: the same code chooses.
//! 2. A step changes nothing but the simulation; nothing is read or written.
//!
//! Complexity: a step takes O(T log T) for each plan, T tables. Concurrency: a value. Origin: sLSM §2.6 and §2.7 for what lookups
//! and writes cost. Tests: below.

mod merge;

use std::path::PathBuf;
use std::sync::Arc;

use crate::env::{MemFs, ReadMode};
use crate::error::{Error, Result};
use crate::filter;
use crate::key::{KEY_BYTES_MAX, KeyHasher, Lsn, VALUE_BYTES_MAX, bytewise};
use crate::layout::{self, CompactionPlan, FilterBits, Running};
use crate::options::{KeyspaceOptions, Options};
use crate::table::{Sample, Shelf, TableHandle, TableId, TableMeta, TableOptions};
use crate::version::{LEVEL_MAX, Levels};

use self::merge::{Pieces, Stretch};

/// Bytes that an entry takes in a block beside its key and value, about: less what its key has in common with the one before.
const ENTRY_BYTES: f64 = 5.0;
/// Bytes that a put takes in a memtable beside its key and value, about.
const PUT_BYTES: usize = 40;
/// Bytes that an entry takes in a bucket beside its key and value, about; and how much of a bucket is entries.
const BUCKET_ENTRY_BYTES: f64 = 7.0;
/// See [`BUCKET_ENTRY_BYTES`].
const BUCKET_FILL: f64 = 0.98 * 4072.0 / 4096.0;
/// Bytes of a key's place in a sorted table of a trie.
const PLACE_BYTES: f64 = 8.0;
/// Bytes that an index entry takes beside its key, about.
const INDEX_BYTES: f64 = 12.0;
/// Plans after one flush, at most: a policy that goes on and on is a fault.
const PLANS_MAX: usize = 1_000_000;

/// In which order keys come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each is drawn from all with the same chance.
    Random,
    /// Ascending, from the first again after the last.
    Ascending,
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Different keys.
    pub keys: u64,
    /// Bytes of a key.
    pub key_bytes: u64,
    /// Bytes of a value, as it is stored.
    pub value_bytes: u64,
    /// Puts that a memtable holds.
    pub memtable_puts: u64,
    /// Bytes of filters that memory holds, of which tables get no more ([`Options::filter_bytes_max`]).
    pub filter_bytes_max: u64,
    /// The order of keys.
    pub order: Order,
}

impl Workload {
    /// Puts of so many bytes, key and value, that a memtable comes to whose limit is `limit` bytes. It turns at a border of the log,
    /// before it would outgrow its limit at the next (`db::census`); in the mean it has half a segment more by then than it needs.
    pub fn memtable_puts(
        options: &Options,
        keyspace: &KeyspaceOptions,
        limit: usize,
        put_bytes: usize,
    ) -> u64 {
        let put_bytes = put_bytes + if keyspace.is_ordered() { 0 } else { PLACE_BYTES as usize };
        let segment = options.segment_bytes_within(None);
        let turned = limit - (segment + segment / 2).min(limit / 2) + segment / 2;
        (turned.min(limit) / put_bytes.saturating_add(PUT_BYTES)).max(1) as u64
    }
}

/// The tables of one level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Its number.
    pub number: usize,
    /// How many there are.
    pub tables: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Their entries.
    pub entries: u64,
}

/// How things stand after some puts.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Puts so far.
    pub puts: u64,
    /// Bytes of tables written for each byte of keys and values that was put. The log is not counted.
    pub write_amplification: f64,
    /// Bytes of tables for each byte that tables without an old version would have.
    pub space_amplification: f64,
    /// Runs that a key may lie in: tables of level 0, and levels below.
    pub runs: usize,
    /// Blocks that a get of a key that is there reads, if filters and indexes are in memory and blocks are not.
    pub reads_per_get: f64,
    /// The same for a key that is not there.
    pub reads_per_miss: f64,
    /// Bytes of filters.
    pub filter_bytes: u64,
    /// Bytes of indexes.
    pub index_bytes: u64,
    /// The most bytes that a merge has read so far: as much again is on the device until it is done.
    pub largest_merge: u64,
    /// Levels that have tables.
    pub levels: Vec<Level>,
}

/// A simulated keyspace.
pub struct Simulation {
    options: KeyspaceOptions,
    workload: Workload,
    shelf: Arc<Shelf>,
    levels: Levels,
    next_id: u64,
    next_lsn: u64,
    puts: u64,
    written: u64,
    largest_merge: u64,
}

impl Simulation {
    /// An empty keyspace.
    ///
    /// # Errors
    /// `InvalidArgument` for options that no keyspace can have, for a workload without keys or puts, for keys and values of lengths
    /// that there are not, and for keys in order where none is kept.
    pub fn new(options: KeyspaceOptions, workload: Workload) -> Result<Simulation> {
        options.validate()?;
        if workload.keys == 0 || workload.memtable_puts == 0 {
            return Err(Error::invalid("a simulated workload has keys, and memtables with puts"));
        }
        let (key_bytes, value_bytes) = (workload.key_bytes, workload.value_bytes);
        if !(1..=KEY_BYTES_MAX as u64).contains(&key_bytes) || value_bytes > VALUE_BYTES_MAX as u64 {
            return Err(Error::invalid(format!(
                "a simulated key has {key_bytes} bytes and its value {value_bytes}, but there are 1 to {KEY_BYTES_MAX} and at \
                 most {VALUE_BYTES_MAX}"
            )));
        }
        if workload.order == Order::Ascending && !options.is_ordered() {
            return Err(Error::invalid(
                "a trie spreads keys that come in order like any others: simulate random ones",
            ));
        }
        let levels = Levels::new(bytewise(), Vec::new());
        let shelf = Shelf::bounded(MemFs::new(), ReadMode::Buffered, std::path::Path::new(""), 0, usize::MAX);
        Ok(Simulation {
            options: KeyspaceOptions { comparator: bytewise(), ..options },
            workload,
            shelf,
            levels,
            next_id: 1,
            next_lsn: 1,
            puts: 0,
            written: 0,
            largest_merge: 0,
        })
    }

    /// Fills a memtable, or puts `most` if it holds more, flushes it, and merges until nothing is due. O(plans x tables log
    /// tables).
    ///
    /// # Errors
    /// `InvalidArgument` if the policy does not come to rest.
    pub fn step(&mut self, most: u64) -> Result<()> {
        let Workload { keys, memtable_puts, order, .. } = self.workload;
        let puts = memtable_puts.min(most);
        let space = keys as f64;
        let (from, to, entries) = match order {
            Order::Random => (0.0, 1.0, space * -(-(puts as f64) / space).exp_m1()),
            Order::Ascending => {
                let at = (self.puts % keys) as f64;
                let until = (at + puts as f64).min(space);
                (at / space, until / space, until - at)
            }
        };
        self.puts += puts;
        self.next_lsn += puts;
        let table = self.table(0, Stretch { from, to, entries }, self.next_lsn);
        self.levels = self.levels.apply(&[(0, table)], &[]);
        for _ in 0..PLANS_MAX {
            match layout::pick(&self.levels, &self.options, &Running::new(), Lsn::MAX) {
                Some(plan) => self.carry_out(&plan),
                None => return Ok(()),
            }
        }
        Err(Error::invalid("the layout never comes to rest"))
    }

    /// The tier that a level is of, counted from 0, in whose levels tables come to lie as room is: in the leveled layout each is
    /// one.
    pub fn tier_of(&self, level: usize) -> usize {
        layout::tier_of(&self.options, level)
    }

    /// How things stand. O(tables log tables).
    pub fn point(&self) -> Point {
        self.point_of(&self.options)
    }

    /// How they would stand with other filters and blocks, if the tables were these. O(tables log tables).
    pub fn point_with(&self, filter_bits_per_key: f64, block_bytes: usize) -> Point {
        self.point_of(&KeyspaceOptions { filter_bits_per_key, block_bytes, ..self.options.clone() })
    }

    fn point_of(&self, options: &KeyspaceOptions) -> Point {
        let levels: Vec<Level> = (0..self.levels.depth())
            .map(|number| {
                let tables = self.levels.level(number);
                let containers = layout::containers_at(options, number);
                let sum = |of: &dyn Fn(&TableMeta) -> u64| {
                    containers * tables.iter().map(|table| of(table.meta())).sum::<u64>()
                };
                let (bytes, entries) = (sum(&|meta| meta.file_bytes), sum(&|meta| meta.entries));
                let files = |meta: &TableMeta| {
                    if number > 0 { meta.file_bytes.div_ceil(options.table_bytes) } else { 1 }
                };
                let tables = if options.is_ordered() { tables.len() } else { sum(&files) as usize };
                Level { number, tables, bytes, entries }
            })
            .filter(|level| level.tables > 0)
            .collect();
        let put_bytes = self.puts as f64 * self.user_bytes();
        let bytes: u64 = levels.iter().map(|level| level.bytes).sum();
        let space = self.workload.keys as f64;
        let filters = FilterBits::of(&self.levels, options, self.workload.filter_bytes_max);
        let span = if options.is_ordered() { filter::Span::Line } else { filter::Span::Window };
        let error_at = |level: usize| filter::error_of(span, filters.at(level as u32));
        // Entries of each run and the error of its filter, from the newest on.
        let of_level0 = self.levels.level(0).iter().map(|table| table.meta().entries as f64);
        let deeper = levels.iter().filter(|level| level.number > 0);
        let deeper = deeper.map(|level| (level.entries as f64, error_at(level.number)));
        let runs: Vec<(f64, f64)> = of_level0.map(|entries| (entries, error_at(0))).chain(deeper).collect();
        let alive = space * (1.0 - runs.iter().map(|(run, _)| (1.0 - run / space).max(0.0)).product::<f64>());
        // Of the keys that are there, those not found yet; of all keys, those in none of the newer runs.
        let (mut reads, mut left, mut absent) = (0.0, 1.0, 1.0);
        for (run, error) in &runs {
            let here = (absent * run / alive.max(1.0)).min(left);
            reads += here + (left - here) * error;
            left -= here;
            absent *= (1.0 - run / space).max(0.0);
        }
        let filter_bits = levels.iter().map(|level| level.entries as f64 * filters.at(level.number as u32));
        let indexed = levels.iter().filter(|level| !self.is_hashed(level.number));
        let indexed: u64 = indexed.map(|level| level.entries).sum();
        Point {
            puts: self.puts,
            write_amplification: self.written as f64 / put_bytes.max(1.0),
            space_amplification: bytes as f64 / (alive * self.entry_bytes(LEVEL_MAX as usize)).max(1.0),
            runs: runs.len(),
            reads_per_get: reads,
            reads_per_miss: runs.iter().map(|(_, error)| error).sum(),
            filter_bytes: (filter_bits.sum::<f64>() / 8.0) as u64,
            index_bytes: (indexed as f64 * self.index_bytes(options)) as u64,
            largest_merge: self.largest_merge,
            levels,
        }
    }

    fn user_bytes(&self) -> f64 {
        (self.workload.key_bytes + self.workload.value_bytes) as f64
    }

    /// Bytes of the index for an entry: a fence pointer for each block.
    fn index_bytes(&self, options: &KeyspaceOptions) -> f64 {
        let in_block = (options.block_bytes as f64 / (self.user_bytes() + ENTRY_BYTES)).max(1.0);
        (self.workload.key_bytes as f64 + INDEX_BYTES) / in_block
    }

    /// True if the level's tables have buckets, and no index.
    fn is_hashed(&self, level: usize) -> bool {
        level > 0 && !self.options.is_ordered()
    }

    /// Bytes of a level's files for an entry.
    fn entry_bytes(&self, level: usize) -> f64 {
        let filter = self.options.filter_bits_per_key / 8.0;
        if self.is_hashed(level) {
            return (self.user_bytes() + BUCKET_ENTRY_BYTES) / BUCKET_FILL + filter;
        }
        let place = if self.options.is_ordered() { 0.0 } else { PLACE_BYTES };
        self.user_bytes() + place + ENTRY_BYTES + filter + self.index_bytes(&self.options)
    }

    /// What a table of a trie would have as its sample.
    fn sample(&self, piece: Stretch) -> Sample {
        let hasher = KeyHasher::new(self.next_id);
        let mut drawn = 0u64;
        let random = || {
            drawn += 1;
            (hasher.hash(&drawn.to_le_bytes()) as f64 + 1.0) / u64::MAX as f64
        };
        Sample::drawn((piece.to - piece.from) * self.workload.keys as f64, piece.entries, random)
    }

    /// A table that is written to a level, in each of its containers.
    fn table(&mut self, level: u32, piece: Stretch, lsn: u64) -> Arc<TableHandle> {
        let Stretch { from, to, entries } = piece;
        let sample = if self.options.is_ordered() { Sample::default() } else { self.sample(piece) };
        let meta = TableMeta {
            id: TableId(self.next_id),
            file_bytes: (entries * self.entry_bytes(level as usize)).max(1.0) as u64,
            entries: (entries.round() as u64).max(1),
            smallest: merge::key(from),
            largest: merge::key(to),
            // The next table may begin there.
            largest_exclusive: to < 1.0,
            min_lsn: Lsn(1),
            max_lsn: Lsn(lsn),
            raw_bytes: (entries * self.user_bytes()) as u64,
            sample,
            ..TableMeta::default()
        };
        self.next_id += 1;
        self.written += meta.file_bytes * layout::containers_at(&self.options, level as usize);
        let options = TableOptions::new(&self.options, KeyHasher::new(1));
        TableHandle::new(&self.shelf, PathBuf::new(), meta, options)
    }

    fn carry_out(&mut self, plan: &CompactionPlan) {
        let removed: Vec<(u32, TableId)> =
            plan.tables().map(|(level, table)| (level, table.meta().id)).collect();
        let added: Vec<(u32, Arc<TableHandle>)> = if plan.trivial_move {
            plan.tables().map(|(_, table)| (plan.output_level, table.clone())).collect()
        } else {
            self.largest_merge = self.largest_merge.max(plan.input_bytes());
            self.merged(plan)
        };
        self.levels = self.levels.apply(&added, &removed);
    }

    /// The tables that a merge leaves.
    fn merged(&mut self, plan: &CompactionPlan) -> Vec<(u32, Arc<TableHandle>)> {
        let borders: Vec<f64> = plan.borders.iter().map(|border| merge::place(&border.key)).collect();
        let stretches = merge::stretches(plan, &borders, self.workload.keys as f64);
        let entries: f64 = stretches.iter().map(|stretch| stretch.entries).sum();
        let bytes = entries * self.entry_bytes(plan.output_level as usize);
        let tables = (bytes / self.options.table_bytes as f64).ceil().max(1.0);
        // What is of one container stays whole.
        let full = if self.options.is_ordered() { entries / tables } else { f64::INFINITY };
        let start = stretches.first().map_or(0.0, |stretch| stretch.from);
        let mut pieces = Pieces::new(full, start, plan.output_level);
        for stretch in stretches {
            if let Ok(at) = borders.binary_search_by(|border| border.total_cmp(&stretch.from)) {
                pieces.turn(stretch.from, plan.borders[at].level);
            }
            pieces.add(stretch);
        }
        let lsn = plan.tables().map(|(_, table)| table.meta().max_lsn.0).max().unwrap_or_default();
        let mut tables = pieces.finish();
        if !self.options.is_ordered() {
            // Those of the first containers stand for all.
            tables.retain(|(_, piece)| piece.from == start);
        }
        tables.into_iter().map(|(level, piece)| (level, self.table(level, piece, lsn))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyHash;
    use crate::options::Layout;

    fn simulated(layout: Layout, keys: u64, puts: u64, order: Order) -> Point {
        let options = KeyspaceOptions {
            layout,
            table_bytes: 4 << 20,
            level1_bytes: 64 << 20,
            ..KeyspaceOptions::default()
        };
        let workload = Workload {
            keys,
            key_bytes: 16,
            value_bytes: 100,
            memtable_puts: 100_000,
            filter_bytes_max: u64::MAX,
            order,
        };
        let mut simulation = Simulation::new(options, workload).expect("it can be");
        while simulation.puts < puts {
            simulation.step(puts - simulation.puts).expect("it comes to rest");
        }
        simulation.point()
    }

    #[test]
    fn keys_in_order_are_written_once() {
        for layout in [Layout::Leveled, Layout::TIERED, Layout::LAZY_LEVELED] {
            let point = simulated(layout, 100_000_000, 5_000_000, Order::Ascending);
            let per_entry = point.write_amplification;
            assert!((1.0..1.2).contains(&per_entry), "{layout:?}: {point:?}");
            assert!((point.space_amplification - 1.0).abs() < 0.01, "{layout:?}: {point:?}");
        }
    }

    #[test]
    fn layouts_differ_as_their_descriptions_say() {
        // Every key is written twice on average.
        let of = |layout| simulated(layout, 10_000_000, 20_000_000, Order::Random);
        let (leveled, tiered, lazy) = (of(Layout::Leveled), of(Layout::TIERED), of(Layout::LAZY_LEVELED));
        assert!(tiered.write_amplification < lazy.write_amplification, "{tiered:?} {lazy:?}");
        assert!(lazy.write_amplification < leveled.write_amplification, "{lazy:?} {leveled:?}");
        assert!(leveled.runs < lazy.runs && lazy.runs < tiered.runs + 8, "{leveled:?} {lazy:?} {tiered:?}");
        assert!(lazy.space_amplification < 1.6, "{lazy:?}");
        for point in [leveled, lazy, tiered] {
            // Where it lies, and in others in vain: no more than for a key that is nowhere.
            let beyond = point.reads_per_get - 1.0;
            assert!((0.0..=point.reads_per_miss).contains(&beyond), "{point:?}");
        }
    }

    #[test]
    fn no_key_is_made_or_lost() {
        let point = simulated(Layout::LAZY_LEVELED, 1_000_000, 20_000_000, Order::Random);
        let last = point.levels.last().expect("it has one");
        assert!(last.number == 63 && (990_000..=1_000_000).contains(&last.entries), "{point:?}");
        let once = simulated(Layout::Leveled, u64::MAX >> 12, 3_010_000, Order::Random);
        assert_eq!(once.puts, 3_010_000, "not a whole memtable more");
        let entries: u64 = once.levels.iter().map(|level| level.entries).sum();
        assert!((3_000_000..=3_020_000).contains(&entries), "{once:?}");
    }

    #[test]
    fn one_path_of_a_trie_stands_for_all() {
        let trie = |levels| Layout::Trie { levels, runs: 8, hash: KeyHash::Sip };
        // Each entry is written once a level: 512 memtables fill the second level's containers, and come to the third's.
        let puts = 100_000 * 8 * 8 * 8;
        let entry = (116.0 + 7.0) / 0.974 / 116.0;
        for (layout, times) in [(trie(2), 2.0), (trie(3), 3.0)] {
            let point = simulated(layout, u64::MAX >> 12, puts, Order::Random);
            let of_entry = point.write_amplification / times;
            assert!((entry..entry + 0.04).contains(&of_entry), "{layout:?}: {of_entry} {point:?}");
            let entries: u64 = point.levels.iter().map(|level| level.entries).sum();
            assert!(entries.abs_diff(puts) < puts / 1000, "{point:?}");
            assert!((point.space_amplification - 1.0).abs() < 0.01, "{point:?}");
        }
        // Every key put 20 times: what lies at the bottom is collected when half of it is of no use.
        let turned = simulated(trie(2), 1_000_000, 20_000_000, Order::Random);
        assert!((0.99..3.0).contains(&turned.space_amplification), "{turned:?}");
    }

    #[test]
    fn every_level_is_of_one_tier() {
        let tiers = |layout| {
            let workload = Workload {
                keys: 1,
                key_bytes: 1,
                value_bytes: 1,
                memtable_puts: 1,
                filter_bytes_max: 0,
                order: Order::Random,
            };
            let options = KeyspaceOptions { layout, ..KeyspaceOptions::default() };
            let simulation = Simulation::new(options, workload).expect("it can be");
            [0, 1, 2, 16, 17, 32, 33, 62, 63].map(|level| simulation.tier_of(level))
        };
        assert_eq!(tiers(Layout::Leveled), [0, 1, 2, 16, 17, 32, 33, 62, 63]);
        assert_eq!(tiers(Layout::TIERED), [0, 1, 1, 1, 2, 2, 3, 3, 3]);
        assert_eq!(tiers(Layout::LAZY_LEVELED), [0, 1, 1, 1, 2, 2, 3, 3, 4]);
    }

    #[test]
    fn what_cannot_be_simulated_is_refused() {
        let workload = Workload {
            keys: 0,
            key_bytes: 16,
            value_bytes: 100,
            memtable_puts: 1,
            filter_bytes_max: 0,
            order: Order::Random,
        };
        assert!(Simulation::new(KeyspaceOptions::default(), workload.clone()).is_err());
        let wrong = KeyspaceOptions {
            layout: Layout::Tiered { runs: 1, merged_percent: 1 },
            ..KeyspaceOptions::default()
        };
        let one = Workload { keys: 1, ..workload };
        assert!(Simulation::new(wrong, one.clone()).is_err());
        let trie = KeyspaceOptions { layout: Layout::TRIE, ..KeyspaceOptions::default() };
        assert!(Simulation::new(trie.clone(), Workload { order: Order::Ascending, ..one.clone() }).is_err());
        assert!(Simulation::new(trie, one).is_ok());
    }
}
