//! What filters promise: reads of keys that are not there look into few tables in vain, and into fewer for the same memory where
//! small runs get more bits.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use drumlin::env::{Env, MemFs};
use drumlin::{Db, FilterAllocation, KeyspaceOptions, Layout, Options};

const KEYS: u64 = 60_000;
/// Moments at which keys are looked for, and how many.
const MOMENTS: u64 = 24;
const MISSES: u64 = 10_000;

/// Blocks looked at for each get of a key that is not there, and bytes of filters for each key.
fn looked_at(layout: Layout, filter_allocation: FilterAllocation, bits: f64) -> (f64, f64) {
    let options = Options {
        memory_bytes: 64 << 20,
        segment_bytes: Options::SEGMENT_BYTES_MIN,
        background_threads: 1,
        ..Options::default()
    };
    let db = Db::open_with(Env::with_fs(MemFs::new()), "/store", options).expect("opens");
    let options = KeyspaceOptions {
        layout,
        filter_allocation,
        filter_bits_per_key: bits,
        // Larger than what is flushed at once: memtables would end where memory happens to.
        memtable_bytes: Some(1 << 20),
        table_bytes: 64 << 10,
        level0_tables: 4,
        level1_bytes: 256 << 10,
        level_ratio: 4,
        ..KeyspaceOptions::default()
    };
    let keyspace = db.keyspace("k", options).expect("makes");
    // Even ones are put, odd ones asked for, so that they lie between.
    let key = |n: u64, odd: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) << 1 | odd).to_be_bytes();
    let looks = |db: &Db| db.stats().cache_hits + db.stats().cache_misses;
    let (mut looked, mut bytes, mut keys) = (0, 0, 0);
    for n in 0..KEYS {
        keyspace.put(key(n, 0), [7; 64]).expect("puts");
        if n % 1000 == 0 {
            // As if writers were no faster than merges: what lies where does not hang on the machine.
            db.flush().expect("flushes");
            db.wait_for_idle().expect("idle");
        }
        // At all times: how many tables lie at level 0 changes from one to the next.
        if n % (KEYS / MOMENTS) == KEYS / MOMENTS - 1 {
            // All tables are open then.
            assert_eq!(keyspace.iter().expect("scans").count() as u64, n + 1);
            (0..500).for_each(|n| assert!(keyspace.get(key(n, 1)).expect("gets").is_none()));
            let before = looks(&db);
            (0..MISSES).for_each(|n| assert!(keyspace.get(key(n, 1)).expect("gets").is_none()));
            looked += looks(&db) - before;
            bytes += db.stats().filter_bytes;
            keys += n;
        }
    }
    (looked as f64 / (MISSES * MOMENTS) as f64, bytes as f64 / keys as f64)
}

#[test]
fn small_runs_get_more_bits_and_fewer_blocks_are_looked_at_in_vain() {
    // Tiers have several runs as large as the largest, of which none can give much to the others.
    for (layout, at_most) in [
        (Layout::Leveled, 0.8),
        (Layout::LazyLeveled { runs: 3, upper_percent: 50 }, 0.8),
        (Layout::Tiered { runs: 4, merged_percent: 100 }, 0.95),
    ] {
        let (uneven, uneven_bytes) = looked_at(layout, FilterAllocation::BySize, 8.0);
        assert!(uneven_bytes < 1.15, "{layout:?}: {uneven_bytes} bytes a key, for a byte");
        // Lines are whole, and tables have what was right when they were written: as much goes to the others, and some more.
        let (even, even_bytes) = looked_at(layout, FilterAllocation::Uniform, 8.0 * 1.02 * uneven_bytes);
        println!(
            "{layout:?}: {even:.4} blocks a miss, {uneven:.4} by size, {even_bytes:.3} and {uneven_bytes:.3} bytes a key"
        );
        assert!(uneven_bytes <= even_bytes, "{layout:?}: {uneven_bytes} bytes a key, {even_bytes} if even");
        assert!(uneven <= even * at_most, "{layout:?}: {uneven} blocks a miss, {even} if even");
    }
}
