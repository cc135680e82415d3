//! The footer: the last 64 bytes of a table, which find everything else.
//!
//! Place: written last by the writer; read first by `resident` and `verify`.
//!
//! Bytes (little endian; of this and every later version):
//! ```text
//! 0   properties offset u64
//! 8   properties bytes  u64    trailer included
//! 16  seed              u64    of every checksum; the table's id when it was written
//! 24  file bytes        u64    length of the whole file
//! 32  zero              12 bytes
//! 44  version           u32    1
//! 48  checksum          u64    XXH3-64 of bytes 0..48 with the magic as seed
//! 56  magic             u64    "DRUMtabl"
//! ```
//! A later version keeps version, checksum and magic where they are. Tests: below and `table/tests/`.

use std::path::Path;

use twox_hash::XxHash3_64;

use crate::error::{Error, Result};
use crate::table::index::Place;

/// Length of the footer.
pub(super) const FOOTER_BYTES: usize = 64;
/// The version this build writes.
const VERSION: u32 = 1;
const MAGIC: u64 = u64::from_le_bytes(*b"DRUMtabl");

/// What the footer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Footer {
    pub(super) properties: Place,
    pub(super) seed: u64,
    pub(super) file_bytes: u64,
}

impl Footer {
    pub(super) fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        let numbers = [self.properties.offset, self.properties.bytes, self.seed, self.file_bytes];
        for (chunk, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            chunk.copy_from_slice(&number.to_le_bytes());
        }
        bytes[44..48].copy_from_slice(&VERSION.to_le_bytes());
        let checksum = XxHash3_64::oneshot_with_seed(MAGIC, &bytes[..48]);
        bytes[48..56].copy_from_slice(&checksum.to_le_bytes());
        bytes[56..].copy_from_slice(&MAGIC.to_le_bytes());
        bytes
    }

    /// Reads the footer of a file of `file_bytes` bytes.
    pub(super) fn decode(bytes: &[u8; FOOTER_BYTES], path: &Path, file_bytes: u64) -> Result<Footer> {
        let offset = file_bytes.saturating_sub(FOOTER_BYTES as u64);
        let corrupt = |what: &str| Error::corruption(path, offset, what);
        let word = |n: usize| u64::from_le_bytes(bytes.as_chunks().0[n]);
        if word(7) != MAGIC {
            return Err(corrupt("the file does not end like a table"));
        }
        if word(6) != XxHash3_64::oneshot_with_seed(MAGIC, &bytes[..48]) {
            return Err(corrupt("the footer's checksum is wrong"));
        }
        let version = (word(5) >> 32) as u32;
        if version > VERSION {
            let why = format!("it is a table of version {version}, this build reads up to {VERSION}");
            return Err(Error::Unsupported { path: path.to_path_buf(), why });
        }
        let footer = Footer::as_it_stands(bytes);
        if footer.file_bytes != file_bytes {
            let what = format!("the file has {file_bytes} bytes, its footer says {}", footer.file_bytes);
            return Err(corrupt(&what));
        }
        if version != VERSION || bytes[32..44] != [0; 12] || footer.properties.end() != offset {
            return Err(corrupt("the footer is malformed"));
        }
        Ok(footer)
    }

    /// What a footer says that nobody vouches for.
    pub(super) fn as_it_stands(bytes: &[u8; FOOTER_BYTES]) -> Footer {
        let word = |n: usize| u64::from_le_bytes(bytes.as_chunks().0[n]);
        Footer { properties: Place { offset: word(0), bytes: word(1) }, seed: word(2), file_bytes: word(3) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footer() -> Footer {
        Footer { properties: Place { offset: 1000, bytes: 200 }, seed: 42, file_bytes: 1264 }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let good = footer().encode();
        assert_eq!(Footer::decode(&good, Path::new("t"), 1264).expect("right"), footer());
        assert!(Footer::decode(&good, Path::new("t"), 1265).is_err(), "another length");
        for bit in 0..FOOTER_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(
                Footer::decode(&bad, Path::new("t"), 1264).is_err_and(|e| e.is_corruption()),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn a_later_version_is_unsupported_and_a_damaged_one_corrupt() {
        let mut later = footer().encode();
        later[44] = 2;
        assert!(Footer::decode(&later, Path::new("t"), 1264).is_err_and(|e| e.is_corruption()));
        let checksum = XxHash3_64::oneshot_with_seed(MAGIC, &later[..48]);
        later[48..56].copy_from_slice(&checksum.to_le_bytes());
        assert!(matches!(Footer::decode(&later, Path::new("t"), 1264), Err(Error::Unsupported { .. })));
    }
}
