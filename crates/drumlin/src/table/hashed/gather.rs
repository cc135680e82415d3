//! Gathering: what is at home in a bucket, from wherever it lies, in order: a sorted block that was never written.
//!
//! Place: a cursor of a hashed table asks for bucket after bucket, and walks each as it walks a block.
//!
//! What was met in a bucket that is passed and is at home in a later one waits in the *parcels* of that one. So a walk from the
//! front reads each bucket once, in order, but for what went away to behind its home: that is fetched from there. A bucket that is
//! asked for out of turn is gathered by the records alone.
//!
//! Invariant: between two calls, `parcels` has every entry that lies in a bucket from `from` on and before `next` and is at home
//! in `next` or later, and no other.
//!
//! Complexity: an entry is hashed once where it is met, and sorted among those of its bucket.
//! Memory: the parcels: what moves before its home within some hundred buckets, or farther if nothing near had room.
//! Concurrency: one thread. Tests: `table/tests/hashed.rs`. Origin: ours.

use std::collections::BTreeMap;

use crate::encoding::Malformed;
use crate::error::Result;
use crate::key::{Lsn, PLACE_BYTES, Placer};
use crate::table::block::BlockBuilder;

use super::bucket::{Bucket, Entry};
use super::parts::HashedParts;
use super::record::Records;

/// An entry that was met, its key and value in an arena of bytes.
#[derive(Clone, Copy)]
struct Met {
    place: u64,
    lsn: Lsn,
    at: usize,
    key_bytes: usize,
    value_bytes: usize,
    kind: u8,
}

/// Entries with their bytes.
#[derive(Default)]
struct Parcel {
    met: Vec<Met>,
    bytes: Vec<u8>,
}

impl Parcel {
    fn clear(&mut self) {
        self.met.clear();
        self.bytes.clear();
    }

    fn add(&mut self, place: u64, Entry { key, lsn, kind, value }: Entry<'_>) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.met.push(Met { place, lsn, at, key_bytes: key.len(), value_bytes: value.len(), kind });
    }

    fn append(&mut self, other: &Parcel) {
        let base = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.met.extend(other.met.iter().map(|met| Met { at: base + met.at, ..*met }));
    }

    fn key(&self, met: &Met) -> &[u8] {
        &self.bytes[met.at..][..met.key_bytes]
    }

    fn value(&self, met: &Met) -> &[u8] {
        &self.bytes[met.at + met.key_bytes..][..met.value_bytes]
    }
}

/// What a gathering asks for: the body of a bucket, or what of the sorted part is at home in one.
pub(in crate::table) trait Source {
    /// Hands the body of a bucket to `body`. `in_turn`: the next one of a walk.
    fn bucket<R>(&mut self, bucket: usize, in_turn: bool, body: impl FnOnce(&[u8]) -> R) -> Result<R>;
    /// Hands each entry of the sorted part that is at home in the bucket to `each`, by its stored key.
    fn special(&mut self, bucket: usize, each: &mut dyn FnMut(&[u8], Entry<'_>)) -> Result<()>;
    /// The error for bytes that cannot be those of the bucket.
    fn malformed(&self, bucket: usize) -> crate::error::Error;
}

/// See the module.
pub(in crate::table) struct Gather {
    placer: Placer,
    /// All of the table.
    records: Records,
    from: usize,
    next: usize,
    parcels: BTreeMap<usize, Parcel>,
    /// Those that are used no more.
    spare: Vec<Parcel>,
    home: Parcel,
    key: Vec<u8>,
    builder: BlockBuilder,
}

impl Gather {
    /// A gathering by all records of a table.
    pub fn new(placer: Placer, records: Records) -> Gather {
        debug_assert!(records.is_whole());
        Gather {
            placer,
            records,
            from: 0,
            next: 0,
            parcels: BTreeMap::new(),
            spare: Vec::new(),
            home: Parcel::default(),
            key: Vec::new(),
            builder: BlockBuilder::new(true),
        }
    }

    /// Writes the block of what is at home in `bucket` into `out`; false if there is nothing.
    pub fn block(
        &mut self,
        bucket: usize,
        parts: &HashedParts,
        source: &mut impl Source,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        if bucket != self.next {
            std::mem::take(&mut self.parcels).into_values().for_each(|parcel| self.give_back(parcel));
            (self.from, self.next) = (bucket, bucket);
        }
        self.home.clear();
        let gathered = self.gather(bucket, parts, source);
        if gathered.is_err() {
            // What is half done is begun anew.
            self.next = usize::MAX;
            gathered?;
        }
        if self.home.met.is_empty() {
            return Ok(false);
        }
        let home = &mut self.home;
        let mut met = std::mem::take(&mut home.met);
        met.sort_unstable_by(|a, b| {
            let keys = || home.key(a).cmp(home.key(b)).then_with(|| b.lsn.cmp(&a.lsn));
            a.place.cmp(&b.place).then_with(keys)
        });
        self.builder.clear(usize::MAX);
        for entry in &met {
            self.key.clear();
            self.key.extend_from_slice(&entry.place.to_be_bytes());
            self.key.extend_from_slice(home.key(entry));
            self.builder.add(&self.key, entry.lsn, entry.kind, home.value(entry));
        }
        home.met = met;
        out.clear();
        out.extend_from_slice(self.builder.finish(|_| 0));
        Ok(true)
    }

    fn give_back(&mut self, mut parcel: Parcel) {
        parcel.clear();
        self.spare.push(parcel);
    }

    /// Collects what is at home in `bucket`, which is the next one.
    fn gather(&mut self, bucket: usize, parts: &HashedParts, source: &mut impl Source) -> Result<()> {
        if let Some(parcel) = self.parcels.remove(&bucket) {
            self.home.append(&parcel);
            self.give_back(parcel);
        }
        let sorted = source.bucket(bucket, true, |body| self.sort(body, bucket, parts))?;
        sorted.map_err(|Malformed| source.malformed(bucket))?;
        let (mut at, mut steps) = (bucket, 0);
        while let Some(record) = self.records.of(at) {
            at = usize::from(record.destination);
            steps += 1;
            if steps > parts.steps {
                // Records lead on from here, but none of this bucket's went so far.
                break;
            }
            if !(self.from..bucket).contains(&at) {
                let fetched = source.bucket(at, false, |body| self.fetch(body, bucket, parts))?;
                fetched.map_err(|Malformed| source.malformed(at))?;
            }
        }
        if parts.is_special(bucket) {
            let home = &mut self.home;
            source.special(bucket, &mut |stored, entry| {
                if let Some((place, key)) = stored.split_first_chunk::<PLACE_BYTES>() {
                    home.add(u64::from_be_bytes(*place), Entry { key, ..entry });
                }
            })?;
        }
        self.next = bucket + 1;
        Ok(())
    }

    /// Sorts the entries of the next bucket: those that are at home there, and those that are in a later one.
    fn sort(&mut self, body: &[u8], bucket: usize, parts: &HashedParts) -> Result<(), Malformed> {
        for entry in Bucket::parse(body, &parts.usual)?.entries() {
            let entry = entry?;
            let place = self.placer.place(entry.key);
            let home = parts.shape.home(place);
            if home == bucket {
                self.home.add(place, entry);
            } else if home > bucket {
                let spare = &mut self.spare;
                let parcel = self.parcels.entry(home).or_insert_with(|| spare.pop().unwrap_or_default());
                parcel.add(place, entry);
            }
        }
        Ok(())
    }

    /// Takes from another bucket what is at home in `bucket`.
    fn fetch(&mut self, body: &[u8], bucket: usize, parts: &HashedParts) -> Result<(), Malformed> {
        for entry in Bucket::parse(body, &parts.usual)?.entries() {
            let entry = entry?;
            let place = self.placer.place(entry.key);
            if parts.shape.home(place) == bucket {
                self.home.add(place, entry);
            }
        }
        Ok(())
    }
}
