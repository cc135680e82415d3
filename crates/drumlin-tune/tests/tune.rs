//! A small store is tuned: what is told hangs together.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use std::sync::atomic::Ordering;
use std::time::Duration;

use drumlin_bench::drive::Progress;
use drumlin_bench::engine::Result;
use drumlin_bench::store::Settings;
use drumlin_tune::candidate::Candidate;
use drumlin_tune::model::Model;
use drumlin_tune::search::{self, Measured, Watch};
use drumlin_tune::trial::Outcome;
use drumlin_tune::wanted::{Wanted, workload};
use drumlin_tune::{paste, picture};

fn wanted(name: &str, records: u64) -> Wanted {
    Wanted {
        workload: workload(name).expect("it is known"),
        records,
        key_bytes: 16,
        value_bytes: 100,
        compression_ratio: 0.5,
        threads: 2,
        processors: 2,
        fixed: Settings { memory_bytes: 64 << 20, ..Settings::default() },
        unordered: false,
        seed: 1,
    }
}

#[derive(Default)]
struct Log {
    predicted: usize,
    stages: Vec<(usize, f64)>,
    measured: Vec<(Candidate, Measured)>,
    most_operations: u64,
}

impl Watch for Log {
    fn predicted(&mut self, done: usize) -> Result<()> {
        assert_eq!(done, self.predicted);
        self.predicted += 1;
        Ok(())
    }
    fn stage(&mut self, count: usize, size: f64, time: Duration) -> Result<()> {
        assert!(time >= Duration::from_millis(100));
        self.stages.push((count, size));
        Ok(())
    }
    fn trial(&mut self, _: &str, run: &mut dyn FnMut(&Progress) -> Result<Outcome>) -> Result<Outcome> {
        let progress = Progress::default();
        let outcome = run(&progress);
        self.most_operations = self.most_operations.max(progress.done.load(Ordering::Relaxed));
        outcome
    }
    fn measured(&mut self, of: &Candidate, measured: &Measured) -> Result<()> {
        self.measured.push((*of, *measured));
        Ok(())
    }
}

#[test]
fn a_search_narrows_from_all_candidates_to_one_at_full_size() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (wanted, mut log) = (wanted("ycsba", 40_000), Log::default());
    let choice = search::run(&wanted, Duration::from_secs(6), scratch.path(), &mut log).expect("searches");
    assert_eq!((log.predicted, choice.all.len()), (Candidate::all(false).len(), Candidate::all(false).len()));
    assert_eq!(log.stages.iter().map(|(_, size)| *size).collect::<Vec<_>>(), [0.25, 1.0]);
    assert!(log.stages[0].0 > log.stages[1].0 || log.stages[0].0 <= 4, "{:?}", log.stages);
    assert!(
        log.measured.iter().all(|(_, m)| m.outcome.rate > 1000.0 && m.predicted > 1000.0),
        "{:?}",
        log.measured
    );
    assert!(log.measured.iter().any(|(_, m)| m.outcome.write_amplification.is_some_and(|w| w > 0.0)));
    assert!(log.most_operations > 1000);

    let rate = |p: &search::Predicted| p.measured.expect("to the end").outcome.rate;
    assert_eq!(choice.usual.candidate, Candidate::default());
    assert!(rate(&choice.best) >= rate(&choice.usual));
    for ended in [&choice.best, &choice.usual] {
        assert_eq!(ended.measured.map(|m| m.size), Some(1.0));
    }
    let usual = choice.usual.measured.expect("to the end");
    let beats_usual = |m: &Measured| {
        m.size == 1.0 && m.outcome.rate > usual.outcome.rate * 1.03 && m.slowest > usual.fastest
    };
    let better = log.measured.iter().filter(|(_, m)| beats_usual(m));
    let best = better.max_by(|(_, a), (_, b)| a.outcome.rate.total_cmp(&b.outcome.rate));
    assert_eq!(choice.best.candidate, best.map_or(Candidate::default(), |(candidate, _)| *candidate));
    assert!(choice.doubtful.is_none() || choice.best.candidate == Candidate::default());

    let svg = picture::svg("ycsba", &choice);
    let document = roxmltree::Document::parse(&svg).expect("XML");
    let dots = document.descendants().filter(|node| node.has_tag_name("title")).count();
    assert_eq!(dots, choice.all.len());
    assert!(svg.contains("the choice") && svg.contains("the usual options"));
    assert!(!paste::rust(&choice.best.candidate, 64 << 20).is_empty());
    let grid = search::grid(&wanted, &choice, Duration::from_millis(100), scratch.path(), &mut log)
        .expect("measures");
    assert_eq!((grid.last[0].0, grid.last.len()), (choice.best.candidate, 6));
    let all: Vec<_> = grid.last.iter().chain(&grid.others).collect();
    assert!(
        (18..=19).contains(&all.len()) && all.iter().all(|(_, outcome)| outcome.rate > 1000.0),
        "{all:?}"
    );
    assert_eq!(std::fs::read_dir(scratch.path()).expect("there").count(), 0, "stores are gone");
}

#[test]
fn where_no_order_is_needed_tries_are_predicted_and_measured_beside_the_rest() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut wanted = Wanted { unordered: true, ..wanted("ycsba", 20_000) };
    // Small enough for tables.
    wanted.fixed.memory_bytes = 4 << 20;
    let mut log = Log::default();
    let choice = search::run(&wanted, Duration::from_secs(3), scratch.path(), &mut log).expect("searches");
    assert_eq!(choice.all.len(), Candidate::all(true).len());
    let tries = || choice.all.iter().filter(|one| one.candidate.kind().1 == "trie");
    assert!(tries().count() > 100 && tries().all(|one| one.rate > 1000.0 && one.cost.write_us > 0.0));
    assert!(picture::svg("ycsba", &choice).contains(">trie<"));
    let grid = search::grid(&wanted, &choice, Duration::from_millis(100), scratch.path(), &mut log)
        .expect("measures");
    let tries = || grid.last.iter().chain(&grid.others).filter(|(candidate, _)| candidate.kind().1 == "trie");
    assert!((4..=5).contains(&tries().count()), "{grid:?}");
    assert!(
        tries().all(|(_, outcome)| outcome.rate > 1000.0 && outcome.write_amplification > Some(0.0)),
        "{grid:?}"
    );
}

/// What everybody knows of layouts: the model knows it, too.
#[test]
fn what_is_predicted_goes_the_way_that_is_known() {
    let mut model = Model::default();
    let mut cost = |name: &str, candidate: Candidate| {
        model.cost(&candidate, &wanted(name, 5_000_000)).expect("it is allowed")
    };
    let usual = Candidate::default();
    let tiered = Candidate { layout: drumlin::Layout::TIERED, ..usual };
    let lazy = Candidate { layout: drumlin::Layout::LAZY_LEVELED, ..usual };
    let (of_leveled, of_tiered, of_lazy) = (cost("ycsba", usual), cost("ycsba", tiered), cost("ycsba", lazy));
    assert!(of_tiered.write_us < of_leveled.write_us && of_lazy.write_us < of_leveled.write_us);
    assert!(cost("ycsbe", usual).read_us < cost("ycsbe", tiered).read_us, "scans look into every run");
    let without = Candidate { filter_bits: 0.0, ..tiered };
    assert!(cost("readmissing", without).read_us > cost("readmissing", tiered).read_us * 2.0);
    let trie = Candidate { layout: drumlin::Layout::TRIE, ..usual };
    assert!(cost("ycsba", trie).write_us < cost("ycsba", usual).write_us, "once a level, not once a ratio");
    // A model keeps the shapes of one workload.
    let in_order = |candidate| {
        Model::default().cost(&candidate, &wanted("fillseq", 5_000_000)).expect("it is allowed").write_us
    };
    assert!(in_order(trie) > in_order(usual), "keys that come in order are moved, but hashes come in none");
    let small = Candidate { memtable_part: 16, ..usual };
    assert!(cost("fillrandom", small).write_us > cost("fillrandom", usual).write_us);
}
