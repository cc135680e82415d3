//! What an operation costs: predicted, in microseconds of processors, by the shape that a layout comes to.
//!
//! Place: `search` predicts every candidate by it, and what was measured of some makes its predictions of others better.
//!
//! The shape is the simulation's, of the policies that a store runs: how often an entry is written, how many runs a key may lie in,
//! how many blocks a get looks at. Each of these has a price. The prices are those of one machine, rounded; they need only tell
//! which candidates are worth a trial, since `search` scales predictions by trials on the machine at hand.
//!
//! Origin: sLSM §2.6 (lookups: runs, filters, fence pointers) and §2.7 (insertions: how often an element moves), with processors
//! instead of elements as the unit.

use std::collections::HashMap;

use drumlin::simulation::{Order, Point, Simulation, Workload};
use drumlin::{Error, Layout, Memory, Options};
use drumlin_bench::keys::Choice;
use drumlin_bench::store::Settings;
use drumlin_bench::workload::{Begins, Kind};

use crate::candidate::{BLOCK_BYTES, Candidate, FILTER_BITS};
use crate::wanted::Wanted;

/// A put into a memtable, logged, of two tiers and of one.
const PUT_HASHED_US: f64 = 0.55;
const PUT_SORTED_US: f64 = 0.95;
/// For each byte of tables that is written: in a flush, which sorts, and in a merge.
const FLUSH_BYTE_US: f64 = 0.0035;
const MERGE_BYTE_US: f64 = 0.0022;
/// To hash a key, of a trie, once an operation.
const PLACE_US: f64 = 0.02;
/// A get, whatever it finds; and what it costs to ask a memtable, and to find the key there.
const GET_US: f64 = 0.15;
const MEMTABLE_US: f64 = 0.08;
const IN_MEMTABLE_US: f64 = 0.3;
/// To ask a run's filter, and to look a block up and search it, by its 4 KiB.
const FILTER_US: f64 = 0.06;
const BLOCK_US: f64 = 0.55;
const BLOCK_4K_US: f64 = 0.06;
/// To read a block that is not cached from the system, by its 4 KiB.
const READ_US: f64 = 3.0;
const READ_4K_US: f64 = 1.0;
/// A scan; what it costs to begin in a run, and a record in it, of each run that is merged.
const SCAN_US: f64 = 0.8;
const SEEK_US: f64 = 0.75;
const NEXT_US: f64 = 0.05;
const NEXT_RUN_US: f64 = 0.01;
/// Of the memory, the part that caches blocks.
const CACHE_PART: f64 = 0.375;
/// Overwritten so often, a store has come to the shape that it keeps.
const STEADY_TURNS: u64 = 3;
/// With more memtables than this in a full store, it is simulated until it is full.
const FLUSHES_MANY: u64 = 2000;

/// What operations cost, in microseconds of processors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Of a client, for the mean operation.
    pub client_us: f64,
    /// Of the background, for it.
    pub background_us: f64,
    /// Of a read alone, and of a write with what the background does for it.
    pub read_us: f64,
    /// See `read_us`.
    pub write_us: f64,
}

impl Cost {
    /// Operations a second.
    pub fn rate(&self, wanted: &Wanted) -> f64 {
        let threads = wanted.threads as f64;
        let processors = wanted.processors as f64;
        let by_clients = self.client_us / threads.min(processors);
        let by_all = (self.client_us + self.background_us) / processors;
        1e6 / by_clients.max(by_all)
    }

    /// So many times as dear.
    pub fn times(&self, factor: f64) -> Cost {
        Cost {
            client_us: self.client_us * factor,
            background_us: self.background_us * factor,
            read_us: self.read_us * factor,
            write_us: self.write_us * factor,
        }
    }
}

/// The shape that a store comes to.
#[derive(Clone, Debug)]
struct Shape {
    filter_bits: f64,
    block_bytes: usize,
    at: Point,
    /// Bytes of tables for each byte that was put, once the shape is kept.
    write_amplification: f64,
}

/// Predicts; remembers the shapes that it has simulated.
#[derive(Default)]
pub struct Model {
    shapes: HashMap<String, Vec<Shape>>,
}

impl Model {
    /// What operations of this workload cost with this candidate.
    ///
    /// # Errors
    /// If the options are not allowed.
    pub fn cost(&mut self, candidate: &Candidate, wanted: &Wanted) -> Result<Cost, Error> {
        let shape = self.shape(candidate, wanted)?;
        let share = |kinds: &'static [Kind]| wanted.share(|kind| kinds.contains(&kind));
        let gets = share(&[Kind::Get, Kind::GetMany]);
        let absent = share(&[Kind::GetAbsent]);
        let scans = share(&[Kind::Scan]);
        let walks = share(&[Kind::Walk, Kind::WalkBack]);
        let puts = share(&[Kind::Put, Kind::Insert, Kind::Delete, Kind::PutSynced]);
        let updates = share(&[Kind::Update, Kind::PutIfAbsent]);

        let record = (wanted.key_bytes + wanted.value_bytes) as f64;
        let runs = shape.at.runs as f64;
        let memtables = 1.0 + candidate_runs(candidate) / 2.0;
        let in_memory = in_memory(candidate, wanted);
        let pages = candidate.block_bytes as f64 / 4096.0;
        let uncached = uncached(wanted, shape.at.filter_bytes as f64 + shape.at.index_bytes as f64);
        let block = BLOCK_US + BLOCK_4K_US * pages + uncached * (READ_US + READ_4K_US * pages);

        let place = if is_trie(candidate) { PLACE_US } else { 0.0 };
        let asked = GET_US + place + memtables * MEMTABLE_US;
        let in_tables = runs * FILTER_US + shape.at.reads_per_get * block;
        let get = asked + in_memory * IN_MEMTABLE_US + (1.0 - in_memory) * in_tables;
        let miss = asked + runs * FILTER_US + shape.at.reads_per_miss * block;
        let length = wanted.scan_length();
        let touched = 1.0 + length * record / candidate.block_bytes as f64;
        let scan = SCAN_US
            + (runs + memtables) * SEEK_US
            + runs * uncached * (READ_US + READ_4K_US * pages)
            + touched * BLOCK_4K_US * pages
            + length * (NEXT_US + NEXT_RUN_US * runs);
        let put = if candidate.memory == Memory::Sorted { PUT_SORTED_US } else { PUT_HASHED_US } + place;
        let behind = record * (FLUSH_BYTE_US + MERGE_BYTE_US * (shape.write_amplification - 1.0).max(0.0));

        let reads = gets * get + absent * miss + scans * scan + walks * (NEXT_US + NEXT_RUN_US * runs);
        let writes = puts * put + updates * (get + put);
        let written = puts + updates;
        let read = gets + absent + scans + walks;
        Ok(Cost {
            client_us: reads + writes,
            background_us: written * behind,
            read_us: if read > 0.0 { reads / read } else { get },
            write_us: if written > 0.0 { writes / written + behind } else { put + behind },
        })
    }

    fn shape(&mut self, candidate: &Candidate, wanted: &Wanted) -> Result<Shape, Error> {
        let Candidate { layout, level_ratio, memtable_part, .. } = candidate;
        let memory = wanted.fixed.memory_bytes;
        let name = format!("{layout:?} {level_ratio} {memtable_part} {} {memory}", wanted.records);
        if !self.shapes.contains_key(&name) {
            self.shapes.insert(name.clone(), simulated(candidate, wanted)?);
        }
        let of = |shape: &&Shape| {
            shape.filter_bits == candidate.filter_bits && shape.block_bytes == candidate.block_bytes
        };
        let found = self.shapes.get(&name).and_then(|shapes| shapes.iter().find(of));
        found
            .cloned()
            .ok_or_else(|| Error::InvalidArgument("the candidate is not one of those looked at".into()))
    }
}

fn is_trie(candidate: &Candidate) -> bool {
    matches!(candidate.layout, Layout::Trie { .. })
}

fn candidate_runs(candidate: &Candidate) -> f64 {
    match candidate.memory {
        Memory::Runs { runs, .. } => runs as f64,
        _ => 1.0,
    }
}

/// The part of gets that a memtable answers.
fn in_memory(candidate: &Candidate, wanted: &Wanted) -> f64 {
    let memtables = candidate.memtable_bytes(wanted.fixed.memory_bytes) as f64 / 2.0;
    let writes = wanted.share(Kind::writes);
    if writes == 0.0 {
        return 0.0;
    }
    popular(wanted, memtables / wanted.bytes())
}

/// The part of blocks that are looked at and not cached.
fn uncached(wanted: &Wanted, beside: f64) -> f64 {
    let cache = (wanted.fixed.memory_bytes as f64 * CACHE_PART - beside).max(0.0);
    1.0 - popular(wanted, cache / wanted.bytes())
}

/// The part of operations that goes to so large a part of the records, the most popular ones.
fn popular(wanted: &Wanted, part: f64) -> f64 {
    let part = part.clamp(0.0, 1.0);
    match wanted.workload.keys {
        Choice::Zipfian(_) | Choice::Latest(_) | Choice::Power | Choice::HeavyTail => {
            let records = (wanted.records as f64).max(2.0);
            // Of a Zipf distribution with an exponent near one: harmonic numbers.
            ((part * records).max(1.0).ln() / records.ln()).clamp(part, 1.0)
        }
        Choice::HotBlocks { operations, blocks: hot } | Choice::HotKeys { operations, keys: hot } => {
            let in_hot = operations * (part / hot).min(1.0);
            in_hot + (1.0 - operations) * ((part - hot) / (1.0 - hot)).max(0.0)
        }
        Choice::Sequence | Choice::Permuted | Choice::Uniform => part,
    }
}

/// What a layout comes to, by filter bits and bytes of a block, of which the shape itself hardly hangs.
fn simulated(candidate: &Candidate, wanted: &Wanted) -> Result<Vec<Shape>, Error> {
    let Settings { memory_bytes, segment_bytes, .. } = wanted.fixed;
    let options = Options { memory_bytes, segment_bytes, ..Options::default() };
    let limit = candidate.memtable_bytes(memory_bytes);
    let memtable_puts = Workload::memtable_puts(
        &options,
        &candidate.options(memory_bytes),
        limit,
        wanted.key_bytes + wanted.value_bytes,
    );
    let keys = wanted.records.max(1);
    let order = match wanted.workload.keys {
        // In whatever order keys come to a trie, their hashes come in none.
        Choice::Sequence if !is_trie(candidate) => Order::Ascending,
        _ => Order::Random,
    };
    // Buckets are not compressed.
    let value_bytes =
        if is_trie(candidate) { wanted.value_bytes as u64 } else { wanted.stored_value_bytes() };
    let key_bytes = wanted.key_bytes as u64;
    let filter_bytes_max = options.filter_bytes_max();
    let workload = Workload { keys, key_bytes, value_bytes, memtable_puts, filter_bytes_max, order };
    let mut simulation = Simulation::new(candidate.options(wanted.fixed.memory_bytes), workload)?;
    let overwrites = wanted.workload.begins != Begins::Empty && wanted.share(Kind::writes) > 0.0;
    let turns = if overwrites && keys / memtable_puts < FLUSHES_MANY { STEADY_TURNS } else { 1 };
    let (mut full, mut at) = (None, simulation.point());
    while at.puts < keys * turns {
        simulation.step(keys * turns - at.puts)?;
        at = simulation.point();
        if at.puts >= keys && full.is_none() {
            full = Some((at.puts, at.puts as f64 * at.write_amplification));
        }
    }
    let (puts, written) = full.filter(|_| turns > 1).unwrap_or((0, 0.0));
    let all_written = at.puts as f64 * at.write_amplification;
    let write_amplification = (all_written - written) / at.puts.saturating_sub(puts).max(1) as f64;
    let mut shapes = Vec::new();
    for filter_bits in FILTER_BITS {
        for block_bytes in BLOCK_BYTES {
            let at = simulation.point_with(filter_bits, block_bytes);
            shapes.push(Shape { filter_bits, block_bytes, at, write_amplification });
        }
    }
    Ok(shapes)
}
