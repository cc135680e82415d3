//! Where the tour's store goes.
//!
//! Place: called first by `tour`.
//!
//! 1. The marker is written before the store, so that a tour broken off anywhere leaves a directory that
//!    the next tour recognises.
//! 2. What is in a directory is removed only if the marker is in it with its exact text, no process holds the store,
//!    and nothing is there but what a tour puts there: files of a store, the tour's keyspaces, and in them records of
//!    the table. Anything else is refused, and left as it is; so is a store that cannot be read to see it.
//! 3. Looking opens the store read-only: a refusal changes no byte.

use std::fs;
use std::io;
use std::path::Path;

use drumlin::{Db, Error, Options};

use crate::escape::readable;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::tour::data::Cities;
use crate::tour::narrator::Narrator;
use crate::tour::{CITIES, CRASH, POPULATION};

/// Name of the marker.
const MARKER: &str = "TOUR.txt";
/// Its exact text.
const MARKER_TEXT: &str = include_str!("marker.txt");

/// Makes `dir` an empty directory with the marker in it.
pub fn prepare(dir: &Path, cities: &Cities, say: &mut Narrator) -> Result<()> {
    match contents(dir)? {
        Contents::Nothing => {}
        Contents::Tour => {
            if let Some(what) = foreign(dir, cities)? {
                return Err(Failure::Refused(format!(
                    "the store of an earlier tour at {} is left as it is, since {what}: remove it yourself, or choose \
                     another directory with --db",
                    dir.display()
                )));
            }
            let at = dir.display();
            say.line(format_args!(
                "The store of an earlier tour at {at} is replaced: it holds nothing but the tour's own."
            ))?;
            clear(dir)?;
        }
        Contents::Foreign => {
            return Err(Failure::Refused(format!(
                "{} is not empty and was not made by a tour: it is left as it is; choose another directory with --db",
                dir.display()
            )));
        }
    }
    fs::create_dir_all(dir).map_err(|error| Failure::file("create", dir, error))?;
    let marker = dir.join(MARKER);
    fs::write(&marker, MARKER_TEXT).map_err(|error| Failure::file("write", &marker, error))
}

#[derive(Debug, PartialEq, Eq)]
enum Contents {
    Nothing,
    Tour,
    Foreign,
}

fn contents(dir: &Path) -> Result<Contents> {
    let mut entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Contents::Nothing),
        Err(error) => return Err(Failure::file("read", dir, error)),
    };
    if entries.next().is_none() {
        return Ok(Contents::Nothing);
    }
    match fs::read(dir.join(MARKER)) {
        Ok(text) if text == MARKER_TEXT.as_bytes() => Ok(Contents::Tour),
        _ => Ok(Contents::Foreign),
    }
}

/// What is in a tour's directory that no tour put there.
fn foreign(dir: &Path, cities: &Cities) -> Result<Option<String>> {
    if let Some(file) = foreign_file(dir)? {
        return Ok(Some(format!("{} is no file of the tour's", readable(file.as_encoded_bytes()))));
    }
    let options = Options { create_if_missing: false, read_only: true, ..Options::default() };
    let db = match Db::open(dir, options) {
        Ok(db) => db,
        // Broken off before there was one.
        Err(Error::NotFound { what: "store", .. }) => return Ok(None),
        Err(error @ Error::Locked { .. }) => return Err(error.into()),
        Err(error) => return Ok(Some(format!("it cannot be read to see what it holds ({error})"))),
    };
    for name in db.keyspaces() {
        if ![CITIES, POPULATION, CRASH].contains(&name.as_str()) {
            return Ok(Some(format!(
                "it has a keyspace that is not the tour's: {}",
                readable(name.as_bytes())
            )));
        }
        for record in db.open_keyspace(&name)?.iter()? {
            interrupt::check()?;
            let (key, value) = match record {
                Ok(record) => record,
                Err(error) => return Ok(Some(format!("it cannot be read to see what it holds ({error})"))),
            };
            let own = cities.find(&key).is_some_and(|row| match name.as_str() {
                // The tour itself changes it.
                POPULATION => value.iter().all(u8::is_ascii_digit),
                _ => *value == *cities.line(row),
            });
            if !own {
                let key = readable(&key);
                return Ok(Some(format!("it has a record that is not the tour's: {key} in keyspace {name}")));
            }
        }
    }
    Ok(None)
}

/// A name in the directory that is not one of the marker or a store.
fn foreign_file(dir: &Path) -> Result<Option<std::ffi::OsString>> {
    let failed = |error| Failure::file("read", dir, error);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let is_dir = entry.file_type().map_err(failed)?.is_dir();
        let own = name.to_str().is_some_and(|text| match is_dir {
            true => text == "log",
            false => {
                [MARKER, "LOCK", "STORE", "CURRENT"].contains(&text)
                    || text.starts_with("MANIFEST-")
                    || text.ends_with(".tbl")
                    || text.ends_with(".tmp")
            }
        });
        if !own {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Removes what is in the directory; the marker last, so that a broken removal stays recognisable.
fn clear(dir: &Path) -> Result<()> {
    let failed = |error| Failure::file("remove", dir, error);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name() == MARKER {
            continue;
        }
        let path = entry.path();
        let removed = if entry.file_type().map_err(failed)?.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.map_err(|error| Failure::file("remove", &path, error))?;
    }
    fs::remove_file(dir.join(MARKER)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin::{Keyspace, KeyspaceOptions};

    const TABLE: &[u8] = b"id\nA/a/1\tone\nB/b/2\ttwo\n";

    fn prepare_again(dir: &Path) -> Result<()> {
        prepare(dir, &Cities::from_table(TABLE.to_vec()), &mut Narrator::new(true))
    }

    /// Puts into a store as a tour's user might.
    fn put(dir: &Path, keyspace: &str, key: &str, value: &str) {
        let db = Db::open(dir, Options::default()).unwrap();
        let keyspace: Keyspace = db.keyspace(keyspace, KeyspaceOptions::default()).unwrap();
        keyspace.put(key, value).unwrap();
        db.close().unwrap();
    }

    #[test]
    fn a_tour_that_holds_nothing_but_its_own_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("deep").join("place");
        prepare_again(&place).unwrap();
        // Broken off before there was a store.
        prepare_again(&place).unwrap();
        put(&place, CITIES, "A/a/1", "A/a/1\tone");
        put(&place, CRASH, "B/b/2", "B/b/2\ttwo");
        put(&place, POPULATION, "A/a/1", "77");
        prepare_again(&place).unwrap();
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "the marker alone");
        assert_eq!(contents(&place).unwrap(), Contents::Tour);
    }

    #[test]
    fn a_tour_that_holds_something_of_the_users_is_left_as_it_is() {
        for (keyspace, key, value) in [
            ("default", "A/a/1", "A/a/1\tone"),
            (CITIES, "mine", "x"),
            (CITIES, "A/a/1", "A/a/1\tanother"),
            (POPULATION, "mine", "7"),
            (POPULATION, "B/b/2", "many"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            prepare_again(dir.path()).unwrap();
            put(dir.path(), CITIES, "A/a/1", "A/a/1\tone");
            put(dir.path(), keyspace, key, value);
            let Err(Failure::Refused(why)) = prepare_again(dir.path()) else { panic!("{keyspace} {key}") };
            assert!(why.contains(keyspace), "{why}");
            let db = Db::open(dir.path(), Options::default()).unwrap();
            let found = db.open_keyspace(keyspace).unwrap().get(key).unwrap();
            assert_eq!(found.as_deref(), Some(value.as_bytes()));
        }
        for name in ["letter", "notes.txt", "backup/"] {
            let dir = tempfile::tempdir().unwrap();
            prepare_again(dir.path()).unwrap();
            let path = dir.path().join(name);
            if name.ends_with('/') {
                fs::create_dir(&path).unwrap()
            } else {
                fs::write(&path, "x").unwrap()
            }
            assert!(matches!(prepare_again(dir.path()), Err(Failure::Refused(_))));
            assert!(path.exists());
        }
    }

    #[test]
    fn a_tour_that_cannot_be_read_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        prepare_again(dir.path()).unwrap();
        put(dir.path(), CITIES, "A/a/1", "A/a/1\tone");
        fs::write(dir.path().join("CURRENT"), "rot").unwrap();
        assert!(matches!(prepare_again(dir.path()), Err(Failure::Refused(_))));
        assert!(dir.path().join("STORE").exists());
    }

    #[test]
    fn anything_else_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("letter"), "x").unwrap();
        for marker in [None, Some("This store was made by `drumlin tour`.")] {
            if let Some(text) = marker {
                fs::write(dir.path().join(MARKER), text).unwrap();
            }
            assert!(matches!(prepare_again(dir.path()), Err(Failure::Refused(_))));
            assert!(dir.path().join("letter").exists());
        }
        let file = dir.path().join("letter");
        assert!(matches!(prepare_again(&file), Err(Failure::File { .. })));
    }
}
