//! `inspect`: one file of a store, taken apart.
//!
//! 1. The file is enough; of the store only `STORE` is looked for, which has the key of the checksums.
//! 2. What is wrong exits 3, and only what could not be checked exits 1, as with `verify`; what can be read is shown in
//!    spite of it.
//! 3. Pieces are printed as they are read, and what is true of the whole file comes last.

mod log;
mod manifest;
mod table;
mod values;

use std::path::Path;

use drumlin::Corruption;
use drumlin::inspect::TableInfo;
use serde_json::{Map, Value, json};

use crate::args::{Args, Depth, Inspect};
use crate::commands::verify;
use crate::escape;
use crate::failure::{Failure, Result};
use crate::keys::KeyForm;
use crate::output::{self, Output, bytes, count, plural};

/// What a file of a store is, by its name: as `inspect` calls it, and in words.
fn kind_by_name(file: &Path) -> Option<(&'static str, &'static str)> {
    let name = file.file_name()?.to_str()?;
    match file.extension().and_then(|end| end.to_str()) {
        Some("tbl") => Some(("table", "a table")),
        Some("val") => Some(("values", "a file of values")),
        Some("log") => Some(("log", "a log file")),
        _ if name.starts_with("MANIFEST-") => Some(("manifest", "a manifest")),
        _ => None,
    }
}

/// Refuses a file that is sound, and of another kind than was said.
fn check_kind(what: &Inspect) -> Result<()> {
    let (said, file) = match what {
        Inspect::Table { file, .. } => ("table", file),
        Inspect::Values { file, .. } => ("values", file),
        Inspect::Log { file, .. } => ("log", file),
        Inspect::Manifest { file, .. } => ("manifest", file),
    };
    match kind_by_name(file) {
        Some((kind, words)) if kind != said => {
            let file = file.display();
            Err(Failure::Usage(format!("{file} is {words}, by its name: drumlin inspect {kind} {file}")))
        }
        _ => Ok(()),
    }
}

pub fn run(args: &Args, what: &Inspect) -> Result<()> {
    check_kind(what)?;
    match what {
        Inspect::Table { file, blocks, depth } => table::run(args, file, *blocks, depth),
        Inspect::Values { file, depth } => values::run(args, file, depth),
        Inspect::Log { file, depth } => log::run(args, file, depth),
        Inspect::Manifest { file, depth } => manifest::run(args, file, depth),
    }
}

/// Prints pieces, up to the limit.
struct Pieces {
    out: Output,
    left: u64,
    passed_over: u64,
    failed: Option<Failure>,
}

impl Pieces {
    fn new(depth: &Depth) -> Pieces {
        let left = depth.limit.unwrap_or(u64::MAX);
        Pieces { out: Output::new(), left, passed_over: 0, failed: None }
    }

    /// Prints a piece if there is room for it. What goes wrong is told by [`Pieces::finish`].
    fn show(&mut self, line: impl FnOnce() -> String) {
        match self.left.checked_sub(1) {
            Some(left) if self.failed.is_none() => {
                self.left = left;
                self.failed = self.out.line(line()).err();
            }
            _ => self.passed_over += 1,
        }
    }

    /// Prints the whole behind the pieces, and fails if something is wrong with it.
    fn finish(
        mut self,
        args: &Args,
        file: &Path,
        whole: Whole<'_>,
        problems: &[Corruption],
        unchecked: &[String],
    ) -> Result<()> {
        if let Some(failure) = self.failed {
            return Err(failure);
        }
        match whole {
            Whole::Json(mut object) => {
                object.insert("file".into(), json!(file.to_string_lossy()));
                object.insert("problems".into(), problems.iter().map(problem).collect());
                object.insert("unchecked".into(), json!(unchecked));
                self.out.line(Value::Object(object))?;
            }
            Whole::Text(text) => {
                if !args.json && self.passed_over > 0 {
                    self.out.line(format_args!("... {} more", count(self.passed_over)))?;
                }
                self.out.text(text)?;
                for problem in problems {
                    self.out.line(verify::describe(problem))?;
                }
                for text in unchecked {
                    self.out.line(format_args!("not checked: {text}"))?;
                }
                if problems.is_empty() && unchecked.is_empty() {
                    self.out.line("sound: every checksum is right")?;
                }
            }
        }
        self.out.finish()?;
        let file = file.display();
        if !problems.is_empty() {
            let places = output::plural(problems.len() as u64, "corrupt place");
            return Err(Failure::Corrupt(format!("{places} in {file}")));
        }
        match unchecked.is_empty() {
            true => Ok(()),
            false => Err(Failure::Refused(format!("not all of {file} could be checked"))),
        }
    }
}

/// What is said of the whole file.
enum Whole<'a> {
    Text(&'a str),
    Json(Map<String, Value>),
}

fn problem(problem: &Corruption) -> Value {
    json!({"file": problem.path.to_string_lossy(), "offset": problem.offset, "what": problem.what})
}

/// The members of an object.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => Map::from_iter([("value".into(), other)]),
    }
}

/// Adds a key to an object, under a name that says whether it is text.
fn put_key(object: &mut Map<String, Value>, name: &str, key: &[u8], form: KeyForm) {
    match std::str::from_utf8(key) {
        Ok(text) if !form.hex => object.insert(name.into(), text.into()),
        _ => {
            let mut digits = Vec::new();
            escape::push_hex(&mut digits, key);
            object.insert(format!("{name}_hex"), String::from_utf8_lossy(&digits).into())
        }
    };
}

/// What a table holds, as an object.
fn table_object(table: &TableInfo, form: KeyForm) -> Value {
    let mut found = object(json!({
        "id": table.id, "entries": table.entries, "deletes": table.deletes,
        "range_tombstones": table.range_tombstones, "largest_exclusive": table.largest_exclusive,
        "min_lsn": table.min_lsn, "max_lsn": table.max_lsn, "raw_bytes": table.raw_bytes,
        "created_at_ms": table.created_at_ms,
    }));
    if !table.file.is_empty() {
        found.insert("file".into(), json!(table.file));
        found.insert("file_bytes".into(), json!(table.file_bytes));
    }
    put_key(&mut found, "smallest", &table.smallest, form);
    put_key(&mut found, "largest", &table.largest, form);
    Value::Object(found)
}

/// What a table holds, in words. Of keys that stand behind their hashes, whose order is none to a user, the hashes are told.
fn table_words(table: &TableInfo, form: KeyForm, is_placed: bool) -> String {
    let mut words = plural(table.entries, "version");
    if table.deletes > 0 {
        words.push_str(&format!(" ({})", plural(table.deletes, "delete")));
    }
    if table.range_tombstones > 0 {
        words.push_str(&format!(", {}", plural(table.range_tombstones, "range delete")));
    }
    let [smallest, largest] = [&table.smallest, &table.largest].map(|key| match key.split_first_chunk() {
        Some((place, _)) if is_placed => format!("{:016x}", u64::from_be_bytes(*place)),
        _ => form.readable(key),
    });
    let what = if is_placed { "hashes" } else { "keys" };
    let end = if table.largest_exclusive { " (exclusive)" } else { "" };
    words.push_str(&format!(", {what} {smallest} to {largest}{end}"));
    words
}

/// A part's place and size in words.
fn at(offset: u64, size: u64) -> String {
    format!("{} at byte {offset}", bytes(size))
}
