//! Snapshots: a whole store as of one instant.
//!
//! Place: made by `Db::snapshot` and `Db::snapshot_recent`, and by every scan for itself.
//! A snapshot is an LSN registered with the sequencer; reading it is reading at that LSN. It holds
//! no memory and no file: merges keep the versions it needs while it is registered (I4).
//!
//! Concurrency: `Send + Sync`; clones share one registration, released with the last.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::commit::Registration;
use crate::error::{Error, Result};
use crate::key::Lsn;
use crate::sync::Mutex;

use super::Db;
use super::keyspace::Keyspace;
use super::scan::{self, Scan};
use super::slice::Slice;
use super::store::Store;

/// A registered read point; scans share it.
pub(crate) struct Pinned {
    db: Db,
    pub lsn: Lsn,
    lease: Arc<Lease>,
}

/// What keeps a read point registered. It does not keep the store open: whoever looks through the
/// leases for forgotten ones must not be the last to hold the store, since closing it waits for the
/// background threads, and it is one of them.
pub(crate) struct Lease {
    registration: Mutex<Option<Registration>>,
    used_at_ms: AtomicU64,
}

impl Lease {
    /// The registration, to be released, if the last use lies further back than `expiry`.
    pub fn expire(&self, now: Duration, expiry: Duration) -> Option<Registration> {
        let used = Duration::from_millis(self.used_at_ms.load(Ordering::Relaxed));
        if now.saturating_sub(used) > expiry { self.registration.lock().take() } else { None }
    }
}

impl Pinned {
    pub fn new(db: Db, registration: Registration) -> Arc<Pinned> {
        let lsn = registration.lsn();
        let lease =
            Arc::new(Lease { registration: Mutex::new(Some(registration)), used_at_ms: AtomicU64::new(0) });
        let pinned = Arc::new(Pinned { lsn, lease, db });
        pinned.touch();
        if pinned.db.store.options.snapshot_expiry.is_some() {
            let mut handed_out = pinned.db.store.handed_out.lock();
            // Before it grows: a store that only reads has no job that would clear it.
            if handed_out.len() == handed_out.capacity() {
                handed_out.retain(|lease| lease.strong_count() > 0);
            }
            handed_out.push(Arc::downgrade(&pinned.lease));
        }
        pinned
    }

    pub fn store(&self) -> &Store {
        &self.db.store
    }

    fn touch(&self) {
        if self.db.store.options.snapshot_expiry.is_some() {
            let now = self.db.store.env.clock.now().as_millis() as u64;
            self.lease.used_at_ms.store(now, Ordering::Relaxed);
        }
    }

    /// True if a check could only succeed, and would mark nothing.
    #[inline]
    pub fn is_plainly_live(&self) -> bool {
        self.db.store.options.snapshot_expiry.is_none() && !self.db.store.is_closed()
    }

    /// Marks a use. Errors if the snapshot was forgotten for too long and released.
    pub fn check(&self) -> Result<()> {
        self.touch();
        if self.db.store.options.snapshot_expiry.is_some() && self.lease.registration.lock().is_none() {
            return Err(Error::SnapshotExpired);
        }
        self.db.store.check_readable()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(registration) = self.lease.registration.lock().take() {
            self.db.store.sequencer.snapshots().release(registration);
        }
    }
}

/// A consistent view of every keyspace as of one instant. The keyspaces that it is asked for must be of its own
/// store, else the answer is `InvalidArgument`.
#[derive(Clone)]
pub struct Snapshot {
    pinned: Arc<Pinned>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({:?})", self.pinned.lsn)
    }
}

impl Snapshot {
    pub(crate) fn new(pinned: Arc<Pinned>) -> Snapshot {
        Snapshot { pinned }
    }

    pub(crate) fn pinned(&self) -> Arc<Pinned> {
        self.pinned.clone()
    }

    /// The log position it stands for: it sees every write below.
    pub fn lsn(&self) -> Lsn {
        self.pinned.lsn
    }

    /// The value of `key` as of the snapshot. Costs as much as [`Keyspace::get`].
    ///
    /// # Errors
    /// [Those of a read](Keyspace#errors-of-reads); `SnapshotExpired` if it was forgotten for longer than
    /// [`snapshot_expiry`](crate::Options::snapshot_expiry).
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.pinned.check()?;
        keyspace.state_in(&self.pinned.db)?;
        let value = keyspace.get_at(key.as_ref(), self.pinned.lsn);
        // An expiry in the middle of the read may have let a merge drop what it needed.
        self.pinned.check()?;
        value
    }

    /// The values of several keys as of the snapshot, in their order. Costs as much as [`Keyspace::multi_get`].
    ///
    /// # Errors
    /// As [`Snapshot::get`]: the first that is met ends it.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.pinned.check()?;
        keyspace.state_in(&self.pinned.db)?;
        let values = keyspace.multi_get_at(keys, self.pinned.lsn);
        // As behind a get.
        self.pinned.check()?;
        values
    }

    /// The records within `bounds`, from either end. Waits for nobody; costs as much as [`Keyspace::range`].
    ///
    /// # Errors
    /// As [`Snapshot::get`], here or as the item that ends the scan.
    pub fn range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, bounds: impl RangeBounds<K>) -> Result<Scan> {
        self.scan(keyspace, scan::bounds_in(&keyspace.state, bounds, "range")?)
    }

    /// The records whose keys start with `prefix`. Needs the bytewise order. Costs as much as [`Keyspace::range`].
    ///
    /// # Errors
    /// As [`Snapshot::range`]; `InvalidArgument` in another order.
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Result<Scan> {
        self.scan(keyspace, scan::prefix_bounds(&keyspace.state, prefix.as_ref())?)
    }

    /// All records. Costs as much as [`Keyspace::range`].
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    pub fn iter(&self, keyspace: &Keyspace) -> Result<Scan> {
        self.scan(keyspace, (Bound::Unbounded, Bound::Unbounded))
    }

    fn scan(&self, keyspace: &Keyspace, bounds: scan::Bounds) -> Result<Scan> {
        self.pinned.check()?;
        let keyspace = keyspace.state_in(&self.pinned.db)?;
        Scan::new(keyspace, self.pinned(), bounds).or_else(|error| self.pinned.check().and(Err(error)))
    }
}
