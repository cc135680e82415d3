//! Taking a manifest file apart for whoever wants to see what is in it.
//!
//! Place: behind [`crate::inspect::manifest`]. The bytes are `journal`'s and the meaning is `state`'s; opening ends at the
//! first thing that is wrong, this goes on behind it.
//!
//! Invariants:
//! 1. An edit is shown only if its record's checksum fits; without the store's secret none is.
//! 2. What opening would call corruption is a problem here, at the same offset, and so is each further place.
//! 3. The state is what comes of all edits that are shown, a change that does not fit left out.
//!
//! Tests: `manifest_tests`, and the command's.

use std::path::{Path, PathBuf};

use super::edit::{Change, VersionEdit};
use super::identity::{Identity, check_page};
use super::journal::{EDIT, Framer, HEADER_BYTES, MAGIC, RECORD_HEADER_BYTES, SEAL, VERSION};
use super::manifest::{CURRENT_BYTES_MAX, CURRENT_FILE, current_number, manifest_number, read_whole};
use super::settings::decode_to_show;
use super::state::StoreState;
use crate::encoding::FileDecoder;
use crate::env::{FileSystem, ReadMode, join};
use crate::error::{Corruption, Error, Result};
use crate::options::KeyspaceOptions;
use crate::table::inspect::TableInfo;

/// Options of a keyspace; `None` if this build does not know what is stored. An order of the user's has its name, and compares
/// byte by byte.
pub type StoredOptions = Option<Box<KeyspaceOptions>>;

/// One thing that an edit changes.
#[derive(Clone, Debug)]
pub enum ManifestChange {
    /// A keyspace comes to be.
    CreateKeyspace {
        /// Its number.
        id: u32,
        /// Its name.
        name: String,
        /// Its options.
        options: StoredOptions,
    },
    /// A keyspace goes, with its tables.
    DropKeyspace {
        /// Its number.
        id: u32,
    },
    /// A keyspace has other options.
    SetOptions {
        /// Its number.
        keyspace: u32,
        /// All its options, as they are then.
        options: StoredOptions,
    },
    /// A table belongs to a level.
    AddTable {
        /// The number of its keyspace.
        keyspace: u32,
        /// The level.
        level: u32,
        /// What it holds.
        table: TableInfo,
    },
    /// A table no longer belongs to a level.
    RemoveTable {
        /// The number of its keyspace.
        keyspace: u32,
        /// The level.
        level: u32,
        /// The number of the table.
        table: u64,
    },
    /// All older versions of a keyspace are in tables.
    FlushedTo {
        /// Its number.
        keyspace: u32,
        /// Position in the log.
        lsn: u64,
    },
    /// Numbers of tables below may be in use.
    NextTableId(u64),
    /// Numbers of keyspaces below were used.
    NextKeyspaceId(u32),
    /// The store was opened for writing.
    SessionStart {
        /// The segment at which its log goes on.
        first_segment: u64,
    },
    /// The log was durable up to this position.
    LogReaches(u64),
}

impl ManifestChange {
    fn of(change: &Change, path: &Path) -> ManifestChange {
        match change {
            Change::CreateKeyspace { id, name, options } => ManifestChange::CreateKeyspace {
                id: id.0,
                name: name.clone(),
                options: stored(options, path),
            },
            Change::DropKeyspace { id } => ManifestChange::DropKeyspace { id: id.0 },
            Change::SetOptions { keyspace, options } => {
                ManifestChange::SetOptions { keyspace: keyspace.0, options: stored(options, path) }
            }
            Change::AddTable { keyspace, level, meta } => {
                ManifestChange::AddTable { keyspace: keyspace.0, level: *level, table: TableInfo::of(meta) }
            }
            Change::RemoveTable { keyspace, level, id } => {
                ManifestChange::RemoveTable { keyspace: keyspace.0, level: *level, table: id.0 }
            }
            Change::FlushedTo { keyspace, lsn } => {
                ManifestChange::FlushedTo { keyspace: keyspace.0, lsn: lsn.0 }
            }
            Change::NextTableId(id) => ManifestChange::NextTableId(*id),
            Change::NextKeyspaceId(id) => ManifestChange::NextKeyspaceId(*id),
            Change::SessionStart { first_segment, .. } => {
                ManifestChange::SessionStart { first_segment: *first_segment }
            }
            Change::LogReaches(lsn) => ManifestChange::LogReaches(lsn.0),
        }
    }
}

/// Changes that happened together. The first edit of a manifest is a snapshot of all that was.
#[derive(Clone, Debug, Default)]
pub struct ManifestEdit {
    /// Where its record begins in the file.
    pub offset: u64,
    /// Bytes of the record.
    pub bytes: u64,
    /// Whether its seal is behind it: then it had been durable.
    pub sealed: bool,
    /// What it changes, in order.
    pub changes: Vec<ManifestChange>,
}

/// A keyspace, as the edits leave it.
#[derive(Clone, Debug, Default)]
pub struct ManifestKeyspace {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its options.
    pub options: StoredOptions,
    /// All older versions are in tables.
    pub flushed_to: u64,
    /// Its tables, by level.
    pub levels: Vec<Vec<TableInfo>>,
}

/// What the edits leave.
#[derive(Clone, Debug, Default)]
pub struct ManifestState {
    /// Keyspaces, by number.
    pub keyspaces: Vec<ManifestKeyspace>,
    /// Numbers of tables below may be in use.
    pub next_table: u64,
    /// Numbers of keyspaces below were used.
    pub next_keyspace: u32,
    /// The segment at which the log of the last session begins.
    pub first_segment: Option<u64>,
    /// The log was durable up to this position.
    pub log_reaches: u64,
}

/// What a manifest file is made of.
#[derive(Clone, Debug, Default)]
pub struct ManifestReport {
    /// The file.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// Its number.
    pub number: Option<u64>,
    /// The store that it says it belongs to.
    pub store: Option<[u8; 16]>,
    /// Whether `CURRENT` names it; `None` if that cannot be read.
    pub is_current: Option<bool>,
    /// Its edits, in order.
    pub edits: Vec<ManifestEdit>,
    /// What comes of them.
    pub state: ManifestState,
    /// Where an edit begins that was never finished, and so never acknowledged.
    pub torn: Option<u64>,
    /// Everything that is not as it was written.
    pub problems: Vec<Corruption>,
    /// What could not be checked, and why.
    pub unchecked: Vec<String>,
}

/// Takes the manifest at `path` apart.
///
/// Errors: why it cannot be opened or read; [`Error::Unsupported`] for what only a newer version understands.
pub fn inspect(fs: &dyn FileSystem, path: &Path, identity: Option<&Identity>) -> Result<ManifestReport> {
    // First, so that a file that is not there is no corruption.
    fs.open(path, ReadMode::Buffered)?;
    let bytes = read_whole(fs, path, "it was there", u64::MAX)?;
    let mut report =
        ManifestReport { path: path.to_path_buf(), bytes: bytes.len() as u64, ..ManifestReport::default() };
    let named = path.file_name().and_then(|name| name.to_str()).and_then(manifest_number);
    header(&mut report, &bytes, named, identity)?;
    let Some(identity) = identity else {
        report.unchecked.push("the edits: the key of their checksums is in the store's file STORE".into());
        return Ok(report);
    };
    let Some(number) = named.or(report.number) else { return Ok(report) };
    report.is_current = is_current(fs, path, identity, number);
    Edits { framer: Framer::new(identity, number), path, bytes: &bytes, report: &mut report }.read()?;
    Ok(report)
}

fn header(
    report: &mut ManifestReport,
    bytes: &[u8],
    named: Option<u64>,
    identity: Option<&Identity>,
) -> Result<()> {
    let path = report.path.clone();
    if let Err(error) = check_page(bytes, MAGIC, VERSION, HEADER_BYTES, &path) {
        report.note(error)?;
    }
    let Some(body) = bytes.get(16..40) else { return Ok(()) };
    let mut fields = FileDecoder::new(body, &path, 16);
    let (number, store) = (fields.u64()?, fields.array()?);
    (report.number, report.store) = (Some(number), Some(store));
    if named.is_some_and(|named| named != number) {
        report.note(Error::corruption(&path, 16, format!("it says that it is manifest {number}")))?;
    }
    if identity.is_some_and(|identity| identity.uuid != store) {
        report.note(Error::corruption(&path, 24, "it belongs to another store"))?;
    }
    Ok(())
}

/// Whether the `CURRENT` beside it names it.
fn is_current(fs: &dyn FileSystem, path: &Path, identity: &Identity, number: u64) -> Option<bool> {
    let current = join(path.parent()?, CURRENT_FILE);
    let line = read_whole(fs, &current, "it names the manifest", CURRENT_BYTES_MAX).ok()?;
    Some(current_number(&line, identity)? == number)
}

/// The records of a manifest, being read.
struct Edits<'a> {
    framer: Framer,
    path: &'a Path,
    bytes: &'a [u8],
    report: &'a mut ManifestReport,
}

impl Edits<'_> {
    fn read(&mut self) -> Result<()> {
        let (mut state, mut fits) = (StoreState::default(), true);
        let mut at = HEADER_BYTES;
        while at < self.bytes.len() {
            let Some(payload) = self.framer.payload(self.bytes, at) else {
                match self.behind(at)? {
                    Some(next) => at = next,
                    None => break,
                }
                continue;
            };
            let offset = at as u64;
            at += RECORD_HEADER_BYTES + payload.len();
            let mut body = FileDecoder::new(payload, self.path, offset + RECORD_HEADER_BYTES as u64);
            let read = match body.u8()? {
                EDIT => self.edit(&mut body, offset, at as u64 - offset, &mut state, &mut fits),
                SEAL => self.seal(&mut body, offset),
                kind => body.unknown("record kind", kind),
            };
            self.note(read)?;
        }
        if self.report.edits.is_empty() && self.report.problems.is_empty() {
            let what = "the file ends before its snapshot";
            self.note(Err(Error::corruption(self.path, HEADER_BYTES as u64, what)))?;
        }
        if let (true, Err(misfit)) = (fits && self.report.problems.is_empty(), state.check()) {
            self.note(Err(Error::corruption(self.path, HEADER_BYTES as u64, misfit.to_string())))?;
        }
        self.report.state = state_of(&state, self.path);
        Ok(())
    }

    /// Where the next good record begins behind a bad one; `None` if there is none.
    fn behind(&mut self, at: usize) -> Result<Option<usize>> {
        let next = (at + 1..self.bytes.len()).find(|&p| self.framer.payload(self.bytes, p).is_some());
        let offset = at as u64;
        match next {
            Some(good) => {
                let what = format!("a damaged record, before a good one at byte {good}");
                self.note(Err(Error::corruption(self.path, offset, what)))?;
            }
            None if self.report.edits.is_empty() => {
                self.note(Err(Error::corruption(self.path, offset, "the snapshot's record is damaged")))?;
            }
            None => self.report.torn = Some(offset),
        }
        Ok(next)
    }

    fn edit(
        &mut self,
        body: &mut FileDecoder<'_>,
        offset: u64,
        bytes: u64,
        state: &mut StoreState,
        fits: &mut bool,
    ) -> Result<()> {
        let edit = VersionEdit::decode(body.rest(), self.path, body.offset())?;
        let unsealed = self.report.edits.last().is_some_and(|last| !last.sealed);
        let sound = self.report.problems.is_empty();
        let changes = edit.changes.iter().map(|change| ManifestChange::of(change, self.path)).collect();
        self.report.edits.push(ManifestEdit { offset, bytes, sealed: false, changes });
        for change in &edit.changes {
            if let Err(misfit) = state.apply_change(change) {
                *fits = false;
                // Behind a place where an edit is missing, misfits say nothing new.
                if sound {
                    self.note(Err(Error::corruption(self.path, offset, misfit.to_string())))?;
                }
            }
        }
        if unsealed && sound {
            return Err(Error::corruption(self.path, offset, "an edit behind one that was never sealed"));
        }
        Ok(())
    }

    fn seal(&mut self, body: &mut FileDecoder<'_>, offset: u64) -> Result<()> {
        let count = body.varint()?;
        body.end()?;
        let edits = self.report.edits.len();
        if let Some(last) = self.report.edits.last_mut() {
            last.sealed = true;
        }
        if count != edits as u64 && self.report.problems.is_empty() {
            let what = format!("a seal for edit {count} behind edit {edits}");
            return Err(Error::corruption(self.path, offset, what));
        }
        Ok(())
    }

    fn note(&mut self, read: Result<()>) -> Result<()> {
        read.or_else(|error| self.report.note(error))
    }
}

impl ManifestReport {
    /// Keeps a corruption; other errors are given back.
    fn note(&mut self, error: Error) -> Result<()> {
        let Error::Corruption(problem) = error else { return Err(error) };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
        Ok(())
    }
}

fn stored(options: &[u8], path: &Path) -> StoredOptions {
    decode_to_show(options, path).ok().map(Box::new)
}

fn state_of(state: &StoreState, path: &Path) -> ManifestState {
    let keyspaces = state.keyspaces.values().map(|keyspace| ManifestKeyspace {
        id: keyspace.id.0,
        name: keyspace.name.clone(),
        options: stored(&keyspace.options, path),
        flushed_to: keyspace.flushed_to.0,
        levels: keyspace
            .levels()
            .iter()
            .map(|level| level.iter().map(|meta| TableInfo::of(meta)).collect())
            .collect(),
    });
    ManifestState {
        keyspaces: keyspaces.collect(),
        next_table: state.next_table_id,
        next_keyspace: state.next_keyspace_id,
        first_segment: state.session.map(|session| session.first_segment),
        log_reaches: state.log_reaches.0,
    }
}
