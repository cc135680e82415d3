//! Drumlin, with its usual settings and no others.
//!
//! Place: an engine of `setting`.

use drumlin_bench::store::Store;

use crate::setting::{Setting, Terms};

/// What it is opened with.
pub fn settings(terms: &Terms) -> Vec<Setting> {
    let settings = terms.bench.settings();
    vec![Setting::new("as it comes", move |directory| Store::open(directory, &settings))]
}
