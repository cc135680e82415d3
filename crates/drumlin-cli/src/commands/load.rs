//! `load FILE|-`: the command around the loader: its input, its words, its exit code.
//!
//! 1. The input and its key column are looked at before a store is made.
//! 2. `{"durable":N}` is a whole line, flushed, printed only after N records are acknowledged; the last
//!    one stands however the load ends.
//! 3. A bad line stops the load (exit 1); with `--skip-bad` it is counted, and the first few are reported. Then
//!    the last line of JSON has their number too: `{"durable":N,"skipped":M}`. With `--json` each report is a note
//!    in JSON, with the number of its line.
//! 4. If the reader of these lines goes away, the load goes on: it was asked to load, the lines are extra.
//!
//! Tests: `tests/load.rs`, `tests/durable.rs`.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use crate::args::{self, Args, Load};
use crate::failure::{Failure, Result};
use crate::input::{BadLine, Records, Stream, Unusable};
use crate::interrupt;
use crate::loader::{self, Loaded, Stop, Watch};
use crate::open;
use crate::output::{self, Output};
use crate::progress::{Bar, Watcher};
use crate::report::{self, Note};

/// Bad lines reported one by one; the rest are only counted.
const BAD_SHOWN: u64 = 10;

pub fn run(args: &Args, load: &Load) -> Result<()> {
    let name = match load.file.to_str() {
        Some("-") => "standard input".into(),
        _ => load.file.display().to_string(),
    };
    let (input, size) = open_input(&load.file)?;
    let key = load.key.as_deref().map(args::bytes).unwrap_or_default();
    let mut records = match Records::begin(input, load.format, key, load.no_header) {
        Ok(records) => records,
        Err(Unusable::Io(error)) => {
            interrupt::check()?;
            return Err(Failure::file("read", Path::new(&name), error));
        }
        Err(Unusable::Gzip) => {
            return Err(Failure::Input(format!(
                "{name} is packed by gzip; unpack it on the way: {}",
                unpacking(args, load)
            )));
        }
        Err(Unusable::Column(why)) => return Err(Failure::Input(format!("{name}: {why}"))),
        Err(Unusable::Usage(why)) => return Err(Failure::Usage(why)),
    };
    let (db, keyspace) = open::write_keyspace(args, &load.made)?;
    let watcher = Watcher::new(args.quiet);
    let bar = match size {
        Some(bytes) => watcher.bytes("loading", bytes),
        None => watcher.counter("loading"),
    };
    let mut teller = Teller {
        name: &name,
        bar,
        by_bytes: size.is_some(),
        json: args.json,
        lines: Lines::new(args.json),
        skip: load.skip_bad,
        bad: 0,
    };
    let began = Instant::now();
    let (done, ended) = loader::load(&mut records, &keyspace, &mut teller);
    let told = teller.lines.end(done, load.skip_bad);
    drop(teller);
    let result = match ended {
        Ok(()) => told,
        Err(stop) => {
            let cause = match stop {
                Stop::Bad(bad) => Failure::Input(format!("{name}: line {}: {}", bad.line, bad.why)),
                Stop::Read(error) => Failure::file("read", Path::new(&name), error),
                Stop::Failed(failure) => failure,
            };
            Err(Failure::Stopped { cause: Box::new(cause), durable: done.records })
        }
    };
    open::close_after(db, result)?;
    ended_well(args, &name, done, began.elapsed().as_secs_f64())
}

/// The end of a load that reached the end of its input.
fn ended_well(args: &Args, name: &str, done: Loaded, seconds: f64) -> Result<()> {
    let mut out = Output::new();
    if !args.json {
        if done.skipped > 0 {
            let skipped = output::plural(done.skipped, "bad line");
            report::note(&Note::new(format!("{name}: {skipped} skipped")), false);
        }
        let (records, bytes) = (output::plural(done.records, "record"), output::bytes(done.bytes));
        out.line(format_args!("loaded {records} ({bytes}) in {seconds:.1} s"))?;
    }
    out.finish()
}

/// The command that unpacks the input and loads it.
fn unpacking(args: &Args, load: &Load) -> String {
    let word = |word: &OsStr| output::quoted(&word.to_string_lossy());
    let mut command = match load.file.to_str() {
        Some("-") => "gzip -dc".into(),
        _ => format!("gzip -dc {}", word(load.file.as_os_str())),
    };
    command.push_str(&format!(" | drumlin --db {} ", word(args.db().as_os_str())));
    if let Some(keyspace) = args.keyspace_named() {
        command.push_str(&format!("--keyspace {} ", output::quoted(keyspace)));
    }
    command.push_str(&format!("load - --format {}", load.format.name()));
    if let Some(key) = &load.key {
        command.push_str(&format!(" --key {}", word(key)));
    }
    for (given, option) in [(load.no_header, " --no-header"), (load.skip_bad, " --skip-bad")] {
        command.push_str(if given { option } else { "" });
    }
    command
}

/// The input, and its size if it is a plain file.
fn open_input(path: &Path) -> Result<(Box<dyn Read>, Option<u64>)> {
    if path.as_os_str() == "-" {
        let stream = Stream::standard_input()
            .map_err(|error| Failure::file("read", Path::new("standard input"), error))?;
        return Ok((Box::new(stream), None));
    }
    let file = File::open(path).map_err(|error| Failure::file("open", path, error))?;
    let metadata = file.metadata().map_err(|error| Failure::file("read", path, error))?;
    if metadata.is_file() {
        Ok((Box::new(file), Some(metadata.len())))
    } else {
        let stream = Stream::new(file).map_err(|error| Failure::file("read", path, error))?;
        Ok((Box::new(stream), None))
    }
}

/// Tells the bar, the reader of JSON lines, and the user.
struct Teller<'a> {
    name: &'a str,
    bar: Bar,
    by_bytes: bool,
    json: bool,
    lines: Lines,
    skip: bool,
    bad: u64,
}

impl Watch for Teller<'_> {
    fn progress(&mut self, done: Loaded) -> Result<()> {
        self.bar.at(if self.by_bytes { done.bytes } else { done.records });
        self.bar.say(if self.by_bytes { output::plural(done.records, "record") } else { "records".into() });
        self.lines.tell(done.records)
    }

    fn bad_line(&mut self, bad: &BadLine) -> bool {
        if !self.skip {
            return false;
        }
        self.bad += 1;
        let note = if self.bad <= BAD_SHOWN {
            Note::of_line(bad.line, format!("{}: line {}: {}: skipped", self.name, bad.line, bad.why))
        } else if self.bad == BAD_SHOWN + 1 {
            Note::new(format!("{}: more bad lines; only their number will be told", self.name))
        } else {
            return true;
        };
        self.bar.aside(|| report::note(&note, self.json));
        true
    }
}

/// The `{"durable":N}` lines.
struct Lines {
    /// `None` without `--json`, or when nobody reads any more.
    out: Option<Output>,
    last: Option<u64>,
}

impl Lines {
    fn new(wanted: bool) -> Self {
        Lines { out: wanted.then(Output::new), last: None }
    }

    /// Prints that so many records are durable, and hands it over.
    fn tell(&mut self, records: u64) -> Result<()> {
        self.last = Some(records);
        self.print(format_args!(r#"{{"durable":{records}}}"#))
    }

    fn print(&mut self, line: fmt::Arguments<'_>) -> Result<()> {
        let Some(out) = &mut self.out else { return Ok(()) };
        match out.line(line).and_then(|()| out.flush()) {
            Err(Failure::OutputClosed) => {
                self.out = None;
                Ok(())
            }
            told => told,
        }
    }

    /// Prints the last figure, if it is not printed already; and what was skipped, if that was allowed.
    fn end(&mut self, done: Loaded, skip: bool) -> Result<()> {
        match (skip, self.last == Some(done.records)) {
            (true, _) => {
                self.print(format_args!(r#"{{"durable":{},"skipped":{}}}"#, done.records, done.skipped))
            }
            (false, true) => Ok(()),
            (false, false) => self.tell(done.records),
        }
    }
}
