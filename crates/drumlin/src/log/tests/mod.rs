//! Tests of the log over the in-memory file system, by property.
//!
//! [`Rig`] is a log with its sequencer; it writes records the way the engine does, and reads them
//! back from any file system.

mod crashes;
mod damage;
mod durability;
mod faults;
mod flips;
mod inspect;
mod recycling;
mod sessions;
mod space;
mod writing;

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::env::{FileSystem, MemFs};
use crate::error::Result;
use crate::key::Kind;

pub(super) const SECRET: u64 = 0x5eed_5eed_5eed_5eed;
pub(super) const UUID: Uuid = *b"a store of tests";

/// A record as replayed: its LSN, and (keyspace, kind, key, value) of its entries.
pub(super) type Replayed = (Lsn, Vec<(u32, Kind, Vec<u8>, Vec<u8>)>);

pub(super) fn dir() -> &'static Path {
    Path::new("/store/log")
}

/// A log, its sequencer and its files.
pub(super) struct Rig {
    pub(super) sequencer: Arc<Sequencer>,
    pub(super) log: Arc<Log>,
}

pub(super) fn options(segment_bytes: usize, prior: Prior) -> LogOptions {
    LogOptions { segment_bytes, log_bytes_max: 16 * segment_bytes, secret: SECRET, uuid: UUID, prior }
}

pub(super) fn scan_with(fs: Arc<dyn FileSystem>, segment_bytes: usize, mode: Mode) -> Result<Recovered> {
    scan(&fs, dir(), ScanOptions { secret: SECRET, uuid: UUID, segment_bytes, reaches: Lsn::ZERO, mode })
}

/// Everything that counts, in order.
pub(super) fn replay(recovered: &Recovered, from: Lsn) -> Result<Vec<Replayed>> {
    let mut records: Vec<Replayed> = Vec::new();
    recovered.replay(from, &mut |lsn, entry| {
        if records.last().is_none_or(|(last, _)| *last != lsn) {
            records.push((lsn, Vec::new()));
        }
        let (_, entries) = records.last_mut().expect("just pushed");
        entries.push((entry.keyspace, entry.kind, entry.key.to_vec(), entry.value.to_vec()));
        Ok(())
    })?;
    Ok(records)
}

/// An owner that is told of borders, and reserves nothing.
pub(super) struct Told<F>(pub(super) F);

impl<F: Fn(Lsn) + Send + Sync> Owner for Told<F> {
    fn on_border(&self, border: Lsn) {
        self.0(border);
    }

    fn reserved_bytes(&self) -> u64 {
        0
    }
}

impl Rig {
    /// A new store.
    pub(super) fn new(segment_bytes: usize) -> (Rig, Arc<MemFs>) {
        let fs = MemFs::new();
        (Rig::open(fs.clone(), segment_bytes).expect("a new log").0, fs)
    }

    /// Scans, then starts the next session.
    pub(super) fn open(fs: Arc<dyn FileSystem>, segment_bytes: usize) -> Result<(Rig, Recovered)> {
        Rig::open_with(fs, segment_bytes, |_| {})
    }

    pub(super) fn open_with(
        fs: Arc<dyn FileSystem>,
        segment_bytes: usize,
        on_border: impl Fn(Lsn) + Send + Sync + 'static,
    ) -> Result<(Rig, Recovered)> {
        fs.create_dir_all(Path::new("/store"))?;
        fs.sync_dir(Path::new("/"))?;
        let recovered = scan_with(fs.clone(), segment_bytes, Mode::Recover)?;
        let first = recovered.next_segment;
        Rig::start(fs, segment_bytes, &recovered, first, on_border).map(|rig| (rig, recovered))
    }

    /// Starts the session after `recovered` at segment `first`.
    pub(super) fn start(
        fs: Arc<dyn FileSystem>,
        segment_bytes: usize,
        recovered: &Recovered,
        first: u64,
        on_border: impl Fn(Lsn) + Send + Sync + 'static,
    ) -> Result<Rig> {
        Rig::start_for(Box::new(Told(on_border)), fs, segment_bytes, recovered, first)
    }

    /// The same for any owner.
    pub(super) fn start_for(
        owner: Box<dyn Owner>,
        fs: Arc<dyn FileSystem>,
        segment_bytes: usize,
        recovered: &Recovered,
        first: u64,
    ) -> Result<Rig> {
        let sequencer = Sequencer::new(Lsn(first * segment_bytes as u64 / 8));
        let options = options(segment_bytes, recovered.prior());
        let log = Log::start(&Env::with_fs(fs), dir(), options, sequencer.clone(), first, owner)?;
        Ok(Rig { sequencer, log })
    }

    /// Writes one record as the engine does. Its LSN and end.
    pub(super) fn write(&self, entries: &[Entry<'_>]) -> Result<(Lsn, Lsn)> {
        let record = RecordParts::new(entries)?;
        let room = self.log.ensure_room(record.units())?;
        let in_flight = self.sequencer.begin(record.units());
        drop(room);
        let range = (in_flight.lsn(), in_flight.end());
        let written = self.log.write(in_flight.lsn(), &record);
        in_flight.commit();
        written.map(|()| range)
    }

    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> Result<(Lsn, Lsn)> {
        self.write(&[put(key, value)])
    }
}

pub(super) fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Entry<'a> {
    Entry { keyspace: 1, kind: Kind::Put, expected: None, key, value }
}

/// The value of a test key: `bytes` bytes that depend on the number.
pub(super) fn value(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (number.wrapping_mul(31).wrapping_add(i * 7)) as u8).collect()
}

/// Waits for a state that another thread will bring about; a test that waits in vain ends.
pub(super) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if holds() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("never: {what}");
}
