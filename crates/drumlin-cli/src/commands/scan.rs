//! `scan`: the records of an interval, in key order or against it.
//!
//! 1. The interval is [from, to), cut to the prefix, in both directions; empty or inverted, it holds nothing.
//! 2. `--limit` counts from the end at which the scan begins.
//! 3. Raw records are written as they are; a key with a tab or a line end in it needs `--format jsonl`
//!    or `--hex`.
//! 4. What was read before an error is printed before it is reported.

use std::ffi::OsString;
use std::ops::Bound;

use crate::args::{Args, Interval, OutputFormat, Scan};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::open;
use crate::output::Output;

/// Records between two looks whether Ctrl-C was pressed.
const STRIDE: u64 = 1024;

pub fn run(args: &Args, scan: &Scan) -> Result<()> {
    let (form, asked) = (scan.interval.form, interval_of(&scan.interval)?);
    let (_db, keyspace) = open::read_keyspace(args)?;
    let mut out = Output::new();
    let Some(interval) = asked else {
        return out.finish();
    };
    let mut records = keyspace.range(interval)?;
    let format = scan.format.unwrap_or(if args.json { OutputFormat::Jsonl } else { OutputFormat::Raw });
    let mut line = Vec::new();
    let mut done = 0u64;
    let outcome = loop {
        if scan.limit.is_some_and(|limit| done >= limit) {
            break Ok(());
        }
        let next = if scan.reverse { records.next_back_ref() } else { records.next_ref() };
        let (key, value) = match next {
            Ok(None) => break Ok(()),
            Err(error) => break Err(Failure::from(error)),
            Ok(Some(record)) => record,
        };
        line.clear();
        let value = if scan.keys_only { None } else { Some(value) };
        match format {
            OutputFormat::Jsonl => form.push_record(&mut line, key, value),
            OutputFormat::Raw => {
                form.push_raw(&mut line, key);
                if let Some(value) = value {
                    line.push(b'\t');
                    line.extend_from_slice(value);
                }
            }
        }
        line.push(b'\n');
        out.bytes(&line)?;
        done += 1;
        if done.is_multiple_of(STRIDE)
            && let Err(failure) = interrupt::check()
        {
            break Err(failure);
        }
    };
    out.finish()?;
    outcome
}

/// Where a scan begins and ends.
type Ends = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The interval that was asked for; `None` if it can hold nothing.
pub fn interval_of(asked: &Interval) -> Result<Option<Ends>> {
    let bound = |given: &Option<OsString>| given.as_deref().map(|key| asked.form.bound(key)).transpose();
    let (from, to, prefix) = (bound(&asked.from)?, bound(&asked.to)?, bound(&asked.prefix)?);
    Ok(interval(from.as_deref(), to.as_deref(), prefix.as_deref()))
}

/// The keys in [from, to) that begin with `prefix`; `None` if there can be none.
fn interval(from: Option<&[u8]>, to: Option<&[u8]>, prefix: Option<&[u8]>) -> Option<Ends> {
    let prefix = prefix.unwrap_or_default();
    let start = from.unwrap_or_default().max(prefix).to_vec();
    let end = match (to.map(<[u8]>::to_vec), behind_prefix(prefix)) {
        (Some(to), Some(behind)) => Some(to.min(behind)),
        (to, behind) => to.or(behind),
    };
    match end {
        Some(end) if start >= end => None,
        Some(end) => Some((Bound::Included(start), Bound::Excluded(end))),
        None => Some((Bound::Included(start), Bound::Unbounded)),
    }
}

/// The first key behind all that begin with `prefix`; `None` if there is none behind.
fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut behind = prefix[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn interval_holds_exactly_the_keys_asked_for() {
        let parts: [&[u8]; 5] = [b"", b"a", b"b", b"\xfe", b"\xff"];
        let mut keys = BTreeSet::new();
        for a in parts {
            for b in parts {
                for c in parts {
                    keys.insert([a, b, c].concat());
                }
            }
        }
        let choices: Vec<Option<&[u8]>> =
            std::iter::once(None).chain(keys.iter().step_by(3).map(|k| Some(&k[..]))).collect();
        for from in &choices {
            for to in &choices {
                for prefix in &choices {
                    let expected: Vec<_> = keys
                        .iter()
                        .filter(|k| from.is_none_or(|f| &k[..] >= f) && to.is_none_or(|t| &k[..] < t))
                        .filter(|k| k.starts_with(prefix.unwrap_or_default()))
                        .collect();
                    let found: Vec<_> = match interval(*from, *to, *prefix) {
                        Some(interval) => keys.range(interval).collect(),
                        None => Vec::new(),
                    };
                    assert_eq!(found, expected, "{from:?} {to:?} {prefix:?}");
                }
            }
        }
    }
}
