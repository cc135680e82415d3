//! (being built)
pub mod retain;
mod job;
pub use job::{CompactionOutcome, JobContext, run_compaction, run_flush};
