//! Driving: a workload carried out on an engine by so many threads, and timed.
//!
//! Place: called by `session` for every workload and round; calls the engine and nothing else while the clock runs, or reads its
//! files (`blocks`), which are opened before.
//!
//! 1. The clock runs from when every thread is ready until the last is done (the burst), and then until the engine owes
//!    nothing (drained). Where what is counted was written, the drained time is the result.
//! 2. In a closed loop each thread begins an operation when its last has ended. In an open loop operations begin at a
//!    stated rate, whatever the engine does, and their latency counts from when they were to begin.
//! 3. Drawing a key and making its bytes are part of an operation, some tens of nanoseconds, alike for every engine.
//! 4. The first error ends the run and is the result.
//! 5. Beside an open loop a thread wakes at a fixed pace and does nothing: how late it is tells what of the worst latency is the wait for a processor.
//!
//! Concurrency: threads share the engine, the number of keys and the word that ends the run. Counters are Relaxed.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use rand::RngExt;

use crate::blocks::{Blocks, Page};
use crate::engine::{Engine, Error, Result, Traffic};
use crate::keys::{Choice, Chooser, mix, write_key};
use crate::latency::Latency;
use crate::usage::Usage;
use crate::values::Values;
use crate::workload::{Kind, Length, Workload};

/// How much is done, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Keys that there are, or are to be.
    pub keys: u64,
    /// Of these, only the first so many are asked for and put where any might be, all alike.
    pub span: Option<u64>,
    /// Operations of all threads together.
    pub operations: u64,
    /// End after so long, if operations are left.
    pub at_most: Option<Duration>,
    /// Threads.
    pub threads: u64,
    /// Operations a second of all threads together: an open loop.
    pub rate: Option<f64>,
    /// Puts in one batch.
    pub batch: u64,
    /// Keys of one multi-get.
    pub together: usize,
    /// Records of one scan.
    pub scan_length: usize,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// To what a value could be compressed, as a part of its bytes.
    pub compression_ratio: f64,
    /// Keys of one block, for workloads that tell hot blocks from cold ones.
    pub block_keys: u64,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Which pass of its kind it is: each draws keys of its own.
    pub pass: u64,
}

/// What a run was like.
#[derive(Clone, Default)]
pub struct Measured {
    /// Operations done.
    pub operations: u64,
    /// Puts of the thread beside, if there was one.
    pub beside: Option<u64>,
    /// Of the gets, those that found a value; records that scans met.
    pub found: u64,
    /// Bytes of keys and values that were written, beside included.
    pub user_bytes: u64,
    /// Until the last thread was done.
    pub burst: Duration,
    /// Until nothing was owed.
    pub drained: Duration,
    /// Bytes owed when the last thread was done.
    pub debt_at_burst: Option<u64>,
    /// Records in no order yet when the last thread was done.
    pub unsorted_at_burst: Option<u64>,
    /// How long writers were held back, all of them together, until the last thread was done.
    pub held_back: Option<Duration>,
    /// Of an open loop: how late a thread woke at the latest that did nothing but sleep.
    pub wake_latest: Option<Duration>,
    /// Bytes owed when nothing was to be owed any more.
    pub debt_left: Option<u64>,
    /// Latencies by kind of operation, those that happened.
    pub latencies: Vec<(Kind, Latency)>,
    /// What went through the engine's files, until drained.
    pub traffic: Option<Traffic>,
    /// What the process used, until drained.
    pub usage: Usage,
}

/// How far a workload is, for whoever watches it.
#[derive(Default)]
pub struct Progress {
    /// Operations done, roughly.
    pub done: AtomicU64,
    /// All of it has ended.
    pub over: AtomicBool,
    /// Set by the watcher: it is to end early.
    pub stop: AtomicBool,
}

impl Progress {
    /// Does some work, which `watch` follows on a thread of its own until it is over.
    pub fn followed<T>(watch: impl FnOnce(&Progress) + Send, work: impl FnOnce(&Progress) -> T) -> T {
        /// The watcher goes also where the work panics: else that would be waited for, and never told.
        struct End<'a>(&'a Progress);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.over.store(true, Ordering::Release);
            }
        }
        let progress = Progress::default();
        std::thread::scope(|scope| {
            scope.spawn(|| watch(&progress));
            let _end = End(&progress);
            work(&progress)
        })
    }
}

/// What all threads share.
struct Run<'a> {
    engine: &'a dyn Engine,
    workload: &'a Workload,
    plan: &'a Plan,
    /// What it reads past the engine.
    blocks: Option<Blocks>,
    /// Keys that there are now: inserts add to them.
    keys: AtomicU64,
    over: AtomicBool,
    ready: Barrier,
    began: Mutex<Option<Instant>>,
    failed: Mutex<Option<Error>>,
    progress: &'a Progress,
}

/// What one thread did.
#[derive(Default)]
struct Share {
    operations: u64,
    found: u64,
    user_bytes: u64,
    latencies: Vec<(Kind, Latency)>,
}

/// Between two wakings of the thread that does nothing else, beside an open loop.
const WATCH_PACE: Duration = Duration::from_millis(1);

/// Operations between two additions to the shared count.
const TELL_EVERY: u64 = 1024;

/// Carries out `workload`.
pub fn drive(engine: &dyn Engine, workload: &Workload, plan: &Plan, progress: &Progress) -> Result<Measured> {
    let threads = plan.threads.max(1);
    let blocks = if workload.is_of_device() { Some(engine.blocks()?) } else { None };
    let run = Run {
        engine,
        workload,
        plan,
        blocks,
        keys: AtomicU64::new(plan.keys),
        over: AtomicBool::new(false),
        ready: Barrier::new(threads as usize + 1 + usize::from(workload.beside_writer)),
        began: Mutex::new(None),
        failed: Mutex::new(None),
        progress,
    };
    let traffic_before = engine.traffic();
    let held_before = engine.held_back();
    Usage::forget_peak();
    let (mut measured, began, usage_before) = std::thread::scope(|scope| {
        let beside = workload.beside_writer.then(|| scope.spawn(|| run.write_beside()));
        let hands: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn({
                    let run = &run;
                    move || run.work(thread)
                })
            })
            .collect();
        let usage_before = Usage::now();
        let watch = plan.rate.map(|_| scope.spawn(|| run.wake_latest()));
        let began = Instant::now();
        *run.began.lock().expect("no thread panics with it") = Some(began);
        run.ready.wait();
        let mut measured = Measured::default();
        for hand in hands {
            measured.add(hand.join().expect("a worker's panic is the bench's"));
        }
        measured.burst = began.elapsed();
        measured.debt_at_burst = engine.debt_bytes();
        measured.unsorted_at_burst = engine.unsorted();
        measured.held_back =
            engine.held_back().zip(held_before).map(|(now, before)| now.saturating_sub(before));
        run.over.store(true, Ordering::Relaxed);
        measured.wake_latest = watch.map(|watch| watch.join().expect("a worker's panic is the bench's"));
        if let Some(beside) = beside {
            let share = beside.join().expect("a worker's panic is the bench's");
            measured.beside = Some(share.operations);
            measured.user_bytes += share.user_bytes;
            measured.note_latencies(share.latencies);
        }
        (measured, began, usage_before)
    });
    if let Some(error) = run.failed.into_inner().expect("no thread panics with it") {
        return Err(error);
    }
    engine.settle()?;
    measured.drained = began.elapsed();
    measured.debt_left = engine.debt_bytes();
    measured.usage = Usage::now().since(&usage_before);
    measured.traffic = engine.traffic().zip(traffic_before).map(|(now, before)| now.since(&before));
    Ok(measured)
}

impl Measured {
    fn add(&mut self, share: Share) {
        self.operations += share.operations;
        self.found += share.found;
        self.user_bytes += share.user_bytes;
        self.note_latencies(share.latencies);
    }

    fn note_latencies(&mut self, latencies: Vec<(Kind, Latency)>) {
        for (kind, latency) in latencies {
            match self.latencies.iter_mut().find(|(of, _)| *of == kind) {
                Some((_, all)) => all.join(&latency),
                None => self.latencies.push((kind, latency)),
            }
        }
        self.latencies.sort_by_key(|(kind, _)| *kind);
    }
}

impl Run<'_> {
    fn work(&self, thread: u64) -> Share {
        let mut hand = Hand::new(self, thread);
        self.ready.wait();
        let outcome = match hand.walks() {
            Some(kind) => hand.walk(kind),
            None => hand.operate(),
        };
        if let Err(error) = outcome {
            self.fail(error);
        }
        hand.share
    }

    /// Wakes at its pace until the others are done. How late it was at the latest.
    fn wake_latest(&self) -> Duration {
        wake_exactly();
        let mut latest = Duration::ZERO;
        while !self.over.load(Ordering::Relaxed) {
            let due = Instant::now() + WATCH_PACE;
            wait_until(due);
            latest = latest.max(due.elapsed());
        }
        latest
    }

    /// Puts as fast as it can until the others are done.
    fn write_beside(&self) -> Share {
        let mut hand = Hand::new(self, u64::from(u32::MAX));
        hand.share.latencies = vec![(Kind::Put, Latency::default())];
        self.ready.wait();
        let mut last = Instant::now();
        // Once at least, however short the others are at work.
        loop {
            match hand.act(Kind::Put) {
                Ok(()) => hand.share.operations += 1,
                Err(error) => self.fail(error),
            }
            let now = Instant::now();
            hand.note(Kind::Put, now - last);
            last = now;
            if self.over.load(Ordering::Relaxed) {
                return hand.share;
            }
        }
    }

    /// Ends the run.
    fn fail(&self, error: Error) {
        self.over.store(true, Ordering::Relaxed);
        self.failed.lock().expect("no thread panics with it").get_or_insert(error);
    }
}

/// One thread at work.
struct Hand<'a> {
    run: &'a Run<'a>,
    thread: u64,
    chooser: Chooser,
    values: Values,
    key: Vec<u8>,
    /// Keys of a batch or a multi-get.
    keys: Vec<Vec<u8>>,
    pages: Vec<Page>,
    share: Share,
}

impl<'a> Hand<'a> {
    fn new(run: &'a Run<'a>, thread: u64) -> Hand<'a> {
        let plan = run.plan;
        let first = part(plan.keys, plan.threads, thread).start;
        Hand {
            run,
            thread,
            chooser: Chooser::new(
                run.workload.keys,
                plan.keys,
                first,
                plan.block_keys,
                plan.seed,
                (run.workload.name, plan.pass),
                thread,
            ),
            values: Values::new(plan.compression_ratio, plan.value_bytes, mix(plan.seed) ^ thread),
            key: vec![0; plan.key_bytes],
            keys: Vec::new(),
            pages: vec![Page::new(0); if run.blocks.is_some() { run.plan.together } else { 0 }],
            share: Share {
                latencies: run.workload.mix.iter().map(|(kind, _)| (*kind, Latency::default())).collect(),
                ..Share::default()
            },
        }
    }

    /// Operations that are this thread's.
    fn quota(&self) -> u64 {
        let part = part(self.run.plan.operations, self.run.plan.threads, self.thread);
        part.end - part.start
    }

    fn began(&self) -> Instant {
        self.run.began.lock().expect("no thread panics with it").unwrap_or_else(Instant::now)
    }

    /// The loop, closed or open.
    fn operate(&mut self) -> Result<()> {
        let plan = self.run.plan;
        let (quota, began, run) = (self.quota(), self.began(), self.run);
        let step = self.step();
        let pace =
            plan.rate.map(|rate| Duration::from_secs_f64(plan.threads.max(1) as f64 * step as f64 / rate));
        let mut due = began
            + pace
                .map_or(Duration::ZERO, |pace| pace.mul_f64(self.thread as f64 / plan.threads.max(1) as f64));
        if pace.is_some() {
            wake_exactly();
        }
        let mut last = Instant::now();
        let mut told = 0;
        while self.share.operations < quota {
            let kind = self.draw();
            let start = match pace {
                Some(pace) => {
                    wait_until(due);
                    let start = due;
                    due += pace;
                    start
                }
                None => last,
            };
            self.act(kind)?;
            let now = Instant::now();
            self.note(kind, now - start);
            last = now;
            self.share.operations += step;
            if self.share.operations - told >= TELL_EVERY {
                run.progress.done.fetch_add(self.share.operations - told, Ordering::Relaxed);
                told = self.share.operations;
            }
            let is_late = plan.at_most.is_some_and(|most| now - began > most);
            if is_late || run.over.load(Ordering::Relaxed) || run.progress.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }

    fn note(&mut self, kind: Kind, took: Duration) {
        if let Some((_, latency)) = self.share.latencies.iter_mut().find(|(of, _)| *of == kind) {
            latency.note(took);
        }
    }

    /// What comes next, by the mix.
    fn draw(&mut self) -> Kind {
        let mix = self.run.workload.mix;
        if let [(only, _)] = mix {
            return *only;
        }
        let mut at: f64 = self.chooser.random().random();
        for (kind, share) in mix {
            at -= share;
            if at < 0.0 {
                return *kind;
            }
        }
        mix[mix.len() - 1].0
    }

    fn puts_batches(&self) -> bool {
        self.run.plan.batch > 1 && matches!(self.run.workload.mix, [(Kind::Put, _)])
    }

    /// What one call counts for: its keys, of batches and multi-gets.
    fn step(&self) -> u64 {
        match self.run.workload.mix {
            [(Kind::GetMany | Kind::Block, _)] => self.run.plan.together as u64,
            _ if self.puts_batches() => self.run.plan.batch,
            _ => 1,
        }
    }

    /// Records of the next scan.
    fn scan_length(&mut self) -> usize {
        match self.run.workload.scans {
            Length::Asked => self.run.plan.scan_length,
            Length::Exactly(records) => records,
            Length::Between(least, most) => self.chooser.random().random_range(least..=most),
        }
    }

    /// Draws a key and makes its bytes.
    fn next_key(&mut self) {
        let keys = self.run.keys.load(Ordering::Relaxed);
        let span = self.run.plan.span.filter(|_| self.run.workload.keys == Choice::Uniform);
        write_key(&mut self.key, self.chooser.next(span.map_or(keys, |span| span.min(keys))));
    }

    fn act(&mut self, kind: Kind) -> Result<()> {
        let (plan, engine) = (self.run.plan, self.run.engine);
        let record = (plan.key_bytes + plan.value_bytes) as u64;
        match kind {
            Kind::Put if self.puts_batches() => {
                self.draw_keys(plan.batch as usize);
                let value = self.values.next(plan.value_bytes);
                let records: Vec<_> = self.keys.drain(..).map(|key| (key, value)).collect();
                engine.put_many(&records)?;
                self.share.user_bytes += record * plan.batch;
            }
            Kind::Put | Kind::PutSynced | Kind::Insert => {
                if kind == Kind::Insert {
                    write_key(&mut self.key, self.run.keys.fetch_add(1, Ordering::Relaxed));
                } else {
                    self.next_key();
                }
                let value = self.values.next(plan.value_bytes);
                match kind {
                    Kind::PutSynced => engine.put_synced(&self.key, value)?,
                    _ => engine.put(&self.key, value)?,
                }
                self.share.user_bytes += record;
            }
            Kind::Get => {
                self.next_key();
                let mut bytes = 0;
                self.share.found += u64::from(engine.get(&self.key, &mut |value| bytes += value.len())?);
                std::hint::black_box(bytes);
            }
            Kind::GetAbsent => {
                self.next_key();
                // Between two keys that there are: sorted behind the drawn one, and not found by its bounds alone.
                if let Some(last) = self.key.last_mut() {
                    *last ^= 1;
                }
                self.share.found += u64::from(engine.get(&self.key, &mut |_| ())?);
            }
            Kind::GetMany => {
                self.draw_keys(plan.together);
                self.share.found += engine.get_many(&self.keys, &mut |_| ())? as u64;
                self.keys.clear();
            }
            Kind::Scan => {
                self.next_key();
                let length = self.scan_length();
                self.share.found += engine.scan(&self.key, length, false, &mut see)? as u64;
            }
            Kind::Update => {
                self.next_key();
                let fresh = self.values.next(plan.value_bytes);
                engine.update(&self.key, &|old| changed(old, fresh))?;
                self.share.user_bytes += record;
            }
            Kind::PutIfAbsent => {
                self.next_key();
                let value = self.values.next(plan.value_bytes);
                match engine.put_if_absent(&self.key, value)? {
                    true => self.share.user_bytes += record,
                    false => self.share.found += 1,
                }
            }
            Kind::Delete => {
                self.next_key();
                engine.delete(&self.key)?;
                self.share.user_bytes += plan.key_bytes as u64;
            }
            Kind::Block => {
                let Some(blocks) = &self.run.blocks else { return Ok(()) };
                let random = self.chooser.random();
                self.pages.iter_mut().for_each(|page| page.number = random.random_range(0..blocks.count()));
                blocks.read(&mut self.pages)?;
            }
            Kind::Walk | Kind::WalkBack | Kind::Open => {}
        }
        Ok(())
    }

    fn draw_keys(&mut self, count: usize) {
        self.keys.clear();
        for _ in 0..count {
            self.next_key();
            self.keys.push(self.key.clone());
        }
    }

    /// The kind of walk, if it is one.
    fn walks(&self) -> Option<Kind> {
        self.run
            .workload
            .mix
            .first()
            .map(|(kind, _)| *kind)
            .filter(|kind| matches!(kind, Kind::Walk | Kind::WalkBack))
    }

    /// Reads the thread's part of all records, by one scan. Its latency is that of the whole scan.
    fn walk(&mut self, kind: Kind) -> Result<()> {
        let quota = self.quota();
        let first = part(self.run.plan.keys, self.run.plan.threads, self.thread).start;
        let backwards = kind == Kind::WalkBack;
        write_key(&mut self.key, if backwards { first + quota.saturating_sub(1) } else { first });
        let began = Instant::now();
        let seen = self.run.engine.scan(&self.key, quota as usize, backwards, &mut see)? as u64;
        self.note(kind, began.elapsed());
        self.share.operations = seen;
        self.share.found = seen;
        self.run.progress.done.fetch_add(seen, Ordering::Relaxed);
        Ok(())
    }
}

/// The part of `0..all` that is the thread's; parts adjoin, and differ by one at most.
fn part(all: u64, threads: u64, thread: u64) -> Range<u64> {
    let threads = threads.max(1);
    let start = |thread: u64| all / threads * thread + thread.min(all % threads);
    start(thread)..start(thread.saturating_add(1))
}

/// Looks at a record, so that nobody can leave out reading it.
pub(crate) fn see(key: &[u8], value: &[u8]) {
    std::hint::black_box((key.len(), value.first().copied()));
}

/// The value that an update writes: the old one with eight bytes of a new one, or a new one.
fn changed(old: Option<&[u8]>, fresh: &[u8]) -> Vec<u8> {
    let mut value = old.unwrap_or(fresh).to_vec();
    let changed = value.len().min(fresh.len()).min(8);
    value[..changed].copy_from_slice(&fresh[..changed]);
    value
}

/// Who waits sleeps at least so long, and then has what came due meanwhile to do at once. To sleep for the 8 µs between two of
/// 255 thousand puts a second, by two threads, took 7.6 µs of processors a put, where the puts themselves take less than 2: of
/// both processors nothing was left, and latencies were those of the waiting.
const NAP: Duration = Duration::from_micros(100);

/// Sleeps until then or a little beyond, see [`NAP`]. Who waits leaves the processor: where there are few, one that looks at the
/// clock instead has used up its turn when the operation is due, and a thread of the engine has the processor for milliseconds.
pub(crate) fn wait_until(due: Instant) {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.max(NAP));
    }
}

/// Lets this thread wake when it asked for it, and not up to 50 µs later together with others.
pub(crate) fn wake_exactly() {
    // Where it is refused, latencies are so much longer, of all engines.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watcher_goes_when_what_it_follows_panics() {
        const LONG: Duration = Duration::from_secs(20);
        let began = Instant::now();
        let watch = |progress: &Progress| {
            while !progress.over.load(Ordering::Acquire) && began.elapsed() < LONG {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let outcome = std::panic::catch_unwind(|| Progress::followed(watch, |_| panic!("as planned")));
        assert!(outcome.is_err());
        assert_eq!(Progress::followed(watch, |_| 7), 7);
        assert!(began.elapsed() < LONG, "it stayed");
    }

    #[test]
    fn parts_adjoin_and_are_all_there_is() {
        for (all, threads) in [(10, 3), (5000, 3), (2, 4), (0, 2), (7, 1)] {
            let mut end = 0;
            for thread in 0..threads {
                let part = part(all, threads, thread);
                assert_eq!(part.start, end);
                assert!(part.end - part.start <= all.div_ceil(threads));
                end = part.end;
            }
            assert_eq!(end, all);
        }
    }
}
