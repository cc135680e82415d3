//! Hashed tables: entries in buckets by the hash of their keys, found without an index.
//!
//! Place: a part of `table`; what a hashed table has is in front of what a sorted one has, in the same file: buckets, then a
//! sorted part for what no bucket takes, with its index. `writer`, `handle`, `cursor` and `verify` each have a branch here.
//!
//! Nouns: a key's *place* is the first 64 bits of its hash, which stand before it where it is held (`key::form`); a *bucket* is a
//! block of the device; an entry is *at home* in the bucket that its place says (`shape`); a *record* says what left a bucket
//! that was too full, and for which other one (`balance`, `record`); an *item* is a key with all its versions, which stay together.
//!
//! Parts: `shape` (which bucket), `balance` (where what is too much goes), `record`, `bucket` (the bytes), `stage` (entries before
//! they are written), `gather` (entries in order again), `parts` (what an open table holds), `cluster` (filters in
//! columns), `paths` (how often each way of a get was taken).
//!
//! A get of a key that is there reads one bucket, if the records are in memory. It follows records from the key's home, reads
//! where they end, and looks into the sorted part only if something of that home is there.
//!
//! Bytes: docs/formats/hashed-table.md. Origin: LSM-trie §2.4.2. Tests: in the parts, `table/tests/hashed.rs`.

mod balance;
mod bucket;
mod cluster;
mod gather;
mod parts;
mod paths;
mod record;
mod shape;
mod stage;

pub(super) use bucket::{BUCKET_BYTES, Bucket, CAPACITY, Entry, Usual};
pub(super) use cluster::{Cluster, Row, columns_between, columns_of};
pub use cluster::{Columns, Verdicts};
pub(super) use gather::{Gather, Source};
pub(super) use parts::{Hashed, HashedParts, split};
#[cfg(test)]
pub(super) use paths::taken;
pub(super) use paths::{Way, took};
pub(super) use record::{RECORD_BYTES, Record, Records, spin};
pub(super) use stage::{Poured, STAGED_BYTES_MAX, Stage};
