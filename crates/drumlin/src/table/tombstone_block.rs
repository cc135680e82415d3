//! Range tombstones as a block.
//!
//! Bytes: `count varint`, then per fragment and LSN, sorted by start, newest first:
//! `start length varint | start | end length varint | end | lsn varint`.
//! Tests: below and `table/tests/`.

use crate::encoding::{Decoder, Malformed, put_bytes, put_varint};
use crate::iter::Tombstones;
use crate::key::{Comparator, Lsn};

/// The bytes of a set.
pub(super) fn encode(tombstones: &Tombstones) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, tombstones.len() as u64);
    for tombstone in tombstones.iter() {
        put_bytes(&mut out, tombstone.start);
        put_bytes(&mut out, tombstone.end);
        put_varint(&mut out, tombstone.lsn.0);
    }
    out
}

/// Reads a set; `version` replaces every LSN if given. O(bytes).
pub(super) fn decode(
    bytes: &[u8],
    comparator: &dyn Comparator,
    version: Option<Lsn>,
) -> Result<Tombstones, Malformed> {
    let mut bytes = Decoder::new(bytes);
    let count = bytes.varint()?;
    let mut set = Tombstones::EMPTY;
    // The fragment being read; it is whole when the next one begins.
    let mut open: Option<(&[u8], &[u8])> = None;
    let mut lsns: Vec<Lsn> = Vec::new();
    for _ in 0..count {
        let start = bytes.bytes()?;
        let end = bytes.bytes()?;
        let lsn = Lsn(bytes.varint()?);
        if open == Some((start, end)) {
            if lsns.last().is_some_and(|&newer| newer <= lsn) {
                return Err(Malformed);
            }
        } else {
            let follows = open.is_none_or(|(_, before)| comparator.compare(before, start).is_le());
            if !follows || comparator.compare(start, end).is_ge() {
                return Err(Malformed);
            }
            push(&mut set, open, &lsns, version);
            open = Some((start, end));
            lsns.clear();
        }
        lsns.push(lsn);
    }
    push(&mut set, open, &lsns, version);
    set.shrink();
    // Given one version, fragments may merge; as written, each must be one of the set.
    let whole = bytes.is_empty() && (version.is_some() || set.len() as u64 == count);
    if whole { Ok(set) } else { Err(Malformed) }
}

fn push(set: &mut Tombstones, fragment: Option<(&[u8], &[u8])>, lsns: &[Lsn], version: Option<Lsn>) {
    if let Some((start, end)) = fragment {
        match &version {
            Some(version) => set.push(start, end, std::slice::from_ref(version)),
            None => set.push(start, end, lsns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iter::RangeTombstone;
    use crate::key::Bytewise;

    #[test]
    fn a_set_comes_back_and_cut_bytes_are_refused() {
        let tombstone = |start: &str, end: &str, lsn| RangeTombstone {
            start: start.into(),
            end: end.into(),
            lsn: Lsn(lsn),
        };
        let all = vec![tombstone("a", "k", 5), tombstone("c", "d", 700), tombstone("x", "y", 1 << 40)];
        let set = Tombstones::of_all(&Bytewise, &all);
        let bytes = encode(&set);
        assert_eq!(decode(&bytes, &Bytewise, None), Ok(set.clone()));
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length], &Bytewise, None), Err(Malformed), "cut to {length}");
        }
        assert_eq!(decode(&[&bytes[..], &[0]].concat(), &Bytewise, None), Err(Malformed));
        let one = decode(&bytes, &Bytewise, Some(Lsn(9))).expect("right");
        assert_eq!(one.newest_covering(&Bytewise, b"c", Lsn::MAX), Some(Lsn(9)));
        assert_eq!(one.newest_covering(&Bytewise, b"c", Lsn(9)), None);
    }
}
