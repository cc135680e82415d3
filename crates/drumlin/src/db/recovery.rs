//! What opening the store found of the log of the session before.
//!
//! Place: made by `open`, and by `verify` of a log at rest, from what the log's scan found; part of `Stats`, and the
//! remarks of a `VerifyReport`.

use std::fmt;
use std::path::PathBuf;

use crate::log::Recovered;

/// How the session before ended, as its log shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// True if the store was closed cleanly, or was never open.
    pub clean: bool,
    /// Log position at which the log ends, or was cut.
    pub end: u64,
    /// Writes that had not been finished when the process died; never acknowledged.
    pub unfinished: u64,
    /// Where a power loss cut the log: file, byte, and what is wrong there.
    pub cut: Option<(PathBuf, u64, String)>,
    /// Whole writes behind the cut, which do not count.
    pub dropped_writes: u64,
    /// Their bytes in the log.
    pub dropped_bytes: u64,
}

impl RecoveryReport {
    pub(super) fn of(found: &Recovered) -> RecoveryReport {
        let last = found.sessions.last();
        let cut = found.torn.as_ref().filter(|_| last.is_some_and(|session| !session.same_boot));
        RecoveryReport {
            clean: found.clean,
            end: found.end.0,
            unfinished: last.map_or(0, |session| session.holes),
            cut: cut.map(|hole| (hole.path.clone(), hole.offset, hole.what.clone())),
            dropped_writes: found.dropped_writes,
            dropped_bytes: found.dropped_bytes,
        }
    }

    /// What whoever asks whether the store is sound should know although nothing is provably wrong.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.unfinished > 0 {
            remarks.push(format!(
                "the process died with {} unfinished in the log; an acknowledged write of which more than a byte has changed since would look the same",
                plural(self.unfinished, "write")
            ));
        }
        if let (Some((path, offset, what)), true) = (&self.cut, self.dropped_writes > 0) {
            remarks.push(format!(
                "the log stops at LSN {}, in {} at byte {offset} ({what}), and {} behind it ({} bytes) {} not taken: a power loss leaves that of writes that were not synced, but so does damage",
                self.end,
                path.display(),
                plural(self.dropped_writes, "whole write"),
                self.dropped_bytes,
                if self.dropped_writes == 1 { "is" } else { "are" },
            ));
        }
        remarks
    }
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = if self.clean { "closed cleanly" } else { "not closed" };
        write!(f, "{ended} at LSN {}", self.end)?;
        self.remarks().iter().try_for_each(|remark| write!(f, "; {remark}"))
    }
}

fn plural(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
