//! Files that crashes left behind: tables and value files that no manifest names, and such as were cut off in the writing.
//!
//! Place: `db` removes them at a writable open, before the background starts.
//!
//! Invariants:
//! 1. A file whose name a live table has, or a value file that one refers to, is never listed, wherever it lies: a wrong level path must
//!    not cost a table.
//! 2. Only names that this crate gives to tables and value files are listed; a user's files are left alone.
//!
//! A directory given for a level belongs to one store (`owner`): another store's tables look like orphans here.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use super::state::StoreState;
use crate::env::{FileSystem, join};
use crate::error::Result;
use crate::table::{TableId, ValueUse, file_name};

/// The orphaned files in `directories` (each looked at once; one that does not exist is fine),
/// sorted. O(files + tables).
pub fn orphans<'a>(
    fs: &dyn FileSystem,
    directories: impl IntoIterator<Item = &'a Path>,
    state: &StoreState,
) -> Result<Vec<PathBuf>> {
    let tables = state.tables().map(|(_, _, meta)| meta);
    let names = tables.flat_map(|meta| {
        let values = meta.values.iter().map(ValueUse::file_name);
        values.chain([file_name(meta.id, meta.content_hash)])
    });
    let live: HashSet<String> = names.collect();
    let mut found = BTreeSet::new();
    for directory in directories.into_iter().collect::<BTreeSet<_>>() {
        if !fs.exists(directory)? {
            continue;
        }
        for entry in fs.list(directory)?.into_iter().filter(|entry| !entry.is_dir) {
            let cut_off = is_temporary_name(&entry.name);
            let is_ours = is_table_name(&entry.name) || value_file(&entry.name).is_some();
            if cut_off || (is_ours && !live.contains(&entry.name)) {
                found.insert(join(directory, &entry.name));
            }
        }
    }
    Ok(found.into_iter().collect())
}

/// Tables cut off in the writing, which no manifest ever named.
pub fn temporaries<'a>(
    fs: &dyn FileSystem,
    directories: impl IntoIterator<Item = &'a Path>,
) -> Result<Vec<PathBuf>> {
    let mut found = BTreeSet::new();
    for directory in directories {
        if fs.exists(directory)? {
            let entries = fs.list(directory)?.into_iter();
            let cut_off = entries.filter(|entry| !entry.is_dir && is_temporary_name(&entry.name));
            found.extend(cut_off.map(|entry| join(directory, &entry.name)));
        }
    }
    Ok(found.into_iter().collect())
}

/// True for names as `table::file_name` makes them.
pub(crate) fn is_table_name(name: &str) -> bool {
    parts_of(name, ".tbl").is_some()
}

/// Id and hash in a name as `ValueUse::file_name` makes them.
pub(crate) fn value_file(name: &str) -> Option<(TableId, u64)> {
    parts_of(name, ".val")
}

fn parts_of(name: &str, suffix: &str) -> Option<(TableId, u64)> {
    let (id, hash) = name.strip_suffix(suffix)?.split_once('-')?;
    let is_hash = hash.len() == 16 && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !(is_id(id) && is_hash) {
        return None;
    }
    Some((TableId(id.parse().ok()?), u64::from_str_radix(hash, 16).ok()?))
}

/// True for names as `table::temporary_name` makes them.
fn is_temporary_name(name: &str) -> bool {
    name.strip_suffix(".tmp").is_some_and(is_id)
}

fn is_id(text: &str) -> bool {
    text.len() >= 8 && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::MemFs;
    use crate::table::{TableId, TableMeta, temporary_name};
    use crate::version::{Change, KeyspaceId, VersionEdit};

    fn meta(id: u64) -> TableMeta {
        TableMeta { id: TableId(id), content_hash: u128::from(id) << 90, ..TableMeta::default() }
    }

    #[test]
    fn only_our_tables_that_nothing_names_are_orphans() {
        let keyspace = KeyspaceId(1);
        let mut state = StoreState::default();
        let edit = VersionEdit::new()
            .with(Change::CreateKeyspace { id: keyspace, name: "a".into(), options: Vec::new() })
            .with(Change::AddTable { keyspace, level: 2, meta: meta(7) });
        state.apply(&edit).unwrap();

        let fs = MemFs::new();
        let name = |id| file_name(TableId(id), meta(id).content_hash);
        let kept = ["MANIFEST-000001", "notes.tmp", "photo.tbl", "1234.tmp", "0000000x.tmp", "STORE"];
        for name in kept {
            fs.set_contents(Path::new("/s").join(name), b"x").unwrap();
        }
        fs.set_contents(Path::new("/s").join(name(7)), b"x").unwrap();
        fs.set_contents(Path::new("/cold").join(name(7)), b"x").unwrap();
        let orphaned = ["/s".to_owned() + "/" + &name(8), "/s/".to_owned() + &temporary_name(TableId(9))];
        for path in &orphaned {
            fs.set_contents(path, b"x").unwrap();
        }
        fs.set_contents(Path::new("/cold").join(name(123_456_789_012)), b"x").unwrap();

        let directories = [Path::new("/s"), Path::new("/cold"), Path::new("/s"), Path::new("/gone")];
        let mut expected: Vec<PathBuf> = orphaned.iter().map(PathBuf::from).collect();
        expected.push(Path::new("/cold").join(name(123_456_789_012)));
        expected.sort();
        assert_eq!(orphans(&*fs, directories, &state).unwrap(), expected);
        let temporary = Path::new("/s").join(temporary_name(TableId(9)));
        assert_eq!(temporaries(&*fs, directories).unwrap(), [temporary]);
    }
}
