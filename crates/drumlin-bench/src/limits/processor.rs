//! Limits of the processor: a contended counter, checksums, decompression, sorting; and one of theory, of filters.
//!
//! Place: named in the table of `limits`.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use twox_hash::XxHash3_64;

use super::{Ground, rate};
use crate::engine::Result;
use crate::keys::mix;

const BLOCK_BYTES: usize = 4096;

/// Random bytes, the first half of them repeated if they are to `halve`.
fn block(halve: bool) -> Vec<u8> {
    let mut block: Vec<u8> = (0..BLOCK_BYTES as u64 / 8).flat_map(|n| mix(n).to_le_bytes()).collect();
    if halve {
        block[BLOCK_BYTES / 2..].fill(7);
    }
    block
}

pub(super) fn fetch_add(ground: &Ground, threads: usize) -> Result<f64> {
    let counter = AtomicU64::new(0);
    Ok(rate(threads, ground.time, |_| |_| _ = black_box(counter.fetch_add(1, Ordering::AcqRel))))
}

pub(super) fn checksum(ground: &Ground, threads: usize) -> Result<f64> {
    let block = block(false);
    let blocks = rate(threads, ground.time, |_| {
        |seed| _ = black_box(XxHash3_64::oneshot_with_seed(seed, black_box(&block)))
    });
    Ok(blocks * BLOCK_BYTES as f64)
}

pub(super) fn crc32c(ground: &Ground, threads: usize) -> Result<f64> {
    let block = block(false);
    let blocks = rate(threads, ground.time, |_| {
        |seed| _ = black_box(crc32c::crc32c_append(seed as u32, black_box(&block)))
    });
    Ok(blocks * BLOCK_BYTES as f64)
}

/// By theory alone: whoever tells keys from others with one wrong answer of so many needs log2 of that.
pub(super) fn filter_bits(_: &Ground, _: usize) -> Result<f64> {
    const RIGHT_FOR_ONE_WRONG: f64 = 100.0;
    Ok(RIGHT_FOR_ONE_WRONG.log2())
}

pub(super) fn checksum_small(ground: &Ground, threads: usize) -> Result<f64> {
    let block = block(false);
    Ok(rate(threads, ground.time, |_| {
        |seed| _ = black_box(XxHash3_64::oneshot_with_seed(seed, black_box(&block[..128])))
    }))
}

pub(super) fn decompress(ground: &Ground, threads: usize) -> Result<f64> {
    let packed = lz4_flex::block::compress(&block(true));
    let blocks = rate(threads, ground.time, |_| {
        let (packed, mut room) = (&packed, vec![0; BLOCK_BYTES]);
        move |_| {
            let bytes = lz4_flex::block::decompress_into(black_box(packed), &mut room);
            assert_eq!(bytes.ok(), Some(BLOCK_BYTES), "what was packed just now");
        }
    });
    Ok(blocks * BLOCK_BYTES as f64)
}

/// Keys a second.
pub(super) fn sort(ground: &Ground, _threads: usize) -> Result<f64> {
    const KEYS: u64 = 1 << 20;
    let (mut keys, mut room) = (Vec::new(), vec![0; KEYS as usize]);
    let (mut sorted, mut took) = (0, std::time::Duration::ZERO);
    while took < ground.time {
        keys.clear();
        keys.extend((0..KEYS).map(|n| mix(n ^ sorted)));
        let began = Instant::now();
        radix_sort(&mut keys, &mut room);
        took += began.elapsed();
        sorted += KEYS;
    }
    assert!(keys.is_sorted());
    Ok(sorted as f64 / took.as_secs_f64())
}

/// By bytes, the lowest first; `room` is as long as `keys`.
fn radix_sort(keys: &mut Vec<u64>, room: &mut Vec<u64>) {
    for byte in 0..8 {
        let digit = |key: u64| (key >> (byte * 8)) as usize & 255;
        let mut starts = [0; 257];
        keys.iter().for_each(|&key| starts[digit(key) + 1] += 1);
        for at in 1..257 {
            starts[at] += starts[at - 1];
        }
        for &key in keys.iter() {
            let start = &mut starts[digit(key)];
            room[*start] = key;
            *start += 1;
        }
        std::mem::swap(keys, room);
    }
}
