//! Options as a program has them: to be pasted.

use std::fmt::Debug;

use drumlin::{KeyspaceOptions, Layout, Memory};

use crate::candidate::Candidate;
use crate::wanted::Wanted;

/// The options of a keyspace in Rust: those that are not as they are if nothing is said.
pub fn rust(candidate: &Candidate, memory_bytes: usize) -> String {
    let (it, usual) = (candidate.options(memory_bytes), KeyspaceOptions::default());
    let mut lines = Vec::new();
    if it.memory != usual.memory {
        lines.push(format!("memory: Memory::{:?},", it.memory));
    }
    if it.layout != usual.layout {
        lines.push(match it.layout {
            Layout::Trie { levels, runs, hash } => {
                format!("layout: Layout::Trie {{ levels: {levels}, runs: {runs}, hash: KeyHash::{hash:?} }},")
            }
            layout => format!("layout: Layout::{layout:?},"),
        });
    }
    if candidate.memtable_part != Candidate::default().memtable_part {
        lines.push(format!("memtable_bytes: Some({}),", candidate.memtable_bytes(memory_bytes)));
    }
    if it.filter_bits_per_key != usual.filter_bits_per_key {
        lines.push(format!("filter_bits_per_key: {:?},", it.filter_bits_per_key));
    }
    if it.block_bytes != usual.block_bytes {
        lines.push(format!("block_bytes: {},", it.block_bytes));
    }
    if it.table_bytes != usual.table_bytes {
        lines.push(format!("table_bytes: {},", it.table_bytes));
    }
    if it.layout == Layout::Leveled && it.level1_bytes != usual.level1_bytes {
        lines.push(format!("level1_bytes: {},", it.level1_bytes));
    }
    if it.layout == Layout::Leveled && it.level_ratio != usual.level_ratio {
        lines.push(format!("level_ratio: {},", it.level_ratio));
    }
    if lines.is_empty() {
        return "KeyspaceOptions::default()".into();
    }
    format!("KeyspaceOptions {{\n    {}\n    ..KeyspaceOptions::default()\n}}", lines.join("\n    "))
}

/// The line that measures what was tuned for, as it was measured here; none for a workload that the bench does not know.
pub fn bench(candidate: &Candidate, wanted: &Wanted) -> Option<String> {
    let Wanted { workload, records, key_bytes, value_bytes, compression_ratio, threads, fixed, seed, .. } =
        wanted;
    let word = |value: &dyn Debug| format!("{value:?}").to_lowercase();
    let line = format!(
        "drumlin bench --benchmarks {} --num {records} --key-size {key_bytes} --value-size {value_bytes} --compression-ratio \
         {compression_ratio} --compression {} --durability {} --memory {} --threads {threads} --seed {seed} {}",
        workload.name,
        word(&fixed.compression),
        word(&fixed.durability),
        fixed.memory_bytes >> 20,
        arguments(candidate, fixed.memory_bytes)
    );
    (!wanted.is_given()).then_some(line)
}

/// The options as arguments of `drumlin bench`.
pub fn arguments(candidate: &Candidate, memory_bytes: usize) -> String {
    let (memory, layout) = candidate.kind();
    let mut words = format!("--component {memory}");
    if let Memory::Runs { runs, merged_percent } = candidate.memory {
        words += &format!(" --memory-runs {runs} --memory-percent {merged_percent}");
    }
    words +=
        &format!(" --memtable {} --layout {layout}", (candidate.memtable_bytes(memory_bytes) >> 20).max(1));
    match candidate.layout {
        Layout::Leveled => {
            let level1 = (candidate.level1_bytes(memory_bytes) >> 20).max(1);
            words += &format!(" --level1 {level1} --level-ratio {}", candidate.level_ratio);
        }
        Layout::Tiered { runs, merged_percent } => {
            words += &format!(" --runs {runs} --percent {merged_percent}")
        }
        Layout::LazyLeveled { runs, upper_percent } => {
            words += &format!(" --runs {runs} --percent {upper_percent}")
        }
        Layout::Trie { levels, runs, .. } => words += &format!(" --runs {runs} --levels {levels}"),
    }
    words
        + &format!(
            " --bloom-bits {} --block-size {} --table-size {}",
            candidate.filter_bits,
            candidate.block_bytes,
            candidate.table_bytes(memory_bytes)
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_said() {
        assert_eq!(rust(&Candidate::default(), 1 << 30), "KeyspaceOptions::default()");
        let layout = Layout::LazyLeveled { runs: 8, upper_percent: 50 };
        let other = Candidate { layout, filter_bits: 5.0, ..Candidate::default() };
        assert_eq!(
            rust(&other, 1 << 30),
            "KeyspaceOptions {\n    layout: Layout::LazyLeveled { runs: 8, upper_percent: 50 },\n    filter_bits_per_key: 5.0,\n    ..KeyspaceOptions::default()\n}"
        );
        let trie = rust(&Candidate { layout: Layout::TRIE, ..Candidate::default() }, 1 << 30);
        assert!(trie.contains("layout: Layout::Trie { levels: 5, runs: 8, hash: KeyHash::Sip },"), "{trie}");
        let said = arguments(&other, 1 << 30);
        assert!(said.contains("--layout lazy-leveled --runs 8 --percent 50 --bloom-bits 5"), "{said}");
    }
}
