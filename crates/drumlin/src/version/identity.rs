//! Who a store is: its id, its secret, and what was fixed when it was made.
//!
//! Place: written once by `manifest::Manifest::create`, read at every open before anything else;
//! `db` gives the secret to the log and to the key hasher.
//!
//! Invariants:
//! 1. The file is written whole and synced before `CURRENT` exists, and never written again.
//! 2. Every byte is under the checksum; the checksum stands at the same place in every version, so
//!    that a newer version is told from damage.
//!
//! Bytes: see docs/formats/manifest.md, "STORE".
//! Tests: below, and `version::manifest_tests` for the crash cases.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use twox_hash::XxHash3_64;

use crate::encoding::FileDecoder;
use crate::env::Env;
use crate::error::{Error, Result};

/// The name of the file in the store's directory.
pub const STORE_FILE: &str = "STORE";

const MAGIC: [u8; 8] = *b"DrmlnSto";
const VERSION: u32 = 1;
/// Bytes of the file.
const BYTES: usize = 64;

/// What a store is and will always be.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// Tells this store's files from those of another.
    pub uuid: [u8; 16],
    /// Seeds the checksums of the log and the manifest, and the key hash, so that nobody who only
    /// chooses keys and values can aim at either.
    pub secret: u64,
    /// Bytes of a log segment.
    pub segment_bytes: u64,
    /// When the store was made, since the Unix epoch, to the millisecond.
    pub created: Duration,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("uuid", &format_args!("{}", self.uuid_text()))
            .field("segment_bytes", &self.segment_bytes)
            .field("created", &self.created)
            .finish_non_exhaustive()
    }
}

impl Identity {
    /// A new identity with random uuid and secret.
    pub fn generate(env: &Env, segment_bytes: u64) -> Identity {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&env.random.next_u64().to_le_bytes());
        uuid[8..].copy_from_slice(&env.random.next_u64().to_le_bytes());
        let created = Duration::from_millis(u64::try_from(env.clock.wall().as_millis()).unwrap_or(u64::MAX));
        Identity { uuid, secret: env.random.next_u64(), segment_bytes, created }
    }

    /// The uuid as 32 hexadecimal digits.
    pub fn uuid_text(&self) -> String {
        self.uuid.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The bytes of the `STORE` file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.uuid);
        out.extend_from_slice(&self.secret.to_le_bytes());
        out.extend_from_slice(&self.segment_bytes.to_le_bytes());
        let created = u64::try_from(self.created.as_millis()).unwrap_or(u64::MAX);
        out.extend_from_slice(&created.to_le_bytes());
        let checksum = XxHash3_64::oneshot(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        debug_assert_eq!(out.len(), BYTES);
        out
    }

    /// Reads the bytes of a `STORE` file. Wrong bytes are `Corruption`, a newer version `Unsupported`.
    pub(super) fn decode(bytes: &[u8], path: &Path) -> Result<Identity> {
        check_page(bytes, MAGIC, VERSION, BYTES, path)?;
        if bytes.len() > BYTES {
            return Err(Error::corruption(
                path,
                BYTES as u64,
                format!("{} bytes too many", bytes.len() - BYTES),
            ));
        }
        let mut fields = FileDecoder::new(bytes, path, 0);
        fields.take(16)?;
        let uuid = fields.array()?;
        let secret = fields.u64()?;
        let segment_bytes = fields.u64()?;
        if !segment_bytes.is_power_of_two() {
            return Err(Error::corruption(
                path,
                40,
                format!("segment size {segment_bytes} is no power of two"),
            ));
        }
        let created = Duration::from_millis(fields.u64()?);
        Ok(Identity { uuid, secret, segment_bytes, created })
    }
}

/// Checks a fixed header: magic at 0, version u32 at 8, checksum of all before it in the last 8 bytes.
/// The order matters: damage is told before age, so that a rotten version number is not "too new".
pub(super) fn check_page(bytes: &[u8], magic: [u8; 8], version: u32, size: usize, path: &Path) -> Result<()> {
    if bytes.len() < size {
        let what = format!("the header is {} bytes long, but must be {size}", bytes.len());
        return Err(Error::corruption(path, 0, what));
    }
    let (body, checksum) = bytes[..size].split_at(size - 8);
    if XxHash3_64::oneshot(body).to_le_bytes() != checksum {
        return Err(Error::corruption(path, 0, "the header's checksum does not fit its bytes"));
    }
    if body[..8] != magic {
        return Err(Error::corruption(path, 0, "the file does not begin with its magic number"));
    }
    let found = FileDecoder::new(&body[8..12], path, 8).u32()?;
    if found != version {
        let why = format!("it has format version {found}, this build knows {version}");
        return Err(Error::Unsupported { path: path.to_path_buf(), why });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            uuid: *b"0123456789abcdef",
            secret: 0x0123_4567_89ab_cdef,
            segment_bytes: 1 << 24,
            created: Duration::from_millis(1_700_000_000_123),
        }
    }

    #[test]
    fn an_identity_reads_back_as_written() {
        assert_eq!(Identity::decode(&identity().encode(), Path::new("STORE")).unwrap(), identity());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_corruption() {
        let bytes = identity().encode();
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Identity::decode(&bad, Path::new("STORE")).unwrap_err().is_corruption(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Identity::decode(&bytes[..length], Path::new("STORE")).unwrap_err().is_corruption());
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(Identity::decode(&longer, Path::new("STORE")).unwrap_err().is_corruption());
    }

    #[test]
    fn a_newer_version_with_a_good_checksum_is_unsupported() {
        let mut bytes = identity().encode();
        bytes[8] = 2;
        let checksum = XxHash3_64::oneshot(&bytes[..56]).to_le_bytes();
        bytes[56..].copy_from_slice(&checksum);
        assert!(matches!(Identity::decode(&bytes, Path::new("STORE")), Err(Error::Unsupported { .. })));
    }

    #[test]
    fn the_secret_is_not_printed() {
        let printed = format!("{:?}", identity());
        assert!(!printed.contains("81985529216486895") && !printed.contains("secret"), "{printed}");
    }
}
