//! Second section: point, prefix, range and reverse queries.
//!
//! 1. Every answer is compared, key and value, with the rows of the table.

use std::ops::Range;
use std::time::Instant;

use drumlin::{Db, Keyspace, Scan};

use crate::escape::readable;
use crate::failure::{Failure, Result};
use crate::output;
use crate::tour::data::{City, city};
use crate::tour::random::Random;
use crate::tour::{CITIES, Tour};

/// Keys asked for one by one.
const POINTS: usize = 20_000;
/// Records of an answer that are shown.
const SHOWN: usize = 5;

pub fn walk(tour: &mut Tour<'_>, db: &Db) -> Result<()> {
    tour.say.section("Ask")?;
    let keyspace = db.open_keyspace(CITIES)?;
    one(tour, &keyspace, b"DE/Berlin/2950159")?;
    points(tour, &keyspace)?;
    prefix(tour, &keyspace, b"US/Springfield/")?;
    range(tour, &keyspace, b"JP/Ky\xc5\x8d", b"JP/L")?;
    reverse(tour, &keyspace, b"IS/")?;
    everything(tour, &keyspace)
}

fn one(tour: &mut Tour<'_>, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
    let found = keyspace.get(key)?;
    let expected = tour.cities.find(key).map(|row| tour.cities.line(row));
    tour.say.check(found.as_deref() == expected, || format!("get {} gives {found:?}", readable(key)))?;
    tour.say.line(format_args!("A point: get {}", readable(key)))?;
    match found.as_deref().and_then(city) {
        Some(city) => show(tour, &city),
        None => Err(Failure::Check(format!("{} is not in the table", readable(key)))),
    }
}

fn points(tour: &mut Tour<'_>, keyspace: &Keyspace) -> Result<()> {
    let mut random = Random::new(1);
    let mut found = 0usize;
    let began = Instant::now();
    for turn in 0..POINTS {
        let row = random.below(tour.cities.len());
        // Every fourth key is one that no city has.
        let absent = [tour.cities.key(row), b"?"].concat();
        let (key, expected) = match turn % 4 {
            3 => (&absent[..], None),
            _ => (tour.cities.key(row), Some(tour.cities.line(row))),
        };
        let value = keyspace.get(key)?;
        if value.as_deref() != expected {
            return Err(Failure::Check(format!("get {} gives {value:?}", readable(key))));
        }
        found += usize::from(value.is_some());
    }
    let micros = began.elapsed().as_secs_f64() * 1e6 / POINTS as f64;
    tour.say.check(found == POINTS - POINTS / 4, || format!("{found} of {POINTS} found"))?;
    tour.say.figure("gets", POINTS as u64);
    tour.say.line(format_args!(
        "  and {} keys drawn at random, a quarter of them absent: {micros:.1} us each, all as in the table",
        output::count(POINTS as u64)
    ))
}

fn prefix(tour: &mut Tour<'_>, keyspace: &Keyspace, prefix: &[u8]) -> Result<()> {
    let rows = tour.cities.with_prefix(prefix);
    let count = rows.len();
    tour.say.line(format_args!(
        "A prefix: {} has {}",
        readable(prefix),
        output::plural(count as u64, "record")
    ))?;
    compare(tour, keyspace.prefix(prefix)?, rows.clone(), false, "prefix")?;
    list(tour, rows.take(SHOWN), count)
}

fn range(tour: &mut Tour<'_>, keyspace: &Keyspace, from: &[u8], to: &[u8]) -> Result<()> {
    let rows = tour.cities.between(from, to);
    let count = rows.len();
    tour.say.line(format_args!(
        "A range: from {} to before {} there are {}",
        readable(from),
        readable(to),
        output::plural(count as u64, "record")
    ))?;
    compare(tour, keyspace.range(from..to)?, rows.clone(), false, "range")?;
    list(tour, rows.take(SHOWN), count)
}

fn reverse(tour: &mut Tour<'_>, keyspace: &Keyspace, prefix: &[u8]) -> Result<()> {
    let rows = tour.cities.with_prefix(prefix);
    let count = rows.len();
    tour.say.line(format_args!("Backwards: {} from its last record down", readable(prefix)))?;
    compare(tour, keyspace.prefix(prefix)?, rows.clone(), true, "reverse prefix")?;
    list(tour, rows.rev().take(SHOWN), count)
}

fn everything(tour: &mut Tour<'_>, keyspace: &Keyspace) -> Result<()> {
    let all = 0..tour.cities.len();
    let began = Instant::now();
    compare(tour, keyspace.iter()?, all.clone(), false, "whole scan")?;
    let forward = began.elapsed().as_secs_f64();
    compare(tour, keyspace.iter()?, all, true, "whole reverse scan")?;
    tour.say.line(format_args!(
        "Everything: {} records forward in {forward:.2} s, and backward in {:.2} s, each compared with the table",
        output::count(tour.cities.len() as u64),
        began.elapsed().as_secs_f64() - forward
    ))
}

/// The scan gives exactly these rows, in this order, and then ends.
fn compare(
    tour: &mut Tour<'_>,
    mut scan: Scan,
    rows: Range<usize>,
    backwards: bool,
    what: &str,
) -> Result<()> {
    let cities = &tour.cities;
    let mut step = || if backwards { scan.next_back() } else { scan.next() };
    let wrong = |detail: String| Err(Failure::Check(format!("{what}: {detail}")));
    for turn in 0..rows.len() {
        let row = if backwards { rows.end - 1 - turn } else { rows.start + turn };
        let Some(next) = step() else {
            return wrong(format!("ends before {}", readable(cities.key(row))));
        };
        let (key, value) = next?;
        if *key != *cities.key(row) || *value != *cities.line(row) {
            return wrong(format!("gives {} where {} is due", readable(&key), readable(cities.key(row))));
        }
    }
    if let Some(next) = step() {
        return wrong(format!("gives {} behind its end", readable(&next?.0)));
    }
    tour.say.check(true, String::new)
}

fn list(tour: &mut Tour<'_>, rows: impl Iterator<Item = usize>, count: usize) -> Result<()> {
    let lines: Vec<usize> = rows.collect();
    for row in &lines {
        let line = format!(
            "    {:<32} {:>10} people",
            readable(tour.cities.key(*row)),
            output::count(tour.cities.population(*row))
        );
        tour.say.line(line)?;
    }
    if count > lines.len() {
        tour.say.line(format_args!("    ... and {} more", output::count((count - lines.len()) as u64)))?;
    }
    Ok(())
}

fn show(tour: &mut Tour<'_>, city: &City<'_>) -> Result<()> {
    tour.say.line(format_args!(
        "    {}: {} people, at {} N {} E, time zone {}",
        city.name,
        output::count(city.population),
        city.latitude,
        city.longitude,
        city.time_zone
    ))
}
