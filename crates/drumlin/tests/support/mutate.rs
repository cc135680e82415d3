//! Spoils a history in ways that no map can explain: the checker's negative controls.
//!
//! Place: called by the tests with generated and with recorded histories. Each mutation looks for a place where the
//! spoiled history is wrong *for certain*, by real time and by the values being written once, whatever else happened; it
//! says `None` if the history has no such place.

use std::collections::HashMap;

use super::dice::Dice;
use super::history::{ABSENT, Class, History, Key, Op, Seen, Value};

/// The ways to spoil a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Two reads of one key trade values; one thereby sees a write from after its end.
    SwapReads,
    /// A read ends before the write it saw began.
    ReadBeforeWrite,
    /// An update whose value was seen never happened.
    DropUpdate,
    /// The second of two chained updates claims to have seen what the first one saw.
    LoseUpdate,
    /// A snapshot sees one key of a batch, and of another the value before.
    HalfBatch,
    /// A snapshot sees a write, and not another that was over before it began.
    TornSnapshot,
    /// The same, of a recent snapshot.
    TornRecent,
    /// A get sees a value that a finished write had replaced before it began.
    StaleGet,
    /// A delete is undone: a get that began after it sees the value from before.
    Resurrect,
}

/// Every mutation.
pub const ALL: [Mutation; 9] = [
    Mutation::SwapReads,
    Mutation::ReadBeforeWrite,
    Mutation::DropUpdate,
    Mutation::LoseUpdate,
    Mutation::HalfBatch,
    Mutation::TornSnapshot,
    Mutation::TornRecent,
    Mutation::StaleGet,
    Mutation::Resurrect,
];

/// Applies `mutation` at a random fitting place.
pub fn spoil(history: &History, mutation: Mutation, rng: &mut Dice) -> Option<History> {
    let index = Index::of(history);
    let ops = &history.ops;
    // Any operation may be the place: try them from a random start.
    let start = rng.below(ops.len().max(1) as u64) as usize;
    let mut places = (0..ops.len()).map(|i| (start + i) % ops.len());
    let mut spoiled = history.clone();
    let changed = match mutation {
        Mutation::SwapReads => places.find_map(|a| {
            let (key, value) = sole_read(&ops[a])?;
            let b = index.readers_of(key).find(|b| {
                let read = sole_read(&ops[*b]).expect("indexed as a reader");
                read.1 != value && index.writer((key, read.1)).is_some_and(|w| ops[a].ret < ops[w].invoke)
            })?;
            let other = spoiled.ops[b].reads.clone();
            spoiled.ops[b].reads = spoiled.ops[a].reads.clone();
            spoiled.ops[a].reads = other;
            Some(())
        }),
        Mutation::ReadBeforeWrite => places.find_map(|a| {
            let writer = index.writer(sole_read(&ops[a])?)?;
            let before = ops[writer].invoke.checked_sub(2)?;
            spoiled.ops[a].invoke = before;
            spoiled.ops[a].ret = before + 1;
            Some(())
        }),
        Mutation::DropUpdate => places.find_map(|a| {
            let [write] = ops[a].writes.as_slice() else { return None };
            let seen = write.1 != ABSENT && index.reads.contains_key(write);
            (seen && !ops[a].reads.is_empty()).then(|| {
                spoiled.ops.swap_remove(a);
            })
        }),
        Mutation::LoseUpdate => places.find_map(|a| {
            let first = index.writer(update_read(&ops[a])?)?;
            update_read(&ops[first])?;
            spoiled.ops[a].reads = ops[first].reads.clone();
            Some(())
        }),
        Mutation::HalfBatch => places.find_map(|a| {
            (ops[a].class == Class::Snapshot).then_some(())?;
            ops[a].reads.iter().enumerate().find_map(|(i, (key, seen))| {
                let batch = index.writer((*key, exact(*seen)?))?;
                let sees_other = |(k, v): &&(Key, Value)| *v != ABSENT && k != key && sees(&ops[a], *k, *v);
                ops[batch].writes.iter().find(sees_other)?;
                let before = index.value_before(ops, *key, ops[batch].invoke)?;
                spoiled.ops[a].reads[i].1 = Seen::Exactly(before);
                Some(())
            })
        }),
        Mutation::TornSnapshot | Mutation::TornRecent => places.find_map(|a| {
            let class = if mutation == Mutation::TornRecent { Class::Recent } else { Class::Snapshot };
            (ops[a].class == class).then_some(())?;
            // The newest write seen; then a key whose seen write was over before that one began.
            let writers: Vec<Option<usize>> =
                ops[a].reads.iter().map(|(k, s)| exact(*s).and_then(|v| index.writer((*k, v)))).collect();
            let newest = writers.iter().flatten().copied().max_by_key(|w| ops[*w].invoke)?;
            ops[a].reads.iter().zip(&writers).enumerate().find_map(|(i, ((key, _), writer))| {
                let writer = writer.filter(|w| ops[*w].ret < ops[newest].invoke)?;
                let before = index.value_before(ops, *key, ops[writer].invoke)?;
                spoiled.ops[a].reads[i].1 = Seen::Exactly(before);
                Some(())
            })
        }),
        Mutation::StaleGet => places.find_map(|a| {
            let (key, value) = sole_read(&ops[a])?;
            let writer = index.writer((key, value)).filter(|w| ops[*w].ret < ops[a].invoke)?;
            let before = index.value_before(ops, key, ops[writer].invoke)?;
            spoiled.ops[a].reads[0].1 = Seen::Exactly(before);
            Some(())
        }),
        Mutation::Resurrect => places.find_map(|a| {
            let (key, value) = get(&ops[a]).filter(|r| r.1 == ABSENT)?;
            let deletes = &index.deletes.get(&key)?[..];
            let delete = deletes.iter().copied().find(|d| ops[*d].ret < ops[a].invoke)?;
            let before = index.value_before(ops, key, ops[delete].invoke).filter(|b| *b != value)?;
            spoiled.ops[a].reads[0].1 = Seen::Exactly(before);
            Some(())
        }),
    };
    changed.map(|()| spoiled)
}

/// Who wrote and who read what.
struct Index {
    writers: HashMap<(Key, Value), usize>,
    reads: HashMap<(Key, Value), usize>,
    gets: HashMap<Key, Vec<usize>>,
    /// Per key its writes of values, in the order of their returns.
    finished: HashMap<Key, Vec<(u64, Value)>>,
    deletes: HashMap<Key, Vec<usize>>,
}

impl Index {
    fn of(history: &History) -> Self {
        let mut index = Index {
            writers: HashMap::new(),
            reads: HashMap::new(),
            gets: HashMap::new(),
            finished: HashMap::new(),
            deletes: HashMap::new(),
        };
        for (number, op) in history.ops.iter().enumerate() {
            for (key, value) in &op.writes {
                if *value == ABSENT {
                    index.deletes.entry(*key).or_default().push(number);
                } else {
                    index.writers.insert((*key, *value), number);
                    index.finished.entry(*key).or_default().push((op.ret, *value));
                }
            }
            if op.class != Class::Recent {
                for (key, seen) in &op.reads {
                    index.reads.extend(exact(*seen).map(|value| ((*key, value), number)));
                }
            }
            if let Some((key, _)) = sole_read(op) {
                index.gets.entry(key).or_default().push(number);
            }
        }
        for finished in index.finished.values_mut() {
            finished.sort_unstable();
        }
        index
    }

    fn writer(&self, write: (Key, Value)) -> Option<usize> {
        self.writers.get(&write).copied()
    }

    fn readers_of(&self, key: Key) -> impl Iterator<Item = usize> {
        self.gets.get(&key).into_iter().flatten().copied()
    }

    /// A value of `key` whose write had returned before `instant`: replaced for certain by a write called then.
    fn value_before(&self, ops: &[Op], key: Key, instant: u64) -> Option<Value> {
        let finished = self.finished.get(&key)?;
        let before = finished.partition_point(|(ret, _)| *ret < instant).checked_sub(1)?;
        let value = finished[before].1;
        debug_assert!(ops[self.writers[&(key, value)]].ret < instant);
        Some(value)
    }
}

fn exact(seen: Seen) -> Option<Value> {
    match seen {
        Seen::Exactly(value) => Some(value),
        Seen::Present => None,
    }
}

/// What a get saw, absent included.
fn get(op: &Op) -> Option<(Key, Value)> {
    match op.reads.as_slice() {
        [(key, Seen::Exactly(value))] if op.class == Class::Get => Some((*key, *value)),
        _ => None,
    }
}

/// What a get saw, if it saw a value.
fn sole_read(op: &Op) -> Option<(Key, Value)> {
    get(op).filter(|read| read.1 != ABSENT)
}

/// What an update of one key saw, if it saw a value.
fn update_read(op: &Op) -> Option<(Key, Value)> {
    match (op.reads.as_slice(), op.writes.as_slice()) {
        ([(key, Seen::Exactly(value))], [(_, new)]) if *value != ABSENT && *new != ABSENT => {
            Some((*key, *value))
        }
        _ => None,
    }
}

fn sees(op: &Op, key: Key, value: Value) -> bool {
    op.reads.iter().any(|(k, s)| *k == key && *s == Seen::Exactly(value))
}
