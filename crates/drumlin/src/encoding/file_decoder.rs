//! A decoder whose errors say where in which file the bytes are wrong.
//!
//! Place: of [`super`]; see there for what holds. Reads the records of `version` and the tagged fields of `table`.
//!
//! Invariants:
//! 1. What is missing, too long, too many or not in its shortest form is a corruption that names the file and an offset
//!    within the bytes given.
//! 2. What this build must know but does not is [`Error::Unsupported`].
//!
//! Tests: below, `table::meta`, and where records are read.

use std::fmt::Display;
use std::path::Path;

use super::{Decoder, IGNORABLE, Malformed, varint_bytes};
use crate::error::{Error, Result};

/// Bytes of a file being read, from the front.
pub(crate) struct FileDecoder<'a> {
    bytes: Decoder<'a>,
    path: &'a Path,
    /// Offset in the file behind the last byte.
    end: u64,
}

impl<'a> FileDecoder<'a> {
    /// A decoder of `bytes`, which start at `base` in the file `path`.
    pub(crate) fn new(bytes: &'a [u8], path: &'a Path, base: u64) -> Self {
        FileDecoder { bytes: Decoder::new(bytes), path, end: base.saturating_add(bytes.len() as u64) }
    }

    /// The corruption "`what`" at this position.
    pub(crate) fn corrupt(&self, what: impl Into<String>) -> Error {
        Error::corruption(self.path, self.offset(), what)
    }

    /// The error for something this build does not know but must.
    pub(crate) fn unsupported(&self, what: impl Display) -> Error {
        Error::Unsupported {
            path: self.path.to_path_buf(),
            why: format!("{what} at byte {} is not known to it; a newer version wrote it", self.offset()),
        }
    }

    /// What to do with a `what` whose tag this build does not know: skip it or refuse the file.
    pub(crate) fn unknown(&self, what: &str, tag: u8) -> Result<()> {
        if tag & IGNORABLE != 0 { Ok(()) } else { Err(self.unsupported(format!("{what} {tag}"))) }
    }

    /// The position in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.end - self.rest().len() as u64
    }

    /// True if nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What is left, without taking it.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes.rest()
    }

    /// All that is left.
    pub(crate) fn take_rest(&mut self) -> &'a [u8] {
        let rest = self.rest();
        self.bytes = Decoder::new(&[]);
        rest
    }

    /// The next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        self.bytes.take(count).map_err(|Malformed| self.short(count))
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.bytes.array().map_err(|Malformed| self.short(N))
    }

    /// The next byte.
    pub(crate) fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// The next 4 bytes.
    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next 8 bytes.
    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A varint, in its shortest form.
    pub(crate) fn varint(&mut self) -> Result<u64> {
        let mut behind = self.bytes;
        match behind.varint() {
            Ok(value) if self.rest().len() - behind.rest().len() == varint_bytes(value) => {
                self.bytes = behind;
                Ok(value)
            }
            Ok(_) => Err(self.corrupt("a number with needless zeros")),
            Err(Malformed) => Err(self.corrupt("a number that does not end or is beyond 64 bits")),
        }
    }

    /// A varint that fits 32 bits.
    pub(crate) fn varint_u32(&mut self) -> Result<u32> {
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| self.corrupt(format!("{value} is beyond 32 bits")))
    }

    /// A varint that counts something in memory.
    pub(crate) fn length(&mut self) -> Result<usize> {
        let value = self.varint()?;
        usize::try_from(value).map_err(|_| self.corrupt(format!("{value} is beyond the address space")))
    }

    /// A varint that is 0 or 1.
    pub(crate) fn flag(&mut self) -> Result<bool> {
        match self.varint()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.corrupt(format!("{other} is neither yes (1) nor no (0)"))),
        }
    }

    /// A length and that many bytes, as a decoder of their own.
    pub(crate) fn block(&mut self) -> Result<FileDecoder<'a>> {
        let count = self.length()?;
        let base = self.offset();
        Ok(FileDecoder::new(self.take(count)?, self.path, base))
    }

    /// A length and that many bytes of UTF-8.
    pub(crate) fn text(&mut self) -> Result<&'a str> {
        self.block()?.take_text()
    }

    /// All that is left, as UTF-8.
    pub(crate) fn take_text(&mut self) -> Result<&'a str> {
        let text = std::str::from_utf8(self.rest()).map_err(|_| self.corrupt("a name that is not UTF-8"))?;
        self.take_rest();
        Ok(text)
    }

    /// The next tagged field, or `None` at the end.
    pub(crate) fn field(&mut self) -> Result<Option<(u8, FileDecoder<'a>)>> {
        if self.is_empty() {
            return Ok(None);
        }
        let tag = self.u8()?;
        Ok(Some((tag, self.block()?)))
    }

    /// Fails unless everything was read.
    pub(crate) fn end(&self) -> Result<()> {
        match self.rest().len() {
            0 => Ok(()),
            left => Err(self.corrupt(format!("{left} bytes too many"))),
        }
    }

    fn short(&self, count: usize) -> Error {
        self.corrupt(format!("{count} bytes expected, but only {} are left", self.rest().len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::{put_numbers, put_varint};

    #[test]
    fn numbers_read_back_as_written() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), 1 << 63, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut decoder = FileDecoder::new(&bytes, Path::new("f"), 0);
            assert_eq!(decoder.varint().unwrap(), value);
            decoder.end().unwrap();
        }
    }

    #[test]
    fn wrong_bytes_are_corruption_with_an_offset() {
        let cases: [&[u8]; 5] = [
            &[],
            &[0x80],
            &[0x80, 0x00],
            &[0xff; 11],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
        ];
        for bytes in cases {
            let mut decoder = FileDecoder::new(bytes, Path::new("f"), 100);
            match decoder.varint() {
                Err(Error::Corruption(c)) => {
                    assert!(c.offset.unwrap() >= 100 && c.offset.unwrap() <= 100 + bytes.len() as u64);
                }
                other => panic!("{bytes:?} read as {other:?}"),
            }
        }
        let mut decoder = FileDecoder::new(&[9, 1, 2], Path::new("f"), 0);
        assert!(decoder.block().is_err(), "a length beyond the end");
        let longest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 7];
        let mut decoder = FileDecoder::new(&longest, Path::new("f"), 0);
        assert!(decoder.block().is_err(), "the largest length");
    }

    #[test]
    fn a_field_knows_its_place_and_must_be_read_whole() {
        let mut bytes = Vec::new();
        put_numbers(&mut bytes, 3, &[300, 1]);
        let mut fields = FileDecoder::new(&bytes, Path::new("f"), 100);
        let (tag, mut field) = fields.field().unwrap().expect("one");
        assert_eq!((tag, field.offset(), field.varint().unwrap()), (3, 102, 300));
        assert!(field.end().unwrap_err().is_corruption());
        assert!(field.flag().unwrap());
        field.end().unwrap();
        assert!(fields.field().unwrap().is_none());
        assert!(fields.unknown("field", IGNORABLE | 3).is_ok());
        assert!(matches!(fields.unknown("field", 3), Err(Error::Unsupported { .. })));
    }
}
