//! First section: a real table into the store.

use std::time::Instant;

use drumlin::Db;

use crate::args::InputFormat;
use crate::failure::{Failure, Result};
use crate::input::{BadLine, Records};
use crate::loader::{self, Loaded, Stop, Watch};
use crate::output;
use crate::progress::Bar;
use crate::tour::{CITIES, Tour, keyspace_options};

pub fn walk(tour: &mut Tour<'_>, db: &Db) -> Result<()> {
    tour.say.section("Load")?;
    tour.say.line(
        "The cities of the world by GeoNames (CC BY 4.0): each line of a table becomes a record, its first",
    )?;
    tour.say.line(
        "column the key (country/name/number). A put that has returned survives a kill of the process.",
    )?;
    let keyspace = db.keyspace(CITIES, keyspace_options())?;
    let mut records = match Records::begin(tour.cities.file(), InputFormat::Tsv, b"id", false) {
        Ok(records) => records,
        Err(unusable) => return Err(Failure::Check(format!("the table has no header: {unusable:?}"))),
    };
    let mut watch = OnBar(tour.watcher.bytes("loading", tour.cities.table().len() as u64));
    let began = Instant::now();
    let (done, ended) = loader::load(&mut records, &keyspace, &mut watch);
    let seconds = began.elapsed().as_secs_f64();
    drop(watch);
    match ended {
        Ok(()) => {}
        Err(Stop::Failed(failure)) => return Err(failure),
        Err(stop) => return Err(Failure::Check(format!("the table does not load: {stop:?}"))),
    }
    let expected = tour.cities.len() as u64;
    tour.say.check(done.records == expected, || format!("{} of {expected} records loaded", done.records))?;
    tour.say.line(format_args!(
        "  {} records, {}, in {seconds:.2} s: {} records/s, by one thread",
        output::count(done.records),
        output::bytes(done.bytes),
        output::count((done.records as f64 / seconds.max(1e-9)) as u64)
    ))?;
    tour.say.figure("loaded", done.records);
    Ok(())
}

struct OnBar(Bar);

impl Watch for OnBar {
    fn progress(&mut self, done: Loaded) -> Result<()> {
        self.0.at(done.bytes);
        self.0.say(format!("{} records", output::count(done.records)));
        Ok(())
    }

    fn bad_line(&mut self, _bad: &BadLine) -> bool {
        false
    }
}
