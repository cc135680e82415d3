//! Keyspaces: one ordered map each, with options of its own.
//!
//! Place: [`Keyspace`] is the user's handle; `KeyspaceState` is what the engine shares behind it.
//! Concurrency: handles are `Clone + Send + Sync`; every method may run on any thread.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crossbeam_epoch as epoch;

use crate::error::{Error, Result};
use crate::key::{ComparatorRef, KeyBuffer, KeyForm, KeyHasher, Kind, Lsn};
use crate::memory::MemTable;
use crate::options::{KeyspaceOptions, WriteOptions};
use crate::sync::Mutex;
use crate::version::KeyspaceId;

use super::batch::Operation;
use super::lookup::{lookup, unless_overtaken};
use super::lookups::lookups;
use super::memory::Memory;
use super::scan::Scan;
use super::shape::LevelInfo;
use super::size::ApproximateSize;
use super::slice::Slice;
use super::superversion::{Current, Generation, SuperVersion};
use super::tiering::{Lesson, Tiering};
use super::timing::Timed;
use super::write::{self, Cas, Decision};
use super::{Db, scan, settling};

/// One keyspace, shared by its handles and the background threads.
pub(crate) struct KeyspaceState {
    pub id: KeyspaceId,
    pub name: String,
    /// As its options have it, for good.
    pub comparator: ComparatorRef,
    /// Likewise.
    pub logged: bool,
    /// Likewise: how its keys are held, in memory and in tables. The log has the user's.
    pub form: KeyForm,
    /// Hashes keys as they are held.
    pub hasher: KeyHasher,
    pub current: Current,
    pub dropped: AtomicBool,
    /// Nanoseconds each write is delayed for the debt on disk; 0 without.
    pub delay_ns: AtomicU64,
    /// Bytes at which its memtable is turned. A hint, so Relaxed.
    pub memtable_limit: AtomicUsize,
    /// Replaced under the manifest's lock, behind the edit that says so.
    options: Mutex<Arc<KeyspaceOptions>>,
    tiering: Mutex<Tiering>,
}

impl KeyspaceState {
    pub fn new(
        id: KeyspaceId,
        name: String,
        options: KeyspaceOptions,
        hasher: KeyHasher,
        memtable_limit: usize,
        first: SuperVersion,
    ) -> KeyspaceState {
        let (current, dropped, delay_ns) = (Current::new(first), AtomicBool::new(false), AtomicU64::new(0));
        KeyspaceState {
            id,
            name,
            comparator: options.comparator.clone(),
            logged: options.logged,
            form: options.form(hasher),
            hasher: options.hasher(hasher),
            current,
            dropped,
            delay_ns,
            memtable_limit: AtomicUsize::new(memtable_limit),
            options: Mutex::new(Arc::new(options)),
            tiering: Mutex::default(),
        }
    }

    /// Its options as of now. Not for every operation: what those need is beside.
    pub fn options(&self) -> Arc<KeyspaceOptions> {
        self.options.lock().clone()
    }

    /// From now on its options are these; for `Store::set_options`.
    pub fn replace_options(&self, options: KeyspaceOptions, memtable_limit: usize) {
        self.memtable_limit.store(memtable_limit, Ordering::Relaxed);
        *self.options.lock() = Arc::new(options);
    }

    /// A memtable for the next generation.
    pub fn next_memtable(&self, memory: &Memory) -> MemTable {
        self.tiering.lock().next(memory, &self.options(), self.hasher)
    }

    /// This memtable was flushed: those to come are made as that one would have been better.
    pub fn learn(&self, memory: &Memory, flushed: &MemTable) {
        let lesson = Lesson::of(memory, &self.options(), flushed);
        self.tiering.lock().learn(lesson);
    }

    /// Where the log begins that its memtables hold; none if they are empty, or not in the log.
    pub fn needs_log_from(&self, now: &SuperVersion) -> Option<Lsn> {
        let holds = |generation: &&Arc<Generation>| self.logged && !generation.memtable.is_empty();
        now.generations.iter().rfind(holds).map(|oldest| oldest.start)
    }

    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Refuses what needs an order of keys, if there is none.
    pub fn check_ordered(&self, op: &'static str) -> Result<()> {
        match self.form {
            KeyForm::Bare => Ok(()),
            KeyForm::Placed(_) => Err(Error::NoOrder { op, keyspace: self.name.clone() }),
        }
    }

    pub fn check_open(&self) -> Result<()> {
        if self.is_dropped() {
            return Err(Error::Closed { what: "keyspace" });
        }
        Ok(())
    }
}

/// A handle to one keyspace of a store.
///
/// # Errors of writes
///
/// Every write may meet [`InvalidArgument`](Error::InvalidArgument) (a key or value beyond its limit, a durability that the
/// keyspace cannot give), [`ReadOnly`](Error::ReadOnly), [`Closed`](Error::Closed) (also if the keyspace was dropped),
/// [`NoSpace`](Error::NoSpace), [`Io`](Error::Io) (the log could not grow), and, if memory is full, why no flush can help.
/// After these it has not taken effect. [`Poisoned`](Error::Poisoned) says that the store takes no more writes; the
/// write that met it may have taken effect.
///
/// # Errors of reads
///
/// Every read may meet [`Closed`](Error::Closed) (also if the keyspace was dropped), and in a table that it reads
/// [`Corruption`](Error::Corruption), [`Io`](Error::Io) or [`Unsupported`](Error::Unsupported).
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) db: Db,
    pub(crate) state: Arc<KeyspaceState>,
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyspace({})", self.state.name)
    }
}

impl Keyspace {
    /// The name it was created with.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The options that it has now: those that it was created with, or was given since.
    pub fn options(&self) -> KeyspaceOptions {
        (*self.state.options()).clone()
    }

    /// Gives the keyspace other options, durably, while it is used. What is written from now on follows them: the next memtable
    /// is of the new memory component, the next tables have the new blocks and filters, and compactions bring what is there
    /// into the new layout, which may take them long ([`Db::wait_for_idle`](crate::Db::wait_for_idle) waits for that). The
    /// comparator stays, whether it is logged, and whether it is a trie, with its levels and its hash. O(options), and a sync of
    /// the manifest.
    ///
    /// # Errors
    /// `InvalidArgument` for options that are not allowed, or that would change what stays; `ReadOnly`; `Closed`;
    /// `Poisoned`, `NoSpace` or `Io` if the manifest cannot be written: then the options stay as they were.
    pub fn set_options(&self, options: KeyspaceOptions) -> Result<()> {
        self.db.store.set_options(&self.state, options)
    }

    pub(crate) fn state_in(&self, db: &Db) -> Result<&Arc<KeyspaceState>> {
        if !Arc::ptr_eq(&self.db.store, &db.store) {
            return Err(Error::invalid(format!("keyspace {} belongs to another store", self.name())));
        }
        self.state.check_open()?;
        Ok(&self.state)
    }

    /// Sets `key` to `value`. O(log memtable).
    ///
    /// # Errors
    /// [Those of a write](Keyspace#errors-of-writes).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, WriteOptions::default())
    }

    /// Sets `key` to `value`, with a durability of its own. O(log memtable).
    ///
    /// # Errors
    /// [Those of a write](Keyspace#errors-of-writes).
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<()> {
        write::write_point(&self.db.store, &self.state, Kind::Put, key.as_ref(), value.as_ref(), options)
    }

    /// Deletes `key`; fine if it is absent. O(log memtable): nothing is read.
    ///
    /// # Errors
    /// [Those of a write](Keyspace#errors-of-writes).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, WriteOptions::default())
    }

    /// Deletes `key`, with a durability of its own. O(log memtable).
    ///
    /// # Errors
    /// [Those of a write](Keyspace#errors-of-writes).
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: WriteOptions) -> Result<()> {
        write::write_point(&self.db.store, &self.state, Kind::Delete, key.as_ref(), &[], options)
    }

    /// Deletes every key in [start, end) at one instant. Holds every key lock for some ten
    /// microseconds; the cost does not depend on how many keys there are. With n range deletes in the memtable, which may
    /// overlap as they like, it is amortized O(log² n), after the locks are given back.
    ///
    /// # Errors
    /// [Those of a write](Keyspace#errors-of-writes); `InvalidArgument` also if `start` is not before `end`; `NoOrder` in a
    /// keyspace without order.
    pub fn delete_range(&self, start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        let (start, end) = (start.as_ref(), end.as_ref());
        write::check_range(&self.state, start, end)?;
        let operation = Operation {
            keyspace: self.state.clone(),
            kind: Kind::RangeDelete,
            key: start.to_vec(),
            value: end.to_vec(),
        };
        write::commit_batch(&self.db.store, &[operation], WriteOptions::default())
    }

    /// The value of `key`. Never waits for a writer.
    ///
    /// O(log n) in each memtable, each table of level 0 and one table of each deeper level, until one knows the key. A table
    /// is read only if its filter does not rule the key out: one block, and one of its index if the index is in parts.
    /// What is cached is not read; a table that is not open is opened first.
    ///
    /// # Errors
    /// [Those of a read](Keyspace#errors-of-reads).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.get_at(key.as_ref(), Lsn::MAX)
    }

    pub(crate) fn get_at(&self, key: &[u8], at: Lsn) -> Result<Option<Slice>> {
        self.db.store.check_readable()?;
        self.state.check_open()?;
        let store = &self.db.store;
        let began = store.sample();
        let mut buffer = KeyBuffer::new();
        let found = lookup(store, &self.state, self.state.form.stored(key, &mut buffer), at);
        store.timed(Timed::Get, began.as_ref(), || 0);
        Ok(found?.value)
    }

    /// The values of several keys, in their order. Each is as of its own instant, as if they were got one after the other; use
    /// [`Snapshot::multi_get`](crate::Snapshot::multi_get) for one instant. Never waits for a writer. A key may come more than
    /// once.
    ///
    /// Costs as much as so many [gets](Keyspace::get), but they wait together: up to 128 keys are on their way at once, and what has to
    /// be read for some is read while others are looked up in memory. Holds up to 8 MiB of blocks, and those that are being read: past the page
    /// cache 256 KiB, else another 8 MiB, and a block. With [`direct_reads`](crate::Options::direct_reads) blocks are read one after the other
    /// where the system keeps rings of requests (`io_uring`) from the process.
    ///
    /// # Errors
    /// [Those of a read](Keyspace#errors-of-reads): the first that is met ends it.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.multi_get_at(keys, Lsn::MAX)
    }

    pub(crate) fn multi_get_at<K: AsRef<[u8]>>(&self, keys: &[K], at: Lsn) -> Result<Vec<Option<Slice>>> {
        self.db.store.check_readable()?;
        self.state.check_open()?;
        let store = &self.db.store;
        let began = store.sample();
        let found = lookups(store, &self.state, keys, at);
        store.timed(Timed::MultiGet, began.as_ref(), || 0);
        found
    }

    /// True if `key` has a value. Costs as much as [`Keyspace::get`].
    ///
    /// # Errors
    /// [Those of a read](Keyspace#errors-of-reads).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// The records within `bounds`, as of now, from either end. Takes a [snapshot](Db::snapshot), and so waits for the
    /// writes in flight.
    ///
    /// O(memtables + tables + range tombstones) here, O(log n) in each part at the first step from an end, then O(log parts)
    /// a version. Each table under the scan is read through a window of its own.
    ///
    /// # Errors
    /// [Those of a read](Keyspace#errors-of-reads), here or as the item that ends the scan; here also `Poisoned` if a thread
    /// died in the middle of a write, and `NoOrder` in a keyspace without order, unless all records are asked for.
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<Scan> {
        self.scan(scan::bounds_in(&self.state, bounds, "range")?)
    }

    /// The records whose keys start with `prefix`, as of now. Needs the bytewise order. Costs as much as [`Keyspace::range`].
    ///
    /// # Errors
    /// As [`Keyspace::range`]; `InvalidArgument` in another order, `NoOrder` in a keyspace without.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Scan> {
        self.scan(scan::prefix_bounds(&self.state, prefix.as_ref())?)
    }

    /// All records, as of now; in no order in a keyspace without. Costs as much as [`Keyspace::range`].
    ///
    /// # Errors
    /// As [`Keyspace::range`].
    pub fn iter(&self) -> Result<Scan> {
        self.scan((Bound::Unbounded, Bound::Unbounded))
    }

    fn scan(&self, bounds: scan::Bounds) -> Result<Scan> {
        let pinned = self.db.snapshot()?.pinned();
        // Closed meanwhile, its files may have been found missing.
        Scan::new(&self.state, pinned.clone(), bounds).or_else(|error| pinned.check().and(Err(error)))
    }

    /// Sets `key` to what `f` makes of its value (`None`: absent), atomically; returns the new value.
    /// `f` may run more than once: it must not count its calls. Lock-free but for the key's own lock.
    ///
    /// Costs a get and a put, once more for every other write of the key that came between.
    ///
    /// # Errors
    /// Those [of a read](Keyspace#errors-of-reads) and [of a write](Keyspace#errors-of-writes).
    pub fn update(
        &self,
        key: impl AsRef<[u8]>,
        mut f: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Slice>> {
        self.modify(key.as_ref(), |current| {
            let new = f(current);
            let result = new.as_deref().map(Slice::from);
            Ok(match (current, &new) {
                (None, None) => Decision::Keep(None),
                _ => Decision::Set(new, result),
            })
        })
    }

    /// Sets `key` to `new` if it holds `expected`; `None` is absent on both sides. Costs as much as [`Keyspace::update`].
    ///
    /// # Errors
    /// As [`Keyspace::update`]. That it does not hold `expected` is no error but [`Cas::Mismatch`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Cas> {
        self.modify(key.as_ref(), |current| {
            Ok(if current == expected {
                Decision::Set(new.map(<[u8]>::to_vec), Cas::Swapped)
            } else {
                Decision::Keep(Cas::Mismatch { current: current.map(Slice::from) })
            })
        })
    }

    /// Sets `key` to `value` if it is absent; true if it was. Costs as much as [`Keyspace::update`].
    ///
    /// # Errors
    /// As [`Keyspace::update`].
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.modify(key.as_ref(), |current| {
            Ok(match current {
                None => Decision::Set(Some(value.as_ref().to_vec()), true),
                Some(_) => Decision::Keep(false),
            })
        })
    }

    /// Adds `delta` to the counter at `key` (an `i64`, little endian; absent is 0) and returns the sum. Costs as much as
    /// [`Keyspace::update`].
    ///
    /// # Errors
    /// As [`Keyspace::update`]; `InvalidArgument` also if the value is not 8 bytes, or the sum overflows.
    pub fn fetch_add(&self, key: impl AsRef<[u8]>, delta: i64) -> Result<i64> {
        self.modify(key.as_ref(), |current| {
            let old = match current {
                None => 0,
                Some(bytes) => i64::from_le_bytes(bytes.try_into().map_err(|_| {
                    Error::invalid(format!("the value is no counter: it has {} bytes, not 8", bytes.len()))
                })?),
            };
            let sum = old
                .checked_add(delta)
                .ok_or_else(|| Error::invalid(format!("the counter would overflow: {old} + {delta}")))?;
            Ok(Decision::Set(Some(sum.to_le_bytes().to_vec()), sum))
        })
    }

    fn modify<T>(&self, key: &[u8], decide: impl FnMut(Option<&[u8]>) -> Result<Decision<T>>) -> Result<T> {
        write::read_modify_write(&self.db.store, &self.state, key, WriteOptions::default(), decide)
    }

    /// Sorts what the hash of [`Memory::TwoTier`](crate::Memory::TwoTier) holds now: a scan or a flush that comes next need not.
    /// Nothing with [`Memory::Sorted`](crate::Memory::Sorted). O(n log n) of what is not sorted, by as many threads as there are
    /// [`background_threads`](crate::Options::background_threads); waits for nobody else.
    ///
    /// # Errors
    /// [Those of a read](Keyspace#errors-of-reads).
    pub fn settle(&self) -> Result<()> {
        self.db.store.check_readable()?;
        self.state.check_open()?;
        let generations: Vec<_> = self.state.current.load(&epoch::pin()).generations.to_vec();
        let store = &self.db.store;
        for generation in &generations {
            settling::settle(&generation.memtable, &store.env, store.options.background_threads);
        }
        Ok(())
    }

    /// About how much lies within `bounds`, in tables and in memory. For planning: how long will a scan take, where to cut
    /// a range. [`ApproximateSize`] says how far off it may be.
    ///
    /// O(tables + log n in each memtable), and with a hash over it that of sorting what is not sorted yet. Reads nothing but the
    /// index of a table that an end of the range cuts, if it is not open: at most two tables a level, and those of level 0.
    ///
    /// # Errors
    /// [Those of a read](Keyspace#errors-of-reads); `NoOrder` in a keyspace without order, unless all is asked for.
    pub fn approximate_size<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<ApproximateSize> {
        self.db.store.check_readable()?;
        self.state.check_open()?;
        let bounds = scan::bounds_in(&self.state, bounds, "approximate_size")?;
        let size = super::size::approximate(&self.state, bounds);
        unless_overtaken(&self.db.store, &self.state, size)
    }

    /// About how many keys there are: [`ApproximateSize::keys`] of all. Exact where each key was written once, or all levels
    /// are merged, and no delete waits for its merge. O(tables + log n in each memtable); reads nothing.
    ///
    /// # Errors
    /// As [`Keyspace::approximate_size`].
    pub fn approximate_count(&self) -> Result<u64> {
        Ok(self.approximate_size::<&[u8]>(..)?.keys)
    }

    /// Its tables, level by level, with what each level may hold. For tools that show the tree. O(tables); reads nothing.
    ///
    /// # Errors
    /// `Closed`, also if the keyspace was dropped.
    pub fn levels(&self) -> Result<Vec<LevelInfo>> {
        self.db.store.check_readable()?;
        self.state.check_open()?;
        Ok(super::shape::levels(&self.state))
    }

    /// Flushes the keyspace and merges its tables down to the deepest level. Long work: O(bytes of the keyspace), read and
    /// written.
    ///
    /// # Errors
    /// As [`Db::compact`]; `Closed` also if the keyspace was dropped.
    pub fn compact(&self) -> Result<()> {
        self.state.check_open()?;
        self.db.store.compact_keyspace(&self.state)
    }
}
