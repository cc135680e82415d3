//! Starting a session: adopting what earlier ones left, sealing them, opening the first segment.
//!
//! Place: `db` calls [`Log::start`] once per writable open, with what `recover` found.
//!
//! Invariants:
//! 1. A session begins with a file that did not exist before: nothing is ever appended behind an
//!    earlier session's end.
//! 2. When `start` returns, the first segment's header, which states where the session before was
//!    cut, is durable, and so is its name.
//!    Before that header exists, the names of all earlier segments are durable.
//! 3. Nothing at or above the floor is touched, and nothing below it before the new header, which
//!    repeats the floor, is durable.
//!
//! Tests: `tests/sessions.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::commit::Sequencer;
use crate::env::{Env, ReadMode, join};
use crate::error::{Error, Result};
use crate::key::Lsn;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::sync::{CachePadded, Condvar, Mutex};

use super::format::{self, FileHeader, HEADER_BYTES, Keys};
use super::gate::Gate;
use super::geometry::Geometry;
use super::segment::Table;
use super::sync::SyncState;
use super::{Ballast, Hot, Log, OldSegment, Owner, Shared, Spare, State, Uuid};

/// Smallest segment, in bytes of data.
const SEGMENT_BYTES_MIN: usize = 4096;

/// What the log of a store is made with.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Bytes of data of one segment; a power of two from 4096, the same for ever.
    pub segment_bytes: usize,
    /// Spare files are kept only as long as the log takes no more than this, in bytes.
    pub log_bytes_max: usize,
    /// The store's secret.
    pub secret: u64,
    /// The store's identity.
    pub uuid: Uuid,
    /// What recovery found ([`super::Recovered::prior`]); the default for a new store.
    pub prior: Prior,
}

/// What a new session must know of those before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prior {
    /// Where the last session was cut.
    pub end: Lsn,
    /// True if it was closed cleanly, or made durable as it is: nothing below `end` is missing, now or ever.
    pub clean: bool,
    /// Nothing below is needed.
    pub floor: Lsn,
    /// For segments that are still needed: where the first record that starts there begins.
    pub first_records: Vec<(u64, Lsn)>,
}

impl Log {
    /// Starts a session in `dir` (made if missing) whose first LSN is that of segment
    /// `first_segment`, which must be the sequencer's tail and have no file yet.
    ///
    /// `owner` hears of each later segment before it opens.
    ///
    /// Errors: what the file system met; [`Error::InvalidArgument`] for options that do not fit.
    pub fn start(
        env: &Env,
        dir: &Path,
        options: LogOptions,
        sequencer: Arc<Sequencer>,
        first_segment: u64,
        owner: Box<dyn Owner>,
    ) -> Result<Arc<Log>> {
        let LogOptions { segment_bytes, log_bytes_max, secret, uuid, prior } = options;
        let geometry = geometry_of(segment_bytes)?;
        let (units, first) = (geometry.units(), geometry.first_lsn(first_segment));
        if sequencer.tail() != first || prior.end > first {
            return Err(Error::invalid(format!(
                "the log starts at LSN {first}, but the tail is {} and the last session ended at {}",
                sequencer.tail(),
                prior.end
            )));
        }
        env.fs.create_dir_all(dir)?;
        if let Some(parent) = dir.parent() {
            env.fs.sync_dir(parent)?;
        }
        let salt = env.random.next_u64();
        let header = FileHeader {
            uuid,
            segment: first_segment,
            segment_bytes: segment_bytes as u64,
            salt,
            boot_id: env.fs.boot_id(),
            session_first: first,
            prior_end: prior.end,
            prior_clean: prior.clean,
        };
        let keys = Keys::new(secret, salt);
        let (old, spares, doomed) = adopt(env, dir, secret, geometry, &prior, first_segment)?;
        let floor = if old.is_empty() { first } else { prior.floor };
        let slack = units / 4;
        let shared = Arc::new(Shared {
            hot: CachePadded::new(Hot {
                gate: Gate::new(),
                keys,
                units_shift: units.trailing_zeros(),
                units_mask: units - 1,
            }),
            table: Table::new(),
            env: env.clone(),
            dir: dir.to_path_buf(),
            secret,
            header,
            sequencer,
            owner,
            slack,
            small_units: slack / 64,
            files_max: (log_bytes_max / segment_bytes).max(4),
            state: Mutex::new(State::starting(first, first_segment + 1, floor, old, spares)),
            work: Condvar::new(),
            progress: Condvar::new(),
            sync: Mutex::new(SyncState { busy: false, mark_from: first, names_below: first_segment + 1 }),
            sync_done: Condvar::new(),
            synced: AtomicU64::new(first.0),
            refuses: AtomicBool::new(false),
        });
        // The names of the sessions before first: whoever finds the new header, and takes them for
        // sealed, must find their segments too.
        env.fs.sync_dir(dir)?;
        // A new file: the floor that the scan saw is perhaps not durable yet (the process died
        // between its store and its sync), so nothing below it may be touched before this header.
        let segment = shared.prepare(first_segment, floor, None)?;
        // From here on the earlier sessions are sealed, and the floor is durable.
        env.fs.sync_dir(dir)?;
        for path in doomed {
            remove_leftover(env, &path)?;
        }
        shared.publish(segment);
        let log = Arc::new(Log { shared: shared.clone(), opener: Mutex::new(None) });
        let thread = env.spawner.spawn("drumlin-log", Box::new(move || shared.run_opener()))?;
        *log.opener.lock() = Some(thread);
        Ok(log)
    }
}

/// The shape of segments of so many bytes, if a log can have such.
fn geometry_of(segment_bytes: usize) -> Result<Geometry> {
    if !segment_bytes.is_power_of_two() || segment_bytes < SEGMENT_BYTES_MIN {
        return Err(Error::invalid(format!(
            "a log segment of {segment_bytes} bytes: it must be a power of two of at least {SEGMENT_BYTES_MIN}"
        )));
    }
    Ok(Geometry::new(segment_bytes))
}

impl State {
    /// Of a session that opens its first segment, at `first`.
    fn starting(first: Lsn, next_index: u64, floor: Lsn, old: Vec<OldSegment>, spares: Vec<Spare>) -> State {
        State {
            open_end: first.0,
            claims: 0,
            demand_end: 0,
            waiting_end: 0,
            prepared: Default::default(),
            next_index,
            spares,
            ballast: Ballast::None,
            old: old.into(),
            floor,
            stalled: None,
            failures: 0,
            retry: false,
            stop: false,
            closed: false,
            poisoned: None,
        }
    }
}

fn remove_leftover(env: &Env, path: &Path) -> Result<()> {
    match env.fs.remove(path) {
        // One under the temporary name of the first segment has become that segment.
        Err(why) if why.is_missing_file() => Ok(()),
        other => other,
    }
}

/// Segments that are needed, files that can be reused, files to be removed.
type Found = (Vec<OldSegment>, Vec<Spare>, Vec<PathBuf>);

/// Sorts what lies in the directory.
fn adopt(
    env: &Env,
    dir: &Path,
    secret: u64,
    geometry: Geometry,
    prior: &Prior,
    first_segment: u64,
) -> Result<Found> {
    let (mut old, mut spares, mut doomed) = (Vec::new(), Vec::new(), Vec::new());
    for entry in env.fs.list(dir)? {
        let path = join(dir, &entry.name);
        let Some(index) = format::parse_segment_name(&entry.name) else {
            if entry.name.ends_with(".tmp") {
                doomed.push(path);
            }
            continue;
        };
        if index >= first_segment {
            return Err(Error::invalid(format!(
                "the log cannot start at segment {first_segment}: {} exists",
                path.display()
            )));
        }
        if index >= geometry.segment_of(prior.floor) {
            let first_record = prior.first_records.iter().find(|f| f.0 == index).map(|f| f.1);
            old.push(OldSegment { index, path, bytes: entry.bytes, first_record });
        } else if is_own_file(env, &path, index, secret) && entry.bytes == geometry.file_bytes() {
            spares.push(Spare { path, region: None });
        } else {
            doomed.push(path);
        }
    }
    old.sort_by_key(|s| s.index);
    Ok((old, spares, doomed))
}

/// True if the file is the one that its name says. A file that was being turned into another
/// segment when the power went might be there under both names; it must not be reused.
fn is_own_file(env: &Env, path: &Path, index: u64, secret: u64) -> bool {
    let mut bytes = [0; HEADER_BYTES];
    let read = env.fs.open(path, ReadMode::Buffered).and_then(|f| f.read_exact_at(&mut bytes, 0));
    read.is_ok() && FileHeader::decode(&bytes, secret).is_ok_and(|h| h.segment == index)
}
