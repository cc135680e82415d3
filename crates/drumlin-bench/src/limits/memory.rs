//! Limits of memory: misses, bandwidth, and the log's own path: a counter and a copy.
//!
//! Place: named in the table of `limits`.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use super::words::Words;
use super::{Ground, Scrap, rate};
use crate::engine::Result;
use crate::keys::mix;
use crate::permutation::Permutation;

/// Words of a cache line.
const LINE_WORDS: usize = 8;
/// Words of the record that goes to the log.
const RECORD_WORDS: usize = 16;
/// Words of a block of a table.
const BLOCK_WORDS: usize = 512;
/// Bytes of the mapped file, which is written round and round.
const LOG_BYTES: usize = 512 << 20;

pub(super) fn chase(ground: &Ground, threads: usize) -> Result<f64> {
    chase_on(ground, threads, false)
}

pub(super) fn chase_huge(ground: &Ground, threads: usize) -> Result<f64> {
    chase_on(ground, threads, true)
}

/// Nanoseconds of a load whose address is the last load's value, while as many threads do the same.
fn chase_on(ground: &Ground, threads: usize, huge: bool) -> Result<f64> {
    let words = Words::anonymous(ground.far_bytes, huge)?;
    let (words, lines) = (words.all(), words.all().len() / LINE_WORDS);
    // One ring through all lines, in an order that nobody can guess.
    let order = Permutation::new(lines as u64, 1);
    for at in 0..lines as u64 {
        let (here, next) = (order.at(at), order.at((at + 1) % lines as u64));
        words[here as usize * LINE_WORDS].store(next, Ordering::Relaxed);
    }
    let loads = rate(threads, ground.time, |thread| {
        // Each begins elsewhere on the ring.
        let mut at = order.at((lines / threads * thread) as u64);
        move |_| at = black_box(words[at as usize * LINE_WORDS].load(Ordering::Relaxed))
    });
    Ok(threads as f64 * 1e9 / loads)
}

pub(super) fn update_line(ground: &Ground, threads: usize) -> Result<f64> {
    update_line_on(ground, threads, false)
}

pub(super) fn update_line_huge(ground: &Ground, threads: usize) -> Result<f64> {
    update_line_on(ground, threads, true)
}

fn update_line_on(ground: &Ground, threads: usize, huge: bool) -> Result<f64> {
    let words = Words::anonymous(ground.far_bytes, huge)?;
    let (words, lines) = (words.all(), words.all().len() / LINE_WORDS);
    Ok(rate(threads, ground.time, |thread| {
        let seed = mix(thread as u64);
        move |number| {
            let line = mix(seed ^ number) as usize % lines * LINE_WORDS;
            for word in &words[line..line + LINE_WORDS] {
                word.store(number, Ordering::Relaxed);
            }
        }
    }))
}

/// Bytes a second.
pub(super) fn read(ground: &Ground, threads: usize) -> Result<f64> {
    const PIECE_WORDS: usize = 8192;
    let words = Words::anonymous(ground.far_bytes, true)?;
    let words = words.all();
    let pieces = rate(threads, ground.time, |thread| {
        let mut at = words.len() / threads * thread;
        move |_| {
            if at + PIECE_WORDS > words.len() {
                at = 0;
            }
            let sum =
                words[at..at + PIECE_WORDS].iter().fold(0, |sum: u64, w| sum ^ w.load(Ordering::Relaxed));
            black_box(sum);
            at += PIECE_WORDS;
        }
    });
    Ok(pieces * (PIECE_WORDS * 8) as f64)
}

/// As `device::read_cached`, without a call of the system.
pub(super) fn read_mapped(ground: &Ground, threads: usize) -> Result<f64> {
    let scrap = Scrap::new(ground, "mapped");
    let words = Words::file(&scrap.0, ground.file_bytes.max(BLOCK_WORDS * 8))?;
    let words = words.all();
    for (number, word) in words.iter().enumerate() {
        word.store(number as u64, Ordering::Relaxed);
    }
    let blocks = words.len() / BLOCK_WORDS;
    Ok(rate(threads, ground.time, |thread| {
        let (seed, mut room) = (mix(thread as u64), [0; BLOCK_WORDS]);
        move |number| {
            let at = mix(seed ^ number) as usize % blocks * BLOCK_WORDS;
            for (to, from) in room.iter_mut().zip(&words[at..at + BLOCK_WORDS]) {
                *to = from.load(Ordering::Relaxed);
            }
            black_box(&room);
        }
    }))
}

pub(super) fn log_copy(ground: &Ground, threads: usize) -> Result<f64> {
    let scrap = Scrap::new(ground, "log");
    let log = Words::file(&scrap.0, LOG_BYTES)?;
    let (log, tail) = (log.all(), AtomicU64::new(0));
    Ok(rate(threads, ground.time, |_| {
        let tail = &tail;
        move |number| append(log, tail, number)
    }))
}

/// Takes the next place and fills it.
#[inline]
fn append(log: &[AtomicU64], tail: &AtomicU64, value: u64) {
    let at = tail.fetch_add(RECORD_WORDS as u64, Ordering::AcqRel) as usize % log.len();
    for word in &log[at..at + RECORD_WORDS] {
        word.store(value, Ordering::Relaxed);
    }
}

/// The least that a put does that is logged and found again in a table of memory: the line that it goes to has its lock.
pub(super) fn log_copy_update(ground: &Ground, threads: usize) -> Result<f64> {
    let scrap = Scrap::new(ground, "log");
    let (log, table) = (Words::file(&scrap.0, LOG_BYTES)?, Words::anonymous(ground.far_bytes, true)?);
    let (log, table, tail) = (log.all(), table.all(), AtomicU64::new(0));
    let lines = table.len() / LINE_WORDS;
    // The memory was touched with other words.
    table.iter().step_by(LINE_WORDS).for_each(|lock| lock.store(0, Ordering::Relaxed));
    Ok(rate(threads, ground.time, |thread| {
        let (tail, seed) = (&tail, mix(thread as u64));
        move |number| {
            let line = mix(seed ^ number) as usize % lines;
            let [lock, words @ ..] = &table[line * LINE_WORDS..(line + 1) * LINE_WORDS] else { return };
            while lock.swap(1, Ordering::Acquire) != 0 {
                std::hint::spin_loop();
            }
            append(log, tail, number);
            words.iter().for_each(|word| word.store(number, Ordering::Relaxed));
            lock.store(0, Ordering::Release);
        }
    }))
}
