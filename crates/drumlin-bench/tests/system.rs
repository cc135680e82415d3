//! What went through files is what the system counts: alone in its process, of which the system counts all that is written.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use clap::Parser;
use drumlin_bench::args::Bench;
use drumlin_bench::session::{Contender, run};
use drumlin_bench::store::Store;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    bench: Bench,
}

#[test]
fn what_went_through_files_is_what_the_system_counts() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["bench", "--benchmarks", "fillrandom", "--num", "300000", "--memory", "16"];
    let Program { bench } = Program::parse_from(arguments);
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
    .expect("it runs");
    let line = &lines[0];
    let counted = line.write_amplification.expect("counted") * line.user_bytes as f64;
    // The system counts pages, and none of a file system in memory.
    let Some(device) = line.device_written.filter(|bytes| *bytes > 0) else { return };
    let times = device as f64 / counted;
    assert!((0.9..1.5).contains(&times), "{times}: {line:?}");
}
