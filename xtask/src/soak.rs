//! `cargo x soak`: the tests of `cargo test`, made heavy.
//!
//! Place: called by `main`. Each soak is an ordinary test that reads its number of rounds from one
//! variable of the environment, so that the light form runs in every `cargo test` and both stay one code.

use crate::process::{cargo, show};
use crate::tree;

struct Soak {
    name: &'static str,
    shows: &'static str,
    variable: &'static str,
    rounds: u64,
    test: &'static [&'static str],
}

const SOAKS: &[Soak] = &[
    Soak {
        name: "kill",
        shows: "an acknowledgement printed before SIGKILL is there afterwards (4 writers)",
        variable: "DRUMLIN_KILL_ROUNDS",
        rounds: 200,
        test: &["--test", "kill"],
    },
    Soak {
        name: "crash",
        shows: "a crash at every call and between leaves a prefix with all that was acknowledged; rounds are seeds",
        variable: "DRUMLIN_CRASH_ROUNDS",
        rounds: 8,
        test: &["--lib", "db::tests::crash"],
    },
    Soak {
        name: "writers",
        shows: "writers side by side, crashed at any moment, leave one prefix; rounds are forties of seeds",
        variable: "DRUMLIN_CRASH_ROUNDS",
        rounds: 10,
        test: &["--lib", "db::tests::writers"],
    },
    Soak {
        name: "faults",
        shows: "every call fails once, in every way, and nothing is lost; rounds are seeds",
        variable: "DRUMLIN_FAULT_ROUNDS",
        rounds: 3,
        test: &["--lib", "db::tests::failures"],
    },
    Soak {
        name: "rot",
        shows: "damaged bytes are found or harmless; not rounds but the stride: 1 is every byte",
        variable: "DRUMLIN_ROT_STRIDE",
        rounds: 1,
        test: &["--lib", "db::tests::rot"],
    },
    Soak {
        name: "linearizability",
        shows: "recorded histories are linearizable (8 threads, batches, snapshots); rounds are millions of operations",
        variable: "DRUMLIN_HISTORY_MILLIONS",
        rounds: 10,
        test: &["--test", "linearizability"],
    },
    Soak {
        name: "memory",
        shows: "resident memory keeps to the budget while ten times as much is written; rounds are the budget in MiB",
        variable: "DRUMLIN_MEMORY_MIB",
        rounds: 64,
        test: &["--test", "memory"],
    },
    Soak {
        name: "hot",
        shows: "updates of a hundred keys keep to memory and log, and flush next to nothing; rounds are millions of updates",
        variable: "DRUMLIN_HOT_MILLIONS",
        rounds: 100,
        test: &["--test", "two_tier"],
    },
];

/// Runs the named soak, or lists them.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let Some(name) = arguments.first() else {
        for soak in SOAKS {
            println!("  {:16} {} [{} rounds]", soak.name, soak.shows, soak.rounds);
        }
        println!("  {:16} every one of them in turn", "all");
        return Ok(());
    };
    let rounds = match arguments.get(1) {
        Some(text) => Some(text.parse::<u64>().map_err(|_| format!("soak: not a number of rounds: {text}"))?),
        None => None,
    };
    let chosen: Vec<&Soak> = SOAKS.iter().filter(|s| name == "all" || s.name == name).collect();
    if chosen.is_empty() {
        return Err(format!("soak: no soak named {name}; `cargo x soak` lists them"));
    }
    for soak in chosen {
        let rounds = rounds.unwrap_or(soak.rounds).to_string();
        println!("==> soak {}: {} rounds: {}", soak.name, rounds, soak.shows);
        let mut command = cargo(&tree::root(), &["test", "--release", "-p", "drumlin"]);
        command.args(soak.test).args(["--", "--nocapture", "--test-threads=1"]).env(soak.variable, rounds);
        show(soak.name, &mut command)?;
    }
    Ok(())
}
