//! What the process has used: processor time, device traffic as the system counts it, memory.
//!
//! Place: `drive` takes one before and one after; `report` shows the difference, and sets it beside what went through the
//! engine's files.
//!
//! 1. What the system does not tell is `None`, never zero.

use std::fs;
use std::time::Duration;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time of all threads, the system's share included.
    pub processor: Duration,
    /// Bytes that left the page cache for a device.
    pub written: Option<u64>,
    /// Bytes that came from a device.
    pub read: Option<u64>,
    /// Resident bytes, now.
    pub resident: Option<u64>,
    /// The most there were resident since the peak was forgotten last.
    pub resident_peak: Option<u64>,
}

impl Usage {
    /// What was used until now.
    pub fn now() -> Usage {
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kib = |name| field(&status, name).map(|kib| kib * 1024);
        Usage {
            processor: Duration::new(used.tv_sec as u64, used.tv_nsec as u32),
            written: field(&io, "write_bytes"),
            read: field(&io, "read_bytes"),
            resident: kib("VmRSS"),
            resident_peak: kib("VmHWM"),
        }
    }

    /// Lets the peak of resident memory begin anew; where the system has no such thing, it goes on since the process began.
    pub fn forget_peak() {
        let _ = fs::write("/proc/self/clear_refs", "5");
    }

    /// What came since `before`; memory is as it is now.
    pub fn since(&self, before: &Usage) -> Usage {
        let less = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Usage {
            processor: self.processor.saturating_sub(before.processor),
            written: less(self.written, before.written),
            read: less(self.read, before.read),
            ..*self
        }
    }
}

/// The number behind `name:` in a file of lines.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "rchar: 5\nread_bytes: 12\nVmRSS:\t  34 kB\n";
        assert_eq!(field(text, "read_bytes"), Some(12));
        assert_eq!(field(text, "VmRSS"), Some(34));
        assert_eq!(field(text, "read"), None);
    }

    #[test]
    fn work_takes_time_and_memory_is_known() {
        let before = Usage::now();
        let mut sum = 0u64;
        while Usage::now().since(&before).processor < Duration::from_millis(5) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(Usage::now().resident.is_none_or(|bytes| bytes > 0));
    }

    #[test]
    fn a_forgotten_peak_is_that_of_what_comes_after() {
        const BYTES: usize = 256 << 20;
        drop(std::hint::black_box(vec![1u8; BYTES]));
        let before = Usage::now();
        Usage::forget_peak();
        let after = Usage::now();
        assert!(before.resident_peak.is_none_or(|bytes| bytes > BYTES as u64));
        let (Some(resident), Some(peak)) = (after.resident, after.resident_peak) else { return };
        assert!(peak < resident + (BYTES as u64 / 2), "{after:?}");
    }
}
