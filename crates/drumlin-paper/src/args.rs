//! What can be said to `drumlin paper`.
//!
//! Place: parsed by the command line; becomes a [`Setting`] here.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::figure::Figure;
use crate::lab::Setting;

/// A paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// FloDB (EuroSys 2017): memory in two tiers
    Flodb,
    /// cLSM (EuroSys 2015): writes and reads that do not block each other
    Clsm,
    /// sLSM (2018): runs in memory and in tiers, with filters and fence pointers
    Slsm,
    /// LSM-trie (USENIX ATC 2015): containers of hashed keys in a trie
    LsmTrie,
}

impl Name {
    /// As in [`Figure::paper`].
    pub fn text(self) -> &'static str {
        match self {
            Name::Flodb => "flodb",
            Name::Clsm => "clsm",
            Name::Slsm => "slsm",
            Name::LsmTrie => "lsm-trie",
        }
    }
}

/// Measures a paper's figures anew.
#[derive(Args, Clone, Debug)]
pub struct Paper {
    /// The paper
    #[arg(value_enum)]
    pub name: Name,
    /// Figures, by their numbers in the paper; `list` shows them all [default: all]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub figure: Vec<String>,
    /// The size of the data, as a part of the paper's
    #[arg(long, default_value_t = 0.002, value_name = "PART")]
    pub scale: f64,
    /// How long each point is measured
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS")]
    pub seconds: f64,
    /// Rounds; points are their medians
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub rounds: u32,
    /// Threads, where a figure has them across [default: 1, 2, 4, ... up to four for each processor]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    pub threads: Vec<u64>,
    /// Memory components, in MiB, where a figure has them across [default: 64, 128, ... up to a third of the machine's memory]
    #[arg(long, value_name = "MIB", value_delimiter = ',')]
    pub sizes: Vec<u64>,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 42, value_name = "N")]
    pub seed: u64,
    /// Use so many MiB and give them back before each workload that writes: else what a virtual machine's host takes to give
    /// it memory is part of the points
    #[arg(long, default_value_t = 0, value_name = "MIB")]
    pub touch: u64,
    /// Where raw points and pictures go
    #[arg(long, default_value = "drumlin-paper", value_name = "DIR")]
    pub out: PathBuf,
    /// The peers' program, already built: RocksDB and LevelDB take part
    #[arg(long, value_name = "FILE")]
    pub peers: Option<PathBuf>,
}

/// Threads for each processor, at most.
const THREADS_A_CORE: u64 = 4;
/// The largest memory component, in MiB: the papers' protocol ends there on machines of this kind.
const SIZE_MAX: u64 = 8 << 10;

impl Paper {
    /// The figures that are asked for; or what is wrong with them.
    pub fn figures(&self) -> Result<Vec<&'static Figure>, String> {
        let all = || crate::figures().filter(|figure| figure.paper == self.name.text());
        if self.figure.is_empty() {
            return Ok(all().collect());
        }
        let named = |number: &String| {
            all().find(|figure| figure.number == number).ok_or_else(|| {
                let known: Vec<&str> = all().map(|figure| figure.number).collect();
                format!("there is no figure {number} here; there are {}", known.join(", "))
            })
        };
        self.figure.iter().map(named).collect()
    }

    /// How it is to be measured on a machine with so many processors and so much memory, in MiB; or what is wrong with it.
    pub fn setting(&self, cores: u64, memory_mib: u64) -> Result<Setting, String> {
        let within = |name: &str, value: f64, least: f64, most: f64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(format!("--{name} must be from {least} to {most}")),
        };
        within("scale", self.scale, 1e-7, 10.0)?;
        within("seconds", self.seconds, 1e-3, 1e6)?;
        within("rounds", self.rounds.into(), 1.0, 1000.0)?;
        for threads in &self.threads {
            within("threads", *threads as f64, 1.0, drumlin_bench::args::THREADS_MAX as f64)?;
        }
        for size in &self.sizes {
            within("sizes", *size as f64, 1.0, f64::from(1 << 22))?;
        }
        let doubled = |from: u64, to: u64| {
            std::iter::successors(Some(from), |n| Some(n * 2)).take_while(move |n| *n <= to.max(from))
        };
        let mut setting = Setting {
            scale: self.scale,
            seconds: self.seconds,
            rounds: self.rounds,
            seed: self.seed,
            touch: self.touch,
            threads: self.threads.clone(),
            sizes: self.sizes.clone(),
            cores,
        };
        if setting.threads.is_empty() {
            setting.threads = doubled(1, cores * THREADS_A_CORE).collect();
        }
        if setting.sizes.is_empty() {
            setting.sizes = doubled(64, (memory_mib / 3).min(SIZE_MAX)).collect();
        }
        setting.threads.sort_unstable();
        setting.sizes.sort_unstable();
        Ok(setting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        paper: Paper,
    }

    fn parsed(words: &str) -> Paper {
        Program::try_parse_from(format!("paper {words}").split(' ')).unwrap_or_else(|e| panic!("{e}")).paper
    }

    #[test]
    fn what_is_not_said_is_as_the_machine_is() {
        let setting = parsed("flodb").setting(2, 24 << 10).expect("it is right");
        assert_eq!((setting.threads, setting.sizes.len()), (vec![1, 2, 4, 8], 8));
        let setting = parsed("flodb --threads 4,1 --sizes 32").setting(2, 100).expect("it is right");
        assert_eq!((setting.threads, setting.sizes), (vec![1, 4], vec![32]));
        assert_eq!(parsed("flodb").setting(1, 100).expect("it is right").sizes, [64]);
    }

    #[test]
    fn what_cannot_be_is_said() {
        let paper = parsed("flodb --figure 9,99");
        let told = paper.figures().expect_err("there is no 99");
        assert!(told.contains("99") && told.contains("17"), "{told}");
        assert!(parsed("clsm --scale 0").setting(1, 100).expect_err("nothing").contains("--scale"));
        assert!(parsed("clsm").figures().expect("all").iter().all(|figure| figure.paper == "clsm"));
    }
}
