//! Rounds begin anew, but for stores that are only read.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use std::cell::RefCell;
use std::path::Path;

use clap::Parser;
use drumlin_bench::args::Bench;
use drumlin_bench::session::{Contender, run};
use drumlin_bench::store::Store;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    bench: Bench,
}

/// What happens in three rounds of two engines, in its order: an `open` of an empty store, a `line`.
fn story(benchmarks: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["bench", "--benchmarks", benchmarks, "--num", "2000", "--memory", "16", "--rounds", "3"];
    let Program { bench } = Program::try_parse_from(arguments).unwrap_or_else(|error| panic!("{error}"));
    let settings = bench.settings();
    let told = RefCell::new(Vec::new());
    let contender = |name: &'static str| Contender {
        name,
        directory: directory.path().join(name),
        open: Box::new(|directory: &Path| {
            let name = directory.file_name().expect("it has one").to_string_lossy().into_owned();
            told.borrow_mut().push(format!("open {name}"));
            Ok(Box::new(Store::open(directory, &settings)?))
        }),
    };
    run(&bench, &[contender("a"), contender("b")], false, &|_, _, _, _| (), &mut |line| {
        told.borrow_mut().push(format!("{} {}", line.round, line.workload));
        Ok(())
    })
    .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 0, "nothing is left behind");
    told.into_inner().join(", ")
}

#[test]
fn a_store_that_is_only_read_is_filled_once() {
    assert_eq!(
        story("readrandom,readmissing"),
        "open a, 1 readrandom, 1 readmissing, open b, 1 readrandom, 1 readmissing, \
         2 readrandom, 2 readmissing, 2 readrandom, 2 readmissing, \
         3 readrandom, 3 readmissing, 3 readrandom, 3 readmissing"
    );
}

#[test]
fn a_store_that_is_written_begins_each_round_anew() {
    assert_eq!(
        story("overwrite,readrandom"),
        "open a, 1 overwrite, 1 readrandom, open b, 1 overwrite, 1 readrandom, \
         open a, 2 overwrite, 2 readrandom, open b, 2 overwrite, 2 readrandom, \
         open a, 3 overwrite, 3 readrandom, open b, 3 overwrite, 3 readrandom"
    );
}
