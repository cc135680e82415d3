//! Where the tour's store goes.
//!
//! Place: called first by `tour`.
//!
//! 1. The marker is written before the store, so that a tour broken off anywhere leaves a directory that
//!    the next tour recognises.
//! 2. What is in a directory is removed only if the marker is in it with its exact text, and no process
//!    holds the store. Anything else is refused, and left as it is.

use std::fs;
use std::io;
use std::path::Path;

use drumlin::{Db, Error, Options};

use crate::failure::{Failure, Result};
use crate::tour::narrator::Narrator;

/// Name of the marker.
const MARKER: &str = "TOUR.txt";
/// Its exact text.
const MARKER_TEXT: &str = include_str!("marker.txt");

/// Makes `dir` an empty directory with the marker in it.
pub fn prepare(dir: &Path, say: &mut Narrator) -> Result<()> {
    match contents(dir)? {
        Contents::Nothing => {}
        Contents::Tour => {
            refuse_if_held(dir)?;
            say.line(format_args!("The store of an earlier tour at {} is replaced.", dir.display()))?;
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

/// A store in use must not be pulled away from under its user.
fn refuse_if_held(dir: &Path) -> Result<()> {
    match Db::open(dir, Options { create_if_missing: false, ..Options::default() }) {
        Ok(db) => Ok(db.close()?),
        Err(error @ Error::Locked { .. }) => Err(error.into()),
        // Rotten, half made or too new: it is a tour's all the same, and about to go.
        Err(_) => Ok(()),
    }
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

    fn silent() -> Narrator {
        Narrator::new(true)
    }

    #[test]
    fn only_a_tours_directory_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("deep").join("place");
        prepare(&place, &mut silent()).unwrap();
        fs::write(place.join("old"), "x").unwrap();
        fs::create_dir(place.join("log")).unwrap();
        prepare(&place, &mut silent()).unwrap();
        assert!(!place.join("old").exists() && !place.join("log").exists());
        assert_eq!(contents(&place).unwrap(), Contents::Tour);
    }

    #[test]
    fn anything_else_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("letter"), "x").unwrap();
        for marker in [None, Some("This store was made by `drumlin tour`.")] {
            if let Some(text) = marker {
                fs::write(dir.path().join(MARKER), text).unwrap();
            }
            assert!(matches!(prepare(dir.path(), &mut silent()), Err(Failure::Refused(_))));
            assert!(dir.path().join("letter").exists());
        }
        let file = dir.path().join("letter");
        assert!(matches!(prepare(&file, &mut silent()), Err(Failure::File { .. })));
    }
}
