//! Reading and writing the small pieces that manifest payloads are made of.
//!
//! Place: `edit`, `settings`, `identity` and `journal` encode with the `put_*` functions and decode
//! with [`Reader`]; nothing else does.
//!
//! Invariants:
//! 1. A [`Reader`] never reads outside its bytes and never panics: what is missing, too long or not
//!    canonical is a corruption that names the file and the offset in it.
//! 2. A *tagged field* is tag u8, length varint, that many bytes. Tags from 0x80 on may be skipped
//!    by who does not know them ([`IGNORABLE`]); an unknown tag below is `Unsupported`.

use std::path::Path;

use crate::error::{Error, Result};

/// The bit of a tag that allows an older reader to skip the field.
pub(super) const IGNORABLE: u8 = 0x80;

/// Appends `value` as LEB128.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a length and the bytes.
pub(super) fn put_block(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a tagged field.
pub(super) fn put_field(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    put_block(out, bytes);
}

/// Appends a tagged field that holds one varint.
pub(super) fn put_number(out: &mut Vec<u8>, tag: u8, value: u64) {
    let mut bytes = Vec::with_capacity(10);
    put_varint(&mut bytes, value);
    put_field(out, tag, &bytes);
}

/// Takes bytes apart from the front.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    path: &'a Path,
    /// Offset of `bytes[0]` in the file.
    base: u64,
}

impl<'a> Reader<'a> {
    /// A reader of `bytes`, which start at `base` in the file `path`.
    pub(super) fn new(bytes: &'a [u8], path: &'a Path, base: u64) -> Self {
        Reader { bytes, at: 0, path, base }
    }

    /// The corruption "`what`" at the reader's position.
    pub(super) fn corrupt(&self, what: impl Into<String>) -> Error {
        Error::corruption(self.path, self.offset(), what)
    }

    /// The error for something this build does not know but must.
    pub(super) fn unsupported(&self, what: impl std::fmt::Display) -> Error {
        Error::Unsupported {
            path: self.path.to_path_buf(),
            why: format!("{what} at byte {} is not known to it; a newer version wrote it", self.offset()),
        }
    }

    /// The reader's position in the file.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// The file being read.
    pub(super) fn path(&self) -> &'a Path {
        self.path
    }

    /// True if nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// What is left, without taking it.
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The next `count` bytes.
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let rest = self.rest();
        if count > rest.len() {
            return Err(self.corrupt(format!("{count} bytes expected, but only {} are left", rest.len())));
        }
        self.at += count;
        Ok(&rest[..count])
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().expect("take returns as many bytes as asked for"))
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A LEB128 number, in its shortest form.
    pub(super) fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return Err(self.corrupt("a number beyond 64 bits"));
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(self.corrupt("a number with needless zeros"));
                }
                return Ok(value);
            }
        }
        Err(self.corrupt("a number of more than ten bytes"))
    }

    /// A varint that fits 32 bits.
    pub(super) fn varint_u32(&mut self) -> Result<u32> {
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| self.corrupt(format!("{value} is beyond 32 bits")))
    }

    /// A length and that many bytes, as a reader of their own.
    pub(super) fn block(&mut self) -> Result<Reader<'a>> {
        let count = self.varint()?;
        let base = self.offset();
        let count = usize::try_from(count).map_err(|_| self.corrupt("a length beyond the address space"))?;
        Ok(Reader { bytes: self.take(count)?, at: 0, path: self.path, base })
    }

    /// A length and that many bytes of UTF-8.
    pub(super) fn text(&mut self) -> Result<&'a str> {
        let block = self.block()?;
        std::str::from_utf8(block.bytes).map_err(|_| block.corrupt("a name that is not UTF-8"))
    }

    /// The next tagged field, or `None` at the end.
    pub(super) fn field(&mut self) -> Result<Option<(u8, Reader<'a>)>> {
        if self.is_empty() {
            return Ok(None);
        }
        let tag = self.u8()?;
        Ok(Some((tag, self.block()?)))
    }

    /// Fails unless everything was read.
    pub(super) fn end(&self) -> Result<()> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(self.corrupt(format!("{} bytes too many", self.rest().len())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_as_written() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), 1 << 63, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut reader = Reader::new(&bytes, Path::new("f"), 0);
            assert_eq!(reader.varint().unwrap(), value);
            reader.end().unwrap();
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
            let mut reader = Reader::new(bytes, Path::new("f"), 100);
            match reader.varint() {
                Err(Error::Corruption(c)) => {
                    assert!(c.offset.unwrap() >= 100 && c.offset.unwrap() <= 100 + bytes.len() as u64);
                }
                other => panic!("{bytes:?} read as {other:?}"),
            }
        }
        let mut reader = Reader::new(&[9, 1, 2], Path::new("f"), 0);
        assert!(reader.block().is_err(), "a length beyond the end");
        let mut reader =
            Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 7], Path::new("f"), 0);
        assert!(reader.block().is_err(), "the largest length");
    }
}
