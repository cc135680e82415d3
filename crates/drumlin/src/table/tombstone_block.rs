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
    let count = bytes.varint()?;
    let mut set = Set { found: Tombstones::EMPTY, end: None, comparator, version };
    match form {
        Form::Fragments => read_fragments(&mut bytes, count, &mut set)?,
        Form::Pairs => read_pairs(&mut bytes, count, &mut set)?,
    }
    let mut set = set.found;
    set.shrink();
    let written = if form == Form::Pairs { set.len() } else { set.fragments() };
    // Given one version, fragments may merge; as written, each must be one of the set.
    let whole = bytes.is_empty() && (version.is_some() || written as u64 == count);
    if whole { Ok(set) } else { Err(Malformed) }
}

/// A set that is being read.
struct Set<'a> {
    found: Tombstones,
    /// Where the fragment before ends.
    end: Option<&'a [u8]>,
    comparator: &'a dyn Comparator,
    version: Option<Lsn>,
}

impl<'a> Set<'a> {
    /// Adds a fragment, if it is one, and may lie behind the one before.
    fn push(&mut self, start: &'a [u8], end: &'a [u8], lsns: &[Lsn]) -> Result<(), Malformed> {
        let follows = self.end.is_none_or(|before| self.comparator.compare(before, start).is_le());
        let falls = !lsns.is_empty() && lsns.windows(2).all(|pair| pair[0] > pair[1]);
        if !follows || !falls || self.comparator.compare(start, end).is_ge() {
            return Err(Malformed);
        }
        self.end = Some(end);
        self.found.push(start, end, self.version.as_ref().map_or(lsns, std::slice::from_ref));
        Ok(())
    }
}

fn read_fragments<'a>(bytes: &mut Decoder<'a>, count: u64, set: &mut Set<'a>) -> Result<(), Malformed> {
    let mut lsns = Vec::new();
    for _ in 0..count {
        let number = bytes.varint()?;
        let start = if number & 1 == 1 { set.end.ok_or(Malformed)? } else { bytes.bytes()? };
        let end = bytes.bytes()?;
        lsns.clear();
        for _ in 0..number >> 1 {
            lsns.push(Lsn(bytes.varint()?));
        }
        set.push(start, end, &lsns)?;
    }
    Ok(())
}

fn read_pairs<'a>(bytes: &mut Decoder<'a>, count: u64, set: &mut Set<'a>) -> Result<(), Malformed> {
    // The fragment being read; it is whole when the next one begins.
    let mut open: Option<(&[u8], &[u8])> = None;
    let mut lsns = Vec::new();
    for _ in 0..count {
        let fragment = (bytes.bytes()?, bytes.bytes()?);
        if let Some((start, end)) = open.filter(|open| *open != fragment) {
            set.push(start, end, &lsns)?;
            lsns.clear();
        }
        open = Some(fragment);
        lsns.push(Lsn(bytes.varint()?));
    }
    open.map_or(Ok(()), |(start, end)| set.push(start, end, &lsns))
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
