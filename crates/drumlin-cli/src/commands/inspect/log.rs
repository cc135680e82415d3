//! `inspect log`: a segment of the log.
//!
//! 1. Gaps are always shown; records only with `--records`, except in the counts.

use std::path::Path;

use drumlin::env::Env;
use drumlin::inspect::{self, LogEntry, LogGap, LogGapKind, LogItem, LogRecord, LogRecordKind, LogReport};
use serde_json::{Map, Value, json};

use super::{Pieces, Whole, at, object, put_key};
use crate::args::{Args, Depth};
use crate::failure::Result;
use crate::keys::KeyForm;
use crate::output::{bytes, count, plural};

pub fn run(args: &Args, file: &Path, depth: &Depth) -> Result<()> {
    let mut pieces = Pieces::new(depth);
    let form = depth.form;
    let report = inspect::log(&Env::real(), file, args.db_named(), |item| match item {
        LogItem::Record(record) if depth.records => {
            pieces.show(|| if args.json { record_json(record, form) } else { record_words(record, form) });
        }
        LogItem::Record(_) => {}
        LogItem::Gap(gap) => pieces.show(|| if args.json { gap_json(gap) } else { gap_words(gap) }),
    })?;
    let text = words(&report);
    let whole = if args.json { Whole::Json(json(&report)) } else { Whole::Text(&text) };
    pieces.finish(args, file, whole, &report.problems, &report.unchecked)
}

fn record_words(record: &LogRecord, form: KeyForm) -> String {
    let mut text =
        format!("{:<12} {:<7} {}", record.lsn, name(&record.kind), at(record.offset, record.bytes));
    match &record.kind {
        LogRecordKind::Write(entries, problem) => {
            for entry in entries {
                text.push_str(&format!("\n{:13}{}", "", entry_words(entry, form)));
            }
            if let Some(problem) = problem {
                text.push_str(&format!("\n{:13}and what cannot be read: {problem}", ""));
            }
        }
        LogRecordKind::Pad => {}
        LogRecordKind::Mark { from, durable, records } | LogRecordKind::Close { from, durable, records } => {
            text.push_str(&format!(", {} from {from} to {durable} durable", plural(*records, "record")));
        }
    }
    text
}

fn entry_words(entry: &LogEntry, form: KeyForm) -> String {
    let key = form.readable(&entry.key);
    let mut text = format!("keyspace {}: {} {key}", entry.keyspace, entry.kind);
    if let Some(end) = &entry.end {
        text.push_str(&format!(" to {} (exclusive)", form.readable(end)));
    } else if entry.kind == "put" {
        text.push_str(&format!(", {}", bytes(entry.value_bytes)));
    }
    if let Some(expected) = entry.expected {
        text.push_str(&format!(", after it had read {expected}"));
    }
    text
}

fn gap_words(gap: &LogGap) -> String {
    let place = at(gap.offset, gap.bytes);
    match gap.kind {
        LogGapKind::Earlier => {
            format!("{:<12} earlier {place}: the end of a record of the segment before", gap.lsn)
        }
        kind => format!("{:<12} {:<7} {place}: {}", gap.lsn, gap_name(kind), gap.what),
    }
}

fn words(report: &LogReport) -> String {
    let mut text = format!("log segment {}, {}\n", report.path.display(), bytes(report.bytes));
    let mut line = |name: &str, what: String| text.push_str(&format!("  {name:<16}{what}\n"));
    if let Some(header) = &report.header {
        line("segment", format!("{}, positions {} to {}", header.segment, report.span.0, report.span.1));
        line("store", hex(&header.store));
        let boot =
            if header.same_boot { "this boot of the machine" } else { "an earlier boot of the machine" };
        line("session", format!("began at {}, in {boot}", header.session_first));
        let clean = if header.prior_clean { "was closed" } else { "was cut off" };
        line("session before", format!("{clean} at {}", header.prior_end));
        if let Some(floor) = report.floor {
            line("floor", format!("nothing below {floor} is needed"));
        }
    }
    if let Some((lsn, offset)) = report.readable_to {
        line(
            "records",
            format!(
                "{}: {} with {}, {}, {}",
                count(report.records),
                plural(report.writes, "write"),
                plural(report.entries, "version"),
                plural(report.marks, "mark"),
                plural(report.pads, "pad")
            ),
        );
        line("holes", count(report.holes));
        line("durable", format!("everything below {}, say its marks", report.durable));
        line("readable", format!("to {lsn}, byte {offset}: {}", report.end));
    }
    if let Some((lsn, segment)) = report.cut {
        line(
            "cut",
            format!("at {lsn} by the session that began in segment {segment}: nothing counts behind"),
        );
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn name(kind: &LogRecordKind) -> &'static str {
    match kind {
        LogRecordKind::Write(..) => "write",
        LogRecordKind::Pad => "pad",
        LogRecordKind::Mark { .. } => "mark",
        LogRecordKind::Close { .. } => "close",
    }
}

fn gap_name(kind: LogGapKind) -> &'static str {
    match kind {
        LogGapKind::Earlier => "earlier",
        LogGapKind::Hole => "hole",
        LogGapKind::Torn => "torn",
        LogGapKind::Unwritten => "unwritten",
    }
}

fn record_json(record: &LogRecord, form: KeyForm) -> String {
    let mut line = object(json!({
        "what": "record", "lsn": record.lsn, "offset": record.offset, "bytes": record.bytes,
        "kind": name(&record.kind),
    }));
    match &record.kind {
        LogRecordKind::Write(entries, problem) => {
            let entries = entries.iter().map(|entry| {
                let mut found = object(json!({
                    "keyspace": entry.keyspace, "kind": entry.kind, "value_bytes": entry.value_bytes,
                    "expected": entry.expected,
                }));
                put_key(&mut found, "key", &entry.key, form);
                if let Some(end) = &entry.end {
                    put_key(&mut found, "end", end, form);
                }
                Value::Object(found)
            });
            line.insert("entries".into(), entries.collect());
            line.insert("problem".into(), json!(problem));
        }
        LogRecordKind::Pad => {}
        LogRecordKind::Mark { from, durable, records } | LogRecordKind::Close { from, durable, records } => {
            line.extend(object(json!({"from": from, "durable": durable, "records": records})));
        }
    }
    Value::Object(line).to_string()
}

fn gap_json(gap: &LogGap) -> String {
    json!({
        "what": "gap", "lsn": gap.lsn, "end": gap.end, "offset": gap.offset, "bytes": gap.bytes,
        "kind": gap_name(gap.kind), "why": gap.what,
    })
    .to_string()
}

fn json(report: &LogReport) -> Map<String, Value> {
    object(json!({
        "what": "log",
        "bytes": report.bytes,
        "header": report.header.as_ref().map(|header| json!({
            "segment": header.segment, "segment_bytes": header.segment_bytes, "store": hex(&header.store),
            "boot": hex(&header.boot), "same_boot": header.same_boot, "session_first": header.session_first,
            "prior_end": header.prior_end, "prior_clean": header.prior_clean,
        })),
        "floor": report.floor,
        "first": report.span.0,
        "behind": report.span.1,
        "records": report.records,
        "writes": report.writes,
        "versions": report.entries,
        "pads": report.pads,
        "marks": report.marks,
        "holes": report.holes,
        "durable": report.durable,
        "readable_to": report.readable_to.map(|(lsn, offset)| json!({"lsn": lsn, "offset": offset, "why": report.end})),
        "cut": report.cut.map(|(lsn, segment)| json!({"lsn": lsn, "by_segment": segment})),
    }))
}
