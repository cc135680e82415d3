//! `verify`: reads every byte of the store and checks every checksum.
//!
//! 1. A sound store exits 0, also after a process died with it open. Nothing is repaired.
//! 2. Wrong bytes exit 3; each place is printed with its file and the offset of the block.
//! 3. A store that is too rotten to open is reported in the same form.
//! 4. Tables and log are counted apart, as `stats` counts them. The bar goes over the tables alone: how much of the
//!    log there is to read is known only when it has been read.

use drumlin::{Corruption, Error, LevelStats, VerifyReport};

use crate::args::Args;
use crate::escape;
use crate::failure::{Failure, Result};
use crate::figures;
use crate::open;
use crate::output::{self, Output};
use crate::progress::Watcher;

pub fn run(args: &Args) -> Result<()> {
    let (report, read) = match verify(args) {
        Ok(verified) => verified,
        Err(Failure::Store(Error::Corruption(corruption))) => {
            (VerifyReport { problems: vec![corruption], ..VerifyReport::default() }, Read::default())
        }
        Err(failure) => return Err(failure),
    };
    let mut out = Output::new();
    if args.json {
        out.bytes(&json(&report, read))?;
    } else {
        for problem in &report.problems {
            out.line(describe(problem))?;
        }
        for remark in &report.remarks {
            out.line(format_args!("note: {remark}"))?;
        }
        if report.problems.is_empty() {
            out.line(format_args!("sound: every byte of {}", read.words()))?;
        }
    }
    out.finish()?;
    if report.problems.is_empty() {
        return Ok(());
    }
    Err(Failure::Corrupt(format!(
        "{} in the store at {}",
        output::plural(report.problems.len() as u64, "corrupt place"),
        args.db().display()
    )))
}

fn verify(args: &Args) -> Result<(VerifyReport, Read)> {
    let db = open::read(args)?;
    let tables = figures::tables(db.stats().keyspaces.iter());
    let bar = Watcher::new(args.quiet).bytes("verifying", 0);
    bar.say("of tables".into());
    let report = db.verify(&mut |progress| {
        bar.total(progress.bytes_total);
        bar.at(progress.bytes);
    })?;
    let read = Read::of(&report, &tables);
    Ok((report, read))
}

/// What was read, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Read {
    tables: u64,
    table_bytes: u64,
    log_files: u64,
    log_bytes: u64,
}

impl Read {
    /// Takes what a report counts apart; `tables` are those of the store.
    pub fn of(report: &VerifyReport, tables: &LevelStats) -> Self {
        Read {
            tables: tables.tables as u64,
            table_bytes: tables.bytes,
            log_files: (report.files as u64).saturating_sub(tables.tables as u64),
            log_bytes: report.bytes.saturating_sub(tables.bytes),
        }
    }

    /// For people.
    pub fn words(&self) -> String {
        let (tables, table_bytes) = (output::plural(self.tables, "table"), output::bytes(self.table_bytes));
        let (files, bytes) = (output::plural(self.log_files, "log file"), output::bytes(self.log_bytes));
        match self.log_files {
            // A store that is being written: its log is not at rest, and was not read.
            0 => format!("the manifest and {tables} ({table_bytes})"),
            _ => format!("the manifest, {tables} ({table_bytes}) and {files} ({bytes})"),
        }
    }
}

/// One wrong place: file, block, and what is wrong.
pub fn describe(problem: &Corruption) -> String {
    let place = match problem.offset {
        Some(offset) => format!(", block at byte {offset}"),
        None => String::new(),
    };
    format!("corrupt: {}{place}: {}", problem.path.display(), problem.what)
}

fn json(report: &VerifyReport, read: Read) -> Vec<u8> {
    let mut line = format!(
        r#"{{"sound":{},"tables":{},"table_bytes":{},"log_files":{},"log_bytes":{},"problems":["#,
        report.problems.is_empty(),
        read.tables,
        read.table_bytes,
        read.log_files,
        read.log_bytes
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
    line.extend_from_slice(br#"],"remarks":["#);
    for (at, remark) in report.remarks.iter().enumerate() {
        line.extend_from_slice(if at > 0 { b"," } else { b"" });
        escape::push_string(&mut line, remark);
    }
    line.extend_from_slice(b"]}\n");
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
            remarks: vec!["a \"note\"".into()],
        };
        let read = Read::of(&report, &LevelStats { tables: 1, bytes: 5, entries: 7 });
        let line = json(&report, read);
        assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
        let object: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(object["sound"], false);
        assert_eq!((&object["tables"], &object["table_bytes"]), (&1.into(), &5.into()));
        assert_eq!((&object["log_files"], &object["log_bytes"]), (&1.into(), &4.into()));
        assert_eq!(object["problems"][0]["offset"], 1);
        assert_eq!(object["problems"][1]["offset"], serde_json::Value::Null);
        assert_eq!(object["problems"][1]["file"], "/d/00000007-ab.tbl");
        assert_eq!(object["remarks"][0], "a \"note\"");
    }
}
