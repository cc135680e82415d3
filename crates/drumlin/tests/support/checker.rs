//! Decides whether a history could have been the work of one map that does one operation at a time.
//!
//! Place: called by the tests with recorded, generated and spoiled histories.
//!
//! What it decides, exactly (no sampling, no "probably"; unique values are *not* assumed, so deletes are fine):
//! - [`linearizable`]: there is one order of all operations but recent snapshots, in which each precedes each that began
//!   after it returned, and each sees what the ones before it left. Batches and snapshots are single operations.
//! - [`recent_snapshots_serializable`]: there is one order of all *writes* (updates with what they saw) and all snapshots,
//!   in which everything but recent snapshots keeps real time as above, and a recent snapshot stands anywhere before what
//!   began after it returned. Plain gets are left out: a get may see a write before another one with a lower LSN is
//!   visible, and a recent snapshot between the two need not agree with it (anomaly A1 of the commit protocol).
//!   The two orders need not be the same one.
//!
//! What it does not decide: whether a recent snapshot is recent; progress; durability.
//!
//! How: instants are walked in order. A *configuration* is a set of open operations that have taken effect and the state
//! they left; the set of possible configurations is kept. When an operation returns, each configuration in which it has
//! not taken effect yet is extended by open operations until it has. Three reductions keep the set small, none of which
//! loses an order:
//! 1. An operation that only reads takes effect at once in any state that fits: it changes nothing.
//! 2. Before a returning operation only such open operations are tried that conflict with it, directly or through others;
//!    the rest commutes with it and can wait.
//! 3. Values that nobody sees are one value.
//!
//! Cost: O(n · configurations); with c clients at most 2^c per order of conflicting writes, in practice below a dozen.
//! Origin: Wing and Gong's search, walked forward in time as Lowe's just-in-time linearization does; the extended
//! interval for recent snapshots is ours: a snapshot cannot precede the invocation of a write it saw, so its interval
//! begins at the last of those.
//!
//! Tests: `tests/linearizability.rs` (generated histories accepted, spoiled ones rejected, agreement with a search over all
//! permutations on small histories).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use super::history::{ABSENT, Class, History, KEYS_MAX, Key, Op, Seen, Value};

/// How hard a decision was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effort {
    /// The largest number of configurations at any instant.
    pub configurations_max: usize,
    /// The largest number of operations open at any instant.
    pub open_max: usize,
}

/// Why a history was not accepted.
#[derive(Debug)]
pub enum Refusal {
    /// No order exists.
    Violation(Box<Violation>),
    /// More orders are possible than are tried: nothing is said of the history.
    Undecided,
}

impl Refusal {
    /// Why no order exists.
    ///
    /// # Panics
    /// If nobody knows whether one does.
    pub fn violation(self) -> Box<Violation> {
        match self {
            Refusal::Violation(violation) => violation,
            Refusal::Undecided => panic!("undecided: too many orders are possible"),
        }
    }
}

/// Why no order exists.
#[derive(Debug)]
pub struct Violation {
    /// The operation at whose return the last possible order died.
    pub op: Op,
    /// The configurations just before, and what else was open.
    pub why: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no order explains: {}\n{}", self.op, self.why)
    }
}

/// Decides the first property of the header.
pub fn linearizable(history: &History) -> Result<Effort, Refusal> {
    let judged = history.ops.iter().filter(|op| op.class != Class::Recent);
    decide(history, judged.map(|op| (op.invoke, op)).collect())
}

/// Decides the second property of the header.
pub fn recent_snapshots_serializable(history: &History) -> Result<Effort, Refusal> {
    let mut born: HashMap<(Key, Value), u64> = HashMap::new();
    for op in &history.ops {
        for write in &op.writes {
            let first = born.entry(*write).or_insert(op.invoke);
            *first = op.invoke.min(*first);
        }
    }
    let mut judged = Vec::new();
    for op in history.ops.iter().filter(|op| op.class != Class::Get) {
        let mut from = op.invoke;
        if op.class == Class::Recent {
            from = 0;
            for (key, seen) in &op.reads {
                let Seen::Exactly(value) = *seen else { continue };
                if history.initial[usize::from(*key)] == value || value == ABSENT {
                    continue;
                }
                match born.get(&(*key, value)) {
                    Some(born) if *born <= op.ret => from = from.max(*born),
                    Some(_) => return Err(violation(op, format!("k{key}={value} was written later"))),
                    None => return Err(violation(op, format!("k{key}={value} was never written"))),
                }
            }
        }
        judged.push((from, op));
    }
    decide(history, judged)
}

fn violation(op: &Op, why: String) -> Refusal {
    Refusal::Violation(Box::new(Violation { op: op.clone(), why }))
}

/// A value that some operation wrote and none saw.
const UNSEEN: Value = Value::MAX;

/// More configurations than this: give up rather than never end.
const CONFIGURATIONS_MAX: usize = 1 << 20;

/// An operation between its first and last instant.
struct Open<'a> {
    op: &'a Op,
    /// What it writes, with [`UNSEEN`] for what nobody sees.
    effects: Vec<(Key, Value)>,
    read_keys: u64,
    write_keys: u64,
}

impl Open<'_> {
    fn fits(&self, state: &State) -> bool {
        self.op.reads.iter().all(|(key, seen)| match seen {
            Seen::Exactly(value) => state.get(*key) == *value,
            Seen::Present => state.get(*key) != ABSENT,
        })
    }
}

/// What all keys hold, and a hash of it that follows each change: most of the time of a decision went to hashing whole states.
#[derive(Clone, PartialEq, Eq)]
struct State {
    hash: u64,
    values: [Value; KEYS_MAX],
}

impl State {
    fn new(values: [Value; KEYS_MAX]) -> Self {
        let hash = (0..).zip(values).fold(0, |hash, (key, value)| hash ^ Self::share(key, value));
        State { hash, values }
    }

    /// What a key adds to the hash.
    fn share(key: Key, value: Value) -> u64 {
        let mixed =
            (u64::from(value) << 8 | u64::from(key)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    fn get(&self, key: Key) -> Value {
        self.values[usize::from(key)]
    }

    fn set(&mut self, key: Key, value: Value) {
        let before = std::mem::replace(&mut self.values[usize::from(key)], value);
        self.hash ^= Self::share(key, before) ^ Self::share(key, value);
    }
}

/// One way the past may have gone.
#[derive(Clone, PartialEq, Eq)]
struct Configuration {
    /// The open operations, by place, that have taken effect.
    done: u64,
    state: State,
}

impl Hash for Configuration {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.state.hash ^ self.done.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

/// Takes one number for its hash.
#[derive(Default)]
struct Given(u64);

impl Hasher for Given {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a configuration is hashed as one number");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number ^ number >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Configurations = HashSet<Configuration, BuildHasherDefault<Given>>;

struct Search<'a> {
    /// Open operations by place; a place is used again after its operation returned.
    open: Vec<Option<Open<'a>>>,
    configurations: Vec<Configuration>,
    effort: Effort,
}

fn decide(history: &History, judged: Vec<(u64, &Op)>) -> Result<Effort, Refusal> {
    let mut seen = HashSet::new();
    // (instant, is a return, operation): at equal instants calls come first, so that they overlap.
    let mut instants = Vec::with_capacity(2 * judged.len());
    for (number, (from, op)) in judged.iter().enumerate() {
        assert!(*from <= op.ret, "{op} ends before it begins");
        instants.push((*from, false, number));
        instants.push((op.ret, true, number));
        for (key, what) in &op.reads {
            if let Seen::Exactly(value) = what {
                seen.insert((*key, *value));
            }
        }
    }
    instants.sort_unstable();
    let mut places = vec![0; judged.len()];
    let mut search = Search {
        open: Vec::new(),
        configurations: vec![Configuration { done: 0, state: State::new(history.initial) }],
        effort: Effort::default(),
    };
    for (_, returns, number) in instants {
        if returns {
            search.close(places[number])?;
        } else {
            let op = judged[number].1;
            let effect = |(key, value): &(Key, Value)| {
                let visible = *value == ABSENT || seen.contains(&(*key, *value));
                (*key, if visible { *value } else { UNSEEN })
            };
            places[number] = search.admit(Open {
                op,
                effects: op.writes.iter().map(effect).collect(),
                read_keys: op.reads.iter().fold(0, |set, (key, _)| set | 1 << key),
                write_keys: op.writes.iter().fold(0, |set, (key, _)| set | 1 << key),
            });
        }
    }
    Ok(search.effort)
}

impl<'a> Search<'a> {
    fn admit(&mut self, open: Open<'a>) -> usize {
        let place = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        assert!(place < 64, "more than 64 operations are open at once");
        if place == self.open.len() {
            self.open.push(None);
        }
        if open.effects.is_empty() {
            for configuration in self.configurations.iter_mut().filter(|c| open.fits(&c.state)) {
                configuration.done |= 1 << place;
            }
        }
        self.open[place] = Some(open);
        self.effort.open_max = self.effort.open_max.max(self.open.iter().flatten().count());
        place
    }

    /// The operation at `place` returns: every configuration must have it done.
    fn close(&mut self, place: usize) -> Result<(), Refusal> {
        let bit = 1u64 << place;
        let mut next = Vec::new();
        let mut tried = Configurations::default();
        let mut extended = false;
        for configuration in &self.configurations {
            if configuration.done & bit != 0 {
                next.push(Configuration { done: configuration.done & !bit, ..configuration.clone() });
            } else {
                extended = true;
                self.extend(configuration, bit, &mut tried, &mut next);
            }
        }
        if next.is_empty() {
            return Err(self.explain(place));
        }
        if next.len() > 1 && (extended || self.configurations.len() > 1) {
            let unique: Configurations = next.drain(..).collect();
            next.extend(unique);
        }
        self.open[place] = None;
        self.configurations = next;
        self.effort.configurations_max = self.effort.configurations_max.max(self.configurations.len());
        if self.configurations.len() < CONFIGURATIONS_MAX { Ok(()) } else { Err(Refusal::Undecided) }
    }

    /// Lets open writes take effect after `from`, in every order that matters, until `bit` has.
    fn extend(
        &self,
        from: &Configuration,
        bit: u64,
        tried: &mut Configurations,
        next: &mut Vec<Configuration>,
    ) {
        let candidates = self.conflicting(from, bit);
        let mut stack = vec![from.clone()];
        while let Some(at) = stack.pop() {
            let mut left = candidates & !at.done;
            while left != 0 {
                let place = left.trailing_zeros() as usize;
                left &= left - 1;
                let open = self.open[place].as_ref().expect("candidates are open");
                if open.effects.is_empty() || !open.fits(&at.state) {
                    continue;
                }
                let mut then = at.clone();
                then.done |= 1 << place;
                for (key, value) in &open.effects {
                    then.state.set(*key, *value);
                }
                self.let_readers_finish(&mut then);
                if then.done & bit != 0 {
                    then.done &= !bit;
                    next.push(then);
                } else if tried.insert(then.clone()) {
                    stack.push(then);
                }
            }
        }
    }

    fn let_readers_finish(&self, configuration: &mut Configuration) {
        for (place, open) in self.open.iter().enumerate() {
            let Some(open) = open else { continue };
            if configuration.done & 1 << place == 0
                && open.effects.is_empty()
                && open.fits(&configuration.state)
            {
                configuration.done |= 1 << place;
            }
        }
    }

    /// The open operations that conflict with `bit`, directly or through others, and itself.
    fn conflicting(&self, from: &Configuration, bit: u64) -> u64 {
        let mut set = 0;
        let (mut read_keys, mut write_keys) = (0, 0);
        let mut add = bit;
        while add != 0 {
            set |= add;
            for (place, open) in self.open.iter().enumerate() {
                if let Some(open) = open.as_ref().filter(|_| add & 1 << place != 0) {
                    read_keys |= open.read_keys;
                    write_keys |= open.write_keys;
                }
            }
            add = 0;
            for (place, open) in self.open.iter().enumerate() {
                let Some(open) = open.as_ref().filter(|_| (set | from.done) & 1 << place == 0) else {
                    continue;
                };
                if open.write_keys & (read_keys | write_keys) != 0 || open.read_keys & write_keys != 0 {
                    add |= 1 << place;
                }
            }
        }
        set
    }

    fn explain(&self, place: usize) -> Refusal {
        let op = self.open[place].as_ref().expect("it is open until it returns").op;
        let keys: Vec<Key> = op.reads.iter().map(|r| r.0).chain(op.writes.iter().map(|w| w.0)).collect();
        let mut why = format!("{} possible states before it returned:\n", self.configurations.len());
        for configuration in self.configurations.iter().take(4) {
            why.push_str("  ");
            for key in keys.iter().take(64) {
                match configuration.state.get(*key) {
                    ABSENT => why.push_str(&format!("k{key}=- ")),
                    UNSEEN => why.push_str(&format!("k{key}=(unseen) ")),
                    value => why.push_str(&format!("k{key}={value} ")),
                }
            }
            let undone = (0..self.open.len()).filter(|p| configuration.done & 1 << p == 0);
            let undone: Vec<String> =
                undone.filter_map(|p| self.open[p].as_ref()).map(|o| o.op.thread.to_string()).collect();
            why.push_str(&format!("| not yet in effect: clients {}\n", undone.join(" ")));
        }
        why.push_str("open:\n");
        for open in self.open.iter().flatten() {
            why.push_str(&format!("  {}\n", open.op));
        }
        violation(op, why)
    }
}
