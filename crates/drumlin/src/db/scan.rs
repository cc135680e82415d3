//! Scans: the records of a range as of a snapshot, from either end.
//!
//! Place: returned by `Keyspace` and `Snapshot`; reads memtables and levels through cursors.
//!
//! Two merges, one walking forward and one back, made when first asked for; they never turn round,
//! and the scan ends where they meet. Versions become records here: of each key the newest version
//! below the snapshot counts, and it shows if it is a put that no range tombstone hides.
//!
//! Records are lent: the front's merge stands on the one it gave out, and leaves its key when the next is asked for. Going
//! back, the newest version of a key is met last, so a record is copied, into buffers that are used again.
//!
//! Invariants:
//! 1. The superversion is taken after the snapshot is registered (I4): everything below its LSN is
//!    in these parts, and nothing it needs is dropped while they are held.
//! 2. Keys come out strictly ascending from the front and strictly descending from the back, each
//!    at most once in all.
//! 3. While no end has ended the scan, the front's merge is on the record that the front gave out last, and the back's
//!    `key` is that of the back's last.
//! 4. A scan of a store that was closed, or of a snapshot that expired, ends with that error and no other.
//!
//! Complexity: a new scan joins the range tombstones that overlap it, O(n log n); of each table's and memtable's fragment it
//! takes the newest below its snapshot. It copies their keys.
//! A step forward allocates nothing and copies of the record no more than its block has of the key apart (`table::walk`).
//! Concurrency: a scan owns counted references (I3); it is `Send + 'static` and blocks nobody.
//! Origin: cLSM §3.2 (next operations filter versions), weakly consistent iterators.
//! Tests: tests/model.rs, tests/handles.rs, tests/memory.rs, `db::tests::closing`.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crossbeam_epoch as epoch;

use crate::error::{Error, Result};
use crate::iter::{Cursor, Either, Horizons, Merge, Tombstones};
use crate::key::{ComparatorRef, KeyForm, Kind, Lsn};
use crate::memory::{MemCursor, MemTable};
use crate::version::{Levels, PartCursor};

use super::keyspace::KeyspaceState;
use super::slice::Slice;
use super::snapshot::Pinned;
use super::timing::{Began, Timed};

pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The bounds of an `op`, which may be of keys only where these have an order.
pub(crate) fn bounds_in<K: AsRef<[u8]>>(
    keyspace: &KeyspaceState,
    bounds: impl RangeBounds<K>,
    op: &'static str,
) -> Result<Bounds> {
    let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
    let bounds = (owned(bounds.start_bound()), owned(bounds.end_bound()));
    let is_all = match &bounds {
        (Bound::Unbounded, Bound::Unbounded) => true,
        (Bound::Included(start), Bound::Unbounded) => start.is_empty(),
        _ => false,
    };
    if is_all { Ok(bounds) } else { keyspace.check_ordered(op).map(|()| bounds) }
}

pub(crate) fn prefix_bounds(keyspace: &KeyspaceState, prefix: &[u8]) -> Result<Bounds> {
    keyspace.check_ordered("prefix")?;
    if !keyspace.comparator.is_bytewise() {
        return Err(Error::invalid(format!(
            "prefix queries need the bytewise order, but keyspace {} is ordered by {}: use `range`",
            keyspace.name,
            keyspace.comparator.name()
        )));
    }
    let mut end = prefix.to_vec();
    while end.pop_if(|byte| *byte == u8::MAX).is_some() {}
    let end = match end.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Excluded(end)
        }
        None => Bound::Unbounded,
    };
    Ok((Bound::Included(prefix.to_vec()), end))
}

/// The records of a range, in order (but for keyspaces that have none), from either end; see the module.
pub struct Scan {
    view: View,
    memtables: Vec<Arc<MemTable>>,
    levels: Arc<Levels>,
    /// On the record that was given out from the front last.
    front: Option<Parts>,
    back: Option<Back>,
    ended: bool,
    /// Since when it is timed, if it is; until its first record.
    began: Option<Began>,
}

/// All memtables and tables under a scan.
type Parts = Merge<Either<MemCursor, PartCursor>>;

/// The back end: before all versions of the key that it gave out last.
struct Back {
    parts: Parts,
    /// The record that it gave out last.
    key: Vec<u8>,
    value: Vec<u8>,
}

/// What of the versions is seen.
struct View {
    snapshot: Arc<Pinned>,
    comparator: ComparatorRef,
    /// How keys are held.
    form: KeyForm,
    bounds: Bounds,
    /// Of each key the newest that the snapshot sees.
    tombstones: Tombstones,
}

impl View {
    /// True if the newest version below the snapshot, `lsn`, is a value.
    #[inline]
    fn shows(&self, key: &[u8], lsn: Lsn, kind: Kind) -> bool {
        kind != Kind::Delete && (self.tombstones.is_empty() || !self.is_hidden(key, lsn))
    }

    fn is_hidden(&self, key: &[u8], lsn: Lsn) -> bool {
        let covered = self.tombstones.newest_covering(&*self.comparator, key, self.snapshot.lsn);
        covered.is_some_and(|covered| covered > lsn)
    }

    /// True if `key` lies behind the end.
    #[inline]
    fn is_behind(&self, key: &[u8]) -> bool {
        match &self.bounds.1 {
            Bound::Unbounded => false,
            Bound::Included(end) => self.comparator.compare(key, end).is_gt(),
            Bound::Excluded(end) => self.comparator.compare(key, end).is_ge(),
        }
    }

    /// True if `key` lies before the start.
    #[inline]
    fn is_before(&self, key: &[u8]) -> bool {
        match &self.bounds.0 {
            Bound::Unbounded => false,
            Bound::Included(start) => self.comparator.compare(key, start).is_lt(),
            Bound::Excluded(start) => self.comparator.compare(key, start).is_le(),
        }
    }

    /// True if no key lies within the bounds.
    fn is_empty(&self) -> bool {
        match (&self.bounds.0, &self.bounds.1) {
            (Bound::Included(s), Bound::Included(e)) => self.comparator.compare(s, e).is_gt(),
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(s) | Bound::Excluded(s), Bound::Included(e) | Bound::Excluded(e)) => {
                self.comparator.compare(s, e).is_ge()
            }
        }
    }
}

impl Scan {
    pub(crate) fn new(keyspace: &KeyspaceState, snapshot: Arc<Pinned>, bounds: Bounds) -> Result<Scan> {
        let began = snapshot.store().sample();
        let (memtables, levels) = {
            let guard = epoch::pin();
            let superversion = keyspace.current.load(&guard);
            (
                superversion.generations.iter().map(|g| g.memtable.clone()).collect::<Vec<_>>(),
                superversion.levels.clone(),
            )
        };
        // After the load: a dropped keyspace is found empty.
        keyspace.check_open()?;
        let comparator = keyspace.comparator.clone();
        let within = (key_of(&bounds.0), key_of(&bounds.1));
        let at = Horizons::at(snapshot.lsn);
        let mut tombstones = levels.tombstones(within.0, within.1)?;
        for memtable in memtables.iter().filter(|memtable| memtable.has_tombstones()) {
            tombstones.extend(memtable.tombstones(&at));
        }
        let tombstones = Tombstones::join(&*comparator, &tombstones, &at, within);
        let view = View { snapshot, comparator, form: keyspace.form, bounds, tombstones };
        let ended = view.is_empty();
        Ok(Scan { view, memtables, levels, front: None, back: None, ended, began })
    }

    /// The next record, lent until the scan is used again: nothing is allocated, and the value is not copied. `None` at the
    /// end, which is where the other end has got to. As an [`Iterator`], a scan gives out copies.
    ///
    /// ```
    /// # fn main() -> drumlin::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("drumlin-doc-scan-{}", std::process::id()));
    /// # let db = drumlin::Db::open(&directory, drumlin::Options::default())?;
    /// # let cities = db.keyspace("cities", Default::default())?;
    /// cities.put("DE/Berlin", "3426354")?;
    /// let mut bytes = 0;
    /// let mut scan = cities.prefix("DE/")?;
    /// while let Some((key, value)) = scan.next_ref()? {
    ///     bytes += key.len() + value.len();
    /// }
    /// assert_eq!(bytes, 16);
    /// # drop(scan);
    /// # db.close()?;
    /// # std::fs::remove_dir_all(directory).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// O(log parts) a version; where one part has all records of a stretch, O(1).
    ///
    /// # Errors
    /// [Those of a read](crate::Keyspace#errors-of-reads); `SnapshotExpired` as [`Snapshot::get`](crate::Snapshot::get).
    /// An error ends the scan.
    #[inline]
    pub fn next_ref(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.ended {
            return Ok(None);
        }
        let step = self.step_front();
        self.note(step)?;
        let form = &self.view.form;
        Ok(self.front.as_ref().filter(|_| !self.ended).map(|front| (form.user(front.key()), front.value())))
    }

    /// The record before the last one that came from the back, or the last of all, lent until the scan is used again.
    /// `None` at the end. The record is copied into buffers of the scan, which are used again; costs are else those of
    /// [`Scan::next_ref`].
    ///
    /// # Errors
    /// As [`Scan::next_ref`].
    #[inline]
    pub fn next_back_ref(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.ended {
            return Ok(None);
        }
        let step = self.step_back();
        self.note(step)?;
        let form = &self.view.form;
        Ok(self.back.as_ref().filter(|_| !self.ended).map(|back| (form.user(&back.key), &back.value[..])))
    }

    /// A merge of all parts, nowhere yet.
    fn parts(&self) -> Parts {
        let bounds = &self.view.bounds;
        let memtables = self.memtables.iter().map(|memtable| Either::Left(memtable.cursor()));
        let tables = self.levels.cursors(key_of(&bounds.0), key_of(&bounds.1)).map(Either::Right);
        let mut children = Vec::with_capacity(memtables.len() + self.levels.cursors_most());
        children.extend(memtables.chain(tables));
        Merge::new(self.view.comparator.clone(), children)
    }

    /// A merge on the first version within the start.
    #[cold]
    fn parts_from_start(&self) -> Result<Parts> {
        let mut parts = self.parts();
        match &self.view.bounds.0 {
            Bound::Unbounded => parts.seek_first()?,
            Bound::Included(key) => parts.seek(key, Lsn::MAX)?,
            Bound::Excluded(key) => {
                parts.seek(key, Lsn::ZERO)?;
                while parts.valid() && self.view.comparator.compare(parts.key(), key).is_eq() {
                    parts.next_key()?;
                }
            }
        }
        Ok(parts)
    }

    /// A merge on the last version within the end.
    #[cold]
    fn parts_from_end(&self) -> Result<Parts> {
        let mut parts = self.parts();
        match &self.view.bounds.1 {
            Bound::Unbounded => parts.seek_last()?,
            Bound::Included(key) => parts.seek_back(key, Lsn::ZERO)?,
            Bound::Excluded(key) => parts.seek_back(key, Lsn::MAX)?,
        }
        Ok(parts)
    }

    /// Moves the front to the next record; false if there is none.
    #[inline]
    fn step_front(&mut self) -> Result<bool> {
        if let Some(front) = &mut self.front {
            front.next_key()?;
        } else {
            self.front = Some(self.parts_from_start()?);
        }
        let (view, Some(front)) = (&self.view, &mut self.front) else { return Ok(false) };
        while front.valid() {
            let (key, lsn) = (front.key(), front.lsn());
            let met = self.back.as_ref().is_some_and(|back| view.comparator.compare(key, &back.key).is_ge());
            if met || view.is_behind(key) {
                break;
            }
            if lsn >= view.snapshot.lsn {
                front.next()?;
            } else if view.shows(key, lsn, front.kind()) {
                if front.kind() == Kind::Apart {
                    front.load_value()?;
                }
                return Ok(true);
            } else {
                front.next_key()?;
            }
        }
        Ok(false)
    }

    /// Moves the back to the record before; false if there is none.
    fn step_back(&mut self) -> Result<bool> {
        if self.back.is_none() {
            let parts = self.parts_from_end()?;
            self.back = Some(Back { parts, key: Vec::new(), value: Vec::new() });
        }
        let (view, Some(back)) = (&self.view, &mut self.back) else { return Ok(false) };
        let Back { parts, key, value } = back;
        while parts.valid() {
            key.clear();
            key.extend_from_slice(parts.key());
            let given_front = self.front.as_ref().filter(|front| front.valid());
            let met = given_front.is_some_and(|front| view.comparator.compare(key, front.key()).is_le());
            if met || view.is_before(key) {
                break;
            }
            // Oldest first: the last one below the snapshot is the newest that counts.
            let mut newest: Option<(Lsn, Kind)> = None;
            while parts.valid() && parts.key() == key {
                if parts.lsn() < view.snapshot.lsn {
                    newest = Some((parts.lsn(), parts.kind()));
                    value.clear();
                    value.extend_from_slice(parts.value());
                }
                parts.prev()?;
            }
            if let Some((_, kind)) = newest.filter(|(lsn, kind)| view.shows(key, *lsn, *kind)) {
                if kind == Kind::Apart {
                    let found = self.levels.value(value)?;
                    value.clear();
                    value.extend_from_slice(&found);
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Notes what a step came to: the scan ends unless it found a record.
    #[inline]
    fn note(&mut self, step: Result<bool>) -> Result<()> {
        if !matches!(step, Ok(true)) || self.began.is_some() || !self.view.snapshot.is_plainly_live() {
            self.note_all(step)?;
        }
        Ok(())
    }

    #[cold]
    fn note_all(&mut self, step: Result<bool>) -> Result<()> {
        // First: a closed store has removed files that the scan still held, and what that led to is not the news.
        let step = self.view.snapshot.check().and(step);
        if let Some(began) = self.began.take() {
            self.view.snapshot.store().timed(Timed::Scan, Some(&began), || 0);
        }
        self.ended = !matches!(step, Ok(true));
        step.map(|_| ())
    }
}

pub(crate) fn key_of(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

fn owned(record: (&[u8], &[u8])) -> (Slice, Slice) {
    (Slice::from(record.0), Slice::from(record.1))
}

/// Yields copies of what [`Scan::next_ref`] lends, or the error that ended it.
impl Iterator for Scan {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.next_ref().transpose()?.map(owned))
    }
}

impl DoubleEndedIterator for Scan {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.next_back_ref().transpose()?.map(owned))
    }
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scan({:?} at {:?})", self.view.bounds, self.view.snapshot.lsn)
    }
}
