//! What a call of a file system is, as hooks and fault plans see it.
//!
//! Place: made by `memory` and `faulty`; read by the closures that tests install there.

use std::path::Path;

/// The operations of [`super::FileSystem`] and of the handles it gives out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Operation {
    /// `FileSystem::create_dir_all`.
    CreateDir,
    /// `FileSystem::list`.
    List,
    /// `FileSystem::exists`.
    Exists,
    /// `FileSystem::create`.
    Create,
    /// `FileSystem::open`.
    Open,
    /// `WritableFile::append`.
    Append,
    /// `WritableFile::sync`.
    Sync,
    /// `ReadableFile::read_exact_at`.
    Read,
    /// `FileSystem::rename`; the path is the new name.
    Rename,
    /// `FileSystem::remove`.
    Remove,
    /// `FileSystem::sync_dir`.
    SyncDir,
    /// `FileSystem::map_log`.
    MapLog,
    /// `LogRegion::sync`.
    SyncRegion,
    /// `FileSystem::truncate`.
    Truncate,
    /// `FileSystem::lock`.
    Lock,
    /// `FileSystem::free_bytes`.
    FreeBytes,
}

impl Operation {
    /// True if the operation may change what is stored, or what of it is durable.
    pub fn writes(self) -> bool {
        use Operation::{Exists, FreeBytes, List, Open, Read};
        !matches!(self, List | Exists | Open | Read | FreeBytes)
    }

    /// The verb of its errors.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Operation::CreateDir => "create directory",
            Operation::List => "list",
            Operation::Exists | Operation::FreeBytes => "inspect",
            Operation::Create => "create",
            Operation::Open => "open",
            Operation::Append => "append to",
            Operation::Sync | Operation::SyncRegion => "sync",
            Operation::Read => "read",
            Operation::Rename => "rename",
            Operation::Remove => "remove",
            Operation::SyncDir => "sync directory",
            Operation::MapLog => "map",
            Operation::Truncate => "truncate",
            Operation::Lock => "lock",
        }
    }

    /// True for the three syncs: of a file, of a mapped region, of a directory.
    pub fn syncs(self) -> bool {
        matches!(self, Operation::Sync | Operation::SyncRegion | Operation::SyncDir)
    }
}

/// One call, told before it is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call<'a> {
    /// Its number, counted from 0 over the life of the file system.
    pub number: u64,
    /// What is asked for.
    pub operation: Operation,
    /// The file or directory concerned: the path its handle was made with, for calls of a handle.
    pub path: &'a Path,
}
