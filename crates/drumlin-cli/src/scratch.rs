//! Scratch: a directory for stores that a command makes for itself.
//!
//! Place: used by the commands that measure.
//!
//! 1. It is removed when it is dropped, and after Ctrl-C: what is owed to a store in it may take longer than that waits.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::failure::{Failure, Result};
use crate::interrupt;

/// Makes one in `base`, or where the system keeps such.
pub fn directory(base: Option<&Path>, prefix: &str) -> Result<TempDir> {
    let base = base.map_or_else(std::env::temp_dir, Into::into);
    let made = tempfile::Builder::new().prefix(prefix).tempdir_in(&base);
    let made = made.map_err(|source| Failure::file("make a directory in", &base, source))?;
    let path = made.path().to_path_buf();
    interrupt::on_ask(move || drop(fs::remove_dir_all(&path)));
    Ok(made)
}
