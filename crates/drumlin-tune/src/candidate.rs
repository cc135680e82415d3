//! A candidate: one set of the options that are tuned; and all that are looked at.
//!
//! Place: predicted by `model`, measured by `trial`.

use std::fmt;

use drumlin::{KeyHash, KeyspaceOptions, Layout, Memory};
use drumlin_bench::store::Settings;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The memory component: of runs, R and m.
    pub memory: Memory,
    /// The layout: of tiers, D and m.
    pub layout: Layout,
    /// The ratio of levels, where the layout has one.
    pub level_ratio: u64,
    /// All memory for each byte of memtable: Rn of R runs.
    pub memtable_part: usize,
    /// Filter bits a key, which give ε.
    pub filter_bits: f64,
    /// Bytes of a block: μ.
    pub block_bytes: usize,
}

/// Filter bits a key and bytes of a block that are looked at.
pub const FILTER_BITS: [f64; 4] = [0.0, 5.0, 10.0, 15.0];
/// See [`FILTER_BITS`].
pub const BLOCK_BYTES: [usize; 3] = [1 << 10, 4 << 10, 16 << 10];
/// Bytes of a bucket of a trie, whatever the options say of blocks.
const BUCKET_BYTES: usize = 4 << 10;
/// The part of memory that is a memtable's if nothing is said.
const MEMTABLE_PART: usize = 4;

impl Default for Candidate {
    /// What a keyspace has if nothing is said.
    fn default() -> Candidate {
        let usual = KeyspaceOptions::default();
        Candidate {
            memory: usual.memory,
            layout: usual.layout,
            level_ratio: usual.level_ratio,
            memtable_part: MEMTABLE_PART,
            filter_bits: usual.filter_bits_per_key,
            block_bytes: usual.block_bytes,
        }
    }
}

impl Candidate {
    /// All that are looked at; `unordered`, where no order is needed: tries, too.
    pub fn all(unordered: bool) -> Vec<Candidate> {
        let leveled = [4, 10, 16].map(|ratio| (Layout::Leveled, ratio));
        let tiered = [(2, 100), (4, 100), (8, 100), (8, 50), (16, 100)]
            .map(|(runs, merged_percent)| (Layout::Tiered { runs, merged_percent }, 10));
        let lazy = [(4, 25), (4, 50), (8, 25), (8, 50), (8, 100), (16, 50)]
            .map(|(runs, upper_percent)| (Layout::LazyLeveled { runs, upper_percent }, 10));
        let trie = |levels, runs| (Layout::Trie { levels, runs, hash: KeyHash::Sip }, 10);
        let tries = [trie(5, 4), trie(5, 8), trie(5, 15), trie(3, 8)];
        let tries = tries.into_iter().filter(|_| unordered);
        let runs = |runs| Memory::Runs { runs, merged_percent: 100 };
        let memories = [Memory::Sorted, Memory::TwoTier, runs(2), runs(4), runs(8)];
        let mut all = Vec::new();
        for (layout, level_ratio) in leveled.into_iter().chain(tiered).chain(lazy).chain(tries) {
            for memory in memories {
                for memtable_part in [MEMTABLE_PART, 2 * MEMTABLE_PART, 4 * MEMTABLE_PART] {
                    for filter_bits in FILTER_BITS {
                        let has_blocks =
                            |bytes: &usize| !matches!(layout, Layout::Trie { .. }) || *bytes == BUCKET_BYTES;
                        for block_bytes in BLOCK_BYTES.into_iter().filter(has_blocks) {
                            all.push(Candidate {
                                memory,
                                layout,
                                level_ratio,
                                memtable_part,
                                filter_bits,
                                block_bytes,
                            });
                        }
                    }
                }
            }
        }
        all
    }

    /// A few that differ much, which can all be measured; `unordered`, tries among them.
    pub fn grid(unordered: bool) -> Vec<Candidate> {
        let mut grid = Vec::new();
        let blocks = [(5.0, 1 << 10), (10.0, BUCKET_BYTES), (15.0, BUCKET_BYTES)];
        let layouts = [
            (Layout::Leveled, &blocks[..]),
            (Layout::TIERED, &blocks),
            (Layout::LAZY_LEVELED, &blocks),
            (Layout::TRIE, &blocks[1..]),
        ];
        for (layout, blocks) in layouts.into_iter().take(if unordered { 4 } else { 3 }) {
            for memory in [Memory::Sorted, Memory::TwoTier] {
                for &(filter_bits, block_bytes) in blocks {
                    grid.push(Candidate { layout, memory, filter_bits, block_bytes, ..Candidate::default() });
                }
            }
        }
        grid
    }

    /// How a store of it is opened.
    pub fn settings(&self, fixed: &Settings) -> Settings {
        Settings {
            memory: self.memory,
            layout: self.layout,
            level_ratio: self.level_ratio,
            level1_bytes: self.level1_bytes(fixed.memory_bytes),
            memtable_bytes: Some(self.memtable_bytes(fixed.memory_bytes)),
            filter_bits: self.filter_bits,
            block_bytes: self.block_bytes,
            table_bytes: self.table_bytes(fixed.memory_bytes),
            ..fixed.clone()
        }
    }

    /// Bytes of a memtable in so much memory.
    pub fn memtable_bytes(&self, memory_bytes: usize) -> usize {
        (memory_bytes / self.memtable_part).max(64 << 10)
    }

    /// Bytes of a table: as they are if nothing is said, and less where memory is small, so that a small trial has levels too.
    pub fn table_bytes(&self, memory_bytes: usize) -> u64 {
        KeyspaceOptions::default().table_bytes.min(memory_bytes as u64 / 8)
    }

    /// Bytes of level 1, likewise.
    pub fn level1_bytes(&self, memory_bytes: usize) -> u64 {
        KeyspaceOptions::default().level1_bytes.min(memory_bytes as u64 / 2)
    }

    /// The options of a keyspace, for what reads them.
    pub fn options(&self, memory_bytes: usize) -> KeyspaceOptions {
        self.settings(&Settings { memory_bytes, ..Settings::default() }).keyspace_options()
    }

    /// Which of the memory components and layouts it has, whatever their numbers.
    pub fn kind(&self) -> (&'static str, &'static str) {
        let memory = match self.memory {
            Memory::Sorted => "sorted",
            Memory::TwoTier => "two-tier",
            Memory::Runs { .. } => "runs",
        };
        let layout = match self.layout {
            Layout::Leveled => "leveled",
            Layout::Tiered { .. } => "tiered",
            Layout::LazyLeveled { .. } => "lazy-leveled",
            Layout::Trie { .. } => "trie",
        };
        (memory, layout)
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (memory, layout) = self.kind();
        write!(f, "{memory}")?;
        if let Memory::Runs { runs, .. } = self.memory {
            write!(f, " {runs}")?;
        }
        write!(f, " 1/{}, {layout}", self.memtable_part)?;
        match self.layout {
            Layout::Leveled => write!(f, " x{}", self.level_ratio)?,
            Layout::Tiered { runs, merged_percent } => write!(f, " {runs}/{merged_percent}%")?,
            Layout::LazyLeveled { runs, upper_percent } => write!(f, " {runs}/{upper_percent}%")?,
            Layout::Trie { levels, runs, .. } => write!(f, " {runs}x{levels}")?,
        }
        write!(f, ", {} bits, {} B blocks", self.filter_bits, self.block_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them_are_allowed_and_the_usual_one_is_among_them() {
        for unordered in [false, true] {
            let all = Candidate::all(unordered);
            assert!(all.iter().all(|candidate| candidate.options(64 << 20).validate().is_ok()));
            assert!(all.len() > 1000 && all.contains(&Candidate::default()));
            assert!(Candidate::grid(unordered).iter().all(|candidate| all.contains(candidate)));
            let is_trie = |candidate: &&Candidate| candidate.kind().1 == "trie";
            for candidates in [&all, &Candidate::grid(unordered)] {
                assert_eq!(candidates.iter().any(|one| is_trie(&one)), unordered);
            }
            assert!(all.iter().filter(is_trie).all(|trie| trie.block_bytes == BUCKET_BYTES));
        }
    }
}
