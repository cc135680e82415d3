//! The machine: what figures are true of.
//!
//! Place: kept with every figure by the project's results and by the papers' figures.
//!
//! 1. Nothing of it names the machine or somebody's place on it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::engine::Result;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// How many it has.
    pub cores: usize,
    /// Memory, in GiB.
    pub memory_gib: u64,
    /// The kernel and its release.
    pub system: String,
    /// The file system under the stores.
    pub files: String,
}

impl Machine {
    /// This one, with stores in `directory`.
    pub fn here(directory: &Path) -> Result<Machine> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (processors, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
        let field = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(|rest| rest.trim_start_matches([' ', '\t', ':']).trim().to_string())
        };
        let kib: u64 = field(&memory, "MemTotal")
            .and_then(|text| text.split_whitespace().next()?.parse().ok())
            .unwrap_or_default();
        let release: String = read("/proc/sys/kernel/osrelease")
            .trim()
            .chars()
            .take_while(|c| *c == '.' || c.is_ascii_digit())
            .collect();
        let directory =
            fs::canonicalize(directory).map_err(|e| format!("find {}: {e}", directory.display()))?;
        Ok(Machine {
            processor: field(&processors, "model name").unwrap_or_else(|| std::env::consts::ARCH.into()),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            memory_gib: (kib + (1 << 19)) >> 20,
            system: format!("Linux {}", release.trim_end_matches('.')),
            files: file_system(&read("/proc/self/mounts"), &directory),
        })
    }

    /// As kept.
    pub fn to_json(&self) -> Value {
        let Machine { processor, cores, memory_gib, system, files } = self;
        json!({"processor": processor, "cores": cores, "memory_gib": memory_gib, "system": system, "files": files})
    }

    /// In words.
    pub fn words(value: &Value) -> String {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_string();
        format!(
            "{}, {} cores, {} GiB of memory, {}, {}",
            text("processor"),
            value["cores"],
            value["memory_gib"],
            text("system"),
            text("files")
        )
    }
}

/// The kind of file system that `directory` is on, from a list of mounts.
fn file_system(mounts: &str, directory: &Path) -> String {
    let mut best = (0, "unknown");
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(at), Some(kind)) = (words.next(), words.next()) else { continue };
        // The last of several at one place is the one that is seen.
        if directory.starts_with(at) && at.len() >= best.0 {
            best = (at.len(), kind);
        }
    }
    best.1.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_on_the_innermost_mount() {
        let mounts =
            "a / ext4 rw 0 0\nb /tmp tmpfs rw 0 0\nc /tmp/deep xfs rw 0 0\nd /tmpfiles btrfs rw 0 0\n";
        for (path, kind) in
            [("/tmp/x", "tmpfs"), ("/tmp/deep/x", "xfs"), ("/tmp-other", "ext4"), ("/", "ext4")]
        {
            assert_eq!(file_system(mounts, Path::new(path)), kind, "{path}");
        }
    }

    #[test]
    fn this_machine_is_known() {
        let here = Machine::here(&std::env::temp_dir()).expect("a directory");
        assert!(here.cores > 0 && here.memory_gib > 0 && !here.processor.is_empty(), "{here:?}");
        assert!(Machine::words(&here.to_json()).contains(&here.processor));
    }
}
