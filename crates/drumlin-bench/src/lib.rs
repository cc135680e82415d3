//! Measuring key-value stores: workloads, honest figures, what the machine can do at most.
//!
//! Place: `drumlin bench` shows it; a workspace of its own (`peers/`) sets other engines beside Drumlin.
//! ```text
//! args      what can be asked for      session   rounds, engines in turns
//! workload  what is done, by name      drive     threads, clock, open and closed loops
//! keys      which key comes next       values    bytes that compress as asked
//! engine    what is measured           store     Drumlin as one
//! latency   how long things took       usage     processor, device, memory
//! counting  what goes through files    report    a run as text and as JSON
//! medians   rounds put together    limits   what the machine can do
//! reopen    a closed or killed store, opened   machine   what figures are true of
//! canvas    what pictures are drawn on      frames    memory that the machine has at hand
//! blocks    pages of a store's tables, read as they lie there
//! ```
//! 1. A write figure's time ends when nothing is owed; the burst stands beside it, never alone.
//! 2. Every figure is printed with what it hangs on.
//!
//! Tests: unit tests beside the code; `tests/` measures a small store and checks the figures against what was done.
#![deny(unsafe_code)]
// A bench reads the clock, starts threads and makes directories: it is outside the engine.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod args;
pub mod blocks;
pub mod canvas;
pub mod counting;
pub mod drive;
pub mod engine;
pub mod frames;
pub mod keys;
pub mod latency;
pub mod limits;
pub mod machine;
pub mod medians;
pub mod permutation;
mod reopen;
pub mod report;
pub mod session;
pub mod store;
pub mod usage;
pub mod values;
pub mod workload;
