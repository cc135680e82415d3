//! The bytes of a manifest file: a header, then records, each edit sealed by a record of its own.
//!
//! Place: `manifest` writes what the `put_*` functions here make and hands whole files to [`read`];
//! this file knows bytes, that one knows files.
//!
//! Invariants:
//! 1. An edit is acknowledged only after it was synced, then a *seal* was appended and synced too.
//!    So in an undamaged file at most the last record is bad, and it was never acknowledged.
//! 2. Hence: a bad record with a good one anywhere behind it is corruption; a bad one with nothing
//!    behind it is a torn tail. An acknowledged edit always has its seal behind it, so one flipped
//!    bit cannot make it look torn: it hits the edit (the seal tells) or the seal (the edit is whole).
//! 3. Checksums are keyed by the store's secret, the manifest's number and the record's position:
//!    a user's key inside an edit cannot pose as a record, nor can a record from elsewhere.
//! 4. The first edit is the snapshot. It is sealed before `CURRENT` names the file, so a bad one is
//!    always corruption.
//!
//! Bytes: docs/formats/manifest.md. Little endian.
//! ```text
//! header   0 magic "DrmlnMan"   8 version u32 = 1   12 zero u32   16 number u64
//!         24 store uuid [16]   40 zero [16]        56 checksum u64 of bytes 0..56
//! record   0 payload length u32   4 check u32 of the length   8 checksum u64 of the payload
//!         16 payload: kind u8 (1 edit, 2 seal), then the edit's changes, or the count of edits so far
//! ```
//!
//! Origin: the log-structured manifest is the field's common form; the seals are ours, for what a
//! single sync cannot give: telling a rotten last record from one that was never finished.
//! Tests: below for bytes; `manifest_tests` for crashes and faults.

use std::path::Path;

use twox_hash::XxHash3_64;

use super::edit::VersionEdit;
use super::identity::{Identity, check_page};
use crate::encoding::{FileDecoder, put_varint};
use crate::error::{Error, Result};

pub(super) const MAGIC: [u8; 8] = *b"DrmlnMan";
pub(super) const VERSION: u32 = 1;
/// Bytes of the file's header.
pub(super) const HEADER_BYTES: usize = 64;
/// Bytes before each payload.
pub(super) const RECORD_HEADER_BYTES: usize = 16;

pub(super) const EDIT: u8 = 1;
pub(super) const SEAL: u8 = 2;

/// Makes the records of one manifest file.
#[derive(Clone, Copy)]
pub(super) struct Framer {
    seed: u64,
}

/// What a manifest file says.
pub(super) struct Contents {
    /// All good edits in order, each with the offset of its record; the first is the snapshot.
    pub edits: Vec<(u64, VersionEdit)>,
    /// Where the torn tail begins, if there is one.
    pub torn: Option<u64>,
}

impl Framer {
    /// For manifest `number` of the store `identity`.
    pub(super) fn new(identity: &Identity, number: u64) -> Framer {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&identity.uuid);
        bytes[16..].copy_from_slice(&number.to_le_bytes());
        Framer { seed: XxHash3_64::oneshot_with_seed(identity.secret, &bytes) }
    }

    /// Appends an edit's record to `out`; `position` is where in the file the record will begin.
    /// Fails only for an edit of 4 GiB or more.
    pub(super) fn put_edit(&self, out: &mut Vec<u8>, position: u64, edit: &VersionEdit) -> Result<()> {
        self.put(out, position, |payload| {
            payload.push(EDIT);
            edit.encode(payload);
        })
    }

    /// Appends the seal of the `count`-th edit to `out`.
    pub(super) fn put_seal(&self, out: &mut Vec<u8>, position: u64, count: u64) -> Result<()> {
        self.put(out, position, |payload| {
            payload.push(SEAL);
            put_varint(payload, count);
        })
    }

    fn put(&self, out: &mut Vec<u8>, position: u64, payload: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let start = out.len();
        out.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
        payload(out);
        let length = out.len() - start - RECORD_HEADER_BYTES;
        let length = u32::try_from(length).map_err(|_| {
            Error::invalid(format!("a version edit of {length} bytes, but 4 GiB is the limit"))
        })?;
        let seed = self.seed.wrapping_add(position);
        let checksum = XxHash3_64::oneshot_with_seed(seed, &out[start + RECORD_HEADER_BYTES..]);
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        out[start + 4..start + 8].copy_from_slice(&length_check(length, seed).to_le_bytes());
        out[start + 8..start + 16].copy_from_slice(&checksum.to_le_bytes());
        Ok(())
    }

    /// The payload of the record that begins at `at`, if there is a good one.
    pub(super) fn payload<'a>(&self, bytes: &'a [u8], at: usize) -> Option<&'a [u8]> {
        let (header, rest) = bytes.get(at..)?.split_at_checked(RECORD_HEADER_BYTES)?;
        let seed = self.seed.wrapping_add(at as u64);
        let length = u32::from_le_bytes(header[..4].try_into().ok()?);
        if header[4..8] != length_check(length, seed).to_le_bytes() {
            return None;
        }
        let payload = rest.get(..length as usize)?;
        let checksum = XxHash3_64::oneshot_with_seed(seed, payload).to_le_bytes();
        (!payload.is_empty() && header[8..] == checksum).then_some(payload)
    }
}

/// Guards a length by itself, so that the search for good records behind a bad one need not try
/// the checksum of every length that any four bytes spell.
fn length_check(length: u32, seed: u64) -> u32 {
    XxHash3_64::oneshot_with_seed(!seed, &length.to_le_bytes()) as u32
}

/// The header of manifest `number` of the store `identity`.
pub(super) fn header(identity: &Identity, number: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&identity.uuid);
    out.extend_from_slice(&[0; 16]);
    let checksum = XxHash3_64::oneshot(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    debug_assert_eq!(out.len(), HEADER_BYTES);
    out
}

/// Reads a whole manifest file, by the rules of the header above.
pub(super) fn read(bytes: &[u8], path: &Path, identity: &Identity, number: u64) -> Result<Contents> {
    check_page(bytes, MAGIC, VERSION, HEADER_BYTES, path)?;
    let mut head = FileDecoder::new(&bytes[16..40], path, 16);
    let found = head.u64()?;
    if found != number {
        return Err(Error::corruption(path, 16, format!("it says it is manifest {found}, not {number}")));
    }
    if head.array::<16>()? != identity.uuid {
        return Err(Error::corruption(path, 24, "it belongs to another store"));
    }

    let framer = Framer::new(identity, number);
    let mut contents = Contents { edits: Vec::new(), torn: None };
    let mut sealed = 0;
    let mut at = HEADER_BYTES;
    while at < bytes.len() {
        let offset = at as u64;
        let Some(payload) = framer.payload(bytes, at) else {
            if contents.edits.is_empty() {
                return Err(Error::corruption(path, offset, "the snapshot's record is damaged"));
            }
            if let Some(good) = (at + 1..bytes.len()).find(|&p| framer.payload(bytes, p).is_some()) {
                let what = format!("a damaged record, before a good one at byte {good}");
                return Err(Error::corruption(path, offset, what));
            }
            contents.torn = Some(offset);
            break;
        };
        at += RECORD_HEADER_BYTES + payload.len();
        let mut body = FileDecoder::new(payload, path, offset + RECORD_HEADER_BYTES as u64);
        match body.u8()? {
            EDIT => {
                if contents.edits.len() > sealed {
                    return Err(Error::corruption(path, offset, "an edit behind one that was never sealed"));
                }
                contents.edits.push((offset, VersionEdit::decode(body.rest(), path, body.offset())?));
            }
            SEAL => {
                let count = body.varint()?;
                if count != contents.edits.len() as u64 {
                    let what = format!("a seal for edit {count} behind edit {}", contents.edits.len());
                    return Err(Error::corruption(path, offset, what));
                }
                body.end()?;
                sealed = contents.edits.len();
            }
            kind => body.unknown("record kind", kind)?,
        }
    }
    if contents.edits.is_empty() {
        return Err(Error::corruption(path, HEADER_BYTES as u64, "the file ends before its snapshot"));
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::edit::Change;
    use super::*;

    fn identity() -> Identity {
        Identity { uuid: [7; 16], secret: 99, segment_bytes: 1 << 16, created: Duration::ZERO }
    }

    fn edit(n: u64) -> VersionEdit {
        VersionEdit::from(Change::NextTableId(n * 1000))
    }

    /// A file of `edits` edits; with the offset of each record.
    fn file(edits: u64, last_sealed: bool) -> (Vec<u8>, Vec<usize>) {
        let framer = Framer::new(&identity(), 3);
        let mut bytes = header(&identity(), 3);
        let mut starts = Vec::new();
        for n in 1..=edits {
            starts.push(bytes.len());
            let position = bytes.len() as u64;
            framer.put_edit(&mut bytes, position, &edit(n)).unwrap();
            if n < edits || last_sealed {
                starts.push(bytes.len());
                let position = bytes.len() as u64;
                framer.put_seal(&mut bytes, position, n).unwrap();
            }
        }
        (bytes, starts)
    }

    fn read_edits(bytes: &[u8]) -> Result<Vec<VersionEdit>> {
        read(bytes, Path::new("m"), &identity(), 3).map(edits_of)
    }

    fn edits_of(contents: Contents) -> Vec<VersionEdit> {
        contents.edits.into_iter().map(|(_, edit)| edit).collect()
    }

    fn edits(count: u64) -> Vec<VersionEdit> {
        (1..=count).map(edit).collect()
    }

    #[test]
    fn edits_read_back_as_written() {
        for sealed in [false, true] {
            let (bytes, _) = file(5, sealed);
            let contents = read(&bytes, Path::new("m"), &identity(), 3).unwrap();
            assert_eq!(contents.torn, None);
            assert_eq!(edits_of(contents), edits(5));
        }
    }

    #[test]
    fn no_flipped_bit_loses_a_sealed_edit() {
        let (bytes, starts) = file(4, true);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            match read_edits(&bad) {
                Ok(found) => {
                    assert_eq!(found, edits(4), "bit {bit}");
                    assert!(bit / 8 >= *starts.last().unwrap(), "only the last seal may be damaged silently");
                }
                Err(Error::Corruption(c)) => {
                    let offset = usize::try_from(c.offset.unwrap()).unwrap();
                    let record = starts.iter().rev().find(|&&s| s <= bit / 8).copied().unwrap_or(0);
                    assert_eq!(offset, record, "bit {bit}: the damaged record is named");
                }
                Err(other) => panic!("bit {bit}: {other}"),
            }
        }
    }

    #[test]
    fn an_unsealed_edit_may_be_cut_anywhere_and_those_before_stay() {
        let (bytes, starts) = file(4, false);
        let last = *starts.last().unwrap();
        for length in last..bytes.len() {
            let contents = read(&bytes[..length], Path::new("m"), &identity(), 3).unwrap();
            assert_eq!(contents.torn, (length > last).then_some(last as u64));
            assert_eq!(edits_of(contents), edits(3));
        }
        for garbage in [vec![0; 5000], vec![0xff; 100], bytes[starts[2]..starts[4]].to_vec()] {
            let torn = [&bytes[..last], &garbage].concat();
            assert_eq!(read_edits(&torn).unwrap(), edits(3), "what lies behind never was a record here");
        }
    }

    #[test]
    fn a_damaged_snapshot_is_corruption_even_with_nothing_behind_it() {
        let (bytes, _) = file(1, false);
        for length in 0..bytes.len() {
            assert!(read_edits(&bytes[..length]).unwrap_err().is_corruption(), "cut to {length}");
        }
    }

    #[test]
    fn a_manifest_of_another_store_or_number_is_refused() {
        let (bytes, _) = file(2, true);
        let other = Identity { uuid: [8; 16], ..identity() };
        assert!(read(&bytes, Path::new("m"), &other, 3).is_err_and(|e| e.is_corruption()));
        assert!(read(&bytes, Path::new("m"), &identity(), 4).is_err_and(|e| e.is_corruption()));
        let stranger = Identity { secret: 98, ..identity() };
        assert!(read(&bytes, Path::new("m"), &stranger, 3).is_err_and(|e| e.is_corruption()));
    }

    #[test]
    fn missing_seals_and_unknown_kinds_are_not_passed_over() {
        let framer = Framer::new(&identity(), 3);
        let mut bytes = header(&identity(), 3);
        for n in 1..=2 {
            let position = bytes.len() as u64;
            framer.put_edit(&mut bytes, position, &edit(n)).unwrap();
        }
        assert!(read_edits(&bytes).unwrap_err().is_corruption(), "two edits without a seal between");

        let with_kind = |kind: u8| {
            let (mut bytes, _) = file(2, true);
            let position = bytes.len() as u64;
            framer.put(&mut bytes, position, |payload| payload.push(kind)).unwrap();
            read_edits(&bytes)
        };
        assert!(matches!(with_kind(3), Err(Error::Unsupported { .. })));
        assert_eq!(with_kind(0x83).unwrap(), edits(2));
    }

    #[test]
    fn a_newer_file_version_is_unsupported() {
        let (mut bytes, _) = file(1, true);
        bytes[8] = 2;
        let checksum = XxHash3_64::oneshot(&bytes[..56]).to_le_bytes();
        bytes[56..64].copy_from_slice(&checksum);
        assert!(matches!(read_edits(&bytes), Err(Error::Unsupported { .. })));
    }
}
