//! The properties: what a table holds and where its parts lie.
//!
//! Place: written behind the index; `resident` reads them after the footer; `verify` compares them
//! with what the file really holds.
//!
//! Bytes: tagged fields (`encoding`) in a frame that is never compressed; see docs/formats/table.md.
//! Tests: `table/tests/`.

use std::path::Path;

use crate::encoding::{FileDecoder, IGNORABLE, put_field, put_numbers};
use crate::error::{Error, Result};
use crate::table::TableMeta;
use crate::table::index::Place;

const CONTENTS: u8 = 1;
const COMPARATOR: u8 = 2;
const INDEX: u8 = 3;
const FILTER: u8 = 4;
const TOMBSTONES: u8 = 5;
const BLOCK_BYTES: u8 = IGNORABLE | 6;

/// Hashed to tell whether a filter was made with the reader's secret.
pub(super) const FILTER_CHECK_KEY: &[u8] = b"drumlin filter check";

/// The properties of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Properties {
    /// Counts and bounds. File length and content hash are not known when they are written: 0.
    pub(super) contents: TableMeta,
    /// Name of the order of keys.
    pub(super) comparator: String,
    /// The root of the index; none if there are no entries.
    pub(super) index: Option<Place>,
    /// 1: the root's children are data blocks; 2: they are index blocks.
    pub(super) index_depth: u64,
    /// The filter.
    pub(super) filter: Option<Place>,
    /// Hash of [`FILTER_CHECK_KEY`] under the secret that the filter was made with.
    pub(super) filter_check: u64,
    /// The range tombstones.
    pub(super) tombstones: Option<Place>,
    /// Block bytes that it was written with, for those who look.
    pub(super) block_bytes: u64,
}

impl Properties {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut contents = Vec::new();
        self.contents.encode(&mut contents);
        put_field(&mut out, CONTENTS, &contents);
        put_field(&mut out, COMPARATOR, self.comparator.as_bytes());
        if let Some(place) = self.index {
            put_numbers(&mut out, INDEX, &[place.offset, place.bytes, self.index_depth]);
        }
        if let Some(place) = self.filter {
            put_numbers(&mut out, FILTER, &[place.offset, place.bytes, self.filter_check]);
        }
        if let Some(place) = self.tombstones {
            put_numbers(&mut out, TOMBSTONES, &[place.offset, place.bytes]);
        }
        put_numbers(&mut out, BLOCK_BYTES, &[self.block_bytes]);
        out
    }

    /// Reads the properties that lie at `place` of a file.
    pub(super) fn decode(bytes: &[u8], path: &Path, place: Place) -> Result<Properties> {
        let mut found = Properties::default();
        let mut fields = FileDecoder::new(bytes, path, place.offset);
        while let Some((tag, mut field)) = fields.field()? {
            match tag {
                CONTENTS => found.contents = TableMeta::decode(&mut field)?,
                COMPARATOR => found.comparator = field.take_text()?.to_owned(),
                INDEX => (found.index, found.index_depth) = (Some(part(&mut field)?), field.varint()?),
                FILTER => (found.filter, found.filter_check) = (Some(part(&mut field)?), field.varint()?),
                TOMBSTONES => found.tombstones = Some(part(&mut field)?),
                BLOCK_BYTES => found.block_bytes = field.varint()?,
                tag => {
                    field.unknown("field", tag)?;
                    continue;
                }
            }
            field.end()?;
        }
        let malformed = |what: &str| Err(Error::corruption(path, place.offset, what));
        for part in [found.index, found.filter, found.tombstones].into_iter().flatten() {
            if part.bytes == 0 || part.end() > place.offset || part.offset.checked_add(part.bytes).is_none() {
                return malformed("the properties name a part outside of the file");
            }
        }
        if found.index.is_some() != (found.contents.entries != 0) || found.index_depth > 2 {
            return malformed("the properties and their index do not agree");
        }
        if found.index.is_some() && found.index_depth == 0 {
            return malformed("the index has no depth");
        }
        if found.tombstones.is_some() != (found.contents.range_tombstones != 0) {
            return malformed("the properties and their range tombstones do not agree");
        }
        Ok(found)
    }
}

fn part(field: &mut FileDecoder<'_>) -> Result<Place> {
    Ok(Place { offset: field.varint()?, bytes: field.varint()? })
}
