//! (being built)
mod span;

pub use span::{KeySpan, KeySpans};
