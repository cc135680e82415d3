//! (being built)
pub mod retain;
