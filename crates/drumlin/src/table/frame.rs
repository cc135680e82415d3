//! Frames: blocks as they lie in a file, perhaps compressed, each with a checksum of its own.
//!
//! Place: the writer encodes every block of a table as a frame; `resident`, `cursor` and `verify`
//! decode them.
//!
//! Invariants:
//! 1. The checksum depends on the stored bytes, the compression, the frame's offset and the table's
//!    seed: a frame that lies elsewhere, or in another table, is found wrong.
//! 2. Nothing is decompressed, and no length believed, before the checksum was compared; nor, even then, a length that
//!    so many stored bytes cannot have: memory is taken for what can be there.
//!
//! Bytes:
//! ```text
//! body | compression u8 | checksum u64
//! body, compression 0:  the block itself
//!       compression 1:  length of the block u32 | LZ4 block
//!       compression 2:  length of the block u32 | Zstandard frame
//! checksum = XXH3-64(body, seed XXH3-64(table seed u64 | frame offset u64 | compression u8))
//! ```
//! Tests: below and `table/tests/`.

use std::path::Path;

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use twox_hash::XxHash3_64;

use crate::cache::SharedBlock;
use crate::error::{Error, Result};
use crate::options::Compression;

/// Bytes behind the body.
pub(super) const TRAILER_BYTES: usize = 9;
/// Longest block that is compressed, in bytes: the largest value and its key fit with room to spare. One that is not is as long as the
/// bytes that are stored of it.
pub(super) const BLOCK_BYTES_MAX: usize = 1 << 30;
/// Blocks beyond this are compressed only if their first part shrinks.
const PROBE_BYTES: usize = 64 << 10;
/// If more blocks in a row than these did not shrink, compression is tried for one of 2, 4, ... of the next only,
const FAILURES_IN_A_ROW: u32 = 4;
/// and for one of so many at least: what then does compress is stored as it is for 15 blocks at most.
const TRIED_OF_MAX: u32 = 16;
/// Scratch space beyond this is given back after use.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

const RAW: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;

/// The checksum of a frame's body.
fn checksum(body: &[u8], compression: u8, seed: u64, offset: u64) -> u64 {
    let mut place = [0; 17];
    place[..8].copy_from_slice(&seed.to_le_bytes());
    place[8..16].copy_from_slice(&offset.to_le_bytes());
    place[16] = compression;
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(&place), body)
}

/// Turns blocks into frames, keeping its scratch space.
pub(super) struct FrameEncoder {
    compression: Compression,
    table: CompressTable,
    scratch: Vec<u8>,
    /// Blocks in a row that were tried and did not shrink.
    failures: u32,
    /// Blocks that are not to be tried.
    pass: u32,
}

/// A frame about to be written.
pub(super) struct Frame<'a> {
    pub(super) body: &'a [u8],
    pub(super) trailer: [u8; TRAILER_BYTES],
}

impl Frame<'_> {
    pub(super) fn bytes(&self) -> usize {
        self.body.len() + TRAILER_BYTES
    }
}

impl FrameEncoder {
    pub(super) fn new(compression: Compression) -> FrameEncoder {
        FrameEncoder {
            compression,
            table: CompressTable::default(),
            scratch: Vec::new(),
            failures: 0,
            pass: 0,
        }
    }

    /// The frame of `block` at `offset`, compressed if that saves at least an eighth; where the blocks before it did not
    /// shrink, not every one is tried.
    pub(super) fn encode<'a>(&'a mut self, block: &'a [u8], seed: u64, offset: u64) -> Result<Frame<'a>> {
        self.scratch.truncate(SCRATCH_BYTES_MAX);
        self.scratch.shrink_to(SCRATCH_BYTES_MAX);
        let compression = self.compress(block)?;
        let body = if compression == RAW { block } else { &self.scratch };
        Ok(frame(body, compression, seed, offset))
    }

    /// What comes now is of another kind than what did not shrink.
    pub(super) fn begin_other(&mut self) {
        (self.failures, self.pass) = (0, 0);
    }

    /// The frame of `block` as it is.
    pub(super) fn encode_raw<'a>(block: &'a [u8], seed: u64, offset: u64) -> Frame<'a> {
        frame(block, RAW, seed, offset)
    }

    /// Fills the scratch space and says with what, or `RAW` if it is not worth it.
    fn compress(&mut self, block: &[u8]) -> Result<u8> {
        if self.compression == Compression::None || block.len() > BLOCK_BYTES_MAX {
            return Ok(RAW);
        }
        if let Some(fewer) = self.pass.checked_sub(1) {
            self.pass = fewer;
            return Ok(RAW);
        }
        let is_large = block.len() > 4 * PROBE_BYTES;
        let shrinks = (!is_large || self.compress_into_scratch(&block[..PROBE_BYTES])?)
            && self.compress_into_scratch(block)?;
        if !shrinks {
            self.failures += 1;
            let tried_of = 1 << self.failures.saturating_sub(FAILURES_IN_A_ROW).min(TRIED_OF_MAX.ilog2());
            self.pass = tried_of - 1;
            return Ok(RAW);
        }
        self.failures = 0;
        Ok(if self.compression == Compression::Zstd { ZSTD } else { LZ4 })
    }

    /// True if it shrank enough.
    fn compress_into_scratch(&mut self, block: &[u8]) -> Result<bool> {
        let most = get_maximum_output_size(block.len()) + 4;
        if self.scratch.len() < most {
            self.scratch.resize(most, 0);
        }
        let (length, output) = self.scratch.split_at_mut(4);
        length.copy_from_slice(&(block.len() as u32).to_le_bytes());
        let written = match self.compression {
            Compression::None => return Ok(false),
            Compression::Lz4 => compress_into_with_table(block, output, &mut self.table)
                .map_err(|error| Error::invalid(format!("LZ4 failed on {} bytes: {error}", block.len())))?,
            Compression::Zstd => compress_zstd(block, output)?,
        };
        let worthwhile = written + 4 <= block.len() - block.len() / 8;
        if worthwhile {
            self.scratch.truncate(written + 4);
        }
        Ok(worthwhile)
    }
}

fn frame(body: &[u8], compression: u8, seed: u64, offset: u64) -> Frame<'_> {
    let mut trailer = [compression; TRAILER_BYTES];
    trailer[1..].copy_from_slice(&checksum(body, compression, seed, offset).to_le_bytes());
    Frame { body, trailer }
}

#[cfg(feature = "zstd")]
fn compress_zstd(block: &[u8], output: &mut [u8]) -> Result<usize> {
    zstd::bulk::compress_to_buffer(block, output, zstd::DEFAULT_COMPRESSION_LEVEL).or(Ok(output.len()))
}

#[cfg(not(feature = "zstd"))]
fn compress_zstd(_block: &[u8], _output: &mut [u8]) -> Result<usize> {
    Err(Error::invalid("compression is Zstd, but this build lacks the feature `zstd`"))
}

/// True if the Zstandard frame itself says that it holds so many bytes; the writer's always do.
#[cfg(feature = "zstd")]
fn zstd_agrees(frame: &[u8], length: usize) -> bool {
    matches!(zstd::zstd_safe::get_frame_content_size(frame), Ok(Some(bytes)) if bytes == length as u64)
}

#[cfg(not(feature = "zstd"))]
fn zstd_agrees(_frame: &[u8], _length: usize) -> bool {
    true
}

/// Where a frame came from, for checking and for error messages.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) path: &'a Path,
    pub(super) seed: u64,
    pub(super) offset: u64,
}

impl Origin<'_> {
    /// Wrong bytes in this frame.
    pub(super) fn corruption(&self, what: impl Into<String>) -> Error {
        Error::corruption(self.path, self.offset, what)
    }
}

/// A frame whose checksum is right.
pub(super) struct Checked<'a> {
    body: &'a [u8],
    compression: u8,
    length: usize,
    origin: Origin<'a>,
}

/// Compares the checksum of a whole frame.
pub(super) fn check<'a>(stored: &'a [u8], origin: Origin<'a>) -> Result<Checked<'a>> {
    let Some((body, trailer)) = stored.split_last_chunk::<TRAILER_BYTES>() else {
        return Err(origin.corruption("a block is shorter than its trailer"));
    };
    check_parts(body, trailer, origin)
}

/// As [`check`], with the trailer apart.
pub(super) fn check_parts<'a>(
    body: &'a [u8],
    trailer: &[u8; TRAILER_BYTES],
    origin: Origin<'a>,
) -> Result<Checked<'a>> {
    let &[compression, ref stored @ ..] = trailer;
    let (stored, found) =
        (u64::from_le_bytes(*stored), checksum(body, compression, origin.seed, origin.offset));
    if stored != found {
        let what = format!("a block's checksum is {found:016x}, but {stored:016x} is stored with it");
        return Err(origin.corruption(what));
    }
    let length = match compression {
        RAW => body.len(),
        LZ4 | ZSTD => {
            let head =
                body.first_chunk::<4>().ok_or_else(|| origin.corruption("a block lacks its length"))?;
            u32::from_le_bytes(*head) as usize
        }
        _ => {
            let why = format!("the block at byte {} has unknown compression {compression}", origin.offset);
            return Err(Error::Unsupported { path: origin.path.to_path_buf(), why });
        }
    };
    // What the stored bytes can grow to: LZ4 adds 255 bytes for one, Zstandard 128 KiB for the four of a block.
    let is_possible = match compression {
        RAW => true,
        _ if length > BLOCK_BYTES_MAX => false,
        LZ4 => length / 256 <= body.len(),
        _ => length / (32 << 10) <= body.len() && zstd_agrees(&body[4..], length),
    };
    if !is_possible {
        return Err(origin.corruption(format!("a block claims {length} bytes")));
    }
    Ok(Checked { body, compression, length, origin })
}

/// The body of a whole frame.
pub(super) fn raw_body(stored: &[u8]) -> &[u8] {
    &stored[..stored.len() - TRAILER_BYTES]
}

impl Checked<'_> {
    /// The compression in a word.
    pub(super) fn compression(&self) -> &'static str {
        match self.compression {
            RAW => "none",
            LZ4 => "lz4",
            _ => "zstd",
        }
    }

    /// Bytes of the block.
    pub(super) fn bytes(&self) -> usize {
        self.length
    }

    /// True if the body is the block itself.
    pub(super) fn is_raw(&self) -> bool {
        self.compression == RAW
    }

    /// The block in memory of its own.
    pub(super) fn to_shared(&self) -> Result<SharedBlock> {
        if self.compression == RAW {
            return Ok(SharedBlock::copy_of(self.body));
        }
        let mut shared = SharedBlock::zeroed(self.length);
        let output = shared.get_mut().expect("nobody else has it yet");
        self.decompress(output)?;
        Ok(shared)
    }

    /// The block in `out`, whose memory is used again.
    pub(super) fn to_vec(&self, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        if self.compression == RAW {
            out.extend_from_slice(self.body);
            return Ok(());
        }
        out.resize(self.length, 0);
        self.decompress(out)
    }

    fn decompress(&self, output: &mut [u8]) -> Result<()> {
        let input = &self.body[4..];
        let written = match self.compression {
            LZ4 => lz4_flex::block::decompress_into(input, output).ok(),
            _ => self.decompress_zstd(input, output)?,
        };
        if written == Some(output.len()) {
            Ok(())
        } else {
            Err(self.origin.corruption(format!("a block does not decompress to {} bytes", output.len())))
        }
    }

    #[cfg(feature = "zstd")]
    fn decompress_zstd(&self, input: &[u8], output: &mut [u8]) -> Result<Option<usize>> {
        Ok(zstd::bulk::decompress_to_buffer(input, output).ok())
    }

    #[cfg(not(feature = "zstd"))]
    fn decompress_zstd(&self, _input: &[u8], _output: &mut [u8]) -> Result<Option<usize>> {
        let why = "its blocks are compressed with Zstandard, and this build lacks the feature `zstd`".into();
        Err(Error::Unsupported { path: self.origin.path.to_path_buf(), why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(encoder: &mut FrameEncoder, block: &[u8], offset: u64) -> Vec<u8> {
        let frame = encoder.encode(block, 77, offset).expect("encodes");
        [frame.body, &frame.trailer].concat()
    }

    fn origin(offset: u64) -> Origin<'static> {
        Origin { path: Path::new("frame"), seed: 77, offset }
    }

    fn blocks() -> Vec<Vec<u8>> {
        let mut word = 1u64;
        let noise = |bytes: usize, word: &mut u64| -> Vec<u8> {
            let mut next = || {
                *word = word.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (*word >> 56) as u8
            };
            (0..bytes).map(|_| next()).collect()
        };
        let mut half = noise(300_000, &mut word);
        half.extend(vec![3; 300_000]);
        vec![
            vec![],
            vec![1],
            vec![7; 4096],
            noise(4096, &mut word),
            vec![9; 400_000],
            half,
            noise(300_000, &mut word),
        ]
    }

    #[test]
    fn every_block_comes_back_under_every_compression() {
        let mut compressions = vec![Compression::None, Compression::Lz4];
        if cfg!(feature = "zstd") {
            compressions.push(Compression::Zstd);
        }
        for compression in compressions {
            let mut encoder = FrameEncoder::new(compression);
            for block in blocks() {
                let bytes = stored(&mut encoder, &block, 5);
                assert!(bytes.len() <= block.len() + TRAILER_BYTES, "never grows");
                let checked = check(&bytes, origin(5)).expect("right");
                assert_eq!(*checked.to_shared().expect("right"), *block);
                let mut out = vec![1; 10];
                checked.to_vec(&mut out).expect("right");
                assert_eq!(out, block);
            }
            let small = stored(&mut encoder, &[7; 4096], 0).len();
            assert_eq!(small < 200, compression != Compression::None, "{compression:?} gave {small} bytes");
        }
    }

    #[test]
    fn where_nothing_shrinks_few_blocks_are_tried_and_what_shrinks_is_found_again() {
        let noise = &blocks()[3];
        let mut encoder = FrameEncoder::new(Compression::Lz4);
        let mut shrinks =
            |block: &[u8]| encoder.encode(block, 77, 0).expect("encodes").body.len() < block.len();
        for most in [0, 15] {
            let missed = (0..100).take_while(|_| !shrinks(&[7; 4096])).count();
            assert!(missed <= most, "{missed} blocks were stored as they are");
            assert!((0..200).all(|_| shrinks(&[7; 4096])), "from then on all are tried");
            // Now and then one that does not shrink changes nothing.
            for _ in 0..50 {
                assert!(!shrinks(noise) && !shrinks(noise) && shrinks(&[7; 4096]));
            }
            assert_eq!((0..1000).filter(|_| shrinks(noise)).count(), 0);
        }
        let tries = |encoder: &mut FrameEncoder| {
            encoder.encode(noise, 77, 0).expect("encodes");
            encoder.pass + 1 == TRIED_OF_MAX
        };
        let tried = (0..1600).filter(|_| tries(&mut encoder)).count();
        assert_eq!(tried, 100, "of 1600");
    }

    #[test]
    fn every_flipped_bit_and_every_other_place_is_found() {
        let mut encoder = FrameEncoder::new(Compression::Lz4);
        for block in [vec![7; 200], b"some bytes that do not repeat".to_vec()] {
            let good = stored(&mut encoder, &block, 1 << 20);
            for bit in 0..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(check(&bad, origin(1 << 20)).is_err_and(|e| e.is_corruption()), "bit {bit}");
            }
            for length in 0..good.len() {
                assert!(check(&good[..length], origin(1 << 20)).is_err(), "cut to {length}");
            }
            assert!(check(&good, origin((1 << 20) + 1)).is_err(), "another offset");
            assert!(check(&good, Origin { seed: 78, ..origin(1 << 20) }).is_err(), "another table");
        }
    }

    #[test]
    fn a_compression_of_the_future_is_unsupported_not_corrupt() {
        let future = frame(b"body", 9, 77, 0);
        let bytes = [future.body, &future.trailer].concat();
        assert!(matches!(check(&bytes, origin(0)), Err(Error::Unsupported { .. })));
    }

    #[test]
    fn a_wrong_length_under_a_right_checksum_is_corruption() {
        for (length, body) in [(u32::MAX, 20), (1000, 20), (0, 20), (19, 1)] {
            let mut body = vec![0x10; body];
            body.splice(0..0, u32::to_le_bytes(length));
            let bad = frame(&body, LZ4, 77, 0);
            let bytes = [bad.body, &bad.trailer].concat();
            let result = check(&bytes, origin(0)).and_then(|checked| checked.to_shared());
            assert!(result.is_err_and(|e| e.is_corruption()), "{length}");
        }
    }

    #[test]
    fn whatever_is_written_is_read_however_long_it_is() {
        let block = vec![0; BLOCK_BYTES_MAX + 1];
        let mut encoder = FrameEncoder::new(Compression::Lz4);
        let frame = encoder.encode(&block, 77, 0).expect("encodes");
        let read = check_parts(frame.body, &frame.trailer, origin(0)).expect("it is what was written");
        assert_eq!(read.length, block.len());
    }

    /// A right checksum is no proof of good will: 30 bytes that claim a gibibyte cost a gibibyte.
    #[test]
    fn a_zstandard_block_is_not_believed_beyond_what_its_frame_holds() {
        for (length, body) in [(BLOCK_BYTES_MAX as u32, 20), (u32::MAX, 200_000)] {
            let mut body = vec![0x10; body];
            body.splice(0..0, u32::to_le_bytes(length));
            let bad = frame(&body, ZSTD, 77, 0);
            assert!(check(&[bad.body, &bad.trailer].concat(), origin(0)).is_err_and(|e| e.is_corruption()));
        }
        if cfg!(feature = "zstd") {
            let mut encoder = FrameEncoder::new(Compression::Zstd);
            let good = stored(&mut encoder, &[7; 300_000], 0);
            let mut body = good[..good.len() - TRAILER_BYTES].to_vec();
            assert!(check(&good, origin(0)).is_ok() && body.len() < 300);
            body[..4].copy_from_slice(&300_001u32.to_le_bytes());
            let bad = frame(&body, ZSTD, 77, 0);
            let bytes = [bad.body, &bad.trailer].concat();
            let found = check(&bytes, origin(0));
            assert!(found.is_err_and(|e| e.is_corruption()), "before anything is decompressed");
        }
    }
}
