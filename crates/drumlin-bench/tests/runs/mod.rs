//! What tests of whole runs share: a bench on a small store, and its lines.

use clap::Parser;
use drumlin_bench::args::Bench;
use drumlin_bench::report::Line;
use drumlin_bench::session::{Contender, run};
use drumlin_bench::store::Store;

#[derive(Parser)]
pub struct Program {
    #[command(flatten)]
    pub bench: Bench,
}

pub fn lines(arguments: &[&str]) -> Vec<Line> {
    let directory = tempfile::tempdir().expect("a directory");
    let Program { bench } =
        Program::try_parse_from(["bench"].iter().chain(arguments)).unwrap_or_else(|error| panic!("{error}"));
    let settings = bench.settings();
    let contender = Contender {
        name: "drumlin",
        directory: directory.path().join("drumlin"),
        open: Box::new(move |directory| Ok(Box::new(Store::open(directory, &settings)?))),
    };
    let mut lines = Vec::new();
    run(&bench, &[contender], false, &|_, _, _, _| (), &mut |line| {
        lines.push(line);
        Ok(())
    })
    .unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 0, "nothing is left behind");
    lines
}
