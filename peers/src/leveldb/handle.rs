//! LevelDB's C interface, made safe: a store, its batches and iterators, each destroyed when dropped.
//!
//! Place: `leveldb` is an engine by it.
//!
//! 1. What LevelDB allocates is freed by LevelDB.
//! 2. Options, cache and filter live as long as the store, iterators less long.
//!
//! Tests: tests/engines.rs takes every call through here.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::ptr;

use cruzbit_leveldb_sys as c;
use drumlin_bench::engine::{Error, Result};

/// How a store is opened.
pub struct Opening {
    /// Bytes of its memtable; there may be two.
    pub memtable: usize,
    /// Bytes of its block cache.
    pub cache: usize,
    /// Bytes of a block.
    pub block: usize,
    /// Bits of filter for a key.
    pub filter_bits: i32,
    /// Entries between two that a block can be entered at.
    pub restart: i32,
    /// Blocks are compressed by Snappy.
    pub compressed: bool,
    /// Each write is synced.
    pub synced: bool,
}

/// An open store.
pub struct Handle {
    db: *mut c::leveldb_t,
    options: *mut c::leveldb_options_t,
    cache: *mut c::leveldb_cache_t,
    filter: *mut c::leveldb_filterpolicy_t,
    reads: *mut c::leveldb_readoptions_t,
    writes: *mut c::leveldb_writeoptions_t,
    synced: *mut c::leveldb_writeoptions_t,
}

// SAFETY: LevelDB's handle may be used by any threads side by side; the options are only read once they are made. The threads
// of tests/engines.rs share one.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// Takes the message that a call left.
fn check(message: *mut c_char) -> Result<()> {
    if message.is_null() {
        return Ok(());
    }
    // SAFETY: LevelDB leaves a text that ends in zero, to be freed by it (tests: a_store_that_cannot_be_opened_says_so).
    let text = unsafe { CStr::from_ptr(message).to_string_lossy().into_owned() };
    // SAFETY: as above; it is not used after.
    unsafe { c::leveldb_free(message.cast()) };
    Err(Error::from(format!("LevelDB: {text}")))
}

impl Handle {
    /// Opens the store in `directory`, or makes it.
    pub fn open(directory: &Path, opening: &Opening) -> Result<Handle> {
        let path = CString::new(directory.as_os_str().as_encoded_bytes())?;
        // SAFETY: every object is made here, given to the options that live as long, and destroyed in `drop`.
        let mut handle = unsafe {
            Handle {
                db: ptr::null_mut(),
                options: c::leveldb_options_create(),
                cache: c::leveldb_cache_create_lru(opening.cache),
                filter: c::leveldb_filterpolicy_create_bloom(opening.filter_bits as c_int),
                reads: c::leveldb_readoptions_create(),
                writes: c::leveldb_writeoptions_create(),
                synced: c::leveldb_writeoptions_create(),
            }
        };
        let mut message = ptr::null_mut();
        let compression = if opening.compressed { c::Compression::Snappy } else { c::Compression::No };
        // SAFETY: the objects are those made above; the path ends in zero.
        handle.db = unsafe {
            c::leveldb_options_set_create_if_missing(handle.options, 1);
            c::leveldb_options_set_cache(handle.options, handle.cache);
            if opening.filter_bits > 0 {
                c::leveldb_options_set_filter_policy(handle.options, handle.filter);
            }
            c::leveldb_options_set_write_buffer_size(handle.options, opening.memtable);
            c::leveldb_options_set_block_size(handle.options, opening.block);
            c::leveldb_options_set_block_restart_interval(handle.options, opening.restart as c_int);
            c::leveldb_options_set_compression(handle.options, compression);
            c::leveldb_writeoptions_set_sync(handle.writes, u8::from(opening.synced));
            c::leveldb_writeoptions_set_sync(handle.synced, 1);
            c::leveldb_open(handle.options, path.as_ptr(), &mut message)
        };
        check(message)?;
        Ok(handle)
    }

    /// Sets a key.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(key, value, self.writes)
    }

    /// Sets a key, and waits until it is synced.
    pub fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(key, value, self.synced)
    }

    fn put_with(&self, key: &[u8], value: &[u8], with: *mut c::leveldb_writeoptions_t) -> Result<()> {
        let mut message = ptr::null_mut();
        // SAFETY: the store is open, and the slices live through the call.
        unsafe {
            let (key, value) = ((key.as_ptr().cast(), key.len()), (value.as_ptr().cast(), value.len()));
            c::leveldb_put(self.db, with, key.0, key.1, value.0, value.1, &mut message);
        }
        check(message)
    }

    /// Flushes its memtable and merges all of its tables.
    pub fn merge(&self) {
        // SAFETY: the store is open; no bounds are given, which means all of it.
        unsafe { c::leveldb_compact_range(self.db, ptr::null(), 0, ptr::null(), 0) };
    }

    /// Removes a key.
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        let mut message = ptr::null_mut();
        // SAFETY: as in `put`.
        unsafe { c::leveldb_delete(self.db, self.writes, key.as_ptr().cast(), key.len(), &mut message) };
        check(message)
    }

    /// Sets several keys at once.
    pub fn put_many(&self, records: &[(Vec<u8>, &[u8])]) -> Result<()> {
        let mut message = ptr::null_mut();
        // SAFETY: as in `put`; the batch copies what it is given, and is destroyed here.
        unsafe {
            let batch = c::leveldb_writebatch_create();
            for (key, value) in records {
                let (key, value) = ((key.as_ptr().cast(), key.len()), (value.as_ptr().cast(), value.len()));
                c::leveldb_writebatch_put(batch, key.0, key.1, value.0, value.1);
            }
            c::leveldb_write(self.db, self.writes, batch, &mut message);
            c::leveldb_writebatch_destroy(batch);
        }
        check(message)
    }

    /// Shows a value to `see`, if there is one.
    pub fn get<T>(&self, key: &[u8], see: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        let (mut message, mut length) = (ptr::null_mut(), 0);
        let key = (key.as_ptr().cast(), key.len());
        // SAFETY: as in `put`.
        let value = unsafe { c::leveldb_get(self.db, self.reads, key.0, key.1, &mut length, &mut message) };
        check(message)?;
        if value.is_null() {
            return Ok(None);
        }
        // SAFETY: LevelDB has made a copy of so many bytes, which is freed below and not shown after.
        let seen = see(unsafe { std::slice::from_raw_parts(value.cast(), length) });
        // SAFETY: as above.
        unsafe { c::leveldb_free(value.cast()) };
        Ok(Some(seen))
    }

    /// An iterator over what there is now.
    pub fn iterator(&self) -> Cursor<'_> {
        // SAFETY: the store outlives the cursor, which borrows it.
        Cursor { iterator: unsafe { c::leveldb_create_iterator(self.db, self.reads) }, _store: self }
    }

    /// What the store says of itself.
    pub fn property(&self, name: &CStr) -> Option<String> {
        // SAFETY: the name ends in zero, and so does what comes back, to be freed by LevelDB.
        unsafe {
            let text = c::leveldb_property_value(self.db, name.as_ptr());
            if text.is_null() {
                return None;
            }
            let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
            c::leveldb_free(text.cast());
            Some(owned)
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: each was made in `open` and is destroyed once, the store first; a store that was not opened is null.
        unsafe {
            if !self.db.is_null() {
                c::leveldb_close(self.db);
            }
            c::leveldb_readoptions_destroy(self.reads);
            c::leveldb_writeoptions_destroy(self.writes);
            c::leveldb_writeoptions_destroy(self.synced);
            c::leveldb_options_destroy(self.options);
            c::leveldb_filterpolicy_destroy(self.filter);
            c::leveldb_cache_destroy(self.cache);
        }
    }
}

/// An iterator.
pub struct Cursor<'a> {
    iterator: *mut c::leveldb_iterator_t,
    _store: &'a Handle,
}

impl Cursor<'_> {
    /// To the first key at or behind `key`.
    pub fn seek(&mut self, key: &[u8]) {
        // SAFETY: the iterator is alive, and the slice lives through the call.
        unsafe { c::leveldb_iter_seek(self.iterator, key.as_ptr().cast(), key.len()) }
    }

    /// To the last key.
    pub fn seek_to_last(&mut self) {
        // SAFETY: the iterator is alive.
        unsafe { c::leveldb_iter_seek_to_last(self.iterator) }
    }

    /// To the next key; there is a record here.
    pub fn next(&mut self) {
        // SAFETY: the iterator is alive; callers have looked whether there is a record.
        unsafe { c::leveldb_iter_next(self.iterator) }
    }

    /// To the key before; there is a record here.
    pub fn back(&mut self) {
        // SAFETY: as in `next`.
        unsafe { c::leveldb_iter_prev(self.iterator) }
    }

    /// The record here, if there is one.
    pub fn record(&self) -> Option<(&[u8], &[u8])> {
        // SAFETY: what LevelDB points at stays until the iterator moves, which needs it unborrowed.
        unsafe {
            if c::leveldb_iter_valid(self.iterator) == 0 {
                return None;
            }
            let (mut key_length, mut value_length) = (0, 0);
            let key = c::leveldb_iter_key(self.iterator, &raw mut key_length);
            let value = c::leveldb_iter_value(self.iterator, &raw mut value_length);
            let key = std::slice::from_raw_parts(key.cast(), key_length);
            Some((key, std::slice::from_raw_parts(value.cast(), value_length)))
        }
    }

    /// Why there is no record here, if not because all have been seen.
    pub fn check(&self) -> Result<()> {
        let mut message: *mut c_char = ptr::null_mut();
        // SAFETY: the iterator is alive; the binding's type wants the place of the message as constant, LevelDB writes to it.
        unsafe { c::leveldb_iter_get_error(self.iterator, (&raw mut message).cast_const().cast()) };
        check(message)
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `iterator`, destroyed once.
        unsafe { c::leveldb_iter_destroy(self.iterator) }
    }
}
