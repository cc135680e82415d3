//! One measurement, run by run: a program started, its lines kept as they come.
//!
//! Place: called by `main` for what is not there yet.
//!
//! 1. Runs of `drumlin bench` take turns round by round, so that a noisy minute hurts all alike; the peers' program does so by
//!    itself, engine by engine.
//! 2. A piece is one start of a program. What it said counts only if it ended well.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use drumlin_bench::report::grouped;
use indicatif::ProgressBar;
use serde_json::Value;

use crate::Result;
use crate::kept::{Made, Place, Unfinished, target};
use crate::measurements::{Measurement, Program};

/// The programs, built when they are needed first.
pub struct Programs {
    root: PathBuf,
    /// Where they make stores.
    stores: PathBuf,
    drumlin: Option<PathBuf>,
    peers: Option<PathBuf>,
}

impl Programs {
    /// Those of the tree at `root`; `peers`, if that is built already.
    pub fn new(root: &Path, stores: &Path, peers: Option<PathBuf>) -> Programs {
        Programs { root: root.into(), stores: stores.into(), drumlin: None, peers }
    }

    /// The program, and what it is to be told before the arguments of a run.
    fn command(&mut self, program: Program) -> Result<Command> {
        let (path, first): (PathBuf, &[&str]) = match program {
            Program::Peers => (self.peers()?, &["--json"]),
            Program::Bench => (self.drumlin()?, &["--json", "--quiet", "bench"]),
            Program::Limits => (self.drumlin()?, &["--json", "--quiet", "limits"]),
            Program::Simulate => (self.drumlin()?, &["--json", "--quiet", "simulate"]),
            Program::Tune => (self.drumlin()?, &["--json", "--quiet", "tune"]),
        };
        let mut command = Command::new(path);
        command.args(first).env("TMPDIR", &self.stores).stdin(Stdio::null());
        Ok(command)
    }

    fn drumlin(&mut self) -> Result<PathBuf> {
        if let Some(built) = &self.drumlin {
            return Ok(built.clone());
        }
        build(&self.root, &["build", "--quiet", "--release", "-p", "drumlin-cli"])?;
        Ok(self.drumlin.insert(target(&self.root).join("release/drumlin")).clone())
    }

    fn peers(&mut self) -> Result<PathBuf> {
        if let Some(built) = &self.peers {
            return Ok(built.clone());
        }
        let workspace = self.root.join("peers");
        if !workspace.is_dir() {
            return Err("there is no peers/: other engines cannot take part".into());
        }
        build(&workspace, &["build", "--quiet", "--release"])?;
        Ok(self.peers.insert(target(&workspace).join("release/drumlin-peers")).clone())
    }
}

fn build(directory: &Path, arguments: &[&str]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).current_dir(directory).args(arguments).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo {}: {status}", arguments.join(" "))),
        Err(error) => Err(format!("start cargo: {error}")),
    }
}

/// Measures what is left of `measurement`, and keeps it.
pub fn run(
    measurement: &Measurement,
    made: &Made,
    place: &Place,
    programs: &mut Programs,
    again: bool,
    bar: &ProgressBar,
) -> Result<()> {
    // Before anything is begun: building takes long, and may fail.
    drop(programs.command(measurement.program)?);
    let mut unfinished = Unfinished::open(place, made, again)?;
    let takes_turns = measurement.program == Program::Bench;
    let turns = if takes_turns { made.rounds } else { 1 };
    let pieces = (1..=turns).flat_map(|round| made.pieces.iter().map(move |piece| (round, piece)));
    let already = unfinished.done as usize;
    if already == 0 {
        made.told.iter().try_for_each(|line| unfinished.line(line))?;
    }
    for (round, (run, words)) in pieces.skip(already) {
        let mut command = programs.command(measurement.program)?;
        command.args(words);
        if measurement.program == Program::Peers {
            command.arg("--rounds").arg(made.rounds.to_string());
        }
        listen(&mut command, &mut |mut line| {
            line["run"] = (*run).into();
            if takes_turns {
                line["round"] = round.into();
            }
            bar.set_message(summary(&line));
            unfinished.line(&line)
        })?;
        unfinished.piece()?;
    }
    unfinished.finish(place)
}

/// A line for someone who watches.
fn summary(line: &Value) -> String {
    let text = |name: &str| line[name].as_str().unwrap_or_default();
    match line["rate"].as_f64() {
        Some(rate) => {
            format!("{} {} round {}: {}/s", text("engine"), text("workload"), line["round"], grouped(rate))
        }
        None => text("name").to_string(),
    }
}

/// Starts a program and hands over its lines; an error has its last words.
fn listen(command: &mut Command, on_line: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("start {}: {e}", command.get_program().display()))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let words = std::thread::spawn(move || {
        let mut words = String::new();
        // What cannot be read is not told.
        let _ = err.map(|mut err| err.read_to_string(&mut words));
        words
    });
    let mut told = Ok(());
    for line in out.map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        told = line
            .map_err(|e| format!("read a line: {e}"))
            .and_then(|line| serde_json::from_str(&line).map_err(|e| format!("`{line}` is no JSON: {e}")))
            .and_then(&mut *on_line);
        if told.is_err() {
            // It ends by itself when nobody listens; this is sooner.
            let _ = child.kill();
            break;
        }
    }
    let status = child.wait().map_err(|e| format!("wait: {e}"))?;
    // Of who was killed nobody asks for last words, which others may hold up.
    told?;
    let words = words.join().unwrap_or_default();
    match status.success() {
        true => Ok(()),
        false => Err(format!("{status}: {}", words.trim().lines().last().unwrap_or("it said nothing"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(script: &str) -> Result<Vec<Value>> {
        let mut lines = Vec::new();
        listen(Command::new("sh").args(["-c", script]), &mut |line| {
            lines.push(line);
            Ok(())
        })?;
        Ok(lines)
    }

    #[test]
    fn lines_count_only_if_the_program_ended_well() {
        assert_eq!(lines("echo '{\"rate\":1}'; echo 2").expect("well").len(), 2);
        let failed = lines("echo 1; echo 'it broke' >&2; exit 3").expect_err("it failed");
        assert!(failed.contains("it broke") && failed.contains('3'), "{failed}");
        let began = std::time::Instant::now();
        assert!(lines("echo no json; sleep 60; echo").expect_err("no JSON").contains("no json"));
        assert!(began.elapsed().as_secs() < 30, "it must not be waited for");
    }
}
