//! What all tables of one store share: the file system, the block cache, the graveyard.
//!
//! Place: made by `db` at open; every [`TableHandle`](super::TableHandle) holds it.
//!
//! Concurrency: see the parts. Tests: `table/tests/handle.rs`, tests/graveyard.rs.

use std::sync::Arc;

use crate::cache::BlockCache;
use crate::env::FileSystem;
use crate::table::graveyard::{Grave, Graveyard};

/// The common ground of a store's tables.
pub struct Shelf {
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) cache: Arc<BlockCache>,
    pub(super) graveyard: Graveyard,
}

impl Shelf {
    /// For tables in `fs` whose blocks are kept in `cache`.
    pub fn new(fs: Arc<dyn FileSystem>, cache: Arc<BlockCache>) -> Arc<Shelf> {
        Arc::new(Shelf { fs, cache, graveyard: Graveyard::default() })
    }

    /// Where blocks are kept.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// Removes the files and cached blocks of obsolete tables that nobody holds; how many are still held.
    /// Removes files: not for a thread that only reads.
    pub fn sweep(&self) -> usize {
        self.bury(self.graveyard.take_free());
        self.graveyard.len()
    }

    /// Removes the files of all obsolete tables, held or not: nobody may read any more.
    pub fn sweep_all(&self) {
        self.bury(self.graveyard.take_all());
    }

    fn bury(&self, graves: Vec<Grave>) {
        for grave in graves {
            self.cache.evict_table(grave.id.0);
            // If this fails, the file is an orphan, which the next open removes.
            let _ = self.fs.remove(&grave.path);
        }
    }
}

impl std::fmt::Debug for Shelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shelf({:?}, {} tables obsolete)", self.cache, self.graveyard.len())
    }
}
