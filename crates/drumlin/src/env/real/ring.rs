//! Reads past the page cache, of which the device has several at a time: a ring that the system takes requests from.
//!
//! Place: `RealFs::read_many`, for files that are read directly. The page cache can be asked to fetch, and has what it fetched;
//! past it one thread has one read under way, unless it asks so.
//!
//! Invariants:
//! 1. No read is under way when [`Rings::read`] returns or unwinds, however it ends: what the system writes to is memory of the
//!    ring's own, and a ring from which something has not come back is not given up before it has.
//! 2. Whatever a ring does not read is read by a call: a system that has no rings, or refuses them to this process (as the rules
//!    of many containers do), gives the same bytes, one read after the other. It is asked once.
//!
//! Concurrency: a ring is one thread's while it reads; idle ones lie in a list under a lock, which is held for a push or a pop.
//! There are as many as reads of many keys are made at once, [`IDLE_MAX`] of them kept, each with [`BYTES_MAX`] at most.
//!
//! Tests: `ring_tests.rs`.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::{EnterFlags, IoUring, opcode, types};
use parking_lot::Mutex;

use super::super::{ReadRequest, ends_early};
use super::file::{Aligned, read_direct, whole_units};
use crate::error::{Error, Result};

/// Reads that a ring has under way at a time, at most.
const DEPTH: usize = 64;
/// Bytes that they read together, at most.
const BYTES_MAX: usize = 256 << 10;
/// Rings that are kept for later.
const IDLE_MAX: usize = 16;

/// What is read for a request.
struct Unit<'a> {
    /// Which.
    number: usize,
    /// Opened for direct reads.
    file: BorrowedFd<'a>,
    /// Aligned, as such reads are.
    offset: u64,
    /// Likewise, and at most [`BYTES_MAX`].
    bytes: usize,
}

/// The rings of a file system. See the module.
#[derive(Default)]
pub(super) struct Rings {
    idle: Mutex<Vec<Ring>>,
    /// The system has none for this process. Relaxed: whoever does not see it asks once more.
    refused: AtomicBool,
}

/// What has become of a ring.
enum Outcome {
    Well,
    /// It did not take all.
    Broken,
    /// It does not read: systems older than such reads have rings, too.
    Refused,
}

struct Ring {
    ring: IoUring,
    room: Aligned,
}

impl Rings {
    /// As [`FileSystem::read_many`](crate::env::FileSystem::read_many), of files that all have a descriptor.
    pub fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Vec<Result<()>> {
        let mut units = Vec::with_capacity(requests.len());
        for (number, request) in requests.iter().enumerate() {
            let (offset, bytes) = whole_units(request.offset, request.buffer.len());
            if let Some(file) = request.file.descriptor()
                && bytes <= BYTES_MAX
            {
                units.push(Unit { number, file, offset, bytes });
            }
        }
        let mut done = vec![false; requests.len()];
        self.read(&units, |unit, found| {
            let ReadRequest { buffer, offset, .. } = &mut requests[unit.number];
            let skip = (*offset - unit.offset) as usize;
            if let Some(found) = found.get(skip..skip + buffer.len()) {
                buffer.copy_from_slice(found);
                done[unit.number] = true;
            }
        });
        requests
            .iter_mut()
            .zip(done)
            .map(|(request, done)| if done { Ok(()) } else { by_call(request) })
            .collect()
    }

    /// Reads all, and calls `take` with each that was read and what there is of it, which is less than was asked for where the file
    /// ends. Those that it is not called for were not read.
    fn read(&self, reads: &[Unit<'_>], mut take: impl FnMut(&Unit<'_>, &[u8])) {
        let mut begin = 0;
        while begin < reads.len() {
            let Some(mut ring) = self.ring() else { return };
            let (mut end, mut bytes) = (begin, 0);
            while end < reads.len() && end - begin < DEPTH && bytes + reads[end].bytes <= BYTES_MAX {
                bytes += reads[end].bytes;
                end += 1;
            }
            match ring.read(&reads[begin..end], &mut take) {
                Outcome::Well => self.put_back(ring),
                Outcome::Broken => {}
                Outcome::Refused => self.refused.store(true, Ordering::Relaxed),
            }
            begin = end;
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
            Ok(ring) => Some(Ring { ring, room: Aligned::default() }),
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
    /// [`DEPTH`] reads at most.
    fn read(&mut self, reads: &[Unit<'_>], take: &mut impl FnMut(&Unit<'_>, &[u8])) -> Outcome {
        let room = self.room.of(reads.iter().map(|read| read.bytes).sum());
        let mut results = [0; DEPTH];
        let mut rest = &mut *room;
        for (number, read) in reads.iter().enumerate() {
            let (place, behind) = rest.split_at_mut(read.bytes);
            rest = behind;
            let place = place.as_mut_ptr();
            let entry = opcode::Read::new(types::Fd(read.file.as_raw_fd()), place, read.bytes as u32)
                .offset(read.offset)
                .build()
                .user_data(number as u64);
            // SAFETY: the file stays open and the room stays where it is, and nobody looks at it, until `complete` is done, which comes
            // back only when the system is done with every entry that it has taken. Tests: many_reads_are_those_of_one.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                unreachable!("the ring is empty, and has room for DEPTH entries");
            }
        }
        let whole = complete(&mut self.ring, &mut results[..reads.len()]);
        let mut at = 0;
        for (number, read) in reads.iter().enumerate() {
            if let Ok(found) = usize::try_from(results[number])
                && found > 0
            {
                take(read, &room[at..at + found.min(read.bytes)]);
            }
            at += read.bytes;
        }
        match whole {
            false => Outcome::Broken,
            true if results[..reads.len()].iter().all(|result| *result == -libc::EINVAL) => Outcome::Refused,
            true => Outcome::Well,
        }
    }
}

/// Reads a request past the page cache by a call of its own.
fn by_call(request: &mut ReadRequest<'_>) -> Result<()> {
    let ReadRequest { file, offset, buffer } = request;
    if let Some(descriptor) = file.descriptor() {
        match read_direct(descriptor, buffer, *offset) {
            // The file finds out that it is to be read in another way.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
            Err(e) => return Err(Error::io("read", file.path(), e)),
            Ok(found) if found < buffer.len() => {
                return Err(ends_early(file.path(), *offset, buffer.len(), *offset + found as u64));
            }
            Ok(_) => return Ok(()),
        }
    }
    file.read_exact_at(buffer, *offset)
}

/// Hands the entries of the ring to the system and waits until it is done with all that it took. False if it did not take all.
fn complete(ring: &mut IoUring, results: &mut [i32]) -> bool {
    let mut left = results.len();
    let mut whole = true;
    while left > 0 {
        if whole {
            whole = match ring.submit_and_wait(left) {
                Ok(_) => true,
                Err(e) => e.kind() == io::ErrorKind::Interrupted,
            };
        } else {
            // What it has taken will come back all the same, and is waited for; what it has not goes with the ring.
            if left <= ring.submission().len() {
                return false;
            }
            // SAFETY: hands over no entry and no memory. Test: what_a_broken_ring_has_taken_is_waited_for. Whatever it says, nothing may
            // be given up before it has come back.
            let _ =
                unsafe { ring.submitter().enter::<libc::sigset_t>(0, 1, EnterFlags::GETEVENTS.bits(), None) };
        }
        for done in ring.completion() {
            results[done.user_data() as usize] = done.result();
            left -= 1;
        }
    }
    whole
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
