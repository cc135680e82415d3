//! Records of a file to load: each line's key, and the line itself as the value.
//!
//! Place: used by `load` and `tour`; calls `source` for lines, `csv` and `json` for their formats.
//!
//! 1. The value is the line byte for byte, without its line end. Nothing is trimmed or converted.
//! 2. The first line decides what a line end is: if it ends in CR LF, then a CR before an LF is part of
//!    the line end everywhere; else an LF alone is, and a CR is a byte like any other.
//! 3. Numbers of lines count from 1 and include the header. A csv record that spans lines has the number
//!    of its first.
//! 4. A bad line never ends the input: the records after it can still be had.
//! 5. A byte order mark at the very beginning is no part of the first name, the first JSON object or the
//!    first csv field.
//!
//! Tests: `input/tests.rs`.

mod csv;
mod json;
mod source;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io::{self, Read};

use drumlin::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::args::InputFormat;
use crate::escape::readable;
use crate::output;
use csv::Csv;
use source::{Line, Source};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
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
}

/// What a record looks like; columns count from 0.
enum Format {
    Tsv { column: usize },
    Csv { column: usize, parser: Box<Csv>, incomplete: bool },
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
    /// Whether a CR LF line end was taken away from `value`.
    cr: bool,
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
            InputFormat::Csv => Format::Csv { column: 0, parser: Box::new(Csv::new()), incomplete: false },
            InputFormat::Jsonl => Format::Jsonl { name: key.to_vec() },
            InputFormat::Lines => Format::Lines,
        };
        // The line end counts to the line here, and is no part of the value.
        let source = Source::new(input, VALUE_BYTES_MAX + 2);
        let mut records = Records { source, format, lines: 0, given: 0, crlf: false };
        records.learn_line_end().map_err(Unusable::Io)?;
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
            let Some(names) = records.header()? else { return Ok(records) };
            names
                .iter()
                .position(|name| name == key)
                .or_else(|| number.and_then(|n| n.checked_sub(1)))
                .ok_or_else(|| {
                    let shown: Vec<_> = names.iter().take(NAMES_SHOWN).map(|name| readable(name)).collect();
                    let more = if names.len() > NAMES_SHOWN { ", ..." } else { "" };
                    Unusable::Column(format!(
                        "no column {} in the header, which names: {}{more}",
                        readable(key),
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
        !self.source.has_line()
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
        let mut value = self.source.bytes(0..extent.value);
        if line == 1 && matches!(self.format, Format::Jsonl { .. }) {
            value = value.strip_prefix(BYTE_ORDER_MARK).unwrap_or(value);
        }
        let key = match &self.format {
            Format::Lines => Ok(Cow::Borrowed(value)),
            Format::Tsv { column } => value
                .split(|byte| *byte == b'\t')
                .nth(*column)
                .map(Cow::Borrowed)
                .ok_or_else(|| missing(*column, value.split(|byte| *byte == b'\t').count())),
            Format::Csv { column, parser, .. } => match parser.field(*column) {
                Some(field) if extent.cr && column + 1 == parser.len() => {
                    Ok(Cow::Borrowed(field.strip_suffix(b"\r").unwrap_or(field)))
                }
                Some(field) => Ok(Cow::Borrowed(field)),
                // An empty line is one empty field.
                None if value.is_empty() && *column == 0 => Ok(Cow::Borrowed(value)),
                None => Err(missing(*column, parser.len().max(1))),
            },
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
            Ok(key) => Ok(Some(Ok(Record { line, key, value }))),
        }
    }

    /// Moves the cursor over the record given out last.
    fn step(&mut self) {
        self.source.advance(self.given);
        self.given = 0;
    }

    /// Looks at the end of the first line.
    fn learn_line_end(&mut self) -> io::Result<()> {
        if let Line::At { length, terminated: true } = self.source.line(0)? {
            self.crlf = length > 0 && self.source.bytes(length - 1..length) == b"\r";
        }
        Ok(())
    }

    /// The names in the first record; `None` if the input is empty.
    fn header(&mut self) -> Result<Option<Vec<Vec<u8>>>, Unusable> {
        let extent = match self.extent().map_err(Unusable::Io)? {
            None => return Ok(None),
            Some(Err(why)) => return Err(Unusable::Column(format!("line 1: the header is bad: {why}"))),
            Some(Ok(extent)) => extent,
        };
        self.lines += extent.lines;
        self.given = extent.whole;
        let text = self.source.bytes(0..extent.value);
        let mut names: Vec<Vec<u8>> = match &self.format {
            Format::Csv { parser, .. } if !text.is_empty() => {
                (0..parser.len()).filter_map(|column| parser.field(column)).map(<[u8]>::to_vec).collect()
            }
            _ => text
                .strip_prefix(BYTE_ORDER_MARK)
                .unwrap_or(text)
                .split(|byte| *byte == b'\t')
                .map(<[u8]>::to_vec)
                .collect(),
        };
        if let (Format::Csv { .. }, true, Some(last)) = (&self.format, extent.cr, names.last_mut())
            && last.last() == Some(&b'\r')
        {
            last.pop();
        }
        Ok(Some(names))
    }

    /// Finds the record at the cursor. A bad one is passed over, and its lines counted.
    fn extent(&mut self) -> io::Result<Option<Result<Extent, String>>> {
        let mut begun = 0;
        let mut lines = 0;
        if let Format::Csv { parser, incomplete, .. } = &mut self.format {
            parser.begin(std::mem::take(incomplete));
        }
        loop {
            match self.source.line(begun)? {
                Line::End if begun == 0 => return Ok(None),
                Line::End => {
                    return Ok(Some(Err(self.give_up(begun, lines, "a quoted field never ends".into()))));
                }
                Line::TooLong => {
                    self.source.skip_line(begun)?;
                    return Ok(Some(Err(self.give_up(
                        0,
                        lines + 1,
                        format!("longer than a value may be ({})", output::bytes(VALUE_BYTES_MAX as u64)),
                    ))));
                }
                Line::At { length, terminated } => {
                    lines += 1;
                    let end = begun + length;
                    let whole = end + usize::from(terminated);
                    let cr = self.crlf && terminated && self.source.bytes(begun..end).ends_with(b"\r");
                    let value = end - usize::from(cr);
                    let complete = match &mut self.format {
                        // The parser passes over empty lines; here they are records with one empty field.
                        Format::Csv { parser, .. } if value > 0 => {
                            parser.feed(self.source.bytes(begun..whole))
                                || (!terminated && parser.feed(b"\n"))
                        }
                        _ => true,
                    };
                    if complete {
                        return Ok(Some(Ok(Extent { value, whole, lines, cr })));
                    }
                    begun = whole;
                }
            }
        }
    }

    /// Passes over a bad record.
    fn give_up(&mut self, bytes: usize, lines: u64, why: String) -> String {
        self.source.advance(bytes);
        self.lines += lines;
        if let Format::Csv { incomplete, .. } = &mut self.format {
            *incomplete = true;
        }
        why
    }
}

fn missing(column: usize, fields: usize) -> String {
    format!("no column {}: the line has {}", column + 1, output::plural(fields as u64, "field"))
}
