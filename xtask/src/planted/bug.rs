//! One planted bug: a file `planted/NAME.toml` and its reader.
//!
//! Place: read by `planted`.
//!
//! The file is TOML, of which this reads what it needs: `key = value`, where a value is a "string" with the
//! escapes `\n`, `\t`, `\"`, `\\`, a '''literal''' over several lines (a newline right after the opening is
//! dropped), true or false, or a one-line array of strings; `#` comments between entries.
//!
//! ```toml
//! story     = "what the bug is, and where the variant is refuted"
//! file      = "crates/drumlin/src/…"            # from the root
//! find      = '''text that occurs exactly once'''
//! replace   = '''what stands there instead'''
//! test      = ["-p", "drumlin", "--lib", "…"]   # arguments of `cargo test`
//! caught_by = "module::name_of_the_test"        # this test must fail
//! loom      = true                              # optional: build with --cfg loom
//! hangs     = true                              # optional: the test does not fail but never ends
//! ```

use std::collections::BTreeMap;

/// One bug to plant.
#[derive(Debug)]
pub struct Bug {
    /// The file's stem.
    pub name: String,
    /// What it is and why it is wrong.
    pub story: String,
    /// The file it is planted in, from the root.
    pub file: String,
    /// Text that occurs there exactly once.
    pub find: String,
    /// What stands there instead.
    pub replace: String,
    /// Arguments of `cargo test`.
    pub test: Vec<String>,
    /// The test that must fail.
    pub caught_by: String,
    /// True if the test is one of the model checker's.
    pub loom: bool,
    /// True if the bug makes the test wait for ever; else a test that does not end catches nothing.
    pub hangs: bool,
}

#[derive(Debug, PartialEq)]
enum Value {
    Text(String),
    Flag(bool),
    List(Vec<String>),
}

impl Bug {
    /// Reads the file `name`.toml. Unknown, missing or wrongly typed keys are errors.
    pub fn parse(name: &str, text: &str) -> Result<Bug, String> {
        let mut values = entries(text)?;
        let mut text = |key: &str| match values.remove(key) {
            Some(Value::Text(text)) => Ok(text),
            Some(_) => Err(format!("`{key}` is not a string")),
            None => Err(format!("`{key}` is missing")),
        };
        let (story, file, find) = (text("story")?, text("file")?, text("find")?);
        let (replace, caught_by) = (text("replace")?, text("caught_by")?);
        let test = match values.remove("test") {
            Some(Value::List(list)) if !list.is_empty() => list,
            _ => return Err("`test` is not a list of arguments".into()),
        };
        let mut flag = |key: &str| match values.remove(key) {
            Some(Value::Flag(flag)) => Ok(flag),
            None => Ok(false),
            Some(_) => Err(format!("`{key}` is not true or false")),
        };
        let (loom, hangs) = (flag("loom")?, flag("hangs")?);
        match values.keys().next() {
            Some(key) => Err(format!("unknown key `{key}`")),
            None => {
                Ok(Bug { name: name.to_string(), story, file, find, replace, test, caught_by, loom, hangs })
            }
        }
    }
}

fn entries(text: &str) -> Result<BTreeMap<String, Value>, String> {
    let mut values = BTreeMap::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Ok(values);
        }
        if rest.starts_with('#') {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
            continue;
        }
        let (key, after) =
            rest.split_once('=').ok_or_else(|| format!("expected `key = value` at: {}", first(rest)))?;
        let key = key.trim();
        let (value, after) = value(after.trim_start()).map_err(|why| format!("`{key}`: {why}"))?;
        let (tail, after) = after.split_once('\n').unwrap_or((after, ""));
        if !tail.trim().is_empty() && !tail.trim().starts_with('#') {
            return Err(format!("`{key}`: unexpected text behind the value: {}", tail.trim()));
        }
        if values.insert(key.to_string(), value).is_some() {
            return Err(format!("`{key}` stands twice"));
        }
        rest = after;
    }
}

fn value(text: &str) -> Result<(Value, &str), String> {
    if let Some(literal) = text.strip_prefix("'''") {
        let literal = literal.strip_prefix('\n').unwrap_or(literal);
        let (inside, after) = literal.split_once("'''").ok_or("the literal does not end")?;
        return Ok((Value::Text(inside.to_string()), after));
    }
    if let Some(after) = text.strip_prefix("true") {
        return Ok((Value::Flag(true), after));
    }
    if let Some(after) = text.strip_prefix("false") {
        return Ok((Value::Flag(false), after));
    }
    if let Some(mut rest) = text.strip_prefix('[') {
        let mut list = Vec::new();
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
            if let Some(after) = rest.strip_prefix(']') {
                return Ok((Value::List(list), after));
            }
            let (item, after) = string(rest)?;
            list.push(item);
            rest = after;
        }
    }
    let (text, after) = string(text)?;
    Ok((Value::Text(text), after))
}

fn string(text: &str) -> Result<(String, &str), String> {
    let inside = text.strip_prefix('"').ok_or_else(|| format!("expected a string at: {}", first(text)))?;
    let mut out = String::new();
    let mut characters = inside.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Ok((out, &inside[at + 1..])),
            '\\' => match characters.next() {
                Some((_, 'n')) => out.push('\n'),
                Some((_, 't')) => out.push('\t'),
                Some((_, c @ ('"' | '\\'))) => out.push(c),
                _ => return Err("unknown escape".into()),
            },
            c => out.push(c),
        }
    }
    Err("the string does not end".into())
}

fn first(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = "# why\nstory = \"a \\\"b\\\"\" # c\nfile = \"x.rs\"\nfind = '''\nlet a = 1;\n    b'''\nreplace = ''''''\n\
                         test = [\"-p\", \"drumlin\"]\ncaught_by = \"m::t\"\nloom = true\n";

    #[test]
    fn a_sound_file_is_read_whole() {
        let bug = Bug::parse("n", SOUND).expect("it is sound");
        assert_eq!(
            (bug.story.as_str(), bug.find.as_str(), bug.replace.as_str()),
            ("a \"b\"", "let a = 1;\n    b", "")
        );
        assert_eq!((bug.test.len(), bug.caught_by.as_str(), bug.loom, bug.hangs), (2, "m::t", true, false));
    }

    #[test]
    fn wrong_files_are_refused() {
        for (from, to) in [
            ("loom = true", "loom = 3"),
            ("loom = true", "lomo = true"),
            ("caught_by", "caught"),
            ("'''\ntest", "\ntest"),
            ("[\"-p\", \"drumlin\"]", "[]"),
            ("file = \"x.rs\"", "file = \"x.rs\"\nfile = \"y.rs\""),
            ("file = \"x.rs\"", "file = \"x.rs\" y"),
        ] {
            assert!(Bug::parse("n", &SOUND.replace(from, to)).is_err(), "{from} -> {to}");
        }
    }
}
