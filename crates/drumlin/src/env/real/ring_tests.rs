//! Rings against the bytes of files, against the system's refusals, and broken on purpose.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::*;
use crate::env::listed::read_listed;
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

    fn open(&self) -> Arc<dyn ReadableFile> {
        Arc::new(RealReadable::open(&self.0, ReadMode::Direct).unwrap())
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

/// What the ranges come to, so many read at a time.
fn read(
    rings: &Rings,
    file: &Arc<dyn ReadableFile>,
    ranges: &[(u64, usize)],
    together: usize,
) -> Vec<Result<Vec<u8>>> {
    read_listed(|reads| rings.read_each(reads), file, ranges, together)
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
            for together in [1, 2, 5, 1000] {
                check(&written.0, bytes, &ranges, read(&rings, &file, &ranges, together));
            }
        }
        let used = file.descriptor().is_some() && IoUring::new(2).is_ok() && !rings.refused.into_inner();
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
                    check(path, bytes, &ranges, read(rings, file, &ranges, 1 + round as usize));
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
    let Some(ring) = IoUring::new(DEPTH as u32).ok().filter(|_| file.descriptor().is_some()) else { return };
    // Its descriptor is now one of something that takes no entries.
    let other = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: both are open, and the ring's own is its alone. It never had an entry.
    assert!(unsafe { libc::dup2(other.as_raw_fd(), ring.as_raw_fd()) } >= 0);
    rings.put_back(Ring { ring, memory: Aligned::default() });
    let ranges: Vec<(u64, usize)> = (0..20).map(|n| (n * 8191, 5000)).collect();
    check(&written.0, bytes, &ranges, read(&rings, &file, &ranges, 20));
    let idle = rings.idle.into_inner();
    assert!(
        idle.len() == 1 && idle[0].ring.submit().is_ok(),
        "another read what came behind it, and is kept"
    );
}

/// A flight with two reads of an empty pipe; its ring breaks before the second, or does not.
fn what_was_taken_is_waited_for(breaks: bool) {
    let Ok(mut ring) = IoUring::new(4) else { return };
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut found = [0u8; 2];
    let mut flight = Flight::new(&mut ring);
    for (number, byte) in found.iter_mut().enumerate() {
        let read = opcode::Read::new(types::Fd(reader.as_raw_fd()), byte, 1).build().user_data(number as u64);
        if breaks && number == 1 {
            let other = std::fs::File::open("/dev/null").unwrap();
            // SAFETY: both are open. The ring itself lives on, since its memory is mapped.
            assert!(unsafe { libc::dup2(other.as_raw_fd(), flight.ring.as_raw_fd()) } >= 0);
        }
        // SAFETY: `found` outlives the flight, which is what is tested.
        unsafe { flight.begin(&read) };
        assert_eq!(flight.whole, !breaks || number == 0);
    }
    let (returned, returns) = mpsc::channel();
    std::thread::scope(|scope| {
        let early = scope.spawn(move || {
            // There is nothing to read before that; who does not wait comes back at once.
            let early = returns.recv_timeout(Duration::from_millis(50)).is_ok();
            writer.write_all(&[7, 8]).unwrap();
            early
        });
        drop(flight);
        // Refused where nobody listens any more.
        let _ = returned.send(());
        assert!(!early.join().unwrap(), "it came back before the first was read");
    });
    found.sort_unstable();
    assert_eq!(found, if breaks { [0, 7] } else { [7, 8] }, "what it took, and no more");
}

#[test]
fn what_a_broken_ring_has_taken_is_waited_for() {
    what_was_taken_is_waited_for(true);
}

/// So it is where whoever asked for the reads panics.
#[test]
fn what_is_under_way_when_a_flight_goes_is_waited_for() {
    what_was_taken_is_waited_for(false);
}

#[test]
fn pages_of_a_room_are_of_one_read() {
    let mut room = Room(u64::MAX);
    let mut taken = Vec::new();
    for step in 0..10_000u64 {
        let drawn = (step + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let pages = if drawn % 50 == 0 { DEPTH } else { 1 + drawn as usize % 9 };
        let held = taken.iter().fold(0u64, |held, (first, pages)| held | Room::bits(*first, *pages));
        assert_eq!(room.0, !held);
        let fits = (0..=DEPTH - pages).find(|first| held & Room::bits(*first, pages) == 0);
        let first = room.take(pages);
        assert_eq!(first, fits, "{pages} pages beside {held:064b}");
        taken.extend(first.map(|first| (first, pages)));
        if first.is_none() || drawn % 3 == 0 {
            let (first, pages) = taken.swap_remove(drawn as usize % taken.len());
            room.give_back(first, pages);
        }
    }
}

#[test]
fn a_ring_is_not_kept_where_who_asked_panics() {
    /// Panics at the first that it is given.
    struct Panics(Vec<Read>);
    impl Reads for Panics {
        fn next(&mut self) -> Option<Read> {
            self.0.pop()
        }
        fn take(&mut self, _: usize, _: Result<&[u8]>) {
            panic!("at the first");
        }
    }
    let bytes = 1 << 20;
    let written = Written::new("panics", bytes);
    let (file, rings) = (written.open(), Rings::default());
    if IoUring::new(2).is_err() || file.descriptor().is_none() {
        return;
    }
    let reads = (0..40).map(|tag| Read { file: file.clone(), offset: tag as u64 * 8192, bytes: 4096, tag });
    let mut panics = Panics(reads.collect());
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rings.read_each(&mut panics)));
    assert!(caught.is_err());
    assert_eq!(rings.idle.lock().len(), 0, "nobody takes it again");
}
