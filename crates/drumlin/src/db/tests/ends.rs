//! Numbers at their ends: a manifest, or a directory, that claims what no store can reach is damaged, and is told so. Nothing
//! overflows: in a release build a sum that wraps round skips acknowledged writes.

use std::path::Path;

use super::workload::STORE;
use crate::Db;
use crate::env::{Env, MemFs};
use crate::error::Result;
use crate::key::Lsn;
use crate::options::{KeyspaceOptions, Options};
use crate::table::{TableId, TableMeta};
use crate::version::{Change, Identity, KeyspaceId, Manifest, VersionEdit, encode_options};

const KEYSPACE: KeyspaceId = KeyspaceId(1);

fn open_with(change: Change) -> Result<()> {
    let env = Env::with_fs(MemFs::new());
    let identity = Identity::generate(&env, 64 << 10);
    let mut manifest = Manifest::create(&env, Path::new(STORE), identity).expect("makes");
    let options = encode_options(&KeyspaceOptions::default());
    let made = Change::CreateKeyspace { id: KEYSPACE, name: "k".into(), options };
    manifest.append(&VersionEdit::new().with(made).with(change)).expect("appends");
    drop(manifest);
    let db = Db::open_with(env, STORE, Options::default())?;
    let k = db.open_keyspace("k")?;
    k.put("a", "1")?;
    db.flush()
}

#[test]
fn a_manifest_with_numbers_at_their_ends_is_corrupt_and_overflows_nothing() {
    for end in [Lsn::END.0, u64::MAX / 8, u64::MAX / 8 + 1, u64::MAX - 1, u64::MAX] {
        let table = TableMeta { id: TableId(7), max_lsn: Lsn(end), ..TableMeta::default() };
        let changes = [
            Change::FlushedTo { keyspace: KEYSPACE, lsn: Lsn(end) },
            Change::AddTable { keyspace: KEYSPACE, level: 1, meta: table },
            Change::SessionStart { first_segment: end, boot_id: [1; 16] },
            // No LSN, but in the right unit one.
            Change::SessionStart { first_segment: end / 8192 + 1, boot_id: [1; 16] },
            Change::LogReaches(Lsn(end)),
            Change::NextTableId(end),
        ];
        for change in changes {
            let what = format!("{change:?}");
            let opened = open_with(change);
            assert!(opened.as_ref().is_err_and(|e| e.is_corruption()), "{what}: {opened:?}");
        }
    }
}

/// The last keyspace id is the last: none is given twice.
#[test]
fn keyspace_ids_end_without_beginning_again() {
    let env = Env::with_fs(MemFs::new());
    let identity = Identity::generate(&env, 64 << 10);
    let mut manifest = Manifest::create(&env, Path::new(STORE), identity).expect("makes");
    manifest.append(&Change::NextKeyspaceId(u32::MAX - 1).into()).expect("appends");
    drop(manifest);
    let db = Db::open_with(env.clone(), STORE, Options::default()).expect("opens");
    db.keyspace("last", KeyspaceOptions::default()).expect("makes").put("a", "1").expect("puts");
    assert!(db.keyspace("beyond", KeyspaceOptions::default()).is_err());
    drop(db);
    let db = Db::open_with(env, STORE, Options::default()).expect("opens");
    assert!(db.open_keyspace("last").expect("is there").get("a").expect("gets").is_some());
}

/// Damage, or somebody's file; in either case not a number to count on from.
#[test]
fn a_segment_that_no_log_can_have_is_corruption() {
    let fs = MemFs::new();
    let env = Env::with_fs(fs.clone());
    drop(Db::open_with(env.clone(), STORE, Options::default()).expect("opens"));
    for index in [u64::MAX, u64::MAX / 8192, 1 << 60] {
        let path = Path::new(STORE).join("log").join(format!("{index:010}.log"));
        fs.set_contents(&path, &[0; 8192]).expect("writes");
        let opened = Db::open_with(env.clone(), STORE, Options::default());
        assert!(opened.as_ref().is_err_and(|e| e.is_corruption()), "{index}: {opened:?}");
        env.fs.remove(&path).expect("removes");
    }
    assert!(Db::open_with(env, STORE, Options::default()).is_ok());
}
