//! A get of one table in steps: it stops where it would have to read a block, and says which.
//!
//! Place: `version` takes the gets of many keys so far, has the blocks that they want read together, and lets them go on.
//!
//! Invariants:
//! 1. A get goes on with the blocks that it was given, whatever the cache has kept: each step ends it or wants a block that the
//!    step before had not.
//! 2. A block that several gets want is read once.
//! 3. No file is read while the epoch is pinned; nor by a step, but to open a table.
//!
//! Concurrency: as that of the table; a get in steps is one thread's. Tests: tests/lookups.rs,
//! `version::levels_tests`.

use std::cell::Cell;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::cache::SharedBlock;
use crate::env::ReadRequest;
use crate::error::Result;
use crate::key::Lsn;
use crate::pages::{PageVec, Pages};
use crate::table::hashed::Verdicts;
use crate::table::index::{Index, Place};
use crate::table::reads::block_was_read;
use crate::table::resident::Resident;
use crate::table::{TableId, Version};

use super::{Blocks, Role, Search, TableHandle};

/// What a get has come to.
pub enum Step<'a> {
    /// The newest version that it may see, if the table has one.
    Done(Option<Version>),
    /// It needs a block that is not in memory.
    Wants(Wanted<'a>),
}

/// A block that a get needs.
pub struct Wanted<'a> {
    table: &'a TableHandle,
    resident: Arc<Resident>,
    place: Place,
    role: Role,
}

/// The blocks of one table that a get was given, by their offsets.
#[derive(Default)]
pub struct Given(SmallVec<[(u64, SharedBlock); 2]>);

impl Given {
    /// Takes in what was read for it.
    pub fn add(&mut self, wanted: &Wanted<'_>, block: SharedBlock) {
        self.0.push((wanted.place.offset, block));
    }

    /// Forgets all: the next table has others.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// From what was given or is cached; notes what is not.
struct InMemory<'a> {
    table: &'a TableHandle,
    resident: &'a Resident,
    given: &'a Given,
    wanted: &'a Cell<Option<(Place, Role)>>,
}

impl Blocks for InMemory<'_> {
    type Block = SharedBlock;

    fn at(&self, place: Place, role: Role) -> Result<Option<SharedBlock>> {
        if let Some((_, block)) = self.given.0.iter().find(|(offset, _)| *offset == place.offset) {
            return Ok(Some(block.clone()));
        }
        let found = self.table.peek(place);
        if found.is_none() {
            self.wanted.set(Some((place, role)));
        }
        Ok(found)
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
        if self.has_nothing_below(at) || known.of(self.meta.id) == Some(false) {
            return Ok(Step::Done(None));
        }
        let resident = self.resident()?;
        let wanted = Cell::new(None);
        let blocks = InMemory { table: self, resident: &resident, given, wanted: &wanted };
        Ok(match self.search(&resident, key, hash, at, known, blocks)? {
            Search::Found(version) => Step::Done(Some(version)),
            Search::Absent => Step::Done(None),
            Search::Skip => Step::Done(self.get_behind_unknown(key, at)?),
            Search::Miss => {
                let (place, role) = wanted.take().expect("a search misses nothing but a block");
                Step::Wants(Wanted { table: self, resident, place, role })
            }
        })
    }

    /// A second look for a block, not counted as one.
    pub(super) fn peek(&self, place: Place) -> Option<SharedBlock> {
        let guard = crossbeam_epoch::pin();
        self.shelf.cache.peek(self.meta.id.0, place.offset, &guard).map(|block| block.share())
    }
}

impl Wanted<'_> {
    /// Bytes of the block in its file.
    pub fn bytes(&self) -> u64 {
        self.place.bytes
    }

    fn name(&self) -> (TableId, u64) {
        (self.table.meta.id, self.place.offset)
    }

    /// Takes in what was read at its place.
    fn arrived(&self, stored: &[u8]) -> Result<SharedBlock> {
        block_was_read();
        let block = match self.role {
            Role::Leaf => self.resident.decode_leaf(self.place, stored, &self.table.options)?,
            Role::Data => self.resident.decode(self.place, stored)?,
        };
        Ok(self.table.keep(self.place, block))
    }
}

/// The blocks, in their order, each read once: asked of the device together, if the file system can. They are in the cache
/// behind it, if that keeps them. The epoch must not be pinned.
///
/// # Errors
/// That of the first, as they lie in their tables, that cannot be read or is corrupt.
pub fn read_together(wanted: &[Wanted<'_>]) -> Result<Vec<SharedBlock>> {
    let Some(first) = wanted.first() else { return Ok(Vec::new()) };
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_unstable_by_key(|n| wanted[*n].name());
    order.dedup_by_key(|n| wanted[*n].name());
    let at_once = |n: usize| wanted[n].resident.is_read_at_once(wanted[n].place);
    let mut buffers: Vec<(usize, PageVec<u8>)> = Vec::with_capacity(order.len());
    for n in order.iter().copied().filter(|n| at_once(*n)) {
        let mut buffer = PageVec::new_in(Pages);
        buffer.resize(wanted[n].place.bytes as usize, 0);
        buffers.push((n, buffer));
    }
    let mut requests = Vec::with_capacity(buffers.len());
    for (n, buffer) in &mut buffers {
        let Wanted { resident, place, .. } = &wanted[*n];
        requests.push(ReadRequest { file: resident.file(), offset: place.offset, buffer });
    }
    let done = first.table.shelf.fs.read_many(&mut requests);
    drop(requests);
    let mut read = done.into_iter().zip(&buffers);
    let mut blocks = Vec::with_capacity(order.len());
    for n in order.iter().copied() {
        let Wanted { table, resident, place, role } = &wanted[n];
        blocks.push(match if at_once(n) { read.next() } else { None } {
            Some((done, (_, stored))) => done.and_then(|()| wanted[n].arrived(stored))?,
            None => table.fetch(resident, *place, *role)?,
        });
    }
    let block_of = |wanted_one: &Wanted<'_>| {
        let at = order.binary_search_by_key(&wanted_one.name(), |n| wanted[*n].name());
        blocks[at.expect("every name is in order")].clone()
    };
    Ok(wanted.iter().map(block_of).collect())
}
