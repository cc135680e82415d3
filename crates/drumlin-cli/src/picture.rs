//! The tree as a picture: an SVG file that needs nothing else.
//!
//! Place: `shape --svg`; the figures come from `Keyspace::levels` and `Db::stats`.
//!
//! 1. A keyspace has a row for its memory and one for each level; each table is a box, and has all its figures as a tooltip.
//! 2. Across, keys stand in their order, and each stretch between two ends of tables is as wide as the bytes of all levels
//!    in it: boxes that overlap share keys, and a wide box is a large table. Tables of level 0, which may overlap, stand in
//!    lanes, the newest on top.
//! 3. Colour is age, by the rank of the newest version, the newest strongest; the dark foot of a box is the share of its versions that are deletes.
//! 4. It can be read on a light and on a dark ground: it takes the one that the viewer prefers.
//! 5. It is XML whatever the keys and names are.

use std::fmt::Write;

use drumlin::{KeyspaceStats, LevelInfo};

use crate::escape;
use crate::figures::{self, LogFiles};
use crate::output::{bytes, count, plural};

/// Where the boxes begin and end, and the width of all.
const LEFT: f64 = 104.0;
const RIGHT: f64 = 1000.0;
const WIDTH: f64 = 1280.0;
/// Heights of a row and of a lane of level 0, and what lies between rows.
const ROW: f64 = 34.0;
const LANE: f64 = 14.0;
const GAP: f64 = 12.0;
/// Ages that are told apart by colour.
const AGES: usize = 6;

/// One keyspace to be drawn.
pub struct Shown<'a> {
    /// Its figures.
    pub stats: &'a KeyspaceStats,
    /// Its levels, table by table.
    pub levels: &'a [LevelInfo],
}

/// The picture of a store.
pub fn svg(store: &str, keyspaces: &[Shown<'_>], log: &LogFiles) -> String {
    let mut body = String::new();
    let mut y = head(&mut body, store, keyspaces, log);
    for keyspace in keyspaces {
        y = Drawing::new(keyspace).draw(&mut body, y);
    }
    y = legend(&mut body, y);
    let height = y + 16.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">\n<title>{}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\"/>\n{body}</svg>\n",
        text(&format!("The tree of {store}"))
    )
}

const STYLE: &str = "
text{font:13px system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1f2328}
.title{font-size:17px;font-weight:600}.name{font-size:15px;font-weight:600}
.dim{fill:#656d76}.small{font-size:11px}.right{text-anchor:end}.mid{text-anchor:middle}
.ground{fill:#ffffff}.rail{fill:#f1f3f5}.frame{stroke:#ffffff;stroke-width:1}
.a0{fill:#084594}.a1{fill:#2171b5}.a2{fill:#4292c6}.a3{fill:#6baed6}.a4{fill:#9ecae1}.a5{fill:#c6dbef}
.dead{fill:#bc4c00}.memory{fill:#57ab5a}.frozen{fill:#8ddb8c}.log{fill:#8c959f}
.meter{fill:#d0d7de}.fill{fill:#2171b5}.over{fill:#cf222e}.mark{stroke:#1f2328;stroke-width:1.5}.line{stroke:#d0d7de}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.dim{fill:#9198a1}.ground{fill:#0d1117}.rail{fill:#161b22}.frame{stroke:#0d1117}
.a0{fill:#c0def9}.a1{fill:#74b3ee}.a2{fill:#3b8ad8}.a3{fill:#1f6bb0}.a4{fill:#164a7a}.a5{fill:#10304f}
.dead{fill:#f0883e}.memory{fill:#3fb950}.frozen{fill:#1a6b2b}.log{fill:#6e7681}
.meter{fill:#30363d}.fill{fill:#3b8ad8}.over{fill:#f85149}.mark{stroke:#e6edf3}.line{stroke:#30363d}}
";

/// Title and log. Gives where it goes on.
fn head(out: &mut String, store: &str, keyspaces: &[Shown<'_>], log: &LogFiles) -> f64 {
    let all = figures::tables(keyspaces.iter().map(|keyspace| keyspace.stats));
    label(out, "title", 16.0, 32.0, store);
    let holds = format!(
        "{}, {}, {}",
        plural(all.tables as u64, "table"),
        bytes(all.bytes),
        plural(all.versions, "version")
    );
    label(out, "dim", 16.0, 52.0, &holds);
    let y = 70.0;
    label(out, "", 16.0, y + 15.0, "log");
    rail(out, y, 20.0);
    // One box a segment, as long as it is no finer than can be seen.
    let boxes = log.segments.min(60);
    for n in 0..boxes {
        let width = ((RIGHT - LEFT) / boxes.max(12) as f64).min(60.0);
        rect(out, "log frame", LEFT + n as f64 * width, y, width, 20.0);
    }
    let size = format!("{}, {}", plural(log.segments, "segment"), bytes(log.bytes));
    label(out, "", RIGHT + 16.0, y + 15.0, &size);
    y + 20.0 + 2.0 * GAP
}

/// A keyspace being drawn.
struct Drawing<'a> {
    shown: &'a Shown<'a>,
    /// The ends of tables, ascending, and how far from the left each stands, from 0 to 1.
    ends: Vec<(&'a [u8], f64)>,
    /// The newest version of each table, the oldest first.
    ages: Vec<u64>,
}

impl<'a> Drawing<'a> {
    fn new(shown: &'a Shown<'a>) -> Drawing<'a> {
        let tables = || shown.levels.iter().flat_map(|level| &level.tables);
        let mut keys: Vec<&[u8]> =
            tables().flat_map(|table| [&table.smallest[..], &table.largest[..]]).collect();
        keys.sort_unstable();
        keys.dedup();
        // What each table puts between two ends.
        let mut weights = vec![0.0f64; keys.len().saturating_sub(1)];
        let all: u64 = tables().map(|table| table.file_bytes).sum();
        let least = all as f64 / 400.0 / weights.len().max(1) as f64;
        for table in tables() {
            let from = keys.partition_point(|key| *key < &table.smallest[..]);
            let to = keys.partition_point(|key| *key < &table.largest[..]);
            let stretches = (to - from).max(1) as f64;
            for weight in weights.iter_mut().take(to).skip(from) {
                *weight += table.file_bytes as f64 / stretches;
            }
        }
        let sum: f64 = weights.iter().map(|weight| weight + least).sum();
        let mut at = 0.0;
        let mut ends = Vec::with_capacity(keys.len());
        for (n, key) in keys.into_iter().enumerate() {
            ends.push((key, at));
            at += (weights.get(n).copied().unwrap_or(0.0) + least) / sum.max(f64::MIN_POSITIVE);
        }
        let mut ages: Vec<u64> = tables().map(|table| table.max_lsn).collect();
        ages.sort_unstable();
        Drawing { shown, ends, ages }
    }

    fn draw(&self, out: &mut String, y: f64) -> f64 {
        let stats = self.shown.stats;
        let _ =
            writeln!(out, "<line class=\"line\" x1=\"16\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>", WIDTH - 16.0);
        label(out, "name", 16.0, y + 28.0, &stats.name);
        label(out, "dim small right", RIGHT, y + 28.0, "keys, in their order →");
        label(out, "dim small", RIGHT + 16.0, y + 28.0, "bytes of target (│ is due for a merge)");
        let mut y = self.memory(out, y + 40.0);
        let in_use = |(number, level): &(usize, &LevelInfo)| *number == 0 || !level.tables.is_empty();
        for (number, level) in self.shown.levels.iter().enumerate().filter(in_use) {
            y = self.level(out, y, number, level);
        }
        self.axis(out, y) + GAP
    }

    fn memory(&self, out: &mut String, y: f64) -> f64 {
        let stats = self.shown.stats;
        label(out, "", 16.0, y + 15.0, "memory");
        rail(out, y, 20.0);
        let held = figures::unflushed_bytes(stats);
        let tables: u64 = self.shown.levels.iter().flat_map(|l| &l.tables).map(|t| t.file_bytes).sum();
        // To the scale of the tables below.
        let width = (RIGHT - LEFT) * held as f64 / (tables.max(held)).max(1) as f64;
        if held > 0 {
            let parts = stats.frozen_memtables as f64 + 1.0;
            for part in 0..=stats.frozen_memtables {
                let class = if part == 0 { "memory frame" } else { "frozen frame" };
                rect(out, class, LEFT + width * part as f64 / parts, y, (width / parts).max(2.0), 20.0);
            }
        }
        let frozen = match stats.frozen_memtables {
            0 => String::new(),
            n => format!(", {} frozen", count(n as u64)),
        };
        let holds = format!("{}, {}{frozen}", bytes(held), plural(stats.memtable_versions, "version"));
        label(out, "", RIGHT + 16.0, y + 15.0, &holds);
        y + 20.0 + GAP
    }

    fn level(&self, out: &mut String, y: f64, number: usize, level: &LevelInfo) -> f64 {
        let lanes = if number == 0 { level.tables.len().clamp(1, 16) } else { 1 };
        let lane = if number == 0 { LANE } else { ROW };
        let height = (lane * lanes as f64).max(ROW);
        label(out, "name", 16.0, y + 15.0, &format!("L{number}"));
        label(out, "dim small", 16.0, y + 30.0, &plural(level.tables.len() as u64, "table"));
        rail(out, y, height);
        for (n, table) in level.tables.iter().enumerate() {
            let (left, right) = (self.x(&table.smallest), self.x(&table.largest));
            let top = y + (n % lanes) as f64 * lane;
            let width = (right - left).max(1.5);
            let age = self.age(table.max_lsn);
            let _ = writeln!(
                out,
                "<g class=\"table\" data-table=\"{}\"><title>{}</title>",
                table.id,
                text(&figures_of(table))
            );
            rect(out, &format!("a{age} frame"), left, top, width, lane);
            let dead = table.deletes as f64 / table.entries.max(1) as f64;
            if dead > 0.0 {
                let foot = (lane * dead).clamp(1.0, lane);
                rect(out, "dead", left, top + lane - foot, width, foot);
            }
            out.push_str("</g>\n");
        }
        let size: u64 = level.tables.iter().map(|table| table.file_bytes).sum();
        let target = match number {
            0 => format!("{}, due at {}", bytes(size), plural(level.target_tables as u64, "table")),
            _ if level.target_bytes == 0 => bytes(size),
            _ => format!("{} of {}", bytes(size), bytes(level.target_bytes)),
        };
        label(out, "", RIGHT + 16.0, y + 14.0, &format!("{target}, score {:.2}", level.score));
        meter(out, y + 21.0, level.score);
        y + height + GAP
    }

    /// A few keys below the boxes.
    fn axis(&self, out: &mut String, y: f64) -> f64 {
        let (Some(first), Some(last)) = (self.ends.first(), self.ends.last()) else { return y };
        label(out, "dim small", LEFT, y + 8.0, &short(first.0));
        let middle = self.ends.iter().find(|(_, at)| *at >= 0.5);
        if let Some((key, at)) = middle.filter(|(_, at)| (0.3..0.7).contains(at)) {
            label(out, "dim small mid", LEFT + at * (RIGHT - LEFT), y + 8.0, &short(key));
        }
        if self.ends.len() > 1 {
            label(out, "dim small right", RIGHT, y + 8.0, &short(last.0));
        }
        y + 16.0
    }

    fn x(&self, key: &[u8]) -> f64 {
        let n = self.ends.partition_point(|(end, _)| *end < key).min(self.ends.len().saturating_sub(1));
        LEFT + self.ends.get(n).map_or(0.0, |(_, at)| *at) * (RIGHT - LEFT)
    }

    /// 0 for the newest, up to [`AGES`]: as many tables have one age as another.
    fn age(&self, lsn: u64) -> usize {
        let newer = self.ages.len() - self.ages.partition_point(|other| *other <= lsn);
        newer * AGES / self.ages.len().max(1)
    }
}

fn figures_of(table: &drumlin::inspect::TableInfo) -> String {
    let key = |key: &[u8]| escape::shortened(key);
    format!(
        "table {}: {}, {}, {}, {}\nkeys {} to {}\npositions {} to {}",
        table.id,
        bytes(table.file_bytes),
        plural(table.entries, "version"),
        plural(table.deletes, "delete"),
        plural(table.range_tombstones, "range delete"),
        key(&table.smallest),
        key(&table.largest),
        table.min_lsn,
        table.max_lsn
    )
}

/// What the colours mean.
fn legend(out: &mut String, y: f64) -> f64 {
    label(out, "dim small", 16.0, y + 12.0, "newest");
    for age in 0..AGES {
        rect(out, &format!("a{age} frame"), 60.0 + 24.0 * age as f64, y, 24.0, 16.0);
    }
    let mut x = 60.0 + 24.0 * AGES as f64 + 8.0;
    label(out, "dim small", x, y + 12.0, "oldest table");
    for (class, what, room) in [
        ("dead", "share of deletes", 110.0),
        ("memory", "memory", 62.0),
        ("frozen", "waits for its flush", 120.0),
        ("log", "log segment", 90.0),
    ] {
        x += if class == "dead" { 96.0 } else { 0.0 };
        rect(out, class, x, y, 16.0, 16.0);
        label(out, "dim small", x + 22.0, y + 12.0, what);
        x += 22.0 + room;
    }
    label(out, "dim small", x, y + 12.0, "Each stretch of keys is as wide as its bytes on all levels.");
    y + 20.0
}

/// How near a level is to its merge: the mark stands at a score of 1.
fn meter(out: &mut String, y: f64, score: f64) {
    let (left, width) = (RIGHT + 16.0, 160.0);
    rect(out, "meter", left, y, width, 6.0);
    let filled = (score / 2.0).clamp(0.0, 1.0) * width;
    if filled > 0.0 {
        rect(out, if score >= 1.0 { "over" } else { "fill" }, left, y, filled, 6.0);
    }
    let mark = left + width / 2.0;
    let _ = writeln!(
        out,
        "<line class=\"mark\" x1=\"{mark}\" x2=\"{mark}\" y1=\"{}\" y2=\"{}\"/>",
        y - 2.0,
        y + 8.0
    );
}

fn rail(out: &mut String, y: f64, height: f64) {
    rect(out, "rail", LEFT, y, RIGHT - LEFT, height);
}

fn rect(out: &mut String, class: &str, x: f64, y: f64, width: f64, height: f64) {
    let _ = writeln!(
        out,
        "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\"/>"
    );
}

fn label(out: &mut String, class: &str, x: f64, y: f64, what: &str) {
    let _ = writeln!(out, "<text class=\"{class}\" x=\"{x:.2}\" y=\"{y:.2}\">{}</text>", text(what));
}

/// A key that fits below the boxes.
fn short(key: &[u8]) -> String {
    const SHOWN: usize = 28;
    let readable = escape::shortened(key);
    match readable.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &readable[..end]),
        None => readable,
    }
}

/// Text as XML has it. What XML cannot hold is replaced.
fn text(plain: &str) -> String {
    let mut out = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push('\n'),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
