//! The nodes of the skiplist: how a version, its tower of links and its bytes lie in memory.
//!
//! Place: `skiplist` walks and links nodes through [`Nodes`]; `arena` gives the space.
//!
//! Layout, in bytes from the node's address (8-byte aligned, never stored on disk):
//! ```text
//! -4·(l+1)  link of level l, u32: the unit of the next node, 0 for none; for l < height
//!   0       u32: key length (bits 0-16), height (17-21), kind (22-29), value apart (30)
//!   4       u32: value length
//!   8       u64: LSN
//!  16       u32: the slot of the batch it belongs to, or all ones
//!  20       key, padded with zeros to at least 8 bytes
//!  ...      value; or, if it is apart, a pointer to it
//! ```
//! The tower stands below the header and grows downward, so the links that are read most (levels 0
//! and 1), the header and the first 20 bytes of the key share one cache line, whatever the height.
//! The key's first 8 bytes, read as a big-endian number, order bytewise keys without a call.
//!
//! Invariants:
//! 1. Header, key and value are written before the node is first linked and never again.
//! 2. A link of level l is only ever read by who came to the node on level l or above, or owns the
//!    node while it is not linked there yet. (Until then the link holds a remembered predecessor.)
//! 3. A node lives as long as its arena; there is no removal.
//!
//! Concurrency: links are atomic; all else is published by the Release of the compare-and-swap
//! that links the node and read after the Acquire that found it. Under loom every access to a
//! node's bytes is checked to be ordered that way.
//!
//! Origin: sLSM §2.2.2 (one column of links per node) and §2.2.1 (forward pointers within two cache
//! lines): its 16 links of 8 bytes are 24 of 4 bytes here, and share their two lines with the
//! header. 16 levels hold 2^16 entries well; a memtable may have a thousand times as many.
//! Tests: below, `skiplist_tests`, `loom_tests`; the first two under the sanitizers too.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use super::pool::Pool;
use crate::key::{Kind, Lsn, STORED_KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::sync::atomic::AtomicU32;

/// A link: the unit of the next node on a level.
#[cfg(not(loom))]
pub(super) type Link = AtomicU32;
#[cfg(loom)]
pub(super) use super::loom_shadow::Link;

use super::arena::{Arena, Shape, UNIT_BYTES};

/// A line of the processor's cache.
const LINE_BYTES: usize = 64;
/// Lines that are loaded ahead of a node with its value: of more the processor sees by itself where they go on.
const VALUE_LINES_MAX: usize = 4;
/// Levels of the tallest node.
pub(super) const HEIGHT_MAX: usize = if cfg!(loom) { 3 } else { 24 };
/// The batch field of a version that is no part of a batch.
pub(super) const NO_BATCH: u32 = u32::MAX;
/// Values longer than this lie apart from their node.
const INLINE_VALUE_BYTES_MAX: usize = 32 << 10;

const VALUE_LENGTH: usize = 4;
const LSN: usize = 8;
const BATCH: usize = 16;
const KEY: usize = 20;
const LINK_BYTES: usize = size_of::<AtomicU32>();
/// Bytes of a key that are compared as one number.
pub(super) const PREFIX_BYTES: usize = 8;
/// Bytes of the key that are kept in the header's cache line.
const HOT_KEY_BYTES: usize = 20;

const KEY_LENGTH_BITS: u32 = 17;
const HEIGHT_SHIFT: u32 = KEY_LENGTH_BITS;
const KIND_SHIFT: u32 = HEIGHT_SHIFT + 5;
const APART: u32 = 1 << 30;

const _: () = assert!(STORED_KEY_BYTES_MAX < 1 << KEY_LENGTH_BITS);
const _: () = assert!(HEIGHT_MAX < 1 << (KIND_SHIFT - HEIGHT_SHIFT));
const _: () = assert!(VALUE_BYTES_MAX <= u32::MAX as usize);
const _: () = assert!(align_of::<AtomicU32>() <= UNIT_BYTES);
// sLSM's rule: tower and header of even the tallest node fit in two cache lines.
const _: () = assert!(cfg!(loom) || HEIGHT_MAX * LINK_BYTES + KEY + PREFIX_BYTES <= 128);

/// A node of some [`Nodes`] that live for `'a`: it exists, initialized, for that long.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    address: NonNull<u8>,
    unit: u32,
    nodes: PhantomData<&'a Nodes>,
}

impl Node<'_> {
    /// What a link to this node holds; never 0.
    #[inline]
    pub(super) fn unit(self) -> u32 {
        self.unit
    }

    /// Where its header is, to be loaded soon.
    #[inline]
    pub(super) fn address(self) -> *const u8 {
        self.address.as_ptr()
    }

    #[inline]
    fn field(self, offset: usize) -> *mut u8 {
        self.address.as_ptr().wrapping_add(offset)
    }
}

/// All nodes of one skiplist.
pub(super) struct Nodes {
    pub(super) arena: Arena,
    #[cfg(loom)]
    shadow: super::loom_shadow::Shadow,
}

impl Nodes {
    pub(super) fn new(pool: Arc<Pool>) -> Self {
        Self {
            arena: Arena::new(pool),
            #[cfg(loom)]
            shadow: super::loom_shadow::Shadow::new(),
        }
    }

    /// Makes a node that nobody else knows, without a version; its links are 0.
    ///
    /// # Panics
    /// If key or value are longer than the crate's limits, or the height is not from 1 to
    /// [`HEIGHT_MAX`].
    pub(super) fn create(&self, height: usize, key: &[u8], kind: Kind, value: &[u8]) -> Node<'_> {
        assert!((1..=HEIGHT_MAX).contains(&height), "a node's height is {height}");
        assert!(key.len() <= STORED_KEY_BYTES_MAX, "a key has {} bytes", key.len());
        assert!(value.len() <= VALUE_BYTES_MAX, "a value has {} bytes", value.len());
        let apart = value.len() > INLINE_VALUE_BYTES_MAX;
        let key_room = key.len().max(PREFIX_BYTES);
        let value_room = if apart { size_of::<*const u8>() } else { value.len() };
        let units = |bytes: usize| bytes.div_ceil(UNIT_BYTES) as u32;
        let unit = self.arena.allocate(Shape {
            lead: units(height * LINK_BYTES),
            body: units(KEY + key_room + value_room),
            hot_before: 1,
            hot_after: units(KEY + key_room.min(HOT_KEY_BYTES)),
        });
        // SAFETY: just allocated by this arena.
        let address = unsafe { self.arena.address(unit) };
        let node = Node { address, unit, nodes: PhantomData };
        #[cfg(loom)]
        self.shadow.add(unit);
        let header = key.len() as u32
            | (height as u32) << HEIGHT_SHIFT
            | u32::from(kind as u8) << KIND_SHIFT
            | if apart { APART } else { 0 };
        // SAFETY: every write lies within the space asked for (`lead` before the address, `body`
        // from it on), at its natural alignment where the type has one; nobody else knows the
        // space. Test: nodes_hold_what_they_were_given, under the address sanitizer.
        unsafe {
            for level in 0..height {
                node.link(level).write(AtomicU32::new(0));
            }
            node.field(0).cast::<u32>().write(header);
            node.field(VALUE_LENGTH).cast::<u32>().write(value.len() as u32);
            node.field(LSN).cast::<u64>().write(u64::MAX);
            node.field(BATCH).cast::<u32>().write(NO_BATCH);
            let at = node.field(KEY);
            if key.len() < PREFIX_BYTES {
                at.write_bytes(0, PREFIX_BYTES);
            }
            ptr::copy_nonoverlapping(key.as_ptr(), at, key.len());
            let at = node.field(KEY + key_room);
            if apart {
                at.cast::<*const u8>().write_unaligned(self.arena.allocate_large(value));
            } else {
                ptr::copy_nonoverlapping(value.as_ptr(), at, value.len());
            }
        }
        node
    }

    /// Gives a node its version.
    ///
    /// # Safety
    /// `node` was made by `create` of these nodes, is not linked anywhere yet, and the caller is
    /// the only one who knows it.
    pub(super) unsafe fn set_version(&self, node: Node<'_>, lsn: Lsn, batch: u32) {
        #[cfg(loom)]
        self.shadow.write(node.unit);
        // SAFETY: the fields lie within the node, aligned; nobody reads them yet, as the caller
        // asserts. Test: loom_a_found_version_is_whole.
        unsafe {
            node.field(LSN).cast::<u64>().write(lsn.0);
            node.field(BATCH).cast::<u32>().write(batch);
        }
    }

    /// The node a link names.
    ///
    /// # Safety
    /// `unit` is that of a node of these nodes, whose creation happened before this call.
    #[inline]
    pub(super) unsafe fn node(&self, unit: u32) -> Node<'_> {
        // SAFETY: `create` got the unit from this arena.
        let address = unsafe { self.arena.address(unit) };
        Node { address, unit, nodes: PhantomData }
    }

    /// A link of a node.
    ///
    /// # Safety
    /// `level` is below the node's height.
    #[inline]
    pub(super) unsafe fn link<'a>(&'a self, node: Node<'a>, level: usize) -> &'a Link {
        debug_assert!(level < node.height());
        #[cfg(loom)]
        return self.shadow.link(node.unit, level);
        // SAFETY: the tower has `height` links, each initialized by `create` and aligned.
        // Test: nodes_hold_what_they_were_given, under the address sanitizer.
        #[cfg(not(loom))]
        return unsafe { &*node.link(level) };
    }

    /// Starts to load the line of a node that is read first.
    #[inline]
    pub(super) fn prefetch(&self, node: Node<'_>) {
        crate::sync::prefetch(node.address.as_ptr());
    }

    /// The same of as many lines as `like` takes with its value.
    #[inline]
    pub(super) fn prefetch_like(&self, node: Node<'_>, like: Node<'_>) {
        (0..self.lines(like)).for_each(|line| {
            crate::sync::prefetch(node.address().wrapping_add(line * LINE_BYTES));
        });
    }

    /// Lines of a node with its value, as far as they are worth loading ahead.
    #[inline]
    fn lines(&self, node: Node<'_>) -> usize {
        (KEY + self.key(node).len() + self.value(node).len()).div_ceil(LINE_BYTES).min(VALUE_LINES_MAX)
    }

    /// Starts loading the node after `node` on `level`, which is likely to be looked at soon.
    ///
    /// # Safety
    /// As for [`Nodes::link`], and the caller may read that link: see the module's invariant 2.
    #[inline]
    pub(super) unsafe fn prefetch_next<'a>(&'a self, node: Node<'a>, level: usize) {
        // SAFETY: as the caller asserts.
        unsafe { self.prefetch_lines_of_next(node, level, 1) };
    }

    /// The same for the node after `node` with its value, which is likely to be about as large as this one's.
    ///
    /// # Safety
    /// As for [`Nodes::prefetch_next`], on the lowest level.
    #[inline]
    pub(super) unsafe fn prefetch_next_value<'a>(&'a self, node: Node<'a>) {
        // SAFETY: as the caller asserts.
        unsafe { self.prefetch_lines_of_next(node, 0, self.lines(node)) };
    }

    /// # Safety
    /// As for [`Nodes::prefetch_next`].
    #[inline]
    unsafe fn prefetch_lines_of_next<'a>(&'a self, node: Node<'a>, level: usize, lines: usize) {
        #[cfg(not(any(loom, miri)))]
        {
            // SAFETY: as the caller asserts.
            let unit = unsafe { self.link(node, level) }.load(crate::sync::atomic::Ordering::Acquire);
            if unit != 0 {
                // SAFETY: read from a link, with Acquire.
                let address = unsafe { self.arena.address(unit) }.as_ptr();
                (0..lines).for_each(|line| crate::sync::prefetch(address.wrapping_add(line * LINE_BYTES)));
            }
        }
        #[cfg(any(loom, miri))]
        let _ = (node, level, lines);
    }

    /// The first 8 bytes of the key as a big-endian number; short keys are padded with zeros.
    #[inline]
    pub(super) fn prefix(&self, node: Node<'_>) -> u64 {
        self.checked(node);
        // SAFETY: at least 8 bytes from KEY on are initialized. Test: short_keys_keep_their_order.
        u64::from_be(unsafe { node.field(KEY).cast::<u64>().read_unaligned() })
    }

    /// The user key.
    #[inline]
    pub(super) fn key<'a>(&'a self, node: Node<'a>) -> &'a [u8] {
        self.checked(node);
        // SAFETY: written by `create`, never changed, alive as long as the arena.
        // Test: nodes_hold_what_they_were_given.
        unsafe { slice::from_raw_parts(node.field(KEY), node.key_bytes()) }
    }

    /// The version's LSN.
    #[inline]
    pub(super) fn lsn(&self, node: Node<'_>) -> Lsn {
        self.checked(node);
        // SAFETY: initialized and aligned; written before the node was linked.
        // Test: loom_a_found_version_is_whole.
        Lsn(unsafe { node.field(LSN).cast::<u64>().read() })
    }

    /// The slot of the batch that the version is part of, or [`NO_BATCH`].
    #[inline]
    pub(super) fn batch(&self, node: Node<'_>) -> u32 {
        self.checked(node);
        // SAFETY: as `lsn`.
        unsafe { node.field(BATCH).cast::<u32>().read() }
    }

    /// What the version says.
    #[inline]
    pub(super) fn kind(&self, node: Node<'_>) -> Kind {
        self.checked(node);
        Kind::from_u8((node.header() >> KIND_SHIFT) as u8).expect("written from a Kind")
    }

    /// The value.
    #[inline]
    pub(super) fn value<'a>(&'a self, node: Node<'a>) -> &'a [u8] {
        self.checked(node);
        let at = node.field(KEY + node.key_bytes().max(PREFIX_BYTES));
        // SAFETY: `create` wrote the value, or the pointer to it, behind the key's room, and its
        // length; neither changes while the arena lives. Test: nodes_hold_what_they_were_given.
        unsafe {
            let bytes = node.field(VALUE_LENGTH).cast::<u32>().read() as usize;
            let start = if node.header() & APART != 0 { at.cast::<*const u8>().read_unaligned() } else { at };
            slice::from_raw_parts(start, bytes)
        }
    }

    /// Levels the node is linked on, or will be.
    #[inline]
    pub(super) fn height(&self, node: Node<'_>) -> usize {
        node.height()
    }

    /// Under loom: objects unless the node's last write happens before this read.
    #[inline]
    fn checked(&self, node: Node<'_>) {
        #[cfg(loom)]
        self.shadow.read(node.unit);
        #[cfg(not(loom))]
        let _ = node;
    }
}

impl Node<'_> {
    #[inline]
    fn link(self, level: usize) -> *mut AtomicU32 {
        self.address.as_ptr().wrapping_sub((level + 1) * LINK_BYTES).cast()
    }

    #[inline]
    fn header(self) -> u32 {
        // SAFETY: a `Node` stands for an initialized node; the header never changes.
        // Test: nodes_hold_what_they_were_given.
        unsafe { self.field(0).cast::<u32>().read() }
    }

    #[inline]
    fn key_bytes(self) -> usize {
        (self.header() & ((1 << KEY_LENGTH_BITS) - 1)) as usize
    }

    #[inline]
    fn height(self) -> usize {
        (self.header() >> HEIGHT_SHIFT & ((1 << (KIND_SHIFT - HEIGHT_SHIFT)) - 1)) as usize
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::atomic::Ordering;

    #[test]
    fn nodes_hold_what_they_were_given() {
        let nodes = Nodes::new(Arc::default());
        let bytes = |n: usize, salt: usize| (0..n).map(|i| (i * 31 + salt) as u8).collect::<Vec<u8>>();
        let mut made = Vec::new();
        for (i, key_bytes) in [0, 1, 7, 8, 9, 20, 21, 300, STORED_KEY_BYTES_MAX].into_iter().enumerate() {
            for (j, value_bytes) in
                [0, 1, 100, INLINE_VALUE_BYTES_MAX, INLINE_VALUE_BYTES_MAX + 1].into_iter().enumerate()
            {
                let kind = if value_bytes == 0 { Kind::Delete } else { Kind::Put };
                let height = 1 + (i * 5 + j) % HEIGHT_MAX;
                let (key, value) = (bytes(key_bytes, i), bytes(value_bytes, j));
                let node = nodes.create(height, &key, kind, &value);
                for level in 0..height {
                    // SAFETY: below the height.
                    unsafe { nodes.link(node, level) }.store(level as u32 + 77, Ordering::Relaxed);
                }
                // SAFETY: never linked.
                unsafe { nodes.set_version(node, Lsn(made.len() as u64), i as u32) };
                made.push((node, key, value, kind, height, i as u32));
            }
        }
        for (lsn, (node, key, value, kind, height, batch)) in made.iter().enumerate() {
            let node = *node;
            assert_eq!(nodes.key(node), key);
            assert_eq!(nodes.value(node), value);
            assert_eq!(nodes.kind(node), *kind);
            assert_eq!(nodes.height(node), *height);
            assert_eq!(nodes.batch(node), *batch);
            assert_eq!(nodes.lsn(node), Lsn(lsn as u64));
            for level in 0..*height {
                // SAFETY: below the height.
                assert_eq!(unsafe { nodes.link(node, level) }.load(Ordering::Relaxed), level as u32 + 77);
            }
        }
    }

    #[test]
    fn the_prefix_orders_as_the_bytes_do() {
        let nodes = Nodes::new(Arc::default());
        let prefix = |key: &[u8]| nodes.prefix(nodes.create(1, key, Kind::Put, b"v"));
        assert_eq!(prefix(b""), 0);
        assert_eq!(prefix(b"a"), 0x6100_0000_0000_0000);
        assert!(prefix(b"abcdefgh") < prefix(b"abcdefgi"));
        assert!(prefix(b"\xff") > prefix(b"\x7fzzzzzzzzz"));
        assert_eq!(prefix(b"abcdefgh1"), prefix(b"abcdefgh2"));
    }

    #[test]
    fn low_links_header_and_short_key_share_a_cache_line() {
        let nodes = Nodes::new(Arc::default());
        for i in 0..500 {
            let key = vec![b'k'; i % 21];
            let node = nodes.create(1 + i % HEIGHT_MAX, &key, Kind::Put, &vec![0; i % 113]);
            let first = node.address.addr().get() - 2 * LINK_BYTES;
            let last = node.address.addr().get() + KEY + key.len().max(PREFIX_BYTES) - 1;
            assert_eq!(first / 64, last / 64, "key of {} bytes", key.len());
        }
    }

    #[test]
    #[should_panic(expected = "a key has")]
    fn a_key_beyond_the_limit_is_refused() {
        Nodes::new(Arc::default()).create(1, &vec![0; STORED_KEY_BYTES_MAX + 1], Kind::Put, b"");
    }
}
