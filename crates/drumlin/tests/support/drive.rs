//! Drives a store with several clients and records what each did and saw.
//!
//! Place: called by the tests; the recording goes to `checker`.
//!
//! Sixty keys in three keyspaces, one of which has no order, and four counters in a fourth, all written by everybody: blind puts, deletes, range
//! deletes, updates, compare-and-swaps, counters, batches over the keyspaces; read by gets, multi-gets, scans, and by
//! snapshots of both kinds that are kept for a while and read in pieces. Every value names its write, and its padding
//! follows from the name, so that a value made of two is noticed at once.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering};

use drumlin::{Cas, Db, KeyHash, Keyspace, KeyspaceOptions, Layout, Memory, Result, Snapshot};

use super::dice::Dice;
use super::history::{ABSENT, Class, History, KEYS_MAX, Key, Op, Seen, Ticks, Value};

/// The keys of each keyspace, by number. The last are counters.
const PARTS: [RangeInclusive<Key>; 4] = [0..=23, 24..=47, 48..=59, 60..=63];
const COUNTERS: usize = 3;

/// A store under test.
pub struct Target {
    /// The store.
    pub db: Db,
    keyspaces: [Keyspace; 4],
    /// Names that each client has used up.
    names_used: AtomicU32,
}

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Decides everything but the timing.
    pub seed: u64,
    /// Clients.
    pub threads: u8,
    /// Operations of each client, about.
    pub ops_per_thread: usize,
    /// Longest padding of usual values, in bytes.
    pub padding_bytes: u64,
}

impl Target {
    /// Makes the keyspaces, with tiny memtables, tables and levels, so that everything turns over.
    pub fn new(db: Db) -> Result<Self> {
        let options = |memory, layout| KeyspaceOptions {
            memory,
            layout,
            memtable_bytes: Some(64 << 10),
            table_bytes: 16 << 10,
            level1_bytes: 64 << 10,
            level_ratio: 4,
            block_bytes: 512,
            ..KeyspaceOptions::default()
        };
        let keyspaces = [
            db.keyspace("left", options(Memory::default(), Layout::default()))?,
            db.keyspace(
                "right",
                options(
                    Memory::Runs { runs: 3, merged_percent: 60 },
                    Layout::Tiered { runs: 2, merged_percent: 100 },
                ),
            )?,
            db.keyspace(
                "hashed",
                options(Memory::default(), Layout::Trie { levels: 3, runs: 2, hash: KeyHash::Sip }),
            )?,
            db.keyspace(
                "counters",
                options(Memory::default(), Layout::LazyLeveled { runs: 2, upper_percent: 50 }),
            )?,
        ];
        Ok(Self { db, keyspaces, names_used: AtomicU32::new(0) })
    }

    /// Lets the clients work until each has done its part, and returns what they recorded, closed by a full reading.
    pub fn run(&self, load: Load) -> Result<History> {
        let ticks = Ticks::default();
        let mut initial = [ABSENT; KEYS_MAX];
        for (key, seen) in self.read_all(&self.db.snapshot()?, &mut Dice(load.seed))? {
            if let Seen::Exactly(value) = seen {
                initial[usize::from(key)] = value;
            }
        }
        // Names of earlier runs never come back: a value that does is a resurrection.
        let names = 2 * load.ops_per_thread as u32;
        let names_from = self.names_used.fetch_add(names, Ordering::Relaxed);
        assert!(names_from + names < NAMES_PER_CLIENT, "too many runs on one target");
        let mut ops = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..load.threads)
                .map(|thread| {
                    let mut client = Client {
                        target: self,
                        ticks: &ticks,
                        thread,
                        rng: Dice(load.seed ^ (u64::from(thread) << 32)),
                        next_name: u32::from(thread) * NAMES_PER_CLIENT + names_from + 1,
                        padding_bytes: load.padding_bytes,
                        kept: Vec::new(),
                        ops: Vec::with_capacity(load.ops_per_thread + 64),
                    };
                    scope.spawn(move || client.work(load.ops_per_thread).map(|()| client.ops))
                })
                .collect();
            let mut all = Vec::new();
            for client in clients {
                all.extend(client.join().expect("a client panicked")?);
            }
            Ok::<_, drumlin::Error>(all)
        })?;
        let invoke = ticks.next();
        let snapshot = self.db.snapshot()?;
        let reads = self.read_all(&snapshot, &mut Dice(load.seed))?;
        let (thread, ret) = (load.threads, ticks.next());
        ops.push(Op { thread, class: Class::Snapshot, invoke, ret, reads, writes: vec![] });
        Ok(History { initial, ops })
    }

    fn keyspace(&self, key: Key) -> &Keyspace {
        &self.keyspaces[part(key)]
    }

    /// Reads every key at a snapshot, each part in a way of its own.
    fn read_all(&self, snapshot: &Snapshot, rng: &mut Dice) -> Result<Vec<(Key, Seen)>> {
        let mut all = Vec::with_capacity(KEYS_MAX);
        for (keyspace, keys) in self.keyspaces.iter().zip(PARTS) {
            self.read_part(keyspace, keys, rng.below(3), &mut all, Reader::Snapshot(snapshot))?;
        }
        Ok(all)
    }

    fn read_part(
        &self,
        keyspace: &Keyspace,
        keys: RangeInclusive<Key>,
        way: u64,
        all: &mut Vec<(Key, Seen)>,
        reader: Reader<'_>,
    ) -> Result<()> {
        let from = all.len();
        all.extend(keys.clone().map(|key| (key, Seen::Exactly(ABSENT))));
        let bounds = name(*keys.start())..=name(*keys.end());
        let is_ordered = keyspace.options().is_ordered();
        let mut scan = match reader {
            Reader::Snapshot(snapshot) if way == 0 => {
                for (key, seen) in &mut all[from..] {
                    *seen = Seen::Exactly(decode(*key, snapshot.get(keyspace, name(*key))?.as_deref()));
                }
                return Ok(());
            }
            Reader::Snapshot(snapshot) if is_ordered => snapshot.range(keyspace, bounds)?,
            Reader::Snapshot(snapshot) => snapshot.iter(keyspace)?,
            Reader::Scan(scan) => *scan,
        };
        let mut last = None;
        while let Some(entry) = if way == 1 { scan.next() } else { scan.next_back() } {
            let (key, value) = entry?;
            let number = number(&key);
            assert!(keys.contains(&number), "the scan left its bounds: key {number}");
            let in_order = last.is_none_or(|last| if way == 1 { last < number } else { last > number });
            assert!(in_order || !is_ordered, "the scan went from key {last:?} to {number}");
            last = Some(number);
            let seen = &mut all[from + usize::from(number - keys.start())].1;
            assert_eq!(*seen, Seen::Exactly(ABSENT), "the scan gave key {number} twice");
            *seen = Seen::Exactly(decode(number, Some(&value)));
        }
        Ok(())
    }
}

enum Reader<'a> {
    Snapshot(&'a Snapshot),
    Scan(Box<drumlin::Scan>),
}

/// Names of writes that one client has.
const NAMES_PER_CLIENT: u32 = 1 << 24;

fn part(key: Key) -> usize {
    PARTS.iter().position(|p| p.contains(&key)).expect("every key has its part")
}

fn name(key: Key) -> Vec<u8> {
    format!("a common beginning/{key:02}").into_bytes()
}

fn number(name: &[u8]) -> Key {
    let digits = name.strip_prefix(b"a common beginning/").and_then(|d| std::str::from_utf8(d).ok());
    digits.and_then(|d| d.parse().ok()).unwrap_or_else(|| panic!("a key nobody wrote: {name:?}"))
}

/// The bytes of a value: its name, and padding that follows from it.
fn encode(value: Value, padding_bytes: u64) -> Vec<u8> {
    let random = Dice(u64::from(value)).next();
    // Now and then one that fills blocks of its own.
    let length = if random.is_multiple_of(500) { 5000 } else { (random >> 16) % (padding_bytes + 1) };
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(4 + length as usize, random as u8);
    bytes
}

fn decode(key: Key, bytes: Option<&[u8]>) -> Value {
    let Some(bytes) = bytes else { return ABSENT };
    if part(key) == COUNTERS {
        let sum = i64::from_le_bytes(bytes.try_into().expect("a counter has 8 bytes"));
        return Value::try_from(sum).expect("counters stay small");
    }
    let (name, padding) = bytes.split_first_chunk().expect("a value has its name");
    let value = Value::from_le_bytes(*name);
    let expected = Dice(u64::from(value)).next() as u8;
    assert!(padding.iter().all(|b| *b == expected), "key {key}: value {value} is mixed with another");
    value
}

/// A snapshot that is read later.
struct Kept {
    snapshot: Snapshot,
    op: Op,
    /// Operations until it is read.
    until: u64,
    /// Parts read so far.
    parts: usize,
}

struct Client<'a> {
    target: &'a Target,
    ticks: &'a Ticks,
    thread: u8,
    rng: Dice,
    next_name: u32,
    padding_bytes: u64,
    kept: Vec<Kept>,
    ops: Vec<Op>,
}

impl Client<'_> {
    fn work(&mut self, count: usize) -> Result<()> {
        while self.ops.len() < count {
            self.step()?;
            self.read_kept(false)?;
        }
        self.read_kept(true)
    }

    fn fresh(&mut self) -> (Value, Vec<u8>) {
        self.next_name += 1;
        (self.next_name, encode(self.next_name, self.padding_bytes))
    }

    fn key(&mut self) -> Key {
        self.rng.below(60) as Key
    }

    fn push(&mut self, class: Class, invoke: u64, reads: Vec<(Key, Seen)>, writes: Vec<(Key, Value)>) {
        let ret = self.ticks.next();
        self.ops.push(Op { thread: self.thread, class, invoke, ret, reads, writes });
    }

    fn step(&mut self) -> Result<()> {
        let key = self.key();
        let keyspace = self.target.keyspace(key);
        let at = name(key);
        match self.rng.below(1000) {
            0..260 => {
                let (value, bytes) = self.fresh();
                let invoke = self.ticks.next();
                keyspace.put(&at, &bytes)?;
                self.push(Class::Write, invoke, vec![], vec![(key, value)]);
            }
            260..310 => {
                let invoke = self.ticks.next();
                keyspace.delete(&at)?;
                self.push(Class::Write, invoke, vec![], vec![(key, ABSENT)]);
            }
            310..560 => {
                let invoke = self.ticks.next();
                let seen = decode(key, keyspace.get(&at)?.as_deref());
                self.push(Class::Get, invoke, vec![(key, Seen::Exactly(seen))], vec![]);
            }
            560..680 => self.update(key)?,
            680..780 => self.compare_and_swap(key)?,
            780..810 => {
                let (value, bytes) = self.fresh();
                let invoke = self.ticks.next();
                if keyspace.put_if_absent(&at, &bytes)? {
                    self.push(Class::Write, invoke, vec![(key, Seen::Exactly(ABSENT))], vec![(key, value)]);
                } else {
                    self.push(Class::Get, invoke, vec![(key, Seen::Present)], vec![]);
                }
            }
            810..860 => {
                let key = 60 + self.rng.below(4) as Key;
                let invoke = self.ticks.next();
                let sum = self.target.keyspace(key).fetch_add(name(key), 1)?;
                let sum = Value::try_from(sum).expect("counters stay small");
                self.push(Class::Write, invoke, vec![(key, Seen::Exactly(sum - 1))], vec![(key, sum)]);
            }
            860..930 => self.batch()?,
            930..940 => {
                let keys = self.span(key);
                let invoke = self.ticks.next();
                if keyspace.options().is_ordered() {
                    keyspace.delete_range(name(*keys.start()), name(*keys.end() + 1))?;
                } else {
                    let mut batch = self.target.db.batch();
                    keys.clone().try_for_each(|key| batch.delete(keyspace, name(key)))?;
                    batch.commit()?;
                }
                self.push(Class::Write, invoke, vec![], keys.map(|k| (k, ABSENT)).collect());
            }
            940..960 => {
                // Several gets, each atomic by itself.
                let keys = self.span(key);
                let invoke = self.ticks.next();
                let names: Vec<_> = keys.clone().map(name).collect();
                let found = keyspace.multi_get(&names)?;
                let ret = self.ticks.next();
                for (key, value) in keys.zip(found) {
                    let reads = vec![(key, Seen::Exactly(decode(key, value.as_deref())))];
                    let (thread, class) = (self.thread, Class::Get);
                    self.ops.push(Op { thread, class, invoke, ret, reads, writes: vec![] });
                }
            }
            960..970 => {
                let keys = PARTS[part(key)].clone();
                let invoke = self.ticks.next();
                let scan = match keyspace.options().is_ordered() {
                    true => keyspace.range(name(*keys.start())..=name(*keys.end()))?,
                    false => keyspace.iter()?,
                };
                let ret = self.ticks.next();
                let mut reads = Vec::new();
                let way = 1 + self.rng.below(2);
                self.target.read_part(keyspace, keys, way, &mut reads, Reader::Scan(Box::new(scan)))?;
                let (thread, class) = (self.thread, Class::Snapshot);
                self.ops.push(Op { thread, class, invoke, ret, reads, writes: vec![] });
            }
            970..999 => {
                let recent = self.rng.below(2) == 0;
                let invoke = self.ticks.next();
                let (class, snapshot) = match recent {
                    true => (Class::Recent, self.target.db.snapshot_recent()?),
                    false => (Class::Snapshot, self.target.db.snapshot()?),
                };
                let ret = self.ticks.next();
                let op = Op { thread: self.thread, class, invoke, ret, reads: vec![], writes: vec![] };
                let until = if self.rng.below(3) == 0 { self.rng.below(300) } else { 0 };
                self.kept.push(Kept { snapshot, op, until, parts: 0 });
            }
            _ if self.rng.below(200) == 0 => keyspace.compact()?,
            _ => {}
        }
        Ok(())
    }

    /// One to five neighbouring keys of one keyspace.
    fn span(&mut self, from: Key) -> RangeInclusive<Key> {
        let last = *PARTS[part(from)].end();
        from..=(from + self.rng.below(5) as Key).min(last)
    }

    fn update(&mut self, key: Key) -> Result<()> {
        let (value, bytes) = self.fresh();
        let delete = self.rng.below(10) == 0;
        let mut seen = ABSENT;
        let invoke = self.ticks.next();
        let new = self.target.keyspace(key).update(name(key), |old| {
            seen = decode(key, old);
            (!delete).then(|| bytes.clone())
        })?;
        assert_eq!(new.as_deref(), (!delete).then_some(&bytes[..]), "update returns what it wrote");
        let reads = vec![(key, Seen::Exactly(seen))];
        match delete {
            true if seen == ABSENT => self.push(Class::Get, invoke, reads, vec![]),
            true => self.push(Class::Write, invoke, reads, vec![(key, ABSENT)]),
            false => self.push(Class::Write, invoke, reads, vec![(key, value)]),
        }
        Ok(())
    }

    fn compare_and_swap(&mut self, key: Key) -> Result<()> {
        let keyspace = self.target.keyspace(key);
        let invoke = self.ticks.next();
        let expected = keyspace.get(name(key))?;
        let seen = decode(key, expected.as_deref());
        self.push(Class::Get, invoke, vec![(key, Seen::Exactly(seen))], vec![]);

        let (value, bytes) = self.fresh();
        let new = (self.rng.below(8) != 0).then_some((value, &bytes[..]));
        let invoke = self.ticks.next();
        match keyspace.compare_and_swap(name(key), expected.as_deref(), new.map(|n| n.1))? {
            Cas::Swapped => {
                let written = new.map_or(ABSENT, |n| n.0);
                self.push(Class::Write, invoke, vec![(key, Seen::Exactly(seen))], vec![(key, written)]);
            }
            Cas::Mismatch { current } => {
                let current = decode(key, current.as_deref());
                assert_ne!(current, seen, "a mismatch tells what it found instead");
                self.push(Class::Get, invoke, vec![(key, Seen::Exactly(current))], vec![]);
            }
        }
        Ok(())
    }

    fn batch(&mut self) -> Result<()> {
        let mut batch = self.target.db.batch();
        let mut writes: Vec<(Key, Value)> = Vec::new();
        let mut write = |key, value| {
            // The last word on a key wins.
            writes.retain(|(k, _)| *k != key);
            writes.push((key, value));
        };
        for _ in 0..2 + self.rng.below(5) {
            let key = self.key();
            let keyspace = self.target.keyspace(key);
            match self.rng.below(24) {
                0..3 => {
                    batch.delete(keyspace, name(key))?;
                    write(key, ABSENT);
                }
                3 => {
                    let keys = self.span(key);
                    match keyspace.options().is_ordered() {
                        true => batch.delete_range(keyspace, name(*keys.start()), name(*keys.end() + 1))?,
                        false => keys.clone().try_for_each(|key| batch.delete(keyspace, name(key)))?,
                    }
                    keys.for_each(|key| write(key, ABSENT));
                }
                _ => {
                    let (value, bytes) = self.fresh();
                    batch.put(keyspace, name(key), &bytes)?;
                    write(key, value);
                }
            }
        }
        let invoke = self.ticks.next();
        batch.commit()?;
        self.push(Class::Write, invoke, vec![], writes);
        Ok(())
    }

    /// Reads the next part of each snapshot whose time has come; records those that are read whole.
    fn read_kept(&mut self, all: bool) -> Result<()> {
        let mut kept = std::mem::take(&mut self.kept);
        for snapshot in &mut kept {
            loop {
                if snapshot.until > 0 && !all {
                    snapshot.until -= 1;
                    break;
                }
                let (part, way) = (snapshot.parts, self.rng.below(3));
                let reader = Reader::Snapshot(&snapshot.snapshot);
                let keyspace = &self.target.keyspaces[part];
                self.target.read_part(keyspace, PARTS[part].clone(), way, &mut snapshot.op.reads, reader)?;
                snapshot.parts += 1;
                if snapshot.parts == PARTS.len() {
                    break;
                }
                snapshot.until = if self.rng.below(8) == 0 { self.rng.below(100) } else { 0 };
            }
        }
        for snapshot in kept {
            if snapshot.parts == PARTS.len() {
                self.ops.push(snapshot.op);
            } else {
                self.kept.push(snapshot);
            }
        }
        Ok(())
    }
}
