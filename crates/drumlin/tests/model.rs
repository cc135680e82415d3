//! The store against a sorted map: one seeded history, the same answers, under random options, key
//! shapes and comparators, across clean reopens and crashes of the process.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use drumlin::env::{Env, MemFs};
use drumlin::key::{Comparator, ComparatorRef, bytewise};
use drumlin::options::{Compression, KeyspaceOptions, Options};
use drumlin::{Cas, Db, Keyspace, Snapshot};

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

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

struct Run {
    dice: Dice,
    comparator: ComparatorRef,
    key_bytes: u64,
    keys: u64,
    db: Option<Db>,
    fs: Arc<MemFs>,
    options: Options,
    model: Map,
    snapshots: Vec<(Snapshot, Map)>,
}

impl Run {
    fn key(&mut self) -> Vec<u8> {
        let number = self.dice.below(self.keys);
        let mut key = format!("{number:06}").into_bytes();
        // Some keys are prefixes of others, some are long, one is empty.
        match number % 7 {
            0 => key.truncate((number % 6) as usize),
            1 => key.extend(std::iter::repeat_n(b'x', self.key_bytes as usize)),
            _ => {}
        }
        key
    }

    fn value(&mut self) -> Vec<u8> {
        let bytes = self.dice.pick(&[0, 1, 10, 100, 100, 100, 1000, 9000]);
        let seed = self.dice.next();
        (0..bytes).map(|i| (seed.rotate_left(i as u32 % 64) as u8).wrapping_add((i / 64) as u8)).collect()
    }

    fn keyspace(&self) -> Keyspace {
        self.db.as_ref().expect("open").open_keyspace("k").expect("made at the start")
    }

    fn sorted<'a>(&self, map: &'a Map) -> Vec<(&'a Vec<u8>, &'a Vec<u8>)> {
        let mut all: Vec<_> = map.iter().collect();
        all.sort_by(|a, b| self.comparator.compare(a.0, b.0));
        all
    }

    fn check_scan(&mut self, context: &str) {
        let (a, b) = (self.key(), self.key());
        let forms: [(Bound<Vec<u8>>, Bound<Vec<u8>>); 4] = [
            (Bound::Unbounded, Bound::Unbounded),
            (Bound::Included(a.clone()), Bound::Excluded(b.clone())),
            (Bound::Excluded(a.clone()), Bound::Included(b.clone())),
            (Bound::Included(a), Bound::Unbounded),
        ];
        let which = self.dice.below(4) as usize;
        let bounds = forms[which].clone();
        let inside = |key: &[u8]| {
            let after = match &bounds.0 {
                Bound::Included(s) => self.comparator.compare(key, s).is_ge(),
                Bound::Excluded(s) => self.comparator.compare(key, s).is_gt(),
                Bound::Unbounded => true,
            };
            let before = match &bounds.1 {
                Bound::Included(e) => self.comparator.compare(key, e).is_le(),
                Bound::Excluded(e) => self.comparator.compare(key, e).is_lt(),
                Bound::Unbounded => true,
            };
            after && before
        };
        let keyspace = self.keyspace();
        let live = (&self.model, keyspace.range(bounds.clone()).expect("scan"));
        let frozen =
            self.snapshots.iter().map(|(s, m)| (m, s.range(&keyspace, bounds.clone()).expect("scan")));
        let mut coin = Dice(self.dice.0);
        for (which, (map, mut scan)) in std::iter::once(live).chain(frozen).enumerate() {
            let mut expected: std::collections::VecDeque<_> =
                self.sorted(map).into_iter().filter(|(k, _)| inside(k)).collect();
            let both_ends = coin.below(3);
            loop {
                let back = both_ends == 1 || (both_ends == 2 && coin.below(2) == 0);
                let (got, want) = if back {
                    (scan.next_back(), expected.pop_back())
                } else {
                    (scan.next(), expected.pop_front())
                };
                let got = got.map(|r| r.expect("no error"));
                let got = got.as_ref().map(|(k, v)| (brief(k), v.len(), brief(v)));
                let want_brief = want.map(|(k, v)| (brief(k), v.len(), brief(v)));
                assert_eq!(got, want_brief, "{context}: {bounds:?} of {which} back: {back}, {both_ends}");
                if want.is_none() {
                    break;
                }
            }
        }
    }

    fn step(&mut self, context: &str) {
        let keyspace = self.keyspace();
        match self.dice.below(100) {
            0..40 => {
                let (key, value) = (self.key(), self.value());
                keyspace.put(&key, &value).expect("put");
                self.model.insert(key, value);
            }
            40..52 => {
                let key = self.key();
                keyspace.delete(&key).expect("delete");
                self.model.remove(&key);
            }
            52..54 => {
                let (a, b) = (self.key(), self.key());
                if self.comparator.compare(&a, &b).is_lt() {
                    keyspace.delete_range(&a, &b).expect("delete_range");
                    let comparator = self.comparator.clone();
                    self.model.retain(|k, _| {
                        comparator.compare(k, &a).is_lt() || comparator.compare(k, &b).is_ge()
                    });
                } else {
                    assert!(keyspace.delete_range(&a, &b).is_err(), "an empty range is refused");
                }
            }
            54..62 => {
                let key = self.key();
                let value = self.value();
                let expected = self.model.get(&key).cloned();
                match self.dice.below(4) {
                    0 => {
                        let new =
                            keyspace.update(&key, |old| old.map(|o| [o, b"+"].concat())).expect("update");
                        if let Some(old) = self.model.get_mut(&key) {
                            old.push(b'+');
                        }
                        assert_eq!(new.as_deref(), self.model.get(&key).map(Vec::as_slice));
                    }
                    1 => {
                        let swapped =
                            keyspace.compare_and_swap(&key, expected.as_deref(), Some(&value)).expect("cas");
                        assert_eq!(swapped, Cas::Swapped);
                        self.model.insert(key, value);
                    }
                    2 => {
                        let outcome =
                            keyspace.compare_and_swap(&key, Some(b"never written"), None).expect("cas");
                        assert!(
                            matches!(outcome, Cas::Mismatch { current } if current.as_deref() == expected.as_deref())
                        );
                    }
                    _ => {
                        let put = keyspace.put_if_absent(&key, &value).expect("put_if_absent");
                        assert_eq!(put, expected.is_none());
                        self.model.entry(key).or_insert(value);
                    }
                }
            }
            62..66 => {
                let mut batch = self.db.as_ref().expect("open").batch();
                for _ in 0..self.dice.below(30) {
                    let (key, value) = (self.key(), self.value());
                    match self.dice.below(12) {
                        0 => {
                            let end = self.key();
                            if self.comparator.compare(&key, &end).is_lt() {
                                batch.delete_range(&keyspace, &key, &end).expect("delete_range");
                                let c = self.comparator.clone();
                                self.model
                                    .retain(|k, _| c.compare(k, &key).is_lt() || c.compare(k, &end).is_ge());
                            }
                        }
                        1..4 => {
                            batch.delete(&keyspace, &key).expect("delete");
                            self.model.remove(&key);
                        }
                        _ => {
                            batch.put(&keyspace, &key, &value).expect("put");
                            self.model.insert(key, value);
                        }
                    }
                }
                batch.commit().expect("commit");
            }
            66..86 => {
                let key = self.key();
                assert!(
                    keyspace.get(&key).expect("get").as_deref() == self.model.get(&key).map(Vec::as_slice),
                    "{context}: {key:?}"
                );
                for (snapshot, map) in &self.snapshots {
                    let got = snapshot.get(&keyspace, &key).expect("get");
                    assert!(
                        got.as_deref() == map.get(&key).map(Vec::as_slice),
                        "{context}: {snapshot:?} {key:?}"
                    );
                }
            }
            86..89 => self.check_scan(context),
            89..92 => {
                if self.snapshots.len() < 4 {
                    let db = self.db.as_ref().expect("open");
                    let snapshot = if self.dice.below(2) == 0 { db.snapshot() } else { db.snapshot_recent() };
                    self.snapshots.push((snapshot.expect("snapshot"), self.model.clone()));
                } else {
                    let gone = self.dice.below(4) as usize;
                    self.snapshots.swap_remove(gone);
                }
            }
            92 => match self.dice.below(40) {
                0..8 => self.db.as_ref().expect("open").flush().expect("flush"),
                8 => keyspace.compact().expect("compact"),
                9..12 => self.reopen(false),
                12..15 => self.reopen(true),
                _ => {}
            },
            _ => {
                let key = self.key();
                assert_eq!(keyspace.contains(&key).expect("contains"), self.model.contains_key(&key));
            }
        }
    }

    fn reopen(&mut self, crash: bool) {
        self.snapshots.clear();
        let db = self.db.take().expect("open");
        if crash {
            let clone = self.fs.process_crash_clone();
            drop(db);
            self.fs = clone;
        } else {
            db.close().expect("close");
        }
        self.db = Some(open(&self.fs, &self.options));
    }
}

fn open(fs: &Arc<MemFs>, options: &Options) -> Db {
    Db::open_with(Env::with_fs(fs.clone()), "/store", options.clone()).expect("open")
}

fn run(seed: u64, steps: usize) {
    let mut dice = Dice(seed);
    let comparator: ComparatorRef = if dice.below(4) == 0 { Arc::new(Backwards) } else { bytewise() };
    let options = Options {
        memory_bytes: 4 << 20,
        segment_bytes: 64 << 10,
        log_bytes_max: dice.pick(&[256 << 10, 8 << 20]),
        background_threads: dice.pick(&[1, 2, 3]),
        comparators: vec![Arc::new(Backwards)],
        ..Options::default()
    };
    let keyspace_options = KeyspaceOptions {
        comparator: comparator.clone(),
        memtable_bytes: dice.pick(&[Some(64 << 10), Some(256 << 10), None]),
        compression: dice.pick(&[Compression::None, Compression::Lz4]),
        block_bytes: dice.pick(&[128, 1024, 4096]),
        restart_interval: dice.pick(&[1, 2, 16]),
        filter_bits_per_key: dice.pick(&[0.0, 4.0, 10.0]),
        table_bytes: dice.pick(&[4 << 10, 64 << 10, 32 << 20]),
        level0_tables: dice.pick(&[1, 2, 4]),
        level1_bytes: dice.pick(&[16 << 10, 256 << 10]),
        level_ratio: dice.pick(&[2, 4, 10]),
        ..KeyspaceOptions::default()
    };
    let fs = MemFs::new();
    let db = open(&fs, &options);
    db.keyspace("k", keyspace_options).expect("keyspace");
    let (keys, key_bytes) = (dice.pick(&[30, 300, 3000]), dice.pick(&[10, 300]));
    let mut run = Run {
        dice,
        comparator,
        key_bytes,
        keys,
        db: Some(db),
        fs,
        options,
        model: Map::new(),
        snapshots: Vec::new(),
    };
    for step in 0..steps {
        run.step(&format!("seed {seed}, step {step}"));
    }
    for end in ["live", "reopened", "crashed", "compacted"] {
        match end {
            "reopened" => run.reopen(false),
            "crashed" => run.reopen(true),
            "compacted" => run.db.as_ref().expect("open").compact().expect("compact"),
            _ => {}
        }
        for _ in 0..3 {
            run.check_scan(&format!("seed {seed}, {end}"));
        }
        let report = run.db.as_ref().expect("open").verify(&mut |_| {}).expect("verify");
        assert!(report.is_sound(), "seed {seed}, {end}: {:?}", report.problems);
    }
}

/// Seen to hang on a loaded machine, once in some hundred runs: a wake-up is lost somewhere between
/// flush and log. Run it by hand until that is found.
#[test]
#[ignore = "hangs now and then; see above"]
fn the_store_answers_as_a_sorted_map_would() {
    let seeds = std::env::var("DRUMLIN_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(12);
    let first = std::env::var("DRUMLIN_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for seed in first..first + seeds {
        run(seed, 6000);
    }
}
