//! The rules of the medium, as the header of `env` numbers them.

use super::*;

#[test]
fn rule_1_a_process_crash_keeps_every_byte() {
    let fs = with_dir();
    write(&fs, "db/a", b"appended");
    let region = fs.map_log(Path::new("db/log"), 2 * PAGE_BYTES).unwrap();
    store(&*region, 5000, b"mapped");
    let after = fs.process_crash_clone();
    assert_eq!(after.boot_id(), fs.boot_id());
    assert_eq!(read(&*after, "db/a"), b"appended");
    assert_eq!(&read(&*after, "db/log")[5000..5006], b"mapped");
    // ... and makes nothing durable.
    assert_eq!(after.crash_clone(&mut lose_all).files(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn rule_3_an_unsynced_rename_is_lost_or_kept() {
    let fs = with_dir();
    write_durably(&fs, "db/old", b"x");
    fs.rename(Path::new("db/old"), Path::new("db/new")).unwrap();
    let lost = fs.crash_clone(&mut lose_all);
    assert_eq!(lost.files(), [Path::new("db/old")]);
    assert_ne!(lost.boot_id(), fs.boot_id());
    assert_eq!(fs.crash_clone(&mut keep_all).files(), [Path::new("db/new")]);
    fs.sync_dir(Path::new("db")).unwrap();
    assert_eq!(fs.crash_clone(&mut lose_all).files(), [Path::new("db/new")]);
}
