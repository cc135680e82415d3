//! A first look at speed: fill, get, scan, on this machine, against nothing but itself.
//!
//! `cargo run --release -p drumlin-cli --example first_look -- [RECORDS] [THREADS] [DIRECTORY]`
//!
//! Keys of 16 bytes in random order, values of 100 bytes that do not compress, `Process` durability, default options.
//! A fill's time ends when no flush and no merge is due any more; the burst before that is printed beside it.
//! A scan of ten begins at a random key. Each figure is the median of three rounds on a fresh store each.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "an example is outside the engine")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use drumlin::{Db, Keyspace, Options, Result};

const ROUNDS: usize = 3;
const VALUE_BYTES: usize = 100;

/// A number spread over all 64 bits; one to one.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(n).to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

fn value(n: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    for (at, chunk) in value.chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&mix(n ^ ((at as u64) << 48)).to_le_bytes()[..chunk.len()]);
    }
    value
}

/// Operations a second of `count` calls of `work`, spread over threads.
fn rate(threads: u64, count: u64, work: impl Fn(u64) -> Result<()> + Sync) -> Result<f64> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let hands: Vec<_> = (0..threads)
            .map(|thread| {
                let work = &work;
                scope.spawn(move || (thread..count).step_by(threads as usize).try_for_each(work))
            })
            .collect();
        hands.into_iter().try_for_each(|hand| hand.join().expect("a worker does not panic"))
    })?;
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

fn round(directory: &Path, records: u64, threads: u64) -> Result<Vec<(&'static str, f64)>> {
    let db = Db::open(directory, Options::default())?;
    let keyspace: Keyspace = db.keyspace("look", Default::default())?;
    let began = Instant::now();
    let burst = rate(threads, records, |n| keyspace.put(key(n), value(n)))?;
    db.wait_for_idle()?;
    let filled = records as f64 / began.elapsed().as_secs_f64();

    let gets = records.min(1_000_000);
    let hit = |n: u64| {
        let n = mix(n ^ 0x5eed) % records;
        assert_eq!(keyspace.get(key(n))?.as_deref(), Some(&value(n)[..]), "record {n}");
        Ok(())
    };
    rate(threads, gets / 4, hit)?; // warms the cache
    let get = rate(threads, gets, hit)?;
    let miss = rate(threads, gets, |n| {
        assert!(keyspace.get(key(records + n))?.is_none());
        Ok(())
    })?;
    let short = rate(threads, gets / 10, |n| {
        for record in keyspace.range(key(mix(n) % records)..)?.take(10) {
            record?;
        }
        Ok(())
    })?;
    let began = Instant::now();
    let mut seen = 0;
    for record in keyspace.iter()? {
        record?;
        seen += 1;
    }
    assert_eq!(seen, records, "the scan meets every record once");
    let scan = records as f64 / began.elapsed().as_secs_f64();
    let stats = db.stats();
    let user = (records * (16 + VALUE_BYTES as u64)) as f64;
    let written = (stats.flushed_bytes + stats.compaction_written_bytes) as f64;
    db.close()?;
    Ok(vec![
        ("fill: burst, puts/s", burst),
        ("fill: until no debt, puts/s", filled),
        ("table bytes written per byte of records", written / user),
        ("get, present, gets/s", get),
        ("get, absent, gets/s", miss),
        ("scan of ten, scans/s", short),
        ("full scan, one thread, records/s", scan),
    ])
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (records, threads) = (number(2_000_000), number(1));
    let directory =
        arguments.next().map_or_else(|| std::env::temp_dir().join("drumlin-first-look"), PathBuf::from);
    let mut rounds = Vec::new();
    let began = Instant::now();
    for _ in 0..ROUNDS {
        let _ = std::fs::remove_dir_all(&directory);
        rounds.push(round(&directory, records, threads)?);
    }
    let _ = std::fs::remove_dir_all(&directory);
    println!(
        "{records} records of 16 + {VALUE_BYTES} bytes, {threads} threads, Process durability, default options"
    );
    for (at, (name, _)) in rounds[0].iter().enumerate() {
        let mut figures: Vec<f64> = rounds.iter().map(|round| round[at].1).collect();
        figures.sort_by(f64::total_cmp);
        println!(
            "  {name:42} {:>12.1}   ({:.1} to {:.1})",
            figures[ROUNDS / 2],
            figures[0],
            figures[ROUNDS - 1]
        );
    }
    println!("  {ROUNDS} rounds in {:.0?}", Duration::from_secs(began.elapsed().as_secs()));
    Ok(())
}
