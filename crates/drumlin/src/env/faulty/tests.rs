//! Every call can be made to fail, in every way that fits it, and nothing else changes.

use super::*;
use crate::env::listed::read_listed;
use crate::env::{Keep, MemFs};

/// A workload that makes each call at least once; stops at the first error.
fn workload(fs: &dyn FileSystem) -> Result<Vec<u8>> {
    let dir = Path::new("db");
    let (a, b, log) = (dir.join("a"), dir.join("b"), dir.join("log"));
    fs.create_dir_all(dir)?;
    let lock = fs.lock(&dir.join("LOCK"), true)?;
    let mut file = fs.create(&a)?;
    file.append(b"0123456789")?;
    file.sync()?;
    fs.rename(&a, &b)?;
    fs.sync_dir(dir)?;
    let region = fs.map_log(&log, 100)?;
    region.sync(0..100)?;
    fs.truncate(&log, 50)?;
    fs.free_bytes(dir)?;
    assert_eq!(fs.list(dir)?.len(), 3);
    let is_there = fs.exists(&b)?;
    assert!(is_there);
    let reader = fs.open(&b, ReadMode::Buffered)?;
    let halves = read_listed(|reads| fs.read_each(reads), &reader, &[(0, 5), (5, 5)], 2);
    let halves = halves.into_iter().collect::<Result<Vec<_>>>()?;
    fs.remove(&b)?;
    drop(lock);
    Ok(halves.concat())
}

const CALLS: u64 = 17;

fn is_kind(error: &Error, kind: io::ErrorKind) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == kind)
}

#[test]
fn without_a_plan_nothing_changes() {
    let (plain, inner) = (MemFs::new(), MemFs::new());
    let faulty = FaultyFs::new(inner.clone());
    assert_eq!(workload(&*plain).unwrap(), b"0123456789");
    assert_eq!(workload(&*faulty).unwrap(), b"0123456789");
    assert_eq!(inner.files(), plain.files());
    assert_eq!((faulty.calls(), faulty.injected()), (CALLS, 0));
    assert_eq!((inner.calls(), faulty.boot_id()), (CALLS, inner.boot_id()));
}

#[test]
fn every_call_can_be_the_one_that_fails() {
    let kind = io::ErrorKind::Other;
    let faults: [(Fault, fn(&Error) -> bool); 3] = [
        (Fault::Error(kind), |e| is_kind(e, io::ErrorKind::Other)),
        (Fault::ErrorAfter(kind), |e| is_kind(e, io::ErrorKind::Other)),
        (Fault::NoSpace, Error::is_no_space),
    ];
    for (fault, is_expected) in faults {
        for number in 0..CALLS {
            let inner = MemFs::new();
            let faulty = FaultyFs::new(inner.clone());
            faulty.fail_at(number, fault);
            let error = workload(&*faulty).unwrap_err();
            assert!(is_expected(&error), "{fault:?} at {number}: {error}");
            // Reads side by side are calls of their own: all are made.
            let calls = if number == 14 { 16 } else { number + 1 };
            assert_eq!((faulty.calls(), faulty.injected()), (calls, 1), "{fault:?} at {number}");
            // The call reached the file system below, or did not. (A read is pointless to repeat.)
            let is_read = (14..16).contains(&number);
            let reached = number + u64::from(matches!(fault, Fault::ErrorAfter(_)));
            assert!(is_read || inner.calls() == reached, "{fault:?} at {number}: {}", inner.calls());
        }
    }
}

#[test]
fn an_error_after_the_call_has_its_effect() {
    let inner = MemFs::new();
    inner.set_contents("db/a", b"x").unwrap();
    let faulty = FaultyFs::new(inner.clone());
    faulty.fail_when(|call| {
        (call.operation == Operation::Rename).then_some(Fault::ErrorAfter(io::ErrorKind::TimedOut))
    });
    faulty.rename(Path::new("db/a"), Path::new("db/b")).unwrap_err();
    assert_eq!(inner.contents("db/b").unwrap(), b"x");
    // A call that fails below tells its own error.
    assert!(faulty.rename(Path::new("db/a"), Path::new("db/b")).unwrap_err().is_missing_file());
}

#[test]
fn a_short_write_leaves_half_and_fails() {
    let inner = MemFs::new();
    let faulty = FaultyFs::new(inner.clone());
    let mut file = faulty.create(Path::new("a")).unwrap();
    faulty.fail_from(0, Fault::ShortWrite);
    file.append(b"0123456789").unwrap_err();
    assert_eq!((inner.contents("a").unwrap(), file.bytes()), (b"01234".to_vec(), 5));
    // It fits appends only.
    file.sync().unwrap();
    assert_eq!(faulty.injected(), 1);
}

#[test]
fn a_corrupt_read_flips_exactly_one_bit() {
    let inner = MemFs::new();
    inner.set_contents("a", &[0; 10]).unwrap();
    let faulty = FaultyFs::new(inner);
    let file = faulty.open(Path::new("a"), ReadMode::Buffered).unwrap();
    for bit in [0, 9, 31, 32, 8 * 1_000_003] {
        faulty.fail_at(faulty.calls(), Fault::CorruptRead { bit });
        let mut buffer = [0; 4];
        file.read_exact_at(&mut buffer, 3).unwrap();
        assert_eq!(u32::from_le_bytes(buffer), 1 << (bit % 32), "{bit}");
    }
    faulty.fail_from(0, Fault::CorruptRead { bit: 0 });
    file.read_exact_at(&mut [], 0).unwrap();
    assert!(file.read_exact_at(&mut [0], 10).unwrap_err().is_corruption());
}

#[test]
fn a_failed_sync_is_final_for_its_handle() {
    let inner = MemFs::new();
    let faulty = FaultyFs::new(inner.clone());
    let mut file = faulty.create(Path::new("a")).unwrap();
    file.append(b"x").unwrap();
    let region = faulty.map_log(Path::new("log"), 10).unwrap();
    faulty.sync_dir(Path::new("")).unwrap();
    faulty.fail_when(|call| call.operation.syncs().then_some(Fault::Error(io::ErrorKind::Other)));
    file.sync().unwrap_err();
    region.sync(0..10).unwrap_err();
    faulty.clear();
    file.sync().unwrap();
    region.sync(0..10).unwrap();
    let lost = inner.crash_clone(&mut |_| Keep::No);
    assert_eq!((lost.contents("a").unwrap(), lost.contents("log").unwrap()), (vec![], vec![]));
    // A new handle is a new start.
    faulty.map_log(Path::new("log"), 10).unwrap().sync(0..10).unwrap();
    assert_eq!(inner.crash_clone(&mut |_| Keep::No).contents("log").unwrap(), [0; 10]);
}

#[test]
fn a_sync_that_fails_after_it_was_done_can_be_repeated() {
    let inner = MemFs::new();
    let faulty = FaultyFs::new(inner.clone());
    let mut file = faulty.create(Path::new("a")).unwrap();
    faulty.sync_dir(Path::new("")).unwrap();
    file.append(b"x").unwrap();
    faulty.fail_at(faulty.calls(), Fault::ErrorAfter(io::ErrorKind::Other));
    file.sync().unwrap_err();
    assert_eq!(inner.crash_clone(&mut |_| Keep::No).contents("a").unwrap(), b"x");
    file.append(b"y").unwrap();
    file.sync().unwrap();
    assert_eq!(inner.crash_clone(&mut |_| Keep::No).contents("a").unwrap(), b"xy");
}

#[test]
fn plans_by_number_by_range_and_by_predicate_work_together() {
    let faulty = FaultyFs::new(MemFs::new());
    let exists = || faulty.exists(Path::new("a"));
    faulty.fail_at(1, Fault::NoSpace);
    faulty.fail_when(|call| (call.number == 2).then_some(Fault::Error(io::ErrorKind::TimedOut)));
    faulty.fail_from(4, Fault::Error(io::ErrorKind::Other));
    exists().unwrap();
    assert!(exists().unwrap_err().is_no_space());
    assert!(is_kind(&exists().unwrap_err(), io::ErrorKind::TimedOut));
    exists().unwrap();
    for _ in 0..3 {
        assert!(is_kind(&exists().unwrap_err(), io::ErrorKind::Other));
    }
    faulty.clear();
    exists().unwrap();
    assert_eq!((faulty.calls(), faulty.injected()), (8, 5));
}
