//! Drumlin, with its usual settings; with its memtables flushed whenever all is to be settled, as others are tried, too.
//!
//! Place: an engine of `setting`.

use drumlin_bench::store::{Settings, Store};

use crate::setting::{Setting, Terms};

/// What it is opened with.
pub fn settings(terms: &Terms) -> Vec<Setting> {
    let usual = terms.bench.settings();
    let flushed = Settings { flushed: true, ..usual.clone() };
    [("as it comes", usual), ("memtables flushed when settled", flushed)]
        .map(|(name, settings)| Setting::new(name, move |directory| Store::open(directory, &settings)))
        .into()
}
