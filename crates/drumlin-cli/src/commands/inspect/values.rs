//! `inspect values`: a file of values that lie apart from their keys.

use std::path::Path;

use drumlin::env::Env;
use drumlin::inspect::{self, ValueRecord};
use serde_json::json;

use super::{Pieces, Whole, at, object};
use crate::args::{Args, Depth};
use crate::failure::Result;
use crate::output::{bytes, count, plural};

pub fn run(args: &Args, file: &Path, depth: &Depth) -> Result<()> {
    let mut pieces = Pieces::new(depth);
    let report = inspect::values(&Env::real(), file, |record| {
        if depth.records || record.value_bytes.is_none() {
            pieces.show(|| if args.json { record_json(record) } else { record_words(record) });
        }
    })?;
    let text = format!(
        "values {}, {}\n  {:<16}{}\n  {:<16}{}, {} uncompressed\n",
        report.path.display(),
        bytes(report.bytes),
        "number",
        count(report.id),
        "holds",
        plural(report.records, "value"),
        bytes(report.value_bytes)
    );
    let whole = if args.json {
        Whole::Json(object(json!({
            "what": "values", "bytes": report.bytes, "id": report.id, "records": report.records,
            "value_bytes": report.value_bytes,
        })))
    } else {
        Whole::Text(&text)
    };
    pieces.finish(args, file, whole, &report.problems, &report.unchecked)
}

fn record_words(record: &ValueRecord) -> String {
    let place = at(record.offset, record.bytes);
    match (record.value_bytes, record.compression) {
        (None, _) => format!("record {place}: cannot be read"),
        (Some(value), "none") => format!("record {place}, {}", bytes(value)),
        (Some(value), compression) => format!("record {place}, {compression} {}", bytes(value)),
    }
}

fn record_json(record: &ValueRecord) -> String {
    json!({
        "what": "record", "offset": record.offset, "bytes": record.bytes, "compression": record.compression,
        "value_bytes": record.value_bytes,
    })
    .to_string()
}
