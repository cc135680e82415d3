//! The files of a store as version 1 of the formats wrote them, read for ever.
//!
//! `cargo test -p drumlin --lib version::fixture_tests -- --ignored` writes them; do that for a new
//! format version only, under a new name.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::env::{Env, FileSystem, MemFs, RealFs};
use crate::key::{KeyHash, Lsn};
use crate::options::{Compression, FilterAllocation, KeyspaceOptions, Layout, Memory};
use crate::table::{TableId, TableMeta};

const STORE: &[u8] = include_bytes!("../../tests/fixtures/store-v1/STORE");
const CURRENT: &[u8] = include_bytes!("../../tests/fixtures/store-v1/CURRENT");
const MANIFEST: &[u8] = include_bytes!("../../tests/fixtures/store-v1/MANIFEST-000001");

fn dir() -> &'static Path {
    Path::new("/store")
}

fn identity() -> Identity {
    Identity {
        uuid: *b"drumlin fixture!",
        secret: 0x0102_0304_0506_0708,
        segment_bytes: 16 << 20,
        created: Duration::from_millis(1_700_000_000_000),
    }
}

fn options() -> [KeyspaceOptions; 2] {
    let plain =
        KeyspaceOptions { memory: Memory::Sorted, layout: Layout::Leveled, ..KeyspaceOptions::default() };
    let tuned = KeyspaceOptions {
        logged: false,
        memtable_bytes: Some(1 << 20),
        compression: Compression::None,
        block_bytes: 16384,
        filter_bits_per_key: 6.5,
        table_bytes: 5 << 20,
        level0_tables: 2,
        level1_bytes: 10 << 20,
        level_ratio: 7,
        ..plain.clone()
    };
    [plain, tuned]
}

fn table(id: u64) -> TableMeta {
    TableMeta {
        id: TableId(id),
        file_bytes: 100_000 + id,
        entries: 5000,
        deletes: 12,
        range_tombstones: id % 2,
        smallest: b"aachen".to_vec(),
        largest: b"zwolle".to_vec(),
        largest_exclusive: id % 2 == 1,
        min_lsn: Lsn(id * 1000),
        max_lsn: Lsn(id * 1000 + 999),
        raw_bytes: 1 << 20,
        content_hash: u128::from_be_bytes(*b"content hash 128"),
        seed: id,
        created_at_ms: 1_700_000_000_000,
        ..TableMeta::default()
    }
}

fn edits() -> Vec<VersionEdit> {
    let [plain, tuned] = options().map(|options| encode_options(&options));
    let (cities, cache) = (KeyspaceId(1), KeyspaceId(2));
    vec![
        VersionEdit::from(Change::SessionStart { first_segment: 3, boot_id: *b"0123456789abcdef" }),
        VersionEdit::new()
            .with(Change::CreateKeyspace { id: cities, name: "cities".into(), options: plain })
            .with(Change::CreateKeyspace { id: cache, name: "café".into(), options: tuned.clone() }),
        VersionEdit::new()
            .with(Change::AddTable { keyspace: cities, level: 0, meta: table(1) })
            .with(Change::AddTable { keyspace: cities, level: 0, meta: table(2) })
            .with(Change::FlushedTo { keyspace: cities, lsn: Lsn(3000) }),
        VersionEdit::new()
            .with(Change::RemoveTable { keyspace: cities, level: 0, id: TableId(1) })
            .with(Change::AddTable { keyspace: cities, level: 1, meta: table(3) })
            .with(Change::AddTable { keyspace: cache, level: 6, meta: table(4) })
            .with(Change::NextTableId(300)),
        VersionEdit::new()
            .with(Change::CreateKeyspace { id: KeyspaceId(3), name: "gone".into(), options: tuned.clone() })
            .with(Change::SetOptions { keyspace: cache, options: tuned }),
        VersionEdit::new().with(Change::DropKeyspace { id: KeyspaceId(3) }).with(Change::NextKeyspaceId(9)),
    ]
}

/// The store as this build writes it.
fn written() -> Arc<MemFs> {
    let fs = MemFs::new();
    let env = Env::with_fs(Arc::clone(&fs) as Arc<dyn FileSystem>);
    let mut manifest = Manifest::create(&env, dir(), identity()).unwrap();
    edits().iter().for_each(|edit| manifest.append(edit).unwrap());
    fs
}

#[test]
fn a_store_of_version_1_is_read() {
    let fs = MemFs::new();
    for (name, bytes) in [("STORE", STORE), ("CURRENT", CURRENT), ("MANIFEST-000001", MANIFEST)] {
        fs.set_contents(dir().join(name), bytes).unwrap();
    }
    let (found, state, info) = Manifest::load(&*fs, dir()).unwrap();
    assert_eq!(found, identity());
    assert_eq!((info.number, info.edits, info.torn), (1, 7, None));

    assert_eq!((state.next_table_id, state.next_keyspace_id), (300, 9));
    assert_eq!(state.session, Some(Session { first_segment: 3, boot_id: *b"0123456789abcdef" }));
    assert_eq!(state.keyspaces.len(), 2);
    let tables: Vec<_> = state.tables().map(|(k, level, meta)| (k.0, level, (**meta).clone())).collect();
    assert_eq!(tables, [(1, 0, table(2)), (1, 1, table(3)), (2, 6, table(4))]);
    for (name, flushed_to, options) in [("cities", 3000, &options()[0]), ("café", 0, &options()[1])] {
        let keyspace = state.keyspace(name).unwrap();
        assert_eq!(keyspace.flushed_to, Lsn(flushed_to));
        let stored = decode_options(&keyspace.options, &[], &info.path).unwrap();
        assert_eq!(format!("{stored:?}"), format!("{options:?}"));
    }
}

#[test]
fn version_1_is_still_written_to_the_byte() {
    let fs = written();
    for (name, bytes) in [("STORE", STORE), ("CURRENT", CURRENT), ("MANIFEST-000001", MANIFEST)] {
        assert_eq!(fs.contents(dir().join(name)).unwrap(), bytes, "{name}");
    }
}

/// Came after the fixture: a build that does not know it skips it, and the bytes are fixed for ever.
#[test]
fn how_far_the_log_reached_is_an_ignorable_field() {
    let edit = VersionEdit::from(Change::LogReaches(Lsn(300)));
    let mut bytes = Vec::new();
    edit.encode(&mut bytes);
    assert_eq!(bytes, [0x8a, 2, 0xac, 0x02]);
    assert_eq!(VersionEdit::decode(&bytes, dir(), 0).unwrap(), edit);
    let mut state = StoreState::default();
    state.apply(&edit).unwrap();
    state.apply(&Change::LogReaches(Lsn(200)).into()).unwrap();
    assert_eq!(state.log_reaches, Lsn(300), "the highest counts");
    let mut again = StoreState::default();
    again.apply(&state.snapshot()).unwrap();
    assert_eq!(again, state);
}

/// Came after the fixture: what says so is one byte of the first field, which a build that does not know it must not skip.
#[test]
fn memory_in_two_tiers_is_a_byte_of_a_required_field() {
    let [plain, _] = options();
    let two_tier = KeyspaceOptions { memory: Memory::TwoTier, ..plain.clone() };
    let (sorted, bytes) = (encode_options(&plain), encode_options(&two_tier));
    assert_eq!((&sorted[..3], &bytes[..3]), (&[1, 1, 0][..], &[1, 1, 1][..]));
    assert_eq!(sorted[3..], bytes[3..]);
    let stored = decode_options(&bytes, &[], dir()).expect("it is known");
    assert_eq!(format!("{stored:?}"), format!("{two_tier:?}"));
    let unknown = [&[1, 1, 2][..], &bytes[3..]].concat();
    assert!(decode_options(&unknown, &[], dir()).is_err(), "where keys lie is not guessed");
}

/// Came after the fixture: numbers of the options behind their bytes in the fields that must be known, and one field more.
#[test]
fn runs_tiers_tries_and_shared_filter_bits_are_bytes_of_fields_that_must_be_known() {
    let [plain, _] = options();
    let bytes = encode_options(&plain);
    assert_eq!(bytes[..6], [1, 1, 0, 2, 1, 0]);
    assert!(!bytes.contains(&0x8e), "by size is what nothing means");
    let runs = Memory::Runs { runs: 4, merged_percent: 75 };
    let tiered = Layout::Tiered { runs: 8, merged_percent: 100 };
    let lazy = Layout::LazyLeveled { runs: 31, upper_percent: 300 };
    let trie = |hash| Layout::Trie { levels: 5, runs: 8, hash };
    let usual = |memory, layout| KeyspaceOptions { memory, layout, ..plain.clone() };
    let even = KeyspaceOptions { filter_allocation: FilterAllocation::Uniform, ..plain.clone() };
    for (options, front, end) in [
        (usual(runs, Layout::Leveled), &[1, 3, 2, 4, 75, 2, 1, 0][..], &bytes[6..]),
        (usual(Memory::Sorted, tiered), &[1, 1, 0, 2, 3, 1, 8, 100], &bytes[6..]),
        (usual(Memory::Sorted, lazy), &[1, 1, 0, 2, 4, 2, 31, 0xac, 0x02], &bytes[6..]),
        (usual(Memory::Sorted, trie(KeyHash::Sip)), &[1, 1, 0, 2, 4, 3, 5, 8, 0], &bytes[6..]),
        (usual(Memory::Sorted, trie(KeyHash::Sha1)), &[1, 1, 0, 2, 4, 3, 5, 8, 1], &bytes[6..]),
        (even, &bytes[..6], &[&bytes[6..], &[0x8e, 1, 1]].concat()),
    ] {
        let written = encode_options(&options);
        assert_eq!(written, [front, end].concat(), "{options:?}");
        let stored = decode_options(&written, &[], dir()).expect("it is known");
        assert_eq!(format!("{stored:?}"), format!("{options:?}"));
    }
}

#[test]
#[ignore = "writes fixtures"]
fn fixtures_are_written() {
    let to = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store-v1");
    let real = RealFs::new();
    real.create_dir_all(&to).unwrap();
    let fs = written();
    for path in fs.files() {
        let mut file = real.create(&to.join(path.file_name().unwrap())).unwrap();
        file.append(&fs.contents(&path).unwrap()).unwrap();
    }
}
