//! The operating system's side, in a directory of its own under the system's temporary one.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::env::listed::read_listed;
use crate::env::stores::store;
use crate::env::{Clock, Env, PAGE_BYTES};

/// A fresh directory, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("drumlin-env-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `f_type` of the file system whose habits some tests count on.
#[cfg(target_os = "linux")]
const EXT4: u64 = 0xef53;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 % 251) as u8).collect()
}

#[test]
fn appended_bytes_are_read_back_in_both_modes() {
    let dir = Directory::new();
    let path = dir.file("a");
    let bytes = pattern(20_000);
    let system = RealFs::new();
    let mut file = system.create(&path).unwrap();
    for part in bytes.chunks(777) {
        file.append(part).unwrap();
    }
    file.sync().unwrap();
    assert_eq!(file.bytes(), 20_000);
    for mode in [ReadMode::Buffered, ReadMode::Direct] {
        let file = system.open(&path, mode).unwrap();
        assert_eq!((file.bytes(), file.path()), (20_000, &*path));
        for (offset, length) in
            [(0, 20_000), (1, 1), (4095, 2), (4096, 4096), (8191, 8194), (19_999, 1), (5, 0)]
        {
            let mut buffer = vec![0; length];
            file.read_exact_at(&mut buffer, offset as u64).unwrap();
            assert_eq!(buffer, bytes[offset..offset + length], "{mode:?} {offset}+{length}");
        }
        for (offset, length) in [(19_999, 2), (20_000, 1), (30_000, 5), (0, 20_001)] {
            match file.read_exact_at(&mut vec![0; length], offset) {
                Err(Error::Corruption(c)) => assert_eq!((&c.path, c.offset), (&path, Some(offset))),
                other => panic!("{mode:?} {offset}+{length}: {other:?}"),
            }
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn direct_reads_are_direct_where_the_system_has_them_and_can_be_given_up() {
    let dir = Directory::new();
    let path = dir.file("a");
    fs::write(&path, pattern(10_000)).unwrap();
    let is_ext4 = rustix::fs::statfs(&dir.0).unwrap().f_type as u64 == EXT4;
    let file = file::RealReadable::open(&path, ReadMode::Direct).unwrap();
    // Neither the short page at the end nor what lies behind it is a reason to give up.
    file.read_exact_at(&mut [0; 2000], 8000).unwrap();
    assert!(file.read_exact_at(&mut [0; 5000], 8000).unwrap_err().is_corruption());
    assert!(file.is_direct() || !is_ext4);
    file.give_up_direct().unwrap();
    assert!(!file.is_direct());
    // Now unaligned reads of the very same descriptor go through.
    let mut buffer = [0; 100];
    file.read_exact_at(&mut buffer, 4097).unwrap();
    assert_eq!(buffer, pattern(10_000)[4097..4197]);
    assert!(!file::RealReadable::open(&path, ReadMode::Buffered).unwrap().is_direct());
}

#[test]
fn creating_an_existing_file_empties_it() {
    let dir = Directory::new();
    let path = dir.file("a");
    let system = RealFs::new();
    system.create(&path).unwrap().append(b"long").unwrap();
    system.create(&path).unwrap().append(b"x").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"x");
    system.truncate(&path, 3).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"x\0\0");
}

#[test]
fn many_reads_are_answered_each_apart() {
    let dir = Directory::new();
    let bytes = pattern(100_000);
    let system = RealFs::new();
    for mode in [ReadMode::Buffered, ReadMode::Direct] {
        let path = dir.file("a");
        let mut file = system.create(&path).unwrap();
        file.append(&bytes).unwrap();
        file.sync().unwrap();
        let file = system.open(&path, mode).unwrap();
        let ranges = [(0, 10), (90_001, 5000), (99_995, 10), (50_000, 1), (7, 0)];
        for (ranges, together) in [(&ranges[..], 9), (&ranges, 2), (&ranges, 1), (&ranges[..1], 1), (&[], 1)]
        {
            let found = read_listed(|reads| system.read_each(reads), &file, ranges, together);
            for (found, (offset, length)) in found.into_iter().zip(ranges) {
                match bytes.get(*offset as usize..).and_then(|bytes| bytes.get(..*length)) {
                    Some(bytes) => assert_eq!(found.unwrap(), bytes, "{mode:?} {offset}"),
                    None => assert!(found.unwrap_err().is_corruption(), "{mode:?} {offset}"),
                }
            }
        }
    }
}

#[test]
fn a_region_that_is_filled_cooled_and_warmed_keeps_its_bytes() {
    let dir = Directory::new();
    let region = RealFs::new().map_log(&dir.file("cooled"), (64 << 10) + 4096).unwrap();
    store(&*region, 10, b"header");
    region.fill(4096..region.bytes(), 10_000);
    let filled = std::fs::read(dir.file("cooled")).unwrap();
    assert_eq!((&filled[10..16], filled.len()), (&b"header"[..], (64 << 10) + 4096));
    assert!(filled[16..].iter().all(|byte| *byte == 0));
    store(&*region, 5000, b"kept");
    region.cool(0..region.bytes());
    region.warm();
    store(&*region, 5004, b" and more");
    region.warm();
    region.cool(4000..9000);
    region.cool(region.bytes() - 100..region.bytes() + 9000);
    let (from, to) = (60, 50);
    region.cool(from..to);
    let bytes = std::fs::read(dir.file("cooled")).unwrap();
    assert_eq!(&bytes[5000..5013], b"kept and more");
}

/// Bytes of a file that this process has mapped pages for.
#[cfg(target_os = "linux")]
fn mapped_bytes(name: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let of_file = maps.lines().skip_while(|line| !line.ends_with(name));
    let resident = of_file.filter_map(|line| line.strip_prefix("Rss:")).next().expect("it is mapped");
    resident.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// The first store to each page would else take a fault, in the writer's time. Linux has the advice from 5.14 on.
#[cfg(target_os = "linux")]
#[test]
fn a_region_that_was_filled_or_cooled_is_mapped_once_it_is_warm() {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    if (numbers.next(), numbers.next()) < (Some(5), Some(14)) {
        return;
    }
    let dir = Directory::new();
    let region = RealFs::new().map_log(&dir.file("warmed"), 1 << 20).unwrap();
    region.fill(0..1 << 20, 64 << 10);
    assert!(mapped_bytes("/warmed") < 1 << 20, "filling writes the file, not the mapping");
    region.warm();
    assert_eq!(mapped_bytes("/warmed"), 1 << 20);
    region.cool(0..1 << 20);
    assert_eq!(mapped_bytes("/warmed"), 0);
    region.warm();
    assert_eq!(mapped_bytes("/warmed"), 1 << 20);
}

#[test]
fn names_are_listed_renamed_and_removed() {
    let dir = Directory::new();
    let system = RealFs::new();
    system.create_dir_all(&dir.file("sub/deep")).unwrap();
    system.create_dir_all(&dir.file("sub/deep")).unwrap();
    system.create(&dir.file("b")).unwrap().append(b"12345").unwrap();
    system.create(&dir.file("c")).unwrap();
    system.rename(&dir.file("c"), &dir.file("a")).unwrap();
    system.sync_dir(&dir.0).unwrap();
    let entries = system.list(&dir.0).unwrap();
    let entries: Vec<_> = entries.iter().map(|e| (&*e.name, e.bytes, e.is_dir)).collect();
    assert_eq!(entries, [("a", 0, false), ("b", 5, false), ("sub", 0, true)]);
    system.remove(&dir.file("b")).unwrap();
    assert!(!system.exists(&dir.file("b")).unwrap() && system.exists(&dir.file("a")).unwrap());
}

#[test]
fn a_missing_file_is_told_by_path() {
    let dir = Directory::new();
    let system = RealFs::new();
    let path = dir.file("none");
    let errors = [
        system.open(&path, ReadMode::Buffered).err(),
        system.open(&path, ReadMode::Direct).err(),
        system.remove(&path).err(),
        system.rename(&path, &dir.file("x")).err(),
        system.truncate(&path, 0).err(),
        system.list(&path).err(),
        system.sync_dir(&path).err(),
        system.lock(&path, false).err(),
        system.map_log(&path.join("x"), 1).err(),
        system.create(&path.join("x")).err(),
        system.free_bytes(&path).err(),
    ];
    for (number, error) in errors.into_iter().enumerate() {
        let error = error.unwrap();
        assert!(error.is_missing_file(), "{number}: {error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{number}: {error}");
    }
    assert!(!system.exists(&path).unwrap());
}

#[test]
fn a_mapped_file_is_zeroed_shared_and_kept() {
    let dir = Directory::new();
    let path = dir.file("log");
    let system = RealFs::new();
    let region = system.map_log(&path, 64 << 10).unwrap();
    assert_eq!((region.bytes(), region.base() as usize % PAGE_BYTES), (64 << 10, 0));
    assert_eq!(fs::read(&path).unwrap(), vec![0; 64 << 10]);
    store(&*region, 5000, b"mapped");
    // A store is in the file at once, and in every other mapping of it.
    assert_eq!(&fs::read(&path).unwrap()[5000..5006], b"mapped");
    let again = system.map_log(&path, 64 << 10).unwrap();
    store(&*again, 5006, b"!");
    region.sync(0..64 << 10).unwrap();
    region.sync(4999..5007).unwrap();
    region.sync(64 << 10..64 << 10).unwrap();
    assert!(matches!(region.sync(0..(64 << 10) + 1), Err(Error::InvalidArgument(_))));
    drop((region, again));
    let kept = fs::read(&path).unwrap();
    assert_eq!((&kept[5000..5007], kept.iter().filter(|b| **b != 0).count()), (&b"mapped!"[..], 7));
    // Longer, shorter, recycled under another name: the bytes stay.
    drop(system.map_log(&path, 128 << 10).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), 128 << 10);
    system.rename(&path, &dir.file("recycled")).unwrap();
    let region = system.map_log(&dir.file("recycled"), 8 << 10).unwrap();
    region.sync(0..1).unwrap();
    assert_eq!(fs::read(dir.file("recycled")).unwrap(), kept[..8 << 10]);
    system.truncate(&dir.file("recycled"), 4096).unwrap();
    region.sync(0..1).unwrap();
    assert_eq!(fs::read(dir.file("recycled")).unwrap(), vec![0; 4096]);
}

#[test]
#[cfg(target_os = "linux")]
fn every_block_of_a_mapped_file_is_allocated() {
    use std::os::unix::fs::MetadataExt;
    let dir = Directory::new();
    let bytes = 3 << 20;
    let allocated = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
    let system = RealFs::new();
    drop(system.map_log(&dir.file("new"), bytes).unwrap());
    assert!(allocated(&dir.file("new")) >= bytes as u64);
    // An existing file with holes is filled too, by either way, and keeps its bytes.
    for by_writing in [false, true] {
        let path = dir.file(if by_writing { "written" } else { "allocated" });
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"kept", (2 << 20) - 2).unwrap();
        file.sync_all().unwrap();
        assert!(allocated(&path) < 1 << 20, "the system under test makes no holes");
        if by_writing {
            region::write_blocks(&file, bytes as u64).unwrap();
        } else {
            drop(system.map_log(&path, bytes).unwrap());
        }
        assert!(allocated(&path) >= bytes as u64, "{by_writing}");
        let kept = fs::read(&path).unwrap();
        assert_eq!((kept.len(), &kept[(2 << 20) - 2..][..4]), (bytes, &b"kept"[..]));
        assert_eq!(kept.iter().filter(|b| **b != 0).count(), 4);
    }
}

#[test]
fn a_map_that_cannot_be_allocated_leaves_things_as_they_were() {
    let dir = Directory::new();
    let system = RealFs::new();
    for bytes in [0, usize::MAX] {
        assert!(matches!(system.map_log(&dir.file("no"), bytes), Err(Error::InvalidArgument(_))));
    }
    // Only where a file has a largest length is the refusal certain and free.
    #[cfg(target_os = "linux")]
    if rustix::fs::statfs(&dir.0).unwrap().f_type as u64 == EXT4 {
        fs::write(dir.file("old"), b"bytes").unwrap();
        for name in ["old", "new"] {
            let error = system.map_log(&dir.file(name), 1 << 50).err().unwrap();
            assert!(error.to_string().contains(name), "{error}");
        }
        assert_eq!(fs::read(dir.file("old")).unwrap(), b"bytes");
        assert!(!dir.file("new").exists());
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_device_is_no_space_with_the_path() {
    let path = Path::new("/dev/full");
    let mut file = RealFs::new().create(path).unwrap();
    let error = file.append(b"x").unwrap_err();
    assert!(matches!(&error, Error::NoSpace { path: named, .. } if named == path), "{error}");
    assert_eq!(file.bytes(), 0);
}

#[test]
fn locks_exclude_within_and_between_opens() {
    let dir = Directory::new();
    let system = RealFs::new();
    let path = dir.file("LOCK");
    let is_locked = |result: Result<_>| match result {
        Err(Error::Locked { path }) => path == dir.0,
        Err(other) => panic!("{other}"),
        Ok(_) => false,
    };
    assert!(system.lock(&path, false).err().unwrap().is_missing_file());
    assert!(!path.exists());
    let exclusive = system.lock(&path, true).unwrap();
    assert!(is_locked(RealFs::new().lock(&path, true)));
    assert!(is_locked(system.lock(&path, false)));
    drop(exclusive);
    let readers = (system.lock(&path, false).unwrap(), system.lock(&path, false).unwrap());
    assert!(is_locked(system.lock(&path, true)));
    drop(readers);
    system.lock(&path, true).unwrap();
}

#[test]
fn the_boot_id_is_the_kernels() {
    let id = RealFs::new().boot_id();
    assert_eq!(id, RealFs::new().boot_id());
    assert_ne!(id, [0; 16]);
    let text = "4af836d0-492a-4111-8637-dcd8205e667c\n";
    let expected = 0x4af8_36d0_492a_4111_8637_dcd8_205e_667c_u128.to_be_bytes();
    assert_eq!(host::parse_uuid(text), Some(expected));
    for wrong in
        ["", "4af836d0", "4af836d0-492a-4111-8637-dcd8205e667", "4af836d0-492a-4111-8637-dcd8205e667cc"]
    {
        assert_eq!(host::parse_uuid(wrong), None, "{wrong}");
    }
    #[cfg(target_os = "linux")]
    {
        let kernels = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert_eq!(Some(id), host::parse_uuid(&kernels));
    }
}

#[test]
fn free_bytes_are_told() {
    let dir = Directory::new();
    let free = RealFs::new().free_bytes(&dir.0).unwrap().unwrap();
    assert!(free > 0 && free < 1 << 60, "{free}");
}

#[test]
fn clock_random_and_threads_work() {
    let env = Env::real();
    let clock = RealClock::new();
    let first = clock.now();
    clock.sleep(std::time::Duration::from_millis(2));
    assert!(clock.now() - first >= std::time::Duration::from_millis(2));
    assert!(env.clock.wall() > std::time::Duration::from_secs(1_700_000_000));
    let draws: std::collections::BTreeSet<u64> = (0..64).map(|_| env.random.next_u64()).collect();
    assert_eq!(draws.len(), 64);
    // Some of 64 draws have the top bit, some have not; one that is stuck has not.
    assert!(draws.iter().any(|d| d >> 63 == 1) && draws.iter().any(|d| d >> 63 == 0));
    let (sender, receiver) = std::sync::mpsc::channel();
    let body = move || sender.send(std::thread::current().name().map(str::to_owned)).unwrap();
    let thread = env.spawner.spawn("drumlin-test", Box::new(body)).unwrap();
    assert!(thread.join());
    assert_eq!(receiver.recv().unwrap().as_deref(), Some("drumlin-test"));
    let thread = env.spawner.spawn("panics", Box::new(|| panic!("on purpose"))).unwrap();
    assert!(!thread.join());
}
