//! The store as its users see it: opens, wires, recovers; no algorithm of its own.
//!
//! Place: the top layer of the engine. `open` makes a store from a directory; `write`, `lookup` and
//! `scan` are its ways in; `background` moves data down; `superversion` is what ties them together.
//!
//! Concurrency: [`Db`], [`Keyspace`], [`Snapshot`] are `Clone + Send + Sync`; nothing borrows the
//! store. The store closes when the last of them is dropped, or at [`Db::close`].

mod background;
mod batch;
mod census;
mod keyspace;
mod keyspaces;
mod loading;
mod lookup;
mod lookups;
#[cfg(all(test, loom))]
mod loom_tests;
mod memory;
mod open;
mod pointer;
mod pressure;
mod recovery;
mod replay;
mod runs;
mod scan;
mod settling;
mod shape;
mod size;
mod slice;
mod snapshot;
mod stats;
mod store;
#[cfg(all(test, not(loom)))]
mod store_tests;
mod superversion;
#[cfg(all(test, not(loom), feature = "failpoints"))]
mod tests;
mod tiering;
mod timing;
mod turn;
mod verify;
mod write;

use std::path::Path;
use std::sync::Arc;

pub use background::JobFailure;
pub use batch::Batch;
pub use keyspace::Keyspace;
pub use keyspaces::check_keyspace_name;
pub use recovery::RecoveryReport;
pub use scan::Scan;
pub use shape::LevelInfo;
pub use size::ApproximateSize;
pub use slice::Slice;
pub use snapshot::Snapshot;
pub use stats::{KeyspaceStats, LevelStats, Stats, ValueStats};
pub use timing::LatencyStats;
pub use verify::{VerifyProgress, VerifyReport};
pub use write::Cas;

use crate::env::Env;
use crate::error::{Error, Result};
use crate::options::{KeyspaceOptions, Options};

use snapshot::Pinned;
use store::Store;

/// An open store.
///
/// ```
/// # fn main() -> drumlin::Result<()> {
/// # let directory = std::env::temp_dir().join(format!("drumlin-doc-db-{}", std::process::id()));
/// let db = drumlin::Db::open(&directory, drumlin::Options::default())?;
/// let cities = db.keyspace("cities", Default::default())?;
/// cities.put("DE/Berlin", "3426354")?;
/// assert_eq!(cities.get("DE/Berlin")?.as_deref(), Some(&b"3426354"[..]));
/// for record in cities.prefix("DE/")? {
///     let (key, value) = record?;
///     println!("{key:?} = {value:?}");
/// }
/// db.close()?;
/// # std::fs::remove_dir_all(directory).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Db {
    pub(crate) store: Arc<Store>,
    _closer: Arc<Closer>,
}

/// Closes the store when the last handle goes.
struct Closer(Arc<Store>);

impl Drop for Closer {
    fn drop(&mut self) {
        // Nobody is left to tell; the next open recovers what a failed close left.
        let _ = close(&self.0);
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db({})", self.store.directory.display())
    }
}

/// Closes the store, or waits until whoever came first has; all are told the same.
fn close(store: &Store) -> Result<()> {
    let mut closing = store.closing.lock();
    if let Some(told) = &*closing {
        return told.clone();
    }
    store.mark_closed();
    let told = close_first(store);
    *closing = Some(told.clone());
    told
}

fn close_first(store: &Store) -> Result<()> {
    // Writes that are beyond their look at the mark end here; later ones see it, under their key's lock.
    // What the log is closed with is then all there is.
    drop(store.stripes.lock_all());
    store.background.stop();
    let told = store.background.verdict(&store.keyspaces.all());
    let result = match store.log.get() {
        Some(log) => {
            let sound = store.poisoned().is_none() && !store.sequencer.is_broken();
            let closed = log.close(sound);
            if sound { closed.and_then(|()| store.note_end()) } else { closed }
        }
        None => Ok(()),
    };
    // Nobody reads any more: what scans that were left behind hold goes too.
    store.tidy();
    store.memory.shelf.sweep_all();
    *store.manifest.lock() = None;
    *store.lock.lock() = None;
    result.and(told)
}

impl Db {
    /// Opens the store in `directory`, making it if the options allow.
    ///
    /// Takes time in proportion to the log that is not flushed and to the number of tables, of which none is read.
    ///
    /// # Errors
    /// `Locked` if it is open elsewhere, `NotFound` if there is none and none is to be made, `InvalidArgument` for options
    /// outside their limits, `Unsupported` if a newer version wrote it, `Corruption`, `Io`, `NoSpace`.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Db> {
        Db::open_with(Env::real(), directory, options)
    }

    /// Opens a store in another environment (another file system, clock, ...).
    ///
    /// # Errors
    /// As [`Db::open`].
    pub fn open_with(env: Env, directory: impl AsRef<Path>, options: Options) -> Result<Db> {
        let store = open::open(env, directory.as_ref(), options)?;
        Ok(Db { _closer: Arc::new(Closer(store.clone())), store })
    }

    /// The keyspace `name`; made with `options` if it does not exist. An existing one keeps its own
    /// options; what is for good is compared: the comparator, and whether there is an order. O(log keyspaces); making one costs
    /// O(keyspaces) and syncs of the manifest.
    ///
    /// # Errors
    /// `InvalidArgument` for a name or options that are not allowed, another comparator than it has, or an order where it has none
    /// ([`Layout::Trie`](crate::Layout::Trie)) or none where it has one; `NotFound` if it would have to be made and the store is
    /// read-only; `Closed`; `Poisoned`, `NoSpace` or `Io` if the manifest cannot be written.
    pub fn keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        match self.open_keyspace(name) {
            Err(Error::NotFound { .. }) if !self.store.options.read_only => {
                Ok(Keyspace { db: self.clone(), state: self.store.create_keyspace(name, options)? })
            }
            Ok(keyspace) if keyspace.state.comparator.name() != options.comparator.name() => {
                Err(Error::invalid(format!(
                    "keyspace {name} is ordered by {}, not by {}",
                    keyspace.state.comparator.name(),
                    options.comparator.name()
                )))
            }
            Ok(keyspace) if keyspace.options().is_ordered() != options.is_ordered() => {
                let (is, asked) = match options.is_ordered() {
                    true => ("has no order (its layout is a trie)", "in order"),
                    false => ("is ordered", "without order (with the layout of a trie)"),
                };
                Err(Error::invalid(format!(
                    "keyspace {name} {is}, which is for good, and was asked for {asked}: ask for it as it is, or choose another name"
                )))
            }
            other => other,
        }
    }

    /// The keyspace `name`, which must exist. O(log keyspaces).
    ///
    /// # Errors
    /// `NotFound`; `Closed`.
    pub fn open_keyspace(&self, name: &str) -> Result<Keyspace> {
        Ok(Keyspace { db: self.clone(), state: self.store.open_keyspace(name)? })
    }

    /// Drops the keyspace `name` with everything in it. Its handles answer `Closed` from then on. O(keyspaces + its tables)
    /// and syncs of the log and the manifest; the files go later.
    ///
    /// # Errors
    /// `NotFound`; `ReadOnly`; `Closed`; `Poisoned` if the log cannot be synced; `Poisoned`, `NoSpace` or `Io` if the
    /// manifest cannot be written.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.store.drop_keyspace(name)
    }

    /// Names of all keyspaces, sorted.
    pub fn keyspaces(&self) -> Vec<String> {
        self.store.keyspaces.all().keys().cloned().collect()
    }

    /// An empty batch.
    pub fn batch(&self) -> Batch {
        Batch::new(self.clone())
    }

    /// A linearizable snapshot of all keyspaces: it contains every write acknowledged before the
    /// call. Waits for the writes in flight (about a microsecond), without bound for one that is frozen. O(threads).
    ///
    /// # Errors
    /// `Closed`; `Poisoned` if a thread died in the middle of a write.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.store.check_readable()?;
        let registration = self.store.sequencer.snapshot()?;
        Ok(Snapshot::new(Pinned::new(self.clone(), registration)))
    }

    /// A serializable snapshot: consistent, but it may miss writes acknowledged a moment ago, this thread's own included.
    /// O(threads).
    ///
    /// In a store that has a keyspace with [`Memory::TwoTier`](crate::Memory::TwoTier), the default, or
    /// [`Memory::Runs`](crate::Memory::Runs), it sees what another snapshot sees, scans' own included, if that is at most 4 MiB of log
    /// old; a later call may then see an older state than an earlier one. If there is none, it is a [`Db::snapshot`], and waits as that
    /// does.
    ///
    /// Where all keyspaces are [`Memory::Sorted`](crate::Memory::Sorted) it waits for nobody, and misses what came after the oldest
    /// write in flight; the store itself has one in flight while it fills up a segment of its log.
    ///
    /// # Errors
    /// `Closed`; with `TwoTier` or `Runs` as [`Db::snapshot`].
    pub fn snapshot_recent(&self) -> Result<Snapshot> {
        self.store.check_readable()?;
        let registration = self.store.sequencer.snapshot_recent()?;
        Ok(Snapshot::new(Pinned::new(self.clone(), registration)))
    }

    /// Makes every write acknowledged so far survive a power loss. Callers at the same time share one sync.
    ///
    /// # Errors
    /// `ReadOnly`; `Poisoned` if this sync fails or one has failed before, or a thread died in the middle of a write.
    pub fn persist(&self) -> Result<()> {
        self.store.sync_log(self.store.sequencer.tail())
    }

    /// Writes all memtables to tables. Long work: O(bytes of the memtables).
    ///
    /// # Errors
    /// Why a flush failed; `Poisoned`; of a store that has something to flush also `ReadOnly` and `Closed`.
    pub fn flush(&self) -> Result<()> {
        self.store.flush(None)
    }

    /// Flushes and merges every keyspace to its deepest level. Long work: O(bytes of the store), read and written.
    ///
    /// # Errors
    /// `ReadOnly`; why a flush or a compaction failed, which ends it; `Poisoned`; `Closed` if the store is closed meanwhile.
    pub fn compact(&self) -> Result<()> {
        self.store.keyspaces.all().values().try_for_each(|keyspace| self.store.compact_keyspace(keyspace))
    }

    /// Waits until no flush or compaction is running or due. What failed before is tried again.
    ///
    /// # Errors
    /// Why one of them failed, when all others are done; `Poisoned`; `Closed`.
    pub fn wait_for_idle(&self) -> Result<()> {
        self.store.wait_for_idle()
    }

    /// Reads every byte of every table, and of the log if the store is open read-only, and checks it. Long work; reports
    /// as it goes. A corrupt place does not end it: what the report does not name is sound.
    ///
    /// # Errors
    /// `Closed`, also if the store is closed meanwhile; `Io` or `Unsupported` if the manifest of a read-only store cannot be read. What else is corrupt or cannot be
    /// read is in the report.
    pub fn verify(&self, on_progress: &mut dyn FnMut(&VerifyProgress)) -> Result<VerifyReport> {
        verify::verify(&self.store, on_progress)
    }

    /// As [`Db::verify`], and also for a store that is too corrupt to be opened: then every file is checked that can be
    /// checked by itself, and [`VerifyReport::unchecked`] says what could not be. Nothing is changed or repaired.
    ///
    /// # Errors
    /// As [`Db::open`], but for corruption.
    pub fn verify_directory(
        directory: impl AsRef<Path>,
        options: Options,
        on_progress: &mut dyn FnMut(&VerifyProgress),
    ) -> Result<VerifyReport> {
        verify::verify_directory(Env::real(), directory.as_ref(), options, on_progress)
    }

    /// What the store holds and does, in figures.
    pub fn stats(&self) -> Stats {
        stats::collect(&self.store)
    }

    /// Stops background work, writes the clean-close mark and gives the lock back. Other handles
    /// answer `Closed` from then on.
    ///
    /// # Errors
    /// Also, with all of that done, the first corruption that background work met since the store was opened, or why
    /// a flush or a compaction failed that was not done since. What was acknowledged is as safe as it was.
    pub fn close(self) -> Result<()> {
        close(&self.store)
    }
}
