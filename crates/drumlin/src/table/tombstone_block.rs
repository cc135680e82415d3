//! Range tombstones as a block.
//!
//! Bytes: docs/formats/table.md, "Range tombstones": fragments, each border once and each LSN once, so about what a set takes in
//! memory. Nested ranges that many snapshots see are few borders and many LSNs: tables of older builds have the borders again with
//! each LSN (`Form::Pairs`), which are read and no longer written.
//! Tests: below and `table/tests/`.

use crate::encoding::{Decoder, Malformed, put_bytes, put_varint};
use crate::iter::Tombstones;
use crate::key::{Comparator, Lsn};

/// How a block is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// A fragment at a time.
    Fragments,
    /// A fragment and an LSN at a time.
    Pairs,
}

/// The bytes of a set.
pub(super) fn encode(tombstones: &Tombstones) -> Vec<u8> {
    let mut out = Vec::with_capacity(tombstones.heap_bytes());
    put_varint(&mut out, tombstones.fragments() as u64);
    let mut before: Option<&[u8]> = None;
    for fragment in (0..tombstones.fragments()).map(|n| tombstones.fragment(n)) {
        let touches = before == Some(fragment.start);
        put_varint(&mut out, (fragment.lsns.len() as u64) << 1 | u64::from(touches));
        if !touches {
            put_bytes(&mut out, fragment.start);
        }
        put_bytes(&mut out, fragment.end);
        fragment.lsns.iter().for_each(|lsn| put_varint(&mut out, lsn.0));
        before = Some(fragment.end);
    }
    out
}

/// Reads a set; `version` replaces every LSN if given. O(bytes).
pub(super) fn decode(
    bytes: &[u8],
    form: Form,
    comparator: &dyn Comparator,
    version: Option<Lsn>,
) -> Result<Tombstones, Malformed> {
    let mut bytes = Decoder::new(bytes);
    let mut set = Tombstones::EMPTY;
    let count = bytes.varint()?;
    match form {
        Form::Fragments => read_fragments(&mut bytes, count, comparator, version, &mut set)?,
        Form::Pairs => read_pairs(&mut bytes, count, comparator, version, &mut set)?,
    }
    set.shrink();
    let written = if form == Form::Pairs { set.len() } else { set.fragments() };
    // Given one version, fragments may merge; as written, each must be one of the set.
    let whole = bytes.is_empty() && (version.is_some() || written as u64 == count);
    if whole { Ok(set) } else { Err(Malformed) }
}

fn read_fragments(
    bytes: &mut Decoder<'_>,
    count: u64,
    comparator: &dyn Comparator,
    version: Option<Lsn>,
    set: &mut Tombstones,
) -> Result<(), Malformed> {
    let mut before: Option<&[u8]> = None;
    let mut lsns = Vec::new();
    for _ in 0..count {
        let number = bytes.varint()?;
        let start = if number & 1 == 1 { before.ok_or(Malformed)? } else { bytes.bytes()? };
        let end = bytes.bytes()?;
        lsns.clear();
        for _ in 0..number >> 1 {
            let lsn = Lsn(bytes.varint()?);
            if lsns.last().is_some_and(|&newer| newer <= lsn) {
                return Err(Malformed);
            }
            lsns.push(lsn);
        }
        let follows = before.is_none_or(|before| comparator.compare(before, start).is_le());
        if lsns.is_empty() || !follows || comparator.compare(start, end).is_ge() {
            return Err(Malformed);
        }
        push(set, Some((start, end)), &lsns, version);
        before = Some(end);
    }
    Ok(())
}

fn read_pairs(
    bytes: &mut Decoder<'_>,
    count: u64,
    comparator: &dyn Comparator,
    version: Option<Lsn>,
    set: &mut Tombstones,
) -> Result<(), Malformed> {
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
            push(set, open, &lsns, version);
            open = Some((start, end));
            lsns.clear();
        }
        lsns.push(lsn);
    }
    push(set, open, &lsns, version);
    Ok(())
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
    use crate::iter::{Horizons, RangeTombstone};
    use crate::key::Bytewise;

    fn pairs(tombstones: &Tombstones) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, tombstones.len() as u64);
        for tombstone in tombstones.iter() {
            put_bytes(&mut out, tombstone.start);
            put_bytes(&mut out, tombstone.end);
            put_varint(&mut out, tombstone.lsn.0);
        }
        out
    }

    #[test]
    fn a_set_comes_back_and_cut_bytes_are_refused() {
        let tombstone = |start: &str, end: &str, lsn| RangeTombstone {
            start: start.into(),
            end: end.into(),
            lsn: Lsn(lsn),
        };
        // The second lies within the first, the third begins where that ends, and an empty key is a border.
        let all = vec![
            tombstone("", "k", 5),
            tombstone("c", "d", 700),
            tombstone("k", "m", 6),
            tombstone("x", "y", 1 << 40),
        ];
        let set = Tombstones::of_all(&Bytewise, &all);
        for (form, bytes) in [(Form::Fragments, encode(&set)), (Form::Pairs, pairs(&set))] {
            assert_eq!(decode(&bytes, form, &Bytewise, None), Ok(set.clone()));
            for length in 0..bytes.len() {
                assert_eq!(
                    decode(&bytes[..length], form, &Bytewise, None),
                    Err(Malformed),
                    "{form:?} cut to {length}"
                );
            }
            assert_eq!(decode(&[&bytes[..], &[0]].concat(), form, &Bytewise, None), Err(Malformed));
            let one = decode(&bytes, form, &Bytewise, Some(Lsn(9))).expect("right");
            assert_eq!(one.newest_covering(&Bytewise, b"c", Lsn::MAX), Some(Lsn(9)));
            assert_eq!(one.newest_covering(&Bytewise, b"c", Lsn(9)), None);
        }
    }

    #[test]
    fn what_is_no_set_is_refused() {
        let fragment = |number: u64, keys: &[&str], lsns: &[u64]| {
            let mut out = Vec::new();
            put_varint(&mut out, number);
            keys.iter().for_each(|key| put_bytes(&mut out, key.as_bytes()));
            lsns.iter().for_each(|lsn| put_varint(&mut out, *lsn));
            out
        };
        let first = fragment(4, &["b", "d"], &[9, 7]);
        for (what, second) in [
            ("nothing before it to touch", vec![fragment(3, &["a"], &[1]), first.clone()]),
            ("no LSN", vec![first.clone(), fragment(1, &["e"], &[])]),
            ("LSNs that grow", vec![first.clone(), fragment(5, &["e"], &[7, 9])]),
            ("an end before its start", vec![first.clone(), fragment(3, &["c"], &[1])]),
            ("one that overlaps", vec![first.clone(), fragment(2, &["c", "e"], &[1])]),
            ("two that are one", vec![first.clone(), fragment(5, &["e"], &[9, 7])]),
        ] {
            let bytes = [&[2][..], &second.concat()].concat();
            assert_eq!(decode(&bytes, Form::Fragments, &Bytewise, None), Err(Malformed), "{what}");
        }
        let right = [&[2][..], &first, &fragment(3, &["e"], &[1])].concat();
        assert!(decode(&right, Form::Fragments, &Bytewise, None).is_ok());
    }

    #[test]
    fn nested_ranges_that_many_snapshots_see_take_their_borders_once() {
        let key = |n: usize| format!("{n:03}{}", "k".repeat(1000)).into_bytes();
        let all: Vec<_> = (0..100)
            .map(|n| RangeTombstone { start: b"".to_vec(), end: key(n), lsn: Lsn(10 * n as u64 + 5) })
            .collect();
        let snapshots: Vec<_> = (0..100).map(|n| Lsn(10 * n)).collect();
        let borrowed =
            all.iter().map(|t| RangeTombstone { start: &t.start[..], end: &t.end[..], lsn: t.lsn });
        let set = Tombstones::build(&Bytewise, borrowed.collect(), &Horizons::of_snapshots(snapshots));
        assert_eq!((set.fragments(), set.len()), (100, 5050), "each is seen by somebody");
        let bytes = encode(&set);
        assert!(bytes.len() < 120_000, "{} bytes", bytes.len());
        assert_eq!(decode(&bytes, Form::Fragments, &Bytewise, None), Ok(set));
    }
}
