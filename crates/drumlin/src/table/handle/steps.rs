//! A get of one table in steps: it stops where it would have to read a block or a value, and says which.
//!
//! Place: `version` takes the gets of many keys so far, has the blocks that they want read, and lets each go on when its block is there.
//!
//! Invariants:
//! 1. A get goes on with the blocks that it was given, whatever the cache has kept: each step ends it or wants a block that the
//!    step before had not.
//! 2. No file is read while the epoch is pinned; nor by a step, but to open a file, or behind an entry of a kind unknown to this build.
//!
//! Concurrency: as that of the table; a get in steps is one thread's. Tests: tests/lookups.rs,
//! `version::levels_tests`.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::cache::SharedBlock;
use crate::env::{FileSystem, Read, Reads, unread};
use crate::error::Result;
use crate::key::{Kind, Lsn};
use crate::table::hashed::Verdicts;
use crate::table::index::{Index, Place};
use crate::table::reads::block_was_read;
use crate::table::resident::{Resident, is_read_at_once};
use crate::table::values::{OpenFile, Reader, ValueFile, ValueRef};
use crate::table::{TableId, Version};

use super::search::{Blocks, FetchedBlock, Missed, Search};
use super::{Role, TableHandle};

/// What a get has come to.
pub enum Step<'a> {
    /// The newest version that it may see, if the table has one.
    Done(Option<Version>),
    /// It needs a block that is not in memory.
    Wants(Wanted<'a>),
}

/// A block or a value that a get needs.
pub struct Wanted<'a> {
    table: &'a TableHandle,
    place: Place,
    source: Source<'a>,
}

/// What it lies in.
enum Source<'a> {
    Table(Arc<Resident>, Role),
    Values(&'a ValueFile, Arc<OpenFile>, ValueRef, Reader),
}

/// The blocks of one table that a get was given, and a value, by file and offset.
#[derive(Default)]
pub struct Given(SmallVec<[(Name, SharedBlock); 2]>);

/// File and offset.
pub type Name = (TableId, u64);

impl Given {
    /// Takes in what was read for it.
    pub fn add(&mut self, name: Name, block: SharedBlock) {
        self.0.push((name, block));
    }

    fn get(&self, name: Name) -> Option<&SharedBlock> {
        self.0.iter().find(|(given, _)| *given == name).map(|(_, block)| block)
    }

    /// Forgets all: the next table has others.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// From what was given or is cached.
struct InMemory<'a> {
    table: &'a TableHandle,
    resident: &'a Resident,
    given: &'a Given,
}

impl Blocks for InMemory<'_> {
    type Block = SharedBlock;

    fn at(&self, place: Place, _: Role) -> Result<Option<SharedBlock>> {
        if let Some(block) = self.given.get((self.table.meta.id, place.offset)) {
            return Ok(Some(block.clone()));
        }
        Ok(self.table.peek(place))
    }

    fn child(&self, root: &Index<'_>, child: usize) -> Result<Option<SharedBlock>> {
        self.at(self.resident.child(root, child)?, Role::Data)
    }
}

impl TableHandle {
    /// As [`TableHandle::get`], as far as it comes without reading a block. A table that is not open is opened, so the epoch must
    /// not be pinned.
    pub fn step(
        &self,
        key: &[u8],
        hash: u64,
        at: Lsn,
        known: &mut Verdicts,
        given: &Given,
    ) -> Result<Step<'_>> {
        if self.has_nothing_below(at) || self.is_denied_by(known) {
            return Ok(Step::Done(None));
        }
        let resident = self.resident()?;
        let blocks = InMemory { table: self, resident: &resident, given };
        Ok(match self.search(&resident, key, hash, at, known, blocks)? {
            Search::Found(version) if version.kind == Kind::Apart => self.step_to_value(version, given)?,
            Search::Found(version) => Step::Done(Some(version)),
            Search::Absent => Step::Done(None),
            Search::Skip => Step::Done(self.get_behind_unknown(key, at)?),
            Search::Miss(Missed { place, role }) => {
                Step::Wants(Wanted { table: self, place, source: Source::Table(resident, role) })
            }
        })
    }

    /// The values of these references, for a scan, read side by side.
    pub(in crate::table) fn values_together(&self, references: &[&[u8]]) -> Result<Vec<SharedBlock>> {
        let mut values: Vec<Option<SharedBlock>> = Vec::with_capacity(references.len());
        let mut wanted = Vec::new();
        for reference in references {
            let (file, value) = self.value_file(reference)?;
            let cached = file.peek(&self.shelf, &value);
            if cached.is_none() {
                wanted.push(self.wants_value(file, value, Reader::Scan)?);
            }
            values.push(cached);
        }
        let mut read = read_together(&*self.shelf.fs, &wanted)?.into_iter();
        Ok(values.into_iter().filter_map(|value| value.or_else(|| read.next())).collect())
    }

    fn wants_value<'a>(&'a self, file: &'a ValueFile, value: ValueRef, reader: Reader) -> Result<Wanted<'a>> {
        let source = Source::Values(file, file.opened(&self.shelf)?, value, reader);
        Ok(Wanted { table: self, place: value.place, source })
    }

    /// The last step of a get whose value lies apart.
    #[cold]
    fn step_to_value(&self, version: Version, given: &Given) -> Result<Step<'_>> {
        let (file, value) = self.value_file(&version.value)?;
        let found = match given.get((file.id(), value.place.offset)) {
            Some(block) => Some(block.clone()),
            None => file.peek(&self.shelf, &value),
        };
        Ok(match found {
            Some(block) => Step::Done(Some(Version { kind: Kind::Put, value: block.to_vec(), ..version })),
            None => Step::Wants(self.wants_value(file, value, Reader::Get)?),
        })
    }

    /// A second look for a block, not counted as one.
    pub(super) fn peek(&self, place: Place) -> Option<SharedBlock> {
        let guard = crossbeam_epoch::pin();
        self.shelf.cache.peek(self.meta.id.0, place.offset, &guard).map(|block| block.share())
    }
}

impl Wanted<'_> {
    /// What it is known by: two that have the same are the same block.
    pub fn name(&self) -> Name {
        let file = match &self.source {
            Source::Table(..) => self.table.meta.id,
            Source::Values(file, ..) => file.id(),
        };
        (file, self.place.offset)
    }

    /// What to ask of the file system, by this tag; none if it is larger than what is read at once, and is for [`fetch`](Wanted::fetch).
    pub fn read(&self, tag: usize) -> Option<Read> {
        let file = match &self.source {
            Source::Table(resident, _) => resident.file(),
            Source::Values(_, open, ..) => open.file(),
        };
        let Place { offset, bytes } = self.place;
        let read = || Read { file: file.clone(), offset, bytes: bytes as usize, tag };
        is_read_at_once(file.bytes(), self.place).then(read)
    }

    /// Takes in what was read at its place. It is in the cache behind it, if that keeps it.
    pub fn arrived(&self, stored: &[u8]) -> Result<SharedBlock> {
        let (resident, role) = match &self.source {
            Source::Table(resident, role) => (resident, role),
            Source::Values(file, _, value, reader) => {
                return file.arrived(&self.table.shelf, value, *reader, stored);
            }
        };
        block_was_read();
        let block = match role {
            Role::Leaf => resident.decode_leaf(self.place, stored, &self.table.options)?,
            Role::Data => resident.decode(self.place, stored)?,
        };
        Ok(self.table.keep(self.place, *role, block))
    }

    /// By reads of its own.
    pub fn fetch(&self) -> Result<SharedBlock> {
        match &self.source {
            Source::Table(resident, role) => {
                self.table.fetch(resident, self.place, *role).map(FetchedBlock::into_shared)
            }
            Source::Values(file, _, value, reader) => file.read(&self.table.shelf, value, *reader),
        }
    }
}

/// The blocks, in their order, several read at a time if the file system can. They are in the cache
/// behind it, if that keeps them. The epoch must not be pinned.
///
/// # Errors
/// That of the first that cannot be read or is corrupt.
fn read_together(fs: &dyn FileSystem, wanted: &[Wanted<'_>]) -> Result<Vec<SharedBlock>> {
    let mut list = List { wanted, next: 0, blocks: wanted.iter().map(|_| None).collect() };
    fs.read_each(&mut list);
    list.blocks.into_iter().map(|block| block.unwrap_or_else(|| Err(unread()))).collect()
}

/// Reads of [`read_together`]: by their place in the list.
struct List<'w, 'a> {
    wanted: &'w [Wanted<'a>],
    next: usize,
    blocks: Vec<Option<Result<SharedBlock>>>,
}

impl Reads for List<'_, '_> {
    fn next(&mut self) -> Option<Read> {
        while let Some(wanted) = self.wanted.get(self.next) {
            let n = self.next;
            self.next += 1;
            match wanted.read(n) {
                Some(read) => return Some(read),
                None => self.blocks[n] = Some(wanted.fetch()),
            }
        }
        None
    }

    fn take(&mut self, n: usize, found: Result<&[u8]>) {
        self.blocks[n] = Some(found.and_then(|stored| self.wanted[n].arrived(stored)));
    }
}
