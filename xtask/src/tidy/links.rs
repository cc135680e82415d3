//! Links of the documents: relative links and anchors in Markdown, names of documents in code, names of tests and of planted
//! bugs in docs/HACKING.md, so that the table of promises cannot name one that is gone.
//!
//! Place: called by `tidy`. Links to the network are not followed.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use super::Finding;
use super::source::Source;
use crate::tree;

/// Judges every Markdown file, and every `docs/….md` named in Rust code.
pub fn check(
    root: &Path,
    files: &[PathBuf],
    sources: &[Source],
    findings: &mut Vec<Finding>,
) -> Result<(), String> {
    let known: HashSet<PathBuf> =
        files.iter().flat_map(|f| f.ancestors().map(Path::to_path_buf).collect::<Vec<_>>()).collect();
    for path in files.iter().filter(|p| p.extension().is_some_and(|e| e == "md")) {
        let text = tree::read(&root.join(path))?;
        for (line, target) in targets(&text) {
            let (file, anchor) = target.split_once('#').map_or((target, None), |(f, a)| (f, Some(a)));
            if file.contains("://") || file.starts_with("mailto:") {
                continue;
            }
            let to = match file {
                "" => path.clone(),
                _ => normal(&path.parent().unwrap_or(Path::new("")).join(file)),
            };
            if !known.contains(&to) {
                findings.push(Finding::new(path, line, "link", format!("{target}: there is no such file")));
            } else if let Some(anchor) = anchor.filter(|_| to.extension().is_some_and(|e| e == "md"))
                && !anchors(&tree::read(&root.join(&to))?).contains(anchor)
            {
                findings.push(Finding::new(
                    path,
                    line,
                    "link",
                    format!("{target}: there is no such heading"),
                ));
            }
        }
    }
    let promises = Path::new("docs/HACKING.md");
    if known.contains(promises) {
        let text = tree::read(&root.join(promises))?;
        for (line, name) in tests_named(&text) {
            let function = format!("fn {name}(");
            if !sources.iter().any(|s| s.text.contains(&function)) {
                findings.push(Finding::new(promises, line, "link", format!("there is no test `{name}`")));
            }
        }
        for (line, name) in bugs_named(&text) {
            let is_there = match name.strip_suffix('*') {
                Some(begins) => {
                    known.iter().any(|p| p.to_string_lossy().starts_with(&format!("planted/{begins}")))
                }
                None => known.contains(Path::new(&format!("planted/{name}.toml"))),
            };
            if !is_there {
                findings.push(Finding::new(
                    promises,
                    line,
                    "link",
                    format!("there is no planted bug `{name}`"),
                ));
            }
        }
    }
    for source in sources {
        for (number, line) in source.text.lines().enumerate() {
            for name in documents(line) {
                if !known.contains(Path::new(name)) && !source.is_test(number) {
                    findings.push(Finding::new(
                        &source.path,
                        number + 1,
                        "link",
                        format!("{name} does not exist"),
                    ));
                }
            }
        }
    }
    Ok(())
}

/// (line from 1, target) of every `[text](target)` outside code blocks and code spans.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let in_span = line[..at].matches('`').count() % 2 == 1;
            if let Some(end) = line[at + 2..].find(')').filter(|_| !in_span) {
                let target = line[at + 2..at + 2 + end].split_whitespace().next().unwrap_or_default();
                found.push((number + 1, target.trim_matches(['<', '>'])));
            }
        }
    }
    found
}

/// The anchors that headings make: lower case, spaces to hyphens, punctuation dropped.
fn anchors(text: &str) -> HashSet<String> {
    let mut fenced = false;
    let mut found = HashSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced || !line.starts_with('#') {
            continue;
        }
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        found.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
    }
    found
}

/// Names like `docs/HACKING.md` in a line of code or comment.
fn documents(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("docs/") {
        let rest = &line[at..];
        let end = rest
            .find(|c: char| !c.is_alphanumeric() && !matches!(c, '/' | '_' | '-' | '.'))
            .unwrap_or(rest.len());
        let name = rest[..end].trim_end_matches('.');
        let whole = !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '/' || c == '_');
        if whole && name.ends_with(".md") {
            found.push(name);
        }
    }
    found
}

/// (line from 1, name) of every code span that names a test: words joined by at least three underscores.
fn tests_named(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for span in line.split('`').skip(1).step_by(2) {
            let name = span.rsplit("::").next().unwrap_or_default();
            let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if name.chars().all(word) && name.matches('_').count() >= 3 {
                found.push((number + 1, name));
            }
        }
    }
    found
}

/// (line from 1, name) of every code span in the last column of a table whose head is "bugs"; a star stands for the rest of a name.
fn bugs_named(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_of_bugs = false;
    for (number, line) in text.lines().enumerate() {
        let Some(cell) =
            line.strip_prefix('|').and_then(|row| row.trim_end().strip_suffix('|')?.rsplit('|').next())
        else {
            is_of_bugs = false;
            continue;
        };
        is_of_bugs |= cell.trim() == "bugs";
        if is_of_bugs {
            found.extend(cell.split('`').skip(1).step_by(2).map(|name| (number + 1, name)));
        }
    }
    found
}

/// Takes `.` and `..` out of a path.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_found_outside_code_only() {
        let text = "[a](b.md) and `[c](d.md)` [e](f.md#g)\n```\n[h](i.md)\n```\n[j](<k.md> \"title\")";
        assert_eq!(targets(text), [(1, "b.md"), (1, "f.md#g"), (5, "k.md")]);
    }

    #[test]
    fn anchors_follow_the_headings() {
        let anchors = anchors("# The way, of a write\n```\n# not this\n```\n## I1 Order.");
        assert!(anchors.contains("the-way-of-a-write") && anchors.contains("i1-order") && anchors.len() == 2);
    }

    #[test]
    fn tests_named_in_a_document_are_told_from_other_code() {
        let text =
            "`cargo x loom`, `log_bytes_max`\n| x | `a::tests::it_does_what_it_says` and `DRUMLIN_A_B_C` |";
        assert_eq!(tests_named(text), [(2, "it_does_what_it_says")]);
    }

    #[test]
    fn bugs_are_named_in_the_last_column_of_their_table() {
        let text = "| promise | tests | bugs |\n|---|---|---|\n| `a` | `b-c` | `d-e`, `f` |\n\n| it | command |\n|---|---|\n| x | `y-z` |";
        assert_eq!(bugs_named(text), [(3, "d-e"), (3, "f")]);
    }

    #[test]
    fn documents_named_in_code_are_found() {
        assert_eq!(
            documents("//! See docs/formats/log.md, mydocs/x.md and docs/GLOSSARY.md."),
            ["docs/formats/log.md", "docs/GLOSSARY.md"]
        );
        assert_eq!(normal(Path::new("docs/formats/../papers/./clsm.md")), Path::new("docs/papers/clsm.md"));
    }
}
