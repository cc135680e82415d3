//! Encodings: what every file is made of. Little-endian integers, varints, bytes with their length, tagged fields.
//!
//! Place: below all that has bytes of its own (`log`, `table`, `version`), which say in which order they come.
//! Imports `error` only. `put_*` append; a [`Decoder`] takes bytes apart from the front, a [`FileDecoder`] does the same
//! for bytes of a file and names file and offset in its errors.
//!
//! Invariants:
//! 1. Decoding never panics, never reads outside of its bytes and takes no memory, whatever the bytes: what it returns
//!    is a number or a part of them.
//! 2. What `put_*` wrote is read back as it was, whatever follows.
//!
//! Bytes: a *varint* is unsigned LEB128, at most ten bytes. *Bytes* are a varint length and as many bytes. A *tagged
//! field* is `tag u8 | bytes`; a reader that does not know the tag may skip it from 0x80 on ([`IGNORABLE`]) and must
//! refuse it below.
//!
//! Tests: `varint`, `decoder` and `file_decoder`.

mod decoder;
mod file_decoder;
mod varint;

pub(crate) use decoder::{Decoder, u64_at};
pub(crate) use file_decoder::FileDecoder;
pub(crate) use varint::{get_varint, put_varint, varint_bytes, write_varint};

/// The bytes are not what they should be, although their checksum may be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Set in tags that a reader may skip.
pub(crate) const IGNORABLE: u8 = 0x80;

/// Appends the length of `bytes` as a varint, then `bytes`.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a tagged field of bytes.
pub(crate) fn put_field(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    put_bytes(out, bytes);
}

/// Appends a tagged field that holds varints.
pub(crate) fn put_numbers(out: &mut Vec<u8>, tag: u8, numbers: &[u64]) {
    let mut bytes = Vec::new();
    numbers.iter().for_each(|&number| put_varint(&mut bytes, number));
    put_field(out, tag, &bytes);
}
