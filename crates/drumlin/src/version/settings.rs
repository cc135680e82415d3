//! Keyspace options as they are stored: tagged fields, so that options can be added.
//!
//! Place: `db` encodes the options of a new keyspace into `edit::Change::CreateKeyspace` and decodes
//! them at open, when it knows the custom comparators; in between they are bytes, which keeps
//! fields that this build does not know.
//!
//! Invariants:
//! 1. Whatever decides where a key lies or whether it is there (memory, layout, comparator, logged)
//!    has a required tag: an older build refuses the keyspace. Tuning has ignorable tags.
//! 2. Options are written, defaults too, so that a later change of a default changes no store; but for those that say themselves
//!    that the engine chooses (`memtable_bytes` of `None`, `FilterAllocation::BySize`).
//!
//! Bytes: see docs/formats/manifest.md, "Keyspace options".

use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;

use crate::encoding::{FileDecoder, IGNORABLE, put_field, put_numbers};
use crate::error::{Error, Result};
use crate::key::{BYTEWISE, Comparator, ComparatorRef, KeyHash, bytewise};
use crate::options::{Compression, FilterAllocation, KeyspaceOptions, Layout, Memory, ValueSeparation};

const MEMORY: u8 = 1;
const LAYOUT: u8 = 2;
const COMPARATOR: u8 = 3;
const LOGGED: u8 = 4;
const MEMTABLE_BYTES: u8 = IGNORABLE | 5;
const COMPRESSION: u8 = IGNORABLE | 6;
const BLOCK_BYTES: u8 = IGNORABLE | 7;
const FILTER_BITS_PER_KEY: u8 = IGNORABLE | 9;
const TABLE_BYTES: u8 = IGNORABLE | 10;
const LEVEL0_TABLES: u8 = IGNORABLE | 11;
const LEVEL1_BYTES: u8 = IGNORABLE | 12;
const LEVEL_RATIO: u8 = IGNORABLE | 13;
const FILTER_ALLOCATION: u8 = IGNORABLE | 14;
const VALUE_SEPARATION: u8 = IGNORABLE | 15;

/// The stored form of `options`. The comparator is stored by name.
pub fn encode_options(options: &KeyspaceOptions) -> Vec<u8> {
    let mut out = Vec::with_capacity(96);
    let compression = match options.compression {
        Compression::None => 0,
        Compression::Lz4 => 1,
        Compression::Zstd => 2,
    };
    match options.memory {
        Memory::Sorted => put_numbers(&mut out, MEMORY, &[0]),
        Memory::TwoTier => put_numbers(&mut out, MEMORY, &[1]),
        Memory::Runs { runs, merged_percent } => {
            put_numbers(&mut out, MEMORY, &[2, runs as u64, u64::from(merged_percent)]);
        }
    }
    match options.layout {
        Layout::Leveled => put_numbers(&mut out, LAYOUT, &[0]),
        Layout::Tiered { runs, merged_percent } => {
            put_numbers(&mut out, LAYOUT, &[1, runs as u64, u64::from(merged_percent)]);
        }
        Layout::LazyLeveled { runs, upper_percent } => {
            put_numbers(&mut out, LAYOUT, &[2, runs as u64, u64::from(upper_percent)]);
        }
        Layout::Trie { levels, runs, hash } => {
            put_numbers(&mut out, LAYOUT, &[3, u64::from(levels), runs as u64, hash.number()]);
        }
    }
    put_field(&mut out, COMPARATOR, options.comparator.name().as_bytes());
    put_numbers(&mut out, LOGGED, &[u64::from(options.logged)]);
    if let Some(bytes) = options.memtable_bytes {
        put_numbers(&mut out, MEMTABLE_BYTES, &[bytes as u64]);
    }
    put_numbers(&mut out, COMPRESSION, &[compression]);
    put_numbers(&mut out, BLOCK_BYTES, &[options.block_bytes as u64]);
    put_field(&mut out, FILTER_BITS_PER_KEY, &options.filter_bits_per_key.to_bits().to_le_bytes());
    put_numbers(&mut out, TABLE_BYTES, &[options.table_bytes]);
    put_numbers(&mut out, LEVEL0_TABLES, &[options.level0_tables as u64]);
    put_numbers(&mut out, LEVEL1_BYTES, &[options.level1_bytes]);
    put_numbers(&mut out, LEVEL_RATIO, &[options.level_ratio]);
    // Absent it is by size, for good: stores from before there was a choice get what is better.
    if options.filter_allocation == FilterAllocation::Uniform {
        put_numbers(&mut out, FILTER_ALLOCATION, &[1]);
    }
    if let Some(ValueSeparation { min_bytes, space_percent }) = options.value_separation {
        put_numbers(&mut out, VALUE_SEPARATION, &[min_bytes as u64, u64::from(space_percent)]);
    }
    out
}

/// Reads stored options back. `comparators` are the custom ones; `path` is the manifest, for messages.
///
/// Errors: `Corruption` for wrong bytes, `Unsupported` for what this build does not know or lacks,
/// `InvalidArgument` if the comparator is not among those given.
pub fn decode_options(bytes: &[u8], comparators: &[ComparatorRef], path: &Path) -> Result<KeyspaceOptions> {
    decode_with(bytes, path, &|name| comparator(name, comparators))
}

/// Reads stored options back, to be shown: an order of the user's is known by its name, and compares byte by byte.
///
/// Errors: as [`decode_options`], but for the last.
pub fn decode_to_show(bytes: &[u8], path: &Path) -> Result<KeyspaceOptions> {
    decode_with(bytes, path, &|name| comparator(name, &[Arc::new(OfName(name.into()))]))
}

/// See [`decode_to_show`].
struct OfName(String);

impl Comparator for OfName {
    fn name(&self) -> &str {
        &self.0
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
}

fn decode_with(
    bytes: &[u8],
    path: &Path,
    comparator: &dyn Fn(&str) -> Result<ComparatorRef>,
) -> Result<KeyspaceOptions> {
    let mut options =
        KeyspaceOptions { memtable_bytes: None, value_separation: None, ..KeyspaceOptions::default() };
    let mut fields = FileDecoder::new(bytes, path, 0);
    while let Some((tag, mut field)) = fields.field()? {
        match tag {
            MEMORY => {
                options.memory = match field.varint()? {
                    0 => Memory::Sorted,
                    1 => Memory::TwoTier,
                    2 => Memory::Runs { runs: field.length()?, merged_percent: small(&mut field)? },
                    other => return Err(field.unsupported(format!("memory {other} in keyspace options"))),
                };
                options.memory.validate().map_err(|why| field.corrupt(why.to_string()))?;
            }
            LAYOUT => {
                options.layout = match field.varint()? {
                    0 => Layout::Leveled,
                    1 => Layout::Tiered { runs: field.length()?, merged_percent: small(&mut field)? },
                    2 => Layout::LazyLeveled { runs: field.length()?, upper_percent: small(&mut field)? },
                    3 => Layout::Trie {
                        levels: small(&mut field)?,
                        runs: field.length()?,
                        hash: key_hash(&mut field)?,
                    },
                    other => return Err(field.unsupported(format!("layout {other} in keyspace options"))),
                };
                options.layout.validate().map_err(|why| field.corrupt(why.to_string()))?;
            }
            COMPARATOR => options.comparator = comparator(field.take_text()?)?,
            LOGGED => options.logged = field.flag()?,
            MEMTABLE_BYTES => options.memtable_bytes = Some(field.length()?),
            COMPRESSION => {
                options.compression = match field.varint()? {
                    0 => Compression::None,
                    1 => Compression::Lz4,
                    2 if cfg!(feature = "zstd") => Compression::Zstd,
                    2 => {
                        let why = "a keyspace is compressed with Zstandard, but this build lacks the feature `zstd`";
                        return Err(Error::Unsupported { path: path.to_path_buf(), why: why.into() });
                    }
                    other => {
                        return Err(field.unsupported(format!("compression {other} in keyspace options")));
                    }
                }
            }
            BLOCK_BYTES => options.block_bytes = field.length()?,
            FILTER_BITS_PER_KEY => options.filter_bits_per_key = f64::from_bits(field.u64()?),
            TABLE_BYTES => options.table_bytes = field.varint()?,
            LEVEL0_TABLES => options.level0_tables = field.length()?,
            LEVEL1_BYTES => options.level1_bytes = field.varint()?,
            LEVEL_RATIO => options.level_ratio = field.varint()?,
            FILTER_ALLOCATION => {
                options.filter_allocation = match field.varint()? {
                    0 => FilterAllocation::BySize,
                    1 => FilterAllocation::Uniform,
                    other => {
                        return Err(
                            field.unsupported(format!("filter allocation {other} in keyspace options"))
                        );
                    }
                }
            }
            VALUE_SEPARATION => {
                let separation =
                    ValueSeparation { min_bytes: field.length()?, space_percent: small(&mut field)? };
                separation.validate().map_err(|why| field.corrupt(why.to_string()))?;
                options.value_separation = Some(separation);
            }
            tag => {
                field.unknown("keyspace option", tag)?;
                continue;
            }
        }
        field.end()?;
    }
    Ok(options)
}

/// A number that the option's type holds.
fn small<N: TryFrom<u64>>(field: &mut FileDecoder<'_>) -> Result<N> {
    let number = field.varint()?;
    N::try_from(number).map_err(|_| field.corrupt(format!("{number} is too large for a keyspace option")))
}

fn key_hash(field: &mut FileDecoder<'_>) -> Result<KeyHash> {
    let number = field.varint()?;
    KeyHash::from_number(number).ok_or_else(|| field.unsupported(format!("key hash {number}")))
}

fn comparator(name: &str, comparators: &[ComparatorRef]) -> Result<ComparatorRef> {
    if name == BYTEWISE {
        return Ok(bytewise());
    }
    comparators.iter().find(|c| c.name() == name).cloned().ok_or_else(|| {
        Error::invalid(format!(
            "a keyspace is ordered by the comparator {name:?}: give it in `Options::comparators`"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Reverse;

    impl Comparator for Reverse {
        fn name(&self) -> &str {
            "test.reverse"
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            b.cmp(a)
        }
    }

    fn path() -> &'static Path {
        Path::new("MANIFEST-000001")
    }

    #[test]
    fn every_option_reads_back_as_written() {
        let options = KeyspaceOptions {
            comparator: Arc::new(Reverse),
            logged: false,
            memtable_bytes: Some(123_456),
            compression: Compression::None,
            block_bytes: 8192,
            filter_bits_per_key: 12.5,
            table_bytes: 77 << 20,
            level0_tables: 9,
            level1_bytes: 5 << 30,
            level_ratio: 4,
            value_separation: Some(ValueSeparation { min_bytes: 512 << 20, space_percent: 1000 }),
            ..KeyspaceOptions::default()
        };
        let comparators: Vec<ComparatorRef> = vec![Arc::new(Reverse)];
        let layouts = [
            Layout::TIERED,
            Layout::LAZY_LEVELED,
            Layout::Tiered { runs: 31, merged_percent: 1 },
            Layout::LazyLeveled { runs: 2, upper_percent: 1000 },
            Layout::TRIE,
            Layout::Trie { levels: 8, runs: 15, hash: KeyHash::Sha1 },
        ];
        let laid_out = layouts.map(|layout| KeyspaceOptions { layout, ..KeyspaceOptions::default() });
        for options in [options, KeyspaceOptions::default()].into_iter().chain(laid_out) {
            let bytes = encode_options(&options);
            let back = decode_options(&bytes, &comparators, path()).unwrap();
            assert_eq!(format!("{back:?}"), format!("{options:?}"));
        }
    }

    #[test]
    fn a_missing_comparator_is_named() {
        let options = KeyspaceOptions { comparator: Arc::new(Reverse), ..KeyspaceOptions::default() };
        let error = decode_options(&encode_options(&options), &[], path()).unwrap_err();
        assert!(matches!(&error, Error::InvalidArgument(why) if why.contains("test.reverse")), "{error}");
    }

    #[test]
    fn unknown_required_options_are_unsupported_and_ignorable_ones_skipped() {
        let mut bytes = encode_options(&KeyspaceOptions::default());
        put_numbers(&mut bytes, IGNORABLE | 0x70, &[3]);
        assert!(decode_options(&bytes, &[], path()).is_ok());
        put_numbers(&mut bytes, 0x70, &[3]);
        assert!(matches!(decode_options(&bytes, &[], path()), Err(Error::Unsupported { .. })));
        let mut layout = Vec::new();
        for numbers in [[1, 8, 256], [1, 1, 100], [2, 32, 50], [2, 8, 0]] {
            layout.clear();
            put_numbers(&mut layout, LAYOUT, &numbers);
            let error = decode_options(&layout, &[], path()).expect_err("no such layout");
            assert!(error.is_corruption(), "{numbers:?}: {error}");
        }
        layout.clear();
        put_numbers(&mut layout, LAYOUT, &[9]);
        assert!(matches!(decode_options(&layout, &[], path()), Err(Error::Unsupported { .. })));
    }

    #[test]
    fn cut_options_never_panic() {
        let bytes = encode_options(&KeyspaceOptions::default());
        for length in 0..bytes.len() {
            let _ =
                decode_options(&bytes[..length], &[], path()).map_err(|e| assert!(e.is_corruption(), "{e}"));
        }
    }
}
