//! Gets of many keys at once from the tables of a keyspace.
//!
//! Place: part of [`Levels`]; `db::lookups` asks first what is in memory, then, of the keys that are left, the files.
//!
//! Each key walks its own tables, newest first, from the one that memory could not tell of, and stops at the first that has an answer, as
//! [`Levels::go_on`] does. What is done
//! together is waiting: the blocks that the keys need next are asked of the device at once, a round after the other.
//!
//! Invariants:
//! 1. The answer for a key is that of [`Levels::go_on`]: levels never change, so it makes no difference when a table is asked.
//! 2. A round holds no more blocks than those of [`ROUND_BYTES`] and one; keys beyond wait for the next, the first ones first.
//! 3. No file is read while the epoch is pinned.
//!
//! Complexity: that of as many gets; rounds: as many as the key with the most blocks to read has, if the bytes suffice.
//! Concurrency: values. Tests: `levels_tests`, tests/lookups.rs. Origin: ours.

use crate::error::Result;
use crate::key::Lsn;
use crate::table::{Given, Step, TableHandle, Verdicts, Version, Wanted, read_together};

use super::levels::{Levels, Rest, Sought, newer};

/// Bytes of blocks from which on a round asks for no more.
const ROUND_BYTES: u64 = 8 << 20;

/// A key on its way through its tables.
struct Walk<'a, I> {
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

impl Levels {
    /// [`Levels::go_on`] for each, in their order. May read files, so the epoch must not be pinned.
    pub fn go_on_together(&self, sought: Vec<(Sought<'_>, Rest)>, at: Lsn) -> Result<Vec<Option<Version>>> {
        let mut walks: Vec<_> = sought.into_iter().map(|(sought, rest)| self.walk(sought, rest)).collect();
        loop {
            let mut wanted = Vec::new();
            let mut bytes = 0;
            for (n, walk) in walks.iter_mut().enumerate() {
                if bytes >= ROUND_BYTES {
                    break;
                }
                if let Some(block) = walk.go_on(at)? {
                    bytes += block.bytes();
                    wanted.push((n, block));
                }
            }
            if wanted.is_empty() {
                return Ok(walks.into_iter().map(|walk| walk.found).collect());
            }
            let (keys, wanted): (Vec<usize>, Vec<Wanted<'_>>) = wanted.into_iter().unzip();
            let blocks = read_together(&wanted)?;
            for ((n, wanted), block) in keys.into_iter().zip(&wanted).zip(blocks) {
                walks[n].given.add(wanted, block);
            }
        }
    }

    fn walk<'a>(
        &'a self,
        sought: Sought<'a>,
        rest: Rest,
    ) -> Walk<'a, impl Iterator<Item = &'a TableHandle> + 'a> {
        let Rest { from, known, .. } = rest;
        let mut candidates = self.candidates(sought.key, from).map(|(_, table)| table);
        Walk { sought, table: candidates.next(), candidates, known, given: Given::default(), found: None }
    }
}
