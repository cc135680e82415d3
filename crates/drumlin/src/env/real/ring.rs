//! Reads past the page cache, of which the device has several at a time: a ring that the system takes requests from.
//!
//! Place: `RealFs::read_each`, for files that are read directly. The page cache can be asked to fetch, and has what it fetched;
//! past it one thread has one read under way, unless it asks so.
//!
//! Whoever asks for reads looks for the next while others are under way, and takes what came of one while the device is at the rest: it is
//! idle only where nothing is asked for, or whoever asks is long about it. The first few are handed to the system one by one, so that it begins
//! when there are two, later ones by eights, or with the next wait.
//!
//! Invariants:
//! 1. No read is under way when [`Ring::read`] returns or unwinds, however it ends: what the system writes to is memory of the
//!    ring's own, and a ring from which something has not come back is not given up before it has ([`Flight`]).
//! 2. No page of that memory is of two reads under way, and nobody looks at one before its read has come back ([`Room`]).
//! 3. Whatever a ring does not read is read by a call: a system that has no rings, or refuses them to this process (as the rules
//!    of many containers do), gives the same bytes, one read after the other. It is asked once.
//!
//! Concurrency: a ring is one thread's while it reads; idle ones lie in a list under a lock, which is held for a push or a pop.
//! There are as many as reads of many keys are made at once, [`IDLE_MAX`] of them kept, each with [`BYTES_MAX`].
//!
//! Tests: `ring_tests.rs`.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::squeue::Entry;
use io_uring::{EnterFlags, IoUring, opcode, types};
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::super::{Read, Reads, ends_early};
use super::file::{ALIGNMENT, Aligned, read_direct, whole_units};
use crate::error::{Error, Result};

/// Reads that a ring has under way at a time, at most: as many as it has pages, each a bit of a word.
const DEPTH: usize = u64::BITS as usize;
/// Bytes of a page.
const PAGE: usize = ALIGNMENT as usize;
/// Bytes that they read together, at most.
const BYTES_MAX: usize = DEPTH * PAGE;
/// So many reads are handed to the system one by one, then as many at once.
const AT_ONCE: usize = 8;
/// Rings that are kept for later.
const IDLE_MAX: usize = 16;

/// The rings of a file system. See the module.
#[derive(Default)]
pub(super) struct Rings {
    idle: Mutex<Vec<Ring>>,
    /// The system has none for this process. Relaxed: whoever does not see it asks once more.
    refused: AtomicBool,
}

/// What has become of a ring.
#[derive(PartialEq, Eq)]
enum Outcome {
    Well,
    /// It did not take all.
    Broken,
    /// It does not read: systems older than such reads have rings, too.
    Refused,
}

struct Ring {
    ring: IoUring,
    memory: Aligned,
}

/// A read under way.
struct UnderWay {
    read: Read,
    /// Of what it reads, so many bytes lie before what was asked for.
    skip: usize,
    pages: usize,
}

impl Rings {
    /// As [`FileSystem::read_each`](crate::env::FileSystem::read_each).
    pub fn read_each(&self, reads: &mut dyn Reads) {
        while let Some(first) = reads.next() {
            // One alone is sooner read by a call.
            let Some(second) = reads.next() else {
                by_call(&first, reads);
                continue;
            };
            let Some(mut ring) = self.ring() else {
                by_call(&first, reads);
                by_call(&second, reads);
                continue;
            };
            match ring.read([second, first].into(), reads) {
                Outcome::Well => self.put_back(ring),
                Outcome::Broken => {}
                Outcome::Refused => self.refused.store(true, Ordering::Relaxed),
            }
        }
    }

    fn ring(&self) -> Option<Ring> {
        if let Some(idle) = self.idle.lock().pop() {
            return Some(idle);
        }
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        match IoUring::new(DEPTH as u32) {
            Ok(ring) => Some(Ring { ring, memory: Aligned::default() }),
            Err(e) => {
                // Not where too many files are open, or memory is short: that passes.
                let refused = matches!(
                    e.raw_os_error(),
                    Some(libc::ENOSYS | libc::EPERM | libc::EACCES | libc::EINVAL)
                );
                self.refused.fetch_or(refused, Ordering::Relaxed);
                None
            }
        }
    }

    fn put_back(&self, ring: Ring) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(ring);
        }
    }
}

impl Ring {
    /// Reads what is `waiting`, the last first, and what is asked for then, until nothing is, or the ring breaks. All that was begun is over
    /// then, and taken.
    fn read(&mut self, mut waiting: SmallVec<[Read; 2]>, reads: &mut dyn Reads) -> Outcome {
        let memory = self.memory.of(BYTES_MAX).as_mut_ptr();
        let mut room = Room(u64::MAX);
        let mut under_way = [const { None::<UnderWay> }; DEPTH];
        let (mut done, mut refused) = (0u64, 0);
        let mut flight = Flight::new(&mut self.ring);
        loop {
            while flight.whole
                && let Some(read) = waiting.pop().or_else(|| reads.next())
            {
                let (offset, bytes) = whole_units(read.offset, read.bytes);
                let Some(file) = read.file.descriptor().filter(|_| (1..=BYTES_MAX).contains(&bytes)) else {
                    by_call(&read, reads);
                    continue;
                };
                let pages = bytes / PAGE;
                let Some(page) = room.take(pages) else {
                    waiting.push(read);
                    break;
                };
                // SAFETY: `room` has given these pages to this read alone.
                let place = unsafe { memory.add(page * PAGE) };
                let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), place, bytes as u32)
                    .offset(offset)
                    .build()
                    .user_data(page as u64);
                under_way[page] = Some(UnderWay { skip: (read.offset - offset) as usize, pages, read });
                // SAFETY: the file stays open with what is under way, and the memory stays where it is, and nobody looks at these pages,
                // until the flight says that they have come back, or is over. Test: many_reads_are_those_of_one.
                unsafe { flight.begin(&entry) };
            }
            if flight.is_over() {
                break;
            }
            for (page, result) in flight.wait() {
                let Some(UnderWay { read, skip, pages }) = under_way[page].take() else { continue };
                done += 1;
                let found = usize::try_from(result).unwrap_or(0).min(pages * PAGE);
                // SAFETY: the system has written so many bytes there, and is done with them.
                let found = unsafe { std::slice::from_raw_parts(memory.add(page * PAGE), found) };
                match found.get(skip..skip + read.bytes) {
                    Some(found) => reads.take(read.tag, Ok(found)),
                    None => by_call(&read, reads),
                }
                // Not where it is the file that has no direct reads, as has turned out then.
                refused += u64::from(result == -libc::EINVAL && read.file.descriptor().is_some());
                room.give_back(page, pages);
            }
        }
        let whole = flight.whole;
        drop(flight);
        let left = under_way.into_iter().flatten().map(|under_way| under_way.read);
        left.chain(waiting).for_each(|read| by_call(&read, reads));
        match whole {
            false => Outcome::Broken,
            true if done > 0 && refused == done => Outcome::Refused,
            true => Outcome::Well,
        }
    }
}

/// Pages of a ring's memory that are of no read under way, a bit for each.
struct Room(u64);

impl Room {
    /// The first of so many, one behind the other, if there are. 1 to [`DEPTH`].
    fn take(&mut self, pages: usize) -> Option<usize> {
        let mut starts = self.0;
        for _ in 1..pages {
            starts &= starts >> 1;
        }
        let first = starts.trailing_zeros() as usize;
        (starts != 0).then(|| {
            self.0 &= !Room::bits(first, pages);
            first
        })
    }

    fn give_back(&mut self, first: usize, pages: usize) {
        self.0 |= Room::bits(first, pages);
    }

    fn bits(first: usize, pages: usize) -> u64 {
        (u64::MAX >> (DEPTH - pages)) << first
    }
}

/// What a ring was given and has not given back. Dropped, it waits for all that the system has taken.
struct Flight<'r> {
    ring: &'r mut IoUring,
    /// Given and not come back.
    left: usize,
    /// The system took whatever it was handed so far.
    whole: bool,
}

impl<'r> Flight<'r> {
    fn new(ring: &'r mut IoUring) -> Flight<'r> {
        Flight { ring, left: 0, whole: true }
    }

    /// Gives it an entry, and hands it over, but that it may wait for a few others.
    ///
    /// # Safety
    /// What the entry leads to stays as the system needs it until `wait` has told of it, or the flight was dropped. At most [`DEPTH`]
    /// entries are left.
    unsafe fn begin(&mut self, entry: &Entry) {
        // SAFETY: as the caller says.
        if unsafe { self.ring.submission().push(entry) }.is_err() {
            unreachable!("a ring has room for DEPTH entries");
        }
        self.left += 1;
        if self.left <= AT_ONCE || self.ring.submission().len() >= AT_ONCE {
            self.whole = took(self.ring.submit());
        }
    }

    /// True if the system has nothing of it.
    fn is_over(&mut self) -> bool {
        // What a broken ring has not taken goes with it.
        self.left == 0 || !self.whole && self.left <= self.ring.submission().len()
    }

    /// Hands over the rest and waits until something has come back; which, with its result. It may be nothing.
    fn wait(&mut self) -> SmallVec<[(usize, i32); DEPTH]> {
        if self.whole {
            self.whole = took(self.ring.submit_and_wait(1));
        } else {
            // What it has taken will come back all the same, and is waited for.
            // SAFETY: hands over no entry and no memory. Test: what_a_broken_ring_has_taken_is_waited_for. Whatever it says, nothing may
            // be given up before it has come back.
            let _ = unsafe {
                self.ring.submitter().enter::<libc::sigset_t>(0, 1, EnterFlags::GETEVENTS.bits(), None)
            };
        }
        let back: SmallVec<[_; DEPTH]> =
            self.ring.completion().map(|done| (done.user_data() as usize, done.result())).collect();
        self.left -= back.len();
        back
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        while !self.is_over() {
            self.wait();
        }
    }
}

/// False if the system did not take what it was handed.
fn took(handed: io::Result<usize>) -> bool {
    match handed {
        Ok(_) => true,
        Err(e) => e.kind() == io::ErrorKind::Interrupted,
    }
}

/// Reads past the page cache by a call of its own.
fn by_call(read: &Read, reads: &mut dyn Reads) {
    let mut buffer = vec![0; read.bytes];
    let found = call(read, &mut buffer);
    reads.take(read.tag, found.map(|()| &buffer[..]));
}

fn call(Read { file, offset, bytes, .. }: &Read, buffer: &mut [u8]) -> Result<()> {
    if let Some(descriptor) = file.descriptor() {
        match read_direct(descriptor, buffer, *offset) {
            // The file finds out that it is to be read in another way.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
            Err(e) => return Err(Error::io("read", file.path(), e)),
            Ok(found) if found < *bytes => {
                return Err(ends_early(file.path(), *offset, *bytes, *offset + found as u64));
            }
            Ok(_) => return Ok(()),
        }
    }
    file.read_exact_at(buffer, *offset)
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
