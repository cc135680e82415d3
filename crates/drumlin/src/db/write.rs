//! Writes: puts, deletes, range deletions, batches and read-modify-writes, step by step.
//!
//! Place: called by `keyspace` and `batch`; puts `commit`, `log` and `memory` together.
//!
//! The steps of a write of one key, all in `install` but for the end of the last:
//! 1. room in the log is made sure of, with nothing held (`Log::ensure_room`); the node is allocated and filled, in the
//!    generation of the newest LSN drawn (`MemTable::reserve`);
//! 2. the key is locked (`Stripes::lock`);
//! 3. the LSN is drawn; the slot shows a lower bound before, the LSN after (`Sequencer::begin`);
//! 4. the record is copied into the log (`copy_to_log`);
//! 5. the gate: no version shows above a linearizable snapshot that still waits (`InFlight::gate`);
//! 6. the version is published in the generation its LSN belongs to (`MemTable::publish`);
//! 7. the slot is cleared (`InFlight::commit`), the key unlocked, the guide told; `Disk` then waits for the log
//!    (`Store::acknowledge`).
//!
//! Invariants shown here:
//! - **I1**: draw and publish under the key's lock; the record is whole in the log before step 6.
//! - A read-modify-write installs only if no version of its key newer than the one it read is in
//!   any memory generation, and no generation has left memory since it read; else it reads again.
//!   In a keyspace that was dropped since then it does neither.
//!   No disk I/O under a lock.
//! - A batch (`commit_batch`) holds the locks of all its keys (of all there are, if it deletes a range), draws one LSN,
//!   publishes its parts marked with its slot, passes the gate, and takes effect when the slot is cleared, before the keys
//!   are unlocked.
//!
//! Linearization: put and delete when published; batch and range deletion at `commit`; a
//! read-modify-write when published, or where it read if it decides to write nothing.
//!
//! Origin: cLSM §3.1-§3.3; the deviations are in docs/papers/clsm.md. Tests: tests/linearizability.rs,
//! tests/frozen.rs, `commit::loom_tests`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_epoch as epoch;

use crate::commit::InFlight;
use crate::error::{Error, Result};
use crate::key::{KEY_BYTES_MAX, KeyBuffer, Kind, Lsn, VALUE_BYTES_MAX};
use crate::log::{Entry, RecordParts};
use crate::memory::ReservedRanges;
use crate::options::{Durability, WriteOptions};
use crate::sync::failpoint;

use super::batch::Operation;
use super::keyspace::KeyspaceState;
use super::lookup::lookup;
use super::slice::Slice;
use super::store::Store;
use super::superversion::{Generation, SuperVersion};
use super::timing::Timed;

/// Operations of a batch from which on those for memtables without a hash are sorted first, and put in together.
const TOGETHER_MIN: usize = 16;

/// Checks a key and a value against their limits.
pub(crate) fn check_entry(key: &[u8], value: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the key has {} bytes, but at most {KEY_BYTES_MAX} are allowed",
            key.len()
        )));
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the value has {} bytes, but at most {VALUE_BYTES_MAX} are allowed: split it",
            value.len()
        )));
    }
    Ok(())
}

/// Checks the ends of a range to be deleted.
pub(crate) fn check_range(keyspace: &KeyspaceState, start: &[u8], end: &[u8]) -> Result<()> {
    keyspace.check_ordered("delete_range")?;
    check_entry(start, &[])?;
    check_entry(end, &[])?;
    if keyspace.comparator.compare(start, end).is_ge() {
        return Err(Error::invalid("the range to delete is empty: its start is not before its end"));
    }
    Ok(())
}

/// Writes one version of one key.
pub(crate) fn write_point(
    store: &Store,
    keyspace: &KeyspaceState,
    kind: Kind,
    key: &[u8],
    value: &[u8],
    options: WriteOptions,
) -> Result<()> {
    let began = store.sample();
    check_entry(key, value)?;
    let durability = store.admit(keyspace, options)?;
    let mut buffer = KeyBuffer::new();
    match install(store, keyspace, kind, keyspace.form.stored(key, &mut buffer), value, None)? {
        Installed::At { end } => store.acknowledge(end, durability)?,
        Installed::Conflict => unreachable!("a blind write expects nothing"),
    }
    store.timed(Timed::Put, began.as_ref(), || (key.len() + value.len()) as u64);
    Ok(())
}

/// From so many bytes on a value is copied into memory, where it stays, only if nobody was faster so far. A smaller one costs less than
/// to look for the key once more.
const LARGE_BYTES: usize = 1024;

/// What a read-modify-write saw, to be checked under the lock.
struct Expectation {
    lsn: Lsn,
    /// `flushed_to` when it read.
    flushed_to: Lsn,
}

impl Expectation {
    /// True if something newer of the key is there, by what is asked of each generation, or may be.
    #[inline]
    fn is_overtaken(&self, now: &SuperVersion, newest_in: impl Fn(&Generation) -> Option<Lsn>) -> bool {
        let newest = now.generations.iter().find_map(|generation| newest_in(generation));
        now.flushed_to != self.flushed_to || newest.is_some_and(|lsn| lsn > self.lsn)
    }
}

enum Installed {
    At { end: Lsn },
    Conflict,
}

/// Writes a version of `key`, which is in its keyspace's form.
fn install(
    store: &Store,
    keyspace: &KeyspaceState,
    kind: Kind,
    key: &[u8],
    value: &[u8],
    expectation: Option<Expectation>,
) -> Result<Installed> {
    let (expected, logged_key) = (expectation.as_ref().map(|e| e.lsn), keyspace.form.user(key));
    let entries = [Entry { keyspace: keyspace.id.0, kind, expected, key: logged_key, value }];
    let record = RecordParts::new(&entries)?;
    let units = if keyspace.logged { record.units() } else { 1 };
    let room = store.room(units)?;

    let guard = epoch::pin();
    let first = keyspace.current.load(&guard).generation_now(|| store.sequencer.tail());
    if let Some(expected) = expectation.as_ref().filter(|_| value.len() >= LARGE_BYTES) {
        let hash = keyspace.hasher.hash(key);
        let now = keyspace.current.load(&guard);
        if expected.is_overtaken(now, |generation| generation.memtable.newest_lsn(key, hash)) {
            return Ok(Installed::Conflict);
        }
    }
    let mut node = first.memtable.reserve(key, kind, value);
    store.note_growth(keyspace, first);
    failpoint::hit("write::reserved");

    let hash = node.hash();
    let held = store.stripes.lock(hash);
    failpoint::hit("write::locked");
    // Under the key's lock: close sets the mark, then waits for every lock once.
    store.check_writable()?;
    failpoint::hit("write::checked");
    if let Some(expected) = expectation {
        // A dropped keyspace is empty, and nothing newer would be found. Marked now or not emptied yet: a drop sets the mark,
        // then waits for every lock once.
        keyspace.check_open()?;
        let newest_in = |generation: &Generation| match std::ptr::eq(generation, &**first) {
            true => generation.memtable.newest_lsn_at(key, &node),
            false => generation.memtable.newest_lsn(key, hash),
        };
        if expected.is_overtaken(keyspace.current.load(&guard), newest_in) {
            return Ok(Installed::Conflict);
        }
    }
    let write = store.sequencer.begin(units);
    drop(room);
    copy_to_log(store, keyspace.logged, &write, &record)?;
    // Loaded after the log segment of the LSN was seen open: it knows the LSN's generation.
    let generation = keyspace.current.load(&guard).generation_of(write.lsn());
    if !std::ptr::eq(&**generation, &**first) {
        node = generation.memtable.reserve(key, kind, value);
    }
    let needed_below = write.gate()?;
    failpoint::hit("write::gated");
    let published = generation.memtable.publish_over(node, write.lsn(), None, needed_below);
    let end = write.end();
    write.commit();
    drop(held);
    generation.memtable.tell_guide(&published);
    Ok(Installed::At { end })
}

fn copy_to_log(store: &Store, logged: bool, write: &InFlight<'_>, record: &RecordParts<'_>) -> Result<()> {
    let log = store.log()?;
    if logged {
        log.write(write.lsn(), record)?;
    } else {
        log.write_pad(write.lsn(), write.end().0 - write.lsn().0)?;
    }
    failpoint::hit("write::logged");
    Ok(())
}

/// What a read-modify-write wants done.
pub(crate) enum Decision<T> {
    /// Write nothing and return this.
    Keep(T),
    /// Set the key to the value (`None`: delete it) and return this.
    Set(Option<Vec<u8>>, T),
}

/// Reads `key`, asks `decide`, and installs what it says if nothing newer came in between.
/// `decide` may run several times; every failed attempt means that another write of the key went through.
pub(crate) fn read_modify_write<T>(
    store: &Store,
    keyspace: &KeyspaceState,
    key: &[u8],
    options: WriteOptions,
    mut decide: impl FnMut(Option<&[u8]>) -> Result<Decision<T>>,
) -> Result<T> {
    let began = store.sample();
    check_entry(key, &[])?;
    let mut buffer = KeyBuffer::new();
    let stored = keyspace.form.stored(key, &mut buffer);
    loop {
        let durability = store.admit(keyspace, options)?;
        failpoint::hit("update::admitted");
        // First: a flush in between is taken for a conflict.
        let flushed_to = keyspace.current.load(&epoch::pin()).flushed_to;
        let found = lookup(store, keyspace, stored, Lsn::MAX)?;
        let (value, result) = match decide(found.value.as_deref())? {
            Decision::Keep(result) => {
                store.timed(Timed::Update, began.as_ref(), || 0);
                return Ok(result);
            }
            Decision::Set(value, result) => (value, result),
        };
        let (kind, bytes) = match &value {
            Some(value) => (Kind::Put, value.as_slice()),
            None => (Kind::Delete, &[][..]),
        };
        check_entry(key, bytes)?;
        failpoint::hit("update::decided");
        let expectation = Expectation { lsn: found.lsn, flushed_to };
        if let Installed::At { end } = install(store, keyspace, kind, stored, bytes, Some(expectation))? {
            store.acknowledge(end, durability)?;
            store.timed(Timed::Update, began.as_ref(), || (key.len() + bytes.len()) as u64);
            return Ok(result);
        }
    }
}

/// Commits the operations of a batch (or one range deletion) at one LSN.
pub(crate) fn commit_batch(store: &Store, operations: &[Operation], options: WriteOptions) -> Result<()> {
    let Some(first) = operations.first() else { return Ok(()) };
    let began = store.sample();
    // Held back as the slowest of its keyspaces is.
    let delay = |o: &&Operation| o.keyspace.delay_ns.load(Ordering::Relaxed);
    let slowest = operations.iter().max_by_key(delay).unwrap_or(first);
    let durability = store.admit(&slowest.keyspace, options)?;
    for operation in operations {
        if operation.keyspace.logged != first.keyspace.logged {
            return Err(Error::invalid(
                "a batch cannot span logged keyspaces and ones that are not: part of it would not survive a crash",
            ));
        }
        operation.keyspace.check_open()?;
    }
    let entries: Vec<Entry<'_>> = operations
        .iter()
        .map(|o| Entry {
            keyspace: o.keyspace.id.0,
            kind: o.kind,
            expected: None,
            key: o.user_key(),
            value: &o.value,
        })
        .collect();
    let logged = first.keyspace.logged;
    let record = RecordParts::new(&entries)?;
    let units = if logged { record.units() } else { 1 };
    let room = store.room(units)?;

    check_order(operations);
    let mut ranges = reserve_ranges(operations);
    let together = without_hash(operations);
    let goes_together = |o: &&Operation| o.kind != Kind::RangeDelete && together.contains(&o.keyspace.id.0);
    let points = in_order(operations.iter().filter(goes_together));
    let held = if ranges.is_empty() {
        store.stripes.lock_many(operations.iter().map(|o| o.keyspace.hasher.hash(&o.key)))
    } else {
        store.stripes.lock_all()
    };
    failpoint::hit("batch::locked");
    // Not before: who waits for locks keeps nothing from being freed.
    let guard = epoch::pin();
    store.check_writable()?;
    let batch = store.sequencer.begin(units);
    drop(room);
    copy_to_log(store, logged, &batch, &record)?;
    let (lsn, slot) = (batch.lsn(), Some(batch.slot_index()));
    let mut grown: Vec<Arc<Generation>> = Vec::new();
    let (mut untold, mut touched) = (Vec::new(), Vec::new());
    for neighbours in points.chunk_by(|a, b| a.keyspace.id == b.keyspace.id) {
        let keyspace = &neighbours[0].keyspace;
        let generation = keyspace.current.load(&guard).generation_of(lsn);
        let records = neighbours.iter().map(|o| (&o.key[..], o.kind, &o.value[..]));
        generation.memtable.multi_insert(records, lsn, slot);
        touched.push((keyspace, generation));
        failpoint::hit("batch::part");
    }
    for operation in operations.iter().filter(|o| !goes_together(o)) {
        let generation = operation.keyspace.current.load(&guard).generation_of(lsn);
        let memtable = &generation.memtable;
        if operation.kind == Kind::RangeDelete {
            // All ranges of a keyspace with its first.
            if let Some(ranges) = ranges.remove(&operation.keyspace.id.0) {
                memtable.publish_ranges(ranges, lsn, slot);
                grown.push(Arc::clone(generation));
                touched.push((&operation.keyspace, generation));
            }
        } else {
            // Under the locks, unlike that of a single write: before, nobody could say in which generation.
            let node = memtable.reserve(&operation.key, operation.kind, &operation.value);
            let published = memtable.publish(node, lsn, slot);
            if operations.len() < TOGETHER_MIN {
                untold.push((memtable, published));
            } else {
                // Under the locks: a hash that has no room for them all is to grow meanwhile.
                memtable.tell_guide(&published);
            }
            if touched.last().is_none_or(|(_, last)| !Arc::ptr_eq(last, generation)) {
                touched.push((&operation.keyspace, generation));
            }
        }
        failpoint::hit("batch::part");
    }
    batch.gate()?;
    let end = batch.end();
    batch.commit();
    drop(held);
    untold.iter().for_each(|(memtable, published)| memtable.tell_guide(published));
    drop(untold);
    touched.iter().for_each(|(keyspace, generation)| store.note_growth(keyspace, generation));
    drop(touched);
    drop(guard);
    let slots = store.sequencer.slots();
    for generation in grown {
        generation.memtable.join_ranges(|slot, lsn| !slots.is_in_flight(slot, lsn));
    }
    store.acknowledge(end, durability)?;
    store.timed(Timed::Batch, began.as_ref(), || {
        operations.iter().map(|operation| (operation.user_key().len() + operation.value.len()) as u64).sum()
    });
    Ok(())
}

/// Panics at a key that the user's order cannot take: before the log has it, since whoever reads it there would, too.
fn check_order(operations: &[Operation]) {
    for operation in operations {
        let comparator = &operation.keyspace.comparator;
        if !comparator.is_bytewise() {
            let other = if operation.kind == Kind::RangeDelete { &operation.value } else { &operation.key };
            let _ = comparator.compare(&operation.key, other);
        }
    }
}

/// The keyspaces, by their numbers, whose memtables have no hash: there what a large batch puts gains by being put in behind its
/// neighbour. None if it is small. By the memtables of the moment: of others the batch's own generation may be, which does as well.
fn without_hash(operations: &[Operation]) -> Vec<u32> {
    let mut without = Vec::new();
    if operations.len() >= TOGETHER_MIN {
        let guard = epoch::pin();
        for neighbours in operations.chunk_by(|a, b| a.keyspace.id == b.keyspace.id) {
            let keyspace = &neighbours[0].keyspace;
            if !keyspace.current.load(&guard).active().memtable.has_hash()
                && !without.contains(&keyspace.id.0)
            {
                without.push(keyspace.id.0);
            }
        }
    }
    without
}

/// By keyspace and key.
fn in_order<'o>(operations: impl Iterator<Item = &'o Operation>) -> Vec<&'o Operation> {
    let mut points: Vec<_> = operations.collect();
    points.sort_unstable_by(|a, b| {
        let keys = || a.keyspace.comparator.compare(&a.key, &b.key);
        a.keyspace.id.0.cmp(&b.keyspace.id.0).then_with(keys)
    });
    points
}

/// Cuts what a batch deletes of each keyspace, by its number.
fn reserve_ranges(operations: &[Operation]) -> HashMap<u32, ReservedRanges> {
    let mut ranges: HashMap<u32, (&KeyspaceState, Vec<(&[u8], &[u8])>)> = HashMap::new();
    for operation in operations.iter().filter(|o| o.kind == Kind::RangeDelete) {
        let of_keyspace = ranges.entry(operation.keyspace.id.0);
        let (_, list) = of_keyspace.or_insert_with(|| (&operation.keyspace, Vec::new()));
        list.push((&operation.key, &operation.value));
    }
    let guard = epoch::pin();
    ranges
        .into_iter()
        .map(|(id, (keyspace, list))| {
            let memtable = &keyspace.current.load(&guard).active().memtable;
            (id, memtable.reserve_ranges(&list))
        })
        .collect()
}

/// The outcome of a compare-and-swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cas {
    /// The key held what was expected, and holds the new value now.
    Swapped,
    /// It did not; nothing was written.
    Mismatch {
        /// What it holds instead.
        current: Option<Slice>,
    },
}

/// The durability a write gets, from what it names, its keyspace and the store's default.
pub(crate) fn durability_of(
    keyspace: &KeyspaceState,
    options: WriteOptions,
    default: Durability,
) -> Result<Durability> {
    match (options.durability, keyspace.logged) {
        (None | Some(Durability::Memory), false) => Ok(Durability::Memory),
        (Some(asked), false) => Err(Error::invalid(format!(
            "keyspace {} is not logged, so a write to it cannot be durable as {asked:?}; make a logged keyspace for it",
            keyspace.name
        ))),
        (Some(Durability::Memory), true) => Err(Error::invalid(format!(
            "keyspace {} is logged: a write without log would leave a hole in what survives; make a keyspace with `logged: false` for it",
            keyspace.name
        ))),
        (Some(asked), true) => Ok(asked),
        (None, true) => Ok(default.max(Durability::Process)),
    }
}
