//! `inspect manifest`: the edits of a manifest, and what comes of them.
//!
//! 1. The changes of the snapshot, which may be many, are counted; `--records` shows each.
//! 2. Of options, those that do something in their layout are told in words, and all as JSON.

use std::collections::BTreeSet;
use std::path::Path;

use drumlin::Layout;
use drumlin::env::Env;
use drumlin::inspect::{self, ManifestChange, ManifestEdit, ManifestReport, StoredOptions};
use drumlin::key::BYTEWISE;
use serde_json::{Map, Value, json};

use super::{Pieces, Whole, at, object, table_object, table_words};
use crate::args::{Args, Depth};
use crate::escape;
use crate::failure::Result;
use crate::keys::KeyForm;
use crate::output::{bytes, count, plural};

pub fn run(args: &Args, file: &Path, depth: &Depth) -> Result<()> {
    let mut pieces = Pieces::new(depth);
    let form = depth.form;
    let report = inspect::manifest(&Env::real(), file, args.db_named())?;
    let tries = tries(&report);
    for (number, edit) in report.edits.iter().enumerate() {
        pieces.show(|| match args.json {
            true => edit_json(edit, form),
            false => edit_words(number, edit, depth.records, (form, &tries)),
        });
    }
    let text = words(&report);
    let whole = if args.json { Whole::Json(json(&report, form)) } else { Whole::Text(&text) };
    pieces.finish(args, file, whole, &report.problems, &report.unchecked)
}

/// The keyspaces whose keys stand behind their hashes. One is made so or not, for good.
fn tries(report: &ManifestReport) -> BTreeSet<u32> {
    let made = report.edits.iter().flat_map(|edit| &edit.changes).filter_map(|change| match change {
        ManifestChange::CreateKeyspace { id, options: Some(options), .. } if !options.is_ordered() => {
            Some(*id)
        }
        _ => None,
    });
    made.collect()
}

/// How keys are shown, and in which keyspaces hashes are in their place.
type Form<'a> = (KeyForm, &'a BTreeSet<u32>);

fn edit_words(number: usize, edit: &ManifestEdit, records: bool, form: Form<'_>) -> String {
    let name = if number == 0 { "snapshot".into() } else { format!("edit {number}") };
    let seal = if edit.sealed { "" } else { ", not sealed" };
    let mut text = format!("{name:<10} {}{seal}", at(edit.offset, edit.bytes));
    let shown = |change: &&ManifestChange| {
        records || number > 0 || !matches!(change, ManifestChange::AddTable { .. })
    };
    for change in edit.changes.iter().filter(shown) {
        text.push_str(&format!("\n           {}", change_words(change, form)));
    }
    let hidden = edit.changes.len() - edit.changes.iter().filter(shown).count();
    if hidden > 0 {
        text.push_str(&format!("\n           + {}", plural(hidden as u64, "table")));
    }
    text
}

fn change_words(change: &ManifestChange, (form, tries): Form<'_>) -> String {
    match change {
        ManifestChange::CreateKeyspace { id, name, options } => {
            format!("+ keyspace {id}, {}: {}", escape::readable(name.as_bytes()), options_words(options))
        }
        ManifestChange::DropKeyspace { id } => format!("- keyspace {id}"),
        ManifestChange::SetOptions { keyspace, options } => {
            format!("  keyspace {keyspace} has other options: {}", options_words(options))
        }
        ManifestChange::AddTable { keyspace, level, table } => {
            let holds = table_words(table, form, tries.contains(keyspace));
            let (id, size) = (table.id, bytes(table.file_bytes));
            format!("+ table {id} on level {level} of keyspace {keyspace}: {size}, {holds}")
        }
        ManifestChange::RemoveTable { keyspace, level, table } => {
            format!("- table {table} on level {level} of keyspace {keyspace}")
        }
        ManifestChange::FlushedTo { keyspace, lsn } => {
            format!("  keyspace {keyspace} is in tables up to {lsn}")
        }
        ManifestChange::NextTableId(id) => format!("  tables are numbered from {id}"),
        ManifestChange::NextKeyspaceId(id) => format!("  keyspaces are numbered from {id}"),
        ManifestChange::SessionStart { first_segment } => {
            format!("  opened for writing, the log goes on at segment {first_segment}")
        }
        ManifestChange::LogReaches(lsn) => format!("  the log is durable up to {lsn}"),
    }
}

fn options_words(options: &StoredOptions) -> String {
    let Some(options) = options else { return "options that this build does not know".into() };
    let mut words = format!(
        "{}, {} memory, blocks of {}, {:?}, {} filter bits a key, tables of {}",
        options.layout,
        options.memory,
        bytes(options.block_bytes as u64),
        options.compression,
        options.filter_bits_per_key,
        bytes(options.table_bytes),
    );
    if options.layout == Layout::Leveled {
        let (level0, level1) = (options.level0_tables, bytes(options.level1_bytes));
        words.push_str(&format!(", level 0 of {level0} of them, level 1 of {level1}"));
        words.push_str(&format!(", each below {} times as large", options.level_ratio));
    }
    if let Some(size) = options.memtable_bytes {
        words.push_str(&format!(", memtables of {}", bytes(size as u64)));
    }
    if let Some(apart) = options.value_separation {
        let (least, space) = (bytes(apart.min_bytes as u64), apart.space_percent);
        words.push_str(&format!(", values apart from {least} on in {space} % of their space"));
    }
    if !options.logged {
        words.push_str(", not logged");
    }
    if options.comparator.name() != BYTEWISE {
        let name = escape::readable(options.comparator.name().as_bytes());
        words.push_str(&format!(", in the order {name}"));
    }
    words
}

fn words(report: &ManifestReport) -> String {
    let mut text = format!("manifest {}, {}\n", report.path.display(), bytes(report.bytes));
    let mut line = |name: &str, what: String| text.push_str(&format!("  {name:<16}{what}\n"));
    if let Some(number) = report.number {
        let current = match report.is_current {
            Some(true) => ", the current one",
            Some(false) => ", not the current one",
            None => "",
        };
        line("number", format!("{number}{current}"));
    }
    if let Some(store) = report.store {
        line("store", store.iter().map(|byte| format!("{byte:02x}")).collect());
    }
    line("edits", count(report.edits.len() as u64));
    if let Some(torn) = report.torn {
        line("torn", format!("at byte {torn}: an edit that was never finished, and so never acknowledged"));
    }
    if report.edits.is_empty() {
        return text;
    }
    let state = &report.state;
    let log = state.first_segment.map_or("no log yet".into(), |first| {
        format!("the last session began at segment {first}, and the log reaches {}", state.log_reaches)
    });
    line("log", log);
    line("next numbers", format!("table {}, keyspace {}", state.next_table, state.next_keyspace));
    for keyspace in &state.keyspaces {
        let name = escape::readable(keyspace.name.as_bytes());
        line(
            &format!("keyspace {}", keyspace.id),
            format!("{name}, in tables up to {}", keyspace.flushed_to),
        );
        line("", options_words(&keyspace.options));
        let in_use = |(level, tables): &(usize, &Vec<_>)| *level == 0 || !tables.is_empty();
        for (level, tables) in keyspace.levels.iter().enumerate().filter(in_use) {
            let size = tables.iter().map(|table| table.file_bytes).sum();
            let versions = tables.iter().map(|table| table.entries).sum();
            let tables = plural(tables.len() as u64, "table");
            line("", format!("level {level}: {tables}, {}, {}", bytes(size), plural(versions, "version")));
        }
    }
    text
}

fn edit_json(edit: &ManifestEdit, form: KeyForm) -> String {
    let changes: Value = edit.changes.iter().map(|change| change_json(change, form)).collect();
    json!({
        "what": "edit", "offset": edit.offset, "bytes": edit.bytes, "sealed": edit.sealed, "changes": changes,
    })
    .to_string()
}

fn change_json(change: &ManifestChange, form: KeyForm) -> Value {
    match change {
        ManifestChange::CreateKeyspace { id, name, options } => json!({
            "change": "create_keyspace", "id": id, "name": name, "options": options_json(options),
        }),
        ManifestChange::DropKeyspace { id } => json!({"change": "drop_keyspace", "id": id}),
        ManifestChange::SetOptions { keyspace, options } => {
            json!({"change": "set_options", "keyspace": keyspace, "options": options_json(options)})
        }
        ManifestChange::AddTable { keyspace, level, table } => json!({
            "change": "add_table", "keyspace": keyspace, "level": level, "table": table_object(table, form),
        }),
        ManifestChange::RemoveTable { keyspace, level, table } => {
            json!({"change": "remove_table", "keyspace": keyspace, "level": level, "id": table})
        }
        ManifestChange::FlushedTo { keyspace, lsn } => {
            json!({"change": "flushed_to", "keyspace": keyspace, "lsn": lsn})
        }
        ManifestChange::NextTableId(id) => json!({"change": "next_table", "id": id}),
        ManifestChange::NextKeyspaceId(id) => json!({"change": "next_keyspace", "id": id}),
        ManifestChange::SessionStart { first_segment } => {
            json!({"change": "session_start", "first_segment": first_segment})
        }
        ManifestChange::LogReaches(lsn) => json!({"change": "log_reaches", "lsn": lsn}),
    }
}

/// `null` if this build does not know them.
fn options_json(options: &StoredOptions) -> Value {
    options.as_ref().map_or(Value::Null, |options| {
        let apart = options.value_separation;
        json!({
            "memory": options.memory, "layout": options.layout, "comparator": options.comparator.name(),
            "logged": options.logged, "memtable_bytes": options.memtable_bytes,
            "compression": format!("{:?}", options.compression).to_lowercase(),
            "block_bytes": options.block_bytes, "filter_bits_per_key": options.filter_bits_per_key,
            "table_bytes": options.table_bytes, "level0_tables": options.level0_tables,
            "level1_bytes": options.level1_bytes, "level_ratio": options.level_ratio,
            "value_separation": apart.map(|apart| json!({
                "min_bytes": apart.min_bytes, "space_percent": apart.space_percent,
            })),
        })
    })
}

fn json(report: &ManifestReport, form: KeyForm) -> Map<String, Value> {
    let state = &report.state;
    let keyspaces = state.keyspaces.iter().map(|keyspace| {
        let level = |tables: &Vec<_>| tables.iter().map(|table| table_object(table, form)).collect::<Value>();
        json!({
            "id": keyspace.id, "name": keyspace.name, "flushed_to": keyspace.flushed_to,
            "options": options_json(&keyspace.options),
            "levels": keyspace.levels.iter().map(level).collect::<Value>(),
        })
    });
    object(json!({
        "what": "manifest",
        "bytes": report.bytes,
        "number": report.number,
        "store": report.store.map(|store| store.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
        "is_current": report.is_current,
        "edits": report.edits.len(),
        "torn": report.torn,
        "state": {
            "keyspaces": keyspaces.collect::<Value>(), "next_table": state.next_table,
            "next_keyspace": state.next_keyspace, "first_segment": state.first_segment,
            "log_reaches": state.log_reaches,
        },
    }))
}
