//! The rules of the medium, as the header of `env` numbers them.

use std::io::ErrorKind;

use super::*;
use crate::env::{LogRegion, Operation};

/// A way to give a file new bytes without a sync. Mapped handles are kept alive in the box.
type Rewrite = fn(&MemFs, &str, &[u8]) -> Option<Arc<dyn LogRegion>>;

fn rewrite_appending(fs: &MemFs, path: &str, bytes: &[u8]) -> Option<Arc<dyn LogRegion>> {
    write(fs, path, bytes);
    None
}

fn rewrite_mapped(fs: &MemFs, path: &str, bytes: &[u8]) -> Option<Arc<dyn LogRegion>> {
    let region = fs.map_log(Path::new(path), bytes.len()).unwrap();
    store(&*region, 0, bytes);
    Some(region)
}

const WAYS: [Rewrite; 2] = [rewrite_appending, rewrite_mapped];

fn fail_syncs(fs: &MemFs) {
    fs.set_fault_hook(Some(Box::new(|call| call.operation.syncs().then_some(ErrorKind::Other))));
}

#[test]
fn rule_1_a_process_crash_keeps_every_byte_and_name() {
    let fs = with_dir();
    write_durably(&fs, "db/gone", b"x");
    fs.remove(Path::new("db/gone")).unwrap();
    write(&fs, "db/a", b"appended");
    let region = fs.map_log(Path::new("db/log"), 2 * PAGE_BYTES).unwrap();
    store(&*region, 5000, b"mapped");
    let after = fs.process_crash_clone();
    assert_eq!(after.boot_id(), fs.boot_id());
    assert_eq!(after.files(), paths(&["db/a", "db/log"]));
    assert_eq!(read(&*after, "db/a"), b"appended");
    assert_eq!(&read(&*after, "db/log")[4999..5007], b"\0mapped\0");
    // It makes nothing durable: a power loss after it takes what one before it takes.
    let lost = after.crash_clone(&mut lose_all);
    assert_eq!(lost.files(), paths(&["db/gone"]));
}

#[test]
fn rule_1_a_sync_after_a_process_crash_covers_bytes_from_before() {
    let fs = with_dir();
    let region = rewrite_mapped(&fs, "db/log", &page(1));
    drop(region);
    let after = fs.process_crash_clone();
    let region = after.map_log(Path::new("db/log"), PAGE_BYTES).unwrap();
    region.sync(0..1).unwrap();
    after.sync_dir(Path::new("db")).unwrap();
    assert_eq!(read(&*after.crash_clone(&mut lose_all), "db/log"), page(1));
}

#[test]
fn rule_2_synced_bytes_survive() {
    let fs = with_dir();
    write_durably(&fs, "db/a", &[7; 10_000]);
    let region = fs.map_log(Path::new("db/log"), 3 * PAGE_BYTES).unwrap();
    fs.sync_dir(Path::new("db")).unwrap();
    store(&*region, 0, &[3; 3 * PAGE_BYTES]);
    region.sync(PAGE_BYTES + 5..PAGE_BYTES + 6).unwrap();
    let lost = fs.crash_clone(&mut lose_all);
    assert_eq!(read(&*lost, "db/a"), [7; 10_000]);
    // The region's sync covers whole pages, no more than those it names, and the length.
    assert_eq!(read(&*lost, "db/log"), [page(0), page(3), page(0)].concat());
}

#[test]
fn rule_2_unsynced_pages_survive_in_any_subset() {
    for rewrite in WAYS {
        for mask in 0u64..16 {
            let fs = with_dir();
            write_durably(&fs, "db/a", &[1; 4 * PAGE_BYTES]);
            let region = rewrite(&fs, "db/a", &[2; 4 * PAGE_BYTES]);
            let is_mapped = region.is_some();
            let mut asked = Vec::new();
            let after = fs.crash_clone(&mut |at| match at.change {
                Unsynced::Page { index, mapped } => {
                    assert_eq!((at.path, mapped), (Path::new("db/a"), is_mapped));
                    asked.push(index);
                    if mask >> index & 1 == 1 { Keep::Whole } else { Keep::No }
                }
                other => panic!("{other:?}"),
            });
            assert_eq!(asked, [0, 1, 2, 3]);
            let expected: Vec<u8> = (0..4).flat_map(|i| page(1 + (mask >> i & 1) as u8)).collect();
            assert_eq!(read(&*after, "db/a"), expected, "{mask:04b}");
        }
    }
}

#[test]
fn rule_2_an_unsynced_page_is_torn_at_any_byte() {
    for rewrite in WAYS {
        let fs = with_dir();
        write_durably(&fs, "db/a", &page(1));
        let _region = rewrite(&fs, "db/a", &page(2));
        for cut in [0, 1, 7, 8, 9, 511, 512, 513, 4088, 4095, 4096, 9999] {
            let after = read(&*fs.crash_clone(&mut |_| Keep::Torn(cut)), "db/a");
            let cut = cut.min(PAGE_BYTES);
            assert_eq!(after, [vec![2; cut], vec![1; PAGE_BYTES - cut]].concat(), "{cut}");
        }
        for mask in [0, 1, 0b1000_0000, 0b1010_0101, 0xff] {
            let after = read(&*fs.crash_clone(&mut |_| Keep::Sectors(mask)), "db/a");
            let expected: Vec<u8> = (0..8).flat_map(|i| [1 + (mask >> i & 1); PAGE_BYTES / 8]).collect();
            assert_eq!(after, expected, "{mask:08b}");
        }
    }
}

#[test]
fn rule_2_a_lost_page_before_a_kept_one_is_a_hole() {
    let fs = with_dir();
    write_durably(&fs, "db/a", b"");
    write(&fs, "db/a", &[9; 2 * PAGE_BYTES + 100]);
    let after = fs.crash_clone(&mut |at| if is_page(&at, 1) { Keep::Whole } else { Keep::No });
    assert_eq!(read(&*after, "db/a"), [page(0), page(9)].concat());
    let after = fs.crash_clone(&mut |at| if is_page(&at, 2) { Keep::Whole } else { Keep::No });
    assert_eq!(read(&*after, "db/a"), [page(0), page(0), vec![9; 100]].concat());
    let after = fs.crash_clone(&mut |at| if is_page(&at, 1) { Keep::Torn(3) } else { Keep::No });
    assert_eq!(read(&*after, "db/a"), [page(0), vec![9; 3]].concat());
}

#[test]
fn rule_2_the_length_survives_with_or_without_the_pages() {
    let fs = with_dir();
    write_durably(&fs, "db/a", &[1; 50]);
    let mut file = fs.create(Path::new("db/a")).unwrap();
    file.append(&[1; 5000]).unwrap();
    let length_only = |keep| {
        move |at: PageAt<'_>| if matches!(at.change, Unsynced::Length { .. }) { keep } else { Keep::No }
    };
    let after = read(&*fs.crash_clone(&mut length_only(Keep::Whole)), "db/a");
    assert_eq!(after, [vec![1; 50], vec![0; 4950]].concat());
    let after = read(&*fs.crash_clone(&mut length_only(Keep::Torn(9))), "db/a");
    assert_eq!(after, [vec![1; 50], vec![0; 9]].concat());
    assert_eq!(read(&*fs.crash_clone(&mut lose_all), "db/a"), [1; 50]);
    // Cut: the new length without the pages, and the pages without it.
    file.sync().unwrap();
    fs.truncate(Path::new("db/a"), 10).unwrap();
    assert_eq!(read(&*fs.crash_clone(&mut length_only(Keep::Whole)), "db/a"), [1; 10]);
    assert_eq!(read(&*fs.crash_clone(&mut lose_all), "db/a"), [1; 5000]);
    file.sync().unwrap();
    assert_eq!(read(&*fs.crash_clone(&mut lose_all), "db/a"), [1; 10]);
}

#[test]
fn rule_2_a_new_map_is_durable_in_length_only_after_its_sync() {
    let fs = with_dir();
    let region = fs.map_log(Path::new("db/log"), 3 * PAGE_BYTES).unwrap();
    fs.sync_dir(Path::new("db")).unwrap();
    assert_eq!(read(&*fs.crash_clone(&mut lose_all), "db/log"), b"");
    region.sync(0..1).unwrap();
    assert_eq!(read(&*fs.crash_clone(&mut lose_all), "db/log"), [0; 3 * PAGE_BYTES]);
}

#[test]
fn rule_2_a_failed_sync_may_have_kept_anything() {
    for rewrite in WAYS {
        for mask in 0u64..4 {
            let fs = with_dir();
            write_durably(&fs, "db/a", &[1; 2 * PAGE_BYTES]);
            let region = rewrite(&fs, "db/a", &[2; 2 * PAGE_BYTES]);
            fail_syncs(&fs);
            let region = region.unwrap_or_else(|| fs.map_log(Path::new("db/a"), 2 * PAGE_BYTES).unwrap());
            region.sync(0..2 * PAGE_BYTES).unwrap_err();
            let after = fs.crash_clone(&mut |at| match at.change {
                Unsynced::Page { index, .. } if mask >> index & 1 == 1 => Keep::Whole,
                _ => Keep::No,
            });
            let expected: Vec<u8> = (0..2).flat_map(|i| page(1 + (mask >> i & 1) as u8)).collect();
            assert_eq!(read(&*after, "db/a"), expected, "{mask:02b}");
        }
    }
}

#[test]
fn rule_3_a_created_name_is_lost_kept_or_made_durable() {
    let fs = with_dir();
    let mut file = fs.create(Path::new("db/a")).unwrap();
    file.append(b"x").unwrap();
    file.sync().unwrap();
    // The file's own sync does nothing for the name ...
    assert_eq!(fs.crash_clone(&mut lose_all).files(), paths(&[]));
    assert_eq!(read(&*fs.crash_clone(&mut keep_all), "db/a"), b"x");
    // ... nor the name's for the file.
    write(&fs, "db/b", b"y");
    fs.sync_dir(Path::new("db")).unwrap();
    let lost = fs.crash_clone(&mut lose_all);
    assert_eq!((read(&*lost, "db/a"), read(&*lost, "db/b")), (b"x".to_vec(), b"".to_vec()));
}

#[test]
fn rule_3_a_rename_is_lost_kept_or_made_durable() {
    let fs = with_dir();
    write_durably(&fs, "db/CURRENT", b"old");
    write_durably(&fs, "db/CURRENT.tmp", b"new");
    fs.rename(Path::new("db/CURRENT.tmp"), Path::new("db/CURRENT")).unwrap();
    let lost = fs.crash_clone(&mut lose_all);
    assert_eq!(lost.files(), paths(&["db/CURRENT", "db/CURRENT.tmp"]));
    assert_eq!(read(&*lost, "db/CURRENT"), b"old");
    let mut asked = Vec::new();
    let kept = fs.crash_clone(&mut |at| {
        asked.push(format!("{:?} {:?}", at.path, at.change));
        Keep::Whole
    });
    assert_eq!(asked, [r#""db/CURRENT" RenamedFrom("db/CURRENT.tmp")"#]);
    fs.sync_dir(Path::new("db")).unwrap();
    for after in [kept, fs.crash_clone(&mut lose_all)] {
        assert_eq!(after.files(), paths(&["db/CURRENT"]));
        assert_eq!(read(&*after, "db/CURRENT"), b"new");
    }
}

#[test]
fn rule_3_a_removal_is_lost_kept_or_made_durable() {
    let fs = with_dir();
    write_durably(&fs, "db/a", b"x");
    fs.remove(Path::new("db/a")).unwrap();
    assert_eq!(read(&*fs.crash_clone(&mut lose_all), "db/a"), b"x");
    assert_eq!(fs.crash_clone(&mut keep_all).files(), paths(&[]));
    fs.sync_dir(Path::new("db")).unwrap();
    assert_eq!(fs.crash_clone(&mut lose_all).files(), paths(&[]));
}

#[test]
fn rule_3_changes_of_names_survive_in_any_subset() {
    let fs = with_dir();
    write_durably(&fs, "db/1", b"one");
    fs.rename(Path::new("db/1"), Path::new("db/2")).unwrap();
    write(&fs, "db/1", b"two");
    fs.remove(Path::new("db/2")).unwrap();
    // (renamed, created, removed) -> names that exist after.
    let cases: [(u8, &[&str]); 8] = [
        (0b000, &["db/1"]),
        (0b001, &["db/2"]),
        // The new file takes the name; the old one, never renamed, has none left.
        (0b010, &["db/1"]),
        (0b011, &["db/1", "db/2"]),
        (0b100, &["db/1"]),
        (0b101, &[]),
        (0b110, &["db/1"]),
        (0b111, &["db/1"]),
    ];
    for (mask, expected) in cases {
        let mut number = 0;
        let after = fs.crash_clone(&mut |at| match at.change {
            Unsynced::Created | Unsynced::RenamedFrom(_) | Unsynced::Removed => {
                number += 1;
                if mask >> (number - 1) & 1 == 1 { Keep::Whole } else { Keep::No }
            }
            _ => Keep::Whole,
        });
        assert_eq!((number, after.files()), (3, paths(expected)), "{mask:03b}");
        if mask >> 1 & 1 == 1 {
            assert_eq!(read(&*after, "db/1"), b"two");
        }
    }
}

#[test]
fn rule_3_a_file_never_ends_with_two_names() {
    let fs = with_dir();
    write_durably(&fs, "db/1", b"x");
    fs.rename(Path::new("db/1"), Path::new("db/2")).unwrap();
    fs.rename(Path::new("db/2"), Path::new("db/3")).unwrap();
    let last_only = fs.crash_clone(&mut |at| if at.path.ends_with("3") { Keep::Whole } else { Keep::No });
    assert_eq!(last_only.files(), paths(&["db/3"]));
}

#[test]
fn rule_3_a_directory_needs_the_sync_of_its_parent() {
    let fs = MemFs::new();
    fs.create_dir_all(Path::new("/db/log")).unwrap();
    write_durably(&fs, "/db/log/1", b"x");
    assert_eq!(fs.crash_clone(&mut lose_all).files(), paths(&[]));
    fs.sync_dir(Path::new("/db")).unwrap();
    assert_eq!(fs.crash_clone(&mut lose_all).files(), paths(&[]));
    fs.sync_dir(Path::new("/")).unwrap();
    assert_eq!(fs.crash_clone(&mut lose_all).files(), paths(&["/db/log/1"]));
}

#[test]
fn rule_3_a_directory_sync_covers_its_own_names_only() {
    let fs = with_dir();
    fs.create_dir_all(Path::new("db/a")).unwrap();
    fs.create_dir_all(Path::new("db/b")).unwrap();
    fs.sync_dir(Path::new("db")).unwrap();
    write_durably(&fs, "db/a/x", b"x");
    write(&fs, "db/b/y", b"y");
    fs.rename(Path::new("db/a/x"), Path::new("db/b/x")).unwrap();
    // A rename between directories is whole with the directory of the new name.
    fs.sync_dir(Path::new("db/a")).unwrap();
    fs.sync_dir(Path::new("db")).unwrap();
    assert_eq!(fs.crash_clone(&mut lose_all).files(), paths(&["db/a/x"]));
    fs.sync_dir(Path::new("db/b")).unwrap();
    assert_eq!(fs.crash_clone(&mut lose_all).files(), paths(&["db/b/x", "db/b/y"]));
}

#[test]
fn rule_4_a_retried_sync_reports_success_and_has_lost_the_data() {
    let fs = with_dir();
    write_durably(&fs, "db/a", b"");
    let mut file = fs.create(Path::new("db/a")).unwrap();
    file.append(&[1; PAGE_BYTES + 10]).unwrap();
    fail_syncs(&fs);
    file.sync().unwrap_err();
    fs.set_fault_hook(None);
    file.sync().unwrap();
    // The length is known, the pages are gone, or not: they are asked about.
    assert_eq!(read(&*fs.crash_clone(&mut lose_all), "db/a"), [0; PAGE_BYTES + 10]);
    assert_eq!(read(&*fs.crash_clone(&mut keep_all), "db/a"), [1; PAGE_BYTES + 10]);
    // A page that is written again is dirty again, with all its bytes.
    file.append(&[2; 10]).unwrap();
    file.sync().unwrap();
    let after = read(&*fs.crash_clone(&mut lose_all), "db/a");
    assert_eq!(after, [page(0), vec![1; 10], vec![2; 10]].concat());
}

#[test]
fn rule_4_holds_for_mapped_pages() {
    let fs = with_dir();
    let region = fs.map_log(Path::new("db/log"), 2 * PAGE_BYTES).unwrap();
    region.sync(0..1).unwrap();
    fs.sync_dir(Path::new("db")).unwrap();
    store(&*region, 0, &[1; 2 * PAGE_BYTES]);
    fail_syncs(&fs);
    region.sync(0..2 * PAGE_BYTES).unwrap_err();
    fs.set_fault_hook(None);
    store(&*region, PAGE_BYTES, &[2; 5]);
    region.sync(0..2 * PAGE_BYTES).unwrap();
    let after = read(&*fs.crash_clone(&mut lose_all), "db/log");
    assert_eq!(after, [page(0), vec![2; 5], vec![1; PAGE_BYTES - 5]].concat());
    // Also after it was unmapped and mapped again, and in a clone of the crashed process.
    drop(region);
    let clone = fs.process_crash_clone();
    for fs in [&fs, &clone] {
        let region = fs.map_log(Path::new("db/log"), 2 * PAGE_BYTES).unwrap();
        region.sync(0..2 * PAGE_BYTES).unwrap();
        assert_eq!(&read(&*fs.crash_clone(&mut lose_all), "db/log")[..PAGE_BYTES], page(0));
    }
}

#[test]
fn a_failed_directory_sync_keeps_nothing_for_certain_and_can_be_retried() {
    let fs = with_dir();
    write(&fs, "db/a", b"x");
    fs.set_fault_hook(Some(Box::new(|call| {
        (call.operation == Operation::SyncDir).then_some(ErrorKind::Other)
    })));
    fs.sync_dir(Path::new("db")).unwrap_err();
    assert_eq!(fs.crash_clone(&mut lose_all).files(), paths(&[]));
    fs.set_fault_hook(None);
    fs.sync_dir(Path::new("db")).unwrap();
    assert_eq!(fs.crash_clone(&mut lose_all).files(), paths(&["db/a"]));
}
