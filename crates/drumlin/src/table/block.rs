//! Data blocks: a run of entries, keys shortened by what they share with the one before.
//!
//! Place: the writer fills a [`BlockBuilder`]; gets search a [`Block`] in place ([`Block::find`]);
//! cursors walk it (`walk`).
//!
//! Invariants:
//! 1. Entries are strictly ascending in internal order.
//! 2. At a restart point the key is whole (`shared` = 0); between restarts `shared` is the *longest*
//!    common prefix with the key before. The search depends on that.
//! 3. Parsing never panics: what does not fit is [`Malformed`].
//!
//! Bytes:
//! ```text
//! entries | restart offsets, u32 each, ascending, the first 0 | number of restarts u32
//! entry = shared varint | unshared varint | value length varint | kind u8 | lsn varint
//!         | unshared key bytes | value
//! ```
//! Tests: `walk`, `table/tests/`.

use std::cmp::Ordering;

use crate::encoding::{Malformed, get_varint, put_varint};
use crate::key::{Comparator, Lsn};
use crate::table::walk::Walk;

/// Length of the longest common prefix.
#[inline]
pub(super) fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    let limit = a.len().min(b.len());
    let mut at = 0;
    while let (Some(x), Some(y)) = (a[at..].first_chunk::<8>(), b[at..].first_chunk::<8>()) {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return at + (difference.trailing_zeros() as usize >> 3);
        }
        at += 8;
    }
    while at < limit && a[at] == b[at] {
        at += 1;
    }
    at
}

/// Collects the entries of one block.
pub(super) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    interval: usize,
    since_restart: usize,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    /// A builder with a restart point every `interval` entries.
    pub(super) fn new(interval: usize) -> BlockBuilder {
        let interval = interval.max(1);
        BlockBuilder {
            bytes: Vec::new(),
            restarts: Vec::new(),
            interval,
            since_restart: interval,
            last_key: Vec::new(),
        }
    }

    /// Appends an entry; the caller keeps the order.
    pub(super) fn add(&mut self, key: &[u8], lsn: Lsn, kind: u8, value: &[u8]) {
        let shared = if self.since_restart == self.interval {
            self.since_restart = 0;
            self.restarts.push(self.bytes.len() as u32);
            0
        } else {
            shared_prefix(&self.last_key, key)
        };
        self.since_restart += 1;
        put_varint(&mut self.bytes, shared as u64);
        put_varint(&mut self.bytes, (key.len() - shared) as u64);
        put_varint(&mut self.bytes, value.len() as u64);
        self.bytes.push(kind);
        put_varint(&mut self.bytes, lsn.0);
        self.bytes.extend_from_slice(&key[shared..]);
        self.bytes.extend_from_slice(value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
    }

    /// Bytes of the block if it were finished now.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len() + 4
    }

    /// True if it holds no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.restarts.is_empty()
    }

    /// The key added last.
    pub(super) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// The finished block.
    pub(super) fn finish(&mut self) -> &[u8] {
        for &restart in &self.restarts {
            self.bytes.extend(restart.to_le_bytes());
        }
        self.bytes.extend((self.restarts.len() as u32).to_le_bytes());
        &self.bytes
    }

    /// Starts the next block; memory beyond `keep` bytes is given back.
    pub(super) fn clear(&mut self, keep: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(keep);
        self.restarts.clear();
        self.since_restart = self.interval;
    }
}

/// A block being read in place.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    entries: &'a [u8],
    restarts: &'a [[u8; 4]],
}

/// One entry; its key is the first `shared` bytes of the key before, then `suffix`.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) shared: usize,
    pub(super) suffix: &'a [u8],
    pub(super) lsn: Lsn,
    pub(super) kind: u8,
    pub(super) value: &'a [u8],
    /// Offset of the value.
    pub(super) value_at: usize,
    /// Offset of the entry behind.
    pub(super) next: usize,
}

impl<'a> Block<'a> {
    /// Finds the parts of a block. O(1).
    #[inline]
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Block<'a>, Malformed> {
        let (rest, count) = bytes.split_last_chunk::<4>().ok_or(Malformed)?;
        let count = u32::from_le_bytes(*count) as usize;
        let entry_bytes = rest.len().checked_sub(count.checked_mul(4).ok_or(Malformed)?).ok_or(Malformed)?;
        let (entries, restarts) = rest.split_at(entry_bytes);
        let block = Block { entries, restarts: restarts.as_chunks().0 };
        if count == 0 || entries.is_empty() { Err(Malformed) } else { Ok(block) }
    }

    /// Bytes of the entries.
    #[inline]
    pub(super) fn entry_bytes(&self) -> usize {
        self.entries.len()
    }

    /// Number of restart points; at least 1.
    #[inline]
    pub(super) fn restarts(&self) -> usize {
        self.restarts.len()
    }

    /// Offset of the `n`-th restart point; the end of the entries for n = `restarts()`.
    #[inline]
    pub(super) fn restart(&self, n: usize) -> usize {
        self.restarts.get(n).map_or(self.entries.len(), |bytes| u32::from_le_bytes(*bytes) as usize)
    }

    /// The entry at an offset.
    #[inline(always)]
    pub(super) fn entry(&self, at: usize) -> Result<Entry<'a>, Malformed> {
        let bytes = self.entries;
        let head = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).ok_or(Malformed)?;
        let mut at = at;
        let (shared, unshared, value_bytes, kind);
        if (head[0] | head[1] | head[2]) < 0x80 {
            (shared, unshared, value_bytes) = (head[0] as usize, head[1] as usize, head[2] as usize);
            kind = head[3];
            at += 4;
        } else {
            let mut number = || usize::try_from(get_varint(bytes, &mut at)?).or(Err(Malformed));
            (shared, unshared, value_bytes) = (number()?, number()?, number()?);
            kind = *bytes.get(at).ok_or(Malformed)?;
            at += 1;
        }
        let lsn = Lsn(get_varint(bytes, &mut at)?);
        let value_at = at.checked_add(unshared).ok_or(Malformed)?;
        let next = value_at.checked_add(value_bytes).ok_or(Malformed)?;
        let suffix = bytes.get(at..value_at).ok_or(Malformed)?;
        let value = bytes.get(value_at..next).ok_or(Malformed)?;
        Ok(Entry { shared, suffix, lsn, kind, value, value_at, next })
    }

    /// The number of restart points whose entry lies before (key, lsn) in internal order. O(log restarts).
    #[inline]
    pub(super) fn restarts_before<C: Comparator + ?Sized>(
        &self,
        comparator: &C,
        key: &[u8],
        lsn: Lsn,
    ) -> Result<usize, Malformed> {
        let (mut low, mut high) = (0, self.restarts.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.entry(self.restart(middle))?;
            if entry.shared != 0 {
                return Err(Malformed);
            }
            let before = match comparator.compare(entry.suffix, key) {
                Ordering::Less => true,
                Ordering::Equal => entry.lsn > lsn,
                Ordering::Greater => false,
            };
            if before { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// The newest version of `key` with LSN ≤ `lsn`, if the block holds one. `scratch` is used
    /// only under a custom order. O(log restarts + interval), nothing allocated.
    #[inline]
    pub(super) fn find(
        &self,
        order: Order<'_>,
        key: &[u8],
        lsn: Lsn,
    ) -> Result<Option<Entry<'a>>, Malformed> {
        match order {
            Order::Bytewise => self.find_bytewise(key, lsn),
            Order::Custom(comparator) => Walk::with_scratch(|walk| {
                if !walk.seek(*self, comparator, key, lsn)? {
                    return Ok(None);
                }
                let equal = comparator.compare(walk.key(), key) == Ordering::Equal;
                if equal { Ok(Some(self.entry(walk.offset())?)) } else { Ok(None) }
            }),
        }
    }

    /// As `find`: never rebuilds a key, but follows how many bytes of `key` the current one shares.
    fn find_bytewise(&self, key: &[u8], lsn: Lsn) -> Result<Option<Entry<'a>>, Malformed> {
        let behind = self.restarts_before(&crate::key::Bytewise, key, lsn)?;
        if let Some(interval) = behind.checked_sub(1) {
            let limit = self.restart(behind);
            let mut entry = self.entry(self.restart(interval))?;
            // The current entry lies before the target. `matched` of its bytes are those of `key`; all
            // of them if it is a version of `key` itself, but too new.
            let mut matched = shared_prefix(entry.suffix, key);
            while entry.next < limit {
                entry = self.entry(entry.next)?;
                match entry.shared.cmp(&matched) {
                    // As far as it differs from `key`, it is like the one before: smaller.
                    Ordering::Greater => continue,
                    // It left the common path upwards.
                    Ordering::Less => return Ok(None),
                    Ordering::Equal => {}
                }
                let rest = key.get(matched..).ok_or(Malformed)?;
                match entry.suffix.cmp(rest) {
                    Ordering::Less => matched += shared_prefix(entry.suffix, rest),
                    Ordering::Equal if entry.lsn <= lsn => return Ok(Some(entry)),
                    Ordering::Equal => matched = key.len(),
                    Ordering::Greater => return Ok(None),
                }
            }
        }
        if behind == self.restarts.len() {
            return Ok(None);
        }
        let entry = self.entry(self.restart(behind))?;
        Ok((entry.suffix == key).then_some(entry))
    }
}

/// The order of keys, told apart once per search rather than once per comparison.
#[derive(Clone, Copy)]
pub(super) enum Order<'a> {
    /// The order of bytes.
    Bytewise,
    /// Somebody's own.
    Custom(&'a dyn Comparator),
}

impl<'a> Order<'a> {
    /// The order of a comparator.
    #[inline]
    pub(super) fn of(comparator: &'a dyn Comparator) -> Order<'a> {
        if comparator.is_bytewise() { Order::Bytewise } else { Order::Custom(comparator) }
    }

    /// Compares two keys.
    #[inline]
    pub(super) fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Order::Bytewise => a.cmp(b),
            Order::Custom(comparator) => comparator.compare(a, b),
        }
    }
}
