//! Finding the options of a keyspace for a workload, so that its user need not.
//!
//! Place: `drumlin tune` shows it. Opens stores as `drumlin bench` does, and asks the simulation of layouts.
//! ```text
//! wanted      the workload, its size, its memory      candidate   one set of options, and all that are looked at
//! model       what an operation costs, predicted      trial       the same, measured
//! search      from all to one                         picture     what reads cost beside what writes cost
//! paste       options as a program has them
//! ```
//! 1. Every candidate is predicted; some of the best are measured, first small, then fewer and larger; the last few at full size.
//! 2. What is told as predicted was predicted before it was measured.
//!
//! Origin: sLSM §2.6 and §2.7 (what lookups and writes cost), §3 (a tuner that samples settings); halving is that of Jamieson
//! and Talwalkar, *Non-stochastic Best Arm Identification*.
//! Tests: beside the code; `tests/` tunes a small store.
#![deny(unsafe_code)]
// It reads the clock and makes directories: it is outside the engine.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod candidate;
pub mod model;
pub mod paste;
pub mod picture;
pub mod search;
pub mod trial;
pub mod wanted;
