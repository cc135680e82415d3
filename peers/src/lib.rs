//! Other key-value engines, measured as Drumlin is: each behind the bench's `Engine`, each with a grid of settings.
//!
//! Place: a workspace of its own, since it compiles C and C++; `main` is the program, `drumlin-bench` drives and reports.
//! ```text
//! arguments  what can be asked for     contest   grid, rounds, output
//! setting    a way to open an engine   stripes   locks for engines that have no atomic update
//! rocksdb    leveldb    lmdb    fjall    redb    drumlin     the engines
//! ```
//! 1. All get the same memory, threads, compression, block size, filter bits and durability; where an engine cannot have them,
//!    or has a choice in how to use them, its settings say what it has.
//! 2. An engine's interface is used as its own documentation advises, and settings that make it faster are in its grid.
//!
//! Tests: `tests/engines.rs` takes every setting of every engine through every call.
// A bench reads the clock, starts threads and makes directories: it is outside the engine.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod arguments;
pub mod contest;
pub mod drumlin;
pub mod fjall;
pub mod leveldb;
pub mod lmdb;
pub mod memory;
pub mod redb;
pub mod rocksdb;
pub mod setting;
pub mod stripes;
