//! Comma separated fields, as in RFC 4180, fed line by line.
//!
//! Place: below `input`, which decides what becomes of a record that is none.
//!
//! 1. A record is complete at the first line end outside quotes.
//! 2. Behind the closing quote of a field stands a comma or the line end; anything else is malformed.
//! 3. A quote inside an unquoted field is a character of it, as most programs read it. But it may as well be a
//!    quote gone astray; so a record that has one is malformed if it would go on in the next line.
//! 4. A line on which a record is left open ends every record that is open already when it comes, well or badly.
//!    So reading again from the second line of each bad record feeds every line at most twice, however many
//!    quotes are astray.
//!
//! Origin: RFC 4180; rule 3 is ours.

/// What the lines fed so far are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fed {
    /// A whole record.
    Complete,
    /// The beginning of a record: a quoted field is open.
    Open,
    /// The beginning of no record; why.
    Malformed(&'static str),
}

/// Where the parser is.
#[derive(Clone, Copy)]
enum At {
    FieldStart,
    Plain,
    Quoted,
    /// Behind a quote in a quoted field: it closes the field, unless another quote follows.
    Closing,
}

/// Parser of one record at a time; reuses its memory.
pub struct Csv {
    at: At,
    text: Vec<u8>,
    ends: Vec<usize>,
    /// An unquoted field of this record has a quote in it.
    astray: bool,
}

impl Csv {
    /// A parser before its first record.
    pub fn new() -> Self {
        Csv { at: At::FieldStart, text: Vec::new(), ends: Vec::new(), astray: false }
    }

    /// Forgets the record before.
    pub fn begin(&mut self) {
        self.at = At::FieldStart;
        self.text.clear();
        self.ends.clear();
        self.astray = false;
    }

    /// Takes one line without its line end; `line_end` is data if the line turns out to end inside quotes.
    pub fn feed(&mut self, line: &[u8], line_end: &[u8]) -> Fed {
        let mut rest = line;
        while let [byte, behind @ ..] = rest {
            match (self.at, byte) {
                (At::FieldStart, b'"') => self.at = At::Quoted,
                (At::FieldStart | At::Plain | At::Closing, b',') => self.end_field(),
                (At::FieldStart | At::Plain, _) => {
                    let length = memchr::memchr(b',', rest).unwrap_or(rest.len());
                    self.astray |= memchr::memchr(b'"', &rest[..length]).is_some();
                    self.text.extend_from_slice(&rest[..length]);
                    self.at = At::Plain;
                    rest = &rest[length..];
                    continue;
                }
                (At::Quoted, b'"') => self.at = At::Closing,
                (At::Quoted, _) => {
                    let length = memchr::memchr(b'"', rest).unwrap_or(rest.len());
                    self.text.extend_from_slice(&rest[..length]);
                    rest = &rest[length..];
                    continue;
                }
                (At::Closing, b'"') => {
                    self.text.push(b'"');
                    self.at = At::Quoted;
                }
                (At::Closing, _) => {
                    return Fed::Malformed("there is text behind the closing quote of a field");
                }
            }
            rest = behind;
        }
        match self.at {
            At::Quoted if self.astray => Fed::Malformed(
                "a quote stands inside an unquoted field, and another opens a field that does not end",
            ),
            At::Quoted => {
                self.text.extend_from_slice(line_end);
                Fed::Open
            }
            At::FieldStart | At::Plain | At::Closing => {
                self.end_field();
                Fed::Complete
            }
        }
    }

    /// Number of fields that have ended.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// A field of the complete record, unquoted, by its number from 0.
    pub fn field(&self, column: usize) -> Option<&[u8]> {
        let end = *self.ends.get(column)?;
        let start = if column == 0 { 0 } else { self.ends[column - 1] };
        Some(&self.text[start..end])
    }

    /// All fields of the complete record.
    pub fn fields(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|column| self.field(column))
    }

    fn end_field(&mut self) {
        self.ends.push(self.text.len());
        self.at = At::FieldStart;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[&str]) -> (Fed, Vec<String>) {
        let mut csv = Csv::new();
        csv.begin();
        let mut fed = Fed::Open;
        for line in lines {
            assert_eq!(fed, Fed::Open, "{lines:?} ends before {line}");
            fed = csv.feed(line.as_bytes(), b"\n");
        }
        (fed, csv.fields().map(|field| String::from_utf8(field.to_vec()).unwrap()).collect())
    }

    #[test]
    fn fields_are_apart_by_commas_and_unquoted() {
        for (lines, fields) in [
            (&["a,b"][..], &["a", "b"][..]),
            (&[","], &["", ""]),
            (&["\"\",\"\""], &["", ""]),
            (&["\"a,\"\"b\"\"\",c\"d\" e"], &["a,\"b\"", "c\"d\" e"]),
            (&["\"two", "lines\",x"], &["two\nlines", "x"]),
            (&["\"", "", "\""], &["\n\n"]),
            (&["a, \"b\""], &["a", " \"b\""]),
        ] {
            assert_eq!(parse(lines), (Fed::Complete, fields.iter().map(|f| f.to_string()).collect()));
        }
        assert_eq!(parse(&["a,\"b"]).0, Fed::Open);
    }

    #[test]
    fn quotes_that_make_no_sense_are_told_at_once() {
        for lines in [&["\"a\"b,c"][..], &["a\",\"b"], &["x,\"open", "y,\"closed\""], &["\"a\" ,b"]] {
            assert!(matches!(parse(lines).0, Fed::Malformed(_)), "{lines:?}");
        }
    }

    #[test]
    fn reading_again_from_the_second_line_of_every_record_feeds_each_line_at_most_twice() {
        let pieces = [
            "",
            "x",
            "x\",\"y",
            "\"y",
            "y\"",
            "\",\"",
            "\"\"",
            "a,\"",
            "\",b",
            "\"\"\"",
            "\"a\"b",
            "\",\"x\"y,\"",
        ];
        for first in pieces {
            for second in pieces {
                for third in pieces {
                    let text: Vec<&str> = [first, second, third].into_iter().cycle().take(300).collect();
                    let mut csv = Csv::new();
                    let mut fed = 0;
                    for begin in 0..text.len() {
                        csv.begin();
                        for line in &text[begin..] {
                            fed += 1;
                            if csv.feed(line.as_bytes(), b"\n") != Fed::Open {
                                break;
                            }
                        }
                    }
                    assert!(fed <= 2 * text.len(), "{first:?} {second:?} {third:?}: {fed} lines fed");
                }
            }
        }
    }
}
