//! The two faces of RocksDB: the plain store, and the one with optimistic transactions.
//!
//! Place: `rocksdb` is generic over them; they differ in batches and in how a value is changed.

use std::path::Path;

use ::rocksdb::{
    ColumnFamilyDescriptor, DB, DBAccess, DBPinnableSlice, DBRawIteratorWithThreadMode,
    DEFAULT_COLUMN_FAMILY_NAME, Error, ErrorKind, OptimisticTransactionDB, OptimisticTransactionOptions,
    Options, ReadOptions, WaitForCompactOptions, WriteBatchWithTransaction, WriteOptions,
};

use crate::stripes::Stripes;

/// What to write in place of a value; `None` leaves it.
pub type Replace<'a> = &'a dyn Fn(Option<&[u8]>) -> Option<Vec<u8>>;

/// A handle of a store.
pub trait Base: DBAccess + Send + Sync + Sized + 'static {
    /// In reports.
    const NAME: &'static str;
    /// How a value is changed, in words.
    const CHANGES: &'static str;
    /// Opens it.
    fn open(options: &Options, path: &Path) -> Result<Self, Error>;
    /// Sets a key.
    fn put(&self, key: &[u8], value: &[u8], with: &WriteOptions) -> Result<(), Error>;
    /// Sets several.
    fn put_many(&self, records: &[(Vec<u8>, &[u8])], with: &WriteOptions) -> Result<(), Error>;
    /// Removes a key.
    fn delete(&self, key: &[u8], with: &WriteOptions) -> Result<(), Error>;
    /// A value where it lies.
    fn get(&self, key: &[u8], with: &ReadOptions) -> Result<Option<DBPinnableSlice<'_>>, Error>;
    /// Values where they lie.
    fn get_many<'a>(
        &'a self,
        keys: &[Vec<u8>],
        with: &ReadOptions,
    ) -> Vec<Result<Option<DBPinnableSlice<'a>>, Error>>;
    /// An iterator.
    fn iterator(&self, with: ReadOptions) -> DBRawIteratorWithThreadMode<'_, Self>;
    /// Replaces a value, atomically.
    fn replace(
        &self,
        stripes: &Stripes,
        key: &[u8],
        replace: Replace<'_>,
        reads: &ReadOptions,
        writes: &WriteOptions,
    ) -> Result<(), Error>;
    /// Waits for the background.
    fn wait(&self, with: &WaitForCompactOptions) -> Result<(), Error>;
    /// A number that the store tells.
    fn property(&self, name: &str) -> Option<u64>;
}

/// What both have alike.
macro_rules! alike {
    () => {
        fn open(options: &Options, path: &Path) -> Result<Self, Error> {
            // Named, since a multi-get wants the column family.
            let family = ColumnFamilyDescriptor::new(DEFAULT_COLUMN_FAMILY_NAME, options.clone());
            Self::open_cf_descriptors(options, path, [family])
        }
        fn put(&self, key: &[u8], value: &[u8], with: &WriteOptions) -> Result<(), Error> {
            self.put_opt(key, value, with)
        }
        fn put_many(&self, records: &[(Vec<u8>, &[u8])], with: &WriteOptions) -> Result<(), Error> {
            let mut batch = WriteBatchWithTransaction::default();
            for (key, value) in records {
                batch.put(key, value);
            }
            self.write_opt(batch, with)
        }
        fn delete(&self, key: &[u8], with: &WriteOptions) -> Result<(), Error> {
            self.delete_opt(key, with)
        }
        fn get(&self, key: &[u8], with: &ReadOptions) -> Result<Option<DBPinnableSlice<'_>>, Error> {
            self.get_pinned_opt(key, with)
        }
        fn get_many<'a>(
            &'a self,
            keys: &[Vec<u8>],
            with: &ReadOptions,
        ) -> Vec<Result<Option<DBPinnableSlice<'a>>, Error>> {
            match self.cf_handle(DEFAULT_COLUMN_FAMILY_NAME) {
                Some(family) => self.batched_multi_get_cf_opt(&family, keys, false, with),
                None => Vec::new(),
            }
        }
        fn iterator(&self, with: ReadOptions) -> DBRawIteratorWithThreadMode<'_, Self> {
            self.raw_iterator_opt(with)
        }
        fn wait(&self, with: &WaitForCompactOptions) -> Result<(), Error> {
            self.wait_for_compact(with)
        }
        fn property(&self, name: &str) -> Option<u64> {
            // Files are counted as text.
            let told = || self.property_value(name).ok().flatten()?.parse().ok();
            self.property_int_value(name).ok().flatten().or_else(told)
        }
    };
}

impl Base for DB {
    const NAME: &'static str = "RocksDB";
    const CHANGES: &'static str = "updates under striped locks";
    alike!();
    fn replace(
        &self,
        stripes: &Stripes,
        key: &[u8],
        replace: Replace<'_>,
        reads: &ReadOptions,
        writes: &WriteOptions,
    ) -> Result<(), Error> {
        let _locked = stripes.lock(key);
        let new = replace(self.get_pinned_opt(key, reads)?.as_deref());
        new.map_or(Ok(()), |new| self.put_opt(key, new, writes))
    }
}

impl Base for OptimisticTransactionDB {
    const NAME: &'static str = "RocksDB txn";
    const CHANGES: &'static str = "updates by optimistic transactions";
    alike!();
    fn replace(
        &self,
        _: &Stripes,
        key: &[u8],
        replace: Replace<'_>,
        reads: &ReadOptions,
        writes: &WriteOptions,
    ) -> Result<(), Error> {
        let with = OptimisticTransactionOptions::default();
        loop {
            let transaction = self.transaction_opt(writes, &with);
            let new = replace(transaction.get_pinned_for_update_opt(key, true, reads)?.as_deref());
            let Some(new) = new else { return transaction.rollback() };
            transaction.put(key, new)?;
            match transaction.commit() {
                Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain) => {}
                done => return done,
            }
        }
    }
}
