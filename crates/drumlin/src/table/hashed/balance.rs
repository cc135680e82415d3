//! Balance: which bucket an item ends up in, so that none holds more than it can.
//!
//! Place: the writer asks [`balance`] when it knows all items of a table, and writes buckets and records as it says.
//!
//! The fullest bucket sends away what is too much, to an empty one; then the next one, until none is too full. A bucket sends
//! once, all to one other, and is sent nothing afterwards: so one record a bucket says where everything went, and a search that
//! follows records comes to where an item is in as many steps as the item made.
//! What goes are the items of the highest rank ([`rank`]). By which of [`TURNS`] turns of their hash they rank each source chooses,
//! so that what stays fills it.
//!
//! Where: to the emptiest of the [`NEAR`] buckets before the source that has room for all; else of as many behind; else of all. Who
//! walks the table from the front has then met most of what went away before he comes to where it belongs.
//!
//! Complexity: a source looks at its items once a turn, and at its neighbours; O(items + sources x NEAR) but for those that
//! find nothing near.
//! Concurrency: pure. Tests: below. Origin: LSM-trie §2.4.2 (greedy, the fullest with the emptiest; there the turn hangs on
//! the number of the bucket, and a destination on its load alone). The figures of both: docs/design/trie.md.

use std::collections::BinaryHeap;
use std::ops::Range;

use super::record::{Mark, Record, TURNS, rank};

/// Buckets on either side that are preferred to others.
pub(super) const NEAR: usize = 512;

/// Bytes of a bucket that may stay empty without a source trying further turns.
const FITS_BYTES: u32 = 16;
/// Steps that an item makes, at most: a search follows them.
const STEPS_MAX: u8 = 32;

/// Stands for a load in which nobody is interested any more.
const SENT: i16 = i16::MAX;

/// An item: a key with all its versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Of its hash.
    pub spin: u32,
    /// That it takes in a bucket.
    pub bytes: u32,
}

/// Where all items go.
#[derive(Debug, Default)]
pub(in crate::table) struct Balanced {
    /// Of each bucket the items in it, by number.
    pub buckets: Vec<Vec<u32>>,
    /// Of the sources; those first that had most too much.
    pub records: Vec<Record>,
    /// Items for which there is no room, by number.
    pub left_over: Vec<u32>,
    /// Steps that an item made, at most.
    pub steps: u8,
}

/// The state of a balance under way.
struct State<'a> {
    items: &'a [Item],
    capacity: u32,
    buckets: Vec<Vec<u32>>,
    loads: Vec<u32>,
    /// What a search for the emptiest looks at, many buckets at once: [`SENT`] of those that have sent, else the load.
    open: Vec<i16>,
    steps: Vec<u8>,
    /// Scratch: ranks and numbers of a source's items.
    ranked: Vec<(u32, u32)>,
}

/// Brings `items`, which are at home in the buckets that `homes` has them in, into buckets of `capacity` bytes. No item is larger.
pub(super) fn balance(items: &[Item], homes: Vec<Vec<u32>>, capacity: u32) -> Balanced {
    let load = |bucket: &Vec<u32>| bucket.iter().map(|item| items[*item as usize].bytes).sum();
    let loads: Vec<u32> = homes.iter().map(load).collect();
    let mut state = State {
        items,
        capacity,
        open: loads.iter().map(|load| open_load(*load)).collect(),
        loads,
        buckets: homes,
        steps: vec![0; items.len()],
        ranked: Vec::new(),
    };
    let over = |(bucket, load): (usize, &u32)| (*load > capacity).then_some((*load, bucket));
    // A bucket's load only grows until it sends: what is out of date is followed by what is not.
    let mut fullest: BinaryHeap<(u32, usize)> = state.loads.iter().enumerate().filter_map(over).collect();
    let mut records = Vec::new();
    while let Some((load, source)) = fullest.pop() {
        if state.open[source] == SENT || load != state.loads[source] {
            continue;
        }
        let Some((mark, destination)) = state.choose(source) else { continue };
        state.send(source, mark, destination);
        records.push(Record { source: source as u16, destination: destination as u16, mark });
        if state.loads[destination] > capacity {
            fullest.push((state.loads[destination], destination));
        }
    }
    let left_over = state.leave_over();
    let steps = state.steps.iter().copied().max().unwrap_or(0);
    Balanced { buckets: state.buckets, records, left_over, steps }
}

/// A load, or about what it is where that is far more than a bucket holds.
fn open_load(load: u32) -> i16 {
    load.min(SENT as u32 - 1) as i16
}

impl State<'_> {
    fn room(&self, bucket: usize) -> u32 {
        self.capacity.saturating_sub(self.loads[bucket])
    }

    /// What a source that is too full sends, and where; `None` if that would only make another one as full.
    fn choose(&mut self, source: usize) -> Option<(Mark, usize)> {
        let excess = self.loads[source] - self.capacity;
        let (mut best, mut least) = (Mark::default(), u32::MAX);
        for turn in 0..TURNS {
            let (threshold, sent) = self.sent(source, turn, excess);
            if sent < least {
                (best, least) = (Mark::new(threshold, turn), sent);
            }
            // Hardly less can be sent: it fits, or all are of one size.
            if sent - excess <= FITS_BYTES || self.is_of_one_size(source) {
                break;
            }
        }
        let before = source.saturating_sub(NEAR)..source;
        let behind = source + 1..(source + 1 + NEAR).min(self.loads.len());
        let destination = [before, behind]
            .into_iter()
            .find_map(|near| self.emptiest(near).filter(|bucket| self.room(*bucket) >= least))
            .or_else(|| {
                let all = [self.emptiest(0..source), self.emptiest(source + 1..self.loads.len())];
                let emptiest = all.into_iter().flatten().min_by_key(|bucket| self.open[*bucket])?;
                (self.loads[emptiest] + least < self.loads[source]).then_some(emptiest)
            });
        let steps = |item: &u32| self.steps[*item as usize];
        let is_far = self.buckets[source].iter().map(steps).max() >= Some(STEPS_MAX);
        Some((best, destination.filter(|_| !is_far)?))
    }

    fn is_of_one_size(&self, bucket: usize) -> bool {
        let mut sizes = self.buckets[bucket].iter().map(|item| self.items[*item as usize].bytes);
        let first = sizes.next();
        sizes.all(|bytes| Some(bytes) == first)
    }

    /// The rank from which on items of the bucket must go, by a turn, for it to lose `excess` bytes or more, and what it loses.
    fn sent(&mut self, bucket: usize, turn: u32, excess: u32) -> (u32, u32) {
        self.ranked.clear();
        for item in &self.buckets[bucket] {
            let Item { spin, bytes } = self.items[*item as usize];
            self.ranked.push((rank(spin, turn), bytes));
        }
        let (mut sent, mut threshold) = (0, 0);
        while sent < excess {
            // All of the highest rank: alike, they go together.
            threshold = self.ranked.iter().map(|(rank, _)| *rank).max().unwrap_or(0);
            self.ranked.retain(|(rank, bytes)| {
                let stays = *rank != threshold;
                sent += if stays { 0 } else { *bytes };
                stays
            });
        }
        (threshold, sent)
    }

    /// The one with most room of those that have sent nothing.
    fn emptiest(&self, buckets: Range<usize>) -> Option<usize> {
        let open = &self.open[buckets.clone()];
        let least = *open.iter().min().filter(|least| **least != SENT)?;
        Some(buckets.start + open.iter().position(|load| *load == least)?)
    }

    fn send(&mut self, source: usize, mark: Mark, destination: usize) {
        self.open[source] = SENT;
        let mut kept = std::mem::take(&mut self.buckets[source]);
        kept.retain(|item| {
            let Item { spin, bytes } = self.items[*item as usize];
            let stays = !mark.sends(spin);
            if !stays {
                self.buckets[destination].push(*item);
                self.steps[*item as usize] = self.steps[*item as usize].saturating_add(1);
                self.loads[source] -= bytes;
                self.loads[destination] += bytes;
            }
            stays
        });
        self.open[destination] = open_load(self.loads[destination]);
        self.buckets[source] = kept;
    }

    /// Takes from every bucket that is still too full what it cannot hold.
    fn leave_over(&mut self) -> Vec<u32> {
        let mut left_over = Vec::new();
        for bucket in 0..self.buckets.len() {
            while self.loads[bucket] > self.capacity {
                let Some(item) = self.buckets[bucket].pop() else { break };
                self.loads[bucket] -= self.items[item as usize].bytes;
                left_over.push(item);
            }
        }
        left_over.sort_unstable();
        left_over
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::dice::Dice;

    const CAPACITY: u32 = 4072;

    /// Items of `least..=most` bytes, as many as fill `buckets` to `fill` percent, at home where chance has it.
    fn items(
        buckets: usize,
        least: u32,
        most: u32,
        fill: u64,
        dice: &mut Dice,
    ) -> (Vec<Item>, Vec<Vec<u32>>) {
        let all = buckets as u64 * u64::from(CAPACITY) * fill / 100;
        let (mut items, mut homes, mut bytes) = (Vec::new(), vec![Vec::new(); buckets], 0);
        while bytes < all {
            let size = least + dice.below(u64::from(most - least + 1)) as u32;
            homes[dice.below(buckets as u64) as usize].push(items.len() as u32);
            items.push(Item { spin: dice.next() as u32, bytes: size });
            bytes += u64::from(size);
        }
        (items, homes)
    }

    /// Follows records from home, as a search does.
    fn end_of(records: &BTreeMap<u16, Record>, home: usize, spin: u32) -> (usize, u8) {
        let (mut at, mut steps) = (home as u16, 0);
        while let Some(record) = records.get(&at).filter(|record| record.mark.sends(spin)) {
            at = record.destination;
            steps += 1;
        }
        (usize::from(at), steps)
    }

    fn check(items: &[Item], homes: &[Vec<u32>], balanced: &Balanced) {
        let records: BTreeMap<u16, Record> =
            balanced.records.iter().map(|record| (record.source, *record)).collect();
        assert_eq!(records.len(), balanced.records.len(), "a bucket sends once");
        let mut found = vec![0; items.len()];
        let mut place = vec![None; items.len()];
        for (bucket, list) in balanced.buckets.iter().enumerate() {
            let bytes: u32 = list.iter().map(|item| items[*item as usize].bytes).sum();
            assert!(bytes <= CAPACITY, "bucket {bucket} holds {bytes} bytes");
            for item in list {
                found[*item as usize] += 1;
                place[*item as usize] = Some(bucket);
            }
        }
        balanced.left_over.iter().for_each(|item| found[*item as usize] += 1);
        assert!(found.iter().all(|count| *count == 1), "an item is in one place");
        let mut steps_most = 0;
        for (home, list) in homes.iter().enumerate() {
            for item in list {
                let (end, steps) = end_of(&records, home, items[*item as usize].spin);
                steps_most = steps_most.max(steps);
                assert!(
                    place[*item as usize].is_none_or(|bucket| bucket == end),
                    "a search ends where it is"
                );
            }
        }
        assert_eq!(steps_most, balanced.steps);
    }

    #[test]
    fn every_item_is_found_by_following_records_and_no_bucket_is_too_full() {
        let mut dice = Dice(1);
        for round in 0..200 {
            let buckets = 1 + dice.below(if round % 20 == 0 { 1000 } else { 60 }) as usize;
            let (least, most) = [(1, 4072), (20, 30), (100, 100), (500, 3000)][round % 4];
            let fill = 50 + dice.below(70);
            let (items, homes) = items(buckets, least, most, fill, &mut dice);
            check(&items, &homes, &balance(&items, homes.clone(), CAPACITY));
        }
    }

    /// Items with one hash rank alike whatever the turn: they go and stay together.
    #[test]
    fn items_of_one_hash_stay_together_or_are_left_over() {
        let items = vec![Item { spin: 7, bytes: 300 }; 20];
        let mut homes = vec![Vec::new(); 4];
        homes[1] = (0..20).collect();
        let balanced = balance(&items, homes.clone(), CAPACITY);
        check(&items, &homes, &balanced);
        assert_eq!(balanced.left_over.len(), 20 - 13);
    }

    /// Docs/design/trie.md has these figures. Of a table of 8 MiB; the mean is that of 1 to twice as much.
    #[test]
    fn at_ninety_five_percent_nothing_is_left_over_for_the_means_of_the_paper() {
        for mean in [100, 200, 300, 400] {
            for fill in [95, 98] {
                let (items, homes) = items(2048, 1, 2 * mean - 1, fill, &mut Dice(u64::from(mean)));
                let balanced = balance(&items, homes.clone(), CAPACITY);
                let moved = items.len() - {
                    let stays = homes.iter().zip(&balanced.buckets);
                    stays
                        .map(|(home, end)| home.iter().filter(|item| end.contains(item)).count())
                        .sum::<usize>()
                };
                let near = |record: &&Record| record.source.abs_diff(record.destination) <= NEAR as u16;
                let before = |record: &&Record| record.destination < record.source;
                println!(
                    "{mean} bytes at {fill} %: {} sources, {} near, {} before, {} of {} items moved, up to {} steps, {} left over",
                    balanced.records.len(),
                    balanced.records.iter().filter(near).count(),
                    balanced.records.iter().filter(before).count(),
                    moved,
                    items.len(),
                    balanced.steps,
                    balanced.left_over.len()
                );
                check(&items, &homes, &balanced);
                assert!(fill > 95 || balanced.left_over.is_empty(), "{mean} bytes");
            }
        }
    }
}
