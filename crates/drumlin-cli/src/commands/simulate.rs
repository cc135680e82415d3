//! `simulate`: what a layout comes to, without a disk.
//!
//! 1. A row is told whenever the puts have doubled, and at the end; behind them the levels are drawn as they are then.
//! 2. With `--json`: one object a row.
//! 3. With `--real` the levels of a real store follow, and how it differs; with `--json`, `{"real": ..}`.
//! 4. With `--svg` the course of it is drawn, too; a file of that name is replaced.

use std::fs;

use drumlin::simulation::{Level, Order, Point, Simulation, Workload};
use drumlin::{KeyspaceOptions, Options};
use serde_json::{Value, json};

use crate::args::{Args, Simulate};
use crate::course;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::{Output, bytes, count};
use crate::progress::Watcher;
use crate::report::{self, Note};
use crate::twin::{Difference, TierBytes, Twin};

/// A memtable has this part of the memory.
const MEMTABLE_SHARE: usize = 4;
/// A point of the picture has so much more puts than the one before: a part of one of so many.
const COURSE_PARTS: u64 = 64;
/// Cells of the longest bar.
const BAR_CELLS: u64 = 40;

pub fn run(args: &Args, asked: &Simulate) -> Result<()> {
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let memory_bytes = size(asked.memory.saturating_mul(1 << 20));
    let limit = memory_bytes / MEMTABLE_SHARE;
    let put_bytes = size(asked.key_size.saturating_add(asked.value_size));
    let refused = |error: drumlin::Error| Failure::Usage(error.to_string());
    asked.check().map_err(Failure::Usage)?;
    let store = Options { memory_bytes, ..Options::default() };
    store.validate().map_err(refused)?;
    let usual = KeyspaceOptions::default();
    let options = KeyspaceOptions {
        layout: asked.laid.layout(),
        level0_tables: asked.level0.unwrap_or(usual.level0_tables),
        level1_bytes: asked.level1.map_or(usual.level1_bytes, |mib| mib.saturating_mul(1 << 20)),
        level_ratio: asked.level_ratio.unwrap_or(usual.level_ratio),
        table_bytes: asked.table_size,
        block_bytes: asked.block_size,
        filter_bits_per_key: asked.bloom_bits,
        ..usual
    };
    let workload = Workload {
        keys: asked.keys.unwrap_or(asked.records),
        key_bytes: asked.key_size,
        value_bytes: asked.value_size,
        memtable_puts: Workload::memtable_puts(&store, &options, limit, put_bytes),
        filter_bytes_max: store.filter_bytes_max(),
        order: if asked.ascending { Order::Ascending } else { Order::Random },
    };
    let mut simulation = Simulation::new(options.clone(), workload.clone()).map_err(refused)?;
    let mut out = Output::new();
    if !args.json {
        out.line(format_args!(
            "{:>16} {:>8} {:>6} {:>5} {:>9} {:>10} {:>10} {:>10} {:>13}",
            "puts",
            "written",
            "space",
            "runs",
            "reads/get",
            "reads/miss",
            "filters",
            "indexes",
            "largest merge"
        ))?;
    }
    let bar = Watcher::new(args.quiet).operations("puts".into(), asked.records);
    let (mut point, mut next) = (simulation.point(), 0);
    let (mut course, mut tiers): (Vec<Point>, _) = (Vec::new(), TierBytes::default());
    while point.puts < asked.records {
        interrupt::check()?;
        simulation.step(asked.records - point.puts).map_err(refused)?;
        point = simulation.point();
        if point.puts * 2 >= asked.records {
            tiers.add(point.levels.iter().map(|level| (simulation.tier_of(level.number), level.bytes)));
        }
        bar.at(point.puts);
        if course.last().is_none_or(|last| point.puts >= last.puts + last.puts / COURSE_PARTS) {
            course.push(point.clone());
        }
        if point.puts >= next.min(asked.records) {
            next = point.puts.saturating_mul(2);
            let mut told = Ok(());
            bar.aside(|| told = row(args, &mut out, &point));
            told?;
        }
    }
    drop(bar);
    if !args.json {
        out.line("")?;
        drawing(&mut out, &point.levels)?;
    }
    let held = store.filter_bytes_max();
    if point.filter_bytes > held {
        let text = format!(
            "the filters take {}, of which this memory holds {}: a get reads about a block more than is foretold; --memory {} holds them",
            bytes(point.filter_bytes),
            bytes(held),
            ((point.filter_bytes.saturating_mul(16) / 3) >> 20) + 1
        );
        report::note(&Note::new(text), args.json);
    }
    if asked.real {
        let twin = Twin::fill(args, &simulation, (&options, &workload), (memory_bytes, limit), point.puts)?;
        tell_twin(args, &mut out, &twin, &twin.difference(point.write_amplification, &tiers))?;
    }
    if let Some(file) = &asked.svg {
        let title =
            format!("{:?}, {} of memory", asked.laid.layout(), bytes(asked.memory.saturating_mul(1 << 20)));
        fs::write(file, course::svg(&title, &course)).map_err(|error| Failure::file("write", file, error))?;
        if !args.json {
            out.line(format_args!("\ndrew {} points into {}", count(course.len() as u64), file.display()))?;
        }
    }
    out.finish()
}

fn row(args: &Args, out: &mut Output, point: &Point) -> Result<()> {
    if args.json {
        out.line(object(point))?;
    } else {
        out.line(format_args!(
            "{:>16} {:>8.2} {:>6.2} {:>5} {:>9.3} {:>10.3} {:>10} {:>10} {:>13}",
            count(point.puts),
            point.write_amplification,
            point.space_amplification,
            point.runs,
            point.reads_per_get,
            point.reads_per_miss,
            bytes(point.filter_bytes),
            bytes(point.index_bytes),
            bytes(point.largest_merge),
        ))?;
    }
    out.flush()
}

fn object(point: &Point) -> Value {
    json!({
        "puts": point.puts,
        "write_amplification": point.write_amplification,
        "space_amplification": point.space_amplification,
        "runs": point.runs,
        "reads_per_get": point.reads_per_get,
        "reads_per_miss": point.reads_per_miss,
        "filter_bytes": point.filter_bytes,
        "index_bytes": point.index_bytes,
        "largest_merge_bytes": point.largest_merge,
        "levels": levels(&point.levels),
    })
}

fn levels(levels: &[Level]) -> Value {
    let object = |level: &Level| json!({"level": level.number, "tables": level.tables, "bytes": level.bytes, "entries": level.entries});
    levels.iter().map(object).collect()
}

/// A real store, and how it differs.
fn tell_twin(args: &Args, out: &mut Output, twin: &Twin, differs: &Difference) -> Result<()> {
    if args.json {
        return out.line(json!({"real": {
            "write_amplification": twin.write_amplification,
            "levels": levels(&twin.levels),
            "table_bytes": twin.course.bytes(),
            "differs": {"written": differs.written, "bytes": differs.bytes, "shape": differs.shape},
        }}));
    }
    out.line(format_args!(
        "\nA real store, filled likewise: written {:.2} ({:+.1} %), tables {:+.1} % of bytes, of which {:.1} % are of another tier, over the second half of the puts.\n",
        twin.write_amplification,
        differs.written * 100.0,
        differs.bytes * 100.0,
        differs.shape * 100.0
    ))?;
    drawing(out, &twin.levels)
}

/// The levels as bars.
fn drawing(out: &mut Output, levels: &[Level]) -> Result<()> {
    let longest = levels.iter().map(|level| level.bytes).max().unwrap_or(1).max(1);
    for level in levels {
        let cells = (level.bytes.saturating_mul(BAR_CELLS) / longest).max(1) as usize;
        let tables = format!("{} tables", count(level.tables as u64));
        out.line(format_args!(
            "L{:<3} {:<40} {:>11} {:>14}",
            level.number,
            "█".repeat(cells),
            bytes(level.bytes),
            tables
        ))?;
    }
    Ok(())
}
