//! The calls of the file system: answers, errors, capacity, locks, mapped files, hooks.

use std::io::ErrorKind;
use std::sync::Mutex;

use super::*;
use crate::env::{Env, Operation};
use crate::error::Error;

fn kind(error: Error) -> ErrorKind {
    match error {
        Error::Io { source, .. } => source.kind(),
        other => panic!("{other}"),
    }
}

#[test]
fn names_answer_as_on_a_system() {
    let fs = with_dir();
    let env = Env::with_fs(fs.clone());
    write(&fs, "db/b", b"12345");
    write(&fs, "db//./a", b"");
    env.fs.create_dir_all(Path::new("db/c/d")).unwrap();
    write(&fs, "db/c/inner", b"");
    write(&fs, "db!", b"");
    let entries = env.fs.list(Path::new("db/")).unwrap();
    let entries: Vec<_> = entries.iter().map(|e| (&*e.name, e.bytes, e.is_dir)).collect();
    assert_eq!(entries, [("a", 0, false), ("b", 5, false), ("c", 0, true)]);
    for (path, exists) in [("db", true), ("db/a", true), ("db/c/d/../inner", true), ("db/x", false)] {
        assert_eq!(fs.exists(Path::new(path)).unwrap(), exists, "{path}");
    }
    assert_eq!(kind(fs.create(Path::new("no/a")).err().unwrap()), ErrorKind::NotFound);
    assert_eq!(kind(fs.create(Path::new("db/a/x")).err().unwrap()), ErrorKind::NotADirectory);
    assert_eq!(kind(fs.create(Path::new("db/c")).err().unwrap()), ErrorKind::IsADirectory);
    assert_eq!(kind(fs.create_dir_all(Path::new("db/a/x")).unwrap_err()), ErrorKind::NotADirectory);
    assert!(fs.open(Path::new("db/x"), ReadMode::Direct).err().unwrap().is_missing_file());
    assert!(fs.remove(Path::new("db/x")).unwrap_err().is_missing_file());
    assert!(fs.rename(Path::new("db/x"), Path::new("db/y")).unwrap_err().is_missing_file());
    assert!(fs.rename(Path::new("db/a"), Path::new("no/y")).unwrap_err().is_missing_file());
    assert!(fs.list(Path::new("no")).unwrap_err().is_missing_file());
    assert!(fs.sync_dir(Path::new("no")).unwrap_err().is_missing_file());
    assert!(fs.truncate(Path::new("no"), 1).unwrap_err().is_missing_file());
    assert_eq!(kind(fs.rename(Path::new("db/a"), Path::new("db/c")).unwrap_err()), ErrorKind::IsADirectory);
}

#[test]
fn a_read_past_the_end_is_corruption_at_its_offset() {
    let fs = with_dir();
    write(&fs, "db/a", &[5; 100]);
    let file = fs.open(Path::new("db/a"), ReadMode::Buffered).unwrap();
    assert_eq!((file.bytes(), file.path()), (100, Path::new("db/a")));
    let mut buffer = [0; 10];
    file.read_exact_at(&mut buffer, 90).unwrap();
    assert_eq!(buffer, [5; 10]);
    for offset in [91, 100, 5000, u64::MAX] {
        match file.read_exact_at(&mut buffer, offset) {
            Err(Error::Corruption(c)) => assert_eq!((&*c.path, c.offset), (Path::new("db/a"), Some(offset))),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_handle_outlives_the_name_of_its_file() {
    let fs = with_dir();
    let mut writer = fs.create(Path::new("db/a")).unwrap();
    writer.append(b"one").unwrap();
    let reader = fs.open(Path::new("db/a"), ReadMode::Buffered).unwrap();
    fs.rename(Path::new("db/a"), Path::new("db/b")).unwrap();
    writer.append(b"two").unwrap();
    assert_eq!((writer.bytes(), fs.contents("db/b").unwrap()), (6, b"onetwo".to_vec()));
    fs.remove(Path::new("db/b")).unwrap();
    write(&fs, "db/b", b"other");
    let mut buffer = [0; 6];
    reader.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"onetwo");
}

#[test]
fn creating_an_existing_file_empties_it() {
    let fs = with_dir();
    write(&fs, "db/a", &[1; 9000]);
    write(&fs, "db/a", b"x");
    assert_eq!(fs.contents("db/a").unwrap(), b"x");
    fs.truncate(Path::new("db/a"), 5).unwrap();
    assert_eq!(fs.contents("db/a").unwrap(), b"x\0\0\0\0");
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let fs = with_dir();
    write_durably(&fs, "db/a", &[1; 5000]);
    for bytes in [4500, 10, 6000] {
        fs.truncate(Path::new("db/a"), bytes).unwrap();
    }
    assert_eq!(fs.contents("db/a").unwrap(), [vec![1; 10], vec![0; 5990]].concat());
}

#[test]
fn a_mapped_file_reads_as_its_memory() {
    let fs = with_dir();
    write(&fs, "db/log", &[1; 5000]);
    let region = fs.map_log(Path::new("db/log"), 2 * PAGE_BYTES).unwrap();
    assert_eq!(region.base() as usize % PAGE_BYTES, 0);
    store(&*region, 4998, b"abc");
    let expected = [vec![1; 4998], b"abc".to_vec(), vec![0; 2 * PAGE_BYTES - 5001]].concat();
    assert_eq!(read(&*fs, "db/log"), expected);
    let file = fs.open(Path::new("db/log"), ReadMode::Buffered).unwrap();
    let mut part = [0; 3];
    file.read_exact_at(&mut part, 4999).unwrap();
    assert_eq!(&part, b"bc\0");
    assert!(file.read_exact_at(&mut part, 2 * PAGE_BYTES as u64 - 2).unwrap_err().is_corruption());
    // Both handles share the bytes, and those stay when the last of them goes.
    let again = fs.map_log(Path::new("db/log"), 2 * PAGE_BYTES).unwrap();
    assert_eq!(again.base(), region.base());
    drop(region);
    store(&*again, 0, b"Z");
    drop(again);
    assert_eq!(read(&*fs, "db/log"), [b"Z", &expected[1..]].concat());
    // Mapped shorter, it is cut.
    let shorter = fs.map_log(Path::new("db/log"), 100).unwrap();
    assert_eq!(read(&*fs, "db/log").len(), 100);
    assert!(fs.map_log(Path::new("db/log"), 200).is_err());
    assert!(fs.map_log(Path::new("db/none"), 0).is_err());
    assert!(shorter.sync(0..101).is_err());
    assert_eq!(fs.files(), paths(&["db/log"]));
}

#[test]
fn a_recycled_file_keeps_its_bytes_under_the_new_name() {
    let fs = with_dir();
    let old = fs.map_log(Path::new("db/1"), PAGE_BYTES).unwrap();
    store(&*old, 0, b"stale");
    old.sync(0..PAGE_BYTES).unwrap();
    fs.sync_dir(Path::new("db")).unwrap();
    fs.rename(Path::new("db/1"), Path::new("db/2")).unwrap();
    let new = fs.map_log(Path::new("db/2"), PAGE_BYTES).unwrap();
    store(&*new, 0, b"fresh");
    new.sync(0..PAGE_BYTES).unwrap();
    // The name is another matter: until its sync the new bytes may stand under the old one.
    assert_eq!(&read(&*fs.crash_clone(&mut lose_all), "db/1")[..5], b"fresh");
    fs.sync_dir(Path::new("db")).unwrap();
    assert_eq!(fs.crash_clone(&mut lose_all).files(), paths(&["db/2"]));
}

#[test]
fn truncating_a_mapped_file_clears_its_memory() {
    let fs = with_dir();
    let region = fs.map_log(Path::new("db/log"), 3 * PAGE_BYTES).unwrap();
    store(&*region, 0, &[8; 3 * PAGE_BYTES]);
    region.sync(0..3 * PAGE_BYTES).unwrap();
    fs.sync_dir(Path::new("db")).unwrap();
    let cut = PAGE_BYTES + 3;
    fs.truncate(Path::new("db/log"), cut as u64).unwrap();
    assert_eq!(read(&*fs, "db/log"), vec![8; cut]);
    assert_eq!(read(&*fs.crash_clone(&mut lose_all), "db/log").len(), 3 * PAGE_BYTES);
    region.sync(0..1).unwrap();
    drop(region);
    assert_eq!(read(&*fs.crash_clone(&mut lose_all), "db/log"), vec![8; cut]);
    fs.truncate(Path::new("db/log"), 3 * PAGE_BYTES as u64).unwrap();
    assert_eq!(&read(&*fs, "db/log")[cut..], vec![0; 3 * PAGE_BYTES - cut]);
}

#[test]
fn a_mapped_file_takes_no_appends() {
    let fs = with_dir();
    let mut file = fs.create(Path::new("db/a")).unwrap();
    let region = fs.map_log(Path::new("db/a"), 10).unwrap();
    assert!(file.append(b"x").is_err());
    drop(region);
    file.append(b"x").unwrap();
    assert_eq!(fs.contents("db/a").unwrap(), b"\0\0\0\0\0\0\0\0\0\0x");
}

#[test]
fn a_full_device_takes_what_fits_and_goes_on_when_space_is_freed() {
    let fs = with_dir();
    fs.set_capacity(Some(3 * PAGE_BYTES as u64 + 100));
    write(&fs, "db/a", &[1; 10]);
    assert_eq!(fs.free_bytes(Path::new("db")).unwrap(), Some(2 * PAGE_BYTES as u64 + 100));
    let mut file = fs.create(Path::new("db/b")).unwrap();
    let error = file.append(&[2; 2 * PAGE_BYTES + 1]).unwrap_err();
    assert!(error.is_no_space(), "{error}");
    assert_eq!(file.bytes(), 2 * PAGE_BYTES as u64);
    assert!(fs.map_log(Path::new("db/log"), 1).err().unwrap().is_no_space());
    assert!(fs.truncate(Path::new("db/a"), PAGE_BYTES as u64 + 1).unwrap_err().is_no_space());
    assert_eq!(fs.files(), paths(&["db/a", "db/b"]));
    // The page that a file already has takes more.
    let mut tail = fs.create(Path::new("db/a")).unwrap();
    assert!(tail.append(&[1; 10]).is_ok() && tail.append(&[1; PAGE_BYTES - 10]).is_ok());
    assert!(tail.append(&[1]).unwrap_err().is_no_space());
    // A clone stands on the same device.
    assert!(fs.process_crash_clone().map_log(Path::new("db/log"), 1).err().unwrap().is_no_space());
    assert!(fs.crash_clone(&mut keep_all).map_log(Path::new("db/log"), 1).err().unwrap().is_no_space());
    fs.remove(Path::new("db/a")).unwrap();
    file.append(&[2]).unwrap();
    assert_eq!(fs.used_bytes(), 3 * PAGE_BYTES as u64);
    fs.set_capacity(None);
    file.append(&[2; 9999]).unwrap();
    assert_eq!(fs.free_bytes(Path::new("db")).unwrap(), None);
}

#[test]
fn a_recycled_map_needs_no_space() {
    let fs = with_dir();
    drop(fs.map_log(Path::new("db/1"), 2 * PAGE_BYTES).unwrap());
    fs.set_capacity(Some(0));
    fs.rename(Path::new("db/1"), Path::new("db/2")).unwrap();
    fs.map_log(Path::new("db/2"), 2 * PAGE_BYTES).unwrap();
}

#[test]
fn locks_exclude_and_end_with_their_holder() {
    let fs = with_dir();
    let path = Path::new("db/LOCK");
    let is_locked = |result: crate::Result<_>| match result {
        Err(Error::Locked { path }) => {
            assert_eq!(path, Path::new("db"));
            true
        }
        Err(other) => panic!("{other}"),
        Ok(_) => false,
    };
    assert!(fs.lock(path, false).err().unwrap().is_missing_file());
    assert!(!fs.exists(path).unwrap());
    let exclusive = fs.lock(path, true).unwrap();
    assert!(is_locked(fs.lock(path, true)));
    assert!(is_locked(fs.lock(path, false)));
    // Nobody holds it after a crash.
    fs.process_crash_clone().lock(path, true).unwrap();
    drop(exclusive);
    let readers = [fs.lock(path, false).unwrap(), fs.lock(path, false).unwrap()];
    assert!(is_locked(fs.lock(path, true)));
    let [one, other] = readers;
    drop(one);
    assert!(is_locked(fs.lock(path, true)));
    drop(other);
    fs.lock(path, true).unwrap();
}

#[test]
fn hooks_see_every_call_in_order_before_it_happens() {
    let fs = with_dir();
    let before = fs.calls();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (log, watched) = (seen.clone(), Arc::downgrade(&fs));
    fs.set_hook(Some(Box::new(move |call| {
        // Calls from inside are neither counted nor told.
        let exists = watched.upgrade().unwrap().exists(Path::new("db/a")).unwrap();
        log.lock().unwrap().push((call.number, call.operation, call.path.to_path_buf(), exists));
    })));
    let mut file = fs.create(Path::new("db/a")).unwrap();
    file.append(b"x").unwrap();
    file.sync().unwrap();
    let reader = fs.open(Path::new("db/a"), ReadMode::Buffered).unwrap();
    reader.read_exact_at(&mut [0], 0).unwrap();
    let region = fs.map_log(Path::new("db/log"), 8).unwrap();
    region.sync(0..8).unwrap();
    fs.rename(Path::new("db/a"), Path::new("db/b")).unwrap();
    fs.set_hook(None);
    fs.sync_dir(Path::new("db")).unwrap();
    use Operation::*;
    let expected = [
        (Create, "db/a", false),
        (Append, "db/a", true),
        (Sync, "db/a", true),
        (Open, "db/a", true),
        (Read, "db/a", true),
        (MapLog, "db/log", true),
        (SyncRegion, "db/log", true),
        (Rename, "db/b", true),
    ];
    let expected: Vec<_> = (before..)
        .zip(expected)
        .map(|(number, (operation, path, exists))| (number, operation, PathBuf::from(path), exists))
        .collect();
    assert_eq!(*seen.lock().unwrap(), expected);
    assert_eq!(fs.calls(), before + 9);
}

#[test]
fn a_fault_hook_fails_calls_without_effect() {
    let fs = with_dir();
    fs.set_fault_hook(Some(Box::new(|call| call.operation.writes().then_some(ErrorKind::StorageFull))));
    assert!(fs.create(Path::new("db/a")).err().unwrap().is_no_space());
    assert!(fs.map_log(Path::new("db/a"), 1).err().unwrap().is_no_space());
    assert!(fs.create_dir_all(Path::new("db/d")).unwrap_err().is_no_space());
    assert_eq!(fs.list(Path::new("db")).unwrap(), []);
}

#[test]
fn set_contents_and_damage_reach_the_medium() {
    let fs = MemFs::new();
    fs.set_contents("/x/y/a", &[0; 5000]).unwrap();
    let calls = fs.calls();
    fs.damage("/x/y/a", 4999, 0x81).unwrap();
    assert!(fs.damage("/x/y/a", 5000, 1).is_err());
    assert_eq!(fs.calls(), calls);
    let lost = fs.crash_clone(&mut lose_all);
    for fs in [&fs, &lost] {
        let bytes = fs.contents("/x/y/a").unwrap();
        assert_eq!((bytes.len(), bytes[4999], bytes.iter().filter(|b| **b != 0).count()), (5000, 0x81, 1));
    }
}

/// Regression: what a thread drops last (a table that it read last) may call the file system when the
/// thread's own values are gone already; that was a panic in a destructor.
#[test]
fn a_thread_that_is_ending_may_call() {
    struct Leaves(Arc<MemFs>);
    impl Drop for Leaves {
        fn drop(&mut self) {
            self.0.remove(Path::new("db/a")).unwrap();
        }
    }
    thread_local!(static LAST: std::cell::RefCell<Option<Leaves>> = const { std::cell::RefCell::new(None) });
    let fs = with_dir();
    fs.set_hook(Some(Box::new(|_| ())));
    let of_thread = fs.clone();
    let ended = std::thread::spawn(move || {
        // Dropped after whatever the calls below need.
        LAST.set(Some(Leaves(of_thread.clone())));
        write(&of_thread, "db/a", b"x");
    });
    ended.join().unwrap();
    assert!(!fs.exists(Path::new("db/a")).unwrap());
}
