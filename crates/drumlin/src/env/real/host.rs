//! Boot id, clock, random numbers and threads of the operating system.
//!
//! Place: parts of [`super::super::Env::real`].
//!
//! Invariants: the boot id is the kernel's, or, where there is none, new in every process (so
//! that every open counts as one after a power loss, the careful choice).

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::super::{Clock, Random, Spawner, Thread};
use crate::error::{Error, Result};

/// The kernel's boot id; where it cannot be read, 16 random bytes drawn once per process.
pub(super) fn boot_id() -> [u8; 16] {
    static FALLBACK: OnceLock<[u8; 16]> = OnceLock::new();
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    parse_uuid(&text).unwrap_or_else(|| {
        *FALLBACK.get_or_init(|| {
            let mut id = [0; 16];
            for half in id.chunks_exact_mut(8) {
                half.copy_from_slice(&RealRandom.next_u64().to_le_bytes());
            }
            id
        })
    })
}

/// The bytes of "4af836d0-492a-4111-8637-dcd8205e667c".
pub(super) fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u32> = text.trim().chars().filter(|c| *c != '-').map_while(|c| c.to_digit(16)).collect();
    let digits: [u32; 32] = digits.try_into().ok()?;
    Some(std::array::from_fn(|i| (digits[2 * i] << 4 | digits[2 * i + 1]) as u8))
}

/// The system's monotone clock, counted from its making, and its wall clock.
pub(in super::super) struct RealClock {
    start: Instant,
}

impl RealClock {
    pub(in super::super) fn new() -> RealClock {
        RealClock { start: Instant::now() }
    }
}

impl Clock for RealClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall(&self) -> Duration {
        // A clock set before 1970 reads as 1970.
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// The kernel's random numbers; slow, for secrets and salts.
pub(in super::super) struct RealRandom;

impl Random for RealRandom {
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        match random_device().and_then(|mut device| device.read_exact(&mut bytes)) {
            Ok(()) => u64::from_le_bytes(bytes),
            // No device (a bare container): the standard library's hasher keys are the kernel's
            // randomness too, drawn once per thread; the counter keeps the draws apart.
            Err(_) => {
                static DRAWS: AtomicU64 = AtomicU64::new(0);
                RandomState::new().hash_one((DRAWS.fetch_add(1, Ordering::Relaxed), Instant::now()))
            }
        }
    }
}

/// The random device, opened once.
fn random_device() -> io::Result<&'static File> {
    static DEVICE: OnceLock<File> = OnceLock::new();
    if let Some(device) = DEVICE.get() {
        return Ok(device);
    }
    let opened = File::open("/dev/urandom")?;
    Ok(DEVICE.get_or_init(|| opened))
}

/// Threads of the operating system.
pub(in super::super) struct RealSpawner;

impl Spawner for RealSpawner {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Thread>> {
        let handle = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(body)
            .map_err(|e| Error::io("start thread", Path::new(name), e))?;
        Ok(Box::new(RealThread { handle }))
    }
}

struct RealThread {
    handle: JoinHandle<()>,
}

impl Thread for RealThread {
    fn join(self: Box<Self>) -> bool {
        self.handle.join().is_ok()
    }
}
