//! Batches: several writes, in one or more keyspaces, that take effect together.
//!
//! Place: filled by the user, committed by `write`.
//!
//! Within a batch the last word on a key wins: a later put or delete replaces an earlier one, and a
//! range deletion removes the earlier writes in its range. All that is left carries one LSN; a
//! range tombstone at L hides versions below L only, so later puts of the same batch survive it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::key::{BATCH_BYTES_MAX, Kind};
use crate::options::WriteOptions;

use super::keyspace::{Keyspace, KeyspaceState};
use super::{Db, write};

/// One write of a batch.
pub(crate) struct Operation {
    pub keyspace: Arc<KeyspaceState>,
    pub kind: Kind,
    /// In its keyspace's form.
    pub key: Vec<u8>,
    /// The value; the end of the range for `RangeDelete`.
    pub value: Vec<u8>,
}

impl Operation {
    /// The key as the user gave it.
    pub fn user_key(&self) -> &[u8] {
        self.keyspace.form.user(&self.key)
    }
}

/// Writes that take effect together, or not at all. That holds for every reader, and for what a crash leaves: with one
/// exception, writes to keyspaces that are not [logged](crate::KeyspaceOptions::logged). Each of these comes back as far as
/// it was flushed, so after a crash the parts of one batch may be there in one such keyspace and missing in another, or in
/// the logged ones.
///
/// ```
/// # fn main() -> drumlin::Result<()> {
/// # let directory = std::env::temp_dir().join(format!("drumlin-doc-batch-{}", std::process::id()));
/// # let db = drumlin::Db::open(&directory, drumlin::Options::default())?;
/// let accounts = db.keyspace("accounts", Default::default())?;
/// let mut batch = db.batch();
/// batch.put(&accounts, "alice", "70")?;
/// batch.put(&accounts, "bob", "130")?;
/// batch.commit()?;
/// # db.close()?;
/// # std::fs::remove_dir_all(directory).ok();
/// # Ok(())
/// # }
/// ```
pub struct Batch {
    db: Db,
    operations: Vec<Option<Operation>>,
    last: HashMap<(u32, Vec<u8>), usize>,
    bytes: usize,
}

impl Batch {
    pub(crate) fn new(db: Db) -> Batch {
        Batch { db, operations: Vec::new(), last: HashMap::new(), bytes: 0 }
    }

    /// Sets `key` to `value`. O(1), and a copy of both.
    ///
    /// # Errors
    /// `InvalidArgument` if the key, the value or the batch is beyond its limit, or the keyspace belongs to another store;
    /// `Closed` if the keyspace was dropped. What counts against the batch's limit is all that was added, also what a later
    /// write replaced.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.point(keyspace, Kind::Put, key.as_ref(), value.as_ref())
    }

    /// Deletes `key`. O(1).
    ///
    /// # Errors
    /// As [`Batch::put`].
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.point(keyspace, Kind::Delete, key.as_ref(), &[])
    }

    /// Deletes every key in [start, end). O(writes already in the batch).
    ///
    /// # Errors
    /// As [`Batch::put`]; `InvalidArgument` also if `start` is not before `end`; `NoOrder` in a keyspace without order.
    pub fn delete_range(
        &mut self,
        keyspace: &Keyspace,
        start: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (start, end) = (start.as_ref(), end.as_ref());
        let state = keyspace.state_in(&self.db)?;
        write::check_range(state, start, end)?;
        self.grow(start.len() + end.len())?;
        let comparator = &state.comparator;
        for slot in &mut self.operations {
            let covered = slot.as_ref().is_some_and(|o| {
                o.keyspace.id == state.id
                    && o.kind != Kind::RangeDelete
                    && comparator.compare(&o.key, start).is_ge()
                    && comparator.compare(&o.key, end).is_lt()
            });
            if covered {
                *slot = None;
            }
        }
        self.operations.push(Some(Operation {
            keyspace: state.clone(),
            kind: Kind::RangeDelete,
            key: start.to_vec(),
            value: end.to_vec(),
        }));
        Ok(())
    }

    fn point(&mut self, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        let state = keyspace.state_in(&self.db)?;
        write::check_entry(key, value)?;
        self.grow(key.len() + value.len())?;
        let key = state.form.to_stored(key);
        let at = self.operations.len();
        if let Some(earlier) = self.last.insert((state.id.0, key.clone()), at) {
            self.operations[earlier] = None;
        }
        let operation = Operation { keyspace: state.clone(), kind, key, value: value.to_vec() };
        self.operations.push(Some(operation));
        Ok(())
    }

    fn grow(&mut self, bytes: usize) -> Result<()> {
        let total = self.bytes + bytes + 16;
        if total > BATCH_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the batch would hold {total} bytes, but at most {BATCH_BYTES_MAX} are allowed: commit it and go on in another"
            )));
        }
        self.bytes = total;
        Ok(())
    }

    /// Writes that will take effect. O(writes).
    pub fn len(&self) -> usize {
        self.operations.iter().flatten().count()
    }

    /// True if nothing would happen. O(writes).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes all writes take effect at one instant, with the store's default durability. An empty batch is fine.
    ///
    /// # Errors
    /// As [`Batch::commit_with`].
    pub fn commit(self) -> Result<()> {
        self.commit_with(WriteOptions::default())
    }

    /// Makes all writes take effect at one instant. O(n log n) for the locks of n keys, then O(log memtable) a write; with a
    /// range deletion it holds every key lock meanwhile.
    ///
    /// # Errors
    /// [Those of a write](Keyspace#errors-of-writes), for all of it at once; `InvalidArgument` also if it spans keyspaces
    /// that are logged and ones that are not.
    pub fn commit_with(self, options: WriteOptions) -> Result<()> {
        let operations: Vec<Operation> = self.operations.into_iter().flatten().collect();
        write::commit_batch(&self.db.store, &operations, options)
    }
}
