//! Filters: "this key is certainly not here", one cache line per question.
//!
//! Place: `table` builds one [`Filter`] per sorted table and asks it before any block is read.
//! The input is the 64-bit hash of [`crate::key::KeyHasher`]; a filter is only good for hashes
//! made with the same secret (the table checks that).
//!
//! Invariants:
//! 1. A hash that was added is never denied.
//! 2. All probes of one hash lie in one 64-byte line, so a question costs one cache miss. By [`Span::Window`] the first ones do, which
//!    most hashes that are not there do not pass, and the others in the 64 lines from there on, which fill more evenly.
//! 3. Every byte string decodes to a filter or to `None`; nothing panics.
//!
//! Concurrency: a [`Filter`] is immutable and shared by threads.
//!
//! Bytes (integers little endian):
//! ```text
//! 0   kind    u8    1 = Bloom by lines, 4 = Bloom by windows of 64 lines; other kinds answer "maybe" to everything
//! 1   probes  u8    1..=16
//! 2   zero    u16
//! 4   lines   u32   at least 1
//! 8   lines x 64 bytes: eight u64 words each; bit b of a line is bit b % 64 of word b / 64
//! ```
//! Line of a hash h: `(h >> 32) * lines >> 32`. Probes: successive 9-bit numbers, lowest first, of a remixed word; when it has fewer
//! bits left, it is mixed again. Of kind 4 that holds for half of all probes and one, five at most. The others are 15-bit numbers: the
//! upper six, times the lines there are or 64 if that is less, over 64, are how many lines further on, where the first follows the last.
//!
//! Origin: the blocked Bloom filter is folklore of the field; sLSM §2.3 asks for a filter per run
//! with error ε. We fix bits per key instead, for all runs together (`allocation`), and pick the number of probes that
//! minimises the error of a *blocked* filter, whose lines fill unevenly.
//!
//! Tests: below; the table's model test asks it about every key.

mod allocation;
mod columns;

use std::ops::Deref;

pub use allocation::allocate;
pub use columns::{Grid, PROBES_MAX as COLUMN_PROBES_MAX, may_contain as column_may_contain, probes, set};

use crate::pages::{Packed, PackedVec, PageVec, Pages, append};
use crate::sync::prefetch;

/// Most probes a filter may have.
const PROBES_MAX: u8 = 16;
/// Bytes before the lines.
const HEADER_BYTES: usize = 8;
/// Bytes of one line.
const LINE_BYTES: usize = 64;
/// Bits of one line.
const LINE_BITS: usize = LINE_BYTES * 8;
/// Bits of a number that names a bit of a line.
const NEAR_BITS: u32 = LINE_BITS.ilog2();

/// What all probes of a hash lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// A line: one cache miss. For keys in order, whose gets are answered from the cache.
    Line,
    /// The first few probes in a line, the others in the 64 lines from it on: at 16 bits a key it errs 0.047 % where a line errs 0.08, and
    /// one of 32 that are not there is looked for in more than a line. For keys without order, whose gets read the device for each error.
    Window,
}

/// Lines of a window, but of a filter that has fewer.
const WINDOW_LINES: usize = 64;
/// Bits of a number that names a line of a window.
const WINDOW_BITS: u32 = WINDOW_LINES.ilog2();
/// Most probes in the first line of a window: more of them err more, since lines fill unevenly, and fewer let more hashes look further.
const NEAR_MAX: u8 = 5;

impl Span {
    /// Its number in the bytes.
    const fn kind(self) -> u8 {
        match self {
            Span::Line => 1,
            Span::Window => 4,
        }
    }

    fn of_kind(kind: u8) -> Option<Span> {
        [Span::Line, Span::Window].into_iter().find(|span| span.kind() == kind)
    }

    #[inline]
    const fn lines(self) -> usize {
        match self {
            Span::Line => 1,
            Span::Window => WINDOW_LINES,
        }
    }

    /// How many of the probes lie in the first line.
    #[inline]
    const fn near(self, probes: u8) -> u8 {
        let half = probes / 2 + 1;
        match self {
            Span::Line => probes,
            Span::Window if half < NEAR_MAX => half,
            Span::Window => NEAR_MAX,
        }
    }
}

/// One cache line of bits.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; 8]);

/// Collects hashes, then builds the bytes of a filter.
#[derive(Clone, Debug)]
pub struct FilterBuilder {
    span: Span,
    bits_per_key: f64,
    hashes: PageVec<u64>,
}

impl FilterBuilder {
    /// A builder of filters of `bits_per_key` bits per hash added (0 to 64).
    pub fn new(span: Span, bits_per_key: f64) -> Self {
        FilterBuilder { span, bits_per_key: bits_per_key.clamp(0.0, 64.0), hashes: PageVec::new_in(Pages) }
    }

    /// Adds one key by its hash. Amortized O(1).
    #[inline]
    pub fn add_hash(&mut self, hash: u64) {
        self.hashes.push(hash);
    }

    /// True if nothing was added.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Bytes held on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.hashes.capacity() * size_of::<u64>()
    }

    /// Bytes that `finish` would return, about.
    pub fn estimated_bytes(&self) -> usize {
        HEADER_BYTES + self.lines() * LINE_BYTES
    }

    /// The filter's bytes. O(hashes x probes).
    pub fn finish(self) -> impl Deref<Target = [u8]> {
        let lines = empty(self.lines());
        let load = self.hashes.len() as f64 / lines.len() as f64;
        let mut filter = Filter { span: self.span, probes: best_probes(self.span, load), lines };
        for &hash in &self.hashes {
            filter.set(hash);
        }
        filter.encode()
    }

    fn lines(&self) -> usize {
        let bits = self.hashes.len() as f64 * self.bits_per_key;
        ((bits / LINE_BITS as f64).ceil() as usize).clamp(1, u32::MAX as usize)
    }
}

/// Lines without a bit.
fn empty(lines: usize) -> PackedVec<Line> {
    let mut empty = PackedVec::new_in(Packed);
    empty.resize(lines, Line([0; 8]));
    empty
}

/// The share of keys that are not there that a filter of so many bits a key lets pass; 1 without a filter. The rate that is
/// expected of keys' hashes.
pub fn error_of(span: Span, bits_per_key: f64) -> f64 {
    if bits_per_key <= 0.0 {
        return 1.0;
    }
    let load = LINE_BITS as f64 / bits_per_key;
    expected_error(span, load, best_probes(span, load))
}

/// The probes with the least error when lines hold `load` keys on average.
fn best_probes(span: Span, load: f64) -> u8 {
    let mut best = (1, f64::MAX);
    for probes in 1..=PROBES_MAX {
        let rate = expected_error(span, load, probes);
        if rate < best.1 {
            best = (probes, rate);
        }
    }
    best.0
}

/// The error of a blocked filter: how many keys a span has, and of these a line, is by chance. The near probes of a hash meet what near
/// ones of its line's keys and far ones of its span's keys have set, the far ones what the whole span has.
fn expected_error(span: Span, load: f64, probes: u8) -> f64 {
    let (near, lines) = (f64::from(span.near(probes)), span.lines() as f64);
    let (far, load) = (f64::from(probes) - near, load * lines);
    // That a bit is still 0 after a near probe of its line, after a key's near probes of any line, after a far probe.
    let near_zero = 1.0 - 1.0 / LINE_BITS as f64;
    let key_zero = 1.0 - (1.0 - near_zero.powf(near)) / lines;
    let far_zero = 1.0 - 1.0 / (LINE_BITS as f64 * lines);
    about(load, load, |keys| {
        let untouched = far_zero.powf(far * keys);
        let in_line = keys / lines;
        let near_error = about(in_line, in_line * (1.0 - 1.0 / lines), |keys| {
            (1.0 - near_zero.powf(near * keys) * untouched).powf(near)
        });
        near_error * (1.0 - key_zero.powf(keys) * untouched).powf(far)
    })
}

/// The mean of what `of` says of a count that is `mean` but for chance: by the bell curve, and leaning as much as counts do
/// (Cornish and Fisher's first term).
fn about(mean: f64, variance: f64, of: impl Fn(f64) -> f64) -> f64 {
    const STEPS_A_SIGMA: i32 = 2;
    if variance <= 0.0 {
        return of(mean);
    }
    let (mut weights, mut sum) = (0.0, 0.0);
    for step in -4 * STEPS_A_SIGMA..=4 * STEPS_A_SIGMA {
        let sigmas = f64::from(step) / f64::from(STEPS_A_SIGMA);
        let weight = (-sigmas * sigmas / 2.0).exp();
        weights += weight;
        let leaning = (sigmas * sigmas - 1.0) / 6.0 * variance / mean;
        sum += weight * of((mean + sigmas * variance.sqrt() + leaning).max(0.0));
    }
    sum / weights
}

/// An immutable filter.
pub struct Filter {
    span: Span,
    probes: u8,
    lines: PackedVec<Line>,
}

impl Filter {
    /// Reads a filter; `None` if the bytes are not one. A kind that this build does not know
    /// becomes a filter that denies nothing. O(bytes).
    pub fn decode(bytes: &[u8]) -> Option<Filter> {
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let Some(span) = Span::of_kind(header[0]) else {
            return (header[0] != 0).then_some(Filter { span: Span::Line, probes: 0, lines: empty(0) });
        };
        let count = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let probes = header[1];
        let whole = count != 0 && rest.len() == count.checked_mul(LINE_BYTES)?;
        if !whole || probes == 0 || probes > PROBES_MAX || header[2] != 0 || header[3] != 0 {
            return None;
        }
        let mut lines = empty(count);
        for (line, chunk) in lines.iter_mut().zip(rest.chunks_exact(LINE_BYTES)) {
            for (word, bytes) in line.0.iter_mut().zip(chunk.chunks_exact(8)) {
                *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
            }
        }
        Some(Filter { span, probes, lines })
    }

    fn encode(&self) -> PageVec<u8> {
        let mut bytes = PageVec::with_capacity_in(HEADER_BYTES + self.lines.len() * LINE_BYTES, Pages);
        append(&mut bytes, &[self.span.kind(), self.probes, 0, 0]);
        append(&mut bytes, &(self.lines.len() as u32).to_le_bytes());
        for line in &self.lines {
            append(&mut bytes, line.0.map(u64::to_le_bytes).as_flattened());
        }
        bytes
    }

    /// Starts to load what `may_contain` looks at first.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(line) = self.lines.get(self.first_line(hash)) {
            prefetch(line);
        }
    }

    /// False only if no key with this hash was added. O(probes), one cache line; of a window, as many more as there are far probes, side by
    /// side, if the near ones do not deny it.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let mut numbers = Numbers::of(hash);
        let first = self.first_line(hash);
        let Some(line) = self.lines.get(first) else { return true };
        let near = self.span.near(self.probes);
        let mut hit = 1;
        for _ in 0..near {
            let bit = numbers.take(NEAR_BITS);
            hit &= line.0[bit >> 6] >> (bit & 63);
        }
        if hit & 1 == 1 {
            for _ in near..self.probes {
                let (line, bit) = self.far(first, &mut numbers);
                hit &= self.lines.get(line).map_or(u64::MAX, |line| line.0[bit >> 6]) >> (bit & 63);
            }
        }
        hit & 1 == 1
    }

    fn set(&mut self, hash: u64) {
        let mut numbers = Numbers::of(hash);
        let (first, near) = (self.first_line(hash), self.span.near(self.probes));
        for probe in 0..self.probes {
            let (line, bit) =
                if probe < near { (first, numbers.take(NEAR_BITS)) } else { self.far(first, &mut numbers) };
            self.lines[line].0[bit >> 6] |= 1 << (bit & 63);
        }
    }

    /// The line of the hash's near probes.
    #[inline]
    fn first_line(&self, hash: u64) -> usize {
        (((hash >> 32) * self.lines.len() as u64) >> 32) as usize
    }

    /// The line of the next far probe, and its bit.
    #[inline]
    fn far(&self, first: usize, numbers: &mut Numbers) -> (usize, usize) {
        let number = numbers.take(WINDOW_BITS + NEAR_BITS);
        let lines = self.lines.len();
        let further = (number >> NEAR_BITS) * lines.min(WINDOW_LINES);
        let line = first + (further >> WINDOW_BITS);
        (if line < lines { line } else { line - lines }, number & (LINE_BITS - 1))
    }

    /// Bytes held on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }

    /// Probes per question.
    pub fn probes(&self) -> u8 {
        self.probes
    }
}

/// Numbers that are had from a hash, one after the other.
struct Numbers {
    hash: u64,
    word: u64,
    bits_left: u32,
    turned: u32,
}

impl Numbers {
    #[inline]
    fn of(hash: u64) -> Numbers {
        Numbers { hash, word: mix(hash), bits_left: u64::BITS, turned: 0 }
    }

    /// The next one, of so many bits.
    #[inline]
    fn take(&mut self, bits: u32) -> usize {
        if self.bits_left < bits {
            self.turned += 21;
            self.word = mix(self.hash.rotate_left(self.turned));
            self.bits_left = u64::BITS;
        }
        let number = self.word & ((1 << bits) - 1);
        self.word >>= bits;
        self.bits_left -= bits;
        number as usize
    }
}

/// Spreads a hash over all 64 bits, so that the probes say more than the choice of the line did.
#[inline]
fn mix(word: u64) -> u64 {
    let word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^ (word >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyHasher;

    fn hashes(range: std::ops::Range<u32>) -> Vec<u64> {
        let hasher = KeyHasher::new(7);
        range.map(|n| hasher.hash(format!("key{n:09}").as_bytes())).collect()
    }

    const SPANS: [Span; 2] = [Span::Line, Span::Window];

    fn build(span: Span, hashes: &[u64], bits_per_key: f64) -> Filter {
        let mut builder = FilterBuilder::new(span, bits_per_key);
        hashes.iter().for_each(|&hash| builder.add_hash(hash));
        Filter::decode(&builder.finish()).expect("a built filter decodes")
    }

    #[test]
    fn no_added_hash_is_ever_denied() {
        for (count, bits) in [(0, 10.0), (1, 10.0), (2, 0.1), (1000, 3.3), (50_000, 10.0), (5_000, 64.0)] {
            let added = hashes(0..count);
            for span in SPANS {
                let filter = build(span, &added, bits);
                assert!(added.iter().all(|&hash| filter.may_contain(hash)), "{count} keys, {bits} bits");
            }
        }
    }

    /// Enough is asked for some 1500 wrong answers: chance moves the rate by 3 %.
    #[test]
    fn the_error_rate_is_that_of_theory_within_a_tenth() {
        let lines = [(2.0, 0.40), (5.0, 0.11), (10.0, 0.0125), (14.4, 0.0026), (18.0, 0.0011)];
        // LSM-trie's Table 1, over its 50 levels.
        let windows = [(10.0, 40.95), (12.0, 15.70), (14.0, 6.0), (16.0, 2.3), (18.0, 0.88)]
            .map(|(bits, percent)| (bits, percent / 100.0 / 50.0 * 1.1));
        let cases =
            lines.map(|case| (Span::Line, case)).into_iter().chain(windows.map(|case| (Span::Window, case)));
        for (span, (bits, at_most)) in cases {
            let filter = build(span, &hashes(0..100_000), bits);
            let theory = error_of(span, bits);
            assert!(theory <= at_most, "{span:?}, {bits} bits: {theory} (probes {})", filter.probes());
            let asked = (1500.0 / theory) as u32;
            let wrong =
                hashes(1_000_000..1_000_000 + asked).iter().filter(|&&h| filter.may_contain(h)).count();
            let rate = wrong as f64 / f64::from(asked);
            assert!(
                (rate / theory - 1.0).abs() <= 0.1,
                "{span:?}, {bits} bits: {rate}, theory says {theory}"
            );
        }
    }

    #[test]
    fn fewer_bits_err_more_however_few_they_are() {
        let errors: Vec<f64> = (1..64).map(|step| error_of(Span::Line, f64::from(step) / 8.0)).collect();
        assert!(errors.windows(2).all(|pair| pair[0] >= pair[1] && pair[0] <= 1.0), "{errors:?}");
        let filter = build(Span::Line, &hashes(0..100_000), 0.5);
        let wrong = hashes(1_000_000..1_100_000).iter().filter(|&&h| filter.may_contain(h)).count();
        assert!(
            (wrong as f64 / 1e5 - error_of(Span::Line, 0.5)).abs() < 0.02,
            "{wrong} of 100000, theory says {}",
            error_of(Span::Line, 0.5)
        );
    }

    #[test]
    fn an_empty_filter_denies_everything_and_an_unknown_kind_nothing() {
        for span in SPANS {
            let filter = build(span, &[], 10.0);
            assert!(hashes(0..100).iter().all(|&hash| !filter.may_contain(hash)));
        }
        let newer = Filter::decode(&[9, 1, 2, 3, 4, 5, 6, 7, 8]).expect("an unknown kind is no error");
        assert!(hashes(0..100).iter().all(|&hash| newer.may_contain(hash)));
    }

    #[test]
    fn wrong_lengths_and_headers_are_refused() {
        let good = |span| {
            let mut builder = FilterBuilder::new(span, 10.0);
            hashes(0..1000).into_iter().for_each(|hash| builder.add_hash(hash));
            builder.finish().to_vec()
        };
        for span in SPANS {
            let good = good(span);
            assert!(Filter::decode(&good).is_some());
            for bytes in 0..good.len() {
                assert!(Filter::decode(&good[..bytes]).is_none(), "cut to {bytes} bytes");
            }
            for (at, byte) in [(0, 0), (1, 0), (1, 17), (2, 1), (3, 1), (4, 0), (7, 255)] {
                let mut bad = good.clone();
                bad[at] = byte;
                assert!(Filter::decode(&bad).is_none(), "byte {at} set to {byte}");
            }
        }
    }
}
