//! A file or stream as lines, found without copying them.
//!
//! Place: below `input`; reads from whatever `load` opened.
//!
//! 1. A line ends at a line feed or at the end of the input; no other byte means anything here.
//! 2. Lines are slices of one buffer, which grows to the longest line, and never beyond `line_bytes_max`.
//! 3. [`Source::line_here`] gives the next line only if it can be had without reading: a caller that
//!    must tell something before it may have to wait tells it when this gives none.
//!
//! Tests: below, over every split of the input into reads.

use std::io::{self, Read};
use std::ops::Range;

/// Bytes asked of the input at once.
const READ_BYTES: usize = 64 << 10;

/// Where a line is, relative to the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// It has `length` bytes before its line feed, or before the end of the input if not `terminated`.
    At {
        /// Bytes without the line feed.
        length: usize,
        /// Whether a line feed follows.
        terminated: bool,
    },
    /// It, together with what lies between it and the cursor, is longer than allowed.
    TooLong,
    /// There is none: the input ends here.
    End,
}

/// A buffered input with a cursor.
pub struct Source {
    input: Box<dyn Read>,
    buffer: Vec<u8>,
    /// The cursor: bytes before it are done with.
    start: usize,
    /// End of the bytes read.
    filled: usize,
    /// The end of the input was seen.
    ended: bool,
    /// Bytes before the cursor since the beginning of the input.
    taken: u64,
    line_bytes_max: usize,
}

impl Source {
    /// Lines of `input`, each of at most `line_bytes_max` bytes.
    pub fn new(input: Box<dyn Read>, line_bytes_max: usize) -> Self {
        Source { input, buffer: Vec::new(), start: 0, filled: 0, ended: false, taken: 0, line_bytes_max }
    }

    /// Whether the bytes from the cursor on, as far as they are read, begin so.
    pub fn begins_with(&self, bytes: &[u8]) -> bool {
        self.buffer[self.start..self.filled].starts_with(bytes)
    }

    /// Bytes of input before the cursor.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The line at the cursor, if it is here, so that asking for it reads nothing.
    pub fn line_here(&self) -> Option<&[u8]> {
        let here = &self.buffer[self.start..self.filled];
        match memchr::memchr(b'\n', here) {
            Some(end) => Some(&here[..end]),
            None => self.ended.then_some(here),
        }
    }

    /// Finds the line that begins `from` bytes after the cursor; the cursor stays.
    pub fn line(&mut self, from: usize) -> io::Result<Line> {
        let mut searched = from;
        loop {
            let have = self.filled - self.start;
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[self.start + searched..self.filled]) {
                let end = searched + at;
                return Ok(if end > self.line_bytes_max {
                    Line::TooLong
                } else {
                    Line::At { length: end - from, terminated: true }
                });
            }
            if have > self.line_bytes_max {
                return Ok(Line::TooLong);
            }
            searched = have;
            if self.ended || !self.read_more()? {
                return Ok(if have == from {
                    Line::End
                } else {
                    Line::At { length: have - from, terminated: false }
                });
            }
        }
    }

    /// Bytes relative to the cursor, within a line already found.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[self.start + range.start..self.start + range.end]
    }

    /// Moves the cursor forward over bytes already found.
    pub fn advance(&mut self, bytes: usize) {
        self.start += bytes;
        self.taken += bytes as u64;
    }

    /// Moves the cursor behind the line that begins `from` bytes after it, without keeping that line.
    pub fn skip_line(&mut self, from: usize) -> io::Result<()> {
        self.advance(from);
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[self.start..self.filled]) {
                self.advance(at + 1);
                return Ok(());
            }
            self.advance(self.filled - self.start);
            if self.ended || !self.read_more()? {
                return Ok(());
            }
        }
    }

    /// Reads once; false at the end of the input.
    fn read_more(&mut self) -> io::Result<bool> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.filled -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.filled < READ_BYTES {
            let wanted =
                (self.buffer.len() * 2).clamp(self.filled + READ_BYTES, self.line_bytes_max + 2 * READ_BYTES);
            self.buffer.resize(wanted, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.filled..]) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(false);
                }
                Ok(count) => {
                    self.filled += count;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives `step` bytes a read.
    pub struct Dribble {
        bytes: Vec<u8>,
        at: usize,
        step: usize,
    }

    impl Read for Dribble {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let count = self.step.min(out.len()).min(self.bytes.len() - self.at);
            out[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
            self.at += count;
            Ok(count)
        }
    }

    fn source(text: &[u8], step: usize, max: usize) -> Source {
        Source::new(Box::new(Dribble { bytes: text.to_vec(), at: 0, step }), max)
    }

    fn lines(mut source: Source) -> Vec<Option<Vec<u8>>> {
        let mut found = Vec::new();
        loop {
            match source.line(0).unwrap() {
                Line::At { length, terminated } => {
                    found.push(Some(source.bytes(0..length).to_vec()));
                    source.advance(length + usize::from(terminated));
                }
                Line::TooLong => {
                    found.push(None);
                    source.skip_line(0).unwrap();
                }
                Line::End => return found,
            }
        }
    }

    #[test]
    fn lines_are_the_same_however_the_input_arrives() {
        let text = b"one\n\ntwo\r\nthree \xff\0\n\nlast";
        let expected: Vec<Option<Vec<u8>>> = text.split(|b| *b == b'\n').map(|l| Some(l.to_vec())).collect();
        for step in 1..=text.len() + 1 {
            assert_eq!(lines(source(text, step, 1000)), expected);
        }
        assert_eq!(lines(source(b"", 1, 9)), vec![]);
        assert_eq!(lines(source(b"\n", 1, 9)), vec![Some(vec![])]);
        assert_eq!(lines(source(b"a\n", 1, 9)), vec![Some(b"a".to_vec())]);
    }

    #[test]
    fn a_long_line_is_passed_over_and_the_next_one_found() {
        for step in [1, 3, 100] {
            let found = lines(source(b"1234\n12345\n1\n123456789\n1234", step, 4));
            let text = |t: &str| Some(t.as_bytes().to_vec());
            assert_eq!(found, vec![text("1234"), None, text("1"), None, text("1234")]);
        }
    }

    #[test]
    fn long_lines_grow_the_buffer_only_to_the_limit() {
        let mut text = vec![b'x'; 1 << 20];
        text.extend(b"\nshort\n");
        let mut source = source(&text, 1 << 16, 100_000);
        assert_eq!(source.line(0).unwrap(), Line::TooLong);
        source.skip_line(0).unwrap();
        assert!(source.buffer.len() < 400_000);
        assert_eq!(source.line(0).unwrap(), Line::At { length: 5, terminated: true });
        assert_eq!(source.taken(), (1 << 20) + 1);
    }

    #[test]
    fn a_line_is_here_only_if_asking_for_it_would_not_read() {
        let mut source = source(b"a\nb\nc", 3, 10);
        assert_eq!(source.line_here(), None);
        source.line(0).unwrap();
        assert_eq!(source.line_here(), Some(&b"a"[..]));
        source.advance(2);
        assert_eq!(source.line_here(), None);
        source.line(0).unwrap();
        source.advance(2);
        assert_eq!(source.line_here(), None);
        source.line(0).unwrap();
        assert_eq!(source.line_here(), Some(&b"c"[..]), "at the end nothing more is read");
    }
}
