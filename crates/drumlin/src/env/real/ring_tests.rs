//! Rings against the bytes of files, against the system's refusals, and broken on purpose.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::env::real::file::RealReadable;
use crate::env::{ReadMode, ReadableFile};

/// A file of bytes that tell where they lie, removed at the end.
struct Written(PathBuf);

impl Written {
    fn new(name: &str, bytes: usize) -> Written {
        let path = std::env::temp_dir().join(format!("drumlin-ring-{name}-{}", std::process::id()));
        std::fs::write(&path, (0..bytes).map(byte_at).collect::<Vec<u8>>()).unwrap();
        Written(path)
    }

    fn open(&self) -> RealReadable {
        RealReadable::open(&self.0, ReadMode::Direct).unwrap()
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn byte_at(offset: usize) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9) >> 24) as u8
}

fn rings_refused() -> Rings {
    Rings { refused: AtomicBool::new(true), ..Rings::default() }
}

/// Reads `lengths` bytes at the offsets, and says what each came to.
fn read(rings: &Rings, file: &dyn ReadableFile, ranges: &[(u64, usize)]) -> Vec<Result<Vec<u8>>> {
    let mut buffers: Vec<Vec<u8>> = ranges.iter().map(|(_, bytes)| vec![0; *bytes]).collect();
    let mut requests: Vec<ReadRequest<'_>> = ranges
        .iter()
        .zip(&mut buffers)
        .map(|((offset, _), buffer)| ReadRequest { file, offset: *offset, buffer })
        .collect();
    let done = rings.read_many(&mut requests);
    done.into_iter().zip(buffers).map(|(done, buffer)| done.map(|()| buffer)).collect()
}

fn check(path: &Path, file_bytes: usize, ranges: &[(u64, usize)], found: Vec<Result<Vec<u8>>>) {
    assert_eq!(found.len(), ranges.len());
    for ((offset, bytes), found) in ranges.iter().zip(found) {
        let range = *offset as usize..*offset as usize + bytes;
        match found {
            Ok(found) => assert!(
                range.end <= file_bytes && found.iter().copied().eq(range.clone().map(byte_at)),
                "{range:?}"
            ),
            Err(Error::Corruption(c)) => {
                assert!(range.end > file_bytes, "{range:?}: {c}");
                assert_eq!((&*c.path, c.offset), (path, Some(*offset)));
            }
            Err(e) => panic!("{range:?}: {e}"),
        }
    }
}

fn ranges(count: u64, file_bytes: usize) -> Vec<(u64, usize)> {
    (0..count)
        .map(|n| {
            let drawn = (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let bytes = match drawn >> 60 {
                0..4 => 4096,
                4..14 => (drawn >> 20) as usize % 9000 + 1,
                14 => 300_000,
                _ => BYTES_MAX + 1,
            };
            // One of a hundred or so ends behind the file.
            ((drawn >> 8) % (file_bytes as u64 + 1000) / 7 * 7, bytes)
        })
        .collect()
}

#[test]
fn many_reads_are_those_of_one() {
    let bytes = (5 << 20) + 123;
    let written = Written::new("many", bytes);
    let file = written.open();
    for rings in [Rings::default(), rings_refused()] {
        for count in [1, 2, 16, DEPTH as u64, DEPTH as u64 + 1, 500] {
            let ranges = ranges(count, bytes);
            check(&written.0, bytes, &ranges, read(&rings, &file, &ranges));
        }
        let used = file.is_direct() && IoUring::new(2).is_ok() && !rings.refused.into_inner();
        assert_eq!(rings.idle.lock().len(), usize::from(used), "one thread needs one, again and again");
    }
}

#[test]
fn threads_read_by_rings_of_their_own() {
    let bytes = 3 << 20;
    let written = Written::new("threads", bytes);
    let (file, rings) = (written.open(), Rings::default());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (file, rings, path) = (&file, &rings, &written.0);
            scope.spawn(move || {
                for round in 0..30 {
                    let ranges = ranges(20 + thread * 7 + round, bytes);
                    check(path, bytes, &ranges, read(rings, file, &ranges));
                }
            });
        }
    });
    assert!(rings.idle.lock().len() <= 4);
}

#[test]
fn what_a_broken_ring_does_not_read_is_read_all_the_same() {
    let bytes = 1 << 20;
    let written = Written::new("broken", bytes);
    let (file, rings) = (written.open(), Rings::default());
    let Some(ring) = IoUring::new(DEPTH as u32).ok().filter(|_| file.is_direct()) else { return };
    // Its descriptor is now one of something that takes no entries.
    let other = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: both are open, and the ring's own is its alone. It never had an entry.
    assert!(unsafe { libc::dup2(other.as_raw_fd(), ring.as_raw_fd()) } >= 0);
    rings.put_back(Ring { ring, room: Aligned::default() });
    let ranges: Vec<(u64, usize)> = (0..20).map(|n| (n * 8191, 5000)).collect();
    check(&written.0, bytes, &ranges, read(&rings, &file, &ranges));
    assert_eq!(rings.idle.lock().len(), 0, "nobody takes it again");
}

#[test]
fn what_a_broken_ring_has_taken_is_waited_for() {
    let Ok(mut ring) = IoUring::new(4) else { return };
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut found = [0u8; 2];
    for (number, byte) in found.iter_mut().enumerate() {
        let read = opcode::Read::new(types::Fd(reader.as_raw_fd()), byte, 1).build().user_data(number as u64);
        // SAFETY: `found` outlives `complete`, which is what is tested.
        unsafe { ring.submission().push(&read) }.unwrap();
        if number == 0 {
            assert_eq!(ring.submit().unwrap(), 1);
        }
    }
    let other = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: both are open. The ring itself lives on, since its memory is mapped.
    assert!(unsafe { libc::dup2(other.as_raw_fd(), ring.as_raw_fd()) } >= 0);
    let (returned, returns) = mpsc::channel();
    let mut results = [0; 2];
    std::thread::scope(|scope| {
        let early = scope.spawn(move || {
            // There is nothing to read before that; who does not wait comes back at once.
            let early = returns.recv_timeout(Duration::from_millis(50)).is_ok();
            writer.write_all(&[7, 8]).unwrap();
            early
        });
        assert!(!complete(&mut ring, &mut results), "it did not take the second");
        // Refused where nobody listens any more.
        let _ = returned.send(());
        assert!(!early.join().unwrap(), "it came back before the first was read");
    });
    assert_eq!((results, found), ([1, 0], [7, 0]));
}
