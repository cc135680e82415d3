//! Fourth section: a process is killed in the middle of a load, and nothing it was told is lost.
//!
//! The child is this program: `load --json - ...` into the same store. It prints `{"durable":N}` lines;
//! each is a promise. It is killed with SIGKILL while it loads; what it had printed by then is compared
//! with what the store holds afterwards.
//!
//! 1. The child is never given the last tenth of the table, so it cannot have finished when it is killed.
//! 2. Lines that the child had printed before it died count, also those read after the kill.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Instant;

use drumlin::Db;

use crate::escape::readable;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::open;
use crate::output;
use crate::progress::Bar;
use crate::tour::{CITIES, CRASH, Tour, keyspace_options, options, threads};

const SIGKILL: i32 = 9;

pub fn walk(tour: &mut Tour<'_>) -> Result<()> {
    tour.say.section("Kill it")?;
    tour.say.line(
        "A second process loads the table again and says on its standard output how many records are safe.",
    )?;
    tour.say.line("In the middle it gets SIGKILL: no handler, no goodbye.")?;
    let db = Db::open(tour.args.db(), options())?;
    let made = db.keyspace(CRASH, keyspace_options()).map(|_| ());
    open::close_after(db, made.map_err(Failure::from))?;

    let promised = load_and_kill(tour)?;
    let began = Instant::now();
    let db = Db::open(tour.args.db(), options())?;
    let seconds = began.elapsed().as_secs_f64();
    let compared = compare(tour, &db, promised, seconds);
    open::close_after(db, compared)
}

/// Runs the child until it has promised enough, kills it, and gives its last promise.
fn load_and_kill(tour: &Tour<'_>) -> Result<u64> {
    let program = std::env::current_exe()
        .map_err(|e| Failure::Check(format!("this program cannot find itself: {e}")))?;
    let mut child = Command::new(&program)
        .arg("--db")
        .arg(tour.args.db())
        .args(["--keyspace", CRASH, "--json", "--quiet", "load", "-", "--format", "tsv", "--key", "id"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::file("run", &program, error))?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Failure::Check("the second process has no pipes".into()));
    };
    let rows = tour.cities.len();
    let given = &tour.cities.table()[..tour.cities.offset(rows - rows / 10)];
    let bar = tour.watcher.records("loading", rows as u64);
    thread::scope(|scope| {
        let feeder = scope.spawn(move || feed(stdin, given));
        let promised = kill_at(&mut child, stdout, rows as u64 * 2 / 5, &bar);
        // Killed already, unless something failed: then the feeder must not wait for ever.
        let _ = child.kill();
        let status = child.wait().map_err(|e| Failure::Check(format!("the second process is lost: {e}")))?;
        drop(feeder.join());
        let promised = promised?;
        if status.signal() == Some(SIGKILL) {
            Ok(promised)
        } else {
            Err(Failure::Check(format!("the second process was to be killed, but ended: {status}")))
        }
    })
}

/// Gives the child its input. The pipe stays open, so that the child goes on waiting for more.
fn feed(mut stdin: ChildStdin, table: &[u8]) -> ChildStdin {
    // It fails when the child is killed: that is what it is there for.
    let _ = stdin.write_all(table);
    stdin
}

/// Reads promises; kills at the first of at least `enough`; then reads what is left.
fn kill_at(child: &mut Child, stdout: ChildStdout, enough: u64, bar: &Bar) -> Result<u64> {
    let mut promised = 0;
    let mut killed = false;
    let mut lines = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        lines
            .read_until(b'\n', &mut line)
            .map_err(|e| Failure::Check(format!("read from the second process: {e}")))?;
        // A line without its end was cut by the kill, and promises nothing.
        let Some(text) = line.strip_suffix(b"\n") else { break };
        promised = durable(text)
            .ok_or_else(|| Failure::Check(format!("the second process printed {}", readable(text))))?;
        bar.at(promised);
        if promised >= enough && !killed {
            child.kill().map_err(|e| Failure::Check(format!("kill: {e}")))?;
            killed = true;
        }
        interrupt::check()?;
    }
    if killed {
        Ok(promised)
    } else {
        Err(Failure::Check(format!("the second process ended by itself after {promised} records")))
    }
}

/// The figure of a `{"durable":N}` line.
fn durable(line: &[u8]) -> Option<u64> {
    let value: serde_json::Value = serde_json::from_slice(line).ok()?;
    value.get("durable")?.as_u64()
}

/// The store holds the beginning of the table, at least as long as promised, and all it held before.
fn compare(tour: &mut Tour<'_>, db: &Db, promised: u64, seconds: f64) -> Result<()> {
    let crash = db.open_keyspace(CRASH)?;
    let mut found = 0usize;
    for record in crash.iter()? {
        let (key, value) = record?;
        let right = found < tour.cities.len()
            && *key == *tour.cities.key(found)
            && *value == *tour.cities.line(found);
        if !right {
            return Err(Failure::Check(format!("record {found} after the kill is {}", readable(&key))));
        }
        found += 1;
    }
    tour.say
        .check(found as u64 >= promised, || format!("{promised} records were promised, {found} are there"))?;
    let cities = db.open_keyspace(CITIES)?.iter()?.try_fold(0, |n, record| record.map(|_| n + 1))?;
    tour.say.check(cities == tour.cities.len(), || {
        format!("{cities} of {} cities are left", tour.cities.len())
    })?;
    let world = threads::count_world(db)?;
    tour.say
        .check(world == tour.world, || format!("{} people before the kill, {world} after", tour.world))?;
    tour.say.line(format_args!(
        "  {} records promised, {} recovered: a prefix of the file, byte for byte",
        output::count(promised),
        output::count(found as u64)
    ))?;
    tour.say.line(format_args!(
        "  opening and recovering took {:.0} ms; the other keyspaces are unharmed",
        seconds * 1000.0
    ))?;
    tour.say.figure("promised", promised);
    tour.say.figure("recovered", found as u64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_promise_counts() {
        assert_eq!(durable(br#"{"durable":170391}"#), Some(170_391));
        for line in [&br#"{"durable":1703"#[..], b"", b"7", br#"{"durable":-1}"#, br#"{"n":1}"#] {
            assert_eq!(durable(line), None);
        }
    }
}
