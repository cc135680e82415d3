//! `tour`: a guided walk through the engine on real data, with every claim checked.
//!
//! Place: called by `commands`; uses the public interface of `drumlin` and, for the kill, this program's
//! own `load`.
//! ```text
//! place      where the store goes, and when one there may be replaced
//! data       the table of cities, and the answers it gives by itself
//! narrator   words, figures and checks on standard output
//! loading  queries  threads  crash  ending      the sections, in this order
//! ```
//! 1. Each answer of the store is compared with one computed from the table alone; the first that differs
//!    ends the tour with a failure.
//! 2. A directory is replaced only if it holds nothing but what an earlier tour put there.
//! 3. The store is left sound, closed, and compacted no more than it would be by itself.
//!
//! Tests: `tests/tour.rs`; unit tests beside the sections.

mod crash;
mod data;
mod ending;
mod loading;
mod narrator;
mod place;
mod queries;
mod random;
mod threads;

use std::time::Instant;

use drumlin::{Db, KeyspaceOptions, Options};

use crate::args::Args;
use crate::failure::Result;
use crate::figures;
use crate::open;
use crate::progress::Watcher;
use data::Cities;
use narrator::Narrator;

/// The places themselves: `id` to line.
const CITIES: &str = "cities";
/// Inhabitants, updated by threads: `id` to a decimal number.
const POPULATION: &str = "population";
/// What the killed child loads.
const CRASH: &str = "crash";

/// What the sections work with.
struct Tour<'a> {
    args: &'a Args,
    cities: Cities,
    say: Narrator,
    watcher: Watcher,
    /// Inhabitants of the world after the threads have worked; what every later look must find.
    world: u64,
    /// The store's own figures after the threads have worked.
    stats: String,
}

pub fn run(args: &Args) -> Result<()> {
    let began = Instant::now();
    let say = Narrator::new(args.json);
    let cities = Cities::unpack()?;
    let mut tour =
        Tour { args, cities, say, watcher: Watcher::new(args.quiet), world: 0, stats: String::new() };
    tour.say.title("A tour of Drumlin")?;
    place::prepare(args.db(), &tour.cities, &mut tour.say)?;

    let db = Db::open(args.db(), options())?;
    let walked = loading::walk(&mut tour, &db)
        .and_then(|()| queries::walk(&mut tour, &db))
        .and_then(|()| threads::walk(&mut tour, &db));
    tour.stats = figures::process(&db.stats());
    open::close_after(db, walked)?;

    crash::walk(&mut tour)?;

    let db = Db::open(args.db(), options())?;
    let walked = ending::walk(&mut tour, &db);
    open::close_after(db, walked)?;
    ending::farewell(&mut tour, began.elapsed())
}

/// A store small enough that the tree of a small table has several levels.
fn options() -> Options {
    Options {
        memory_bytes: 48 << 20,
        segment_bytes: 1 << 20,
        log_bytes_max: Some(16 << 20),
        ..Options::default()
    }
}

/// As [`options`], for keyspaces.
fn keyspace_options() -> KeyspaceOptions {
    KeyspaceOptions {
        memtable_bytes: Some(2 << 20),
        table_bytes: 1 << 20,
        level0_tables: 2,
        level1_bytes: 2 << 20,
        ..KeyspaceOptions::default()
    }
}
