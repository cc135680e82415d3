//! `inspect table`: a sorted table.

use std::path::Path;

use drumlin::env::Env;
use drumlin::inspect::{self, TableBlock, TableEntry, TablePart, TableReport};
use serde_json::{Map, Value, json};

use super::{Pieces, Whole, at, object, put_key, table_object, table_words};
use crate::args::{Args, Depth};
use crate::failure::Result;
use crate::keys::KeyForm;
use crate::output::{bytes, count, plural};

pub fn run(args: &Args, file: &Path, blocks: bool, depth: &Depth) -> Result<()> {
    let mut pieces = Pieces::new(depth);
    let form = depth.form;
    let report = inspect::table(&Env::real(), file, args.db_named(), |block| {
        if blocks || block.part.problem.is_some() {
            pieces.show(|| if args.json { block_json(block, form) } else { block_words(block, form) });
        }
        for entry in block.entries.iter().filter(|_| depth.records) {
            pieces.show(|| match args.json {
                true => entry_json(block.number, entry, form),
                false => entry_words(entry, form),
            });
        }
    })?;
    let text = words(&report, form);
    let whole = if args.json { Whole::Json(json(&report, form)) } else { Whole::Text(&text) };
    pieces.finish(args, file, whole, &report.problems, &report.unchecked)
}

fn block_words(block: &TableBlock, form: KeyForm) -> String {
    let part = &block.part;
    let mut line = format!("block {:<5} {}", block.number, at(part.offset, part.bytes));
    if let Some(raw) = part.raw_bytes {
        line.push_str(&format!(", {} {}", part.compression, bytes(raw)));
    }
    if let (Some(first), Some(last)) = (block.entries.first(), block.entries.last()) {
        let (first, last) = (form.readable(&first.key), form.readable(&last.key));
        line.push_str(&format!(", {}, {first} to {last}", plural(block.entries.len() as u64, "version")));
    }
    if let Some(problem) = &part.problem {
        line.push_str(&format!(", up to {}: {problem}", form.readable(&block.fence)));
    }
    line
}

fn entry_words(entry: &TableEntry, form: KeyForm) -> String {
    let key = form.readable(&entry.key);
    match entry.kind {
        _ if let Some((file, offset)) = entry.apart => {
            let length = bytes(entry.value_bytes);
            format!("  {:<12} put     {key}, {length} at byte {offset} of value file {file:08}", entry.lsn)
        }
        "put" => format!("  {:<12} put     {key}, {}", entry.lsn, bytes(entry.value_bytes)),
        kind => format!("  {:<12} {kind:<7} {key}", entry.lsn),
    }
}

fn words(report: &TableReport, form: KeyForm) -> String {
    let mut text = format!("table {}, {}\n", report.path.display(), bytes(report.bytes));
    let mut line = |name: &str, what: String| text.push_str(&format!("  {name:<16}{what}\n"));
    match report.footer {
        Some((offset, seed)) => line("footer", format!("at byte {offset}, seed of the checksums {seed}")),
        None => line("footer", "cannot be read".into()),
    }
    if let Some(part) = &report.properties {
        line("properties", part_words(part));
    }
    if let Some(contents) = &report.contents {
        line("number", count(contents.id));
        line("holds", table_words(contents, form, report.is_placed));
        line("written", format!("positions {} to {}", contents.min_lsn, contents.max_lsn));
        if contents.created_at_ms > 0 {
            line("", utc(contents.created_at_ms));
        }
        let order = if report.is_placed { "by hash" } else { &report.comparator };
        line("order", format!("{order}; blocks of {}", bytes(report.full_block_bytes)));
    }
    if let Some(found) = &report.buckets {
        line("buckets", format!("{}, filled to {:.1} %", count(found.buckets), 100.0 * found.fill));
        line(
            "",
            format!(
                "{} in them; {} sent some of theirs away, up to {}",
                plural(found.entries, "version"),
                count(found.sources),
                plural(found.steps, "step")
            ),
        );
    }
    if report.blocks > 0 {
        let read = match report.blocks - report.blocks_read {
            0 => String::new(),
            lost => format!(", {} of them cannot be read", count(lost)),
        };
        let ratio = report.block_raw_bytes as f64 / report.block_bytes.max(1) as f64;
        line("data", format!("{}{read}", plural(report.blocks, "block")));
        line(
            "",
            format!(
                "{} for {} uncompressed: {ratio:.2} times",
                bytes(report.block_bytes),
                bytes(report.block_raw_bytes)
            ),
        );
        line("", format!("{} of {}", plural(report.entries, "version"), plural(report.keys, "key")));
    }
    if let Some(part) = &report.index {
        line("index", part_words(part));
        if !report.index_leaves.is_empty() {
            let all = report.index_leaves.iter().map(|leaf| leaf.bytes).sum();
            line(
                "",
                format!("and {} below, {}", plural(report.index_leaves.len() as u64, "block"), bytes(all)),
            );
        }
    }
    match &report.filter {
        Some(filter) => {
            line("filter", part_words(&filter.part));
            let (bits, rate) = (filter.bits_per_key, filter.false_positives * 100.0);
            line(
                "",
                format!("{bits:.1} bits a key, {} of them asked; {rate:.3} % false positives", filter.probes),
            );
            if filter.is_asked == Some(false) {
                line("", "made with the secret of another store: it is not asked".into());
            }
        }
        None if report.properties.is_some() => line("filter", "none".into()),
        None => {}
    }
    if let Some(part) = &report.tombstone_block {
        line("range deletes", part_words(part));
        for piece in &report.tombstones {
            let (start, end) = (form.readable(&piece.start), form.readable(&piece.end));
            line("", format!("{:<12} {start} to {end} (exclusive)", piece.lsn));
        }
    }
    text
}

fn part_words(part: &TablePart) -> String {
    let place = at(part.offset, part.bytes);
    match (&part.problem, part.raw_bytes) {
        (Some(problem), _) => format!("{place}: {problem}"),
        (None, Some(raw)) if part.compression != "none" => {
            format!("{place}, {} {}", part.compression, bytes(raw))
        }
        _ => place,
    }
}

/// A time in milliseconds since the Unix epoch, as a date and a time of day.
fn utc(ms: u64) -> String {
    let (days, second) = ((ms / 86_400_000) as i64, ms / 1000 % 86_400);
    // Days are counted from the first of March of the year 0, so that a leap day is the last of a year.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

fn part_json(part: &TablePart) -> Value {
    json!({
        "offset": part.offset, "bytes": part.bytes, "raw_bytes": part.raw_bytes,
        "compression": part.compression, "problem": part.problem,
    })
}

fn block_json(block: &TableBlock, form: KeyForm) -> String {
    let mut line = object(part_json(&block.part));
    line.insert("what".into(), json!("block"));
    line.insert("number".into(), json!(block.number));
    line.insert("versions".into(), json!(block.entries.len()));
    put_key(&mut line, "fence", &block.fence, form);
    if let (Some(first), Some(last)) = (block.entries.first(), block.entries.last()) {
        put_key(&mut line, "first", &first.key, form);
        put_key(&mut line, "last", &last.key, form);
    }
    Value::Object(line).to_string()
}

fn entry_json(block: u64, entry: &TableEntry, form: KeyForm) -> String {
    let mut line = object(json!({
        "what": "version", "block": block, "offset": entry.offset, "lsn": entry.lsn, "kind": entry.kind,
        "value_bytes": entry.value_bytes,
        "apart": entry.apart.map(|(file, offset)| json!({"file": file, "offset": offset})),
    }));
    put_key(&mut line, "key", &entry.key, form);
    Value::Object(line).to_string()
}

fn json(report: &TableReport, form: KeyForm) -> Map<String, Value> {
    let part = |part: &Option<TablePart>| part.as_ref().map(part_json);
    let tombstones = report.tombstones.iter().map(|piece| {
        let mut line = object(json!({"lsn": piece.lsn}));
        put_key(&mut line, "start", &piece.start, form);
        put_key(&mut line, "end", &piece.end, form);
        Value::Object(line)
    });
    object(json!({
        "what": "table",
        "bytes": report.bytes,
        "footer": report.footer.map(|(offset, seed)| json!({"offset": offset, "seed": seed})),
        "properties": part(&report.properties),
        "contents": report.contents.as_ref().map(|contents| table_object(contents, form)),
        "comparator": report.comparator,
        "is_placed": report.is_placed,
        "buckets": report.buckets.as_ref().map(|found| json!({
            "buckets": found.buckets,
            "entries": found.entries,
            "sources": found.sources,
            "steps": found.steps,
            "fill": found.fill,
        })),
        "block_bytes": report.full_block_bytes,
        "index": part(&report.index),
        "index_leaves": report.index_leaves.iter().map(part_json).collect::<Value>(),
        "filter": report.filter.as_ref().map(|filter| json!({
            "part": part_json(&filter.part), "bits_per_key": filter.bits_per_key, "probes": filter.probes,
            "false_positives": filter.false_positives, "is_asked": filter.is_asked,
        })),
        "tombstone_block": part(&report.tombstone_block),
        "tombstones": tombstones.collect::<Value>(),
        "data": {
            "blocks": report.blocks, "blocks_read": report.blocks_read, "bytes": report.block_bytes,
            "raw_bytes": report.block_raw_bytes, "versions": report.entries, "keys": report.keys,
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13:20 UTC"),
        ] {
            assert_eq!(utc(seconds * 1000), text);
        }
    }
}
