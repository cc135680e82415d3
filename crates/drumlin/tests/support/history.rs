//! What clients did and saw, with when: the input of the checker.
//!
//! Place: recorded by the drivers in `drive` and `generate`, judged by `checker`, spoiled by `mutate`.
//!
//! Every operation is one atomic step on a map from up to 64 keys to values: what it must have seen, and what it
//! wrote. A put writes; a get sees; an update or a successful compare-and-swap sees and writes; a batch writes several
//! keys; a delete writes [`ABSENT`]; a snapshot sees every key that was read through it, at any time, and its interval
//! is that of the call that took it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A key, by number: 0 to 63.
pub type Key = u8;

/// Keys in a history, at most: sets of them are single words.
pub const KEYS_MAX: usize = 64;

/// What a key holds; [`ABSENT`] or the identity of a write. Drivers give each write a value of its own.
pub type Value = u32;

/// The key has no value.
pub const ABSENT: Value = 0;

/// What an operation saw of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// This value.
    Exactly(Value),
    /// Some value, it was not told which.
    Present,
}

/// What an operation promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Changes the map, and may have seen some of it in the same step.
    Write,
    /// Saw the newest state (also: a compare-and-swap that failed, an update that changed nothing).
    Get,
    /// Saw one state, current at some instant of its interval.
    Snapshot,
    /// Saw one state, current or past.
    Recent,
}

/// One operation of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// The client.
    pub thread: u8,
    /// What it promises.
    pub class: Class,
    /// Tick before the call.
    pub invoke: u64,
    /// Tick after the return. An operation precedes another if its `ret` is below the other's `invoke`.
    pub ret: u64,
    /// What it saw before it wrote.
    pub reads: Vec<(Key, Seen)>,
    /// What it wrote; each key once.
    pub writes: Vec<(Key, Value)>,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} [{}, {}] {:?}", self.thread, self.invoke, self.ret, self.class)?;
        for (key, seen) in &self.reads {
            match seen {
                Seen::Exactly(ABSENT) => write!(f, " k{key}=-")?,
                Seen::Exactly(value) => write!(f, " k{key}={value}")?,
                Seen::Present => write!(f, " k{key}=?")?,
            }
        }
        for (key, value) in &self.writes {
            match *value {
                ABSENT => write!(f, " k{key}:=-")?,
                value => write!(f, " k{key}:={value}")?,
            }
        }
        Ok(())
    }
}

/// Every operation between two quiet moments.
#[derive(Clone, Debug)]
pub struct History {
    /// What the keys held before the first operation.
    pub initial: [Value; KEYS_MAX],
    /// The operations, in no particular order.
    pub ops: Vec<Op>,
}

impl History {
    /// A history on an empty map.
    pub fn new(ops: Vec<Op>) -> Self {
        Self { initial: [ABSENT; KEYS_MAX], ops }
    }
}

/// The common clock of a recording: a counter, so that no two instants are equal and none lies.
#[derive(Default)]
pub struct Ticks(AtomicU64);

impl Ticks {
    /// The next instant.
    pub fn next(&self) -> u64 {
        // SeqCst: ticks of different clients order their calls.
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}
