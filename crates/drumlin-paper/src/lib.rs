//! The papers' figures, measured anew: what was measured there, measured here, and what was claimed, checked.
//!
//! Place: `drumlin paper` shows it. Whole stores are measured by the bench's session, the memory component's parts alone through
//! `drumlin::map`, other engines by the peers' program.
//! ```text
//! flodb clsm slsm lsm_trie   the figures of a paper, by number
//! figure        what a figure is
//! args          what can be asked for                lab      what a figure measures with
//! sweep         stores over threads and memory       parts    a hash and a skiplist alone
//! partitions    several stores side by side          striped  locks outside a store
//! point         what was measured, and its medians   claim    what a paper says, and whether it holds
//! chart         points as a picture                  table    points as text
//! kept          raw points in a file
//! ```
//! 1. A claim is judged by the points that were measured, by code that is beside it; one that fails is shown as failed,
//!    and one that cannot be judged here (no such engine, too few cores) says why.
//! 2. Each figure says what is not as it was in the paper.
//! 3. Points of all series are taken in turns, round by round.
//!
//! Tests: beside the code; `tests/` measures every figure at a size at which it means nothing.
#![deny(unsafe_code)]
// It reads the clock, starts threads and makes directories, as the bench does: it is outside the engine.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod args;
pub mod chart;
pub mod claim;
mod clsm;
pub mod figure;
mod flodb;
pub mod kept;
pub mod lab;
mod lsm_trie;
mod partitions;
mod parts;
pub mod point;
mod slsm;
mod striped;
mod sweep;
pub mod table;

use figure::Figure;

/// All figures, paper by paper, in the order of their numbers.
pub fn figures() -> impl Iterator<Item = &'static Figure> {
    [flodb::FIGURES, clsm::FIGURES, slsm::FIGURES, lsm_trie::FIGURES].into_iter().flatten()
}
