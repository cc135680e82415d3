//! LevelDB 1.23, the original in C++.
//!
//! Place: an engine of `setting`; `handle` is its interface.
//!
//! 1. The budget is two memtables and the block cache. LevelDB maps its tables, and looks at uncompressed blocks where they
//!    lie: that page cache comes on top, as LMDB's does, and no setting takes it away.
//! 2. It has Snappy, no LZ4, and one background thread, whatever the terms say.
//! 3. `Process` is its log without a sync, `Disk` with one. It has no writes without a log: `Memory` gets `Process`.
//! 4. It does not tell when it owes nothing. That is seen from outside: one log file (a second one waits for its memtable's
//!    flush), and no level above its limit.

pub mod handle;

use std::path::{Path, PathBuf};
use std::time::Duration;

use drumlin_bench::args::{Bench, Compress, Survives};
use drumlin_bench::engine::{Change, Engine, Result, SeeRecord, SeeValue, Traffic};

use crate::setting::{Setting, Terms};
use crate::stripes::Stripes;
use handle::{Handle, Opening};

/// An open store.
pub struct Level {
    handle: Handle,
    directory: PathBuf,
    words: String,
    merged: bool,
    stripes: Stripes,
}

/// What its grid varies.
#[derive(Clone, Copy, Debug)]
pub struct Choices {
    /// Bytes of a memtable.
    memtable: usize,
    /// Entries between two that a block can be entered at.
    restart: i32,
    /// All is flushed and merged whenever all is to be settled.
    merged: bool,
}

impl Level {
    /// Opens the store in `directory`, or makes it.
    pub fn open(directory: &Path, bench: &Bench, choices: Choices) -> Result<Level> {
        let Choices { memtable, restart, merged } = choices;
        let opening = Opening {
            memtable,
            cache: (bench.memory << 20).saturating_sub(2 * memtable),
            block: bench.block_size,
            filter_bits: bench.bloom_bits.round() as i32,
            restart,
            compressed: bench.compression != Compress::None,
            synced: bench.durability == Survives::Disk,
        };
        Ok(Level {
            handle: Handle::open(directory, &opening)?,
            directory: directory.into(),
            words: words(bench, choices),
            merged,
            stripes: Stripes::default(),
        })
    }

    /// Whether nothing is owed now.
    fn is_settled(&self) -> Result<bool> {
        let mut logs = 0;
        for entry in std::fs::read_dir(&self.directory)? {
            logs += usize::from(entry?.path().extension().is_some_and(|extension| extension == "log"));
        }
        let tables = self.handle.property(c"leveldb.sstables").unwrap_or_default();
        Ok(logs <= 1 && !owes(&tables))
    }
}

/// Tables of level 0 that start a merge.
const LEVEL_0_TABLES: u64 = 4;
/// Bytes of level 1 that start one; each level may have ten times more than the one above.
const LEVEL_1_BYTES: u64 = 10 << 20;

/// Whether a level is at its limit, by what LevelDB lists: `--- level 1 ---`, then ` NUMBER:BYTES[…]` for each table.
fn owes(tables: &str) -> bool {
    let (mut level, mut count, mut bytes) = (0, 0, 0);
    let over = |level: u32, count: u64, bytes: u64| match level {
        0 => count >= LEVEL_0_TABLES,
        // The last level has no limit.
        1..=5 => bytes >= LEVEL_1_BYTES * 10u64.pow(level - 1),
        _ => false,
    };
    for line in tables.lines() {
        if let Some(named) = line.strip_prefix("--- level ") {
            if over(level, count, bytes) {
                return true;
            }
            (count, bytes) = (0, 0);
            level = named.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(level);
        } else if let Some((_, rest)) = line.split_once(':') {
            let size: Option<u64> = rest.split('[').next().and_then(|size| size.parse().ok());
            count += u64::from(size.is_some());
            bytes += size.unwrap_or(0);
        }
    }
    over(level, count, bytes)
}

fn words(bench: &Bench, Choices { memtable, restart, merged }: Choices) -> String {
    let cache = bench.memory.saturating_sub((2 * memtable) >> 20);
    let compressed = if bench.compression == Compress::None { "no compression" } else { "Snappy" };
    let merged = if merged { ", flushed and merged when settled" } else { "" };
    format!(
        "two memtables of {} MiB, block cache of {cache} MiB, {compressed}, a restart every {restart} entries{merged}",
        memtable >> 20
    )
}

/// The grid: sizes of memtables, how finely a block can be entered, and whether reads find all merged.
pub fn settings(terms: &Terms) -> Vec<Setting> {
    let half = (terms.bench.memory << 20) / 2;
    let usual = terms.bench.memtable.map_or((64 << 20).min(half / 2), |mib| mib << 20);
    let of = |memtable, restart, merged| Choices { memtable, restart, merged };
    let mut grid = vec![of(usual, 16, false), of(usual, 4, false), of(usual, 16, true), of(usual, 4, true)];
    if terms.bench.memtable.is_none() {
        grid.extend(
            [4 << 20, 16 << 20].into_iter().filter(|size| *size < usual).map(|size| of(size, 16, false)),
        );
    }
    let setting = |choices: Choices| {
        let bench = terms.bench.clone();
        let open = move |directory: &Path| Level::open(directory, &bench, choices);
        Setting::new(words(&terms.bench, choices), open)
    };
    grid.into_iter().map(setting).collect()
}

impl Engine for Level {
    fn name(&self) -> &'static str {
        "LevelDB"
    }

    fn settings(&self) -> String {
        format!("{}; updates under striped locks", self.words)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.handle.put(key, value)
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.handle.put_synced(key, value)
    }

    fn put_many(&self, records: &[(Vec<u8>, &[u8])]) -> Result<()> {
        self.handle.put_many(records)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.handle.delete(key)
    }

    fn get(&self, key: &[u8], see: SeeValue<'_>) -> Result<bool> {
        Ok(self.handle.get(key, see)?.is_some())
    }

    fn get_many(&self, keys: &[Vec<u8>], see: SeeValue<'_>) -> Result<usize> {
        let mut found = 0;
        for key in keys {
            found += usize::from(self.handle.get(key, &mut *see)?.is_some());
        }
        Ok(found)
    }

    fn scan(&self, from: &[u8], limit: usize, reverse: bool, see: SeeRecord<'_>) -> Result<usize> {
        let mut cursor = self.handle.iterator();
        if !(reverse && from.is_empty()) {
            cursor.seek(from);
        }
        // It has no seek to the last key at or before another.
        if reverse {
            match cursor.record() {
                Some((key, _)) if key > from => cursor.back(),
                Some(_) => {}
                None => cursor.seek_to_last(),
            }
        }
        let mut seen = 0;
        while seen < limit {
            let Some((key, value)) = cursor.record() else {
                cursor.check()?;
                break;
            };
            see(key, value);
            seen += 1;
            if seen < limit {
                if reverse { cursor.back() } else { cursor.next() }
            }
        }
        Ok(seen)
    }

    fn update(&self, key: &[u8], change: Change<'_>) -> Result<()> {
        let _locked = self.stripes.lock(key);
        let new = self.handle.get(key, |old| change(Some(old)))?;
        self.handle.put(key, &new.unwrap_or_else(|| change(None)))
    }

    fn put_if_absent(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let _locked = self.stripes.lock(key);
        let absent = self.handle.get(key, |_| ())?.is_none();
        if absent {
            self.handle.put(key, value)?;
        }
        Ok(absent)
    }

    fn settle(&self) -> Result<()> {
        if self.merged {
            self.handle.merge();
        }
        while !self.is_settled()? {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn debt_bytes(&self) -> Option<u64> {
        None
    }

    fn traffic(&self) -> Option<Traffic> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_at_its_limit_owes() {
        let below =
            "--- level 0 ---\n 5:900['a' @ 1 : 1 .. 'b' @ 2 : 1]\n--- level 1 ---\n 7:100['c' .. 'd']\n";
        assert!(!owes(below));
        let tables = " 5:900['a' .. 'b']\n".repeat(4);
        assert!(owes(&format!("--- level 0 ---\n{tables}--- level 1 ---\n")));
        assert!(owes("--- level 0 ---\n--- level 1 ---\n 7:10485760['c' .. 'd']\n--- level 2 ---\n"));
        assert!(!owes("--- level 0 ---\n--- level 2 ---\n 7:10485760['c' .. 'd']\n"));
        assert!(owes("--- level 0 ---\n--- level 2 ---\n 7:104857600['c' .. 'd']"));
    }

    #[test]
    fn a_store_that_cannot_be_opened_says_so() {
        let nowhere = tempfile::NamedTempFile::new().expect("a file");
        let opening = Opening {
            memtable: 1 << 20,
            cache: 1 << 20,
            block: 4096,
            filter_bits: 10,
            restart: 16,
            compressed: true,
            synced: false,
        };
        let error = Handle::open(nowhere.path(), &opening).err().expect("a file is no directory");
        assert!(error.to_string().contains("LevelDB: "), "{error}");
    }
}
