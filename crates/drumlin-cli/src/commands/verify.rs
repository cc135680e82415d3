//! `verify`: reads every byte of the store and checks every checksum.
//!
//! 1. A sound store exits 0, also after a process died with it open. Nothing is repaired.
//! 2. Wrong bytes exit 3; each place is printed with its file and the offset of the block.
//! 3. A store that is too rotten to open is reported in the same form: every file is checked that can be by itself.
//! 4. What could not be checked is told. If that alone keeps the store from being sound, the exit is 1.

use drumlin::{Corruption, Db, Options, VerifyReport};

use crate::args::Args;
use crate::escape;
use crate::failure::{Failure, Result};
use crate::output::{self, Output};
use crate::progress::Watcher;

pub fn run(args: &Args) -> Result<()> {
    let report = verify(args)?;
    let mut out = Output::new();
    if args.json {
        out.bytes(&json(&report))?;
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
        let files = output::plural(report.files as u64, "file");
        let bytes = output::bytes(report.bytes);
        if report.is_sound() {
            out.line(format_args!(
                "sound: the manifest, and every byte of {files} of tables and log ({bytes})"
            ))?;
        } else {
            let sound = if report.files > 0 { "; the rest of them is sound" } else { "" };
            out.line(format_args!("checked: {files} of tables and log ({bytes}){sound}"))?;
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

fn verify(args: &Args) -> Result<VerifyReport> {
    let bar = Watcher::new(args.quiet).bytes("verifying", 0);
    Ok(Db::verify_directory(args.db(), Options::default(), &mut |progress| {
        bar.total(progress.bytes_total);
        bar.at(progress.bytes);
    })?)
}

/// One wrong place: file, block, and what is wrong.
pub fn describe(problem: &Corruption) -> String {
    let place = match problem.offset {
        Some(offset) => format!(", block at byte {offset}"),
        None => String::new(),
    };
    format!("corrupt: {}{place}: {}", problem.path.display(), problem.what)
}

fn json(report: &VerifyReport) -> Vec<u8> {
    let mut line = format!(
        r#"{{"sound":{},"files":{},"bytes":{},"problems":["#,
        report.is_sound(),
        report.files,
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
        let line = json(&report);
        assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
        let object: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(object["sound"], false);
        assert_eq!(object["problems"][0]["offset"], 1);
        assert_eq!(object["problems"][1]["offset"], serde_json::Value::Null);
        assert_eq!(object["problems"][1]["file"], "/d/00000007-ab.tbl");
        assert_eq!(object["unchecked"], serde_json::json!(["the log: why", "more"]));
        assert_eq!(object["remarks"][0], "a \"note\"");
    }
}
