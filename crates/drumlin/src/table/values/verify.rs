//! Reading every byte of a value file.
//!
//! Place: behind `Db::verify`, beside the check of tables, which compares what they refer to with their descriptions.
//!
//! What is checked: the header; that records tile the file without a gap; the checksum of each; the content hash, which the manifest
//! has, or the file's name. Each place is named once; the hash is judged only if nothing else is wrong.
//!
//! Memory: one record. Tests: `table/tests/values.rs`, tests/values.rs.

use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use super::{HEADER_BYTES, MAGIC, RECORD_HEAD_BYTES};
use crate::env::{FileSystem, ReadMode};
use crate::error::{Corruption, Error, Result};
use crate::table::frame::{self, Origin};
use crate::table::verify::TableCheck;

/// Checks the value file at `path`, whose content hash begins with `hash`, as its name says; it has `file_bytes`, if the manifest tells.
pub fn verify_values(
    fs: &dyn FileSystem,
    path: &Path,
    file_bytes: Option<u64>,
    hash: u64,
    on_bytes: &mut dyn FnMut(u64),
) -> TableCheck {
    let there = || fs.open(path, ReadMode::Buffered).map_or(0, |file| file.bytes());
    TableCheck::run(fs, path, file_bytes.unwrap_or_else(there), on_bytes, |problems, on_bytes| {
        check(fs, path, file_bytes, hash, problems, on_bytes)
    })
}

fn check(
    fs: &dyn FileSystem,
    path: &Path,
    file_bytes: Option<u64>,
    hash: u64,
    problems: &mut Vec<Corruption>,
    on_bytes: &mut dyn FnMut(u64),
) -> Result<()> {
    let file = match fs.open(path, ReadMode::Buffered) {
        Err(error) if error.is_missing_file() => {
            let what = "the manifest names this file of values, but it is missing";
            return Err(Error::corruption(path, None, what));
        }
        opened => opened?,
    };
    let end = file.bytes();
    if let Some(wanted) = file_bytes.filter(|wanted| *wanted != end) {
        let what = format!("the file has {end} bytes, the manifest says {wanted}");
        return Err(Error::corruption(path, None, what));
    }
    let corrupt = |offset, what: String| Error::corruption(path, offset, what);
    let mut found = Xxh3::new();
    let mut header = [0; HEADER_BYTES as usize];
    if end < HEADER_BYTES {
        return Err(corrupt(0, format!("{end} bytes are too short for a file of values")));
    }
    file.read_exact_at(&mut header, 0)?;
    found.update(&header);
    on_bytes(HEADER_BYTES);
    let (magic, seed) = header.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(corrupt(0, "the file does not begin like one of values".into()));
    }
    let seed = seed.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let mut at = HEADER_BYTES;
    let mut stored = Vec::new();
    while at < end {
        let mut head = [0; RECORD_HEAD_BYTES as usize];
        if end - at < RECORD_HEAD_BYTES {
            return Err(corrupt(at, "a record is cut off".into()));
        }
        file.read_exact_at(&mut head, at)?;
        let (offset, bytes) = (at + RECORD_HEAD_BYTES, u64::from(u32::from_le_bytes(head)));
        if bytes > end - offset {
            return Err(corrupt(at, format!("a record claims {bytes} bytes, but the file ends before")));
        }
        stored.clear();
        stored.resize(bytes as usize, 0);
        file.read_exact_at(&mut stored, offset)?;
        found.update(&head);
        found.update(&stored);
        match frame::check(&stored, Origin { path, seed, offset }) {
            Ok(_) => {}
            Err(Error::Corruption(problem)) => problems.push(problem),
            Err(error) => return Err(error),
        }
        at = offset + bytes;
        on_bytes(RECORD_HEAD_BYTES + bytes);
    }
    let found = (found.digest128() >> 64) as u64;
    if problems.is_empty() && found != hash {
        return Err(corrupt(0, format!("the file's content hash begins with {found:016x}, not {hash:016x}")));
    }
    Ok(())
}
