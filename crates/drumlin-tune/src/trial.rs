//! A trial: a candidate measured, on a store of its own that is gone afterwards.
//!
//! Place: `search` asks for it, at growing sizes.
//!
//! 1. A workload that begins with records finds them, put in random order, with nothing owed.
//! 2. What is written is paid for: its time ends when nothing is owed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use drumlin_bench::drive::{Measured, Plan, Progress, drive};
use drumlin_bench::engine::Result;
use drumlin_bench::store::Store;
use drumlin_bench::workload::{Begins, Workload};

use crate::candidate::Candidate;
use crate::wanted::{SCAN_LENGTH, Wanted};

/// Bytes of a block by which workloads tell hot blocks from cold ones, whatever the candidate's are.
const HOT_BLOCK: usize = 4096;

/// What a trial said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Operations a second, until nothing was owed if something was written.
    pub rate: f64,
    /// Bytes of tables written for each byte of the user's, if something was written.
    pub write_amplification: Option<f64>,
}

/// Measures a candidate for so long, in `directory`, which is gone afterwards.
pub fn run(
    candidate: &Candidate,
    wanted: &Wanted,
    time: Duration,
    directory: &Path,
    progress: &Progress,
) -> Result<Outcome> {
    let outcome = measured(candidate, wanted, time, directory, progress);
    let removed = fs::remove_dir_all(directory);
    let outcome = outcome?;
    removed?;
    Ok(outcome)
}

fn measured(
    candidate: &Candidate,
    wanted: &Wanted,
    time: Duration,
    directory: &Path,
    progress: &Progress,
) -> Result<Outcome> {
    fs::create_dir_all(directory)?;
    let store = Store::open(directory, &candidate.settings(&wanted.fixed))?;
    let plan = Plan {
        keys: wanted.records,
        span: None,
        operations: u64::MAX,
        at_most: Some(time),
        threads: wanted.threads,
        rate: None,
        batch: 1,
        together: 1,
        scan_length: SCAN_LENGTH,
        key_bytes: wanted.key_bytes,
        value_bytes: wanted.value_bytes,
        compression_ratio: wanted.compression_ratio,
        block_keys: (HOT_BLOCK / (wanted.key_bytes + wanted.value_bytes)).max(1) as u64,
        seed: wanted.seed,
        pass: 0,
    };
    let workload = wanted.workload;
    let filled = match workload.begins {
        Begins::Empty => 0,
        Begins::Half => wanted.records / 2,
        Begins::Full => wanted.records,
    };
    if filled > 0 {
        let fill = Workload::named("filluniquerandom").expect("it is in the table");
        drive(&store, fill, &Plan { operations: filled, at_most: None, ..plan.clone() }, progress)?;
    }
    let plan = match workload.begins {
        // Of an empty store: as many as make it full.
        Begins::Empty => Plan { operations: workload.operations(wanted.records), at_most: None, ..plan },
        _ if workload.is_of_every_key() => Plan { operations: wanted.records, at_most: None, ..plan },
        _ => plan,
    };
    let found = drive(&store, workload, &plan, progress)?;
    store.close()?;
    Ok(outcome_of(workload, &found))
}

fn outcome_of(workload: &Workload, measured: &Measured) -> Outcome {
    let writes = workload.mix.iter().any(|(kind, _)| kind.writes());
    let time = if writes { measured.drained } else { measured.burst };
    let written = measured.traffic.map(|traffic| (traffic.written - traffic.logged) as f64);
    let user = measured.user_bytes as f64;
    Outcome {
        rate: measured.operations as f64 / time.as_secs_f64().max(1e-9),
        write_amplification: written.filter(|_| user > 0.0).map(|written| written / user),
    }
}
