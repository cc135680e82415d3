//! Limits of the device and the system's page cache.
//!
//! Place: named in the table of `limits`. Files are reached as the store reaches them, through `drumlin::env`.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use drumlin::env::{FileSystem, ReadMode, ReadableFile, RealFs};

use super::{Ground, Scrap, rate_of};
use crate::engine::Result;
use crate::keys::mix;

const BLOCK_BYTES: usize = 4096;
/// Bytes of one append.
const APPEND_BYTES: usize = 1 << 20;
/// Bytes of a log's record, as in `memory`.
const LOG_RECORD_BYTES: usize = 128;

/// A file of so many random bytes, synced.
fn file(ground: &Ground, scrap: &Scrap) -> Result<()> {
    let mut file = RealFs::new().create(&scrap.0)?;
    let mut piece: Vec<u8> = (0..APPEND_BYTES as u64 / 8).flat_map(|n| mix(n).to_le_bytes()).collect();
    for number in 0..(ground.file_bytes / APPEND_BYTES).max(1) {
        piece[..8].copy_from_slice(&number.to_le_bytes());
        file.append(&piece)?;
    }
    Ok(file.sync()?)
}

fn read(ground: &Ground, threads: usize, mode: ReadMode) -> Result<f64> {
    let scrap = Scrap::new(ground, "read");
    file(ground, &scrap)?;
    let file: Arc<dyn ReadableFile> = RealFs::new().open(&scrap.0, mode)?;
    let blocks = file.bytes() / BLOCK_BYTES as u64;
    rate_of(threads, ground.time, |thread| {
        let (file, seed, mut room) = (file.clone(), mix(thread as u64), vec![0; BLOCK_BYTES]);
        move |number| Ok(file.read_exact_at(&mut room, mix(seed ^ number) % blocks * BLOCK_BYTES as u64)?)
    })
}

pub(super) fn read_cached(ground: &Ground, threads: usize) -> Result<f64> {
    read(ground, threads, ReadMode::Buffered)
}

pub(super) fn read_direct(ground: &Ground, threads: usize) -> Result<f64> {
    read(ground, threads, ReadMode::Direct)
}

/// The log that others have: a call of the system for each record, which then lies in the page cache.
pub(super) fn log_call(ground: &Ground, threads: usize) -> Result<f64> {
    let scrap = Scrap::new(ground, "log-call");
    let file = OpenOptions::new().create(true).append(true).open(&scrap.0)?;
    rate_of(threads, ground.time, |_| {
        let mut file = &file;
        move |number| Ok(file.write_all(&[number as u8; LOG_RECORD_BYTES])?)
    })
}

/// Bytes a second.
pub(super) fn write(ground: &Ground, _threads: usize) -> Result<f64> {
    let scrap = Scrap::new(ground, "write");
    let began = Instant::now();
    file(ground, &scrap)?;
    Ok(ground.file_bytes as f64 / began.elapsed().as_secs_f64())
}

/// Syncs a second.
pub(super) fn sync(ground: &Ground, _threads: usize) -> Result<f64> {
    let scrap = Scrap::new(ground, "sync");
    let mut file = RealFs::new().create(&scrap.0)?;
    let (mut syncs, began) = (0, Instant::now());
    while syncs == 0 || began.elapsed() < ground.time {
        file.append(&[7; BLOCK_BYTES])?;
        file.sync()?;
        syncs += 1;
    }
    Ok(f64::from(syncs) / began.elapsed().as_secs_f64())
}
