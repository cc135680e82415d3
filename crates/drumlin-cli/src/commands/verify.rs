//! `verify`: reads every byte of the store and checks every checksum.
//!
//! 1. A sound store exits 0, also after a process died with it open. Nothing is repaired.
//! 2. Wrong bytes exit 3; each place is printed with its file and the offset of the block.
//! 3. A store that is too rotten to open is reported in the same form: every file is checked that can be by itself.
//! 4. What could not be checked is told. If that alone keeps the store from being sound, the exit is 1.
//! 5. Tables and log files are counted apart, as `stats` counts them; but segments that are no longer needed,
//!    as a kill may leave them, are not read. The bar goes over the tables alone: how much of
//!    the log there is to read is known only when it has been read.

use std::collections::BTreeSet;

use drumlin::{Corruption, Db, Options, VerifyReport};

use crate::args::Args;
use crate::escape;
use crate::failure::{Failure, Result};
use crate::output::{self, Output};
use crate::progress::Watcher;

/// What a table's name ends with.
const TABLE: &str = "tbl";
/// The same of value files.
const VALUES: &str = "val";

pub fn run(args: &Args) -> Result<()> {
    let (report, kinds) = verify(args)?;
    let mut out = Output::new();
    if args.json {
        out.bytes(&json(&report, kinds))?;
    } else {
        for problem in &report.problems {
            out.line(describe(problem))?;
        }
        for remark in &report.remarks {
            out.line(format_args!("note: {remark}"))?;
        }
        for unchecked in &report.unchecked {
            out.line(format_args!("not checked: {unchecked}"))?;
        }
        let files = count(&report, kinds);
        let bytes = output::bytes(report.bytes);
        if report.is_sound() {
            out.line(format_args!("sound: the manifest, and every byte of {files} ({bytes})"))?;
        } else {
            let sound = if report.files > 0 { "; the rest of them is sound" } else { "" };
            out.line(format_args!("checked: {files} ({bytes}){sound}"))?;
        }
    }
    out.finish()?;
    if report.is_sound() {
        return Ok(());
    }
    if report.problems.is_empty() {
        return Err(Failure::Refused(format!(
            "not all of the store at {} could be checked",
            args.db().display()
        )));
    }
    Err(Failure::Corrupt(format!(
        "{} in the store at {}",
        output::plural(report.problems.len() as u64, "corrupt place"),
        args.db().display()
    )))
}

/// Of the files that were read, how many are not the log's.
#[derive(Clone, Copy, Default)]
struct Kinds {
    tables: usize,
    values: usize,
}

/// What was found, and what the files are.
fn verify(args: &Args) -> Result<(VerifyReport, Kinds)> {
    let bar = Watcher::new(args.quiet).bytes("verifying", 0);
    bar.say("of tables".into());
    let mut seen = BTreeSet::new();
    let mut kinds = Kinds::default();
    let report = Db::verify_directory(args.db(), Options::default(), &mut |progress| {
        bar.total(progress.bytes_total);
        bar.at(progress.bytes);
        if !seen.contains(&progress.file) {
            seen.insert(progress.file.clone());
            let is = |end: &str| usize::from(progress.file.extension().is_some_and(|found| found == end));
            kinds.tables += is(TABLE);
            kinds.values += is(VALUES);
        }
    })?;
    Ok((report, kinds))
}

/// The files that were read, for people.
fn count(report: &VerifyReport, kinds: Kinds) -> String {
    let Kinds { tables, values } = kinds;
    let log_files = report.files.saturating_sub(tables + values) as u64;
    let values = match values {
        0 => String::new(),
        some => format!(", {}", output::plural(some as u64, "value file")),
    };
    format!(
        "{}{values} and {}",
        output::plural(tables as u64, "table"),
        output::plural(log_files, "log file")
    )
}

/// One wrong place: file, block, and what is wrong.
pub fn describe(problem: &Corruption) -> String {
    let place = match problem.offset {
        Some(offset) => format!(", block at byte {offset}"),
        None => String::new(),
    };
    format!("corrupt: {}{place}: {}", problem.path.display(), problem.what)
}

fn json(report: &VerifyReport, kinds: Kinds) -> Vec<u8> {
    let Kinds { tables, values } = kinds;
    let mut line = format!(
        r#"{{"sound":{},"files":{},"tables":{tables},"value_files":{values},"log_files":{},"bytes":{},"problems":["#,
        report.is_sound(),
        report.files,
        report.files.saturating_sub(tables + values),
        report.bytes
    )
    .into_bytes();
    for (at, problem) in report.problems.iter().enumerate() {
        line.extend_from_slice(if at > 0 { b",{" } else { b"{" });
        escape::push_member(&mut line, "file", problem.path.as_os_str().as_encoded_bytes());
        match problem.offset {
            Some(offset) => line.extend_from_slice(format!(r#","offset":{offset},"what":"#).as_bytes()),
            None => line.extend_from_slice(br#","offset":null,"what":"#),
        }
        escape::push_string(&mut line, &problem.what);
        line.push(b'}');
    }
    line.push(b']');
    for (name, texts) in [("unchecked", &report.unchecked), ("remarks", &report.remarks)] {
        line.extend_from_slice(format!(r#","{name}":["#).as_bytes());
        for (at, text) in texts.iter().enumerate() {
            line.extend_from_slice(if at > 0 { b"," } else { b"" });
            escape::push_string(&mut line, text);
        }
        line.push(b']');
    }
    line.extend_from_slice(b"}\n");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(offset: Option<u64>) -> Corruption {
        Corruption { path: "/d/00000007-ab.tbl".into(), offset, what: "checksum is \"1\"".into() }
    }

    #[test]
    fn file_and_block_are_named() {
        assert_eq!(
            describe(&problem(Some(8192))),
            "corrupt: /d/00000007-ab.tbl, block at byte 8192: checksum is \"1\""
        );
        assert_eq!(describe(&problem(None)), "corrupt: /d/00000007-ab.tbl: checksum is \"1\"");
    }

    #[test]
    fn json_is_one_object_on_one_line() {
        let report = VerifyReport {
            files: 2,
            bytes: 9,
            problems: vec![problem(Some(1)), problem(None)],
            unchecked: vec!["the log: why".into(), "more".into()],
            remarks: vec!["a \"note\"".into()],
        };
        let line = json(&report, Kinds { tables: 1, values: 0 });
        assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
        let object: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(object["sound"], false);
        assert_eq!(
            (&object["files"], &object["tables"], &object["log_files"]),
            (&2.into(), &1.into(), &1.into())
        );
        assert_eq!(object["problems"][0]["offset"], 1);
        assert_eq!(object["problems"][1]["offset"], serde_json::Value::Null);
        assert_eq!(object["problems"][1]["file"], "/d/00000007-ab.tbl");
        assert_eq!(object["unchecked"], serde_json::json!(["the log: why", "more"]));
        assert_eq!(object["remarks"][0], "a \"note\"");
    }
}
