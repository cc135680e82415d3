//! Opening the store as each command needs it.
//!
//! Place: called by every command that touches a store.
//!
//! 1. Commands that read open read-only: they create, repair and truncate nothing.
//! 2. Only commands that can put a record create a store or a keyspace; never for a keyspace whose name cannot be.

use std::ffi::OsString;
use std::path::Path;

use drumlin::{Db, Keyspace, Options, Stats, check_keyspace_name};

use crate::args::{Args, Made};
use crate::failure::{Failure, Result};

/// What a directory with a store has, or one in which making it was interrupted.
const STORE_FILES: [&str; 3] = ["LOCK", "STORE", "CURRENT"];

/// Opens the store for reading.
pub fn read(args: &Args) -> Result<Db> {
    Ok(Db::open(args.db(), Options { create_if_missing: false, read_only: true, ..Options::default() })?)
}

/// Opens the store for reading, and the keyspace.
pub fn read_keyspace(args: &Args) -> Result<(Db, Keyspace)> {
    let db = read(args)?;
    let keyspace = db.open_keyspace(args.keyspace())?;
    Ok((db, keyspace))
}

/// The store's figures; with `--keyspace`, of keyspaces only that one's.
pub fn stats(args: &Args) -> Result<Stats> {
    stats_of(&read(args)?, args)
}

/// The same of a store that is open.
pub fn stats_of(db: &Db, args: &Args) -> Result<Stats> {
    let mut stats = db.stats();
    if let Some(name) = args.keyspace_named() {
        db.open_keyspace(name)?;
        stats.keyspaces.retain(|keyspace| keyspace.name == name);
    }
    Ok(stats)
}

/// Opens the store for changes to what is there.
pub fn change(args: &Args) -> Result<Db> {
    Ok(Db::open(args.db(), Options { create_if_missing: false, ..Options::default() })?)
}

/// Opens the store and the keyspace for writing; makes them if missing. A layout that is named must have an order if the keyspace has.
pub fn write_keyspace(args: &Args, made: &Made) -> Result<(Db, Keyspace)> {
    check_keyspace_name(args.keyspace())?;
    not_among_others(args.db())?;
    let db = Db::open(args.db(), Options::default())?;
    let keyspace = match (made.layout, db.open_keyspace(args.keyspace())) {
        (None, found @ Ok(_)) => found,
        _ => db.keyspace(args.keyspace(), made.options()),
    };
    match keyspace {
        Ok(keyspace) => Ok((db, keyspace)),
        Err(error) => close_after(db, Err(error.into())),
    }
}

/// A store is made in a directory of its own: a slip of the finger is not to leave one among somebody's files.
fn not_among_others(directory: &Path) -> Result<()> {
    // What cannot be listed, opening tells of.
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(()) };
    let names: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    let is_of_a_store = |name: &OsString| STORE_FILES.iter().any(|of| name == of);
    let is_alone = |name: &OsString| name == "lost+found";
    if names.iter().any(is_of_a_store) || names.iter().all(is_alone) {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "{} has other files, and no store: a new one is made in a directory that is new or empty; choose it with --db",
        directory.display()
    )))
}

/// Closes the store; the command's own failure wins over one of closing, unless the store met corruption.
pub fn close_after<T>(db: Db, result: Result<T>) -> Result<T> {
    match (result, db.close()) {
        (Ok(value), Ok(())) => Ok(value),
        (Ok(_), Err(error)) => Err(error.into()),
        (Err(own), Err(error)) if error.is_corruption() && own.exit_code() != 3 => {
            Err(Failure::AtClose { closing: Box::new(error.into()), own: Box::new(own) })
        }
        (Err(own), _) => Err(own),
    }
}
