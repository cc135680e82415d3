//! Records of migration: of a bucket that was too full, what left it and where to.
//!
//! Place: made by `balance`, written by the writer into the source's bucket and into a part of the file of their own; searches,
//! walks and checks follow them.
//!
//! An item's *spin* is 32 bits of its hash; its *rank* by a turn is the spin turned so far to the left, but for the lowest bits of
//! that. Above a *mark* all items of a bucket have left it for its destination.
//!
//! Invariants:
//! 1. A bucket is the source of one record at most, and destination of none that was made later: so records lead no search
//!    in a circle. A file may say otherwise; so searches count their steps, and end where no item of the table went on. Those of
//!    a key that the table does not have may lead further: a bucket sends on what came to it, or another part of that.
//! 2. A spin hangs on the key's place alone: keys of one place go together.
//!
//! Bytes: source u16 | destination u16 | mark u32, little endian; the mark's lowest five bits are its turn.
//! Origin: LSM-trie §2.4.2 (HashMark, 2 + 2 + 4 bytes).

use crate::encoding::Malformed;

/// Turns by which a source may choose to rank.
pub(in crate::table) const TURNS: u32 = 1 << TURN_BITS;
const TURN_BITS: u32 = 5;
/// Bytes of a stored record.
pub(in crate::table) const RECORD_BYTES: usize = 8;

/// The spin of a place.
#[inline]
pub(in crate::table) fn spin(place: u64) -> u32 {
    // All of its bits: those of a bucket's keys differ in the lower ones only.
    let mixed = (place ^ (place >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

/// The rank of a spin by a turn.
#[inline]
pub(in crate::table) fn rank(spin: u32, turn: u32) -> u32 {
    spin.rotate_left(turn) >> TURN_BITS
}

/// Which items have left a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::table) struct Mark(u32);

impl Mark {
    /// Those of `threshold` and higher ranks, by a turn.
    pub(in crate::table) fn new(threshold: u32, turn: u32) -> Mark {
        debug_assert!(turn < TURNS && threshold <= u32::MAX >> TURN_BITS);
        Mark(threshold << TURN_BITS | turn)
    }

    /// As stored.
    pub(in crate::table) fn from_bits(bits: u32) -> Mark {
        Mark(bits)
    }

    pub(in crate::table) fn bits(self) -> u32 {
        self.0
    }

    /// True if an item of this spin has left.
    #[inline]
    pub(in crate::table) fn sends(self, spin: u32) -> bool {
        rank(spin, self.0 % TURNS) >= self.0 >> TURN_BITS
    }
}

/// What left a bucket, and where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) struct Record {
    pub source: u16,
    pub destination: u16,
    pub mark: Mark,
}

impl Record {
    pub(in crate::table) fn encode(&self) -> [u8; RECORD_BYTES] {
        let [a, b] = self.source.to_le_bytes();
        let [c, d] = self.destination.to_le_bytes();
        let [e, f, g, h] = self.mark.bits().to_le_bytes();
        [a, b, c, d, e, f, g, h]
    }

    pub(in crate::table) fn decode([a, b, c, d, e, f, g, h]: [u8; RECORD_BYTES]) -> Record {
        Record {
            source: u16::from_le_bytes([a, b]),
            destination: u16::from_le_bytes([c, d]),
            mark: Mark::from_bits(u32::from_le_bytes([e, f, g, h])),
        }
    }
}

/// Buckets of a [`Group`].
const GROUP: usize = u32::BITS as usize;

/// Which of some neighbouring buckets have a record.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, packed(2))]
struct Group {
    /// A bit for each.
    has: u32,
    /// Records of the buckets before them.
    before: u16,
}

/// A record whose source is told by where it stands.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(2))]
struct Sent {
    mark: u32,
    destination: u16,
}

/// Records of a table that are held in memory.
#[derive(Debug, Default)]
pub(in crate::table) struct Records {
    /// By source.
    list: Box<[Sent]>,
    /// Of all buckets, in order: to search all records would be a miss of the processor's cache a step.
    groups: Box<[Group]>,
    /// All that the table has.
    is_whole: bool,
}

impl Records {
    /// The first `most` of the records of a table of so many buckets, as stored: those first that had most too much.
    pub(in crate::table) fn decode(stored: &[u8], buckets: usize, most: usize) -> Result<Records, Malformed> {
        let (chunks, rest) = stored.as_chunks::<RECORD_BYTES>();
        let mut list: Vec<Record> = chunks.iter().map(|bytes| Record::decode(*bytes)).collect();
        let is_inside = |record: &Record| usize::from(record.source.max(record.destination)) < buckets;
        if !rest.is_empty() || !list.iter().all(is_inside) {
            return Err(Malformed);
        }
        let is_whole = list.len() <= most;
        list.truncate(most);
        list.sort_unstable_by_key(|record| record.source);
        if !list.is_sorted_by(|a, b| a.source < b.source) {
            return Err(Malformed);
        }
        let mut groups = vec![Group::default(); buckets.div_ceil(GROUP)];
        for record in &list {
            groups[usize::from(record.source) / GROUP].has |= 1 << (usize::from(record.source) % GROUP);
        }
        let mut before = 0;
        for group in &mut groups {
            group.before = before;
            before += { group.has }.count_ones() as u16;
        }
        let sent = |record: &Record| Sent { mark: record.mark.bits(), destination: record.destination };
        Ok(Records { list: list.iter().map(sent).collect(), groups: groups.into(), is_whole })
    }

    /// The record of a bucket, if it is held.
    #[inline]
    pub(in crate::table) fn of(&self, bucket: usize) -> Option<Record> {
        let Group { has, before } = *self.groups.get(bucket / GROUP)?;
        let bit = 1 << (bucket % GROUP);
        if has & bit == 0 {
            return None;
        }
        let at = usize::from(before) + (has & (bit - 1)).count_ones() as usize;
        let Sent { mark, destination } = *self.list.get(at)?;
        Some(Record { source: bucket as u16, destination, mark: Mark::from_bits(mark) })
    }

    /// Where the records that are held lead an item of this spin from a bucket, and in how many steps; `None` if in more than
    /// `most`, which is as far as an item went: no bucket has this one.
    #[inline]
    pub(in crate::table) fn end_of(
        &self,
        mut bucket: usize,
        spin: u32,
        most: usize,
    ) -> Option<(usize, usize)> {
        let mut steps = 0;
        while let Some(record) = self.of(bucket).filter(|record| record.mark.sends(spin)) {
            bucket = usize::from(record.destination);
            steps += 1;
            if steps > most {
                return None;
            }
        }
        Some((bucket, steps))
    }

    /// True if a bucket that has no record here has none.
    pub(in crate::table) fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub(in crate::table) fn heap_bytes(&self) -> usize {
        self.list.len() * size_of::<Sent>() + self.groups.len() * size_of::<Group>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(source: u16, destination: u16, threshold: u32, turn: u32) -> Record {
        Record { source, destination, mark: Mark::new(threshold, turn) }
    }

    #[test]
    fn records_come_back_and_the_fullest_are_held_first() {
        let all = [record(7, 1, 5, 31), record(2, 65_534, u32::MAX >> 5, 0), record(9, 0, 0, 3)];
        let stored: Vec<u8> = all.iter().flat_map(|record| record.encode()).collect();
        for most in 0..5 {
            let records = Records::decode(&stored, 65_535, most).expect("sound");
            assert_eq!((records.list.len(), records.is_whole()), (most.min(3), most >= 3));
            for (number, record) in all.iter().enumerate() {
                let held = records.of(usize::from(record.source));
                assert_eq!(held, (number < most).then_some(*record));
            }
            assert_eq!(records.of(3), None);
        }
        assert!(Records::decode(&stored[1..], 65_535, 3).is_err(), "cut");
        assert!(Records::decode(&stored, 65_534, 3).is_err(), "a bucket that is not there");
        let twice = [stored.clone(), stored].concat();
        assert!(Records::decode(&twice, 65_535, 9).is_err(), "two of one bucket");
    }

    #[test]
    fn a_mark_sends_its_threshold_and_all_above() {
        for turn in 0..TURNS {
            let spin = 0x8000_0001_u32.rotate_right(turn);
            let own = rank(spin, turn);
            assert!(Mark::new(own, turn).sends(spin) && Mark::new(0, turn).sends(spin));
            assert!(!Mark::new(own + 1, turn).sends(spin));
        }
    }

    #[test]
    fn spins_of_neighbouring_places_differ() {
        let base = 0x1234_5678_0000_0000;
        let mut spins: Vec<u32> = (0..4096).map(|n| spin(base + (n << 20))).collect();
        spins.sort_unstable();
        spins.dedup();
        assert_eq!(spins.len(), 4096);
        assert!(spins[2048] > u32::MAX / 5 * 2 && spins[2048] < u32::MAX / 5 * 3, "spread");
    }
}
