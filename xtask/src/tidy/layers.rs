//! The order of the engine's modules: who may import whom.
//!
//! Place: called by `tidy`. The table below is the one of `crates/drumlin/src/lib.rs`, with the few
//! imports within a group that are allowed.
//!
//! Rules:
//! 1. A module imports only from groups below its own, or along a listed pair.
//! 2. Every top-level module stands in the table.
//! 3. What the crate root re-exports counts as the module it comes from.
//! 4. Tests may import anything.

use std::collections::HashMap;

use super::Finding;
use super::source::Source;

/// Groups from the top down.
const GROUPS: &[&[&str]] = &[
    &["db", "inspect", "map", "simulation"],
    &["compaction", "layout", "version"],
    &["memory", "log", "table", "iter", "filter"],
    &["commit", "budget", "pages", "cache", "key", "options", "encoding"],
    &["env", "sync", "error"],
];

/// Allowed although not downward: (importer, imported).
const PAIRS: &[(&str, &str)] = &[
    ("compaction", "layout"),
    ("compaction", "version"),
    ("layout", "version"),
    ("table", "iter"),
    ("table", "filter"),
    ("memory", "iter"),
    ("commit", "key"),
    ("cache", "budget"),
    ("cache", "pages"),
    ("options", "key"),
    // One error type for all: it imports nothing.
    ("env", "error"),
];

/// Judges every file of the engine.
pub fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let mut exported = HashMap::new();
    if let Some(root) = sources.iter().find(|s| s.path.ends_with("crates/drumlin/src/lib.rs")) {
        for path in root.paths() {
            if let [from, .., name] = path.segments.as_slice() {
                exported.insert(name.clone(), from.clone());
            }
        }
    }
    for source in sources {
        let Some(("drumlin", module)) = source.module() else { continue };
        let Some(&importer) = module.first() else { continue };
        if group(importer).is_none() {
            let what =
                format!("module `{importer}` is not in the table of xtask/src/tidy/layers.rs: place it");
            findings.push(Finding::new(&source.path, 1, "layer", what));
            continue;
        }
        for path in source.paths() {
            if source.is_test(path.line) {
                continue;
            }
            let Some(named) = from_root(&path.segments, module.len() + path.inline_depth) else { continue };
            let imported = exported.get(named).map_or(named, String::as_str);
            if !allowed(importer, imported) {
                let what = format!("`{importer}` must not import `{imported}`: it is not below it");
                findings.push(Finding::new(&source.path, path.line + 1, "layer", what));
            }
        }
    }
}

/// The first segment below the crate root that a path names, if it leads there.
fn from_root(segments: &[String], depth: usize) -> Option<&str> {
    let ups = segments.iter().take_while(|s| *s == "super").count();
    match segments.first().map(String::as_str) {
        Some("crate") => segments.get(1),
        Some("super") if ups == depth => segments.get(ups),
        _ => None,
    }
    .map(String::as_str)
}

fn group(module: &str) -> Option<usize> {
    GROUPS.iter().position(|g| g.contains(&module))
}

fn allowed(importer: &str, imported: &str) -> bool {
    if importer == imported || PAIRS.contains(&(importer, imported)) {
        return true;
    }
    match (group(importer), group(imported)) {
        (Some(from), Some(to)) => to > from,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let sources = [
            Source::new("crates/drumlin/src/lib.rs".into(), "pub use error::Result;\npub use db::Db;".into()),
            Source::new(path.into(), text.into()),
        ];
        let mut findings = Vec::new();
        check(&sources, &mut findings);
        findings.into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn imports_that_go_up_or_sideways_are_found() {
        for (path, text) in [
            ("log/writer.rs", "use crate::{error::Result, db::x};"),
            ("log/writer.rs", "fn f() { crate::memory::g() }"),
            ("log/mod.rs", "use super::table::T;"),
            ("log/writer.rs", "use super::super::table::T;"),
            ("log/writer.rs", "use crate::Db;"),
            ("env/real.rs", "use crate::key::Lsn;"),
            ("iter/merge.rs", "mod a { use super::super::super::table::T; }"),
            ("strange/mod.rs", ""),
        ] {
            assert_eq!(findings(&format!("crates/drumlin/src/{path}"), text).len(), 1, "{path}: {text}");
        }
    }

    #[test]
    fn imports_that_go_down_pass() {
        for (path, text) in [
            (
                "log/writer.rs",
                "use crate::error::Result; use crate::env::Env; use super::format; use crate::Result;",
            ),
            ("table/mod.rs", "use crate::iter::Cursor;"),
            ("env/real.rs", "use crate::error::Error;\n#[cfg(test)]\nmod tests { use crate::db::Db; }"),
            ("db/mod.rs", "use crate::compaction::job; //! crate::nothing"),
        ] {
            assert_eq!(findings(&format!("crates/drumlin/src/{path}"), text), [""; 0], "{path}");
        }
    }
}
