//! Buckets: entries by hash, in a block of the device.
//!
//! Place: the writer fills a [`Bucket`] at a time; searches and walks read one in place.
//!
//! A bucket is a block that is stored as it is (`frame`), padded so that with its trailer it has [`BUCKET_BYTES`]. In front stand
//! its record of migration and a byte of the hash of each entry, so that a search compares one key or none.
//!
//! Invariants:
//! 1. The versions of a key lie one behind the other, the newest first; keys are in no order.
//! 2. What an entry takes is known before anybody knows its bucket ([`Usual::entry_bytes`]).
//! 3. Parsing never panics: what does not fit is [`Malformed`].
//!
//! Bytes (integers little endian):
//! ```text
//! 0  count u16
//! 2  destination u16   where what left the bucket went; 0 if it is no source
//! 4  mark u32          of what has left; 0
//! 8  flags u8          bit 0: it is a source; bit 1: all heads are 0; others 0
//! 9  hash u8 each      the lowest byte of the entry's place
//!    entries
//!    zeros
//! entry = head u8 | kind u8, if the head says so | key length varint, value length varint, likewise
//!         | LSN less the table's least, in as many bytes as the table has for it | key | value
//! head: bits 0-1: 0 a put, 1 a delete, 2 a kind follows; bit 2: lengths follow, else they are the table's usual ones; others 0
//! ```
//! Keys are the user's, without their places.
//! Origin: LSM-trie §2.4.2. Tests: below, `table/tests/hashed.rs`.

use crate::encoding::{Malformed, get_varint, put_varint, varint_bytes};
use crate::key::{Kind, Lsn};
use crate::table::frame::TRAILER_BYTES;

use super::record::{Mark, Record};

/// Bytes of a bucket in the file.
pub(in crate::table) const BUCKET_BYTES: usize = 4096;
/// Bytes of it without the trailer.
pub(in crate::table) const BODY_BYTES: usize = BUCKET_BYTES - TRAILER_BYTES;
const HEADER_BYTES: usize = 9;
/// Bytes of entries that it holds, with those of their hashes.
pub(in crate::table) const CAPACITY: usize = BODY_BYTES - HEADER_BYTES;
/// Fewest and most bytes for an LSN.
pub(in crate::table) const LSN_BYTES: std::ops::RangeInclusive<u8> = 1..=8;

const IS_SOURCE: u8 = 1;
const ALL_USUAL: u8 = 2;

const PUT: u8 = 0;
const DELETE: u8 = 1;
const OTHER: u8 = 2;
const KINDS: u8 = 3;
const LENGTHS: u8 = 4;

/// What most entries of a table have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::table) struct Usual {
    pub key_bytes: u32,
    pub value_bytes: u32,
    /// The least LSN.
    pub lsn: Lsn,
    /// Bytes that tell another one from it.
    pub lsn_bytes: u8,
}

impl Usual {
    /// Bytes that tell LSNs up to `most` from `least`.
    pub(in crate::table) fn lsn_bytes(least: Lsn, most: Lsn) -> u8 {
        let bits = u64::BITS - most.0.saturating_sub(least.0).leading_zeros();
        (bits.div_ceil(8) as u8).clamp(*LSN_BYTES.start(), *LSN_BYTES.end())
    }

    fn is_usual(&self, key_bytes: usize, value_bytes: usize) -> bool {
        (self.key_bytes as usize, self.value_bytes as usize) == (key_bytes, value_bytes)
    }

    /// Bytes that an entry takes in a bucket.
    pub(in crate::table) fn entry_bytes(&self, key_bytes: usize, value_bytes: usize, kind: u8) -> usize {
        let lengths = match self.is_usual(key_bytes, value_bytes) {
            true => 0,
            false => varint_bytes(key_bytes as u64) + varint_bytes(value_bytes as u64),
        };
        2 + usize::from(kind_bits(kind) == OTHER)
            + lengths
            + usize::from(self.lsn_bytes)
            + key_bytes
            + value_bytes
    }

    /// Bytes of an entry, without that of its hash, if its head is 0.
    fn stride(&self) -> usize {
        1 + usize::from(self.lsn_bytes) + self.key_bytes as usize + self.value_bytes as usize
    }
}

fn kind_bits(kind: u8) -> u8 {
    match Kind::from_u8(kind) {
        Some(Kind::Put) => PUT,
        Some(Kind::Delete) => DELETE,
        _ => OTHER,
    }
}

/// One version in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) struct Entry<'a> {
    /// The user's.
    pub key: &'a [u8],
    pub lsn: Lsn,
    pub kind: u8,
    pub value: &'a [u8],
}

/// The byte that tells most keys of a bucket apart.
#[inline]
pub(in crate::table) fn tag(place: u64) -> u8 {
    place as u8
}

/// Writes a bucket into `out`, which it replaces: entries with their places, and what has left. They must fit.
pub(in crate::table) fn encode<'a>(
    entries: impl Iterator<Item = (u64, Entry<'a>)> + Clone,
    left: Option<&Record>,
    usual: &Usual,
    out: &mut Vec<u8>,
) {
    out.clear();
    out.resize(HEADER_BYTES, 0);
    out.extend(entries.clone().map(|(place, _)| tag(place)));
    let count = (out.len() - HEADER_BYTES) as u16;
    let mut flags = ALL_USUAL;
    for (_, entry) in entries {
        let is_usual = usual.is_usual(entry.key.len(), entry.value.len());
        let kind = kind_bits(entry.kind);
        let head = kind | if is_usual { 0 } else { LENGTHS };
        if head != 0 {
            flags &= !ALL_USUAL;
        }
        out.push(head);
        if kind == OTHER {
            out.push(entry.kind);
        }
        if !is_usual {
            put_varint(out, entry.key.len() as u64);
            put_varint(out, entry.value.len() as u64);
        }
        let lsn = (entry.lsn.0 - usual.lsn.0).to_le_bytes();
        out.extend_from_slice(&lsn[..usize::from(usual.lsn_bytes)]);
        out.extend_from_slice(entry.key);
        out.extend_from_slice(entry.value);
    }
    debug_assert!(out.len() <= BODY_BYTES, "{} bytes in a bucket", out.len());
    out.resize(BODY_BYTES, 0);
    out[..2].copy_from_slice(&count.to_le_bytes());
    if let Some(record) = left {
        flags |= IS_SOURCE;
        out[2..4].copy_from_slice(&record.destination.to_le_bytes());
        out[4..8].copy_from_slice(&record.mark.bits().to_le_bytes());
    }
    out[8] = flags;
}

/// A bucket being read in place.
#[derive(Clone, Copy)]
pub(in crate::table) struct Bucket<'a> {
    tags: &'a [u8],
    entries: &'a [u8],
    usual: &'a Usual,
    flags: u8,
    destination: u16,
    mark: Mark,
}

impl<'a> Bucket<'a> {
    /// Finds the parts of a bucket. O(1).
    #[inline]
    pub(in crate::table) fn parse(body: &'a [u8], usual: &'a Usual) -> Result<Bucket<'a>, Malformed> {
        let (header, rest) = body.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed)?;
        let [a, b, c, d, e, f, g, h, flags] = *header;
        if flags & !(IS_SOURCE | ALL_USUAL) != 0 {
            return Err(Malformed);
        }
        let (tags, entries) =
            rest.split_at_checked(usize::from(u16::from_le_bytes([a, b]))).ok_or(Malformed)?;
        let (destination, mark) =
            (u16::from_le_bytes([c, d]), Mark::from_bits(u32::from_le_bytes([e, f, g, h])));
        Ok(Bucket { tags, entries, usual, flags, destination, mark })
    }

    pub(in crate::table) fn len(&self) -> usize {
        self.tags.len()
    }

    /// What has left it, if it is the `source`-th of the table.
    pub(in crate::table) fn left(&self, source: usize) -> Option<Record> {
        let record = Record { source: source as u16, destination: self.destination, mark: self.mark };
        (self.flags & IS_SOURCE != 0).then_some(record)
    }

    /// The entries, in the order in which they lie. An entry that is malformed is the last.
    pub(in crate::table) fn entries(&self) -> Entries<'a> {
        Entries { rest: self.entries, left: self.len(), usual: self.usual }
    }

    /// The newest version of `key`, which lies at `place`, that is no newer than `newest`.
    #[inline]
    pub(in crate::table) fn find(
        &self,
        place: u64,
        key: &[u8],
        newest: Lsn,
    ) -> Result<Option<Entry<'a>>, Malformed> {
        let wanted = tag(place);
        let fits = |entry: &Entry<'_>| entry.lsn <= newest && entry.key == key;
        if self.flags & ALL_USUAL != 0 {
            let stride = self.usual.stride();
            for (n, _) in self.tags.iter().enumerate().filter(|(_, tag)| **tag == wanted) {
                let mut bytes = self.entries.get(n * stride..).ok_or(Malformed)?;
                let entry = Entry::take(&mut bytes, self.usual)?;
                if fits(&entry) {
                    return Ok(Some(entry));
                }
            }
            return Ok(None);
        }
        // Nothing to look for: nothing to walk over.
        let Some(last) = self.tags.iter().rposition(|tag| *tag == wanted) else { return Ok(None) };
        for (tag, entry) in self.tags[..=last].iter().zip(self.entries()) {
            let entry = entry?;
            if *tag == wanted && fits(&entry) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Checks what `parse` and `entries` do not: tags are those of the places that `place` gives, flags say what is so, and behind
    /// the entries there is nothing. O(count).
    pub(in crate::table) fn validate(&self, place: impl Fn(&[u8]) -> u64) -> Result<(), Malformed> {
        let mut entries = self.entries();
        let mut all_usual = true;
        for wanted in self.tags {
            let head = entries.rest.first().copied();
            let entry = entries.next().ok_or(Malformed)??;
            all_usual &= head == Some(0);
            if tag(place(entry.key)) != *wanted {
                return Err(Malformed);
            }
        }
        let is_source = self.flags & IS_SOURCE != 0;
        let no_record = self.destination == 0 && self.mark == Mark::default();
        let is_sound = all_usual == (self.flags & ALL_USUAL != 0)
            && (is_source || no_record)
            && entries.rest.iter().all(|byte| *byte == 0);
        if is_sound { Ok(()) } else { Err(Malformed) }
    }
}

impl<'a> Entry<'a> {
    /// Takes an entry off the front.
    #[inline]
    fn take(bytes: &mut &'a [u8], usual: &Usual) -> Result<Entry<'a>, Malformed> {
        let all = *bytes;
        let head = *all.first().ok_or(Malformed)?;
        let mut at = 1;
        let kind = match head & KINDS {
            PUT => Kind::Put as u8,
            DELETE => Kind::Delete as u8,
            OTHER => {
                at += 1;
                *all.get(1).ok_or(Malformed)?
            }
            _ => return Err(Malformed),
        };
        let (key_bytes, value_bytes) = match head & !KINDS {
            0 => (usual.key_bytes as usize, usual.value_bytes as usize),
            LENGTHS => {
                let mut length = || usize::try_from(get_varint(all, &mut at)?).or(Err(Malformed));
                (length()?, length()?)
            }
            _ => return Err(Malformed),
        };
        let rest = all.get(at..).ok_or(Malformed)?;
        let (stored, rest) = rest.split_at_checked(usize::from(usual.lsn_bytes)).ok_or(Malformed)?;
        let mut lsn = [0; 8];
        lsn[..stored.len()].copy_from_slice(stored);
        let lsn = usual.lsn.0.checked_add(u64::from_le_bytes(lsn)).map(Lsn).ok_or(Malformed)?;
        let (key, rest) = rest.split_at_checked(key_bytes).ok_or(Malformed)?;
        let (value, rest) = rest.split_at_checked(value_bytes).ok_or(Malformed)?;
        *bytes = rest;
        Ok(Entry { key, lsn, kind, value })
    }
}

/// The entries of a bucket.
#[derive(Clone)]
pub(in crate::table) struct Entries<'a> {
    rest: &'a [u8],
    left: usize,
    usual: &'a Usual,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let entry = Entry::take(&mut self.rest, self.usual);
        if entry.is_err() {
            self.left = 0;
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Usual = Usual { key_bytes: 4, value_bytes: 2, lsn: Lsn(100), lsn_bytes: 2 };

    fn entry<'a>(key: &'a [u8], lsn: u64, kind: u8, value: &'a [u8]) -> (u64, Entry<'a>) {
        (place(key), Entry { key, lsn: Lsn(lsn), kind, value })
    }

    fn place(key: &[u8]) -> u64 {
        key.iter().map(|byte| u64::from(*byte)).sum()
    }

    fn encoded(entries: &[(u64, Entry<'_>)], left: Option<&Record>) -> Vec<u8> {
        let mut out = Vec::new();
        encode(entries.iter().copied(), left, &USUAL, &mut out);
        assert_eq!(out.len(), BODY_BYTES);
        out
    }

    #[test]
    fn entries_come_back_and_take_what_was_reckoned() {
        let long = [9; 300];
        let usual =
            [entry(b"abcd", 100, 1, b"xy"), entry(b"abcd", 100, 1, b"zz"), entry(b"dcba", 65_635, 1, b"..")];
        let mixed = [
            entry(b"abcd", 200, 1, b"xy"),
            entry(b"abcd", 150, 0, b""),
            entry(b"", 101, 1, &long),
            entry(&long, 102, 0x85, b"??"),
            entry(b"dcba", 103, 1, b".."),
        ];
        for entries in [&usual[..], &mixed[..], &[]] {
            let body = encoded(entries, None);
            let bucket = Bucket::parse(&body, &USUAL).expect("sound");
            let found: Vec<Entry<'_>> = bucket.entries().collect::<Result<_, _>>().expect("sound");
            assert_eq!(found, entries.iter().map(|(_, entry)| *entry).collect::<Vec<_>>());
            bucket.validate(place).expect("sound");
            assert!(bucket.validate(|key| place(key) + 1).is_err() || entries.is_empty());
            let bytes = |(_, entry): &(u64, Entry<'_>)| {
                USUAL.entry_bytes(entry.key.len(), entry.value.len(), entry.kind)
            };
            let used = entries.iter().map(bytes).sum::<usize>();
            assert!(body[HEADER_BYTES + used..].iter().all(|byte| *byte == 0));
            assert_eq!(bucket.left(7), None);
        }
    }

    #[test]
    fn a_search_finds_the_newest_version_that_it_may_see() {
        let usual =
            [entry(b"dcba", 900, 1, b"no"), entry(b"abcd", 300, 1, b"c."), entry(b"abcd", 200, 1, b"b.")];
        let mixed = [usual[0], usual[1], usual[2], entry(b"abcd", 150, 0, b""), entry(b"e", 120, 1, b"long")];
        for (entries, least) in [(&usual[..], 200), (&mixed[..], 150)] {
            let body = encoded(entries, None);
            let bucket = Bucket::parse(&body, &USUAL).expect("sound");
            for newest in 100..400 {
                let found = bucket.find(place(b"abcd"), b"abcd", Lsn(newest)).expect("sound");
                let wanted = match newest {
                    300.. => Some(300),
                    200.. => Some(200),
                    _ => Some(150).filter(|lsn| *lsn >= least && newest >= 150),
                };
                assert_eq!(found.map(|entry| entry.lsn.0), wanted, "no newer than {newest}");
            }
            let absent = bucket.find(place(b"bbcc"), b"bbcc", Lsn(900)).expect("sound");
            assert_eq!(absent, None, "the tag is the same, the key is not");
            assert_eq!(bucket.find(1, b"\x01", Lsn(900)).expect("sound"), None);
        }
    }

    #[test]
    fn a_record_comes_back() {
        let record = Record { source: 3, destination: 500, mark: Mark::new(77, 5) };
        let body = encoded(&[entry(b"abcd", 100, 1, b"xy")], Some(&record));
        assert_eq!(Bucket::parse(&body, &USUAL).expect("sound").left(3), Some(record));
    }

    #[test]
    fn lsns_take_as_few_bytes_as_tell_them_apart() {
        for (most, bytes) in [(100, 1), (355, 1), (356, 2), (100 + 0xff_ffff, 3), (u64::MAX, 8)] {
            assert_eq!(Usual::lsn_bytes(Lsn(100), Lsn(most)), bytes, "{most}");
        }
    }

    #[test]
    fn no_damage_makes_it_panic() {
        let record = Record { source: 3, destination: 500, mark: Mark::new(77, 5) };
        let body = encoded(&[entry(b"abcd", 200, 1, b"xy"), entry(b"e", 120, 0x85, b"long")], Some(&record));
        for at in 0..64 {
            for bit in 0..8 {
                let mut bad = body.clone();
                bad[at] ^= 1 << bit;
                let Ok(bucket) = Bucket::parse(&bad, &USUAL) else { continue };
                let _ = bucket.validate(place);
                let _ = bucket.find(place(b"abcd"), b"abcd", Lsn(500));
                let _ = bucket.entries().count();
            }
        }
        for length in 0..60 {
            if let Ok(bucket) = Bucket::parse(&body[..length], &USUAL) {
                assert!(bucket.validate(place).is_err() || length >= 31, "{length}");
            }
        }
    }
}
