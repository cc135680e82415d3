//! A Rust file as the rules see it: its code without comments and strings, its header, its test regions,
//! the paths it imports.
//!
//! Place: built by `tidy`, read by `rules`, `layers` and `links`.
//!
//! This is no parser: it knows comments, strings, braces, attributes and `use` trees, which is enough for
//! rules about names. It errs towards reporting.

use std::path::{Path, PathBuf};

/// One Rust file, taken apart.
pub struct Source {
    /// Relative to the root.
    pub path: PathBuf,
    /// As written.
    pub text: String,
    /// The text with every comment and every string's content blanked; same length, same lines.
    pub code: String,
    /// Per line (from 0): true inside an item for tests or the model checker only.
    pub test_lines: Vec<bool>,
    /// True if the whole file is.
    pub test_file: bool,
}

/// A path named in code: `use a::{b, c}` gives two.
#[derive(Debug, PartialEq, Eq)]
pub struct Named {
    /// Its segments, `crate`, `self` and `super` as written.
    pub segments: Vec<String>,
    /// Line, from 0.
    pub line: usize,
    /// How many inline modules enclose it.
    pub inline_depth: usize,
}

impl Source {
    /// Takes `text` apart.
    pub fn new(path: PathBuf, text: String) -> Self {
        let code = strip(&text);
        let test_lines = test_lines(&code);
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let in_tests = path
            .components()
            .any(|c| matches!(c.as_os_str().to_str(), Some("tests" | "examples" | "benches")));
        let test_file = in_tests || name == "tests.rs" || name.ends_with("_tests.rs");
        Self { path, text, code, test_lines, test_file }
    }

    /// True if line `line` (from 0) is for tests or the model checker only.
    pub fn is_test(&self, line: usize) -> bool {
        self.test_file || self.test_lines.get(line).copied().unwrap_or(false)
    }

    /// The `//!` lines at the top, without their marks.
    pub fn header(&self) -> Vec<&str> {
        self.text.lines().map_while(|l| l.strip_prefix("//!")).map(str::trim).collect()
    }

    /// (crate directory, module path): `crates/x/src/a/b.rs` is ("x", ["a", "b"]), `peers/src/a.rs` is ("peers", ["a"]).
    pub fn module(&self) -> Option<(&str, Vec<&str>)> {
        let mut parts = self.path.iter().map(|p| p.to_str().unwrap_or_default());
        let krate = match (parts.next()?, parts.next()?) {
            ("crates", krate) => {
                (parts.next()? == "src").then_some(())?;
                krate
            }
            ("xtask", "src") => "xtask",
            ("peers", "src") => "peers",
            _ => return None,
        };
        let mut module: Vec<&str> = parts.collect();
        let last = module.pop()?.strip_suffix(".rs")?;
        if !matches!(last, "mod" | "lib" | "main") {
            module.push(last);
        }
        Some((krate, module))
    }

    /// Every occurrence of `word` in the code, at word boundaries, as lines from 0.
    pub fn lines_of(&self, word: &str) -> Vec<usize> {
        let mut lines = Vec::new();
        for (number, line) in self.code.lines().enumerate() {
            if occurs(line, word) {
                lines.push(number);
            }
        }
        lines
    }

    /// Every `use` path, expanded, and every other path that begins with `crate::` or `super::`.
    pub fn paths(&self) -> Vec<Named> {
        let mut paths = Vec::new();
        let tokens = tokens(&self.code);
        let mut braces: Vec<bool> = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            let (token, line) = tokens[at];
            match token {
                "{" => braces.push(at >= 2 && tokens[at - 2].0 == "mod"),
                "}" => {
                    braces.pop();
                }
                "use" => {
                    let inline_depth = braces.iter().filter(|m| **m).count();
                    at += 1;
                    expand(&tokens, &mut at, &[], inline_depth, &mut paths);
                    continue;
                }
                "crate" | "super" if at + 1 < tokens.len() && tokens[at + 1].0 == "::" => {
                    let inline_depth = braces.iter().filter(|m| **m).count();
                    let mut segments = vec![token.to_string()];
                    while at + 2 < tokens.len() && tokens[at + 1].0 == "::" && is_word(tokens[at + 2].0) {
                        segments.push(tokens[at + 2].0.to_string());
                        at += 2;
                    }
                    paths.push(Named { segments, line, inline_depth });
                }
                _ => {}
            }
            at += 1;
        }
        paths
    }
}

/// Reads one use tree at `at`; leaves `at` behind it.
fn expand(
    tokens: &[(&str, usize)],
    at: &mut usize,
    prefix: &[String],
    inline_depth: usize,
    out: &mut Vec<Named>,
) {
    let mut segments = prefix.to_vec();
    let mut line = tokens.get(*at).map_or(0, |t| t.1);
    let mut nested = false;
    while let Some(&(token, here)) = tokens.get(*at) {
        match token {
            "{" => {
                nested = true;
                *at += 1;
                while tokens.get(*at).is_some_and(|t| t.0 != "}") {
                    expand(tokens, at, &segments, inline_depth, out);
                    if tokens.get(*at).is_some_and(|t| t.0 == ",") {
                        *at += 1;
                    }
                }
                *at += 1;
            }
            "," | "}" | ";" => break,
            "::" => *at += 1,
            "as" => *at += 2,
            _ => {
                line = here;
                segments.push(token.to_string());
                *at += 1;
            }
        }
    }
    if !nested && !segments.is_empty() {
        out.push(Named { segments, line, inline_depth });
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn tokens(code: &str) -> Vec<(&str, usize)> {
    let mut tokens = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if is_word(rest) {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            tokens.push((&rest[..length], number));
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// True if `word` stands in `line` with no letter, digit or underscore at either end.
pub fn occurs(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let joined_before = word.starts_with(part) && before.is_some_and(part);
        let joined_after = word.ends_with(part) && after.is_some_and(part);
        !joined_before && !joined_after
    })
}

/// Marks the files that are modules declared for tests only (`#[cfg(test)] mod x;`), and what lies below them.
pub fn mark_test_files(sources: &mut [Source]) {
    let mut below: Vec<PathBuf> = Vec::new();
    for source in sources.iter() {
        let dir = match source.path.file_stem().and_then(|s| s.to_str()) {
            Some("mod" | "lib" | "main") | None => {
                source.path.parent().unwrap_or(Path::new("")).to_path_buf()
            }
            Some(stem) => source.path.with_file_name(stem),
        };
        let tokens = tokens(&source.code);
        for window in tokens.windows(3) {
            if window[0].0 == "mod" && window[2].0 == ";" && source.is_test(window[0].1) {
                below.push(dir.join(window[1].0));
            }
        }
    }
    for source in sources.iter_mut() {
        if below.iter().any(|b| source.path == b.with_extension("rs") || source.path.starts_with(b)) {
            source.test_file = true;
        }
    }
}

/// Blanks comments and the content of strings and character literals.
fn strip(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    let blank = |out: &mut Vec<u8>, from: usize, to: usize| {
        for byte in &mut out[from..to.min(bytes.len())] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    };
    while at < bytes.len() {
        let rest = &bytes[at..];
        let after_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        if rest.starts_with(b"//") {
            let end = at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            blank(&mut out, at, end);
            at = end;
        } else if rest.starts_with(b"/*") {
            let mut depth = 0;
            let mut end = at;
            while end < bytes.len() {
                if bytes[end..].starts_with(b"/*") {
                    depth += 1;
                    end += 2;
                } else if bytes[end..].starts_with(b"*/") {
                    depth -= 1;
                    end += 2;
                    if depth == 0 {
                        break;
                    }
                } else {
                    end += 1;
                }
            }
            blank(&mut out, at, end);
            at = end;
        } else if let Some(quote) = raw_string(rest).filter(|_| !after_word) {
            let hashes = quote.1;
            let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
            let from = at + quote.0;
            let end =
                bytes[from..].windows(close.len()).position(|w| w == close).map_or(bytes.len(), |p| from + p);
            blank(&mut out, from, end);
            at = end + close.len();
        } else if rest[0] == b'"' {
            let mut end = at + 1;
            while end < bytes.len() && bytes[end] != b'"' {
                end += if bytes[end] == b'\\' { 2 } else { 1 };
            }
            blank(&mut out, at + 1, end);
            at = end + 1;
        } else if rest[0] == b'\'' {
            // A character literal closes within a few bytes; a lifetime never does.
            let end = match rest.get(1) {
                Some(b'\\') => rest[2..].iter().skip(1).position(|b| *b == b'\'').map(|p| at + 3 + p),
                Some(_) => {
                    let width = text[at + 1..].chars().next().map_or(1, char::len_utf8);
                    (bytes.get(at + 1 + width) == Some(&b'\'')).then_some(at + 1 + width)
                }
                None => None,
            };
            match end {
                Some(end) => {
                    blank(&mut out, at + 1, end);
                    at = end + 1;
                }
                None => at += 1,
            }
        } else {
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// (bytes up to and with the opening quote, number of hashes) if a raw string starts here.
fn raw_string(rest: &[u8]) -> Option<(usize, usize)> {
    let start = match rest {
        [b'b' | b'c', b'r', ..] => 2,
        [b'r', ..] => 1,
        _ => return None,
    };
    let hashes = rest[start..].iter().take_while(|b| **b == b'#').count();
    (rest.get(start + hashes) == Some(&b'"')).then_some((start + hashes + 1, hashes))
}

/// Marks the lines of every item under `#[cfg(…test…)]` or `#[cfg(…loom…)]`, unless negated.
fn test_lines(code: &str) -> Vec<bool> {
    let mut marked = vec![false; code.lines().count()];
    let tokens = tokens(code);
    let mut at = 0;
    while at + 2 < tokens.len() {
        let inner = tokens[at].0 == "#" && tokens[at + 1].0 == "!";
        let open = if inner { at + 2 } else { at + 1 };
        if tokens[at].0 != "#" || tokens.get(open).map(|t| t.0) != Some("[") {
            at += 1;
            continue;
        }
        let (end, for_tests) = attribute(&tokens, open);
        if inner && for_tests {
            marked.fill(true);
            return marked;
        }
        if !for_tests {
            at = end;
            continue;
        }
        let from = tokens[at].1;
        let last = item_end(&tokens, end);
        let to = tokens.get(last.saturating_sub(1)).map_or(from, |t| t.1);
        marked[from..=to].fill(true);
        at = last.max(end);
    }
    marked
}

/// Reads the attribute whose `[` is at `open`: the token behind it, and whether it is for tests only.
fn attribute(tokens: &[(&str, usize)], open: usize) -> (usize, bool) {
    let mut depth = 0;
    let mut words = Vec::new();
    for (offset, (token, _)) in tokens[open..].iter().enumerate() {
        match *token {
            "[" => depth += 1,
            "]" => {
                depth -= 1;
                if depth == 0 {
                    let conditional = words.first() == Some(&"cfg");
                    let test = words.iter().any(|w| matches!(*w, "test" | "loom"));
                    let for_tests = conditional && test && !words.contains(&"not");
                    return (open + offset + 1, for_tests || words == ["test"]);
                }
            }
            word => words.push(word),
        }
    }
    (tokens.len(), false)
}

/// The token behind the item that starts at `at`: its closing brace, or a `;` or `,` before any brace.
fn item_end(tokens: &[(&str, usize)], at: usize) -> usize {
    let mut braces = 0;
    let mut brackets = 0;
    for (offset, (token, _)) in tokens[at..].iter().enumerate() {
        match *token {
            "{" => braces += 1,
            "(" | "[" => brackets += 1,
            ")" | "]" => brackets -= 1,
            "}" if braces <= 1 => return at + offset + usize::from(braces == 1),
            "}" => braces -= 1,
            ";" | "," if braces == 0 && brackets <= 0 => return at + offset + 1,
            _ => {}
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new(PathBuf::from("crates/drumlin/src/a/b.rs"), text.to_string())
    }

    #[test]
    fn comments_strings_and_characters_are_blanked_and_nothing_else() {
        let text = "let a = \"x // y\"; // z\nlet b = 'q'; let c: &'static str = r#\"w\"#; /* v /* u */ */ d('\\'', '\"')";
        let code = source(text).code;
        assert_eq!(code.len(), text.len());
        for gone in ["x", "y", "z", "q", "w", "v", "u"] {
            assert!(!occurs(&code, gone), "{gone} is left in {code}");
        }
        for stays in ["a", "b", "c", "static", "str", "d"] {
            assert!(occurs(&code, stays), "{stays} is gone from {code}");
        }
    }

    #[test]
    fn use_trees_are_expanded_and_inline_paths_found() {
        let text =
            "use crate::{a::b, c::{self, d as e}};\nmod m { use super::super::f; }\nfn g() { crate::h::i() }";
        let paths: Vec<String> = source(text)
            .paths()
            .iter()
            .map(|p| format!("{}@{}", p.segments.join("::"), p.inline_depth))
            .collect();
        assert_eq!(
            paths,
            ["crate::a::b@0", "crate::c::self@0", "crate::c::d@0", "super::super::f@1", "crate::h::i@0"]
        );
    }

    #[test]
    fn test_items_end_where_they_end() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\nfn c() {}\n#[cfg(loom)]\nuse x::{y, z};\nfn d() {}\n#[cfg(not(loom))]\nfn e() {}";
        let marked = source(text).test_lines;
        let lines: Vec<usize> = (0..marked.len()).filter(|l| marked[*l]).collect();
        assert_eq!(lines, [1, 2, 3, 4, 6, 7]);
    }

    #[test]
    fn a_test_field_or_argument_ends_at_its_comma() {
        let text = "struct S {\n #[cfg(loom)]\n a: u8,\n b: u8,\n}\nfn c() {}";
        assert_eq!(source(text).test_lines, [false, true, true, false, false, false]);
    }

    #[test]
    fn modules_declared_for_tests_are_test_files() {
        let mut sources = vec![
            Source::new("crates/drumlin/src/a/mod.rs".into(), "#[cfg(test)]\nmod model;\nmod real;".into()),
            Source::new("crates/drumlin/src/a/model.rs".into(), String::new()),
            Source::new("crates/drumlin/src/a/real.rs".into(), String::new()),
        ];
        mark_test_files(&mut sources);
        assert_eq!(sources.iter().map(|s| s.test_file).collect::<Vec<_>>(), [false, true, false]);
    }
}
