//! The log's bytes: file header, floor slots, record word, marks.
//!
//! Place: used by every file of `log`; knows nothing of files or threads.
//! Layout: `docs/formats/log.md` describes what is encoded here, byte by byte.
//!
//! Invariants:
//! 1. Decoding never panics, whatever the bytes.
//! 2. A record's check bits and checksum depend on the store's secret, the session's salt and the
//!    record's own LSN: the same bytes anywhere else (in a value, in a recycled segment, after an
//!    earlier cut) are no record.
//!
//! Tests: here and in `tests/`.

use twox_hash::XxHash3_64;

use crate::encoding::{Decoder, Malformed, u64_at};
use crate::env::PAGE_BYTES;
use crate::key::Lsn;

/// Bytes of a segment file before its data.
pub(crate) const HEADER_PAGE: usize = PAGE_BYTES;
/// Bytes of the encoded file header.
pub(crate) const HEADER_BYTES: usize = 128;
/// Newest file version that this build writes and reads.
pub(crate) const VERSION: u32 = 1;
/// Where in the header page the two floor slots lie, each in a sector of its own.
pub(crate) const FLOOR_SLOTS: [usize; 2] = [512, 1024];
/// Where in the header page a session says that a sync of it failed.
pub(crate) const DOUBT_SLOT: usize = 1536;
/// Bytes of one floor slot.
pub(crate) const FLOOR_BYTES: usize = 16;
/// Bytes of a record before its body.
pub(crate) const RECORD_HEAD: usize = 16;
/// Bytes of a mark's body.
pub(crate) const MARK_BYTES: usize = 32;
/// Units of a whole mark record.
pub(crate) const MARK_UNITS: u64 = ((RECORD_HEAD + MARK_BYTES) / 8) as u64;

const MAGIC: [u8; 8] = *b"DRMLNLOG";
const FLAG_PRIOR_CLEAN: u32 = 1;
/// An odd constant with well-spread bits (2^64 over the golden ratio).
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// A store's 16-byte identity.
pub type Uuid = [u8; 16];

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// Entries of one atomic write.
    Write = 1,
    /// Nothing: a reservation given up.
    Pad = 2,
    /// A durable mark.
    Mark = 3,
    /// A durable mark written by a clean close.
    Close = 4,
}

impl RecordKind {
    /// Decodes a stored kind.
    pub(crate) fn from_u8(byte: u8) -> Option<RecordKind> {
        match byte {
            1 => Some(RecordKind::Write),
            2 => Some(RecordKind::Pad),
            3 => Some(RecordKind::Mark),
            4 => Some(RecordKind::Close),
            _ => None,
        }
    }

    /// Its name, for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            RecordKind::Write => "write",
            RecordKind::Pad => "pad",
            RecordKind::Mark => "mark",
            RecordKind::Close => "close",
        }
    }
}

/// The keys of one session's checksums, from the store's secret and the session's salt.
#[derive(Clone, Copy)]
pub(crate) struct Keys {
    lsn: u64,
    word: u64,
    body: u64,
}

/// Folds a 64 by 64 bit product.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Keys {
    /// The keys of a session.
    pub(crate) fn new(secret: u64, salt: u64) -> Keys {
        let salt = salt.to_le_bytes();
        let lsn = XxHash3_64::oneshot_with_seed(secret, &salt);
        let word = XxHash3_64::oneshot_with_seed(lsn, &salt);
        let body = XxHash3_64::oneshot_with_seed(word, &salt);
        // The odd constant keeps one factor from ever being a small number.
        Keys { lsn, word: word | (1 << 63), body }
    }

    /// Mixes a record's place and its word (check bits zero).
    #[inline(always)]
    fn mix(&self, lsn: u64, word: u64) -> u64 {
        // One product leaves neighbouring LSNs related; the second breaks that.
        fold(fold(lsn ^ self.lsn, word ^ self.word) ^ self.body, MIX)
    }

    /// The checksum of a record's body, padding included.
    #[inline(always)]
    pub(crate) fn checksum(seed: u64, padded_body: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(seed, padded_body)
    }

    /// Adds one record to the digest of a mark's range.
    #[inline]
    pub(crate) fn digest(&self, digest: u64, raw_word: u64, checksum: u64) -> u64 {
        fold(digest ^ raw_word ^ self.lsn, checksum ^ self.word).wrapping_add(self.body)
    }

    /// The check of a floor slot.
    fn floor_check(&self, segment: u64, slot: usize, floor: u64) -> u64 {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&segment.to_le_bytes());
        bytes[8..16].copy_from_slice(&(slot as u64).to_le_bytes());
        bytes[16..].copy_from_slice(&floor.to_le_bytes());
        XxHash3_64::oneshot_with_seed(self.body, &bytes)
    }

    /// Encodes a floor slot of segment `segment`.
    pub(crate) fn encode_floor(&self, segment: u64, slot: usize, floor: Lsn) -> [u8; FLOOR_BYTES] {
        let mut bytes = [0; FLOOR_BYTES];
        bytes[..8].copy_from_slice(&floor.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.floor_check(segment, slot, floor.0).to_le_bytes());
        bytes
    }

    /// What the doubt slot of segment `segment` holds once a sync has failed.
    pub(crate) fn encode_doubt(&self, segment: u64) -> [u8; FLOOR_BYTES] {
        self.encode_floor(segment, FLOOR_SLOTS.len(), Lsn::MAX)
    }

    /// True if the header page says that a sync failed.
    pub(crate) fn decode_doubt(&self, segment: u64, page: &[u8]) -> bool {
        page.get(DOUBT_SLOT..).is_some_and(|slot| slot.starts_with(&self.encode_doubt(segment)))
    }

    /// Decodes the floor slots of a header page; the highest good one.
    pub(crate) fn decode_floor(&self, segment: u64, page: &[u8]) -> Option<Lsn> {
        let slot = |(number, &offset): (usize, &usize)| {
            let floor = u64_at(page, offset)?;
            (u64_at(page, offset + 8)? == self.floor_check(segment, number, floor)).then_some(Lsn(floor))
        };
        FLOOR_SLOTS.iter().enumerate().filter_map(slot).max()
    }
}

/// A record's first 8 bytes, decoded: body length u32, kind u8, flags u8, check u16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word {
    /// Bytes of the body, padding excluded.
    pub(crate) body_bytes: u32,
    /// The record's kind, perhaps unknown.
    pub(crate) kind: u8,
    /// Flags; none is known yet.
    pub(crate) flags: u8,
}

impl Word {
    /// The word of a record with a body.
    #[inline(always)]
    pub(crate) fn new(kind: RecordKind, body_bytes: u32) -> Word {
        Word { body_bytes, kind: kind as u8, flags: 0 }
    }

    /// The word of a pad over `units` units.
    pub(crate) fn pad(units: u64) -> Word {
        debug_assert!(units >= 1 && units - 1 <= u64::from(u32::MAX / 8));
        Word::new(RecordKind::Pad, ((units - 1) * 8) as u32)
    }

    /// The encoded word and the seed of the record's checksum.
    #[inline(always)]
    pub(crate) fn encode(self, keys: &Keys, lsn: u64) -> (u64, u64) {
        let plain = u64::from(self.body_bytes) | u64::from(self.kind) << 32 | u64::from(self.flags) << 40;
        let mixed = keys.mix(lsn, plain);
        (plain | (mixed >> 48 << 48), mixed)
    }

    /// Decodes the word at `lsn`, with the seed of its checksum; `None` if the check bits are wrong.
    #[inline(always)]
    pub(crate) fn decode(raw: u64, keys: &Keys, lsn: u64) -> Option<(Word, u64)> {
        let plain = raw & (u64::MAX >> 16);
        let mixed = keys.mix(lsn, plain);
        let kind = (plain >> 32) as u8;
        if mixed >> 48 != raw >> 48 || kind == 0 {
            return None;
        }
        Some((Word { body_bytes: plain as u32, kind, flags: (plain >> 40) as u8 }, mixed))
    }

    /// True for a pad, whose body says nothing.
    pub(crate) fn is_pad(&self) -> bool {
        self.kind == RecordKind::Pad as u8
    }

    /// True if a checksum follows the word: always but in a pad of one unit.
    pub(crate) fn has_checksum(&self) -> bool {
        !self.is_pad() || self.body_bytes >= 8
    }

    /// Units of the whole record.
    pub(crate) fn units(&self) -> u64 {
        if self.is_pad() {
            1 + u64::from(self.body_bytes).div_ceil(8)
        } else {
            2 + u64::from(self.body_bytes).div_ceil(8)
        }
    }
}

/// What a mark says: every record in `[from, complete_to)` was durable when the mark was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    /// Where the range starts: the end of the last mark's range, or a floor.
    pub from: Lsn,
    /// Every LSN below was a whole record or a pad, and durable.
    pub complete_to: Lsn,
    /// Records in the range.
    pub count: u64,
    /// Chained hash of their words and checksums.
    pub digest: u64,
}

impl Mark {
    /// The body of a mark record.
    pub(crate) fn encode(&self) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        let fields = [self.from.0, self.complete_to.0, self.count, self.digest];
        for (chunk, field) in bytes.chunks_exact_mut(8).zip(fields) {
            chunk.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// Decodes the body of a mark record.
    pub(crate) fn decode(body: &[u8]) -> Option<Mark> {
        let body: &[u8; MARK_BYTES] = body.try_into().ok()?;
        let word = |n: usize| u64::from_le_bytes(body.as_chunks().0[n]);
        Some(Mark { from: Lsn(word(0)), complete_to: Lsn(word(1)), count: word(2), digest: word(3) })
    }
}

/// The header of a segment file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileHeader {
    /// The store it belongs to.
    pub(crate) uuid: Uuid,
    /// The segment's number.
    pub(crate) segment: u64,
    /// Bytes of data of every segment of the store.
    pub(crate) segment_bytes: u64,
    /// Random, one per session.
    pub(crate) salt: u64,
    /// The boot in which the session ran.
    pub(crate) boot_id: [u8; 16],
    /// The session's first LSN.
    pub(crate) session_first: Lsn,
    /// Where the session before was cut: nothing of it counts from here on.
    pub(crate) prior_end: Lsn,
    /// True if the session before was closed cleanly, or made durable as it was.
    pub(crate) prior_clean: bool,
}

/// Why a file header cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeaderFault {
    /// The bytes are not a header: what is wrong.
    Bad(&'static str),
    /// A good header of a newer version.
    Newer(u32),
}

impl FileHeader {
    /// Encodes the header, checksum included.
    pub(crate) fn encode(&self, secret: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let flags = if self.prior_clean { FLAG_PRIOR_CLEAN } else { 0 };
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&flags.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.uuid);
        bytes[32..40].copy_from_slice(&self.segment.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.salt.to_le_bytes());
        bytes[56..72].copy_from_slice(&self.boot_id);
        bytes[72..80].copy_from_slice(&self.session_first.0.to_le_bytes());
        bytes[80..88].copy_from_slice(&self.prior_end.0.to_le_bytes());
        let checksum = XxHash3_64::oneshot_with_seed(secret, &bytes[..HEADER_BYTES - 8]);
        bytes[HEADER_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header page.
    pub(crate) fn decode(page: &[u8], secret: u64) -> Result<FileHeader, HeaderFault> {
        let bad = HeaderFault::Bad;
        let mut bytes = Decoder::new(page);
        let (body, checksum) = (bytes.take(HEADER_BYTES - 8)?, bytes.u64()?);
        if body[..MAGIC.len()] != MAGIC {
            return Err(bad("this is not a log segment (wrong magic number)"));
        }
        if checksum != XxHash3_64::oneshot_with_seed(secret, body) {
            return Err(bad("the header's checksum does not match"));
        }
        FileHeader::as_it_stands(page)
    }

    /// What a header page says, its checksum apart.
    pub(crate) fn as_it_stands(page: &[u8]) -> Result<FileHeader, HeaderFault> {
        let bad = HeaderFault::Bad;
        let mut fields = Decoder::new(Decoder::new(page).take(HEADER_BYTES)?);
        if fields.array()? != MAGIC {
            return Err(bad("this is not a log segment (wrong magic number)"));
        }
        let version = fields.u32()?;
        if version != VERSION {
            return Err(HeaderFault::Newer(version));
        }
        let flags = fields.u32()?;
        if flags & !FLAG_PRIOR_CLEAN != 0 {
            return Err(bad("the header has unknown flags"));
        }
        Ok(FileHeader {
            uuid: fields.array()?,
            segment: fields.u64()?,
            segment_bytes: fields.u64()?,
            salt: fields.u64()?,
            boot_id: fields.array()?,
            session_first: Lsn(fields.u64()?),
            prior_end: Lsn(fields.u64()?),
            prior_clean: flags & FLAG_PRIOR_CLEAN != 0,
        })
    }
}

impl From<Malformed> for HeaderFault {
    fn from(_: Malformed) -> HeaderFault {
        HeaderFault::Bad("the file ends inside its header")
    }
}

/// The file name of a segment.
pub(crate) fn segment_name(segment: u64) -> String {
    format!("{segment:010}.log")
}

/// The number in a segment's file name, if it is one.
pub(crate) fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    let number = digits.parse().ok()?;
    (segment_name(number) == name).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_survives_and_only_at_its_own_place() {
        let keys = Keys::new(7, 9);
        let word = Word::new(RecordKind::Write, 123);
        let (raw, seed) = word.encode(&keys, 55);
        assert_eq!(Word::decode(raw, &keys, 55), Some((word, seed)));
        let elsewhere = (0..4096).filter(|l| *l != 55 && Word::decode(raw, &keys, *l).is_some()).count();
        assert!(elsewhere <= 2, "{elsewhere} other places accept the word");
        let other =
            (0..4096).filter(|s| *s != 9 && Word::decode(raw, &Keys::new(7, *s), 55).is_some()).count();
        assert!(other <= 2, "{other} other sessions accept the word");
        assert_eq!(Word::decode(0, &keys, 55), None);
    }

    #[test]
    fn every_flipped_bit_of_a_word_changes_check_or_seed() {
        let keys = Keys::new(1, 2);
        let (raw, seed) = Word::new(RecordKind::Write, 40).encode(&keys, 1000);
        for bit in 0..64 {
            if let Some((_, other)) = Word::decode(raw ^ (1 << bit), &keys, 1000) {
                assert_ne!(other, seed, "bit {bit}");
            }
        }
    }

    #[test]
    fn header_finds_every_flipped_bit_and_knows_newer_versions() {
        let header = FileHeader {
            uuid: [3; 16],
            segment: 12,
            segment_bytes: 65536,
            salt: 99,
            boot_id: [4; 16],
            session_first: Lsn(8192),
            prior_end: Lsn(8000),
            prior_clean: true,
        };
        let bytes = header.encode(5);
        assert_eq!(FileHeader::decode(&bytes, 5), Ok(header));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut wrong = bytes;
                wrong[at] ^= 1 << bit;
                assert!(matches!(FileHeader::decode(&wrong, 5), Err(HeaderFault::Bad(_))), "byte {at}");
            }
            assert!(FileHeader::decode(&bytes[..at], 5).is_err());
        }
        let mut newer = bytes;
        newer[8] = 2;
        let checksum = XxHash3_64::oneshot_with_seed(5, &newer[..HEADER_BYTES - 8]);
        newer[HEADER_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(FileHeader::decode(&newer, 5), Err(HeaderFault::Newer(2)));
    }

    #[test]
    fn floor_takes_the_highest_good_slot() {
        let keys = Keys::new(1, 2);
        let mut page = vec![0; HEADER_PAGE];
        assert_eq!(keys.decode_floor(3, &page), None);
        page[512..528].copy_from_slice(&keys.encode_floor(3, 0, Lsn(70)));
        page[1024..1040].copy_from_slice(&keys.encode_floor(3, 1, Lsn(90)));
        assert_eq!(keys.decode_floor(3, &page), Some(Lsn(90)));
        assert_eq!(keys.decode_floor(4, &page), None);
        page[1030] ^= 1;
        assert_eq!(keys.decode_floor(3, &page), Some(Lsn(70)));
        assert_eq!(keys.decode_floor(3, &page[..600]), Some(Lsn(70)));
    }

    #[test]
    fn doubt_is_told_of_its_own_segment_and_session_only() {
        let keys = Keys::new(1, 2);
        let mut page = vec![0; HEADER_PAGE];
        assert!(!keys.decode_doubt(3, &page) && !keys.decode_doubt(3, &page[..600]));
        page[DOUBT_SLOT..DOUBT_SLOT + FLOOR_BYTES].copy_from_slice(&keys.encode_doubt(3));
        assert!(keys.decode_doubt(3, &page));
        assert!(!keys.decode_doubt(4, &page) && !Keys::new(1, 3).decode_doubt(3, &page));
        assert_eq!(keys.decode_floor(3, &page), None, "it is no floor");
    }

    #[test]
    fn names_round_trip_and_strangers_are_refused() {
        for n in [0, 7, 9_999_999_999, 10_000_000_000, u64::MAX] {
            assert_eq!(parse_segment_name(&segment_name(n)), Some(n));
        }
        for name in ["1.log", "+000000001.log", "0000000001.tmp", ".log", "00000000010.log", "x"] {
            assert_eq!(parse_segment_name(name), None, "{name}");
        }
    }
}
