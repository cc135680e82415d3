//! The store against sorted maps: one seeded history, the same answers.
//!
//! Three keyspaces with random options, orders (or none, in a trie) and key shapes; puts, deletes, range deletions, every
//! kind of read-modify-write, batches over keyspaces; gets, snapshots of both kinds, scans of every
//! bound from both ends, which may take their time while memtables turn and tables merge beneath them;
//! keyspaces dropped and made again; clean reopens and crashes of the process.
//! `DRUMLIN_SEED` and `DRUMLIN_SEEDS` say where to begin and how many histories to run.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use drumlin::env::{Env, MemFs};
use drumlin::key::{Comparator, ComparatorRef, bytewise};
use drumlin::{Cas, Db, Error, Keyspace, Scan, Snapshot};
use drumlin::{Compression, Durability, KeyHash, KeyspaceOptions, Layout, Memory, Options, WriteOptions};

/// A small generator, so that a failure is repeated by its seed alone.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Numbers descending, by length first: nothing like the order of bytes.
struct Backwards;

impl Comparator for Backwards {
    fn name(&self) -> &str {
        "test.backwards"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        b.len().cmp(&a.len()).then_with(|| b.cmp(a))
    }
}

/// The start of a key or value, for messages.
fn brief(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(16)].escape_ascii().to_string()
}

/// A record, for comparing and for messages.
fn seen((key, value): (&[u8], &[u8])) -> (String, usize, String) {
    (brief(key), value.len(), brief(value))
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const NAMES: [&str; 3] = ["first", "second", "third"];

/// A keyspace as it should be.
#[derive(Clone)]
struct Model {
    /// Which of all keyspaces ever made it is: a name may be used again.
    id: u64,
    comparator: ComparatorRef,
    /// False of a trie: scans give all records, in an order of their own.
    ordered: bool,
    logged: bool,
    map: Map,
}

impl Model {
    fn sorted(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all: Vec<_> = self.map.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        all.sort_by(|a, b| self.comparator.compare(&a.0, &b.0));
        all
    }

    fn remove_range(&mut self, start: &[u8], end: &[u8]) {
        let c = self.comparator.clone();
        self.map.retain(|k, _| c.compare(k, start).is_lt() || c.compare(k, end).is_ge());
    }
}

type Models = BTreeMap<&'static str, Model>;

/// What a scan has still to give.
enum Expected {
    InOrder(VecDeque<(Vec<u8>, Vec<u8>)>),
    InAny(Map),
}

impl Expected {
    /// The record that a step must give, which may be any of the rest: the one that it gave, if that is one of them.
    fn take(&mut self, back: bool, got: Option<&[u8]>) -> Option<(Vec<u8>, Vec<u8>)> {
        match self {
            Expected::InOrder(records) => {
                if back {
                    records.pop_back()
                } else {
                    records.pop_front()
                }
            }
            Expected::InAny(records) => match got {
                Some(got) => records.remove_entry(got),
                None => records.pop_first(),
            },
        }
    }
}

/// A scan under way, and what it has still to give.
struct OpenScan {
    scan: Scan,
    expected: Expected,
    name: String,
    /// The next record is to be lent, not given.
    lends: bool,
}

impl OpenScan {
    /// One step from either end; false at the end.
    fn step(&mut self, back: bool) -> bool {
        self.lends = !self.lends;
        let with_key = |(key, value): (&[u8], &[u8])| (key.to_vec(), seen((key, value)));
        let got = match (self.lends, back) {
            (true, false) => self.scan.next_ref().expect("no error").map(with_key),
            (true, true) => self.scan.next_back_ref().expect("no error").map(with_key),
            (false, _) => {
                let got = if back { self.scan.next_back() } else { self.scan.next() };
                got.map(|record| record.expect("no error")).map(|(key, value)| with_key((&key, &value)))
            }
        };
        let want = self.expected.take(back, got.as_ref().map(|(key, _)| &key[..]));
        let got = got.map(|(_, seen)| seen);
        let want = want.as_ref().map(|(key, value)| seen((key, value)));
        assert_eq!(got, want, "{}, back: {back}", self.name);
        want.is_some()
    }
}

struct Run {
    dice: Dice,
    key_bytes: u64,
    keys: u64,
    db: Option<Db>,
    fs: Arc<MemFs>,
    options: Options,
    models: Models,
    made: u64,
    snapshots: Vec<(Snapshot, Models)>,
    scans: Vec<OpenScan>,
}

impl Run {
    fn key(&mut self) -> Vec<u8> {
        let number = self.dice.below(self.keys);
        let mut key = format!("{number:06}").into_bytes();
        // Some keys are prefixes of others, some are long, one is empty.
        match number % 7 {
            0 => key.truncate((number % 6) as usize),
            1 => key.extend(std::iter::repeat_n(b'x', self.key_bytes as usize)),
            2 => key.insert(0, 0xff),
            _ => {}
        }
        key
    }

    fn value(&mut self) -> Vec<u8> {
        let bytes = self.dice.pick(&[0, 1, 10, 100, 100, 100, 1000, 9000]);
        let seed = self.dice.next();
        (0..bytes).map(|i| (seed.rotate_left(i as u32 % 64) as u8).wrapping_add((i / 64) as u8)).collect()
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    fn keyspace(&self, name: &str) -> Keyspace {
        self.db().open_keyspace(name).expect("it was made")
    }

    fn model(&mut self, name: &str) -> &mut Model {
        self.models.get_mut(name).expect("it was made")
    }

    /// Makes a keyspace with random options.
    fn make(&mut self, name: &'static str) {
        let dice = &mut self.dice;
        let layout = dice.pick(&[
            Layout::Leveled,
            Layout::Tiered { runs: 3, merged_percent: 60 },
            Layout::LazyLeveled { runs: 2, upper_percent: 50 },
            Layout::Trie { levels: 3, runs: 2, hash: KeyHash::Sip },
            Layout::Trie { levels: 2, runs: 3, hash: KeyHash::Sha1 },
        ]);
        let ordered = !matches!(layout, Layout::Trie { .. });
        let backwards = dice.below(3) == 0 && ordered;
        let comparator: ComparatorRef = if backwards { Arc::new(Backwards) } else { bytewise() };
        let options = KeyspaceOptions {
            comparator: comparator.clone(),
            logged: dice.below(6) > 0,
            memory: dice.pick(&[
                Memory::default(),
                Memory::Sorted,
                Memory::Runs { runs: 2, merged_percent: 100 },
                Memory::Runs { runs: 5, merged_percent: 40 },
            ]),
            layout,
            memtable_bytes: dice.pick(&[Some(64 << 10), Some(256 << 10), None]),
            compression: dice.pick(&[Compression::None, Compression::Lz4]),
            block_bytes: dice.pick(&[128, 1024, 4096]),
            filter_bits_per_key: dice.pick(&[0.0, 4.0, 10.0]),
            table_bytes: dice.pick(&[4 << 10, 64 << 10, 32 << 20]),
            level0_tables: dice.pick(&[1, 2, 4]),
            level1_bytes: dice.pick(&[16 << 10, 256 << 10]),
            level_ratio: dice.pick(&[2, 4, 10]),
            ..KeyspaceOptions::default()
        };
        let logged = options.logged;
        self.db().keyspace(name, options).expect("keyspace");
        self.made += 1;
        self.models.insert(name, Model { id: self.made, comparator, ordered, logged, map: Map::new() });
    }

    /// Drops it and makes another of the same name.
    fn remake(&mut self, name: &'static str) {
        let old = self.keyspace(name);
        self.db().drop_keyspace(name).expect("drop");
        assert!(matches!(old.get("000001"), Err(Error::Closed { .. })));
        assert!(matches!(old.put("000001", ""), Err(Error::Closed { .. })));
        self.make(name);
    }

    fn bounds(&mut self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let mut one = || match self.dice.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.key()),
            _ => Bound::Excluded(self.key()),
        };
        (one(), one())
    }

    /// Scans of a keyspace as it is and as every snapshot has it, within the same bounds.
    fn open_scans(&mut self, name: &'static str, context: &str) -> Vec<OpenScan> {
        let mut bounds = self.bounds();
        let mut prefix = (self.dice.below(5) == 0).then(|| {
            let key = self.key();
            key[..key.len().min(self.dice.below(5) as usize)].to_vec()
        });
        let (keyspace, now) = (self.keyspace(name), self.models[name].clone());
        if !now.ordered {
            if !matches!(bounds, (Bound::Unbounded, Bound::Unbounded)) && bounds.0 != Bound::Included(vec![])
            {
                assert!(
                    matches!(keyspace.range(bounds), Err(Error::NoOrder { op: "range", .. })),
                    "{context}"
                );
            }
            assert!(matches!(keyspace.prefix("x"), Err(Error::NoOrder { .. })), "{context}");
            (bounds, prefix) = ((Bound::Unbounded, Bound::Unbounded), None);
        }
        let inside = |key: &[u8]| {
            if let Some(prefix) = &prefix {
                return key.starts_with(prefix);
            }
            let after = match &bounds.0 {
                Bound::Included(s) => now.comparator.compare(key, s).is_ge(),
                Bound::Excluded(s) => now.comparator.compare(key, s).is_gt(),
                Bound::Unbounded => true,
            };
            let before = match &bounds.1 {
                Bound::Included(e) => now.comparator.compare(key, e).is_le(),
                Bound::Excluded(e) => now.comparator.compare(key, e).is_lt(),
                Bound::Unbounded => true,
            };
            after && before
        };
        if prefix.is_some() && !now.comparator.is_bytewise() {
            assert!(keyspace.prefix("x").is_err(), "a prefix needs the bytewise order");
            return Vec::new();
        }
        let scan = |snapshot: Option<&Snapshot>| match (snapshot, &prefix) {
            (None, None) => keyspace.range(bounds.clone()),
            (None, Some(prefix)) => keyspace.prefix(prefix),
            (Some(s), None) => s.range(&keyspace, bounds.clone()),
            (Some(s), Some(prefix)) => s.prefix(&keyspace, prefix),
        };
        let mut scans = vec![(scan(None), now.sorted())];
        for (snapshot, models) in &self.snapshots {
            // Of a keyspace made since, a snapshot sees nothing.
            let then = models.get(name).filter(|then| then.id == now.id).map(Model::sorted);
            scans.push((scan(Some(snapshot)), then.unwrap_or_default()));
        }
        let named = |(number, (scan, all)): (usize, (drumlin::Result<Scan>, Vec<(Vec<u8>, Vec<u8>)>))| {
            let all = all.into_iter().filter(|(k, _)| inside(k));
            let expected = match now.ordered {
                true => Expected::InOrder(all.collect()),
                false => Expected::InAny(all.collect()),
            };
            let name = format!("{context}: {name}, {bounds:?}, {prefix:?}, of {number}");
            OpenScan { scan: scan.expect("scan"), expected, name, lends: number % 2 == 0 }
        };
        scans.into_iter().enumerate().map(named).collect()
    }

    fn check_scans(&mut self, name: &'static str, context: &str) {
        for mut scan in self.open_scans(name, context) {
            let ends = self.dice.below(3);
            while scan.step(ends == 1 || (ends == 2 && self.dice.below(2) == 0)) {}
        }
    }

    fn step(&mut self, context: &str) {
        let name = self.dice.pick(&NAMES);
        let keyspace = self.keyspace(name);
        match self.dice.below(100) {
            0..38 => {
                let (key, value) = (self.key(), self.value());
                let logged = self.model(name).logged;
                match self.dice.below(40) {
                    0 if logged => {
                        let durability = Some(self.dice.pick(&[Durability::Process, Durability::Disk]));
                        keyspace.put_with(&key, &value, WriteOptions { durability }).expect("put");
                    }
                    0 => {
                        let options = WriteOptions { durability: Some(Durability::Disk) };
                        assert!(keyspace.put_with(&key, &value, options).is_err(), "it is not logged");
                        return;
                    }
                    _ => keyspace.put(&key, &value).expect("put"),
                }
                self.model(name).map.insert(key, value);
            }
            38..50 => {
                let key = self.key();
                keyspace.delete(&key).expect("delete");
                self.model(name).map.remove(&key);
            }
            50..52 => {
                let (a, b) = (self.key(), self.key());
                if !self.model(name).ordered {
                    assert!(matches!(keyspace.delete_range(&a, &b), Err(Error::NoOrder { .. })));
                } else if self.model(name).comparator.compare(&a, &b).is_lt() {
                    keyspace.delete_range(&a, &b).expect("delete_range");
                    self.model(name).remove_range(&a, &b);
                } else {
                    assert!(keyspace.delete_range(&a, &b).is_err(), "an empty range is refused");
                }
            }
            52..62 => self.modify(name),
            62..66 => self.batch(name),
            66..84 => {
                let keys: Vec<_> = (0..1 + self.dice.below(3)).map(|_| self.key()).collect();
                let (map, id) = (&self.models[name].map, self.models[name].id);
                for (key, got) in keys.iter().zip(keyspace.multi_get(&keys).expect("multi_get")) {
                    assert!(got.as_deref() == map.get(key).map(Vec::as_slice), "{context}: {name} {key:?}");
                    let again = keyspace.get(key).expect("get");
                    assert!(again == got, "{context}: {name} {key:?}");
                    assert_eq!(keyspace.contains(key).expect("contains"), got.is_some());
                }
                for (snapshot, models) in &self.snapshots {
                    let then = models.get(name).filter(|then| then.id == id);
                    for (key, got) in
                        keys.iter().zip(snapshot.multi_get(&keyspace, &keys).expect("multi_get"))
                    {
                        let want = then.and_then(|then| then.map.get(key)).map(Vec::as_slice);
                        assert!(got.as_deref() == want, "{context}: {name} {snapshot:?} {key:?}");
                        assert!(
                            snapshot.get(&keyspace, key).expect("get") == got,
                            "{context}: {name} {key:?}"
                        );
                    }
                }
            }
            84..87 => self.check_scans(name, context),
            87..89 => {
                if self.scans.len() < 8 {
                    let scans = self.open_scans(name, context);
                    self.scans.extend(scans);
                } else {
                    let gone = self.dice.below(8) as usize;
                    self.scans.swap_remove(gone);
                }
            }
            89..92 => {
                if self.snapshots.len() < 4 {
                    let mut snapshot = self.db().snapshot().expect("snapshot");
                    if self.dice.below(2) == 0 {
                        // Taken alone it may lag: a worker that pads the log has a write in flight too.
                        let waited_for = snapshot.lsn();
                        snapshot = self.db().snapshot_recent().expect("snapshot");
                        assert!(snapshot.lsn() >= waited_for, "{context}: the completed prefix only grows");
                    }
                    self.snapshots.push((snapshot, self.models.clone()));
                } else {
                    let gone = self.dice.below(4) as usize;
                    self.snapshots.swap_remove(gone);
                }
            }
            92 => match self.dice.below(50) {
                0..8 => self.db().flush().expect("flush"),
                8 => keyspace.compact().expect("compact"),
                9..12 => self.reopen(false),
                12..15 => self.reopen(true),
                15..17 => self.remake(name),
                17 => self.db().wait_for_idle().expect("idle"),
                18 => self.db().persist().expect("persist"),
                _ => {}
            },
            _ => {
                // Scans go on a little, whatever was flushed, merged, dropped or overwritten meanwhile.
                let mut scans = std::mem::take(&mut self.scans);
                scans.retain_mut(|scan| (0..3).all(|_| scan.step(self.dice.below(2) == 0)));
                self.scans = scans;
            }
        }
    }

    /// One read-modify-write of a kind.
    fn modify(&mut self, name: &'static str) {
        let keyspace = self.keyspace(name);
        let (key, value) = (self.key(), self.value());
        let (which, delta) = (self.dice.below(6), self.dice.below(2000) as i64 - 1000);
        let map = &mut self.model(name).map;
        let expected = map.get(&key).cloned();
        match which {
            0 => {
                let new = keyspace.update(&key, |old| old.map(|o| [o, b"+"].concat())).expect("update");
                if let Some(old) = map.get_mut(&key) {
                    old.push(b'+');
                }
                assert_eq!(new.as_deref(), map.get(&key).map(Vec::as_slice));
            }
            1 => {
                let swapped =
                    keyspace.compare_and_swap(&key, expected.as_deref(), Some(&value)).expect("cas");
                assert_eq!(swapped, Cas::Swapped);
                map.insert(key, value);
            }
            2 => {
                let outcome = keyspace.compare_and_swap(&key, Some(b"never written"), None).expect("cas");
                assert!(
                    matches!(outcome, Cas::Mismatch { current } if current.as_deref() == expected.as_deref())
                );
            }
            3 => {
                // `None` deletes.
                let swapped = keyspace.compare_and_swap(&key, expected.as_deref(), None).expect("cas");
                assert_eq!(swapped, Cas::Swapped);
                map.remove(&key);
            }
            4 => {
                let old = expected.as_deref().map_or(Some([0; 8]), |v| v.try_into().ok());
                match (keyspace.fetch_add(&key, delta), old.map(i64::from_le_bytes)) {
                    (Ok(sum), Some(old)) => {
                        assert_eq!(sum, old + delta);
                        map.insert(key, sum.to_le_bytes().to_vec());
                    }
                    (Err(Error::InvalidArgument(_)), None) => {}
                    (got, want) => panic!("{got:?}, counter {want:?}"),
                }
            }
            _ => {
                let put = keyspace.put_if_absent(&key, &value).expect("put_if_absent");
                assert_eq!(put, expected.is_none());
                map.entry(key).or_insert(value);
            }
        }
    }

    /// A batch over all keyspaces that are logged like this one.
    fn batch(&mut self, name: &'static str) {
        let logged = self.models[name].logged;
        let mut batch = self.db().batch();
        for _ in 0..self.dice.below(30) {
            let name = self.dice.pick(&NAMES);
            if self.models[name].logged != logged {
                continue;
            }
            let keyspace = self.keyspace(name);
            let (key, value) = (self.key(), self.value());
            match self.dice.below(12) {
                0 => {
                    let end = self.key();
                    if !self.models[name].ordered {
                        let refused = batch.delete_range(&keyspace, &key, &end);
                        assert!(matches!(refused, Err(Error::NoOrder { .. })));
                    } else if self.models[name].comparator.compare(&key, &end).is_lt() {
                        batch.delete_range(&keyspace, &key, &end).expect("delete_range");
                        self.model(name).remove_range(&key, &end);
                    }
                }
                1..4 => {
                    batch.delete(&keyspace, &key).expect("delete");
                    self.model(name).map.remove(&key);
                }
                _ => {
                    batch.put(&keyspace, &key, &value).expect("put");
                    self.model(name).map.insert(key, value);
                }
            }
        }
        batch.commit().expect("commit");
    }

    fn reopen(&mut self, crash: bool) {
        self.snapshots.clear();
        self.scans.clear();
        let db = self.db.take().expect("open");
        if crash {
            let clone = self.fs.process_crash_clone();
            drop(db);
            self.fs = clone;
        } else {
            db.close().expect("close");
        }
        self.db = Some(open(&self.fs, &self.options));
        for name in NAMES {
            let keyspace = self.keyspace(name);
            let model = &self.models[name];
            assert_eq!(keyspace.options().comparator.name(), model.comparator.name());
            // What is not logged and was not flushed is gone; a prefix of the past may be there.
            if !model.logged {
                self.remake(name);
            }
        }
    }
}

fn open(fs: &Arc<MemFs>, options: &Options) -> Db {
    Db::open_with(Env::with_fs(fs.clone()), "/store", options.clone()).expect("open")
}

fn run(seed: u64, steps: usize) {
    let mut dice = Dice(seed);
    let options = Options {
        memory_bytes: 4 << 20,
        segment_bytes: 64 << 10,
        log_bytes_max: Some(dice.pick(&[256 << 10, 8 << 20])),
        background_threads: dice.pick(&[1, 2, 3]),
        durability: dice.pick(&[Durability::Process, Durability::Process, Durability::Disk]),
        comparators: vec![Arc::new(Backwards)],
        ..Options::default()
    };
    let fs = MemFs::new();
    let db = open(&fs, &options);
    let (keys, key_bytes) = (dice.pick(&[30, 300, 3000]), dice.pick(&[10, 300]));
    let mut run = Run {
        dice,
        key_bytes,
        keys,
        db: Some(db),
        fs,
        options,
        models: Models::new(),
        made: 0,
        snapshots: Vec::new(),
        scans: Vec::new(),
    };
    for name in NAMES {
        run.make(name);
    }
    for step in 0..steps {
        run.step(&format!("seed {seed}, step {step}"));
    }
    for end in ["live", "reopened", "crashed", "compacted"] {
        match end {
            "reopened" => run.reopen(false),
            "crashed" => run.reopen(true),
            "compacted" => run.db().compact().expect("compact"),
            _ => {}
        }
        for name in NAMES {
            run.check_scans(name, &format!("seed {seed}, {end}"));
        }
        let report = run.db().verify(&mut |_| {}).expect("verify");
        assert!(report.is_sound(), "seed {seed}, {end}: {:?}", report.problems);
    }
}

#[test]
fn the_store_answers_as_a_sorted_map_would() {
    let seeds = std::env::var("DRUMLIN_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(24);
    let first = std::env::var("DRUMLIN_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for seed in first..first + seeds {
        run(seed, 6000);
    }
}
