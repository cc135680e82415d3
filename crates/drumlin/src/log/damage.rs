//! Damage or tearing: whether a bad record was whole once and has one byte changed since.
//!
//! Place: `recover` asks about the holes of the last session, which no mark judges.
//!
//! A record's checksum is stored last, so if all but one byte of a record fits its checksum, the
//! record had been written to its end. What is left to exclude is that the medium lost that byte:
//! a crash of the process loses none; a power loss loses sectors, or the end of one, so it cannot have
//! taken a byte of a record behind which another begins, whole, in the same sector.
//!
//! Invariants:
//! 1. In a record that no damage has touched, and that was never finished or was torn by a power
//!    loss, nothing is found (but by chance, once in 2^50 or so).
//! 2. Every changed byte of the two words and of a body up to [`BYTES_MAX`] is found, and every
//!    changed bit up to [`BITS_MAX`]; beyond, nothing is tried: each try reads the body.
//!
//! Tests: `tests/damage.rs`, `db::tests::rot`.

use crate::error::{Error, Result};
use crate::key::Lsn;

use super::format::{Keys, RECORD_HEAD, RecordKind, Word};
use super::reader::{Look, Reader};

/// Longest body of which every byte is tried with every value.
const BYTES_MAX: usize = 512;
/// Longest body of which every bit is tried.
const BITS_MAX: usize = 8192;
/// Bytes that a device writes in order, and apart from others.
const SECTOR_BYTES: u64 = 512;

/// How the session ended.
pub(super) struct After {
    /// Nothing that was written can have been lost.
    pub(super) same_boot: bool,
    /// Where its files end.
    pub(super) limit: Lsn,
}

/// The byte of the record at `lsn`, counted from its start, that must have another value for the
/// record to be whole.
///
/// Errors: what reading met.
pub(super) fn changed_byte(
    reader: &mut Reader<'_>,
    keys: &Keys,
    lsn: Lsn,
    after: &After,
) -> Result<Option<u64>> {
    let Some(raw) = reader.unit(lsn.0)? else { return Ok(None) };
    for (byte, word) in one_byte_off(raw) {
        if let Some((units, seed)) = head(word, keys, lsn)
            && may_be_judged(reader, keys, lsn, units, after)?
            && let Some((checksum, body)) = rest(reader, lsn, units, word)?
            && Keys::checksum(seed, &body) == checksum
        {
            return Ok(Some(byte));
        }
    }
    let Some((units, seed)) = head(raw, keys, lsn) else { return Ok(None) };
    if !may_be_judged(reader, keys, lsn, units, after)? {
        return Ok(None);
    }
    let Some((checksum, mut body)) = rest(reader, lsn, units, raw)? else { return Ok(None) };
    let off = checksum ^ Keys::checksum(seed, &body);
    let first = off.trailing_zeros() / 8;
    if off != 0 && off >> (8 * first) <= 0xff {
        return Ok(Some(8 + u64::from(first)));
    }
    let changed = changed_in_body(&mut body, |body| Keys::checksum(seed, body) == checksum);
    Ok(changed.map(|at| (RECORD_HEAD + at) as u64))
}

/// Every word that differs from `raw` in one byte, with the number of that byte.
fn one_byte_off(raw: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..8).flat_map(move |byte| (1..=0xffu64).map(move |mask| (byte, raw ^ (mask << (8 * byte)))))
}

/// Units and seed of the record that `word` begins, if it is one of a kind that has a checksum.
fn head(word: u64, keys: &Keys, lsn: Lsn) -> Option<(u64, u64)> {
    let (word, seed) = Word::decode(word, keys, lsn.0)?;
    let known = word.flags == 0 && RecordKind::from_u8(word.kind).is_some() && word.has_checksum();
    known.then(|| (word.units(), seed))
}

/// True if no crash can have taken a part of the record and left the rest.
fn may_be_judged(reader: &mut Reader<'_>, keys: &Keys, lsn: Lsn, units: u64, after: &After) -> Result<bool> {
    if after.same_boot {
        return Ok(true);
    }
    let start = reader.geometry().file_offset(lsn);
    let next = start + units * Lsn::UNIT_BYTES;
    if start / SECTOR_BYTES != next / SECTOR_BYTES {
        return Ok(false);
    }
    match reader.look(keys, lsn.0 + units, after.limit.0) {
        // A pad of one unit has no checksum to be known by.
        Ok(Look::Whole(record)) => Ok(record.units > 1),
        Ok(Look::Bad { .. }) | Err(Error::Unsupported { .. }) => Ok(false),
        Err(other) => Err(other),
    }
}

/// Checksum and body, padding included; a pad's checksum is that of nothing.
fn rest(reader: &mut Reader<'_>, lsn: Lsn, units: u64, word: u64) -> Result<Option<(u64, Vec<u8>)>> {
    let Some(checksum) = reader.unit(lsn.0 + 1)? else { return Ok(None) };
    if (word >> 32) as u8 == RecordKind::Pad as u8 {
        return Ok(Some((checksum, Vec::new())));
    }
    let body = reader.bytes(lsn.0 + RECORD_HEAD as u64 / 8, lsn.0 + units)?;
    Ok(body.map(|(data, range)| (checksum, data[range].to_vec())))
}

/// The byte of the body that makes it whole with another value.
fn changed_in_body(body: &mut [u8], is_whole: impl Fn(&[u8]) -> bool) -> Option<usize> {
    let tries = |bits_only: bool| (1..=0xffu8).filter(move |mask| !bits_only || mask.is_power_of_two());
    if body.len() > BITS_MAX {
        return None;
    }
    let bits_only = body.len() > BYTES_MAX;
    for at in 0..body.len() {
        for mask in tries(bits_only) {
            body[at] ^= mask;
            let whole = is_whole(body);
            body[at] ^= mask;
            if whole {
                return Some(at);
            }
        }
    }
    None
}
