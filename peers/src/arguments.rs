//! What can be said to the program: the flags of `drumlin bench`, and which engines.
//!
//! Place: parsed by `main`, carried out by `contest`.

use std::path::PathBuf;

use clap::Parser;
use drumlin_bench::args::Bench;

use crate::setting::{CONTESTANTS, Contestant, Terms};

/// Measures other key-value engines beside Drumlin, in turns
#[derive(Parser, Clone, Debug)]
#[command(version, about, long_about = None)]
pub struct Arguments {
    /// Engines, in this order: drumlin, rocksdb, rocksdb-txn, leveldb, lmdb, fjall, redb [default: all; rocksdb-txn where a
    /// workload reads, modifies and writes]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub engines: Vec<String>,
    /// Try every setting of every engine first, print its figures, and let the best one take part
    #[arg(long)]
    pub grid: bool,
    /// Keys of the grid's stores [default: as many as asked for; fewer tell most of it sooner]
    #[arg(long, value_name = "N")]
    pub grid_num: Option<u64>,
    /// Of an engine's settings, only those whose description contains this, or with !TEXT does not; if one is called just so, that
    /// one alone; may be said again
    #[arg(long, value_name = "ENGINE=TEXT", value_parser = wanted)]
    pub setting: Vec<(String, String)>,
    /// Count what engines move also where counting costs them something (RocksDB)
    #[arg(long)]
    pub traffic: bool,
    /// Where stores are made [default: a directory of its own among the temporary ones]
    #[arg(long, value_name = "DIR")]
    pub db: Option<PathBuf>,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Workloads and terms
    #[command(flatten)]
    pub bench: Bench,
}

/// An engine, and what its settings' descriptions are to contain.
fn wanted(said: &str) -> Result<(String, String), String> {
    let (engine, text) = said.split_once('=').ok_or("expected ENGINE=TEXT")?;
    Contestant::named(engine).ok_or_else(|| format!("there is no engine {engine}"))?;
    Ok((engine.into(), text.into()))
}

impl Arguments {
    /// What all are opened under.
    pub fn terms(&self) -> Terms {
        Terms { bench: self.bench.clone(), traffic: self.traffic }
    }

    /// The engines asked for; or what is wrong with the arguments.
    pub fn check(&self) -> Result<Vec<&'static Contestant>, String> {
        use drumlin_bench::workload::Kind::{PutIfAbsent, Update};
        self.bench.check()?;
        let workloads = self.bench.workloads()?;
        if self.bench.use_existing_db {
            return Err("--use-existing-db: peers make their stores themselves".into());
        }
        if self.bench.limits {
            return Err("--limits: `drumlin bench` sets figures beside the machine's limits".into());
        }
        let changes = workloads
            .iter()
            .any(|workload| workload.mix.iter().any(|(kind, _)| [Update, PutIfAbsent].contains(kind)));
        if self.engines.is_empty() {
            return Ok(CONTESTANTS.iter().filter(|one| changes || !one.only_changes).collect());
        }
        let named = |name: &String| {
            let all: Vec<&str> = CONTESTANTS.iter().map(|one| one.name).collect();
            Contestant::named(name)
                .ok_or_else(|| format!("there is no engine {name}; there are {}", all.join(", ")))
        };
        self.engines.iter().map(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engines(arguments: &[&str]) -> Result<Vec<&'static str>, String> {
        let parsed = Arguments::try_parse_from(["peers"].iter().chain(arguments)).expect("parses");
        Ok(parsed.check()?.iter().map(|one| one.name).collect())
    }

    #[test]
    fn transactions_take_part_where_a_workload_changes_values() {
        let with = engines(&["--benchmarks", "readrandom,putifabsent"]).expect("right");
        assert!(with.contains(&"rocksdb-txn") && with.len() == CONTESTANTS.len());
        assert!(
            !engines(&["--benchmarks", "readrandom,fillrandom"]).expect("right").contains(&"rocksdb-txn")
        );
        assert_eq!(engines(&["--engines", "rocksdb-txn,lmdb"]).expect("right"), ["rocksdb-txn", "lmdb"]);
    }

    #[test]
    fn what_cannot_be_measured_is_said() {
        assert!(
            engines(&["--engines", "berkeley"]).expect_err("unknown").contains("there are drumlin, rocksdb")
        );
        assert!(engines(&["--use-existing-db"]).expect_err("refused").contains("--use-existing-db"));
        assert!(engines(&["--benchmarks", "nothing"]).expect_err("unknown").contains("there are fillseq"));
    }
}
