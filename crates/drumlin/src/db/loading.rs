//! Loading: what a log holds, gathered into memtables by several threads.
//!
//! Place: `replay` makes a [`Loading`] for as much log as memory takes, and decides what is flushed before the next.
//!
//! The log is cut into pieces (`Recovered::pieces`). Each thread takes the next piece that nobody has, decodes it, and
//! gathers its versions in the keyspaces' memtables; when there is no more log, or no more room, each memtable's are sorted, and
//! linked by several threads again.
//!
//! Invariants:
//! 1. The pieces taken are those from the first on, without a gap: what is loaded is the log up to a place between two
//!    records, and that is where the next loading begins.
//! 2. Nothing is taken once a memtable has outgrown its limit, or all of them together theirs. Beyond it goes one piece for
//!    each thread, at most, and what is made at the end: guide and filters, some 24 bytes a version. A loading takes one
//!    piece at least.
//! 3. Of several failures the one is told that comes first in the log.
//!
//! Concurrency: pieces are taken, and what became of them is left, under one lock; else threads share the arenas only.
//! Tests: `db::tests::crash`, `db::tests::carried`, tests/memory.rs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::env::{Env, Thread};
use crate::error::{Error, Result};
use crate::key::{KeyBuffer, KeyForm, Kind, Lsn};
use crate::log::{Entry, Recovered, Replayer};
use crate::memory::{Gathered, MemTable};
use crate::sync::Mutex;

/// A memtable to be filled.
pub(super) struct Target {
    pub keyspace: u32,
    /// Versions below are in tables.
    pub flushed_to: Lsn,
    /// How it holds keys, which the log has as the user gave them.
    pub form: KeyForm,
    /// Bytes that it may have.
    pub limit: usize,
    pub memtable: Arc<MemTable>,
}

/// What an entry's keyspace is.
pub(super) struct Known {
    /// Keyspaces below were made; those that the manifest does not list were dropped.
    pub next_keyspace_id: u32,
    pub manifest_path: PathBuf,
}

impl Known {
    /// The error of an entry whose keyspace the manifest does not list, unless it was dropped.
    pub fn check(&self, keyspace: u32) -> Result<()> {
        if keyspace < self.next_keyspace_id {
            return Ok(());
        }
        let what = format!(
            "its end is missing: the log has writes to keyspace {keyspace}, which the manifest says was never made"
        );
        Err(Error::corruption(&self.manifest_path, None, what))
    }
}

/// A range deletion, until the versions are loaded.
struct Range {
    target: usize,
    start: Box<[u8]>,
    end: Box<[u8]>,
    lsn: Lsn,
}

/// What a piece holds: versions by target, and range deletions.
#[derive(Default)]
struct Piece {
    gathered: Vec<(usize, Gathered)>,
    /// Where in it each target is.
    places: BTreeMap<usize, usize>,
    ranges: Vec<Range>,
}

struct State {
    /// The next piece that nobody has taken.
    next: usize,
    done: Vec<(usize, Piece)>,
    failure: Option<(usize, Error)>,
}

/// The log from a piece on, on its way into memtables.
pub(super) struct Loading {
    recovered: Arc<Recovered>,
    known: Arc<Known>,
    /// By the number of their keyspace.
    targets: Vec<Target>,
    /// Bytes that all memtables may have.
    limit: usize,
    first: usize,
    /// Bytes of range deletions, which no memtable has yet.
    range_bytes: AtomicUsize,
    state: Mutex<State>,
}

impl Loading {
    /// Of the log from piece `first` on; `targets` are in the order of their keyspaces' numbers.
    pub fn new(
        recovered: Arc<Recovered>,
        known: Arc<Known>,
        targets: Vec<Target>,
        limit: usize,
        first: usize,
    ) -> Loading {
        let state = State { next: first, done: Vec::new(), failure: None };
        let range_bytes = AtomicUsize::new(0);
        Loading { recovered, known, targets, limit, first, range_bytes, state: Mutex::new(state) }
    }

    /// Loads as much as there is room for, with so many threads. The first piece that is left.
    pub fn run(self, env: &Env, threads: usize) -> Result<usize> {
        let first = self.first;
        let loading = Arc::new(self);
        let pieces = loading.recovered.pieces().saturating_sub(first);
        let shared = Arc::clone(&loading);
        let all_ended = together(env, threads.min(pieces), "load", move || shared.work());
        let mut state = loading.state.lock();
        if let Some((_, failure)) = state.failure.take() {
            return Err(failure);
        }
        if !all_ended {
            return Err(panicked());
        }
        let next = state.next;
        let done = std::mem::take(&mut state.done);
        drop(state);
        loading.load(done, env, threads)?;
        Ok(next)
    }

    /// Gathers pieces until there are no more, or no more room.
    fn work(&self) {
        let mut replayer = self.recovered.replayer();
        while let Some(number) = self.take() {
            let mut piece = Piece::default();
            let gathered = self.gather(&mut replayer, number, &mut piece);
            let mut state = self.state.lock();
            match gathered {
                Ok(()) => state.done.push((number, piece)),
                Err(error) => {
                    if state.failure.as_ref().is_none_or(|(earlier, _)| number < *earlier) {
                        state.failure = Some((number, error));
                    }
                }
            }
        }
    }

    fn take(&self) -> Option<usize> {
        let mut state = self.state.lock();
        let number = state.next;
        let is_over = number == self.recovered.pieces() || state.failure.is_some();
        if is_over || (number > self.first && self.is_full()) {
            return None;
        }
        state.next += 1;
        Some(number)
    }

    fn is_full(&self) -> bool {
        let mut all = self.range_bytes.load(Ordering::Relaxed);
        for target in &self.targets {
            let bytes = target.memtable.bytes();
            if bytes > target.limit {
                return true;
            }
            all += bytes;
        }
        all > self.limit
    }

    fn gather(&self, replayer: &mut Replayer<'_>, number: usize, piece: &mut Piece) -> Result<()> {
        // Nobody needs what is flushed of every keyspace.
        let from = self.targets.iter().map(|target| target.flushed_to).min().unwrap_or(Lsn::ZERO);
        // Most entries are of the keyspace of the one before: its place, and that of what was gathered of it.
        let mut last: Option<(u32, usize, usize)> = None;
        let mut buffer = KeyBuffer::new();
        replayer.replay(number, from, |lsn, entry: Entry<'_>| {
            let (target, place) = match last {
                Some((keyspace, target, place)) if keyspace == entry.keyspace => (target, place),
                _ => {
                    let found = self.targets.binary_search_by_key(&entry.keyspace, |target| target.keyspace);
                    let Ok(target) = found else { return self.known.check(entry.keyspace) };
                    let place = piece.place_of(target, &self.targets[target].memtable);
                    last = Some((entry.keyspace, target, place));
                    (target, place)
                }
            };
            let Target { flushed_to, memtable, form, .. } = &self.targets[target];
            if lsn < *flushed_to {
                return Ok(());
            }
            match entry.kind {
                Kind::RangeDelete => {
                    let (start, end) = (entry.key.into(), entry.value.into());
                    let bytes = entry.key.len() + entry.value.len() + size_of::<Range>();
                    self.range_bytes.fetch_add(bytes, Ordering::Relaxed);
                    piece.ranges.push(Range { target, start, end, lsn });
                }
                kind => {
                    let key = form.stored(entry.key, &mut buffer);
                    memtable.gather(&mut piece.gathered[place].1, key, kind, entry.value, lsn);
                }
            }
            Ok(())
        })
    }

    /// Puts what was gathered into the memtables.
    fn load(&self, mut done: Vec<(usize, Piece)>, env: &Env, threads: usize) -> Result<()> {
        done.sort_unstable_by_key(|(number, _)| *number);
        let mut parts: Vec<Vec<Gathered>> = self.targets.iter().map(|_| Vec::new()).collect();
        let mut ranges = Vec::new();
        for (_, piece) in done {
            piece.gathered.into_iter().for_each(|(target, gathered)| parts[target].push(gathered));
            ranges.extend(piece.ranges);
        }
        for (Target { memtable, .. }, parts) in self.targets.iter().zip(parts) {
            let Some(linking) = memtable.sort(parts).map(Arc::new) else { continue };
            let shared = (Arc::clone(memtable), Arc::clone(&linking));
            let all_ended =
                together(env, threads.min(linking.pieces()), "link", move || shared.0.link(&shared.1));
            let linked = Arc::into_inner(linking).is_some_and(|linking| memtable.finish(linking));
            if !(all_ended && linked) {
                return Err(panicked());
            }
        }
        for Range { target, start, end, lsn } in ranges {
            self.targets[target].memtable.publish_range_tombstone(&start, &end, lsn, None);
        }
        Ok(())
    }
}

/// Has so many threads do the same, of which this is one, and waits for all of them. False if one panicked.
fn together(env: &Env, threads: usize, what: &str, work: impl Fn() + Clone + Send + 'static) -> bool {
    let mut others: Vec<Box<dyn Thread>> = Vec::new();
    for number in 1..threads {
        // No thread to be had: then fewer do it.
        let spawned = env.spawner.spawn(&format!("drumlin-{what}-{number}"), Box::new(work.clone()));
        others.extend(spawned);
    }
    work();
    drop(work);
    // All of them, whatever the first came to.
    let ended: Vec<bool> = others.into_iter().map(|thread| thread.join()).collect();
    !ended.contains(&false)
}

fn panicked() -> Error {
    Error::Poisoned { why: "a thread that read the log panicked".into() }
}

impl Piece {
    /// Where versions of a target are gathered.
    fn place_of(&mut self, target: usize, memtable: &MemTable) -> usize {
        *self.places.entry(target).or_insert_with(|| {
            self.gathered.push((target, memtable.gathered()));
            self.gathered.len() - 1
        })
    }
}
