//! The standard workload: one writer's history of every kind of operation, seeded, and the state
//! after each prefix of it.
//!
//! A state is known by one number, the sum of the hashes of its records, so that "is this the state
//! after some prefix between these two?" is a search in a list.

use std::collections::BTreeMap;
use std::sync::Arc;

use twox_hash::XxHash3_64;

use crate::dice::Dice;
use crate::env::{Env, FileSystem};
use crate::error::{Error, Result};
use crate::key::KeyHash;
use crate::options::{Durability, KeyspaceOptions, Layout, Memory, Options, WriteOptions};
use crate::sync::Mutex;
use crate::{Cas, Db, Keyspace};

pub const STORE: &str = "/store";
/// The last one is dropped and made again now and then.
pub const KEYSPACES: [&str; 4] = ["a", "b", "c", "d"];

pub fn options() -> Options {
    Options {
        memory_bytes: Options::MEMORY_BYTES_MIN,
        segment_bytes: Options::SEGMENT_BYTES_MIN,
        log_bytes_max: Some(4 * Options::SEGMENT_BYTES_MIN),
        background_threads: 1,
        ..Options::default()
    }
}

pub fn keyspace_options() -> KeyspaceOptions {
    KeyspaceOptions {
        memtable_bytes: Some(64 << 10),
        table_bytes: 16 << 10,
        block_bytes: 1024,
        level0_tables: 2,
        level1_bytes: 32 << 10,
        level_ratio: 4,
        ..KeyspaceOptions::default()
    }
}

/// Of one of [`KEYSPACES`]: each has a memory component and a layout of its own.
fn options_of(name: &str) -> KeyspaceOptions {
    let usual = keyspace_options();
    let (memory, layout) = match name {
        "b" => {
            (Memory::Runs { runs: 2, merged_percent: 100 }, Layout::Tiered { runs: 2, merged_percent: 100 })
        }
        "c" => (Memory::Sorted, Layout::LazyLeveled { runs: 2, upper_percent: 50 }),
        "d" => (usual.memory, Layout::Trie { levels: 3, runs: 2, hash: KeyHash::Sip }),
        _ => (usual.memory, usual.layout),
    };
    KeyspaceOptions { memory, layout, ..usual }
}

pub fn open(fs: &Arc<dyn FileSystem>) -> Result<Db> {
    Db::open_with(Env::with_fs(fs.clone()), STORE, options())
}

/// The number of a record, to be summed.
pub fn record_number(keyspace: &str, key: &[u8], value: &[u8]) -> u64 {
    let parts = [keyspace.as_bytes(), &[0], &(key.len() as u32).to_le_bytes(), key, value].concat();
    XxHash3_64::oneshot(&parts)
}

/// Calls `on_record` for everything in the store; a keyspace that is missing is empty.
pub fn read_all(db: &Db, on_record: &mut dyn FnMut(&str, &[u8], &[u8])) -> Result<()> {
    for name in db.keyspaces() {
        for record in db.open_keyspace(&name)?.iter()? {
            let (key, value) = record?;
            on_record(&name, &key, &value);
        }
    }
    Ok(())
}

/// The number of the state that the store is in.
pub fn state_number(db: &Db) -> Result<u64> {
    let mut number = 0u64;
    read_all(db, &mut |keyspace, key, value| {
        number = number.wrapping_add(record_number(keyspace, key, value));
    })?;
    Ok(number)
}

/// What the writer has been told so far.
#[derive(Default)]
pub struct Told {
    /// The number of the state after each prefix of the history.
    pub states: Vec<u64>,
    /// What each operation was, for messages.
    pub log: Vec<String>,
    /// Operations that survive a crash of the process.
    pub acked: usize,
    /// Operations that survive a power loss.
    pub durable: usize,
}

/// Shared by the writer and whoever takes clones.
pub type Oracle = Arc<Mutex<Told>>;

pub fn oracle() -> Oracle {
    Arc::new(Mutex::new(Told { states: vec![0], ..Told::default() }))
}

/// What a history consists of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Some 300 operations, three sessions.
    Small,
    /// About ten times as much.
    Large,
}

type Model = BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<u8>>>;

/// The writer.
pub struct Writer {
    dice: Dice,
    fs: Arc<dyn FileSystem>,
    oracle: Oracle,
    db: Option<Db>,
    model: Model,
    number: u64,
    /// Called before each step, with nothing held.
    pause: Box<dyn Fn() + Send>,
}

impl Writer {
    pub fn new(fs: Arc<dyn FileSystem>, oracle: Oracle, seed: u64) -> Writer {
        let (dice, model, pause) = (Dice(seed), Model::new(), Box::new(|| ()));
        Writer { dice, fs, oracle, db: None, model, number: 0, pause }
    }

    /// The same, but calling `pause` before each step.
    pub fn pausing(self, pause: impl Fn() + Send + 'static) -> Writer {
        Writer { pause: Box::new(pause), ..self }
    }

    /// The whole workload, ended by a clean close.
    pub fn run(mut self, scale: Scale) -> Result<()> {
        self.work(scale)
    }

    /// The same, up to the first error.
    pub fn work(&mut self, scale: Scale) -> Result<()> {
        let steps = if scale == Scale::Small { 100 } else { 1000 };
        for session in 0..3 {
            self.open()?;
            for _ in 0..steps {
                self.step()?;
            }
            match session {
                0 => self.whole("flush", |db| db.flush())?,
                1 => self.whole("compact", |db| db.compact())?,
                _ => {}
            }
            for _ in 0..steps / 10 {
                self.step()?;
            }
            self.close()?;
        }
        Ok(())
    }

    /// After an error: reads, writes nothing new, and does not care what comes of it.
    pub fn prod(&self) {
        let Some(db) = &self.db else { return };
        let _ = state_number(db);
        let _ = db.persist();
        let _ = db.flush();
        let _ = db.compact();
        let _ = db.wait_for_idle();
    }

    fn open(&mut self) -> Result<()> {
        self.db = Some(open(&self.fs)?);
        for name in KEYSPACES {
            self.keyspace(name)?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let db = self.db.take().expect("open");
        db.close()?;
        self.all_durable();
        Ok(())
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    /// Something done to the store as a whole, after which everything is durable.
    fn whole(&mut self, what: &str, body: impl FnOnce(&Db) -> Result<()>) -> Result<()> {
        body(self.db()).inspect_err(|_| self.note(&format!("{what} failed")))?;
        self.note(what);
        self.all_durable();
        Ok(())
    }

    fn note(&self, what: &str) {
        if let Some(last) = self.oracle.lock().log.last_mut() {
            *last += &format!("; {what}");
        }
    }

    fn all_durable(&self) {
        let mut told = self.oracle.lock();
        told.durable = told.acked;
    }

    fn keyspace(&self, name: &str) -> Result<Keyspace> {
        self.db().keyspace(name, options_of(name))
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key-{:03}", self.dice.below(150)).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let bytes = self.dice.pick(&[0, 9, 100, 100, 700, 700, 3000]);
        let seed = self.dice.next();
        (0..bytes).map(|i| (seed.rotate_left(i as u32 % 64) as u8).wrapping_add((i / 64) as u8)).collect()
    }

    fn set(&mut self, keyspace: &'static str, key: &[u8], value: Option<&[u8]>) {
        let records = self.model.entry(keyspace).or_default();
        let old = match value {
            Some(value) => {
                self.number = self.number.wrapping_add(record_number(keyspace, key, value));
                records.insert(key.to_vec(), value.to_vec())
            }
            None => records.remove(key),
        };
        if let Some(old) = old {
            self.number = self.number.wrapping_sub(record_number(keyspace, key, &old));
        }
    }

    fn clear(&mut self, keyspace: &'static str, start: &[u8], end: &[u8]) {
        let records = self.model.entry(keyspace).or_default();
        let gone: Vec<_> = records.range(start.to_vec()..end.to_vec()).map(|(key, _)| key.clone()).collect();
        gone.iter().for_each(|key| self.set(keyspace, key, None));
    }

    /// An operation whose effect on the model has been made: says so, does it, and says that it is done.
    fn act(&mut self, what: String, durable: bool, body: impl FnOnce(&Writer) -> Result<()>) -> Result<()> {
        {
            let mut told = self.oracle.lock();
            told.states.push(self.number);
            told.log.push(what);
        }
        body(self)?;
        let mut told = self.oracle.lock();
        told.acked = told.states.len() - 1;
        if durable {
            told.durable = told.acked;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        (self.pause)();
        let durable = self.dice.below(8) == 0;
        let with = WriteOptions { durability: durable.then_some(Durability::Disk) };
        let name = self.dice.pick(&KEYSPACES);
        let keyspace = self.keyspace(name)?;
        let (key, value) = (self.key(), self.value());
        let shown = format!("{name}/{}", key.escape_ascii());
        match self.dice.below(100) {
            0..45 => {
                self.set(name, &key, Some(&value));
                let what = format!("put {shown} {} {durable}", value.len());
                self.act(what, durable, |_| keyspace.put_with(&key, &value, with))
            }
            45..55 => {
                self.set(name, &key, None);
                self.act(format!("delete {shown} {durable}"), durable, |_| keyspace.delete_with(&key, with))
            }
            55..58 => {
                let end = self.key();
                if key >= end || !options_of(name).is_ordered() {
                    return Ok(());
                }
                self.clear(name, &key, &end);
                let what = format!("delete range {shown}..{}", end.escape_ascii());
                self.act(what, false, |_| keyspace.delete_range(&key, &end))
            }
            58..78 => self.batch(with),
            78..90 => self.modify(&keyspace, name, &key, &value),
            90..94 => self.whole("persist", Db::persist),
            94..97 => self.whole("flush", Db::flush),
            97 => self.whole("compact", Db::compact),
            98 => {
                let name = KEYSPACES[3];
                let keys: Vec<_> = self.model.entry(name).or_default().keys().cloned().collect();
                keys.iter().for_each(|key| self.set(name, key, None));
                self.act("drop".into(), true, |writer| writer.db().drop_keyspace(name))?;
                self.keyspace(name).map(|_| ())
            }
            _ => {
                self.close()?;
                self.open()
            }
        }
    }

    fn batch(&mut self, with: WriteOptions) -> Result<()> {
        let mut batch = self.db().batch();
        let keyspaces: Vec<Keyspace> = KEYSPACES.iter().map(|n| self.keyspace(n)).collect::<Result<_>>()?;
        for _ in 0..1 + self.dice.below(8) {
            let at = self.dice.below(4) as usize;
            let (key, value) = (self.key(), self.value());
            match self.dice.below(10) {
                0 => {
                    let end = self.key();
                    if key < end && options_of(KEYSPACES[at]).is_ordered() {
                        batch.delete_range(&keyspaces[at], &key, &end)?;
                        self.clear(KEYSPACES[at], &key, &end);
                    }
                }
                1..3 => {
                    batch.delete(&keyspaces[at], &key)?;
                    self.set(KEYSPACES[at], &key, None);
                }
                _ => {
                    batch.put(&keyspaces[at], &key, &value)?;
                    self.set(KEYSPACES[at], &key, Some(&value));
                }
            }
        }
        let (what, empty) = (format!("batch of {}", batch.len()), batch.is_empty());
        // An empty batch is no write, so it makes nothing durable.
        let durable = with.durability.is_some() && !empty;
        self.act(what, durable, |_| batch.commit_with(with))
    }

    fn modify(&mut self, keyspace: &Keyspace, name: &'static str, key: &[u8], value: &[u8]) -> Result<()> {
        let old = self.model.get(name).and_then(|records| records.get(key)).cloned();
        let shown = format!("{name}/{}", key.escape_ascii());
        if self.dice.below(2) == 0 {
            let longer = [old.as_deref().unwrap_or_default(), b"+"].concat();
            self.set(name, key, Some(&longer));
            self.act(format!("update {shown}"), false, |_| {
                keyspace.update(key, |old| Some([old.unwrap_or_default(), b"+"].concat())).map(|_| ())
            })
        } else {
            self.set(name, key, Some(value));
            self.act(format!("swap {shown}"), false, |_| {
                match keyspace.compare_and_swap(key, old.as_deref(), Some(value))? {
                    Cas::Swapped => Ok(()),
                    Cas::Mismatch { .. } => Err(Error::invalid("the store does not hold what was written")),
                }
            })
        }
    }
}
