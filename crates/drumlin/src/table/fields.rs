//! Tagged fields: a record that later versions may extend.
//!
//! Place: `meta` and `properties`. The manifest has the same form, and code of its own for it (`version::fields`).
//!
//! Bytes: fields one after the other, each `tag u8 | length varint | bytes`. A tag with the high
//! bit may be skipped by a reader that does not know it; an unknown tag without it must be
//! refused as unsupported. Tests: `meta`.

use std::path::Path;

use crate::error::{Error, Result};
use crate::table::varint::{get_bytes, get_varint, put_bytes, put_varint};

/// Set in tags that a reader may skip.
pub(crate) const IGNORABLE: u8 = 0x80;

/// Appends a field of bytes.
pub(crate) fn put_field(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    put_bytes(out, bytes);
}

/// Appends a field that holds varints.
pub(crate) fn put_numbers(out: &mut Vec<u8>, tag: u8, numbers: &[u64]) {
    let mut bytes = Vec::new();
    numbers.iter().for_each(|&number| put_varint(&mut bytes, number));
    put_field(out, tag, &bytes);
}

/// One field being decoded, with what an error message needs.
pub(crate) struct Field<'a> {
    /// What it is.
    pub(crate) tag: u8,
    bytes: &'a [u8],
    path: &'a Path,
    offset: u64,
}

impl<'a> Field<'a> {
    /// The field's bytes.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Exactly `N` varints.
    pub(crate) fn numbers<const N: usize>(&self) -> Result<[u64; N]> {
        let mut at = 0;
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = get_varint(self.bytes, &mut at).ok_or_else(|| self.malformed())?;
        }
        if at == self.bytes.len() { Ok(numbers) } else { Err(self.malformed()) }
    }

    /// One varint.
    pub(crate) fn number(&self) -> Result<u64> {
        Ok(self.numbers::<1>()?[0])
    }

    /// 0 or 1.
    pub(crate) fn flag(&self) -> Result<bool> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed()),
        }
    }

    /// The error for a field of this tag that does not hold what it should.
    pub(crate) fn malformed(&self) -> Error {
        Error::corruption(self.path, self.offset, format!("the field with tag {} is malformed", self.tag))
    }

    /// What to do with a tag this build does not know: skip it or refuse the record.
    pub(crate) fn unknown(&self) -> Result<()> {
        if self.tag & IGNORABLE != 0 {
            return Ok(());
        }
        let why = format!("a record holds the required field {} of a newer version", self.tag);
        Err(Error::Unsupported { path: self.path.to_path_buf(), why })
    }
}

/// Calls `each` for every field of `bytes`, which lie at `offset` of `path`.
pub(crate) fn for_each_field(
    bytes: &[u8],
    path: &Path,
    offset: u64,
    mut each: impl FnMut(&Field<'_>) -> Result<()>,
) -> Result<()> {
    let mut at = 0;
    while let Some(&tag) = bytes.get(at) {
        let field_offset = offset + at as u64;
        at += 1;
        let bytes = get_bytes(bytes, &mut at)
            .ok_or_else(|| Error::corruption(path, field_offset, "a field is longer than its record"))?;
        each(&Field { tag, bytes, path, offset: field_offset })?;
    }
    Ok(())
}
