//! What the in-memory file system keeps through a crash: one test per rule of the medium.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::stores::{store, store_word};
use super::super::{FileSystem, Keep, MemFs, PageAt, ReadMode, Unsynced};
use super::PAGE_BYTES;

mod calls;
mod clones;
mod medium;
mod model;

/// Keeps nothing that was not synced.
pub(super) fn lose_all(_: PageAt<'_>) -> Keep {
    Keep::No
}

/// Keeps everything.
pub(super) fn keep_all(_: PageAt<'_>) -> Keep {
    Keep::Whole
}

/// A file system with the durable directory "db".
pub(super) fn with_dir() -> Arc<MemFs> {
    let fs = MemFs::new();
    fs.create_dir_all(Path::new("db")).unwrap();
    fs.sync_dir(Path::new("")).unwrap();
    fs
}

/// Writes a file without any sync.
pub(super) fn write(fs: &MemFs, path: &str, bytes: &[u8]) {
    fs.create(Path::new(path)).unwrap().append(bytes).unwrap();
}

/// Writes a file and syncs it and its name.
pub(super) fn write_durably(fs: &MemFs, path: &str, bytes: &[u8]) {
    let path = Path::new(path);
    let mut file = fs.create(path).unwrap();
    file.append(bytes).unwrap();
    file.sync().unwrap();
    fs.sync_dir(path.parent().unwrap()).unwrap();
}

/// The bytes of a file, read through the file system.
pub(super) fn read(fs: &dyn FileSystem, path: &str) -> Vec<u8> {
    let file = fs.open(Path::new(path), ReadMode::Buffered).unwrap();
    let mut bytes = vec![0; file.bytes() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

pub(super) fn is_page(at: &PageAt<'_>, wanted: u64) -> bool {
    matches!(at.change, Unsynced::Page { index, .. } if index == wanted)
}

pub(super) fn paths(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(PathBuf::from).collect()
}

/// A page's worth of one byte.
pub(super) fn page(byte: u8) -> Vec<u8> {
    vec![byte; PAGE_BYTES]
}
