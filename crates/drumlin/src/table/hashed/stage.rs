//! The stage: entries of a table that wait until all of them are known, and where each then goes.
//!
//! Place: `writer` gives it the entries as they come, and pours it out when the table is finished.
//!
//! Nobody can say which bucket an entry is for before the last one has come: so the stage holds the keys and values of one table,
//! and 40 bytes an entry, and about 30 more while it is decided.
//!
//! How full buckets get: the writer tries [`FILLS`] from the fullest and takes the first that leaves nothing over; of the last one
//! it takes what comes. What is left over, and every item of more than a bucket, is for the sorted part of the table.
//!
//! Concurrency: one thread. Tests: `table/tests/hashed.rs`. Origin: LSM-trie §2.4.2, where 95 % is the limit.

use crate::key::Lsn;
use crate::pages::{PageVec, Pages, append};

use super::balance::{Balanced, Item, balance};
use super::bucket::{self, CAPACITY, Entry, Usual};
use super::record::{Record, spin};
use super::shape::{BUCKETS_MAX, Shape};

/// Percent of the buckets' bytes that are to be filled, as they are tried.
const FILLS: [u64; 5] = [99, 98, 97, 96, 95];
/// Bytes of an item in the mean from which on a table is a sorted one: its index is small beside it.
const SORTED_FROM_BYTES: u64 = 1024;
/// Bytes that an entry takes while the stage is poured out, about.
const POURED_BYTES: usize = 32;
/// Bytes of entries that are sure to find buckets enough.
pub(in crate::table) const STAGED_BYTES_MAX: u64 = (BUCKETS_MAX as u64 - 64) * CAPACITY as u64 / 100 * 95;

/// An entry that waits.
struct Staged {
    place: u64,
    lsn: Lsn,
    /// Where its key begins, and its value behind that. Versions of one key are never parted: a few of the largest values that
    /// snapshots hold on to come to more than four bytes can tell.
    at: usize,
    key_bytes: u32,
    value_bytes: u32,
    kind: u8,
}

/// See the module.
pub(in crate::table) struct Stage {
    bytes: PageVec<u8>,
    entries: PageVec<Staged>,
    /// The lengths that most entries have so far, if any have the majority; and by how many.
    usual: (u32, u32),
    votes: u64,
}

/// Where the entries of a table go.
pub(in crate::table) struct Poured {
    pub shape: Shape,
    pub usual: Usual,
    pub balanced: Balanced,
    /// Of each item its first entry; and behind the last.
    items: Vec<u32>,
}

impl Stage {
    pub fn new() -> Stage {
        Stage { bytes: PageVec::new_in(Pages), entries: PageVec::new_in(Pages), usual: (0, 0), votes: 0 }
    }

    /// The same memory for the entries of another table.
    pub fn emptied(mut self) -> Stage {
        self.bytes.clear();
        self.entries.clear();
        Stage { bytes: self.bytes, entries: self.entries, usual: (0, 0), votes: 0 }
    }

    /// Takes an entry of the user's key at `place`, which lies behind all others.
    pub fn add(&mut self, place: u64, key: &[u8], lsn: Lsn, kind: u8, value: &[u8]) {
        let (at, key_bytes, value_bytes) = (self.bytes.len(), key.len() as u32, value.len() as u32);
        append(&mut self.bytes, key);
        append(&mut self.bytes, value);
        self.entries.push(Staged { place, lsn, at, key_bytes, value_bytes, kind });
        // Who has the majority has it in the end.
        if self.votes == 0 {
            self.usual = (key_bytes, value_bytes);
        }
        self.votes = if self.usual == (key_bytes, value_bytes) { self.votes + 1 } else { self.votes - 1 };
    }

    /// Bytes that it holds in memory, and what it will take besides to decide where they go. Of large vectors what was never
    /// written to is not resident.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * (size_of::<Staged>() + POURED_BYTES)
    }

    /// Bytes of the table's buckets, if it ended now, about.
    pub fn estimated_bytes(&self) -> u64 {
        (self.bytes.len() as u64 + 7 * self.entries.len() as u64) * 100 / 97
    }

    /// Entries, in order: place and entry.
    pub fn entries(&self) -> impl Iterator<Item = (u64, Entry<'_>)> {
        self.entries.iter().map(|staged| self.entry(staged))
    }

    fn entry(&self, staged: &Staged) -> (u64, Entry<'_>) {
        let (at, key_bytes) = (staged.at, staged.key_bytes as usize);
        let (key, value) = self.bytes[at..][..key_bytes + staged.value_bytes as usize].split_at(key_bytes);
        (staged.place, Entry { key, lsn: staged.lsn, kind: staged.kind, value })
    }

    /// Decides where everything goes, for LSNs from `least` to `most`; `None` if the table is better a sorted one.
    pub fn pour(&self, least: Lsn, most: Lsn) -> Option<Poured> {
        let (key_bytes, value_bytes) = self.usual;
        let usual = Usual { key_bytes, value_bytes, lsn: least, lsn_bytes: Usual::lsn_bytes(least, most) };
        let items = self.items();
        let sizes: Vec<u64> =
            items.windows(2).map(|ends| self.item_bytes(&usual, ends[0]..ends[1])).collect();
        let all: u64 = sizes.iter().sum();
        if sizes.is_empty() || all / sizes.len() as u64 >= SORTED_FROM_BYTES {
            return None;
        }
        let is_large = |bytes: &u64| *bytes > CAPACITY as u64;
        let in_buckets: u64 = sizes.iter().filter(|bytes| !is_large(bytes)).sum();
        let (first, last) = (self.entries.first()?.place, self.entries.last()?.place);
        let place_of = |item: u32| self.entries[items[item as usize] as usize].place;
        let balancing: Vec<Item> = sizes
            .iter()
            .enumerate()
            .map(|(item, bytes)| Item {
                spin: spin(place_of(item as u32)),
                bytes: (*bytes).min(u64::from(u32::MAX)) as u32,
            })
            .collect();
        let mut poured = None;
        for fill in FILLS {
            let buckets = (in_buckets * 100).div_ceil(CAPACITY as u64 * fill).clamp(1, BUCKETS_MAX as u64);
            let shape = Shape::new(first, last, buckets as usize);
            let mut homes = vec![Vec::new(); shape.buckets()];
            let mut large = Vec::new();
            for (item, bytes) in sizes.iter().enumerate() {
                match is_large(bytes) {
                    true => large.push(item as u32),
                    false => homes[shape.home(place_of(item as u32))].push(item as u32),
                }
            }
            let mut balanced = balance(&balancing, homes, CAPACITY as u32);
            let fits = balanced.left_over.is_empty();
            balanced.left_over.extend(large);
            balanced.left_over.sort_unstable();
            poured = Some((shape, balanced));
            if fits {
                break;
            }
        }
        let (shape, balanced) = poured?;
        Some(Poured { shape, usual, balanced, items })
    }

    /// Where each item begins, and where the last one ends.
    fn items(&self) -> Vec<u32> {
        let same = |a: &Staged, b: &Staged| a.place == b.place && self.entry(a).1.key == self.entry(b).1.key;
        let starts = (0..self.entries.len()).filter(|n| {
            n.checked_sub(1).is_none_or(|before| !same(&self.entries[before], &self.entries[*n]))
        });
        starts.chain([self.entries.len()]).map(|n| n as u32).collect()
    }

    fn item_bytes(&self, usual: &Usual, entries: std::ops::Range<u32>) -> u64 {
        let bytes = |staged: &Staged| {
            usual.entry_bytes(staged.key_bytes as usize, staged.value_bytes as usize, staged.kind) as u64
        };
        self.entries[entries.start as usize..entries.end as usize].iter().map(bytes).sum()
    }

    /// The entries of an item, newest first.
    pub fn item<'a>(&'a self, poured: &Poured, item: u32) -> impl Iterator<Item = (u64, Entry<'a>)> + Clone {
        let (from, to) = (poured.items[item as usize], poured.items[item as usize + 1]);
        self.entries[from as usize..to as usize].iter().map(|staged| self.entry(staged))
    }

    /// Writes the body of a bucket into `out`; `left` is its record.
    pub fn bucket(&self, poured: &Poured, bucket: usize, left: Option<&Record>, out: &mut Vec<u8>) {
        let entries = poured.balanced.buckets[bucket].iter().flat_map(|item| self.item(poured, *item));
        bucket::encode(entries, left, &poured.usual, out);
    }
}

impl Poured {
    /// The home of an item that was left over.
    pub fn home(&self, stage: &Stage, item: u32) -> usize {
        self.shape.home(stage.entries[self.items[item as usize] as usize].place)
    }

    /// Entries in buckets.
    pub fn entries_in_buckets(&self) -> u64 {
        let versions = |item: &u32| u64::from(self.items[*item as usize + 1] - self.items[*item as usize]);
        self.balanced.buckets.iter().flatten().map(versions).sum()
    }
}
