//! Version edits: what changes in a store, as values that can be stored and applied.
//!
//! Place: `db` builds a [`VersionEdit`] from the outcome of a flush or compaction (or for a new
//! keyspace) and appends it to the manifest; [`super::state::StoreState`] folds edits into what is.
//!
//! Invariants:
//! 1. An edit is atomic: it is stored as one record, and applied whole or not at all.
//! 2. Its changes apply in order; a table may be added to its new level before it is removed from
//!    its old one, as long as it is on one level when the edit ends.
//! 3. A change with an unknown tag below 0x80 makes the store `Unsupported`; from 0x80 on it is skipped.
//!    The fields of a known tag are fixed for ever: more fields mean a new tag.
//!
//! Bytes: see docs/formats/manifest.md, "Changes".

use std::fmt;
use std::path::Path;

use super::KeyspaceId;
use crate::encoding::{FileDecoder, IGNORABLE, put_bytes, put_field, put_varint};
use crate::error::Result;
use crate::key::Lsn;
use crate::options::Options;
use crate::table::{TableId, TableMeta};

const CREATE_KEYSPACE: u8 = 1;
const DROP_KEYSPACE: u8 = 2;
const SET_OPTIONS: u8 = 3;
const ADD_TABLE: u8 = 4;
const REMOVE_TABLE: u8 = 5;
const FLUSHED_TO: u8 = 6;
const NEXT_TABLE_ID: u8 = 7;
const NEXT_KEYSPACE_ID: u8 = 8;
const SESSION_START: u8 = 9;
/// Whoever does not know it only checks less.
const LOG_REACHES: u8 = IGNORABLE | 10;

/// Deepest level a table may be on; more is taken for damage.
pub const LEVEL_MAX: u32 = Options::LEVEL_MAX;

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A keyspace comes to be, without tables. Its id was never used before.
    CreateKeyspace {
        /// The new id.
        id: KeyspaceId,
        /// The user's name for it; no other keyspace has it.
        name: String,
        /// As made by [`super::encode_options`].
        options: Vec<u8>,
    },
    /// A keyspace and all its tables are gone.
    DropKeyspace {
        /// Which.
        id: KeyspaceId,
    },
    /// The options of a keyspace are now these.
    SetOptions {
        /// Which.
        keyspace: KeyspaceId,
        /// As made by [`super::encode_options`].
        options: Vec<u8>,
    },
    /// A table belongs to a level from now on. Its file is durable under its final name.
    AddTable {
        /// Whose table.
        keyspace: KeyspaceId,
        /// On which level.
        level: u32,
        /// What it holds.
        meta: TableMeta,
    },
    /// A table no longer belongs to a level.
    RemoveTable {
        /// Whose table.
        keyspace: KeyspaceId,
        /// From which level.
        level: u32,
        /// Which.
        id: TableId,
    },
    /// Every version of the keyspace with LSN < `lsn` is in tables (or was never logged):
    /// recovery replays from there, and the log below may go.
    FlushedTo {
        /// Whose versions.
        keyspace: KeyspaceId,
        /// Never lower than before.
        lsn: Lsn,
    },
    /// Table ids below this one may be in use.
    NextTableId(u64),
    /// Keyspace ids below this one were used.
    NextKeyspaceId(u32),
    /// The store was opened for writing, and its log goes on at this segment. LSNs below it are
    /// never drawn again, even if the log's files were lost.
    SessionStart {
        /// Segment number; never lower than before.
        first_segment: u64,
        /// The file system's boot id at that time.
        boot_id: [u8; 16],
    },
    /// The log ended at this LSN or beyond, durably, when this was written: one that ends before
    /// has lost something.
    LogReaches(Lsn),
}

/// Changes that happen together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VersionEdit {
    /// In the order of application.
    pub changes: Vec<Change>,
}

impl VersionEdit {
    /// An edit that changes nothing yet.
    pub fn new() -> VersionEdit {
        VersionEdit::default()
    }

    /// Adds a change at the end.
    pub fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// The same, for building in one expression.
    #[must_use]
    pub fn with(mut self, change: Change) -> VersionEdit {
        self.changes.push(change);
        self
    }

    /// True if it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Appends the stored form to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        for change in &self.changes {
            body.clear();
            let tag = encode_change(change, &mut body);
            put_field(out, tag, &body);
        }
    }

    /// Reads the stored form. `path` and `base` say where `bytes` lie, for messages.
    pub fn decode(bytes: &[u8], path: &Path, base: u64) -> Result<VersionEdit> {
        let mut edit = VersionEdit::new();
        let mut fields = FileDecoder::new(bytes, path, base);
        while let Some((tag, mut body)) = fields.field()? {
            if let Some(change) = decode_change(tag, &mut body)? {
                body.end()?;
                edit.push(change);
            }
        }
        Ok(edit)
    }
}

impl From<Change> for VersionEdit {
    fn from(change: Change) -> Self {
        VersionEdit { changes: vec![change] }
    }
}

/// Appends the body of `change` and returns its tag.
fn encode_change(change: &Change, body: &mut Vec<u8>) -> u8 {
    match change {
        Change::CreateKeyspace { id, name, options } => {
            put_varint(body, u64::from(id.0));
            put_bytes(body, name.as_bytes());
            put_bytes(body, options);
            CREATE_KEYSPACE
        }
        Change::DropKeyspace { id } => {
            put_varint(body, u64::from(id.0));
            DROP_KEYSPACE
        }
        Change::SetOptions { keyspace, options } => {
            put_varint(body, u64::from(keyspace.0));
            put_bytes(body, options);
            SET_OPTIONS
        }
        Change::AddTable { keyspace, level, meta } => {
            put_varint(body, u64::from(keyspace.0));
            put_varint(body, u64::from(*level));
            let mut bytes = Vec::with_capacity(128);
            meta.encode(&mut bytes);
            put_bytes(body, &bytes);
            ADD_TABLE
        }
        Change::RemoveTable { keyspace, level, id } => {
            put_varint(body, u64::from(keyspace.0));
            put_varint(body, u64::from(*level));
            put_varint(body, id.0);
            REMOVE_TABLE
        }
        Change::FlushedTo { keyspace, lsn } => {
            put_varint(body, u64::from(keyspace.0));
            put_varint(body, lsn.0);
            FLUSHED_TO
        }
        Change::NextTableId(id) => {
            put_varint(body, *id);
            NEXT_TABLE_ID
        }
        Change::NextKeyspaceId(id) => {
            put_varint(body, u64::from(*id));
            NEXT_KEYSPACE_ID
        }
        Change::SessionStart { first_segment, boot_id } => {
            put_varint(body, *first_segment);
            body.extend_from_slice(boot_id);
            SESSION_START
        }
        Change::LogReaches(lsn) => {
            put_varint(body, lsn.0);
            LOG_REACHES
        }
    }
}

/// Reads one change; `None` for one that may be skipped.
fn decode_change(tag: u8, body: &mut FileDecoder<'_>) -> Result<Option<Change>> {
    Ok(Some(match tag {
        CREATE_KEYSPACE => Change::CreateKeyspace {
            id: keyspace(body)?,
            name: body.text()?.to_owned(),
            options: body.block()?.take_rest().to_vec(),
        },
        DROP_KEYSPACE => Change::DropKeyspace { id: keyspace(body)? },
        SET_OPTIONS => {
            Change::SetOptions { keyspace: keyspace(body)?, options: body.block()?.take_rest().to_vec() }
        }
        ADD_TABLE => Change::AddTable {
            keyspace: keyspace(body)?,
            level: level(body)?,
            meta: TableMeta::decode(&mut body.block()?)?,
        },
        REMOVE_TABLE => Change::RemoveTable {
            keyspace: keyspace(body)?,
            level: level(body)?,
            id: TableId(body.varint()?),
        },
        FLUSHED_TO => Change::FlushedTo { keyspace: keyspace(body)?, lsn: Lsn(body.varint()?) },
        NEXT_TABLE_ID => Change::NextTableId(body.varint()?),
        NEXT_KEYSPACE_ID => Change::NextKeyspaceId(body.varint_u32()?),
        SESSION_START => Change::SessionStart { first_segment: body.varint()?, boot_id: body.array()? },
        LOG_REACHES => Change::LogReaches(Lsn(body.varint()?)),
        tag => return body.unknown("change", tag).map(|()| None),
    }))
}

fn keyspace(body: &mut FileDecoder<'_>) -> Result<KeyspaceId> {
    Ok(KeyspaceId(body.varint_u32()?))
}

fn level(body: &mut FileDecoder<'_>) -> Result<u32> {
    let level = body.varint_u32()?;
    if level > LEVEL_MAX {
        return Err(body.corrupt(format!("level {level} is beyond {LEVEL_MAX}")));
    }
    Ok(level)
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::CreateKeyspace { id, name, .. } => write!(f, "create keyspace {id} {name:?}"),
            Change::DropKeyspace { id } => write!(f, "drop keyspace {id}"),
            Change::SetOptions { keyspace, .. } => write!(f, "{keyspace}: set options"),
            Change::AddTable { keyspace, level, meta } => {
                write!(f, "{keyspace}: add {:08} to L{level}", meta.id.0)
            }
            Change::RemoveTable { keyspace, level, id } => {
                write!(f, "{keyspace}: remove {:08} from L{level}", id.0)
            }
            Change::FlushedTo { keyspace, lsn } => write!(f, "{keyspace}: flushed to {lsn}"),
            Change::NextTableId(id) => write!(f, "next table id {id}"),
            Change::NextKeyspaceId(id) => write!(f, "next keyspace id {id}"),
            Change::SessionStart { first_segment, .. } => {
                write!(f, "session starts at segment {first_segment}")
            }
            Change::LogReaches(lsn) => write!(f, "the log reaches {lsn}"),
        }
    }
}

impl fmt::Display for VersionEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, change) in self.changes.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{change}")?;
        }
        Ok(())
    }
}
