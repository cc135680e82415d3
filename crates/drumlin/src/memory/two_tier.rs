//! The protocol of the two tiers: how versions come into the hash, and how they go on to the list.
//!
//! Place: a part of `memtable`, where a keyspace asks for it. It calls `membuffer`, `backlog`, `skiplist` and `filter`.
//!
//! A node is written once, in the memtable's arena, and never copied on its way: the hash has its unit, and later the list links
//! it. A put searches nothing; the search is the mover's, who takes what came in meanwhile in the order of the keys and goes
//! on from one to the next ([`SkipList::insert_behind`]).
//!
//! - *Publishing.* The key's version takes the slot of the one before. That one is garbage then, unless it is on its way into the
//!   list or there already, or some read may need it: a snapshot that is registered and above it, or, under a batch that is not
//!   committed yet, any get. For these a copy goes into the list first. Where no slot is to be had, the version goes into the
//!   list itself.
//!   The same once the hash did not pay (`payoff`): then keys get no slots any more, and a write finds its place beforehand.
//! - *Settling.* Whoever walks the list has what was noted put into it first, part by part of the order as it comes there: a
//!   scan has what it needs below its snapshot. What comes in later is above the snapshot, and what it displaces is copied. (A flush,
//!   when nobody writes any more, sorts the notes and walks them beside the list: `flush_cursor`.) Several movers take each what the others have not claimed; of what
//!   they have claimed and not put in when all else is done, a copy is put in.
//!
//! Invariants:
//! 1. Of a key's versions here that one is in the slot that has the highest LSN, if the key has a slot; all others that
//!    anybody may ask for are in the list.
//! 2. Every slot that is fresh has a note in the backlog that is not done, from before its write is complete. It turns fresh
//!    from nobody's, claimed or sorted with a note, from fresh without.
//! 3. A version is linked by at most one thread: by who claimed its slot; copies are nodes of their own. So the list may have
//!    a version twice or more, with one LSN and the same bytes, where copies were made of what a mover had claimed.
//! 4. Insert right, then remove left (I3): a slot turns sorted after its node is in the list, and only then goes to another key.
//!
//! Concurrency: `publish` is called under the key's lock (I1), everything else by anybody at any time. Nobody waits for a mover
//! that stands still: not a get, nor a writer that displaces what it has claimed, nor another mover (both copy).
//! A get that finds no slot goes to the list. Had the key a slot when it began, that slot was taken from it meanwhile: the
//! compare-and-swap that did so came after `sorted`, and that after the link (Release); the get saw what came of it
//! (Acquire), so it finds the link.
//!
//! Linearization: a put when its unit is in the slot.
//!
//! Origin: FloDB §3.2, §4.2 and Algorithm 2. There entries are copied from tier to tier, get their sequence number on the
//! way, and scans drain everything and start again when a writer was faster: docs/papers/flodb.md says why not here.
//! Tests: `two_tier_tests`, `loom_tests`, tests/two_tier_model.rs, and all that `db` tests, under both memories.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use crate::budget::{Account, Charge};
use crate::key::{KeyHasher, Lsn};
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::sync::{CachePadded, Mutex, failpoint};

use super::backlog::{Backlog, Due};
use super::filter::KeyFilter;
use super::membuffer::{Membuffer, State, Word};
use super::multi_insert::Near;
use super::node::Node;
use super::notes::{Note, Notes};
use super::payoff::{Moved, Payoff};
use super::pool::Pool;
use super::skiplist::SkipList;
use super::splits::Splits;

/// Slots so far ahead of the mover are loaded already, and the nodes so far ahead that they will be asked for.
const SLOTS_AHEAD: usize = 16;
const NODES_AHEAD: usize = 8;

/// The sorted tier of the memtable that the tier is a part of.
#[derive(Clone, Copy)]
pub(super) struct Sorted<'a> {
    pub(super) list: &'a SkipList,
    /// Knows every key of the list, from before it comes there.
    pub(super) filter: &'a KeyFilter,
    pub(super) hasher: KeyHasher,
}

impl Sorted<'_> {
    fn prefetch_filter(&self, node: Node<'_>) {
        self.filter.prefetch(self.hasher.hash(self.list.nodes.key(node)));
    }

    fn know(&self, node: Node<'_>) {
        self.filter.add(self.hasher.hash(self.list.nodes.key(node)));
    }
}

/// What is to be put into the list.
#[must_use = "what was seen to is settled"]
pub struct Unsettled {
    /// Of which list.
    list: u64,
    due: Vec<Due>,
    positions: Vec<u32>,
}

impl Unsettled {
    /// How many versions it may be.
    pub fn len(&self) -> usize {
        self.positions.len()
    }
}

/// What the hash holds of a part, in order.
pub(super) struct Held {
    notes: Notes,
    _charge: Charge,
}

impl Held {
    pub(super) fn notes(&self) -> &[Note] {
        self.notes.all()
    }
}

/// The hash tier of one memtable.
pub(super) struct TwoTier {
    buffer: Membuffer,
    backlog: Backlog,
    /// What is sorted goes into the list behind one another; for comparison, by a search for each.
    near: bool,
    /// Bytes that the list's nodes come to at most; 0 if nobody knows.
    list_bytes_max: usize,
    /// Whether a background mover has enough to do: one of the following.
    drain: CachePadded<AtomicU32>,
    payoff: Payoff,
    account: Arc<Account>,
    /// Versions of which the list may have two.
    copies: AtomicUsize,
    /// Nodes that a flush met, as far apart; none before.
    sample: Mutex<Vec<u32>>,
}

/// Parts that a background mover settles before it looks whether something else is more urgent.
const DRAINED_AT_ONCE: usize = 8;
/// A mover looks at the order of so many of what it takes.
const LOOKED_AT: usize = 64;

/// It has not.
const NOT_WORTH: u32 = 0;
/// It has, and nobody was told.
const WORTH: u32 = 1;
/// It has, and was told.
const TOLD: u32 = 2;

impl TwoTier {
    /// An empty tier that may get so many keys, whose table has at most so many bytes.
    pub(super) fn new(
        keys: usize,
        bytes_max: usize,
        splits: Arc<Splits>,
        shards: usize,
        pool: &Arc<Pool>,
    ) -> TwoTier {
        let account = pool.account();
        TwoTier {
            buffer: Membuffer::new(keys, bytes_max, Arc::clone(pool)),
            backlog: Backlog::new(splits, shards, Arc::clone(account)),
            near: true,
            list_bytes_max: 0,
            drain: CachePadded::new(AtomicU32::new(NOT_WORTH)),
            payoff: Payoff::default(),
            account: Arc::clone(account),
            copies: AtomicUsize::new(0),
            sample: Mutex::default(),
        }
    }

    /// See the field.
    pub(super) fn with_searches_near(self, near: bool) -> TwoTier {
        TwoTier { near, ..self }
    }

    /// See the field.
    pub(super) fn with_list_bytes_max(self, list_bytes_max: usize) -> TwoTier {
        TwoTier { list_bytes_max, ..self }
    }

    /// Starts to load what the other functions read first.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.buffer.prefetch(hash);
    }

    /// True if a key of this hash may have a slot.
    #[inline]
    pub(super) fn may_know(&self, hash: u64) -> bool {
        self.buffer.may_know(hash)
    }

    /// The version in the key's slot.
    #[inline]
    pub(super) fn newest<'a>(&self, list: &'a SkipList, key: &[u8], hash: u64) -> Option<Node<'a>> {
        // SAFETY: a slot holds units of this list's nodes only, published with Release, seen with Acquire.
        // Test: two_tier_tests, loom_a_version_in_a_slot_is_whole.
        let node = |unit| unsafe { list.node(unit) };
        let (_, word) = self.buffer.find(hash, |unit| list.is_key(node(unit), key))?;
        Some(node(word.unit()))
    }

    /// True once the hash did not pay: from then on no key gets a slot that has none.
    #[inline]
    pub(super) fn stands_aside(&self) -> bool {
        self.payoff.is_lost()
    }

    /// Puts a node that has its version into a slot. False if there is none: then it belongs into the list. The caller holds the
    /// key's lock. `needed_below`: reads at or below this may still ask for the version that is displaced, if it is below.
    pub(super) fn publish(&self, sorted: Sorted<'_>, node: Node<'_>, hash: u64, needed_below: Lsn) -> bool {
        let list = sorted.list;
        let key = list.nodes.key(node);
        // SAFETY: as in `newest`.
        let node_of = |unit| unsafe { list.node(unit) };
        let mut copied = false;
        loop {
            let Some((slot, seen)) = self.buffer.find(hash, |unit| list.is_key(node_of(unit), key)) else {
                if self.stands_aside() {
                    return false;
                }
                let Some(slot) = self.buffer.take(hash, node.unit()) else { return false };
                self.note(key, slot.position());
                return true;
            };
            let displaced = node_of(seen.unit());
            if !copied && !seen.is(State::Sorted) && list.nodes.lsn(displaced) < needed_below {
                // Not the node itself, which a mover may have claimed: nobody waits for it.
                self.copy(sorted, displaced);
                copied = true;
            }
            if slot.replace(seen, node.unit()) {
                if !seen.is(State::Fresh) {
                    self.note(key, slot.position());
                } else if !copied {
                    self.payoff.displaced(list.nodes.lsn(node));
                }
                return true;
            }
            // The mover changed its state, or, once it was sorted, another key took the slot.
        }
    }

    #[inline]
    fn note(&self, key: &[u8], position: u32) {
        if self.backlog.note(key, position) && self.drain.load(Ordering::Relaxed) == NOT_WORTH {
            self.drain.store(WORTH, Ordering::Relaxed);
        }
    }

    /// True for one who asks, when there is enough for a background mover to do.
    #[inline]
    pub(super) fn is_first_to_tell_of_a_drain(&self) -> bool {
        self.drain.load(Ordering::Relaxed) == WORTH
            && self.drain.compare_exchange(WORTH, TOLD, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// True if there is enough for a background mover to do.
    pub(super) fn is_drain_due(&self) -> bool {
        self.drain.load(Ordering::Relaxed) != NOT_WORTH
    }

    /// Settles some of the parts that have enough to be worth it; what is left is due then.
    pub(super) fn drain(&self, sorted: Sorted<'_>) {
        // Before the look: what is noted behind it tells again.
        self.drain.store(NOT_WORTH, Ordering::Relaxed);
        let mut parts = (0..self.splits().parts()).filter(|part| self.backlog.is_worth_sorting(*part));
        parts.by_ref().take(DRAINED_AT_ONCE).for_each(|part| self.settle_due(sorted, part));
        if parts.next().is_some() {
            self.drain.store(TOLD, Ordering::Relaxed);
        }
    }

    /// Puts a copy of a version into the list.
    #[cold]
    fn copy(&self, sorted: Sorted<'_>, of: Node<'_>) {
        let list = sorted.list;
        let nodes = &list.nodes;
        let (kind, value) = (nodes.kind(of), nodes.value(of));
        let copy = list.new_version(nodes.key(of), kind, value, nodes.lsn(of), nodes.batch(of));
        sorted.know(copy);
        // Before it is there: whoever counts it knows that it may count twice.
        self.copies.fetch_add(1, Ordering::Relaxed);
        list.insert_unlinked(copy);
    }

    /// So many versions may be in the list twice.
    pub(super) fn copies(&self) -> usize {
        self.copies.load(Ordering::Relaxed)
    }

    /// Allocates what later writes need. Behind the locks of a write.
    #[inline]
    pub(super) fn grow_if_due(&self, list: &SkipList) {
        self.buffer.grow_if_due(|keys| keys.saturating_mul(self.list_bytes_max) / list.bytes().max(1));
    }

    /// Where the parts are that are settled by themselves.
    #[inline]
    pub(super) fn splits(&self) -> &Splits {
        self.backlog.splits()
    }

    /// Puts into the list what was noted in a part before the call, and maybe more. O(n log n) of what is not there; waits for
    /// nobody.
    #[inline]
    pub(super) fn settle(&self, sorted: Sorted<'_>, part: usize) {
        if self.backlog.left(part) != 0 {
            self.settle_due(sorted, part);
        }
    }

    #[cold]
    fn settle_due(&self, sorted: Sorted<'_>, part: usize) {
        let unsettled = self.unsettled(sorted.list, part..part + 1);
        self.settle_share(sorted, &unsettled, 0, 1);
        self.settled(sorted.list, unsettled);
    }

    /// What was noted in some parts and is not seen to.
    pub(super) fn unsettled(&self, list: &SkipList, parts: Range<usize>) -> Unsettled {
        let mut positions = Vec::new();
        let due = parts.map(|part| self.backlog.due(part, &mut positions)).collect();
        Unsettled { list: list.id(), due, positions }
    }

    /// Puts the n-th of so many shares of it into the list. Others may do so with other shares.
    pub(super) fn settle_share(&self, sorted: Sorted<'_>, unsettled: &Unsettled, n: usize, shares: usize) {
        assert_eq!(unsettled.list, sorted.list.id(), "what is settled is of this memtable");
        let positions = &unsettled.positions;
        let place = |n: usize| positions.len() * n / shares;
        self.sort_in(sorted, &positions[place(n)..place(n + 1)], (n, shares));
    }

    /// All shares were put in.
    pub(super) fn settled(&self, list: &SkipList, unsettled: Unsettled) {
        assert_eq!(unsettled.list, list.id(), "what is settled is of this memtable");
        unsettled.due.into_iter().for_each(|due| self.backlog.done(due));
    }

    /// Versions that are in the hash only, about; 0 only if all that was noted before is in the list. O(shards and parts).
    pub(super) fn unsorted(&self) -> usize {
        (0..self.splits().parts()).map(|part| self.backlog.left(part)).sum()
    }

    /// True if nothing ever came here.
    pub(super) fn is_empty(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Moves what the slots at these positions hold, in the order of the keys: from that part of the way on, and then from the
    /// beginning. Those who move at once what came in no order then meet where it is thinly populated, not at every node.
    fn sort_in(&self, sorted: Sorted<'_>, positions: &[u32], (n, of): (usize, usize)) {
        let list = sorted.list;
        // SAFETY: as in `newest`.
        let node_of = |unit| unsafe { list.node(unit) };
        let mut notes = Notes::with_capacity(list, positions.len());
        let _charge = self.account.charge(positions.len() * (Note::BYTES + size_of::<u32>()));
        let mut claimed_by_others = Vec::new();
        for (at, &position) in positions.iter().enumerate() {
            let Some(word) = self.slot_ahead(list, positions, at) else { continue };
            if word.is(State::Fresh) {
                notes.add(list, node_of(word.unit()), position);
            } else if word.is(State::Claimed) {
                claimed_by_others.push(position);
            }
        }
        let mut moved = self.look(list, &notes);
        notes.sort(list);
        let mut near = Near::NOWHERE;
        let begin = notes.len() * n / of;
        for (at, note) in (begin..notes.len()).chain(0..begin).map(|at| (at, notes.all()[at])) {
            if let Some(soon) = notes.all().get(at + SLOTS_AHEAD) {
                self.buffer.slot(soon.number()).prefetch();
                list.nodes.prefetch(notes.node(list, *soon));
            }
            if let Some(soon) = notes.all().get(at + NODES_AHEAD) {
                sorted.prefetch_filter(notes.node(list, *soon));
            }
            match self.move_on(sorted, &mut near, note.number(), &mut moved) {
                Some(word) if word.is(State::Claimed) => claimed_by_others.push(note.number()),
                _ => {}
            }
        }
        self.payoff.moved(moved);
        for position in claimed_by_others {
            // Sorted by now, or displaced, in nearly all cases.
            if let Some(word) = self.buffer.slot(position).load().filter(|word| word.is(State::Claimed)) {
                self.copy(sorted, node_of(word.unit()));
            }
        }
    }

    /// What slots hold that was noted in a part and is not known to be in the list, sorted: once nobody writes any more. O(n log n).
    pub(super) fn held(&self, list: &SkipList, part: usize) -> Held {
        let mut positions = Vec::new();
        // Not settled: others may do that meanwhile.
        let _ = self.backlog.due(part, &mut positions);
        let mut charge = self.account.charge(positions.len() * (Note::BYTES + size_of::<u32>()));
        let mut notes = Notes::with_capacity(list, positions.len());
        for (at, &position) in positions.iter().enumerate() {
            // SAFETY: as in `newest`.
            let node_of = |word: Word| unsafe { list.node(word.unit()) };
            let Some(node) = self.slot_ahead(list, &positions, at).map(node_of) else { continue };
            // A slot may have gone to a key of another part, which has a note of it.
            if self.splits().part_of(list.nodes.key(node)) == part {
                notes.add(list, node, position);
            }
        }
        let looked = self.look(list, &notes);
        let versions = notes.len() as u64;
        // No search for any of them.
        self.payoff.moved(Moved { versions, near: versions, ..looked });
        notes.sort(list);
        drop(positions);
        charge.set(notes.capacity() * Note::BYTES);
        Held { notes, _charge: charge }
    }

    /// Keeps nodes that a flush met, in place of those of an earlier try.
    pub(super) fn keep_sample(&self, nodes: Vec<u32>) {
        *self.sample.lock() = nodes;
    }

    /// Keys that were flushed, as far apart, if they were.
    pub(super) fn sample<'a>(&self, list: &'a SkipList) -> Option<Vec<&'a [u8]>> {
        let sample = self.sample.lock();
        // SAFETY: as in `newest`.
        let key = |unit: &u32| list.nodes.key(unsafe { list.node(*unit) });
        (!sample.is_empty()).then(|| sample.iter().map(key).collect())
    }

    /// What is in the slot at one of the positions; starts to load what those behind lead to.
    #[inline]
    fn slot_ahead(&self, list: &SkipList, positions: &[u32], at: usize) -> Option<Word> {
        if let Some(soon) = positions.get(at + SLOTS_AHEAD) {
            self.buffer.slot(*soon).prefetch();
        }
        let soon = positions.get(at + NODES_AHEAD);
        if let Some(word) = soon.and_then(|soon| self.buffer.slot(*soon).load()) {
            // SAFETY: as in `newest`.
            list.nodes.prefetch(unsafe { list.node(word.unit()) });
        }
        self.buffer.slot(positions[at]).load()
    }

    /// Of the notes as they came: how many were looked at, and how many of them came behind the one before.
    fn look(&self, list: &SkipList, notes: &Notes) -> Moved {
        let looked_at = &notes.all()[..notes.len().min(LOOKED_AT)];
        let key = |note| notes.key(list, note);
        // Those of several parts are in the order of the parts.
        let part = |note| self.splits().part_of(key(note));
        let pairs = || looked_at.windows(2).filter(|pair| part(pair[0]) == part(pair[1]));
        let is_in_order = |pair: &&[Note]| list.comparator().compare(key(pair[0]), key(pair[1])).is_le();
        Moved {
            looked_at: pairs().count() as u64,
            in_order: pairs().filter(is_in_order).count() as u64,
            ..Moved::default()
        }
    }

    /// Whether it was worth it that versions came here before they came into the list; `None` if they were too few to say.
    pub(super) fn paid(&self) -> Option<bool> {
        self.payoff.paid()
    }

    /// Puts the version that a slot holds now into the list. What else it held, if it was not this thread's to move.
    fn move_on<'l>(
        &self,
        sorted: Sorted<'l>,
        near: &mut Near<'l>,
        position: u32,
        moved: &mut Moved,
    ) -> Option<Word> {
        let list = sorted.list;
        let slot = self.buffer.slot(position);
        loop {
            // The version of the moment: what was there when the notes were sorted may have been displaced, and, once it was
            // sorted by somebody else, another key may be there, out of the order.
            let word = slot.load()?;
            if !word.is(State::Fresh) {
                return Some(word);
            }
            if slot.turn(word, State::Claimed) {
                // SAFETY: as in `newest`.
                let node = unsafe { list.node(word.unit()) };
                failpoint::hit("two_tier::claimed");
                moved.versions += 1;
                sorted.know(node);
                if self.near {
                    moved.near += u64::from(list.insert_behind(near, node));
                } else {
                    list.insert_unlinked(node);
                }
                // Displaced meanwhile, it is in the list all the same.
                slot.turn(word.with(State::Claimed), State::Sorted);
                return None;
            }
        }
    }

    /// Keys that came here, about.
    pub(super) fn keys(&self) -> usize {
        self.buffer.keys()
    }

    /// Bytes of the table and of the notes.
    pub(super) fn bytes(&self) -> usize {
        self.buffer.bytes() + self.backlog.bytes()
    }
}

#[cfg(all(test, not(loom)))]
impl TwoTier {
    pub(super) fn table_bytes(&self) -> usize {
        self.buffer.bytes()
    }

    /// What a mover does first.
    pub(super) fn claim_for_test(&self, list: &SkipList, key: &[u8], hash: u64) -> u32 {
        // SAFETY: as in `newest`.
        let is_key = |unit| list.is_key(unsafe { list.node(unit) }, key);
        let (slot, word) = self.buffer.find(hash, is_key).expect("it has a slot");
        assert!(word.is(State::Fresh) && slot.turn(word, State::Claimed));
        word.unit()
    }

    /// What it does then.
    pub(super) fn move_for_test(&self, list: &SkipList, unit: u32) {
        // SAFETY: as in `newest`.
        list.insert_unlinked(unsafe { list.node(unit) });
    }
}
