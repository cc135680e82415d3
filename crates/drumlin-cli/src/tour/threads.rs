//! Third section: threads change the world while snapshots of it are counted.
//!
//! Movers move people between two cities with an atomic batch, each mover in cities of its own: the world's
//! sum stays. Others add one inhabitant at a time to a few cities that all of them share, with `update` or
//! compare-and-swap: the sum grows by exactly their number, if no update is lost.
//!
//! 1. `acknowledged` read before a snapshot and `begun` read after it bound the births it may show: a
//!    snapshot is linearizable if its sum lies between, and no batch is torn if the movers do not show.
//! 2. A snapshot shows the same sum however late it is counted again.
//!
//! Concurrency: the two counters are SeqCst, since their order against the store's own operations is what
//! is tested; `stop` is a plain flag.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use drumlin::{Cas, Db, Keyspace, Snapshot};

use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output;
use crate::tour::data::Cities;
use crate::tour::random::Random;
use crate::tour::{POPULATION, Tour, keyspace_options};

const MOVERS: usize = 3;
const UPDATERS: usize = 2;
const SWAPPERS: usize = 1;
/// Cities that updaters and swappers share; movers leave them alone.
const SHARED: [&[u8]; 4] =
    [b"CN/Shanghai/1796236", b"IN/Mumbai/1275339", b"NG/Lagos/2332459", b"TR/Istanbul/745044"];
/// Snapshots taken at least.
const SNAPSHOTS_MIN: u64 = 10;
/// Operations each thread does at least.
const OPERATIONS_MIN: u64 = 1000;
/// Records put with one batch when the keyspace is filled.
const BATCH: usize = 1000;
/// If the threads have not done their share by then, one of them hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the threads share.
struct World<'a> {
    cities: &'a Cities,
    population: Keyspace,
    /// Births that may be in a snapshot taken from now on.
    begun: AtomicU64,
    /// Births that must be in a snapshot taken from now on.
    acknowledged: AtomicU64,
    /// Operations of each thread.
    operations: [AtomicU64; MOVERS + UPDATERS + SWAPPERS],
    stop: AtomicBool,
}

pub fn walk(tour: &mut Tour<'_>, db: &Db) -> Result<()> {
    tour.say.section("Change it from many threads, and count the world meanwhile")?;
    let population = db.keyspace(POPULATION, keyspace_options())?;
    fill(tour, db, &population)?;
    let base = tour.cities.world();
    tour.say.line(format_args!(
        "The world has {} people. Now {MOVERS} threads move people between two cities at a time, with atomic",
        output::count(base)
    ))?;
    tour.say.line(format_args!("batches; {UPDATERS} add newborns with update(), {SWAPPERS} with compare-and-swap. Meanwhile the world is counted, in"))?;
    tour.say
        .line("snapshots: a batch half done would change the sum, and a lost update would miss a birth.")?;
    let world = World {
        cities: &tour.cities,
        population,
        begun: AtomicU64::new(0),
        acknowledged: AtomicU64::new(0),
        operations: Default::default(),
        stop: AtomicBool::new(false),
    };
    let bar = tour.watcher.counter("counting");
    bar.say("snapshots".into());
    let began = Instant::now();
    let (counted, kept) = thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..world.operations.len() {
            let (world, db) = (&world, db);
            threads.push(scope.spawn(move || {
                let worked = if number < MOVERS {
                    move_people(world, db, number)
                } else if number < MOVERS + UPDATERS {
                    add_people(world, number, update)
                } else {
                    add_people(world, number, swap)
                };
                if worked.is_err() {
                    world.stop.store(true, Ordering::Relaxed);
                }
                worked
            }));
        }
        let counted = count_snapshots(&world, db, base, |snapshots| bar.at(snapshots));
        world.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            match thread.join() {
                Ok(worked) => worked?,
                Err(_) => return Err(Failure::Check("a thread panicked".into())),
            }
        }
        counted
    })?;
    drop(bar);
    let seconds = began.elapsed().as_secs_f64();
    let births = world.acknowledged.load(Ordering::SeqCst);
    let done = |threads: std::ops::Range<usize>| -> u64 {
        world.operations[threads].iter().map(|count| count.load(Ordering::Relaxed)).sum()
    };
    let moves = done(0..MOVERS);
    let (first, first_sum) = kept;
    let again = sum(&first, &world.population)?.0;
    let now = sum(&db.snapshot()?, &world.population)?.0;
    tour.say.check(again == first_sum, || {
        format!("the first snapshot had {first_sum} people, and has {again} now")
    })?;
    tour.say.check(now == base + births, || format!("{base} people and {births} births make {now}"))?;
    for _ in 0..counted {
        tour.say.check(true, String::new)?;
    }
    tour.say.line(format_args!(
        "  {} moves and {} births in {seconds:.1} s; {counted} snapshots of {} records,\n  each with every batch whole and every birth that was acknowledged before it",
        output::count(moves),
        output::count(births),
        output::count(tour.cities.len() as u64)
    ))?;
    tour.say.line(format_args!(
        "  the first snapshot, counted again after all that: the same {} people; and now {}",
        output::count(again),
        output::count(now)
    ))?;
    tour.say.figure("moves", moves);
    tour.say.figure("births", births);
    tour.say.figure("snapshots", counted);
    tour.world = now;
    Ok(())
}

/// Puts every city's population as a decimal number.
fn fill(tour: &mut Tour<'_>, db: &Db, population: &Keyspace) -> Result<()> {
    let rows: Vec<usize> = (0..tour.cities.len()).collect();
    for some in rows.chunks(BATCH) {
        let mut batch = db.batch();
        for row in some {
            batch.put(population, tour.cities.key(*row), number(tour.cities.population(*row)))?;
        }
        batch.commit()?;
        interrupt::check()?;
    }
    Ok(())
}

/// Takes snapshots and counts them until enough is done. Gives their number, the first one and its sum.
fn count_snapshots(
    world: &World<'_>,
    db: &Db,
    base: u64,
    mut on_snapshot: impl FnMut(u64),
) -> Result<(u64, (Snapshot, u64))> {
    let began = Instant::now();
    let mut counted = 0;
    let kept = db.snapshot()?;
    let people_kept = sum(&kept, &world.population)?.0;
    loop {
        interrupt::check()?;
        let at_least = base + world.acknowledged.load(Ordering::SeqCst);
        let snapshot = db.snapshot()?;
        let at_most = base + world.begun.load(Ordering::SeqCst);
        let (people, cities) = sum(&snapshot, &world.population)?;
        if cities != world.cities.len() || !(at_least..=at_most).contains(&people) {
            return Err(Failure::Check(format!(
                "snapshot {counted} shows {people} people in {cities} cities, but must show {at_least} to {at_most} in {}",
                world.cities.len()
            )));
        }
        counted += 1;
        on_snapshot(counted);
        let slowest = world.operations.iter().map(|count| count.load(Ordering::Relaxed)).min().unwrap_or(0);
        let enough = counted >= SNAPSHOTS_MIN && slowest >= OPERATIONS_MIN;
        // A thread that fails stops all, and is asked for its reason by the caller.
        if enough || world.stop.load(Ordering::Relaxed) {
            return Ok((counted, (kept, people_kept)));
        }
        if began.elapsed() > PATIENCE {
            return Err(Failure::Check(format!("a thread did {slowest} operations in {PATIENCE:?}")));
        }
    }
}

/// All people in a snapshot, and the number of cities.
fn sum(snapshot: &Snapshot, population: &Keyspace) -> Result<(u64, usize)> {
    let (mut people, mut cities) = (0, 0);
    for record in snapshot.iter(population)? {
        people += parse(&record?.1)?;
        cities += 1;
    }
    Ok((people, cities))
}

/// Moves people between cities that no other thread changes.
fn move_people(world: &World<'_>, db: &Db, thread: usize) -> Result<()> {
    let own: Vec<usize> = (0..world.cities.len())
        .filter(|row| row % MOVERS == thread && !SHARED.contains(&world.cities.key(*row)))
        .collect();
    let mut random = Random::new(thread as u64);
    while !world.stop.load(Ordering::Relaxed) {
        let (from, to) = (own[random.below(own.len())], own[random.below(own.len())]);
        let (from_key, to_key) = (world.cities.key(from), world.cities.key(to));
        let leaving = read(&world.population, from_key)?;
        if from == to || leaving == 0 {
            continue;
        }
        let moved = 1 + random.below(leaving.min(10_000) as usize) as u64;
        let mut batch = db.batch();
        batch.put(&world.population, from_key, number(leaving - moved))?;
        batch.put(&world.population, to_key, number(read(&world.population, to_key)? + moved))?;
        batch.commit()?;
        world.operations[thread].fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Adds one inhabitant after the other to the shared cities, by `add`.
fn add_people(world: &World<'_>, thread: usize, add: fn(&Keyspace, &[u8]) -> Result<()>) -> Result<()> {
    let mut random = Random::new(thread as u64);
    while !world.stop.load(Ordering::Relaxed) {
        let city = SHARED[random.below(SHARED.len())];
        world.begun.fetch_add(1, Ordering::SeqCst);
        add(&world.population, city)?;
        world.acknowledged.fetch_add(1, Ordering::SeqCst);
        world.operations[thread].fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn update(population: &Keyspace, city: &[u8]) -> Result<()> {
    let mut unreadable = false;
    population.update(city, |old| match old.map(parse) {
        Some(Ok(people)) => Some(number(people + 1)),
        _ => {
            unreadable = true;
            old.map(<[u8]>::to_vec)
        }
    })?;
    if unreadable { Err(Failure::Check("update() was shown no number".into())) } else { Ok(()) }
}

fn swap(population: &Keyspace, city: &[u8]) -> Result<()> {
    let mut current = population.get(city)?;
    loop {
        let Some(old) = current else {
            return Err(Failure::Check("compare-and-swap was shown no value".into()));
        };
        let new = number(parse(&old)? + 1);
        match population.compare_and_swap(city, Some(&old), Some(&new))? {
            Cas::Swapped => return Ok(()),
            Cas::Mismatch { current: other } => current = other,
        }
    }
}

/// Number of people in a city.
fn read(population: &Keyspace, city: &[u8]) -> Result<u64> {
    match population.get(city)? {
        Some(value) => parse(&value),
        None => Err(Failure::Check(format!("{} has vanished", crate::escape::readable(city)))),
    }
}

fn number(people: u64) -> Vec<u8> {
    people.to_string().into_bytes()
}

fn parse(value: &[u8]) -> Result<u64> {
    std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Failure::Check(format!("{} is no number of people", crate::escape::readable(value))))
}

/// All people in the store, counted at one moment.
pub fn count_world(db: &Db) -> Result<u64> {
    let population = db.open_keyspace(POPULATION)?;
    Ok(sum(&db.snapshot()?, &population)?.0)
}
