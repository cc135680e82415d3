//! Blocks: pages of a store's own table files, read as they lie there: what the device gives at most.
//!
//! Place: a store hands them out, `drive` reads them; so the raw rate is measured of the same files, in the same mode, by as many
//! threads and in the same minutes as the gets beside it.
//!
//! 1. A read is of whole pages at multiples of their size, of one or of several that are asked for together, by one call of the
//!    file system.
//! 2. Every whole page of the files that are read is as likely as any other.
//! 3. A file stays open, so that it can be read though its table is merged and removed meanwhile.
//!
//! Concurrency: shared by all threads, and never changed.
//! Tests: below; `tests/figures.rs` reads those of a store.

use std::path::Path;
use std::sync::Arc;

use drumlin::env::{FileSystem, Read, ReadMode, ReadableFile, Reads};

use crate::engine::Result;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Files that are open at once, at most: of a store with more, some evenly from the oldest to the newest.
const FILES_MAX: usize = 512;
/// How the names of table files end.
const TABLE: &str = ".tbl";

/// A page, in memory that is aligned as it is: read by itself nothing is copied on the way, of several each is once.
#[derive(Clone)]
#[repr(C, align(4096))]
pub struct Page {
    /// Its bytes.
    pub bytes: [u8; PAGE_BYTES],
    /// Its number among all.
    pub number: u64,
}

impl Page {
    /// The page of a number, not read yet.
    pub fn new(number: u64) -> Page {
        Page { bytes: [0; PAGE_BYTES], number }
    }
}

/// See the module.
pub struct Blocks {
    system: Arc<dyn FileSystem>,
    /// Each with the number of the first page that is not its own.
    files: Vec<(Arc<dyn ReadableFile>, u64)>,
}

impl Blocks {
    /// Those of the tables in `directory`.
    ///
    /// # Errors
    /// If a file cannot be opened, or no table has a whole page.
    pub fn open(system: Arc<dyn FileSystem>, directory: &Path, mode: ReadMode) -> Result<Blocks> {
        let mut tables = system.list(directory)?;
        tables
            .retain(|entry| !entry.is_dir && entry.name.ends_with(TABLE) && entry.bytes >= PAGE_BYTES as u64);
        let step = tables.len().div_ceil(FILES_MAX).max(1);
        let (mut files, mut end) = (Vec::new(), 0);
        for table in tables.iter().step_by(step) {
            let file = match system.open(&directory.join(&table.name), mode) {
                // Merged and removed since it was listed.
                Err(error) if error.is_missing_file() => continue,
                file => file?,
            };
            end += file.bytes() / PAGE_BYTES as u64;
            files.push((file, end));
        }
        match files.is_empty() {
            true => Err("there is no table with a page to read".into()),
            false => Ok(Blocks { system, files }),
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.files.last().map_or(0, |(_, end)| *end)
    }

    /// Reads the pages whose numbers stand there, below [`count`](Blocks::count).
    #[inline]
    pub fn read(&self, pages: &mut [Page]) -> Result<()> {
        if let [Page { bytes, number }] = pages {
            let (file, offset) = self.place(*number);
            return Ok(file.read_exact_at(bytes, offset)?);
        }
        let mut together = Together { blocks: self, pages, begun: 0, failed: None };
        self.system.read_each(&mut together);
        together.failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// The file of a page, and where it lies there.
    fn place(&self, number: u64) -> (&Arc<dyn ReadableFile>, u64) {
        let at = self.files.partition_point(|(_, end)| *end <= number);
        let first = at.checked_sub(1).map_or(0, |before| self.files[before].1);
        (&self.files[at].0, (number - first) * PAGE_BYTES as u64)
    }
}

/// Pages that are read together, known by their places in the list.
struct Together<'a> {
    blocks: &'a Blocks,
    pages: &'a mut [Page],
    begun: usize,
    failed: Option<drumlin::Error>,
}

impl Reads for Together<'_> {
    fn next(&mut self) -> Option<Read> {
        let (file, offset) = self.blocks.place(self.pages.get(self.begun)?.number);
        self.begun += 1;
        Some(Read { file: file.clone(), offset, bytes: PAGE_BYTES, tag: self.begun - 1 })
    }

    fn take(&mut self, tag: usize, found: drumlin::Result<&[u8]>) {
        match found {
            Ok(found) => self.pages[tag].bytes.copy_from_slice(found),
            Err(error) => _ = self.failed.get_or_insert(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin::env::RealFs;

    #[test]
    fn every_whole_page_of_the_tables_is_read_and_nothing_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || Blocks::open(Arc::new(RealFs::new()), directory.path(), ReadMode::Direct);
        assert!(open().is_err_and(|error| error.to_string().contains("no table")));
        let write = |name: &str, pages: &[u8], rest: usize| {
            let mut bytes: Vec<u8> = pages.iter().flat_map(|byte| [*byte; PAGE_BYTES]).collect();
            bytes.extend(vec![0; rest]);
            std::fs::write(directory.path().join(name), bytes).expect("written");
        };
        write("2.tbl", &[3, 4, 5], 100);
        write("1.tbl", &[1, 2], 0);
        write("3.tbl", &[], 4095);
        write("4.tbl", &[6], 1);
        write("MANIFEST-1", &[7], 0);
        let blocks = open().expect("there are some");
        for together in [1, 4, 6] {
            let mut pages: Vec<Page> = (0..blocks.count()).map(Page::new).collect();
            pages.chunks_mut(together).for_each(|chunk| blocks.read(chunk).expect("they are there"));
            assert!(pages.iter().all(|page| page.bytes == [page.bytes[0]; PAGE_BYTES]), "a page of two");
            assert_eq!(pages.iter().map(|page| page.bytes[0]).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        }
        // What is removed can still be read.
        std::fs::remove_file(directory.path().join("1.tbl")).expect("removed");
        let mut first = [Page::new(0)];
        blocks.read(&mut first).expect("it is open");
        assert_eq!(first[0].bytes[0], 1);
    }
}
