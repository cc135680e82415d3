//! Gets of many keys at once from the tables of a keyspace.
//!
//! Place: part of [`Levels`]; `db::lookups` asks first what is in memory, then, of the keys that are left, the files.
//!
//! Each key walks its own tables, newest first, from the one that memory could not tell of, and stops at the first that has an answer, as
//! [`Levels::go_on`] does. Where a walk needs a block it waits, others go on, and more keys are looked up in memory; the file system has
//! the blocks read meanwhile, as many at a time as it can.
//!
//! Invariants:
//! 1. The answer for a key is that of [`Levels::go_on`]: levels never change, so it makes no difference when a table is asked.
//! 2. A block that several walks need is read once, as long as what was read comes to no more than [`KEPT_BYTES`]; no more is kept.
//! 3. No file is read while the epoch is pinned.
//!
//! Complexity: that of as many gets, and a look through the names of blocks, of which the keys of a call need few.
//! Concurrency: values. Tests: `levels_tests`, tests/lookups.rs. Origin: ours.

use smallvec::{SmallVec, smallvec};

use crate::cache::SharedBlock;
use crate::env::{Read, Reads, unread};
use crate::error::{Error, Result};
use crate::key::Lsn;
use crate::table::{Given, Name, Step, TableHandle, Verdicts, Version, Wanted};

use super::levels::{Levels, Rest, Sought, newer};

/// Bytes of blocks that are kept for other walks.
const KEPT_BYTES: usize = 8 << 20;

/// Who looks many keys up: has the keys, and takes what is found.
pub trait Keys<'a> {
    /// The next key that memory could not tell of, by a number of its own, and what of its get is left. `None` behind the last.
    fn next(&mut self) -> Result<Option<(usize, Sought<'a>, Rest)>>;
    /// What the tables have for the key of this number. Once for each.
    fn found(&mut self, number: usize, version: Option<Version>);
}

/// A key on its way through its tables.
struct Walk<'a, I> {
    number: usize,
    sought: Sought<'a>,
    /// The table that is asked; none behind the last.
    table: Option<&'a TableHandle>,
    candidates: I,
    known: Verdicts,
    /// Blocks of `table`.
    given: Given,
    found: Option<Version>,
}

impl<'a, I: Iterator<Item = &'a TableHandle>> Walk<'a, I> {
    /// Goes on up to the answer, or to a block that has to be read.
    fn go_on(&mut self, at: Lsn) -> Result<Option<Wanted<'a>>> {
        let Sought { key, hash } = self.sought;
        while let Some(table) = self.table {
            let version = match table.step(key, hash, at, &mut self.known, &self.given)? {
                Step::Wants(block) => return Ok(Some(block)),
                Step::Done(version) => version,
            };
            self.given.clear();
            self.found = newer(version, table.newest_covering(key, at)?);
            self.table = if self.found.is_some() { None } else { self.candidates.next() };
        }
        Ok(None)
    }
}

/// A block that was needed.
enum Needed<'a> {
    /// Read for these walks.
    UnderWay(Wanted<'a>, SmallVec<[usize; 2]>),
    Here(SharedBlock),
    /// Was here.
    Gone,
}

/// All walks, and what they wait for.
struct Together<'a, 'k, I, B> {
    at: Lsn,
    keys: &'k mut dyn Keys<'a>,
    begin: B,
    walks: Vec<Walk<'a, I>>,
    /// How many of them are over.
    told: usize,
    /// There are no more keys.
    ended: bool,
    /// Walks whose block is here.
    ready: Vec<usize>,
    /// By the tags of their reads.
    needed: Vec<(Name, Needed<'a>)>,
    /// Bytes of those that are here.
    kept: usize,
    /// The first error: nothing is begun behind it.
    failed: Option<Error>,
}

impl Levels {
    /// [`Levels::go_on`] for each of the keys; `read_each` is that of the file system. May read files, so the epoch must not be pinned.
    ///
    /// # Errors
    /// The first that a get meets; what other keys have may have been told before. `InvalidArgument` if not all was read.
    pub fn go_on_together<'a>(
        &'a self,
        read_each: impl FnOnce(&mut dyn Reads),
        keys: &mut dyn Keys<'a>,
        at: Lsn,
    ) -> Result<()> {
        let begin = |number, sought: Sought<'a>, rest| {
            let Rest { from, known, .. } = rest;
            let mut candidates = self.candidates(sought.key, from).map(|(_, table)| table);
            Walk {
                number,
                sought,
                table: candidates.next(),
                candidates,
                known,
                given: Given::default(),
                found: None,
            }
        };
        let mut together = Together {
            at,
            keys,
            begin,
            walks: Vec::new(),
            told: 0,
            ended: false,
            ready: Vec::new(),
            needed: Vec::new(),
            kept: 0,
            failed: None,
        };
        read_each(&mut together);
        match together.failed {
            Some(error) => Err(error),
            // Keys that are left would pass for absent.
            None if !together.ended || together.told < together.walks.len() => Err(unread()),
            None => Ok(()),
        }
    }
}

impl<'a, I, B> Together<'a, '_, I, B>
where
    I: Iterator<Item = &'a TableHandle>,
    B: Fn(usize, Sought<'a>, Rest) -> Walk<'a, I>,
{
    /// The next read, if one is needed before another is over.
    fn go_on(&mut self) -> Result<Option<Read>> {
        loop {
            let n = match self.ready.pop() {
                Some(n) => n,
                None => match self.keys.next()? {
                    None => {
                        self.ended = true;
                        return Ok(None);
                    }
                    Some((number, sought, rest)) => {
                        self.walks.push((self.begin)(number, sought, rest));
                        self.walks.len() - 1
                    }
                },
            };
            let walk = &mut self.walks[n];
            match walk.go_on(self.at)? {
                None => {
                    self.told += 1;
                    self.keys.found(walk.number, walk.found.take());
                }
                Some(block) => {
                    if let Some(read) = self.wait_for(n, block)? {
                        return Ok(Some(read));
                    }
                }
            }
        }
    }

    /// Has a walk wait for a block: the read of it, if it is to be read now.
    fn wait_for(&mut self, walk: usize, block: Wanted<'a>) -> Result<Option<Read>> {
        let name = block.name();
        let tag = self.needed.iter().position(|(needed, _)| *needed == name).unwrap_or_else(|| {
            self.needed.push((name, Needed::Gone));
            self.needed.len() - 1
        });
        match &mut self.needed[tag].1 {
            Needed::UnderWay(_, walks) => walks.push(walk),
            Needed::Here(found) => {
                self.walks[walk].given.add(name, found.clone());
                self.ready.push(walk);
            }
            needed @ Needed::Gone => match block.read(tag) {
                Some(read) => {
                    *needed = Needed::UnderWay(block, smallvec![walk]);
                    return Ok(Some(read));
                }
                None => self.arrived(tag, &[walk], block.fetch()?),
            },
        }
        Ok(None)
    }

    /// Gives a block to the walks that wait for it.
    fn arrived(&mut self, tag: usize, walks: &[usize], block: SharedBlock) {
        let (name, _) = self.needed[tag];
        for walk in walks {
            self.walks[*walk].given.add(name, block.clone());
        }
        self.ready.extend_from_slice(walks);
        if self.kept >= KEPT_BYTES {
            self.kept = 0;
            let here = self.needed.iter_mut().map(|(_, needed)| needed);
            here.filter(|needed| matches!(needed, Needed::Here(_))).for_each(|needed| *needed = Needed::Gone);
        }
        if block.len() < KEPT_BYTES {
            self.kept += block.len();
            self.needed[tag].1 = Needed::Here(block);
        }
    }
}

impl<'a, I, B> Reads for Together<'a, '_, I, B>
where
    I: Iterator<Item = &'a TableHandle>,
    B: Fn(usize, Sought<'a>, Rest) -> Walk<'a, I>,
{
    fn next(&mut self) -> Option<Read> {
        if self.failed.is_some() {
            return None;
        }
        self.go_on().unwrap_or_else(|error| {
            self.failed = Some(error);
            None
        })
    }

    fn take(&mut self, tag: usize, found: Result<&[u8]>) {
        let Needed::UnderWay(block, walks) = std::mem::replace(&mut self.needed[tag].1, Needed::Gone) else {
            return;
        };
        match found.and_then(|stored| block.arrived(stored)) {
            Ok(block) => self.arrived(tag, &walks, block),
            Err(error) => _ = self.failed.get_or_insert(error),
        }
    }
}
