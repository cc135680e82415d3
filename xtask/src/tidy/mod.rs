//! `cargo x tidy`: the style that a program can check, as findings with file and line.
//!
//! Place: called by `main` and `ci`. `source` reads Rust files without a compiler, `rules` and `layers` judge
//! them, `links` and `results` judge the documents, `planted` the list of planted bugs.
//!
//! The rules, by the word printed in front of a finding:
//! - `header`  every module of `crates/*/src`, `peers/src` and `xtask/src` opens with a `//!` header
//! - `length`  a file has at most 800 lines, unless its header says why in a line `//! Length: …`;
//!   an inline test module has at most 150
//! - `layer`   the engine imports downward only, as `layers` lists it
//! - `unsafe`  only in the files of `xtask/unsafe.txt`, each use with a `SAFETY:` comment, and the tests named
//! - `outside` no file system, clock, thread start or polling in the engine but in `env` and `sync`
//! - `leftover` no unfinished work, debug output or `unwrap` outside tests
//! - `machine` no path of somebody's machine in any text
//! - `name`    no file or module named for nothing in particular
//! - `link`    relative links of the documents, their anchors, and document names in code resolve
//! - `planted` the text of every planted bug occurs exactly once, and its test exists
//! - `results` the README's table of figures is the one of `docs/RESULTS.md`
//!
//! Each rule has a test that shows it a violation.

mod layers;
mod links;
mod results;
mod rules;
mod source;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{planted, tree};
use source::Source;

/// One violation.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the root.
    pub path: PathBuf,
    /// Its line, from 1.
    pub line: usize,
    /// The rule's word.
    pub rule: &'static str,
    /// What is wrong and what to do.
    pub what: String,
}

impl Finding {
    fn new(path: &Path, line: usize, rule: &'static str, what: impl Into<String>) -> Self {
        Self { path: path.to_path_buf(), line, rule, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path.display(), self.line, self.rule, self.what)
    }
}

/// Checks the whole tree; an error lists every finding.
pub fn run() -> Result<(), String> {
    let root = tree::root();
    let (findings, files) = check(&root)?;
    if findings.is_empty() {
        println!("tidy: {files} files, nothing to say");
        return Ok(());
    }
    for finding in &findings {
        println!("{finding}");
    }
    Err(format!("tidy: {} findings", findings.len()))
}

fn check(root: &Path) -> Result<(Vec<Finding>, usize), String> {
    let files = tree::files(root)?;
    let mut findings = Vec::new();
    let mut sources = Vec::new();
    for path in files.iter().filter(|p| p.extension().is_some_and(|e| e == "rs")) {
        sources.push(Source::new(path.clone(), tree::read(&root.join(path))?));
    }
    source::mark_test_files(&mut sources);
    let unsafe_files = rules::UnsafeList::read(root)?;
    for source in &sources {
        rules::check(source, &unsafe_files, &mut findings);
    }
    unsafe_files.check_no_stale(&sources, &mut findings);
    layers::check(&sources, &mut findings);
    for path in &files {
        rules::check_name(path, &mut findings);
        // A binary file has no style.
        if let Ok(text) = std::fs::read_to_string(root.join(path)) {
            rules::check_machine_paths(path, &text, &mut findings);
        }
    }
    links::check(root, &files, &sources, &mut findings)?;
    results::check(root, &mut findings);
    for (path, what) in planted::stale(root)? {
        findings.push(Finding::new(&path, 1, "planted", what));
    }
    findings.sort();
    findings.dedup();
    Ok((findings, files.len()))
}
