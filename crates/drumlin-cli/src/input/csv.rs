//! Comma separated fields, as in RFC 4180, fed line by line.
//!
//! Place: below `input`; the parsing itself is the crate `csv-core`.
//!
//! 1. A record is complete at the first line feed outside quotes.
//! 2. Carriage returns are data here; `input` takes the one of a line end away from the last field.
//!
//! Origin: RFC 4180, read leniently as most programs do: a quote inside an unquoted field is a
//! character, and so is text behind a closing quote.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder, Terminator};

/// Parser of one record at a time; reuses its memory.
pub struct Csv {
    core: Reader,
    text: Vec<u8>,
    text_len: usize,
    ends: Vec<usize>,
    ends_len: usize,
}

impl Csv {
    /// A parser before its first record.
    pub fn new() -> Self {
        Csv {
            core: ReaderBuilder::new().terminator(Terminator::Any(b'\n')).build(),
            text: vec![0; 1024],
            text_len: 0,
            ends: vec![0; 32],
            ends_len: 0,
        }
    }

    /// Forgets the fields of the record before, and any that was left incomplete.
    pub fn begin(&mut self, after_incomplete: bool) {
        if after_incomplete {
            self.core.reset();
        }
        self.text_len = 0;
        self.ends_len = 0;
    }

    /// Takes one line with its line feed; true when the record is complete.
    pub fn feed(&mut self, line: &[u8]) -> bool {
        let mut rest = line;
        while !rest.is_empty() {
            let (result, read, text, ends) =
                self.core.read_record(rest, &mut self.text[self.text_len..], &mut self.ends[self.ends_len..]);
            rest = &rest[read..];
            self.text_len += text;
            self.ends_len += ends;
            match result {
                ReadRecordResult::Record => return true,
                ReadRecordResult::OutputFull => self.text.resize(self.text.len() * 2, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::InputEmpty | ReadRecordResult::End => {}
            }
        }
        false
    }

    /// Number of fields of the complete record.
    pub fn len(&self) -> usize {
        self.ends_len
    }

    /// A field of the complete record, unquoted, by its number from 0.
    pub fn field(&self, column: usize) -> Option<&[u8]> {
        let end = *self.ends[..self.ends_len].get(column)?;
        let start = if column == 0 { 0 } else { self.ends[column - 1] };
        Some(&self.text[start..end])
    }
}
