//! What a hashed table has besides a sorted one: as properties say it, and as an open table holds it.
//!
//! Place: `properties` stores a [`Hashed`]; `resident` holds the [`HashedParts`] that are read by it.
//!
//! Invariant: whatever a file says, a bucket number here is that of a bucket that lies within the file, and is checked before it
//! is believed.
//!
//! Bytes: docs/formats/hashed-table.md. Tests: `table/tests/hashed.rs`.

use crate::encoding::{FileDecoder, Malformed};
use crate::error::Result;
use crate::key::{Lsn, PLACE_BYTES};
use crate::table::TableMeta;
use crate::table::index::Place;

use super::bucket::{BUCKET_BYTES, LSN_BYTES, Usual};
use super::record::{Records, spin};
use super::shape::{BUCKETS_MAX, Shape};

/// What the properties of a hashed table say of its buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::table) struct Hashed {
    /// Buckets; they are in front.
    pub buckets: u64,
    /// Entries in them; the others are in the sorted part.
    pub entries: u64,
    /// Steps that lead to an entry, at most.
    pub steps: u64,
    /// What most entries have in common; of which the least LSN is that of the table.
    pub usual: Usual,
    /// Records of migration, those first that had most too much; none if there are none.
    pub records: Option<Place>,
    /// A bit for each bucket: something that is at home there lies in the sorted part. None if nothing lies there.
    pub special: Option<Place>,
}

impl Hashed {
    /// As numbers, for a field.
    pub fn numbers(&self) -> [u64; 10] {
        let Usual { key_bytes, value_bytes, lsn_bytes, .. } = self.usual;
        let [records, special] = [self.records, self.special].map(Option::unwrap_or_default);
        [
            self.buckets,
            self.entries,
            self.steps,
            key_bytes.into(),
            value_bytes.into(),
            lsn_bytes.into(),
            records.offset,
            records.bytes,
            special.offset,
            special.bytes,
        ]
    }

    /// Reads the numbers back; the least LSN is not among them.
    pub fn decode(field: &mut FileDecoder<'_>) -> Result<Hashed> {
        let [buckets, entries, steps] = [field.varint()?, field.varint()?, field.varint()?];
        let usual = [field.varint()?, field.varint()?, field.varint()?];
        let mut place = || {
            let place = Place { offset: field.varint()?, bytes: field.varint()? };
            Ok((place.bytes > 0).then_some(place))
        };
        let (records, special) = (place()?, place()?);
        let [Ok(key_bytes), Ok(value_bytes)] = [usual[0], usual[1]].map(u32::try_from) else {
            return Err(field.corrupt("a hashed table's usual entry is too long"));
        };
        let lsn_bytes = u8::try_from(usual[2]).ok().filter(|bytes| LSN_BYTES.contains(bytes));
        let (Some(lsn_bytes), true) = (lsn_bytes, (1..=BUCKETS_MAX as u64).contains(&buckets)) else {
            return Err(field.corrupt("a hashed table cannot have such buckets"));
        };
        let usual = Usual { key_bytes, value_bytes, lsn: Lsn::ZERO, lsn_bytes };
        Ok(Hashed { buckets, entries, steps, usual, records, special })
    }

    /// Where a bucket lies.
    #[inline]
    pub fn place(bucket: usize) -> Place {
        Place { offset: (bucket * BUCKET_BYTES) as u64, bytes: BUCKET_BYTES as u64 }
    }

    /// Offset behind the last bucket.
    pub fn end(&self) -> u64 {
        self.buckets * BUCKET_BYTES as u64
    }
}

/// What an open hashed table holds.
#[derive(Debug)]
pub(in crate::table) struct HashedParts {
    pub shape: Shape,
    pub usual: Usual,
    pub steps: usize,
    pub records: Records,
    special: Box<[u8]>,
}

/// Splits a stored key.
#[inline]
pub(in crate::table) fn split(stored: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    let (place, key) = stored.split_first_chunk::<PLACE_BYTES>().ok_or(Malformed)?;
    Ok((u64::from_be_bytes(*place), key))
}

impl HashedParts {
    /// Of the table that `meta` describes, by its stored records and bits. `most`: records that are held.
    pub fn new(
        hashed: &Hashed,
        meta: &TableMeta,
        records: &[u8],
        special: &[u8],
        most: usize,
    ) -> Result<HashedParts, Malformed> {
        let buckets = hashed.buckets as usize;
        let (first, last) = (split(&meta.smallest)?.0, split(&meta.largest)?.0);
        let bits = if hashed.special.is_some() { buckets.div_ceil(8) } else { 0 };
        if first > last || special.len() != bits {
            return Err(Malformed);
        }
        Ok(HashedParts {
            shape: Shape::new(first, last, buckets),
            usual: Usual { lsn: meta.min_lsn, ..hashed.usual },
            steps: hashed.steps as usize,
            records: Records::decode(records, buckets, most)?,
            special: special.into(),
        })
    }

    /// True if a bucket lies there.
    #[inline]
    pub fn has(&self, place: Place) -> bool {
        place.offset < (self.shape.buckets() * BUCKET_BYTES) as u64
    }

    /// True if something that is at home in the bucket may lie in the sorted part.
    #[inline]
    pub fn is_special(&self, bucket: usize) -> bool {
        self.special.get(bucket / 8).is_some_and(|byte| byte >> (bucket % 8) & 1 != 0)
    }

    /// Where records that are held lead from the home of a place, and in how many steps; `None` if no bucket has the place.
    #[inline]
    pub fn end_of(&self, place: u64) -> Option<(usize, usize)> {
        self.records.end_of(self.shape.home(place), spin(place), self.steps)
    }

    pub fn heap_bytes(&self) -> usize {
        self.records.heap_bytes() + self.special.len()
    }
}
