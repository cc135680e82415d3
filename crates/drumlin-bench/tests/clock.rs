//! When the clock of a run begins and ends, with an engine that takes its time where the test says so.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser;
use drumlin_bench::args::Bench;
use drumlin_bench::drive::{Measured, Progress, drive};
use drumlin_bench::engine::{Change, Engine, Result, SeeRecord, SeeValue, Traffic};
use drumlin_bench::workload::Workload;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    bench: Bench,
}

/// Forgets everything; one put and the settling take long.
#[derive(Default)]
struct Slow {
    puts: AtomicU64,
    /// The put that stalls.
    stalls_at: u64,
    stall: Duration,
    settling: Duration,
}

impl Engine for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }
    fn settings(&self) -> String {
        String::new()
    }
    fn put(&self, _key: &[u8], _value: &[u8]) -> Result<()> {
        if self.puts.fetch_add(1, Ordering::Relaxed) == self.stalls_at {
            std::thread::sleep(self.stall);
        }
        Ok(())
    }
    fn put_many(&self, records: &[(Vec<u8>, &[u8])]) -> Result<()> {
        records.iter().try_for_each(|(key, value)| self.put(key, value))
    }
    fn delete(&self, _key: &[u8]) -> Result<()> {
        Err("deletes fail".into())
    }
    fn get(&self, _key: &[u8], _see: SeeValue<'_>) -> Result<bool> {
        Ok(false)
    }
    fn get_many(&self, _keys: &[Vec<u8>], _see: SeeValue<'_>) -> Result<usize> {
        Ok(0)
    }
    fn scan(&self, _from: &[u8], _limit: usize, _reverse: bool, _see: SeeRecord<'_>) -> Result<usize> {
        Ok(0)
    }
    fn update(&self, _key: &[u8], _change: Change<'_>) -> Result<()> {
        Ok(())
    }
    fn put_if_absent(&self, _key: &[u8], _value: &[u8]) -> Result<bool> {
        Ok(true)
    }
    fn settle(&self) -> Result<()> {
        std::thread::sleep(self.settling);
        Ok(())
    }
    fn debt_bytes(&self) -> Option<u64> {
        None
    }
    fn traffic(&self) -> Option<Traffic> {
        None
    }
}

fn run(engine: &Slow, workload: &str, arguments: &[&str]) -> Result<Measured> {
    let Program { bench } = Program::try_parse_from(["bench"].iter().chain(arguments)).expect("parses");
    let workload = Workload::named(workload).expect("it is there");
    drive(engine, workload, &bench.plan(workload), &Progress::default())
}

#[test]
fn the_drained_time_ends_when_the_engine_has_settled() {
    let slow = Slow { settling: Duration::from_millis(100), ..Slow::default() };
    let measured = run(&slow, "fillrandom", &["--num", "100"]).expect("nothing fails");
    assert!(measured.drained >= measured.burst + slow.settling, "{:?}", (measured.burst, measured.drained));
}

#[test]
fn a_stall_in_an_open_loop_delays_all_that_was_due_meanwhile() {
    let slow = || Slow { stalls_at: 10, stall: Duration::from_millis(200), ..Slow::default() };
    let median = |arguments: &[&str]| {
        let measured = run(&slow(), "fillrandom", arguments).expect("nothing fails");
        measured.latencies[0].1.percentiles().p50_ns
    };
    // A thousand a second: 200 of the 240 were due while the tenth stood still, a half of them for 80 ms or more.
    assert!(median(&["--num", "240", "--rate", "1000"]) > 50_000_000);
    assert!(median(&["--num", "240"]) < 50_000_000, "in a closed loop they begin later");
}

#[test]
fn a_run_ends_when_its_time_is_over_and_at_the_first_error() {
    let arguments = ["--num", "1000000000", "--duration", "0.05", "--threads", "2"];
    let measured = run(&Slow::default(), "fillrandom", &arguments).expect("nothing fails");
    assert!(measured.operations < 1_000_000_000 && measured.burst < Duration::from_secs(20));
    let error = run(&Slow::default(), "mixbalanced", &["--num", "1000000000", "--threads", "2"]);
    assert_eq!(error.err().expect("a delete comes soon").to_string(), "deletes fail");
}
