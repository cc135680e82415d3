//! The operating system's side, in a directory of its own under the system's temporary one.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

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

#[test]
fn appended_bytes_are_read_back_in_both_modes() {
    let dir = Directory::new();
    let path = dir.file("a");
    let bytes: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
    let system = RealFs::new();
    let mut file = system.create(&path).unwrap();
    for part in bytes.chunks(777) {
        file.append(part).unwrap();
    }
    file.sync().unwrap();
    assert_eq!(file.bytes(), 20_000);
    for mode in [ReadMode::Buffered, ReadMode::Direct] {
        let file = system.open(&path, mode).unwrap();
        assert_eq!(file.bytes(), 20_000);
        for (offset, length) in [(0, 20_000), (1, 1), (4095, 2), (4096, 4096), (8191, 8194), (19_999, 1), (5, 0)] {
            let mut buffer = vec![0; length];
            file.read_exact_at(&mut buffer, offset as u64).unwrap();
            assert_eq!(buffer, bytes[offset..offset + length], "{mode:?} {offset}+{length}");
        }
        for (offset, length) in [(19_999, 2), (20_000, 1), (30_000, 5), (0, 20_001)] {
            let error = file.read_exact_at(&mut vec![0; length], offset).unwrap_err();
            assert!(error.is_corruption(), "{error}");
        }
    }
}

#[test]
fn a_mapped_file_is_allocated_zeroed_and_kept() {
    let dir = Directory::new();
    let path = dir.file("log");
    let system = RealFs::new();
    let region = system.map_log(&path, 64 << 10).unwrap();
    assert_eq!(region.bytes(), 64 << 10);
    region.sync(0..64 << 10).unwrap();
    drop(region);
    assert_eq!(fs::read(&path).unwrap(), vec![0; 64 << 10]);
}
