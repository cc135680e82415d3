//! The lab: what a figure measures with.
//!
//! Place: given to a figure's measuring; opens stores of Drumlin in this process, and asks the peers' program for others.
//!
//! 1. One run is one workload on a new store, by the same arguments for every engine; what it said is its line of JSON.
//! 2. Stores are removed when they are done with.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::Parser;
use drumlin_bench::args::Bench;
use drumlin_bench::engine::{Error, Result};
use drumlin_bench::session::{self, Contender, Open, Watch};
use drumlin_bench::store::Store;
use serde::Serialize;
use serde_json::{Value, json};

/// How figures are measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// The size of the data, as a part of the paper's.
    pub scale: f64,
    /// How long each point is measured.
    pub seconds: f64,
    /// Rounds.
    pub rounds: u32,
    /// Seed of all random numbers.
    pub seed: u64,
    /// MiB that are at hand when a workload begins.
    pub touch: u64,
    /// Threads, where they are across.
    pub threads: Vec<u64>,
    /// Memory components, in MiB, where they are across.
    pub sizes: Vec<u64>,
    /// Processors there are.
    pub cores: u64,
}

impl Setting {
    /// Records, where the paper had so many: some thousands at least.
    pub fn records(&self, paper: f64) -> u64 {
        ((paper * self.scale) as u64).max(4000)
    }

    /// So many threads as the paper had where it had 8 or 16: two for each processor, which keeps them all in use.
    pub fn threads_many(&self) -> u64 {
        self.cores * 2
    }
}

/// Who takes part in a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Drumlin with a sorted memory component.
    Sorted,
    /// Drumlin with a hash over it.
    TwoTier,
    /// Another store, by its name on the command line of the peers' program and by its name.
    Peer(&'static str, &'static str),
}

/// The others.
pub const PEERS: [Engine; 2] = [Engine::Peer("rocksdb", "RocksDB"), Engine::Peer("leveldb", "LevelDB")];

/// The names of their curves.
pub(crate) const PEER_SERIES: &[&str] = &["RocksDB", "LevelDB"];

/// As many operations as fit into the time.
pub(crate) const FOREVER: &str = "--reads 1000000000000 --writes 1000000000000";

impl Engine {
    /// Its curve's name.
    pub fn series(self) -> &'static str {
        match self {
            Engine::Sorted => "sorted",
            Engine::TwoTier => "two-tier",
            Engine::Peer(_, name) => name,
        }
    }
}

/// See the module.
pub struct Lab<'a> {
    /// How it is measured.
    pub setting: &'a Setting,
    /// A directory for stores, which others leave alone.
    pub scratch: &'a Path,
    /// The peers' program.
    pub peers: Option<&'a Path>,
    /// Watches each workload.
    pub watch: &'a Watch<'a>,
}

#[derive(Parser)]
struct Words {
    #[command(flatten)]
    bench: Bench,
}

impl Lab<'_> {
    /// Both of ours, and the others if they take part.
    pub fn engines(&self) -> Vec<Engine> {
        let others = PEERS.into_iter().filter(|_| self.peers.is_some());
        [Engine::Sorted, Engine::TwoTier].into_iter().chain(others).collect()
    }

    /// Carries out the workloads that `words` name, as on the bench's command line, and gives what the last one said.
    pub fn run(&self, engine: Engine, words: &str) -> Result<Value> {
        match engine {
            Engine::Sorted => self.run_own(&format!("{words} --component sorted")),
            Engine::TwoTier => self.run_own(&format!("{words} --component two-tier")),
            Engine::Peer(name, _) => self.run_peer(name, words),
        }
    }

    fn run_own(&self, words: &str) -> Result<Value> {
        let all = self.run_all(words)?;
        all.into_iter().next_back().ok_or_else(|| Error::from("there was nothing to measure"))
    }

    /// Carries out the workloads that `words` name on Drumlin, one behind the other, and gives what each said.
    pub fn run_all(&self, words: &str) -> Result<Vec<Value>> {
        let bench = self.parse(words)?;
        let settings = bench.settings();
        let open: Box<Open<'_>> = Box::new(move |directory| Ok(Box::new(Store::open(directory, &settings)?)));
        self.lines(&bench, "drumlin", open)
    }

    fn lines(&self, bench: &Bench, name: &'static str, open: Box<Open<'_>>) -> Result<Vec<Value>> {
        let contender = Contender { name, directory: self.scratch.join("store"), open };
        let mut lines = Vec::new();
        session::run(bench, &[contender], false, self.watch, &mut |line| {
            lines.push(json!(line));
            Ok(())
        })?;
        Ok(lines)
    }

    /// The same, with an engine that a figure made.
    pub fn run_with(&self, bench: &Bench, name: &'static str, open: Box<Open<'_>>) -> Result<Value> {
        let all = self.lines(bench, name, open)?;
        all.into_iter().next_back().ok_or_else(|| Error::from("there was nothing to measure"))
    }

    fn run_peer(&self, name: &str, words: &str) -> Result<Value> {
        let program = self.peers.ok_or("no program of other engines was named")?;
        let output = Command::new(program)
            .args(["--json", "--engines", name])
            .args(self.arguments(words))
            .arg("--db")
            .arg(self.scratch.join("peer"))
            .stderr(Stdio::inherit())
            .output()
            .map_err(|e| format!("start {}: {e}", program.display()))?;
        if !output.status.success() {
            return Err(format!("{} {words}: {}", program.display(), output.status).into());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let last = text.lines().rev().find(|line| line.starts_with('{'));
        let last = last.ok_or_else(|| format!("{} said nothing", program.display()))?;
        Ok(serde_json::from_str(last)?)
    }

    /// `words` with what all runs have.
    fn arguments(&self, words: &str) -> Vec<String> {
        let Setting { seconds, seed, touch, .. } = self.setting;
        let all = format!("{words} --duration {seconds} --seed {seed} --touch {touch}");
        all.split_whitespace().map(String::from).collect()
    }

    /// The words as the bench takes them.
    pub fn parse(&self, words: &str) -> Result<Bench> {
        let given = std::iter::once("paper".to_string()).chain(self.arguments(words));
        Ok(Words::try_parse_from(given).map_err(|error| error.to_string())?.bench)
    }
}

/// What a line says of a field.
pub fn field(line: &Value, name: &str) -> Result<f64> {
    line[name].as_f64().ok_or_else(|| format!("the run did not tell its {name}").into())
}

/// What a line says of a kind of operation.
pub fn latency(line: &Value, kind: &str, name: &str) -> Result<f64> {
    let of_kind = line["latencies"].as_array().into_iter().flatten().find(|of| of["kind"] == kind);
    let found = of_kind.and_then(|of| of[name].as_f64());
    found.ok_or_else(|| format!("the run did not tell the {name} of a {kind}").into())
}

/// Keys a second: those that were put and those that scans met.
pub fn keys_per_second(line: &Value) -> Result<f64> {
    let keys = latency(line, "put", "count")? + field(line, "found")?;
    Ok(keys * field(line, "rate")? / field(line, "operations")?)
}
