//! What the manifest knows of a table: enough to choose tables without opening them.
//!
//! Place: returned by [`super::TableWriter::finish`], stored by `version`, asked by `layout`,
//! `compaction` and the reads.
//!
//! Invariant: the bounds cover every entry and every range tombstone of the table.
//!
//! Bytes: tagged fields (`encoding`), see docs/formats/table.md. Tests: below.

use std::cmp::Ordering;

use crate::encoding::{FileDecoder, IGNORABLE, put_field, put_numbers};
use crate::error::Result;
use crate::key::{Comparator, Lsn};
use crate::table::{Sample, TableId, ValueUse};

/// Describes one table. Make one by `TableWriter::finish`, or from `Default` in tests and simulators.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TableMeta {
    /// Its name in this store.
    pub id: TableId,
    /// Length of the file.
    pub file_bytes: u64,
    /// Versions, deletes included, range tombstones not.
    pub entries: u64,
    /// Versions that are deletes.
    pub deletes: u64,
    /// Range tombstones, as fragments times LSNs.
    pub range_tombstones: u64,
    /// The smallest user key: of an entry, or the start of a range tombstone.
    pub smallest: Vec<u8>,
    /// The largest user key: of an entry, or the end of a range tombstone.
    pub largest: Vec<u8>,
    /// True if `largest` itself is outside: it is the end of a range tombstone.
    pub largest_exclusive: bool,
    /// The smallest LSN of any entry or range tombstone.
    pub min_lsn: Lsn,
    /// The largest LSN of any entry or range tombstone.
    pub max_lsn: Lsn,
    /// Bytes of all keys and values, and of the bounds of range tombstones, before compression.
    pub raw_bytes: u64,
    /// XXH3-128 of the whole file.
    pub content_hash: u128,
    /// Seeds the checksums: the id the table was written under (another one, if it was received).
    pub seed: u64,
    /// The store that wrote it; 0 is this one.
    pub origin: u64,
    /// If given, every version of the table counts as this one. `min_lsn` and `max_lsn` say the same.
    pub global_version: Option<Lsn>,
    /// When it was written, in milliseconds since the Unix epoch; 0 if nobody said.
    pub created_at_ms: u64,
    /// A sample of its keys, if these stand behind their places.
    pub sample: Sample,
    /// Versions that have a newer one of their key before them in the table; 0 if nobody said.
    pub hidden: u64,
    /// The value files that its entries refer to, by id.
    pub values: Vec<ValueUse>,
}

const ID: u8 = 1;
const FILE_BYTES: u8 = 2;
const ENTRIES: u8 = 3;
const DELETES: u8 = 4;
const RANGE_TOMBSTONES: u8 = 5;
const SMALLEST: u8 = 6;
const LARGEST: u8 = 7;
const LARGEST_EXCLUSIVE: u8 = 8;
const LSNS: u8 = 9;
const RAW_BYTES: u8 = 10;
const CONTENT_HASH: u8 = 11;
const SEED: u8 = 12;
const ORIGIN: u8 = 13;
const GLOBAL_VERSION: u8 = 14;
const CREATED_AT_MS: u8 = IGNORABLE | 15;
const SAMPLE: u8 = IGNORABLE | 16;
const HIDDEN: u8 = IGNORABLE | 17;
/// Whoever does not know it would remove what the table needs.
const VALUES: u8 = 18;
/// Fields that every record has, as a bit set of tags.
const ALWAYS: u64 = 1 << ID
    | 1 << FILE_BYTES
    | 1 << ENTRIES
    | 1 << DELETES
    | 1 << SMALLEST
    | 1 << LARGEST
    | 1 << LSNS
    | 1 << RAW_BYTES
    | 1 << CONTENT_HASH
    | 1 << SEED;

impl TableMeta {
    /// Appends the encoded form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_numbers(out, ID, &[self.id.0]);
        put_numbers(out, FILE_BYTES, &[self.file_bytes]);
        put_numbers(out, ENTRIES, &[self.entries]);
        put_numbers(out, DELETES, &[self.deletes]);
        put_field(out, SMALLEST, &self.smallest);
        put_field(out, LARGEST, &self.largest);
        put_numbers(out, LSNS, &[self.min_lsn.0, self.max_lsn.0]);
        put_numbers(out, RAW_BYTES, &[self.raw_bytes]);
        put_field(out, CONTENT_HASH, &self.content_hash.to_le_bytes());
        put_numbers(out, SEED, &[self.seed]);
        if self.range_tombstones != 0 {
            put_numbers(out, RANGE_TOMBSTONES, &[self.range_tombstones]);
        }
        if self.largest_exclusive {
            put_numbers(out, LARGEST_EXCLUSIVE, &[1]);
        }
        if self.origin != 0 {
            put_numbers(out, ORIGIN, &[self.origin]);
        }
        if let Some(version) = self.global_version {
            put_numbers(out, GLOBAL_VERSION, &[version.0]);
        }
        if self.created_at_ms != 0 {
            put_numbers(out, CREATED_AT_MS, &[self.created_at_ms]);
        }
        if !self.sample.is_empty() {
            put_numbers(out, SAMPLE, &self.sample.numbers());
        }
        if self.hidden != 0 {
            put_numbers(out, HIDDEN, &[self.hidden]);
        }
        if !self.values.is_empty() {
            let numbers: Vec<u64> = self.values.iter().flat_map(ValueUse::numbers).collect();
            put_numbers(out, VALUES, &numbers);
        }
    }

    /// Reads what `encode` wrote, to the end of `fields`.
    /// [`crate::Error::Unsupported`] for a required field of a later version.
    pub fn decode(fields: &mut FileDecoder<'_>) -> Result<TableMeta> {
        let mut meta = TableMeta::default();
        let mut seen = 0u64;
        while let Some((tag, mut field)) = fields.field()? {
            match tag {
                ID => meta.id = TableId(field.varint()?),
                FILE_BYTES => meta.file_bytes = field.varint()?,
                ENTRIES => meta.entries = field.varint()?,
                DELETES => meta.deletes = field.varint()?,
                RANGE_TOMBSTONES => meta.range_tombstones = field.varint()?,
                SMALLEST => meta.smallest = field.take_rest().to_vec(),
                LARGEST => meta.largest = field.take_rest().to_vec(),
                LARGEST_EXCLUSIVE => meta.largest_exclusive = field.flag()?,
                LSNS => (meta.min_lsn, meta.max_lsn) = (Lsn(field.varint()?), Lsn(field.varint()?)),
                RAW_BYTES => meta.raw_bytes = field.varint()?,
                CONTENT_HASH => meta.content_hash = u128::from_le_bytes(field.array()?),
                SEED => meta.seed = field.varint()?,
                ORIGIN => meta.origin = field.varint()?,
                GLOBAL_VERSION => meta.global_version = Some(Lsn(field.varint()?)),
                CREATED_AT_MS => meta.created_at_ms = field.varint()?,
                HIDDEN => meta.hidden = field.varint()?,
                VALUES => {
                    while !field.is_empty() {
                        let mut numbers = [0; 5];
                        for number in &mut numbers {
                            *number = field.varint()?;
                        }
                        meta.values.push(ValueUse::from_numbers(numbers));
                    }
                }
                SAMPLE => {
                    let mut numbers = Vec::new();
                    while !field.is_empty() {
                        numbers.push(field.varint()?);
                    }
                    let sample = Sample::from_numbers(&numbers);
                    meta.sample = sample.ok_or_else(|| field.corrupt("a table's sample is malformed"))?;
                }
                tag => {
                    field.unknown("field", tag)?;
                    continue;
                }
            }
            field.end()?;
            seen |= 1 << (tag & 63);
        }
        if seen & ALWAYS != ALWAYS {
            return Err(fields.corrupt("a table's record lacks fields"));
        }
        Ok(meta)
    }

    /// Bytes of its file, and of the values apart that its entries refer to.
    pub fn held_bytes(&self) -> u64 {
        self.values.iter().fold(self.file_bytes, |all, used| all.saturating_add(used.bytes))
    }

    /// True if the table may hold keys from `start` to `end`; `None` is unbounded,
    /// `end_inclusive` says whether `end` itself is asked for.
    pub fn overlaps(
        &self,
        comparator: &dyn Comparator,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        end_inclusive: bool,
    ) -> bool {
        let begins_in_time = end.is_none_or(|end| match comparator.compare(&self.smallest, end) {
            Ordering::Less => true,
            Ordering::Equal => end_inclusive,
            Ordering::Greater => false,
        });
        begins_in_time && start.is_none_or(|start| !self.ends_before(comparator, start))
    }

    /// True if the two tables may hold a key in common.
    #[cfg(test)]
    pub fn overlaps_table(&self, comparator: &dyn Comparator, other: &TableMeta) -> bool {
        self.overlaps(comparator, Some(&other.smallest), Some(&other.largest), !other.largest_exclusive)
    }

    /// True if `key` is within the bounds.
    pub fn covers(&self, comparator: &dyn Comparator, key: &[u8]) -> bool {
        comparator.compare(&self.smallest, key).is_le() && !self.ends_before(comparator, key)
    }

    /// True if every key of the table is before `key`.
    pub fn ends_before(&self, comparator: &dyn Comparator, key: &[u8]) -> bool {
        match comparator.compare(&self.largest, key) {
            Ordering::Less => true,
            Ordering::Equal => self.largest_exclusive,
            Ordering::Greater => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::error::Error;
    use crate::key::Bytewise;

    fn full() -> TableMeta {
        TableMeta {
            id: TableId(300),
            file_bytes: 1 << 33,
            entries: 12345,
            deletes: 17,
            range_tombstones: 3,
            smallest: b"b".to_vec(),
            largest: b"f".to_vec(),
            largest_exclusive: true,
            min_lsn: Lsn(7),
            max_lsn: Lsn(1 << 50),
            raw_bytes: 1 << 34,
            content_hash: 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef,
            seed: 299,
            origin: u64::MAX,
            global_version: Some(Lsn(8)),
            created_at_ms: 1_700_000_000_000,
            sample: Sample::from_numbers(&[5, 1, 2, 3]).expect("a sample"),
            values: vec![
                ValueUse { file: TableId(7), file_bytes: 1 << 20, hash: u64::MAX, records: 3, bytes: 4096 },
                ValueUse { file: TableId(9), ..ValueUse::default() },
            ],
            hidden: 40,
        }
    }

    fn encoded(meta: &TableMeta) -> Vec<u8> {
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<TableMeta> {
        TableMeta::decode(&mut FileDecoder::new(bytes, Path::new("MANIFEST"), 100))
    }

    #[test]
    fn a_meta_comes_back_whole() {
        for meta in [full(), TableMeta::default()] {
            assert_eq!(decode(&encoded(&meta)).expect("right"), meta);
        }
    }

    #[test]
    fn unknown_fields_are_skipped_if_ignorable_and_refused_if_required() {
        let mut bytes = encoded(&full());
        put_field(&mut bytes, IGNORABLE | 77, b"news");
        assert_eq!(decode(&bytes).expect("skips"), full());
        put_field(&mut bytes, 77, b"must");
        assert!(matches!(decode(&bytes), Err(Error::Unsupported { .. })));
    }

    #[test]
    fn cut_and_damaged_records_are_errors_or_differ_but_never_panic() {
        let good = encoded(&full());
        for length in 0..good.len() {
            if let Ok(meta) = decode(&good[..length]) {
                assert_ne!(meta, full(), "the last fields are optional, but not without a trace");
            }
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(decode(&bad).map_or(true, |meta| meta != full()), "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn bounds_answer_like_the_ranges_they_stand_for() {
        let keys = ["a", "b", "c", "f", "ff", "g"];
        for exclusive in [false, true] {
            let meta = TableMeta { largest_exclusive: exclusive, ..full() };
            let inside = |key: &str| key >= "b" && (key < "f" || (key == "f" && !exclusive));
            for key in keys {
                assert_eq!(meta.covers(&Bytewise, key.as_bytes()), inside(key), "{key}");
                let point = TableMeta { smallest: key.into(), largest: key.into(), ..TableMeta::default() };
                assert_eq!(meta.overlaps_table(&Bytewise, &point), inside(key), "{key}");
                assert_eq!(point.overlaps_table(&Bytewise, &meta), inside(key), "{key}");
            }
            let asks = |start: Option<&str>, end: Option<&str>, inclusive| {
                meta.overlaps(&Bytewise, start.map(str::as_bytes), end.map(str::as_bytes), inclusive)
            };
            assert!(asks(None, None, false));
            assert!(!asks(None, Some("b"), false));
            assert!(asks(None, Some("b"), true));
            assert_eq!(asks(Some("f"), None, false), !exclusive);
            assert!(!asks(Some("g"), None, false));
            assert!(!asks(None, Some("a"), true));
        }
    }
}
