//! The measurements: what is run, and what it has to show.
//!
//! Place: `table` has all of them, which `main` goes through; `run` carries one out, `goals` judges it.
//!
//! 1. Arguments are those of `drumlin bench` (or of the peers' program); `--quick` scales them, see [`scaled`].
//! 2. Where the runs of one measurement are compared with each other, they take turns.

use crate::goals::Goal;
use crate::table;

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `drumlin bench`.
    Bench,
    /// `drumlin limits`.
    Limits,
    /// The peers' program.
    Peers,
    /// `drumlin simulate`.
    Simulate,
    /// `drumlin tune`.
    Tune,
}

/// How figures are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// Medians as bars, from the least to the most.
    Bars,
    /// Percentiles of latencies.
    Latencies,
    /// Not at all.
    No,
}

/// Something to be measured.
#[derive(Debug)]
pub struct Measurement {
    /// Its name on the command line, and of its files.
    pub name: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// About how long it takes on two cores.
    pub minutes: u64,
    /// The program.
    pub program: Program,
    /// Arguments of every run.
    pub with: &'static str,
    /// Arguments of each run; one run if there are none.
    pub runs: &'static [&'static str],
    /// Rounds of each run. Runs of `drumlin bench` take turns round by round.
    pub rounds: u32,
    /// How it is drawn.
    pub drawn: Drawn,
    /// What must hold.
    pub goals: &'static [Goal],
}

/// MiB that are at hand when a workload begins, at most.
const TOUCHED_MAX: u64 = 4096;
/// Records for each MiB of files, in the system's memory as well: log and tables, written more than once.
const RECORDS_PER_MIB: u64 = 2048;
/// All measurements, in the order of the page.
pub fn all() -> impl Iterator<Item = &'static Measurement> {
    table::PARTS.into_iter().flatten()
}

/// The measurement of this name.
pub fn named(name: &str) -> Option<&'static Measurement> {
    all().find(|measurement| measurement.name == name)
}

impl Measurement {
    /// The arguments of a run, as given to the program; `quick` ones are scaled.
    pub fn arguments(&self, run: &str, quick: bool) -> Vec<String> {
        // What is to be filled in later stays one word.
        let text = format!("{} {run}", self.with);
        let mut words = Vec::new();
        for part in text.split_inclusive(['{', '}']) {
            match part.strip_suffix('}') {
                Some(inside) => words.push(format!("{{{inside}}}")),
                None => words.extend(part.trim_end_matches('{').split_whitespace().map(String::from)),
            }
        }
        match (quick, self.program) {
            (false, Program::Limits | Program::Simulate | Program::Tune) => words,
            (false, Program::Bench | Program::Peers) => {
                let touched = touched(&words).to_string();
                words.extend(["--touch".to_string(), touched]);
                words
            }
            (true, Program::Limits) => {
                words.extend(["--seconds", "0.05", "--size", "32"].map(String::from));
                words
            }
            (true, _) => scaled(words),
        }
    }

    /// Whether a run is one for a machine of so many cores: where it is looked at how threads scale, each is to have its own.
    pub fn is_for(&self, run: &str, cores: usize) -> bool {
        let scales = self.goals.iter().any(|goal| matches!(goal, Goal::Scales { .. }));
        let words: Vec<&str> = run.split_whitespace().collect();
        let threads = words.iter().position(|word| *word == "--threads");
        let threads = threads.and_then(|at| words.get(at + 1)?.parse::<usize>().ok());
        !scales || threads.is_none_or(|threads| threads <= cores)
    }

    /// Rounds of a run.
    pub fn rounds(&self, quick: bool) -> u32 {
        if quick { self.rounds.min(2) } else { self.rounds }
    }
}

/// MiB that a workload is about to use: the engine's, and the system's for its files.
fn touched(words: &[String]) -> u64 {
    let number = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1)?.parse::<u64>().ok()
    };
    let files = number("--num").map(|records| records / RECORDS_PER_MIB);
    number("--memory").zip(files).map_or(TOUCHED_MAX, |(memory, files)| (memory + files).min(TOUCHED_MAX))
}

/// Numbers of records, of operations and of seconds at a fiftieth, memory too, as far as a store can do with so little.
fn scaled(mut words: Vec<String>) -> Vec<String> {
    const PART: u64 = 50;
    for at in 1..words.len() {
        let least = match words[at - 1].as_str() {
            "--num" | "--grid-num" | "--records" | "--reads" | "--writes" | "--memtable" => 1,
            "--duration" => {
                let seconds = words[at].parse::<f64>().unwrap_or(1.0) / PART as f64;
                words[at] = seconds.to_string();
                continue;
            }
            // A grid of seconds; of the peers it is a flag.
            "--minutes" | "--grid" if words[at].parse::<f64>().is_ok() => {
                words[at] = "0.02".into();
                continue;
            }
            "--memory" => 16,
            _ => continue,
        };
        if let Ok(number) = words[at].parse::<u64>() {
            // Small numbers are of another kind: how often to open.
            let smaller = if number < PART { number } else { (number / PART).max(least) };
            words[at] = smaller.to_string();
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use drumlin_bench::args::Bench;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        bench: Bench,
    }

    #[test]
    fn every_measurement_is_one_that_the_bench_understands() {
        for (at, measurement) in all().enumerate() {
            assert!(all().take(at).all(|other| other.name != measurement.name));
            if !matches!(measurement.program, super::Program::Bench | super::Program::Peers) {
                continue;
            }
            for run in measurement.runs {
                for quick in [false, true] {
                    let mut words = vec!["bench".to_string()];
                    let mut arguments = measurement.arguments(run, quick).into_iter();
                    while let Some(word) = arguments.next() {
                        match word.as_str() {
                            "--grid" | "--traffic" => {}
                            "--engines" | "--setting" | "--grid-num" => drop(arguments.next()),
                            word if word.starts_with('{') => words.push("1000".into()),
                            _ => words.push(word),
                        }
                    }
                    let Program { bench } =
                        Program::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
                    bench.check().and_then(|()| bench.workloads().map(drop)).expect(measurement.name);
                }
            }
        }
    }

    #[test]
    fn as_much_memory_is_at_hand_as_a_workload_takes() {
        let words = |name, run| named(name).expect("it is there").arguments(run, false).join(" ");
        assert!(words("peers", "--threads 1").ends_with("--touch 1000"));
        assert!(words("sustained", "--threads 2").ends_with("--touch 4096"));
        assert!(words("two-tier-sizes", "--component sorted --memory 64").ends_with("--touch 1040"));
    }

    #[test]
    fn a_quick_run_is_a_fiftieth() {
        let words = |run, quick| named("scans").expect("it is there").arguments(run, quick).join(" ");
        assert!(
            words("--threads 2", false)
                .contains("--num 1000000 --grid-num 200000 --reads 300000 --memory 512")
        );
        assert!(words("--threads 2", true).contains("--num 20000 --grid-num 4000 --reads 6000 --memory 16"));
        assert!(words("--threads 2", true).ends_with("--threads 2"));
        let pairs = named("pairs").expect("it is there").arguments("", true).join(" ");
        assert!(pairs.contains("--num 40000 --memory 16") && pairs.contains("--duration 0.1"), "{pairs}");
        let open_loop = named("open-loop").expect("it is there").arguments("", false);
        for word in ["{best of rocksdb in sustained}", "{80% of RocksDB in sustained}"] {
            assert!(open_loop.contains(&word.to_string()), "{open_loop:?}");
        }
    }
}
