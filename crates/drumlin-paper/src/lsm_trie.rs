//! LSM-trie's figures and tables (Wu et al., USENIX ATC 2015).
//!
//! Place: a part of the table that `lib` goes through.
//!
//! What is the same everywhere: keys of 16 bytes and values of 100, no compression, 16 filter bits a key. Memtables are of 1 MiB and
//! tables as large as these make them, so that a store of millions has as many levels as the paper's of billions. The hard disk's
//! curve is not run.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use drumlin::env::{Env, MemFs};
use drumlin::inspect::TableReport;
use drumlin::{Compression, Db, KeyspaceOptions, Layout, Memory, Options, inspect};
use drumlin_bench::engine::Result;
use drumlin_bench::limits::{self, Ground};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::claim::{At, Check, Claim};
use crate::figure::{Axis, Figure, RATE, Scale, Tell};
use crate::lab::{FOREVER, Lab, PEERS, field, latency};
use crate::point::Point;
use crate::sweep::rate;

/// Items of the paper's store of a terabyte.
const ITEMS: f64 = 8e9;
/// MiB of memory, where the figure is not about them.
const MIB: u64 = 64;
/// Bytes of a record.
const RECORD_BYTES: u64 = 116;
/// Parts of all items, at which a growing store is looked at.
const PARTS: [f64; 4] = [1.0 / 64.0, 1.0 / 16.0, 1.0 / 4.0, 1.0];
/// The layouts, by the names of their curves.
const LAYOUTS: [(&str, &str); 2] = [("trie", "--layout trie"), ("leveled", "--layout leveled --level1 8")];
/// What is compared with the trie.
const OTHERS: &[&str] = &["leveled", "RocksDB", "LevelDB"];

/// Words for so many records, in so many MiB of memory.
fn words(records: u64, mib: u64) -> String {
    format!(
        "--num {records} --memory {mib} --memtable 1 --segment 1 --table-size 2097152 --compression none --bloom-bits 16 --threads 2"
    )
}

/// Every record put once, in stores of growing size: what `of` says of each.
fn growing(
    lab: &Lab<'_>,
    tell: &mut Tell<'_>,
    of: fn(&serde_json::Value) -> Result<f64>,
    with_peers: bool,
) -> Result<()> {
    for part in PARTS {
        let words =
            format!("{} --benchmarks filluniquerandom", words(lab.setting.records(ITEMS * part), MIB));
        for (series, layout) in LAYOUTS {
            let line =
                lab.run_all(&format!("{words} {layout}"))?.pop().ok_or("there was nothing to measure")?;
            tell(Point { series: series.into(), x: ITEMS * part, y: of(&line)?, raw: line })?;
        }
        for engine in PEERS.into_iter().filter(|_| with_peers && lab.peers.is_some()) {
            let line = lab.run(engine, &words)?;
            tell(Point { series: engine.series().into(), x: ITEMS * part, y: of(&line)?, raw: line })?;
        }
    }
    Ok(())
}

fn written_per_second(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    growing(lab, tell, rate, true)
}

fn written_per_byte(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    growing(lab, tell, |line| field(line, "table_write_amplification"), false)
}

/// Gets past the system's cache, with memory for so large a part of the largest store; and what the device reads at most.
fn reads(lab: &Lab<'_>, tell: &mut Tell<'_>, memory_part: f64) -> Result<()> {
    let bytes = lab.setting.records(ITEMS) * RECORD_BYTES;
    let mib = ((bytes as f64 * memory_part) as u64 >> 20).max(16);
    for part in PARTS {
        let records = lab.setting.records(ITEMS * part);
        let words = format!("{} {FOREVER} --direct-reads --benchmarks readrandom", words(records, mib));
        for (series, layout) in LAYOUTS {
            let line =
                lab.run_all(&format!("{words} {layout}"))?.pop().ok_or("there was nothing to measure")?;
            tell(Point { series: series.into(), x: ITEMS * part, y: rate(&line)?, raw: line })?;
        }
        let raw = device(lab, 2, "read-device")?;
        tell(Point::new("device", ITEMS * part, raw))?;
    }
    Ok(())
}

fn reads_in_much_memory(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    reads(lab, tell, 1.0 / 16.0)
}

fn reads_in_little_memory(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    reads(lab, tell, 1.0 / 256.0)
}

/// One of the machine's limits, by so many threads.
fn device(lab: &Lab<'_>, threads: usize, name: &str) -> Result<f64> {
    let mut ground = Ground::new(lab.scratch, threads);
    ground.time = std::time::Duration::from_secs_f64(lab.setting.seconds.min(2.0));
    ground.file_bytes = (lab.setting.records(ITEMS) as usize).clamp(1 << 20, 512 << 20);
    let mut found = None;
    limits::run(&ground, &|limit| limit == name, &mut |limit| {
        if limit.threads == threads {
            found = limit.figure;
        }
        Ok(())
    })?;
    found.ok_or_else(|| format!("the limit {name} could not be measured").into())
}

fn disk(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    tell(Point::new("4 KiB reads a second", 1.0, device(lab, 1, "read-device")?))?;
    tell(Point::new("4 KiB reads a second", 32.0, device(lab, 32, "read-device-32")?))?;
    tell(Point::new("MB written a second", 1.0, device(lab, 1, "write-device")? / 1e6))
}

/// How often a filter says of a key that is not there that it may be: in the mean of all tables, in percent.
fn false_positives(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    // Table 1, at 50 levels, over the levels.
    for (bits, paper) in [(10, 40.95), (12, 15.70), (14, 6.00), (16, 2.30), (18, 0.88)] {
        let x = f64::from(bits);
        let tables = tables(&sizes(lab, 100)?, x)?;
        let errors: Vec<f64> =
            tables.iter().filter_map(|(report, _)| Some(report.filter.as_ref()?.false_positives)).collect();
        let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
        tell(Point::new("filters in memory", x, mean * 100.0))?;
        tell(Point::new("paper", x, paper / 50.0))?;
    }
    Ok(())
}

fn latencies(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    let records = lab.setting.records(ITEMS);
    for (share, workload) in [(5, "mixget5"), (50, "mixget50"), (95, "mixget95")] {
        let words =
            format!("{} {FOREVER} --layout trie --direct-reads --benchmarks {workload}", words(records, MIB));
        let line = lab.run_all(&words)?.pop().ok_or("there was nothing to measure")?;
        for (series, name) in [("90 %", "p90_ns"), ("99 %", "p99_ns")] {
            let y = latency(&line, "get", name)? / 1e3;
            tell(Point { series: series.into(), x: f64::from(share), y, raw: line.clone() })?;
        }
    }
    Ok(())
}

/// Reads of a get that finds its key, with all that is told of tables in memory.
fn bucket_reads(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    for part in PARTS {
        let records = lab.setting.records(ITEMS * part);
        // Room for filters of two bytes a key, a tenth of all memory, and little for blocks.
        let mib = ((records * 2 * 10) >> 20).max(16);
        let words =
            format!("{} {FOREVER} --layout trie --direct-reads --benchmarks readrandom", words(records, mib));
        let line = lab.run_all(&words)?.pop().ok_or("there was nothing to measure")?;
        let y = field(&line, "reads_per_operation")?;
        tell(Point { series: "reads of a get".into(), x: ITEMS * part, y, raw: line })?;
    }
    Ok(())
}

/// Mean bytes of items, and the names of their curves.
const MEANS: [(u64, &str); 4] = [(100, "100 B"), (200, "200 B"), (300, "300 B"), (400, "400 B")];
/// Bytes of a bucket, and how much of it the paper fills.
const BUCKET_BYTES: f64 = 4096.0;
const FILL: f64 = 0.95;
/// Points of a curve of buckets, by their rank.
const RANKS: usize = 20;

/// Sizes of items, even from 1 to twice the mean, as many as eight tables of the paper have at the default scale.
fn sizes(lab: &Lab<'_>, mean: u64) -> Result<Vec<u64>> {
    let items = (lab.setting.records(1.3e11) / mean).max(1);
    let mut random = SmallRng::seed_from_u64(lab.setting.seed);
    let mut sizes = Vec::new();
    let reserved = usize::try_from(items).is_ok_and(|items| sizes.try_reserve_exact(items).is_ok());
    if !reserved {
        let gib = items >> 27;
        return Err(format!(
            "{items} items take {gib} GiB of memory, which are not there: give a smaller --scale"
        )
        .into());
    }
    sizes.extend((0..items).map(|_| random.random_range(1..=2 * mean)));
    Ok(sizes)
}

/// Loads of buckets, from the fullest to the emptiest.
fn tell_loads(tell: &mut Tell<'_>, series: &str, mut loads: Vec<f64>) -> Result<()> {
    loads.sort_by(|a, b| b.total_cmp(a));
    for rank in 0..=RANKS {
        let at = (rank * (loads.len() - 1)) / RANKS;
        tell(Point::new(series, 1.0 + (rank * 100 / RANKS) as f64, loads[at]))?;
    }
    Ok(())
}

/// The loads of buckets into which a hash alone puts items.
fn loads_by_hash(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    for (mean, series) in MEANS {
        let sizes = sizes(lab, mean)?;
        let buckets = (sizes.iter().sum::<u64>() as f64 / (BUCKET_BYTES * FILL)).ceil().max(2.0) as usize;
        let mut loads = vec![0.0; buckets];
        for (number, bytes) in sizes.iter().enumerate() {
            let mut hasher = DefaultHasher::new();
            (lab.setting.seed, number).hash(&mut hasher);
            loads[(hasher.finish() % buckets as u64) as usize] += *bytes as f64;
        }
        tell_loads(tell, series, loads)?;
    }
    Ok(())
}

/// The tables with buckets of a store with items of these sizes, merged, each with the bytes of items in its buckets.
fn tables(sizes: &[u64], filter_bits: f64) -> Result<Vec<(TableReport, Vec<f64>)>> {
    let (env, store) = (Env::with_fs(MemFs::new()), Path::new("/store"));
    let db = Db::open_with(env.clone(), store, Options { memory_bytes: 1 << 30, ..Options::default() })?;
    let options = KeyspaceOptions {
        memory: Memory::Sorted,
        layout: Layout::TRIE,
        compression: Compression::None,
        table_bytes: 256 << 20,
        filter_bits_per_key: filter_bits,
        ..KeyspaceOptions::default()
    };
    let keyspace = db.keyspace("items", options)?;
    for (number, bytes) in sizes.iter().enumerate() {
        // Eight bytes of each are its key.
        let value = vec![number as u8; bytes.saturating_sub(8) as usize];
        keyspace.put((number as u64).to_be_bytes(), value)?;
    }
    keyspace.compact()?;
    let mut all = Vec::new();
    for table in keyspace.levels()?.iter().flat_map(|level| &level.tables) {
        let (mut loads, path) = (Vec::new(), store.join(&table.file));
        let report = inspect::table(&env, &path, Some(store), |block| {
            let bytes = |entry: &inspect::TableEntry| entry.key.len() as u64 + entry.value_bytes;
            loads.push(block.entries.iter().map(bytes).sum::<u64>() as f64);
        })?;
        if let Some(buckets) = &report.buckets {
            // The sorted part's blocks come behind.
            loads.truncate(buckets.buckets as usize);
            all.push((report, loads));
        }
    }
    if all.is_empty() { Err("the store has no table with buckets".into()) } else { Ok(all) }
}

/// The loads of buckets in the tables of a store.
fn loads_in_tables(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    for (mean, series) in MEANS {
        let tables = tables(&sizes(lab, mean)?, 16.0)?;
        tell_loads(tell, series, tables.into_iter().flat_map(|(_, loads)| loads).collect())?;
    }
    Ok(())
}

/// Items of a store, in the paper's scale.
const GROWTH: Axis = Axis { says: "items in the paper's scale", scale: Scale::Log10 };
/// Buckets from the fullest to the emptiest.
const RANK: Axis = Axis { says: "buckets from the fullest on, %", scale: Scale::Linear };
/// Bytes of items in a bucket.
const LOAD: Axis = Axis { says: "bytes of items in a bucket", scale: Scale::Linear };

/// All of them.
pub const FIGURES: &[Figure] = &[
    Figure {
        paper: "lsm-trie",
        number: "5",
        shows: "loads of buckets into which a hash alone puts items of even sizes",
        differs: "keys are even, which the paper says makes little difference",
        x: RANK,
        y: LOAD,
        measure: loads_by_hash,
        claims: &[
            Claim {
                says: "buckets of larger items are the more uneven (§2.4.2): the fullest of 300 B have 1.1 times those of 100 B",
                check: Check::Times { at: At::First, series: "300 B", times: 1.1, of: &["100 B"] },
            },
            Claim {
                says: "the emptiest hold less than half of what the fullest do (§2.4.2)",
                check: Check::Falls { series: "300 B", times: 0.5 },
            },
        ],
    },
    Figure {
        paper: "lsm-trie",
        number: "7",
        shows: "loads of buckets in tables, after items have migrated",
        differs: "keys, lengths and hash bytes are not counted as load; a bucket is filled as far as all items find room, from 95 to 99 %",
        x: RANK,
        y: LOAD,
        measure: loads_in_tables,
        claims: &[
            Claim {
                says: "loads are balanced (§2.4.2): of 100 B no bucket has less than 0.85 of the fullest",
                check: Check::Keeps { series: "100 B", times: 0.85 },
            },
            Claim {
                says: "so they are of 300 B (§2.4.2): no less than 0.75",
                check: Check::Keeps { series: "300 B", times: 0.75 },
            },
        ],
    },
    Figure {
        paper: "lsm-trie",
        number: "table-1",
        shows: "false positives of a run's filter, by its bits a key",
        differs: "of one run, in percent, where the paper has the sum over 50, 100 and 150; filters that are in memory, of which the first probes of a key are in one line of the cache and the others in the 64 that follow",
        x: Axis { says: "filter bits a key", scale: Scale::Linear },
        y: Axis { says: "false positives, %", scale: Scale::Linear },
        measure: false_positives,
        claims: &[Claim {
            says: "the rates of Table 1, within a tenth (§2.4.3)",
            check: Check::Times {
                at: At::Everywhere,
                series: "paper",
                times: 0.9,
                of: &["filters in memory"],
            },
        }],
    },
    Figure {
        paper: "lsm-trie",
        number: "2.4.2",
        shows: "reads of a get that finds its key, filters in memory",
        differs: "an open table has all its records of migration, where the paper has those of a fifth of the buckets; blocks that the cache has are not read",
        x: GROWTH,
        y: Axis { says: "reads for a get", scale: Scale::Linear },
        measure: bucket_reads,
        claims: &[Claim {
            says: "a lookup takes 1.01 reads of buckets (§2.4.2), and no more than 1.05 with false positives (§2.4.3)",
            check: Check::AtMost { series: "reads of a get", most: 1.05 },
        }],
    },
    Figure {
        paper: "lsm-trie",
        number: "table-2",
        shows: "the device",
        differs: "no hard disk; reads by one thread and by 32",
        x: Axis { says: "threads", scale: Scale::Log2 },
        y: Axis { says: "4 KiB reads a second; MB a second", scale: Scale::Log10 },
        measure: disk,
        claims: &[],
    },
    Figure {
        paper: "lsm-trie",
        number: "10",
        shows: "puts of random keys, each once, until nothing is owed, by the size of the store",
        differs: "no SILT; the hard disk's and the second SSD's curves are not run",
        x: GROWTH,
        y: RATE,
        measure: written_per_second,
        claims: &[Claim {
            says: "the trie is more than twice as fast as the others, on a hard disk even (§3.2.1)",
            check: Check::Times { at: At::Last, series: "trie", times: 2.0, of: OTHERS },
        }],
    },
    Figure {
        paper: "lsm-trie",
        number: "11",
        shows: "bytes of tables written for each byte that is put, by the size of the store",
        differs: "the others' are not asked for; no SILT, and no Zipfian keys",
        x: GROWTH,
        y: Axis { says: "written for each byte put", scale: Scale::Linear },
        measure: written_per_byte,
        claims: &[
            Claim {
                says: "the trie writes about 5 times (§3.2.1); 5.6 with filters and the room in buckets",
                check: Check::AtMost { series: "trie", most: 5.6 },
            },
            Claim {
                says: "much less than a store of levels (§3.2.1): half of it",
                check: Check::Times { at: At::Last, series: "leveled", times: 2.0, of: &["trie"] },
            },
        ],
    },
    Figure {
        paper: "lsm-trie",
        number: "12",
        shows: "gets past the system's cache, memory of a sixteenth of the largest store",
        differs: "by two threads; the others are not measured",
        x: GROWTH,
        y: RATE,
        measure: reads_in_much_memory,
        claims: &[Claim {
            says: "the trie reads at 96 % of the device (§3.2.2)",
            check: Check::Times { at: At::Last, series: "trie", times: 0.96, of: &["device"] },
        }],
    },
    Figure {
        paper: "lsm-trie",
        number: "13",
        shows: "the same, memory of a 256th of it, 16 MiB at least",
        differs: "by two threads; the others are not measured",
        x: GROWTH,
        y: RATE,
        measure: reads_in_little_memory,
        claims: &[
            Claim {
                says: "with little memory a get takes two reads (§3.2.2): 45 % of the device",
                check: Check::Times { at: At::Last, series: "trie", times: 0.45, of: &["device"] },
            },
            Claim {
                says: "the others drop much more (§3.2.2)",
                check: Check::Times { at: At::Last, series: "trie", times: 1.0, of: &["leveled"] },
            },
        ],
    },
    Figure {
        paper: "lsm-trie",
        number: "table-3",
        shows: "latencies of gets beside puts, by the share of gets",
        differs: "90 % and 99 %, not 95 % and 99 %; closed loops of two threads; gets past the system's cache",
        x: Axis { says: "gets, %", scale: Scale::Linear },
        y: Axis { says: "µs", scale: Scale::Linear },
        measure: latencies,
        claims: &[Claim {
            says: "read latencies are not sensitive to the intensity of writes (§3.2.2): with 5 % gets at most 1.3 times what they are with 95 %",
            check: Check::Keeps { series: "99 %", times: 0.77 },
        }],
    },
];
