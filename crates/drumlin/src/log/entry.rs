//! The body of a write record: its entries, to be written and as read back.
//!
//! Place: `db` makes [`RecordParts`] of entries with borrowed keys and values; `writer` encodes them straight
//! into the mapped segment; `recovered` hands entries out.
//!
//! Layout of one entry, repeated to the end of the body: keyspace varint, kind u8, flags u8
//! (bit 0: an expected LSN follows), key length varint, value length varint, [expected u64],
//! key, value. See `docs/formats/log.md`.
//!
//! Invariants:
//! 1. `RecordParts::units()` is exactly what the encoding takes.
//! 2. Decoding never panics; what it cannot read is an error that says where.

use crate::encoding::{Decoder, Malformed, varint_bytes, write_varint};
use crate::error::{Error, Result};
use crate::key::{BATCH_BYTES_MAX, KEY_BYTES_MAX, Kind, Lsn, VALUE_BYTES_MAX};

use super::format::RECORD_HEAD;

const FLAG_EXPECTED: u8 = 1;

/// One entry, to be logged or read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The keyspace's number.
    pub keyspace: u32,
    /// What the version says.
    pub kind: Kind,
    /// For a read-modify-write: the LSN it read.
    pub expected: Option<Lsn>,
    /// The user key; for a range delete its start.
    pub key: &'a [u8],
    /// The value; for a range delete its end.
    pub value: &'a [u8],
}

/// One atomic write to be logged: entries, and the room they take.
#[derive(Clone, Copy, Debug)]
pub struct RecordParts<'a> {
    entries: &'a [Entry<'a>],
    body_bytes: u32,
}

/// Where encoded bytes go.
pub(super) trait Sink {
    /// Takes the next bytes.
    fn put(&mut self, bytes: &[u8]);
}

impl Entry<'_> {
    /// Bytes of the encoded entry.
    #[inline]
    fn encoded_bytes(&self) -> usize {
        varint_bytes(u64::from(self.keyspace))
            + 2
            + varint_bytes(self.key.len() as u64)
            + varint_bytes(self.value.len() as u64)
            + if self.expected.is_some() { 8 } else { 0 }
            + self.key.len()
            + self.value.len()
    }

    /// Gives the encoded entry to `sink`.
    #[inline(always)]
    pub(super) fn encode(&self, sink: &mut impl Sink) {
        // The longest head is 5 + 2 + 10 + 10 + 8 bytes.
        let mut head = [0u8; 40];
        let mut at = write_varint(&mut head, 0, u64::from(self.keyspace));
        head[at] = self.kind as u8;
        head[at + 1] = if self.expected.is_some() { FLAG_EXPECTED } else { 0 };
        at = write_varint(&mut head, at + 2, self.key.len() as u64);
        at = write_varint(&mut head, at, self.value.len() as u64);
        if let Some(expected) = self.expected {
            head[at..at + 8].copy_from_slice(&expected.0.to_le_bytes());
            at += 8;
        }
        sink.put(&head[..at]);
        sink.put(self.key);
        sink.put(self.value);
    }
}

impl<'a> RecordParts<'a> {
    /// A record of these entries. O(entries).
    ///
    /// Errors: [`Error::InvalidArgument`] if a key, a value or the whole is larger than allowed.
    #[inline]
    pub fn new(entries: &'a [Entry<'a>]) -> Result<RecordParts<'a>> {
        let mut bytes = 0usize;
        for entry in entries {
            // The value of a range delete is a key.
            if entry.key.len() > KEY_BYTES_MAX || entry.value.len() > VALUE_BYTES_MAX {
                return Err(too_large(entry));
            }
            bytes += entry.encoded_bytes();
        }
        if bytes > BATCH_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the batch takes {bytes} bytes of log, but at most {BATCH_BYTES_MAX} are allowed: split it"
            )));
        }
        Ok(RecordParts { entries, body_bytes: bytes as u32 })
    }

    /// Log units the record takes, to be reserved for it. O(1).
    #[inline]
    pub fn units(&self) -> u64 {
        (RECORD_HEAD as u64 + u64::from(self.body_bytes)).div_ceil(8)
    }

    /// The entries.
    pub fn entries(&self) -> &'a [Entry<'a>] {
        self.entries
    }

    /// Bytes of the body, padding excluded.
    #[inline]
    pub(super) fn body_bytes(&self) -> u32 {
        self.body_bytes
    }
}

#[cold]
fn too_large(entry: &Entry<'_>) -> Error {
    Error::invalid(format!(
        "a key of {} bytes with a value of {} bytes: at most {KEY_BYTES_MAX} and {VALUE_BYTES_MAX} are allowed",
        entry.key.len(),
        entry.value.len()
    ))
}

/// Why a body with a good checksum cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntryFault {
    /// An entry ends beyond the body, or is otherwise no entry.
    Bad(&'static str),
    /// An entry of a kind or with a flag that only newer versions know.
    Newer,
}

impl From<Malformed> for EntryFault {
    fn from(_: Malformed) -> EntryFault {
        EntryFault::Bad("an entry ends beyond its record")
    }
}

/// Decodes the next entry of a body; `None` for one that may be skipped.
#[inline]
pub(super) fn decode_entry<'a>(body: &mut Decoder<'a>) -> Result<Option<Entry<'a>>, EntryFault> {
    let keyspace =
        u32::try_from(body.varint()?).map_err(|_| EntryFault::Bad("a keyspace number beyond 32 bits"))?;
    let [kind_byte, flags] = body.array()?;
    let (key_bytes, value_bytes) = (body.length()?, body.length()?);
    let expected = if flags & FLAG_EXPECTED != 0 { Some(Lsn(body.u64()?)) } else { None };
    let (key, value) = (body.take(key_bytes)?, body.take(value_bytes)?);
    match Kind::from_u8(kind_byte) {
        Some(Kind::Apart) => Err(EntryFault::Bad("a reference to a value file, which only tables have")),
        Some(_) if flags & !FLAG_EXPECTED != 0 => Err(EntryFault::Newer),
        Some(kind) => Ok(Some(Entry { keyspace, kind, expected, key, value })),
        None if kind_byte >= 0x80 => Ok(None),
        None => Err(EntryFault::Newer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Sink for Vec<u8> {
        fn put(&mut self, bytes: &[u8]) {
            self.extend_from_slice(bytes);
        }
    }

    fn kind() -> impl Strategy<Value = Kind> {
        prop_oneof![Just(Kind::Delete), Just(Kind::Put), Just(Kind::RangeDelete)]
    }

    proptest! {
        #[test]
        fn entries_round_trip_in_exactly_the_bytes_foretold(
            entries in prop::collection::vec(
                (any::<u32>(), kind(), prop::option::of(any::<u64>()), prop::collection::vec(any::<u8>(), 0..300), prop::collection::vec(any::<u8>(), 0..300)),
                0..8,
            )
        ) {
            let parts: Vec<_> = entries
                .iter()
                .map(|(keyspace, kind, expected, key, value)| Entry {
                    keyspace: *keyspace, kind: *kind, expected: expected.map(Lsn), key, value,
                })
                .collect();
            let record = RecordParts::new(&parts).expect("small");
            let mut body = Vec::new();
            for entry in record.entries() {
                entry.encode(&mut body);
            }
            prop_assert_eq!(body.len(), record.body_bytes() as usize);
            let mut body = Decoder::new(&body);
            for part in &parts {
                let seen = decode_entry(&mut body).expect("whole").expect("known");
                prop_assert_eq!(
                    (seen.keyspace, seen.kind, seen.expected, seen.key, seen.value),
                    (part.keyspace, part.kind, part.expected, part.key, part.value)
                );
            }
            prop_assert!(body.is_empty());
        }

        #[test]
        fn any_bytes_decode_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut body = Decoder::new(&bytes);
            while !body.is_empty() && decode_entry(&mut body).is_ok() {}
            prop_assert!(bytes.ends_with(body.rest()));
        }
    }

    #[test]
    fn unknown_kinds_must_be_understood_below_0x80_and_may_be_skipped_above() {
        let decode = |body: &[u8]| decode_entry(&mut Decoder::new(body)).map(|entry| entry.is_some());
        assert_eq!(decode(&[0, 3, 0, 0, 0]), Err(EntryFault::Newer));
        let short = EntryFault::Bad("an entry ends beyond its record");
        assert_eq!(decode(&[0, 0x83, 9, 1, 0, b'k']), Err(short));
        assert_eq!(decode(&[0, 1, 2, 0, 0]), Err(EntryFault::Newer));
        let mut body = Decoder::new(&[0, 0x83, 2, 1, 0, b'k', 7]);
        assert_eq!(decode_entry(&mut body), Ok(None));
        assert_eq!(body.rest(), [7], "skipped whole");
    }

    #[test]
    fn oversized_keys_are_refused() {
        let key = vec![0; KEY_BYTES_MAX + 1];
        let entry = Entry { keyspace: 0, kind: Kind::Put, expected: None, key: &key, value: b"" };
        assert!(matches!(RecordParts::new(&[entry]), Err(Error::InvalidArgument(_))));
    }
}
