//! Columns: many small Bloom filters, each of the keys whose places have some bits in common.
//!
//! Place: `table` writes those of a table and of the tables that lie under it side by side, so that one read says of a key which of
//! them may have it (`table::hashed`).
//!
//! A [`Grid`] says which column a place is in: bits behind those that all keys of a container have in common. So tables of one
//! container have the same columns, whatever else they hold.
//!
//! Invariants:
//! 1. A place that was set is never denied.
//! 2. Each probe has bits of its own: a column has a few hundred bits, in which double hashing would err a fourth more.
//!
//! Bytes: docs/formats/hashed-table.md. Concurrency: pure. Tests: below. Origin: LSM-trie §2.4.3; Bloom.

/// Most probes of a place.
pub const PROBES_MAX: u8 = 16;

/// How places are cut into columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    /// First bits of a place, which all keys of the container have in common.
    pub skip: u8,
    /// Bits behind them, which number the column: from 1 to 24.
    pub bits: u8,
}

impl Grid {
    /// True if it can be used.
    pub fn is_sound(&self) -> bool {
        (1..=24).contains(&self.bits) && self.skip <= 32
    }

    /// The container that a place is in: by the bits that all its keys have in common.
    #[inline]
    pub fn container(&self, place: u64) -> u64 {
        place.checked_shr(u64::BITS - u32::from(self.skip)).unwrap_or(0)
    }

    /// True if two places are in one column of one container.
    #[inline]
    pub fn is_shared(&self, a: u64, b: u64) -> bool {
        (self.container(a), self.column(a)) == (self.container(b), self.column(b))
    }

    /// The first place of the column that a place is in.
    pub fn start(&self, place: u64) -> u64 {
        let behind = u64::BITS - u32::from(self.skip) - u32::from(self.bits);
        place >> behind << behind
    }

    /// The first place of a column of a container.
    pub fn place(&self, container: u64, column: u32) -> u64 {
        let behind = u64::BITS - u32::from(self.skip);
        container.checked_shl(behind).unwrap_or(0) | (u64::from(column) << (behind - u32::from(self.bits)))
    }

    /// The column that a place is in.
    #[inline]
    pub fn column(&self, place: u64) -> u32 {
        ((place << self.skip) >> (u64::BITS - u32::from(self.bits))) as u32
    }
}

/// The probes that err least in columns of so many bits a key.
pub fn probes(bits_per_key: f64) -> u8 {
    ((bits_per_key * std::f64::consts::LN_2).round() as u8).clamp(1, PROBES_MAX)
}

/// The bits that a place has in a column of so many.
#[inline]
fn bits_of(place: u64, probes: u8, bits: usize) -> impl Iterator<Item = usize> {
    let mut word = place;
    let mut half = 0;
    (0..probes).map(move |probe| {
        if probe % 2 == 0 {
            // SplitMix64: of places that differ in a few low bits all words differ.
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
            half = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            half = (half ^ (half >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            half ^= half >> 31;
        } else {
            half >>= 32;
        }
        ((half & 0xffff_ffff) as usize * bits) >> 32
    })
}

/// Adds a place to its column.
pub fn set(column: &mut [u8], place: u64, probes: u8) {
    bits_of(place, probes, column.len() * 8).for_each(|bit| column[bit / 8] |= 1 << (bit % 8));
}

/// False only if the place was not added to its column.
#[inline]
pub fn may_contain(column: &[u8], place: u64, probes: u8) -> bool {
    bits_of(place, probes, column.len() * 8).all(|bit| column[bit / 8] >> (bit % 8) & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn columns_are_numbered_by_the_bits_behind_those_in_common() {
        let grid = Grid { skip: 4, bits: 8 };
        assert_eq!(grid.column(0xa560_0000_0000_0000), 0x56);
        assert_eq!(grid.column(u64::MAX), 255);
        assert_eq!(grid.container(0xa560_0000_0000_0000), 0xa);
        assert_eq!(Grid { skip: 0, bits: 1 }.container(u64::MAX), 0);
        assert_eq!(Grid { skip: 0, bits: 1 }.column(1 << 63), 1);
        for grid in [grid, Grid { skip: 0, bits: 8 }, Grid { skip: 32, bits: 24 }] {
            for place in [0, 1, 0xa560_0000_0000_0000, 0x1234_5678_9abc_def0, u64::MAX] {
                assert_eq!(grid.place(grid.container(place), grid.column(place)), grid.start(place));
            }
        }
        assert!(grid.is_sound() && !Grid::default().is_sound());
    }

    /// The error of an ideal filter, keys being spread over columns by chance.
    fn expected(mean: f64, bits: f64, probes: u8) -> f64 {
        let (mut rate, mut chance) = (0.0, (-mean).exp());
        for keys in 0..(mean as u32 * 4) {
            let empty = (1.0 - 1.0 / bits).powf(f64::from(keys) * f64::from(probes));
            rate += chance * (1.0 - empty).powi(probes.into());
            chance *= mean / f64::from(keys + 1);
        }
        rate
    }

    /// LSM-trie Table 1 is about 16 bits a key: 0.046 % in filters that are filled evenly.
    #[test]
    fn they_err_as_is_reckoned_and_deny_nothing_that_was_set() {
        let mut dice = Dice(3);
        for bits_per_key in [10.0, 16.0] {
            let (grid, probes) = (Grid { skip: 3, bits: 12 }, probes(bits_per_key));
            let (keys, columns) = (33 << 12, 1 << 12);
            let bytes = (33.0 * bits_per_key / 8.0) as usize;
            let mut all = vec![0u8; columns * bytes];
            let place = |dice: &mut Dice| dice.next() >> 3 | 5 << 61;
            let places: Vec<u64> = (0..keys).map(|_| place(&mut dice)).collect();
            let of = |place: u64| grid.column(place) as usize * bytes;
            places.iter().for_each(|p| set(&mut all[of(*p)..][..bytes], *p, probes));
            assert!(places.iter().all(|p| may_contain(&all[of(*p)..][..bytes], *p, probes)));
            let asked = 4_000_000;
            let passed = (0..asked).filter(|_| {
                let p = place(&mut dice);
                may_contain(&all[of(p)..][..bytes], p, probes)
            });
            let rate = passed.count() as f64 / f64::from(asked);
            let wanted = expected(33.0, bytes as f64 * 8.0, probes);
            println!("{bits_per_key} bits: {:.4} %, reckoned {:.4} %", rate * 100.0, wanted * 100.0);
            assert!((rate / wanted - 1.0).abs() < 0.1, "{rate} where {wanted} is reckoned");
        }
    }
}
