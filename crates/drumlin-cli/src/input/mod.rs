//! Records of a file to load: each line's key, and the line itself as the value.
//!
//! Place: used by `load` and `tour`; calls `source` for lines, `csv` and `json` for their formats; `stream`
//! is an input that can be waited for.
//!
//! 1. The value is the line byte for byte, without its line end. Nothing is trimmed or converted.
//! 2. The first line decides what a line end is: if it ends in CR LF, then a CR before an LF is part of
//!    the line end everywhere; else an LF alone is, and a CR is a byte like any other.
//! 3. Numbers of lines count from 1 and include the header. A csv record that spans lines has the number
//!    of its first.
//! 4. A bad line never ends the input: the records after it can still be had. A malformed csv record is one bad
//!    line, however far it would reach: the line behind its first is read anew. So a stray quote costs a line.
//! 5. A byte order mark at the very beginning is part of nothing.
//! 6. A blank line (not a byte before its line end) is a bad line in every format; inside a quoted csv field it
//!    is data.
//! 7. All csv records have as many fields as the header, or else as the first good record.
//! 8. What could be meant in two ways is refused: a key column whose name the header has twice, a key field that an
//!    object has twice. So is an input without the header line that was to name the columns.
//! 9. What gzip has packed is no text, and is told to be unpacked.
//!
//! Tests: `input/tests.rs`.

mod csv;
mod json;
mod source;
mod stream;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io::{self, Read};

use drumlin::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::args::InputFormat;
use crate::escape::readable;
use crate::output;
use csv::{Csv, Fed};
use source::{Line, Source};

pub use stream::Stream;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// How everything begins that gzip has packed (RFC 1952; deflate is the one method there is).
const GZIP: &[u8] = b"\x1f\x8b\x08";
const NEVER_ENDS: &str = "a quoted field never ends";
/// Names of a header that an error message lists.
const NAMES_SHOWN: usize = 20;

/// One record to load.
#[derive(Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Number of its first line.
    pub line: u64,
    /// The key, never empty.
    pub key: Cow<'a, [u8]>,
    /// The value.
    pub value: &'a [u8],
}

/// A line that is no record.
#[derive(Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its number.
    pub line: u64,
    /// What is wrong with it.
    pub why: String,
}

/// Why a file cannot be begun.
#[derive(Debug)]
pub enum Unusable {
    /// It cannot be read.
    Io(io::Error),
    /// The key column and the file do not fit.
    Column(String),
    /// It is packed by gzip.
    Gzip,
    /// The key column is not one, whatever the file holds.
    Usage(String),
}

/// The records of one input, in its order.
pub struct Records {
    source: Source,
    format: Format,
    /// Lines before the cursor.
    lines: u64,
    /// Bytes of the record given out last; the cursor moves over them at the next call.
    given: usize,
    /// Whether a CR before an LF is part of the line end.
    crlf: bool,
    /// How many fields a csv record has, and how that is known.
    shape: Option<Shape>,
}

/// What all csv records have in common.
#[derive(Clone, Copy)]
struct Shape {
    fields: usize,
    /// The record that set it; `None`: the header.
    line: Option<u64>,
}

/// What a record looks like; columns count from 0.
enum Format {
    Tsv { column: usize },
    Csv { column: usize, parser: Box<Csv> },
    Jsonl { name: Vec<u8> },
    Lines,
}

/// The extent of one record from the cursor.
struct Extent {
    /// Bytes of its value.
    value: usize,
    /// Bytes with the line end.
    whole: usize,
    /// Physical lines it spans.
    lines: u64,
}

impl Records {
    /// Begins an input; reads the header line if the format has one.
    ///
    /// `key` is the key column: a name of the header, else a number from 1; for jsonl a field's name.
    pub fn begin(
        input: Box<dyn Read>,
        format: InputFormat,
        key: &[u8],
        no_header: bool,
    ) -> Result<Records, Unusable> {
        let format = match format {
            InputFormat::Tsv => Format::Tsv { column: 0 },
            InputFormat::Csv => Format::Csv { column: 0, parser: Box::new(Csv::new()) },
            InputFormat::Jsonl => Format::Jsonl { name: key.to_vec() },
            InputFormat::Lines => Format::Lines,
        };
        // The line end counts to the line here, and is no part of the value.
        let source = Source::new(input, VALUE_BYTES_MAX + 2);
        let mut records = Records { source, format, lines: 0, given: 0, crlf: false, shape: None };
        records.look_at_the_beginning()?;
        let number = std::str::from_utf8(key).ok().and_then(|text| text.parse::<usize>().ok());
        let column = if !matches!(records.format, Format::Tsv { .. } | Format::Csv { .. }) {
            return Ok(records);
        } else if no_header {
            number.and_then(|n| n.checked_sub(1)).ok_or_else(|| {
                Unusable::Usage(format!(
                    "--key {}: without a header the column is a number from 1",
                    readable(key)
                ))
            })?
        } else {
            let Some(names) = records.header()? else {
                return Err(Unusable::Column(format!(
                    "there is no column {}: the input is empty, and has no header line",
                    readable(key)
                )));
            };
            let by_number = || number.and_then(|n| n.checked_sub(1)).filter(|column| *column < names.len());
            let mut so_named = (0..names.len()).filter(|column| names[*column] == key);
            let by_name = so_named.next();
            if let (Some(first), Some(second)) = (by_name, so_named.next()) {
                return Err(Unusable::Column(format!(
                    "columns {} and {} are both named {}: give --key the number of the one you mean",
                    first + 1,
                    second + 1,
                    readable(key)
                )));
            }
            by_name.or_else(by_number).ok_or_else(|| {
                let shown: Vec<_> = names.iter().take(NAMES_SHOWN).map(|name| readable(name)).collect();
                let more = if names.len() > NAMES_SHOWN { ", ..." } else { "" };
                Unusable::Column(format!(
                    "there is no column {}: the header has {}: {}{more}; give --key one of these names, or its number from 1",
                    readable(key),
                    output::plural(names.len() as u64, "column"),
                    shown.join(", ")
                ))
            })?
        };
        match &mut records.format {
            Format::Tsv { column: c } | Format::Csv { column: c, .. } => *c = column,
            Format::Jsonl { .. } | Format::Lines => {}
        }
        Ok(records)
    }

    /// Bytes of input before the next record.
    pub fn taken(&self) -> u64 {
        self.source.taken() + self.given as u64
    }

    /// Whether the next record may have to wait for the input.
    pub fn may_wait(&mut self) -> bool {
        self.step();
        match (self.source.line_here(), &self.format) {
            (None, _) => true,
            // Only a line with an odd number of quotes can leave one open.
            (Some(line), Format::Csv { .. }) => memchr::memchr_iter(b'"', line).count() % 2 == 1,
            (Some(_), _) => false,
        }
    }

    /// The next record or bad line; `None` at the end.
    pub fn next(&mut self) -> io::Result<Option<Result<Record<'_>, BadLine>>> {
        self.step();
        let line = self.lines + 1;
        let extent = match self.extent()? {
            None => return Ok(None),
            Some(Err(why)) => return Ok(Some(Err(BadLine { line, why }))),
            Some(Ok(extent)) => extent,
        };
        self.lines += extent.lines;
        self.given = extent.whole;
        let value = self.source.bytes(0..extent.value);
        let key = match &self.format {
            Format::Lines => Ok(Cow::Borrowed(value)),
            Format::Tsv { column } => value
                .split(|byte| *byte == b'\t')
                .nth(*column)
                .map(Cow::Borrowed)
                .ok_or_else(|| missing(*column, value.split(|byte| *byte == b'\t').count())),
            Format::Csv { column, parser } => {
                parser.field(*column).map(Cow::Borrowed).ok_or_else(|| missing(*column, parser.len()))
            }
            Format::Jsonl { name } => json::key(value, name).map(Cow::Owned),
        };
        let value = if matches!(self.format, Format::Lines) { &[] } else { value };
        let bad = |why| Ok(Some(Err(BadLine { line, why })));
        match key {
            Err(why) => bad(why),
            Ok(key) if key.is_empty() => bad("the key is empty".into()),
            Ok(key) if key.len() > KEY_BYTES_MAX => {
                bad(format!("the key has {} bytes, but may have {KEY_BYTES_MAX}", key.len()))
            }
            Ok(_) if value.len() > VALUE_BYTES_MAX => {
                bad(format!("the line has {} bytes, but a value may have {VALUE_BYTES_MAX}", value.len()))
            }
            Ok(key) => {
                if let (Format::Csv { parser, .. }, None) = (&self.format, self.shape) {
                    self.shape = Some(Shape { fields: parser.len(), line: Some(line) });
                }
                Ok(Some(Ok(Record { line, key, value })))
            }
        }
    }

    /// Moves the cursor over the record given out last.
    fn step(&mut self) {
        self.source.advance(self.given);
        self.given = 0;
    }

    /// Drops a byte order mark, and looks at the end of the first line.
    fn look_at_the_beginning(&mut self) -> Result<(), Unusable> {
        let first = self.source.line(0).map_err(Unusable::Io)?;
        if self.source.begins_with(GZIP) {
            return Err(Unusable::Gzip);
        }
        if let Line::At { length, terminated } = first {
            self.crlf = terminated && self.source.bytes(0..length).ends_with(b"\r");
            if self.source.bytes(0..length).starts_with(BYTE_ORDER_MARK) {
                self.source.advance(BYTE_ORDER_MARK.len());
            }
        }
        Ok(())
    }

    /// The names in the first record; `None` if there is none.
    fn header(&mut self) -> Result<Option<Vec<Vec<u8>>>, Unusable> {
        let extent = match self.extent().map_err(Unusable::Io)? {
            None => return Ok(None),
            Some(Err(why)) => return Err(Unusable::Column(format!("line 1: the header is bad: {why}"))),
            Some(Ok(extent)) => extent,
        };
        self.lines += extent.lines;
        self.given = extent.whole;
        let names: Vec<Vec<u8>> = match &self.format {
            Format::Csv { parser, .. } => parser.fields().map(<[u8]>::to_vec).collect(),
            _ => {
                self.source.bytes(0..extent.value).split(|byte| *byte == b'\t').map(<[u8]>::to_vec).collect()
            }
        };
        self.shape = Some(Shape { fields: names.len(), line: None });
        Ok(Some(names))
    }

    /// Finds the record at the cursor. Of a bad one, the first line is passed over and counted.
    fn extent(&mut self) -> io::Result<Option<Result<Extent, String>>> {
        let (mut begun, mut lines, mut first) = (0, 0, 0);
        if let Format::Csv { parser, .. } = &mut self.format {
            parser.begin();
        }
        let why = loop {
            match self.source.line(begun)? {
                Line::End if begun == 0 => return Ok(None),
                Line::End => break NEVER_ENDS.into(),
                Line::TooLong => {
                    let most = output::bytes(VALUE_BYTES_MAX as u64);
                    if begun == 0 {
                        self.source.skip_line(0)?;
                        break format!("the line is longer than a value may be ({most})");
                    }
                    break format!(
                        "a quoted field would make the record longer than a value may be ({most})"
                    );
                }
                Line::At { length, terminated } => {
                    lines += 1;
                    let end = begun + length;
                    let whole = end + usize::from(terminated);
                    let cr = self.crlf && terminated && self.source.bytes(begun..end).ends_with(b"\r");
                    let value = end - usize::from(cr);
                    if begun == 0 {
                        first = whole;
                    }
                    if begun == 0 && value == 0 {
                        break "the line is blank".into();
                    }
                    let Format::Csv { parser, .. } = &mut self.format else {
                        return Ok(Some(Ok(Extent { value, whole, lines })));
                    };
                    let fed = parser.feed(self.source.bytes(begun..value), self.source.bytes(value..whole));
                    let fields = parser.len() + usize::from(fed == Fed::Open);
                    match (fed, self.shape) {
                        (Fed::Malformed(why), _) => break why.into(),
                        (Fed::Complete, Some(shape)) if fields != shape.fields => {
                            break shape.broken_by(fields, "");
                        }
                        (Fed::Complete, _) => return Ok(Some(Ok(Extent { value, whole, lines }))),
                        (Fed::Open, Some(shape)) if fields > shape.fields => {
                            break shape.broken_by(fields, " or more");
                        }
                        (Fed::Open, _) if !terminated => break NEVER_ENDS.into(),
                        (Fed::Open, _) => begun = whole,
                    }
                }
            }
        };
        self.source.advance(first);
        self.lines += 1;
        Ok(Some(Err(why)))
    }
}

impl Shape {
    /// What to say of a record with another number of fields.
    fn broken_by(self, fields: usize, more: &str) -> String {
        let has = output::plural(fields as u64, "field") + more;
        match self.line {
            None => format!("the record has {has}, but the header has {}", self.fields),
            Some(line) => format!("the record has {has}, but that of line {line} has {}", self.fields),
        }
    }
}

fn missing(column: usize, fields: usize) -> String {
    format!("there is no column {}: the line has {}", column + 1, output::plural(fields as u64, "field"))
}
