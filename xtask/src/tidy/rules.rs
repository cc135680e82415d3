//! The rules about one file: header, length, unsafe, the outside, leftovers, names, machine paths.
//!
//! Place: called by `tidy` for every Rust file (names and machine paths: for every file).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Finding;
use super::source::{Source, occurs};
use crate::tree;

const LINES_MAX: usize = 800;
const TEST_LINES_MAX: usize = 150;

/// What only `env` and `sync` may name, and what to use instead.
const OUTSIDE: &[(&str, &str)] = &[
    ("std::fs", "env::FileSystem"),
    ("fs::File", "env::FileSystem"),
    ("std::process", "nothing: the engine starts no processes"),
    ("std::net", "nothing: the engine knows no network"),
    ("Instant::now", "env::Clock"),
    ("SystemTime::now", "env::Clock"),
    ("RandomState", "env::Random"),
    ("thread::spawn", "env::Spawner"),
    ("thread::scope", "env::Spawner"),
    ("thread::Builder", "env::Spawner"),
    ("thread::sleep", "a park of sync"),
    ("yield_now", "a park of sync"),
    ("spin_loop", "a park of sync"),
];

/// What must not be left in code that ships. The words are cut so that this file passes.
const LEFTOVER: &[&str] =
    &["dbg!", "todo!", "unimplemented!", concat!("println", "!"), concat!("eprintln", "!"), ".unwrap()"];
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

const EMPTY_NAMES: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "misc", "stuff", "shared", "manager"];

/// Judges one Rust file.
pub fn check(source: &Source, unsafe_files: &UnsafeList, findings: &mut Vec<Finding>) {
    let mut report =
        |line: usize, rule, what: String| findings.push(Finding::new(&source.path, line, rule, what));
    let Some((krate, module)) = source.module() else {
        check_unfinished(source, findings);
        return;
    };
    let header = source.header();
    if header.first().is_none_or(|first| first.split_whitespace().count() < 3) {
        report(1, "header", "opens without a `//!` header that says what the module is".into());
    }
    let lines = source.text.lines().count();
    if lines > LINES_MAX && !header.iter().any(|l| l.starts_with("Length:")) {
        report(
            1,
            "length",
            format!("{lines} lines, more than {LINES_MAX}: split it, or say why in `//! Length: …`"),
        );
    }
    if !source.test_file {
        for (from, length) in test_regions(source) {
            if length > TEST_LINES_MAX {
                let what = format!(
                    "{length} lines of tests, more than {TEST_LINES_MAX}: move them to a file of their own"
                );
                report(from + 1, "length", what);
            }
        }
    }
    let outside = matches!(module.first(), Some(&"env" | &"sync")) || krate != "drumlin";
    for (number, line) in source.code.lines().enumerate() {
        if source.is_test(number) {
            continue;
        }
        if !outside && let Some((word, instead)) = OUTSIDE.iter().find(|(word, _)| occurs(line, word)) {
            report(number + 1, "outside", format!("`{word}` outside env and sync; use {instead}"));
        }
        let prints = krate != "drumlin";
        for word in LEFTOVER.iter().filter(|w| line.contains(**w)) {
            if !(prints && word.contains("print")) {
                report(number + 1, "leftover", format!("`{word}` in code that ships"));
            }
        }
    }
    if !outside {
        for path in source.paths() {
            let named = path.segments.join("::");
            let found = named.starts_with("std::fs") || named.starts_with("std::thread::spawn");
            if found && !source.is_test(path.line) {
                report(path.line + 1, "outside", format!("`{named}` outside env and sync"));
            }
        }
    }
    check_unfinished(source, findings);
    check_unsafe(source, unsafe_files, findings);
}

fn check_unfinished(source: &Source, findings: &mut Vec<Finding>) {
    for (number, line) in source.text.lines().enumerate() {
        for word in UNFINISHED.iter().filter(|w| occurs(line, w)) {
            findings.push(Finding::new(
                &source.path,
                number + 1,
                "leftover",
                format!("`{word}`: finish it or drop it"),
            ));
        }
    }
}

/// (first line from 0, number of lines) of each run of test lines.
fn test_regions(source: &Source) -> Vec<(usize, usize)> {
    let mut regions: Vec<(usize, usize)> = Vec::new();
    for (line, marked) in source.test_lines.iter().enumerate() {
        match regions.last_mut() {
            Some((from, length)) if *marked && *from + *length == line => *length += 1,
            _ if *marked => regions.push((line, 1)),
            _ => {}
        }
    }
    regions
}

fn check_unsafe(source: &Source, list: &UnsafeList, findings: &mut Vec<Finding>) {
    let lines: Vec<&str> = source.text.lines().collect();
    let uses = source.lines_of("unsafe");
    if uses.is_empty() {
        return;
    }
    if !list.files.contains_key(&source.path) {
        let what = "unsafe code in a file that xtask/unsafe.txt does not list";
        findings.push(Finding::new(&source.path, uses[0] + 1, "unsafe", what));
    }
    for line in &uses {
        let above = lines[line.saturating_sub(15)..=*line].iter();
        if !above.clone().any(|l| l.contains("SAFETY:") || l.contains("# Safety")) {
            let what = "without a `// SAFETY:` comment (for a function: a `# Safety` section)";
            findings.push(Finding::new(&source.path, line + 1, "unsafe", what));
        }
    }
    let named = lines.iter().any(|l| {
        let comment = l.trim_start();
        comment.starts_with("//") && (comment.contains("Test") || comment.contains("test"))
    });
    if !named && !source.test_file {
        let what = "no comment of this file names the tests that exercise its unsafe code";
        findings.push(Finding::new(&source.path, uses[0] + 1, "unsafe", what));
    }
}

/// The files that may hold unsafe code, each with why: `xtask/unsafe.txt`.
pub struct UnsafeList {
    files: BTreeMap<PathBuf, usize>,
}

impl UnsafeList {
    const NAME: &str = "xtask/unsafe.txt";

    /// Reads the list: `PATH  why`, one a line; `#` starts a comment.
    pub fn read(root: &Path) -> Result<Self, String> {
        let text = tree::read(&root.join(Self::NAME))?;
        let mut files = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            match line.split_once(' ') {
                _ if line.is_empty() => {}
                Some((path, why)) if !why.trim().is_empty() => {
                    files.insert(PathBuf::from(path), number + 1);
                }
                _ => return Err(format!("{}:{}: expected `PATH  why`", Self::NAME, number + 1)),
            }
        }
        Ok(Self { files })
    }

    /// A listed file that has no unsafe code any more must leave the list.
    pub fn check_no_stale(&self, sources: &[Source], findings: &mut Vec<Finding>) {
        for (path, line) in &self.files {
            let used = sources.iter().any(|s| s.path == *path && !s.lines_of("unsafe").is_empty());
            if !used {
                let what = format!("{} has no unsafe code: take it off the list", path.display());
                findings.push(Finding::new(Path::new(Self::NAME), *line, "unsafe", what));
            }
        }
    }
}

/// Judges the name of any file.
pub fn check_name(path: &Path, findings: &mut Vec<Finding>) {
    for part in path.iter().filter_map(|p| p.to_str()) {
        let stem = part.split('.').next().unwrap_or_default();
        let empty = EMPTY_NAMES.contains(&stem) || ["_v2", "_new", "_old"].iter().any(|s| stem.ends_with(s));
        if empty {
            findings.push(Finding::new(path, 1, "name", format!("`{stem}` says nothing: name the noun")));
        }
    }
}

/// Finds paths of somebody's machine in any text file.
pub fn check_machine_paths(path: &Path, text: &str, findings: &mut Vec<Finding>) {
    // Cut so that this file passes its own rule.
    let places =
        [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];
    for (number, line) in text.lines().enumerate() {
        for place in places {
            let found = line.match_indices(place).any(|(at, _)| {
                // Such a name behind a slash may also be part of a relative path.
                !line[..at].ends_with(|c: char| {
                    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | ']' | '*')
                })
            });
            if found {
                findings.push(Finding::new(path, number + 1, "machine", format!("a path below {place}")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "//! A module for this test.\n";

    fn found(path: &str, text: &str) -> Vec<&'static str> {
        let mut sources = [Source::new(path.into(), text.into())];
        super::super::source::mark_test_files(&mut sources);
        let list = UnsafeList { files: [("crates/drumlin/src/log/listed.rs".into(), 1)].into() };
        let mut findings = Vec::new();
        check(&sources[0], &list, &mut findings);
        findings.into_iter().map(|f| f.rule).collect()
    }

    #[test]
    fn each_rule_finds_its_violation() {
        let log = "crates/drumlin/src/log/a.rs";
        let listed = "crates/drumlin/src/log/listed.rs";
        assert_eq!(found(log, "fn a() {}"), ["header"]);
        assert_eq!(found("peers/src/a.rs", "fn a() { x.unwrap() }"), ["header", "leftover"]);
        assert_eq!(found(log, &format!("{HEADER}{}", "// x\n".repeat(800))), ["length"]);
        let tests = format!("{HEADER}#[cfg(test)]\nmod tests {{\n{}}}\n", "fn a() {}\n".repeat(150));
        assert_eq!(found(log, &tests), ["length"]);
        for code in ["std::fs::read(p)", "Instant::now()", "thread::spawn(f)", "std::hint::spin_loop()"] {
            assert_eq!(found(log, &format!("{HEADER}fn a() {{ {code} }}")), ["outside"], "{code}");
        }
        assert_eq!(found(log, &format!("{HEADER}use std::{{fs, io}};")), ["outside"]);
        for code in ["x.unwrap()", "todo!()", concat!("println", "!(\"\")")] {
            assert_eq!(found(log, &format!("{HEADER}fn a() {{ {code} }}")), ["leftover"], "{code}");
        }
        assert_eq!(found(log, &format!("{HEADER}// {}: later", UNFINISHED[0])), ["leftover"]);
        let block = "fn a() { unsafe { b() } }";
        assert_eq!(found(log, &format!("{HEADER}// SAFETY: test x.\n{block}")), ["unsafe"]);
        assert_eq!(found(listed, &format!("{HEADER}// the test is x\n//\n{block}")), ["unsafe"]);
        assert_eq!(
            found(listed, &format!("{}// SAFETY: fine.\n{block}", HEADER.replace("test", "line"))),
            ["unsafe"]
        );
        assert_eq!(found(listed, &format!("{HEADER}// SAFETY: fine. Test: x.\n{block}")), [""; 0]);
    }

    #[test]
    fn tests_env_and_other_crates_may_do_more() {
        let code = format!("{HEADER}fn a() {{ std::fs::read(p) }}");
        assert_eq!(found("crates/drumlin/src/env/real.rs", &code), [""; 0]);
        assert_eq!(found("crates/drumlin-cli/src/load.rs", &code), [""; 0]);
        let test = format!("{HEADER}#[cfg(test)]\nmod tests {{ fn a() {{ std::fs::read(p).unwrap() }} }}");
        assert_eq!(found("crates/drumlin/src/log/a.rs", &test), [""; 0]);
    }

    #[test]
    fn empty_names_and_machine_paths_are_found() {
        let mut findings = Vec::new();
        check_name(Path::new("crates/drumlin/src/utils/mod.rs"), &mut findings);
        check_name(Path::new("crates/drumlin/src/table_v2.rs"), &mut findings);
        check_name(Path::new("crates/drumlin/src/table.rs"), &mut findings);
        assert_eq!(findings.len(), 2);
        check_machine_paths(
            Path::new("a.md"),
            concat!("see /ho", "me/me/x and docs/wo", "rk/y"),
            &mut findings,
        );
        assert_eq!(findings.len(), 3);
    }

    #[test]
    fn a_listed_file_without_unsafe_code_is_stale() {
        let list = UnsafeList { files: [("crates/drumlin/src/log/listed.rs".into(), 3)].into() };
        let mut findings = Vec::new();
        list.check_no_stale(
            &[Source::new("crates/drumlin/src/log/listed.rs".into(), HEADER.into())],
            &mut findings,
        );
        assert_eq!(findings.len(), 1);
    }
}
