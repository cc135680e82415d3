//! Scans: the records of a range as of a snapshot, from either end.
//!
//! Place: returned by `Keyspace` and `Snapshot`; reads memtables and levels through cursors.
//!
//! Two merges, one walking forward and one back, made when first asked for; they never turn round,
//! and the scan ends where they meet. Versions become records here: of each key the newest version
//! below the snapshot counts, and it shows if it is a put that no range tombstone hides.
//!
//! Invariants:
//! 1. The superversion is taken after the snapshot is registered (I4): everything below its LSN is
//!    in these parts, and nothing it needs is dropped while they are held.
//! 2. Keys come out strictly ascending from the front and strictly descending from the back, each
//!    at most once in all.
//! 3. A scan of a store that was closed, or of a snapshot that expired, ends with that error and no other.
//!
//! Complexity: a new scan joins the range tombstones that overlap it, O(n log n); of each table's and memtable's fragment it
//! takes the newest below its snapshot. It copies their keys.
//! Concurrency: a scan owns counted references (I3); it is `Send + 'static` and blocks nobody.
//! Origin: cLSM §3.2 (next operations filter versions), weakly consistent iterators.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crossbeam_epoch as epoch;

use crate::error::{Error, Result};
use crate::iter::{Cursor, Horizons, Merge, Tombstones};
use crate::key::{ComparatorRef, Kind, Lsn};
use crate::memory::MemTable;
use crate::version::Levels;

use super::keyspace::KeyspaceState;
use super::slice::Slice;
use super::snapshot::Pinned;
use super::timing::{Began, Timed};

pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// After this many versions of one key a seek is cheaper than steps.
const STEPS_BEFORE_SEEK: usize = 8;

pub(crate) fn owned_bounds<K: AsRef<[u8]>>(bounds: impl RangeBounds<K>) -> Bounds {
    let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
    (owned(bounds.start_bound()), owned(bounds.end_bound()))
}

pub(crate) fn prefix_bounds(keyspace: &KeyspaceState, prefix: &[u8]) -> Result<Bounds> {
    if !keyspace.options.comparator.is_bytewise() {
        return Err(Error::invalid(format!(
            "prefix queries need the bytewise order, but keyspace {} is ordered by {}: use `range`",
            keyspace.name,
            keyspace.options.comparator.name()
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

/// The records of a range; see the module. Yields (key, value), or the error that ended it.
pub struct Scan {
    snapshot: Arc<Pinned>,
    comparator: ComparatorRef,
    memtables: Vec<Arc<MemTable>>,
    levels: Arc<Levels>,
    /// Of each key the newest that the snapshot sees.
    tombstones: Tombstones,
    bounds: Bounds,
    front: Option<Side>,
    back: Option<Side>,
    ended: bool,
    /// Since when it is timed, if it is; until its first record.
    began: Option<Began>,
}

/// One end's merge and the key it last gave out.
struct Side {
    cursor: Merge<Box<dyn Cursor>>,
    last_key: Vec<u8>,
    gave: bool,
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
        let comparator = keyspace.options.comparator.clone();
        let within = (key_of(&bounds.0), key_of(&bounds.1));
        let at = Horizons::at(snapshot.lsn);
        let mut tombstones = levels.tombstones(within.0, within.1)?;
        for memtable in memtables.iter().filter(|memtable| memtable.has_tombstones()) {
            tombstones.extend(memtable.tombstones(&at));
        }
        let ended = match (&bounds.0, &bounds.1) {
            (Bound::Included(s), Bound::Included(e)) => comparator.compare(s, e).is_gt(),
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(s) | Bound::Excluded(s), Bound::Included(e) | Bound::Excluded(e)) => {
                comparator.compare(s, e).is_ge()
            }
        };
        Ok(Scan {
            tombstones: Tombstones::join(&*comparator, &tombstones, &at, within),
            snapshot,
            comparator,
            memtables,
            levels,
            bounds,
            front: None,
            back: None,
            ended,
            began,
        })
    }

    fn side(&self) -> Side {
        let mut children: Vec<Box<dyn Cursor>> = Vec::new();
        for memtable in &self.memtables {
            children.push(Box::new(memtable.cursor()));
        }
        let (start, end) = (key_of(&self.bounds.0), key_of(&self.bounds.1));
        children.extend(self.levels.cursors(start, end));
        Side { cursor: Merge::new(self.comparator.clone(), children), last_key: Vec::new(), gave: false }
    }

    /// True if the newest version below the snapshot, `lsn`, is a value.
    fn shows(&self, key: &[u8], lsn: Lsn, kind: Kind) -> bool {
        kind == Kind::Put
            && (self.tombstones.is_empty()
                || self
                    .tombstones
                    .newest_covering(&*self.comparator, key, self.snapshot.lsn)
                    .is_none_or(|covered| covered <= lsn))
    }

    fn step_front(&mut self) -> Result<Option<(Slice, Slice)>> {
        let at = self.snapshot.lsn;
        let mut side = match self.front.take() {
            Some(side) => side,
            None => {
                let mut side = self.side();
                match &self.bounds.0 {
                    Bound::Unbounded => side.cursor.seek_first()?,
                    Bound::Included(key) => side.cursor.seek(key, Lsn::MAX)?,
                    Bound::Excluded(key) => {
                        side.cursor.seek(key, Lsn::ZERO)?;
                        side.skip_key_forward(&self.comparator, key)?;
                    }
                }
                side
            }
        };
        let found = loop {
            if !side.cursor.valid() {
                break None;
            }
            let key = side.cursor.key();
            let beyond = match &self.bounds.1 {
                Bound::Unbounded => false,
                Bound::Included(end) => self.comparator.compare(key, end).is_gt(),
                Bound::Excluded(end) => self.comparator.compare(key, end).is_ge(),
            };
            let met = self
                .back
                .as_ref()
                .is_some_and(|b| b.gave && self.comparator.compare(key, &b.last_key).is_ge());
            if beyond || met {
                break None;
            }
            if side.cursor.lsn() >= at {
                side.cursor.next()?;
                continue;
            }
            let shown = self
                .shows(key, side.cursor.lsn(), side.cursor.kind())
                .then(|| (Slice::from(key), Slice::from(side.cursor.value())));
            side.last_key.clear();
            side.last_key.extend_from_slice(key);
            let key = std::mem::take(&mut side.last_key);
            side.skip_key_forward(&self.comparator, &key)?;
            side.last_key = key;
            side.gave |= shown.is_some();
            if shown.is_some() {
                break shown;
            }
        };
        self.front = Some(side);
        Ok(found)
    }

    fn step_back(&mut self) -> Result<Option<(Slice, Slice)>> {
        let at = self.snapshot.lsn;
        let mut side = match self.back.take() {
            Some(side) => side,
            None => {
                let mut side = self.side();
                match &self.bounds.1 {
                    Bound::Unbounded => side.cursor.seek_last()?,
                    Bound::Included(key) => side.cursor.seek_back(key, Lsn::ZERO)?,
                    Bound::Excluded(key) => side.cursor.seek_back(key, Lsn::MAX)?,
                }
                side
            }
        };
        let mut value: Vec<u8> = Vec::new();
        let found = loop {
            if !side.cursor.valid() {
                break None;
            }
            let key = side.cursor.key().to_vec();
            let beyond = match &self.bounds.0 {
                Bound::Unbounded => false,
                Bound::Included(start) => self.comparator.compare(&key, start).is_lt(),
                Bound::Excluded(start) => self.comparator.compare(&key, start).is_le(),
            };
            let met = self
                .front
                .as_ref()
                .is_some_and(|f| f.gave && self.comparator.compare(&key, &f.last_key).is_le());
            if beyond || met {
                break None;
            }
            // Oldest first: the last one below the snapshot is the newest that counts.
            let mut newest: Option<(Lsn, Kind)> = None;
            while side.cursor.valid() && self.comparator.compare(side.cursor.key(), &key).is_eq() {
                if side.cursor.lsn() < at {
                    newest = Some((side.cursor.lsn(), side.cursor.kind()));
                    value.clear();
                    value.extend_from_slice(side.cursor.value());
                }
                side.cursor.prev()?;
            }
            if let Some((lsn, kind)) = newest
                && self.shows(&key, lsn, kind)
            {
                side.last_key.clone_from(&key);
                side.gave = true;
                break Some((Slice::from(key), Slice::from(std::mem::take(&mut value))));
            }
        };
        self.back = Some(side);
        Ok(found)
    }

    fn yielded(&mut self, step: Result<Option<(Slice, Slice)>>) -> Option<Result<(Slice, Slice)>> {
        // First: a closed store has removed files that the scan still held, and what that led to is not the news.
        let step = self.snapshot.check().and(step);
        if let Some(began) = self.began.take() {
            self.snapshot.store().timed(Timed::Scan, Some(&began), || 0);
        }
        self.ended = !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}

pub(crate) fn key_of(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

impl Side {
    /// Moves past every version of `key`.
    fn skip_key_forward(&mut self, comparator: &ComparatorRef, key: &[u8]) -> Result<()> {
        for _ in 0..STEPS_BEFORE_SEEK {
            if !self.cursor.valid() || comparator.compare(self.cursor.key(), key).is_ne() {
                return Ok(());
            }
            self.cursor.next()?;
        }
        self.cursor.seek(key, Lsn::ZERO)?;
        while self.cursor.valid() && comparator.compare(self.cursor.key(), key).is_eq() {
            self.cursor.next()?;
        }
        Ok(())
    }
}

impl Iterator for Scan {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = self.step_front();
        self.yielded(step)
    }
}

impl DoubleEndedIterator for Scan {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = self.step_back();
        self.yielded(step)
    }
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scan({:?} at {:?})", self.bounds, self.snapshot.lsn)
    }
}
