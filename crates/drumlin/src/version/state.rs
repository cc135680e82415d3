//! What a store consists of: the fold of all version edits.
//!
//! Place: the manifest keeps one and hands copies to `db`, which builds [`super::Levels`] from it at
//! open. It is a value: cheap to clone, free of files and threads.
//!
//! Invariants:
//! 1. Keyspace ids and names are unique; ids below `next_keyspace_id` were used and never come again.
//! 2. A table id is on at most one level of one keyspace, and is below `next_table_id`.
//! 3. `flushed_to` of a keyspace and the session's first segment never go back.
//! 4. No LSN of a state that was read lies beyond [`Lsn::END`], and no id at the end of its numbers.
//! 5. An edit that would break one of these is refused and leaves the state as it was.
//! 6. `apply(snapshot())` on an empty state gives an equal state.
//!
//! Complexity: a clone is O(keyspaces); applying an edit copies the table map of each keyspace it
//! touches (pointers only).

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use super::KeyspaceId;
use super::edit::{Change, LEVEL_MAX, VersionEdit};
use crate::key::Lsn;
use crate::table::{TableId, TableMeta};

/// One keyspace, as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyspaceState {
    /// Its id, in logs and in the manifest.
    pub id: KeyspaceId,
    /// Its name.
    pub name: String,
    /// Its options, for [`super::decode_options`].
    pub options: Vec<u8>,
    /// Every version with LSN below this is in `tables`, or was never logged.
    pub flushed_to: Lsn,
    /// Its tables by level and id.
    pub tables: BTreeMap<(u32, TableId), Arc<TableMeta>>,
}

impl KeyspaceState {
    /// The tables by level, from level 0 to the deepest that has any; by id within a level.
    pub fn levels(&self) -> Vec<Vec<Arc<TableMeta>>> {
        let deepest = self.tables.last_key_value().map_or(0, |(&(level, _), _)| level as usize + 1);
        let mut levels = vec![Vec::new(); deepest];
        for (&(level, _), meta) in &self.tables {
            levels[level as usize].push(Arc::clone(meta));
        }
        levels
    }
}

/// The last opening for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The log segment it started at.
    pub first_segment: u64,
    /// The file system's boot id then.
    pub boot_id: [u8; 16],
}

/// A whole store, as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreState {
    /// All keyspaces.
    pub keyspaces: BTreeMap<KeyspaceId, Arc<KeyspaceState>>,
    /// The lowest table id that is certainly unused.
    pub next_table_id: u64,
    /// The lowest keyspace id that was never used.
    pub next_keyspace_id: u32,
    /// The last session, if there was one.
    pub session: Option<Session>,
    /// A log that ends before has lost something.
    pub log_reaches: Lsn,
}

impl Default for StoreState {
    fn default() -> Self {
        StoreState {
            keyspaces: BTreeMap::new(),
            next_table_id: 1,
            next_keyspace_id: 1,
            session: None,
            log_reaches: Lsn::ZERO,
        }
    }
}

impl StoreState {
    /// The keyspace called `name`.
    pub fn keyspace(&self, name: &str) -> Option<&Arc<KeyspaceState>> {
        self.keyspaces.values().find(|k| k.name == name)
    }

    /// Every table with its keyspace and level.
    pub fn tables(&self) -> impl Iterator<Item = (KeyspaceId, u32, &Arc<TableMeta>)> + '_ {
        self.keyspaces.values().flat_map(|k| k.tables.iter().map(|(&(level, _), meta)| (k.id, level, meta)))
    }

    /// Applies an edit, or says why it does not fit and changes nothing. O(tables).
    pub fn apply(&mut self, edit: &VersionEdit) -> Result<(), Misfit> {
        let mut next = self.clone();
        next.apply_part(edit)?;
        let added: HashSet<TableId> = edit
            .changes
            .iter()
            .filter_map(|change| match change {
                Change::AddTable { meta, .. } => Some(meta.id),
                _ => None,
            })
            .collect();
        if !added.is_empty() {
            next.check_one_place(|id| added.contains(&id))?;
        }
        *self = next;
        Ok(())
    }

    /// Applies an edit of a sequence read from a file. After a misfit the state is of no use; after
    /// the last edit comes [`Self::check`]. Without the copy that [`Self::apply`] makes, so that
    /// reading n edits is not O(n x tables).
    pub(super) fn apply_part(&mut self, edit: &VersionEdit) -> Result<(), Misfit> {
        edit.changes.iter().try_for_each(|change| self.apply_change(change))
    }

    /// Checks what spans several changes.
    pub(super) fn check(&self) -> Result<(), Misfit> {
        self.check_ends()?;
        self.check_one_place(|_| true)
    }

    /// Invariant 4.
    fn check_ends(&self) -> Result<(), Misfit> {
        let flushed = self.keyspaces.values().map(|k| ("a keyspace is flushed to", k.flushed_to));
        let newest = self.tables().map(|(_, _, meta)| ("a table goes up to", meta.max_lsn));
        let reaches = [("the log reaches", self.log_reaches)];
        if let Some((what, lsn)) = flushed.chain(newest).chain(reaches).find(|(_, lsn)| *lsn >= Lsn::END) {
            return Err(Misfit(format!("{what} LSN {lsn}, which no log can have")));
        }
        if self.next_table_id >= Lsn::END.0 {
            return Err(Misfit(format!("table ids are used up to {}", self.next_table_id)));
        }
        match self.session.filter(|session| session.first_segment >= Lsn::END.0) {
            Some(session) => Err(Misfit(format!(
                "the log starts at segment {}, which it cannot have",
                session.first_segment
            ))),
            None => Ok(()),
        }
    }

    /// The edit that makes this state out of an empty one.
    pub fn snapshot(&self) -> VersionEdit {
        let mut edit = VersionEdit::new();
        edit.push(Change::NextTableId(self.next_table_id));
        if let Some(Session { first_segment, boot_id }) = self.session {
            edit.push(Change::SessionStart { first_segment, boot_id });
        }
        if self.log_reaches > Lsn::ZERO {
            edit.push(Change::LogReaches(self.log_reaches));
        }
        for keyspace in self.keyspaces.values() {
            let id = keyspace.id;
            let (name, options) = (keyspace.name.clone(), keyspace.options.clone());
            edit.push(Change::CreateKeyspace { id, name, options });
            edit.push(Change::FlushedTo { keyspace: id, lsn: keyspace.flushed_to });
            for (&(level, _), meta) in &keyspace.tables {
                edit.push(Change::AddTable { keyspace: id, level, meta: TableMeta::clone(meta) });
            }
        }
        // Last: a keyspace whose id is below would be taken for one that comes again.
        edit.push(Change::NextKeyspaceId(self.next_keyspace_id));
        edit
    }

    pub(super) fn apply_change(&mut self, change: &Change) -> Result<(), Misfit> {
        match change {
            Change::CreateKeyspace { id, name, options } => self.create_keyspace(*id, name, options)?,
            Change::DropKeyspace { id } => {
                self.keyspaces
                    .remove(id)
                    .ok_or_else(|| Misfit(format!("there is no keyspace {id} to drop")))?;
            }
            Change::SetOptions { keyspace, options } => {
                self.keyspace_mut(*keyspace)?.options.clone_from(options);
            }
            Change::AddTable { keyspace, level, meta } => {
                if *level > LEVEL_MAX {
                    return Err(Misfit(format!("level {level} is beyond {LEVEL_MAX}")));
                }
                let id = meta.id;
                let tables = &mut self.keyspace_mut(*keyspace)?.tables;
                if tables.insert((*level, id), Arc::new(meta.clone())).is_some() {
                    return Err(Misfit(format!("table {:08} is on level {level} already", id.0)));
                }
                self.next_table_id = self.next_table_id.max(id.0.saturating_add(1));
            }
            Change::RemoveTable { keyspace, level, id } => {
                let tables = &mut self.keyspace_mut(*keyspace)?.tables;
                if tables.remove(&(*level, *id)).is_none() {
                    return Err(Misfit(format!("there is no table {:08} on level {level} to remove", id.0)));
                }
            }
            Change::FlushedTo { keyspace, lsn } => {
                let flushed_to = &mut self.keyspace_mut(*keyspace)?.flushed_to;
                if *lsn < *flushed_to {
                    return Err(Misfit(format!("keyspace {keyspace} goes back from {flushed_to} to {lsn}")));
                }
                *flushed_to = *lsn;
            }
            Change::NextTableId(id) => self.next_table_id = self.next_table_id.max(*id),
            Change::NextKeyspaceId(id) => self.next_keyspace_id = self.next_keyspace_id.max(*id),
            Change::SessionStart { first_segment, boot_id } => {
                if let Some(last) = self.session.filter(|last| *first_segment < last.first_segment) {
                    let what =
                        format!("the log goes back from segment {} to {first_segment}", last.first_segment);
                    return Err(Misfit(what));
                }
                self.session = Some(Session { first_segment: *first_segment, boot_id: *boot_id });
            }
            Change::LogReaches(lsn) => self.log_reaches = self.log_reaches.max(*lsn),
        }
        Ok(())
    }

    fn create_keyspace(&mut self, id: KeyspaceId, name: &str, options: &[u8]) -> Result<(), Misfit> {
        if id.0 < self.next_keyspace_id || self.keyspaces.contains_key(&id) {
            return Err(Misfit(format!("keyspace id {id} was used before")));
        }
        if self.keyspace(name).is_some() {
            return Err(Misfit(format!("a keyspace {name:?} is there already")));
        }
        let keyspace = KeyspaceState {
            id,
            name: name.to_owned(),
            options: options.to_vec(),
            flushed_to: Lsn::ZERO,
            tables: BTreeMap::new(),
        };
        self.keyspaces.insert(id, Arc::new(keyspace));
        self.next_keyspace_id = self.next_keyspace_id.max(id.0.saturating_add(1));
        Ok(())
    }

    fn keyspace_mut(&mut self, id: KeyspaceId) -> Result<&mut KeyspaceState, Misfit> {
        let keyspace =
            self.keyspaces.get_mut(&id).ok_or_else(|| Misfit(format!("there is no keyspace {id}")))?;
        Ok(Arc::make_mut(keyspace))
    }

    /// Invariant 2, for the tables that `concerned` names.
    fn check_one_place(&self, concerned: impl Fn(TableId) -> bool) -> Result<(), Misfit> {
        let mut seen = HashSet::new();
        for (_, _, meta) in self.tables() {
            if concerned(meta.id) && !seen.insert(meta.id) {
                return Err(Misfit(format!("table {:08} is in more than one place", meta.id.0)));
            }
        }
        Ok(())
    }
}

/// Why an edit does not fit a state: damage if it was read, a fault of the caller if it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit(pub String);

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an edit does not fit: {}", self.0)
    }
}
