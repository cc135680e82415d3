//! A model of the two-tier memory's protocol, explored state by state: what commits, what the hash tier does in place, what
//! a mover, a scan and a flush take over, and the turn of a generation.
//!
//! Place: beside the code, which it does not call. It answers for the steps' order, as `memory::loom_tests` does for the memory
//! orderings of their accesses.
//!
//! Every interleaving of each program below is followed to its end, each state once, over sequentially consistent memory. A step
//! is one access to what others may see; a search or an insert of the list is one step, and P is taken as the truth
//! (`commit::loom_tests` has its computation). Operations begin with their first step and end with their last, which is
//! the strictest history that they can have; each different history is checked against a map.
//!
//! What it was made for: the protocol as it was written down first has a lock in each bucket, so that a writer in a new
//! generation waits until the one before is quiet. Here every write holds its key's lock, whatever the generation, and nobody
//! waits; a slot is changed by compare-and-swap; and whoever needs the list whole helps whoever is moving versions there.
//!
//! It is long for one file: state, steps, judge and programs are read as one piece, and no other test has a use for any of them.
//!
//! The flaws below are steps left out. Each is found by the program beside it, or the model would not tell.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashSet};
use std::hash::{Hash, Hasher};

type Lsn = u8;

const X: u8 = 0;
const Y: u8 = 1;
const KEYS: usize = 2;
/// What `newest` is while a snapshot is being taken.
const TAKING: Lsn = Lsn::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Put(u8),
    /// A read-modify-write.
    Update(u8),
    /// Of both keys.
    Batch,
    Get(u8),
    /// Of both keys, at a linearizable snapshot.
    Scan,
    /// Moves what generation 0 has in its hash.
    Settle,
    /// Announces generation 1 and opens its first log segment.
    Turn,
    /// Of generation 0.
    Flush,
}

use Operation::{Batch, Flush, Get, Put, Scan, Settle, Turn, Update};

/// A step left out, or done in the wrong order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// What a snapshot needs is displaced.
    NoCopy,
    /// What a mover has claimed is taken to be in the list.
    ClaimedIsNotCopied,
    /// The old version under a part of a batch is displaced.
    NoCopyUnderABatch,
    /// A version that takes the place of a claimed one is not noted.
    ClaimedIsNotNoted,
    /// A new slot is noted after the write is complete.
    LateNote,
    /// A slot is given to another key while its version is on its way into the list.
    ClaimedIsTaken,
    /// A slot turns sorted before the list has its version.
    SortedFirst,
    /// What another mover has claimed counts as moved.
    NoHelp,
    /// A scan does not settle.
    ScanDoesNotSettle,
    /// A flush walks the list alone.
    FlushTakesNoNotes,
    /// What a mover has claimed is taken to be in the list by a flush.
    FlushTakesFreshSlotsOnly,
    /// A flush looks into the list before it takes notes.
    FlushLooksIntoTheListFirst,
    /// The newest snapshot is read before the LSN is drawn.
    EarlyGate,
    /// No later write waits for a snapshot.
    NoGate,
    /// A put takes no lock.
    PutTakesNoLock,
    /// An update looks in the list only.
    UpdateIgnoresSlots,
    /// The generation is chosen before the LSN.
    OldGeneration,
    /// A get looks into the list first.
    ListFirst,
    /// The read point of a scan is the completed prefix, read when it is registered.
    PrefixSnapshot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Version {
    key: u8,
    lsn: Lsn,
    /// The writer, if it is a part of a batch.
    batch: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Fresh,
    Claimed,
    Sorted,
}

type Slot = Option<(Version, Phase)>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Generation {
    slots: Vec<Slot>,
    list: BTreeSet<Version>,
    notes: Vec<u8>,
    /// Notes that were seen to.
    moved: u8,
}

impl Generation {
    /// The newest version of a key in the list that is below a bound and is not passed over.
    fn listed(&self, key: u8, below: Lsn, passed: impl Fn(Version) -> bool) -> Option<Version> {
        newest(&self.list, key, below, passed)
    }
}

/// The newest of a key's versions below a bound that is not passed over.
fn newest(of: &BTreeSet<Version>, key: u8, below: Lsn, passed: impl Fn(Version) -> bool) -> Option<Version> {
    of.iter().rev().copied().find(|v| v.key == key && v.lsn < below && !passed(*v))
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    Begin,
    // Reading.
    LookInSlot,
    LookInList,
    LookOnDisk,
    // Writing.
    Lock,
    Draw,
    Gate,
    GateWait,
    Find,
    Found,
    Replace,
    Take,
    Note,
    Commit,
    NoteLate,
    Unlock,
    // Taking a snapshot.
    Register,
    WaitForPrefix,
    // Settling.
    SettleStart,
    SettleNote,
    SettleInsert,
    SettleTurn,
    SettleHelp,
    SettleEnd,
    Walk,
    Release,
    // Turning and flushing.
    Open,
    ListSnapshots,
    HoldStart,
    HoldNote,
    CopyToDisk,
    Install,
}

/// A thread's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Thread {
    /// Operations done.
    done: u8,
    next: Next,
    key: u8,
    generation: u8,
    slot: u8,
    seen: Slot,
    lsn: Lsn,
    /// Reads see below.
    below: Lsn,
    needed_below: Lsn,
    copied: bool,
    locked: bool,
    /// What the SuperVersion showed: a bit for each generation.
    view: u8,
    read: [Lsn; KEYS],
    note: u8,
    end: u8,
    claimed_by_others: Vec<u8>,
    snapshots: Vec<Lsn>,
    /// What a flush has met.
    met: BTreeSet<Version>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Event {
    thread: u8,
    operation: u8,
    /// At its end.
    outcome: Option<(Lsn, [Lsn; KEYS])>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    tail: Lsn,
    /// The first log segment of generation 1 is open.
    open: bool,
    generations: [Generation; 2],
    view: u8,
    disk: BTreeSet<Version>,
    locks: [bool; KEYS],
    in_flight: Vec<Option<Lsn>>,
    snapshot_mutex: bool,
    newest: Lsn,
    registered: Vec<Lsn>,
    threads: Vec<Thread>,
    history: Vec<Event>,
}

/// What runs side by side, and on what.
struct Program {
    threads: &'static [&'static [Operation]],
    /// Slots of a generation: one bucket.
    slots: usize,
    /// Keys that have a version in the hash at first.
    fresh: &'static [u8],
    /// Keys whose version is in the list, too.
    sorted: &'static [u8],
    /// The first LSN of generation 1 comes so many after those.
    border: Lsn,
}

const NO_BORDER: Lsn = 100;

impl Program {
    fn start(&self) -> (State, [Lsn; KEYS]) {
        let mut map = [0; KEYS];
        let mut first = Generation { slots: vec![None; self.slots], ..Default::default() };
        let mut tail = 1;
        for (phase, keys) in [(Phase::Fresh, self.fresh), (Phase::Sorted, self.sorted)] {
            for &key in keys {
                let version = Version { key, lsn: tail, batch: None };
                let slot = first.slots.iter().position(Option::is_none).expect("there are slots enough");
                first.slots[slot] = Some((version, phase));
                match phase {
                    Phase::Fresh => first.notes.push(slot as u8),
                    _ => drop(first.list.insert(version)),
                }
                map[key as usize] = tail;
                tail += 1;
            }
        }
        let thread = Thread {
            done: 0,
            next: Next::Begin,
            key: 0,
            generation: 0,
            slot: 0,
            seen: None,
            lsn: 0,
            below: 0,
            needed_below: 0,
            copied: false,
            locked: false,
            view: 0,
            read: [0; KEYS],
            note: 0,
            end: 0,
            claimed_by_others: Vec::new(),
            snapshots: Vec::new(),
            met: BTreeSet::new(),
        };
        let second = Generation { slots: vec![None; self.slots], ..Default::default() };
        let state = State {
            tail,
            open: false,
            generations: [first, second],
            view: 1,
            disk: BTreeSet::new(),
            locks: [false; KEYS],
            in_flight: vec![None; self.threads.len()],
            snapshot_mutex: false,
            newest: 0,
            registered: Vec::new(),
            threads: vec![thread; self.threads.len()],
            history: Vec::new(),
        };
        (state, map)
    }

    fn border(&self) -> Lsn {
        1 + (self.fresh.len() + self.sorted.len()) as Lsn + self.border
    }
}

impl State {
    /// Every LSN below is installed.
    fn completed(&self) -> Lsn {
        self.in_flight.iter().flatten().copied().min().unwrap_or(self.tail).min(self.tail)
    }

    fn is_uncommitted(&self, version: Version) -> bool {
        version.batch.is_some_and(|writer| self.in_flight[writer as usize] == Some(version.lsn))
    }

    /// The state after the thread's next step, or nothing if it has to wait or is done.
    fn step(&self, program: &Program, flaw: Flaw, number: usize) -> Option<State> {
        let operation = *program.threads[number].get(self.threads[number].done as usize)?;
        let mut state = self.clone();
        // Borrowed beside the rest of the state.
        let mut t = state.threads[number].clone();
        if t.next == Next::Begin {
            t.key = match operation {
                Put(key) | Update(key) | Get(key) => key,
                _ => X,
            };
            let event = Event { thread: number as u8, operation: t.done, outcome: None };
            match operation {
                Settle | Turn | Flush => {}
                _ => state.history.push(event),
            }
        }
        let ended = state.advance(program, flaw, operation, number, &mut t)?;
        if ended {
            if !matches!(operation, Settle | Turn | Flush) {
                let outcome = Some((t.lsn, t.read));
                state.history.push(Event { thread: number as u8, operation: t.done, outcome });
            }
            let done = t.done + 1;
            t = Thread { done, ..program.start().0.threads[0].clone() };
        }
        state.threads[number] = t;
        Some(state)
    }

    /// One step. `None`: it waits. True: the operation is at its end.
    fn advance(
        &mut self,
        program: &Program,
        flaw: Flaw,
        operation: Operation,
        number: usize,
        t: &mut Thread,
    ) -> Option<bool> {
        let generation = t.generation as usize;
        let is_batch = operation == Batch;
        t.next = match t.next {
            Next::Begin => match operation {
                Put(_) | Batch => return self.advance(program, flaw, operation, number, at(t, Next::Lock)),
                Update(_) | Get(_) => {
                    t.below = Lsn::MAX;
                    self.look(t, flaw);
                    t.next
                }
                Scan => {
                    if self.snapshot_mutex {
                        return None;
                    }
                    self.snapshot_mutex = true;
                    self.newest = TAKING;
                    Next::Register
                }
                Settle => return self.advance(program, flaw, operation, number, at(t, Next::SettleStart)),
                Turn => {
                    self.view |= 2;
                    Next::Open
                }
                Flush => {
                    if !self.open || self.completed() < program.border() {
                        return None;
                    }
                    Next::ListSnapshots
                }
            },

            // Gets, and what an update reads before it has the lock and under it.
            Next::LookInSlot => {
                let slot = self.generations[generation].slots.get(t.slot as usize).copied();
                match slot {
                    None if flaw == Flaw::ListFirst => {
                        self.next_part(t, flaw);
                        t.next
                    }
                    None => Next::LookInList,
                    Some(Some((version, _))) if version.key == t.key => {
                        if self.is_uncommitted(version) {
                            Next::LookInList
                        } else {
                            return self.found(operation, t, version.lsn);
                        }
                    }
                    Some(_) => {
                        t.slot += 1;
                        Next::LookInSlot
                    }
                }
            }
            Next::LookInList => {
                let found = self.generations[generation].listed(t.key, t.below, |v| self.is_uncommitted(v));
                if let Some(version) = found {
                    return self.found(operation, t, version.lsn);
                }
                if flaw == Flaw::ListFirst {
                    t.slot = 0;
                    Next::LookInSlot
                } else {
                    self.next_part(t, flaw);
                    t.next
                }
            }
            Next::LookOnDisk => {
                let lsn = self.disk.iter().filter(|v| v.key == t.key).map(|v| v.lsn).max().unwrap_or(0);
                return self.found(operation, t, lsn);
            }

            // Writes.
            Next::Lock => {
                let takes_none = flaw == Flaw::PutTakesNoLock && matches!(operation, Put(_));
                if !takes_none {
                    let mut keys = self.locks.iter_mut().enumerate();
                    let wanted = |key: usize| is_batch || key == t.key as usize;
                    if keys.any(|(key, held)| wanted(key) && *held) {
                        return None;
                    }
                    self.locks.iter_mut().enumerate().for_each(|(key, held)| *held |= wanted(key));
                    t.locked = true;
                }
                if let Update(_) = operation {
                    // Read again under the lock: `seen` has what was read before.
                    let flushed = self.view & 1 != t.view & 1;
                    if flushed {
                        self.unlock(operation, t);
                        t.below = Lsn::MAX;
                        self.look(t, flaw);
                        return Some(false);
                    }
                    t.lsn = t.read[t.key as usize];
                    self.look(t, flaw);
                    if flaw == Flaw::UpdateIgnoresSlots {
                        t.next = Next::LookInList;
                    }
                    return Some(false);
                }
                Next::Draw
            }
            Next::Draw => {
                if self.tail == program.border() && !self.open {
                    return None;
                }
                if flaw == Flaw::EarlyGate && t.needed_below == 0 {
                    t.needed_below = self.newest.max(1);
                    return Some(false);
                }
                t.lsn = self.tail;
                self.tail += 1;
                self.in_flight[number] = Some(t.lsn);
                let turned = t.lsn >= program.border() && flaw != Flaw::OldGeneration;
                t.generation = u8::from(turned);
                (t.slot, t.copied) = (0, false);
                if is_batch {
                    t.key = X;
                    t.needed_below = if flaw == Flaw::NoCopyUnderABatch { 0 } else { Lsn::MAX };
                    Next::Find
                } else {
                    Next::Gate
                }
            }
            Next::Gate => {
                let newest = self.newest;
                if flaw != Flaw::EarlyGate && !is_batch {
                    t.needed_below = if flaw == Flaw::NoCopy { 0 } else { newest };
                }
                t.end = newest;
                let after = if is_batch { Next::Commit } else { Next::Find };
                if newest > self.completed() && flaw != Flaw::NoGate { Next::GateWait } else { after }
            }
            Next::GateWait => {
                if self.completed() < t.lsn.min(t.end) {
                    return None;
                }
                if is_batch { Next::Commit } else { Next::Find }
            }
            Next::Find => match self.generations[generation].slots.get(t.slot as usize).copied() {
                None => Next::Take,
                Some(Some((version, phase))) if version.key == t.key => {
                    t.seen = Some((version, phase));
                    let on_its_way =
                        phase == Phase::Fresh || phase == Phase::Claimed && flaw != Flaw::ClaimedIsNotCopied;
                    if on_its_way && !t.copied && version.lsn < t.needed_below {
                        Next::Found
                    } else {
                        Next::Replace
                    }
                }
                Some(_) => {
                    t.slot += 1;
                    Next::Find
                }
            },
            Next::Found => {
                if let Some((version, _)) = t.seen {
                    self.generations[generation].list.insert(version);
                }
                t.copied = true;
                Next::Replace
            }
            Next::Replace => {
                let slot = &mut self.generations[generation].slots[t.slot as usize];
                if *slot == t.seen {
                    *slot = Some((self_version(operation, t, number), Phase::Fresh));
                    match t.seen {
                        Some((_, Phase::Fresh)) => self.published(operation, t),
                        Some((_, Phase::Claimed)) if flaw == Flaw::ClaimedIsNotNoted => {
                            self.published(operation, t)
                        }
                        _ if flaw == Flaw::LateNote => self.published(operation, t),
                        _ => Next::Note,
                    }
                } else {
                    t.slot = 0;
                    Next::Find
                }
            }
            Next::Take => {
                let version = self_version(operation, t, number);
                let of = &mut self.generations[generation];
                let may_take = |slot: &Slot| match slot {
                    Some((_, Phase::Claimed)) => flaw == Flaw::ClaimedIsTaken,
                    Some((_, phase)) => *phase == Phase::Sorted,
                    None => false,
                };
                let slot = of.slots.iter().position(Option::is_none).or(of.slots.iter().position(may_take));
                if let Some(slot) = slot {
                    of.slots[slot] = Some((version, Phase::Fresh));
                    t.slot = slot as u8;
                    if flaw == Flaw::LateNote { self.published(operation, t) } else { Next::Note }
                } else {
                    of.list.insert(version);
                    t.slot = u8::MAX;
                    self.published(operation, t)
                }
            }
            Next::Note => {
                self.generations[generation].notes.push(t.slot);
                self.published(operation, t)
            }
            Next::Commit => {
                self.in_flight[number] = None;
                let late = flaw == Flaw::LateNote && !is_batch && t.slot != u8::MAX;
                if late { Next::NoteLate } else { Next::Unlock }
            }
            Next::NoteLate => {
                self.generations[generation].notes.push(t.slot);
                Next::Unlock
            }
            Next::Unlock => {
                self.unlock(operation, t);
                return Some(true);
            }

            // Snapshots.
            Next::Register => {
                t.below = if flaw == Flaw::PrefixSnapshot { self.completed() } else { self.tail };
                self.registered.push(t.below);
                self.newest = self.registered.iter().copied().max().unwrap_or(0);
                self.snapshot_mutex = false;
                Next::WaitForPrefix
            }
            Next::WaitForPrefix => {
                if self.completed() < t.below {
                    return None;
                }
                t.view = self.view;
                t.generation = u8::from(t.view & 2 != 0);
                if flaw == Flaw::ScanDoesNotSettle { Next::Walk } else { Next::SettleStart }
            }

            // Moving on what is in the hash only.
            Next::SettleStart => {
                let of = &self.generations[generation];
                (t.note, t.end) = (of.moved, of.notes.len() as u8);
                t.claimed_by_others.clear();
                if t.note == t.end { after_settling(operation, t) } else { Next::SettleNote }
            }
            Next::SettleNote => {
                let of = &mut self.generations[generation];
                let position = of.notes[t.note as usize];
                let slot = &mut of.slots[position as usize];
                match *slot {
                    Some((version, Phase::Fresh)) => {
                        let sorted_first = flaw == Flaw::SortedFirst;
                        *slot = Some((version, if sorted_first { Phase::Sorted } else { Phase::Claimed }));
                        t.seen = *slot;
                        Next::SettleInsert
                    }
                    Some((_, Phase::Claimed)) => {
                        t.claimed_by_others.push(position);
                        self.next_note(t, flaw)
                    }
                    _ => self.next_note(t, flaw),
                }
            }
            Next::SettleInsert => {
                self.generations[generation].list.extend(t.seen.map(|(version, _)| version));
                Next::SettleTurn
            }
            Next::SettleTurn => {
                let of = &mut self.generations[generation];
                let slot = &mut of.slots[of.notes[t.note as usize] as usize];
                if let (true, Some((version, _))) = (*slot == t.seen, t.seen) {
                    *slot = Some((version, Phase::Sorted));
                }
                self.next_note(t, flaw)
            }
            Next::SettleHelp => {
                let of = &mut self.generations[generation];
                let position = t.claimed_by_others.pop().unwrap_or_default();
                if let Some((version, Phase::Claimed)) = of.slots[position as usize] {
                    of.list.insert(version);
                }
                if t.claimed_by_others.is_empty() { Next::SettleEnd } else { Next::SettleHelp }
            }
            Next::SettleEnd => {
                let moved = &mut self.generations[generation].moved;
                *moved = t.end.max(*moved);
                if operation == Settle {
                    return Some(true);
                }
                after_settling(operation, t)
            }
            Next::Walk => {
                for key in [X, Y] {
                    let version = self.generations[generation].listed(key, t.below, |_| false);
                    let read = &mut t.read[key as usize];
                    *read = version.map_or(0, |v| v.lsn).max(*read);
                }
                if generation > 0 && t.view & 1 != 0 {
                    t.generation = 0;
                    if flaw == Flaw::ScanDoesNotSettle { Next::Walk } else { Next::SettleStart }
                } else {
                    Next::Release
                }
            }
            Next::Release => {
                if self.snapshot_mutex {
                    return None;
                }
                if t.view & 1 == 0 {
                    for version in self.disk.iter().filter(|v| v.lsn < t.below) {
                        let read = &mut t.read[version.key as usize];
                        *read = version.lsn.max(*read);
                    }
                }
                let place = self.registered.iter().position(|s| *s == t.below).expect("it is registered");
                self.registered.remove(place);
                self.newest = self.registered.iter().copied().max().unwrap_or(0);
                return Some(true);
            }

            Next::Open => {
                self.open = true;
                return Some(true);
            }
            Next::ListSnapshots => {
                if self.snapshot_mutex {
                    return None;
                }
                t.snapshots = self.registered.clone();
                if flaw == Flaw::FlushLooksIntoTheListFirst {
                    t.met.extend(&self.generations[0].list);
                }
                if flaw == Flaw::FlushTakesNoNotes { Next::CopyToDisk } else { Next::HoldStart }
            }
            Next::HoldStart => {
                let of = &self.generations[0];
                (t.note, t.end) = (of.moved, of.notes.len() as u8);
                if t.note == t.end { Next::CopyToDisk } else { Next::HoldNote }
            }
            Next::HoldNote => {
                let of = &self.generations[0];
                let slot = of.slots[of.notes[t.note as usize] as usize];
                let takes = |phase| phase == Phase::Fresh || flaw != Flaw::FlushTakesFreshSlotsOnly;
                t.met.extend(slot.filter(|(_, phase)| takes(*phase)).map(|(version, _)| version));
                t.note += 1;
                if t.note == t.end { Next::CopyToDisk } else { Next::HoldNote }
            }
            Next::CopyToDisk => {
                if flaw != Flaw::FlushLooksIntoTheListFirst {
                    t.met.extend(&self.generations[0].list);
                }
                for key in [X, Y] {
                    for below in t.snapshots.iter().copied().chain([Lsn::MAX]) {
                        self.disk.extend(newest(&t.met, key, below, |_| false));
                    }
                }
                Next::Install
            }
            Next::Install => {
                self.view = 2;
                return Some(true);
            }
        };
        Some(false)
    }

    /// Begins to look a key up in the newest part.
    fn look(&self, t: &mut Thread, flaw: Flaw) {
        t.view = self.view;
        t.generation = u8::from(t.view & 2 != 0);
        t.slot = 0;
        t.next = if flaw == Flaw::ListFirst { Next::LookInList } else { Next::LookInSlot };
    }

    fn next_part(&self, t: &mut Thread, flaw: Flaw) {
        t.slot = 0;
        if t.generation > 0 && t.view & 1 != 0 {
            t.generation = 0;
            t.next = if flaw == Flaw::ListFirst { Next::LookInList } else { Next::LookInSlot };
        } else {
            t.next = Next::LookOnDisk;
        }
    }

    /// A get, or one of an update's two looks, found the newest version.
    fn found(&mut self, operation: Operation, t: &mut Thread, lsn: Lsn) -> Option<bool> {
        let Update(_) = operation else {
            t.read[t.key as usize] = lsn;
            return Some(true);
        };
        if !t.locked {
            t.read[t.key as usize] = lsn;
            t.next = Next::Lock;
        } else if lsn > t.lsn {
            self.unlock(operation, t);
            t.read[t.key as usize] = 0;
            self.look(t, Flaw::None);
        } else {
            t.next = Next::Draw;
        }
        Some(false)
    }

    fn unlock(&mut self, operation: Operation, t: &mut Thread) {
        if t.locked {
            let is_mine = |key: usize| operation == Batch || key == t.key as usize;
            self.locks.iter_mut().enumerate().for_each(|(key, held)| *held &= !is_mine(key));
            t.locked = false;
        }
    }

    /// A version shows. What comes next.
    fn published(&self, operation: Operation, t: &mut Thread) -> Next {
        if operation != Batch {
            return Next::Commit;
        }
        if t.key == X {
            (t.key, t.slot, t.copied) = (Y, 0, false);
            return Next::Find;
        }
        t.key = X;
        Next::Gate
    }

    fn next_note(&self, t: &mut Thread, flaw: Flaw) -> Next {
        t.note += 1;
        if t.note < t.end {
            Next::SettleNote
        } else if t.claimed_by_others.is_empty() || flaw == Flaw::NoHelp {
            Next::SettleEnd
        } else {
            Next::SettleHelp
        }
    }
}

fn at(t: &mut Thread, next: Next) -> &mut Thread {
    t.next = next;
    t
}

fn self_version(operation: Operation, t: &Thread, number: usize) -> Version {
    Version { key: t.key, lsn: t.lsn, batch: (operation == Batch).then_some(number as u8) }
}

fn after_settling(operation: Operation, t: &mut Thread) -> Next {
    match operation {
        Scan => Next::Walk,
        // Nothing to do: its one step more.
        _ => {
            t.end = t.note;
            Next::SettleEnd
        }
    }
}

/// One operation of a history.
#[derive(Clone, Copy)]
struct Call {
    operation: Operation,
    begin: usize,
    end: usize,
    lsn: Lsn,
    read: [Lsn; KEYS],
}

fn calls(program: &Program, history: &[Event]) -> Vec<Call> {
    let ends = history.iter().enumerate().filter_map(|(end, event)| Some((end, event, event.outcome?)));
    ends.map(|(end, event, (lsn, read))| {
        let begins = |e: &Event| (e.thread, e.operation) == (event.thread, event.operation);
        Call {
            operation: program.threads[event.thread as usize][event.operation as usize],
            begin: history.iter().position(begins).expect("it began"),
            end,
            lsn,
            read,
        }
    })
    .collect()
}

/// True if the calls that are left (a bit each) can be put one after the other.
fn is_linearizable(calls: &[Call], left: u32, map: [Lsn; KEYS]) -> bool {
    let is_left = |n: usize| left >> n & 1 == 1;
    let first_end = (0..calls.len()).filter(|n| is_left(*n)).map(|n| calls[n].end).min();
    let Some(first_end) = first_end else { return true };
    (0..calls.len()).filter(|n| is_left(*n) && calls[*n].begin < first_end).any(|n| {
        let Call { operation, lsn, read, .. } = calls[n];
        let mut after = map;
        let fits = match operation {
            Get(key) => read[key as usize] == map[key as usize],
            Scan => read == map,
            Put(key) => {
                after[key as usize] = lsn;
                true
            }
            Update(key) => {
                after[key as usize] = lsn;
                read[key as usize] == map[key as usize]
            }
            _ => {
                after = [lsn; KEYS];
                true
            }
        };
        fits && is_linearizable(calls, left & !(1 << n), after)
    })
}

fn hash_of(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// What an exploration came to.
#[derive(Debug)]
struct Explored {
    states: usize,
    histories: usize,
    /// What went wrong first.
    wrong: Option<String>,
}

/// Follows every interleaving, until something is wrong.
fn explore(program: &Program, flaw: Flaw) -> Explored {
    let (start, map) = program.start();
    let mut seen = HashSet::from([hash_of(&start)]);
    let mut histories = HashSet::new();
    let mut stack = vec![start];
    let mut wrong = None;
    while let Some(state) = stack.pop() {
        let mut stuck = true;
        for number in 0..state.threads.len() {
            if let Some(next) = state.step(program, flaw, number) {
                stuck = false;
                if seen.insert(hash_of(&next)) {
                    stack.push(next);
                }
            }
        }
        if stuck {
            let mut threads = state.threads.iter().zip(program.threads);
            if threads.any(|(thread, operations)| (thread.done as usize) < operations.len()) {
                wrong = Some(format!("nobody can go on: {state:?}"));
                break;
            }
            if histories.insert(hash_of(&state.history)) {
                let calls = calls(program, &state.history);
                if !is_linearizable(&calls, (1 << calls.len()) - 1, map) {
                    wrong = Some(format!("no order of these gives what was read: {:?}", state.history));
                    break;
                }
            }
        }
    }
    Explored { states: seen.len(), histories: histories.len(), wrong }
}

const fn program(threads: &'static [&'static [Operation]]) -> Program {
    Program { threads, slots: 2, fresh: &[X, Y], sorted: &[], border: NO_BORDER }
}

/// What is explored, and which flaws each of it finds.
const PROGRAMS: &[(Program, &[Flaw])] = &[
    (
        program(&[&[Put(X), Put(X)], &[Scan], &[Settle]]),
        &[
            Flaw::NoCopy,
            Flaw::ClaimedIsNotCopied,
            Flaw::ClaimedIsNotNoted,
            Flaw::NoHelp,
            Flaw::ScanDoesNotSettle,
            Flaw::EarlyGate,
        ],
    ),
    (program(&[&[Put(X)], &[Scan], &[Scan]]), &[Flaw::NoHelp]),
    // Without slots, which have no part in it: with them it is twelve million states.
    (
        Program { slots: 0, fresh: &[], ..program(&[&[Put(X)], &[Put(Y)], &[Scan], &[Get(Y), Get(X)]]) },
        &[Flaw::NoGate],
    ),
    (program(&[&[Put(X)], &[Put(Y)], &[Scan]]), &[Flaw::PrefixSnapshot]),
    (program(&[&[Batch], &[Get(X), Get(Y)], &[Settle]]), &[Flaw::NoCopyUnderABatch]),
    (program(&[&[Batch], &[Put(X)], &[Get(X), Get(Y)]]), &[Flaw::PutTakesNoLock]),
    (program(&[&[Batch], &[Scan], &[Put(X)]]), &[]),
    (
        Program {
            slots: 1,
            sorted: &[X],
            fresh: &[],
            ..program(&[&[Put(Y)], &[Put(X)], &[Get(X)], &[Scan]])
        },
        &[],
    ),
    (
        Program { slots: 1, fresh: &[X], ..program(&[&[Put(Y)], &[Get(X)], &[Settle]]) },
        &[Flaw::ClaimedIsTaken, Flaw::SortedFirst],
    ),
    (
        Program { slots: 1, fresh: &[], ..program(&[&[Put(Y)], &[Get(Y), Scan], &[Put(X)]]) },
        &[Flaw::LateNote],
    ),
    // The get tells which of the two was last.
    (program(&[&[Put(X)], &[Update(X), Get(X)], &[Settle]]), &[Flaw::UpdateIgnoresSlots]),
    (program(&[&[Put(X)], &[Put(X)], &[Update(X)]]), &[]),
    (program(&[&[Put(X), Get(X)], &[Put(X)], &[Settle]]), &[Flaw::ListFirst]),
    (
        Program { border: 1, ..program(&[&[Put(X), Put(X)], &[Turn, Flush], &[Scan]]) },
        &[Flaw::FlushTakesNoNotes, Flaw::OldGeneration],
    ),
    // The get tells whether the flush has met what was settled beside it.
    (
        Program { border: 1, ..program(&[&[Put(X)], &[Turn, Flush, Get(Y)], &[Settle]]) },
        &[Flaw::FlushTakesFreshSlotsOnly, Flaw::FlushLooksIntoTheListFirst],
    ),
    (Program { border: 1, ..program(&[&[Update(X)], &[Update(X)], &[Turn, Flush]]) }, &[]),
    (Program { border: 1, ..program(&[&[Batch], &[Put(X)], &[Turn, Flush], &[Get(X), Get(Y)]]) }, &[]),
    (Program { border: 1, ..program(&[&[Put(X)], &[Update(X)], &[Turn, Flush], &[Get(X)]]) }, &[]),
];

#[test]
fn every_interleaving_of_the_two_tiers_is_linearizable() {
    let (mut states, mut histories) = (0, 0);
    for (program, _) in PROGRAMS {
        let explored = explore(program, Flaw::None);
        println!("{:?}: {} states, {} histories", program.threads, explored.states, explored.histories);
        assert_eq!(explored.wrong, None, "{:?}", program.threads);
        states += explored.states;
        histories += explored.histories;
    }
    println!("{states} states, {histories} histories");
    assert!(histories > 1000, "the programs meet");
}

#[test]
fn every_step_left_out_is_found() {
    for (program, flaws) in PROGRAMS {
        for &flaw in *flaws {
            let explored = explore(program, flaw);
            assert!(explored.wrong.is_some(), "{flaw:?} is not found by {:?}", program.threads);
        }
    }
}
