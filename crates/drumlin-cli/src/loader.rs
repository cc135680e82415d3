//! Records into a keyspace, one after the other, in file order.
//!
//! Place: used by the command `load` and by `tour`; calls `input` for records and the store to put them.
//!
//! 1. A record is put before the next one is looked at, and every put is acknowledged at `Process`
//!    durability or better: what survives a SIGKILL is a prefix of the file.
//! 2. [`Watch::progress`] is called only when everything it counts is acknowledged; and always before
//!    the loader may have to wait for input.
//! 3. A record that the store refuses as invalid is a bad line like any other.

use std::io;

use drumlin::{Error, Keyspace};

use crate::failure::{Failure, Result};
use crate::input::{BadLine, Records};
use crate::interrupt;

/// At most so many records between two words about progress.
const STRIDE: u64 = 1000;

/// How far a load is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Records acknowledged.
    pub records: u64,
    /// Bad lines skipped.
    pub skipped: u64,
    /// Bytes of input behind it.
    pub bytes: u64,
}

/// Who wants to know how far a load is.
pub trait Watch {
    /// Everything counted is acknowledged.
    fn progress(&mut self, done: Loaded) -> Result<()>;
    /// A bad line: whether to go on without it.
    fn bad_line(&mut self, bad: &BadLine) -> bool;
}

/// Why a load ended before its input did.
#[derive(Debug)]
pub enum Stop {
    /// At a bad line.
    Bad(BadLine),
    /// The input could not be read.
    Read(io::Error),
    /// The store or the watcher failed, or Ctrl-C was pressed.
    Failed(Failure),
}

/// Loads all of `records`. What is done is told in either case.
pub fn load(records: &mut Records, keyspace: &Keyspace, watch: &mut dyn Watch) -> (Loaded, Result<(), Stop>) {
    let mut done = Loaded::default();
    let ended = pump(records, keyspace, watch, &mut done);
    done.bytes = records.taken();
    (done, ended)
}

fn pump(
    records: &mut Records,
    keyspace: &Keyspace,
    watch: &mut dyn Watch,
    done: &mut Loaded,
) -> Result<(), Stop> {
    let mut told = done.records;
    loop {
        if done.records > told && (done.records - told >= STRIDE || records.may_wait()) {
            done.bytes = records.taken();
            watch.progress(*done).map_err(Stop::Failed)?;
            told = done.records;
        }
        interrupt::check().map_err(Stop::Failed)?;
        let next = match records.next() {
            Ok(next) => next,
            // A wait for input that Ctrl-C ended is no fault of the input.
            Err(error) => {
                interrupt::check().map_err(Stop::Failed)?;
                return Err(Stop::Read(error));
            }
        };
        let bad = match next {
            None => return Ok(()),
            Some(Err(bad)) => bad,
            Some(Ok(record)) => match keyspace.put(&record.key, record.value) {
                Ok(()) => {
                    done.records += 1;
                    continue;
                }
                Err(Error::InvalidArgument(why)) => BadLine { line: record.line, why },
                Err(error) => return Err(Stop::Failed(error.into())),
            },
        };
        if !watch.bad_line(&bad) {
            return Err(Stop::Bad(bad));
        }
        done.skipped += 1;
    }
}
