//! A store that is opened for one write at a time, very often.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use drumlin::env::{Env, FileSystem, MemFs};
use drumlin::{Db, Options};

/// Each session begins a log file: they must not pile up.
#[test]
fn many_short_sessions_keep_everything_in_few_files() {
    let fs = MemFs::new();
    for session in 0..150u32 {
        let options = Options { memory_bytes: 8 << 20, ..Options::default() };
        let db = Db::open_with(Env::with_fs(fs.clone()), "/store", options).unwrap();
        let keyspace = db.keyspace("k", Default::default()).unwrap();
        assert_eq!(keyspace.iter().unwrap().count(), session as usize);
        keyspace.put(session.to_be_bytes(), "v").unwrap();
        db.close().unwrap();
        let files = fs.list("/store/log".as_ref()).unwrap().len();
        assert!(files <= 70, "{files} log files after {session} sessions");
    }
}
