//! Frames: the machine's memory, asked for before a workload that writes, so that no figure has what that costs.
//!
//! Place: `session` has it done before each workload that writes, where `--touch` says so.
//!
//! The host of a virtual machine gives it memory when it is used first, and takes back what lies free for some seconds. Then
//! whoever comes first pays: 2.1 to 2.4 s/GiB on huge pages here, where the same costs 0.1 s afterwards. A store that fills a
//! gibibyte at 1.7 million puts a second would be measured at half of that, now and then.
//!
//! Tests: below.

use std::fs;

use memmap2::{Advice, MmapMut};

use crate::engine::Result;

/// Bytes of the smallest page.
const PAGE: usize = 4096;

/// Bytes that nobody uses, not even for what is cached of files, if the system tells.
fn free() -> Option<usize> {
    let memory = fs::read_to_string("/proc/meminfo").ok()?;
    let line = memory.lines().find_map(|line| line.strip_prefix("MemFree:"))?;
    line.split_whitespace().next()?.parse::<usize>().ok()?.checked_mul(1 << 10)
}

/// Uses so many bytes, at most most of what lies free, and gives them back. How many it used.
pub fn touch(bytes: usize) -> Result<usize> {
    let bytes = bytes.min(free().map_or(bytes, |free| free / 4 * 3));
    if bytes == 0 {
        return Ok(0);
    }
    let mut map = MmapMut::map_anon(bytes)?;
    // Refused by kernels without: then on small ones.
    let _ = map.advise(Advice::HugePage);
    map.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_used_as_was_asked_for() {
        assert_eq!(touch(0).expect("touches"), 0);
        assert_eq!(touch(1 << 20).expect("touches"), 1 << 20);
    }
}
