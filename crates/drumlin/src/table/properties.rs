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
use crate::key::{KeyForm, KeyHash};
use crate::table::TableMeta;
use crate::table::hashed::{Cluster, Hashed};
use crate::table::index::Place;
use crate::table::tombstone_block::Form;

const CONTENTS: u8 = 1;
const COMPARATOR: u8 = 2;
const INDEX: u8 = 3;
const FILTER: u8 = 4;
const TOMBSTONE_PAIRS: u8 = 5;
const BLOCK_BYTES: u8 = IGNORABLE | 6;
const PLACED: u8 = 7;
const HASHED: u8 = 8;
const CLUSTER: u8 = 9;
const TOMBSTONES: u8 = 10;

/// The properties of a table, but for the counts and bounds of its contents: the manifest has those.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Properties {
    /// Name of the order of keys.
    pub(super) comparator: String,
    /// The root of the index; none if there are no entries.
    pub(super) index: Option<Place>,
    /// 1: the root's children are data blocks; 2: they are index blocks.
    pub(super) index_depth: u64,
    /// The filter.
    pub(super) filter: Option<Place>,
    /// The check value of the hasher that the filter was made with.
    pub(super) filter_check: u64,
    /// The range tombstones, and how they are written.
    pub(super) tombstones: Option<(Place, Form)>,
    /// The hash behind which its keys stand, with the check value of the store that wrote them; none if keys are bare.
    pub(super) placed: Option<(KeyHash, u64)>,
    /// Its buckets; none of a sorted table.
    pub(super) hashed: Option<Hashed>,
    /// Its filter beside those of the tables under it, in place of one of its own.
    pub(super) cluster: Option<Cluster>,
    /// Block bytes that it was written with, for those who look.
    pub(super) block_bytes: u64,
}

impl Properties {
    /// True if the table's keys are in this form.
    pub(super) fn is_of(&self, form: KeyForm) -> bool {
        self.placed == placed(form)
    }

    /// With what the table holds. File length and content hash are not known yet: 0.
    pub(super) fn encode(&self, contents: &TableMeta) -> Vec<u8> {
        let mut out = Vec::new();
        let mut encoded = Vec::new();
        contents.encode(&mut encoded);
        put_field(&mut out, CONTENTS, &encoded);
        put_field(&mut out, COMPARATOR, self.comparator.as_bytes());
        if let Some(place) = self.index {
            put_numbers(&mut out, INDEX, &[place.offset, place.bytes, self.index_depth]);
        }
        if let Some(place) = self.filter {
            put_numbers(&mut out, FILTER, &[place.offset, place.bytes, self.filter_check]);
        }
        if let Some((place, form)) = self.tombstones {
            let tag = if form == Form::Pairs { TOMBSTONE_PAIRS } else { TOMBSTONES };
            put_numbers(&mut out, tag, &[place.offset, place.bytes]);
        }
        put_numbers(&mut out, BLOCK_BYTES, &[self.block_bytes]);
        if let Some((hash, check)) = self.placed {
            put_numbers(&mut out, PLACED, &[hash.number(), check]);
        }
        if let Some(hashed) = &self.hashed {
            put_numbers(&mut out, HASHED, &hashed.numbers());
        }
        if let Some(cluster) = &self.cluster {
            put_field(&mut out, CLUSTER, &cluster.encode());
        }
        out
    }

    /// The parts behind the blocks, but for index blocks below the root, in the order in which they lie.
    pub(super) fn parts(&self) -> impl Iterator<Item = Place> {
        let of_hashed = |part: fn(&Hashed) -> Option<Place>| self.hashed.as_ref().and_then(part);
        let hashed = [of_hashed(|hashed| hashed.records), of_hashed(|hashed| hashed.special)];
        [self.tombstones.map(|(place, _)| place), self.filter]
            .into_iter()
            .chain(hashed)
            .chain([self.index])
            .flatten()
    }

    /// Reads the properties that lie at `place` of a file, and what they say that it holds.
    pub(super) fn decode(bytes: &[u8], path: &Path, place: Place) -> Result<(Properties, TableMeta)> {
        let (mut found, mut contents) = (Properties::default(), TableMeta::default());
        let mut fields = FileDecoder::new(bytes, path, place.offset);
        while let Some((tag, mut field)) = fields.field()? {
            match tag {
                CONTENTS => contents = TableMeta::decode(&mut field)?,
                COMPARATOR => found.comparator = field.take_text()?.to_owned(),
                INDEX => (found.index, found.index_depth) = (Some(part(&mut field)?), field.varint()?),
                FILTER => (found.filter, found.filter_check) = (Some(part(&mut field)?), field.varint()?),
                TOMBSTONES => found.tombstones = Some((part(&mut field)?, Form::Fragments)),
                TOMBSTONE_PAIRS => found.tombstones = Some((part(&mut field)?, Form::Pairs)),
                BLOCK_BYTES => found.block_bytes = field.varint()?,
                PLACED => {
                    let number = field.varint()?;
                    let hash = KeyHash::from_number(number);
                    let unknown = || field.unsupported(format!("key hash {number}"));
                    found.placed = Some((hash.ok_or_else(unknown)?, field.varint()?));
                }
                HASHED => found.hashed = Some(Hashed::decode(&mut field)?),
                CLUSTER => found.cluster = Some(Cluster::decode(&mut field)?),
                tag => {
                    field.unknown("field", tag)?;
                    continue;
                }
            }
            field.end()?;
        }
        let malformed = |what: &str| Err(Error::corruption(path, place.offset, what));
        for part in found.parts() {
            if part.bytes == 0 || part.end() > place.offset || part.offset.checked_add(part.bytes).is_none() {
                return malformed("the properties name a part outside of the file");
            }
        }
        let in_buckets = found.hashed.as_ref().map_or(0, |hashed| hashed.entries);
        let sorted = contents.entries.checked_sub(in_buckets);
        if found.hashed.as_ref().is_some_and(|hashed| hashed.end() > place.offset || found.placed.is_none()) {
            return malformed("the properties name buckets outside of the file");
        }
        let is_outside = |cluster: &Cluster| cluster.place(0).offset + cluster.bytes() > place.offset;
        if found.cluster.as_ref().is_some_and(|cluster| is_outside(cluster) || found.placed.is_none()) {
            return malformed("the properties name a cluster of filters outside of the file");
        }
        if sorted.is_none_or(|sorted| found.index.is_some() != (sorted != 0)) || found.index_depth > 2 {
            return malformed("the properties and their index do not agree");
        }
        if found.index.is_some() && found.index_depth == 0 {
            return malformed("the index has no depth");
        }
        if found.tombstones.is_some() != (contents.range_tombstones != 0) {
            return malformed("the properties and their range tombstones do not agree");
        }
        Ok((found, contents))
    }
}

/// The hash behind which keys of a form stand, with its check value.
pub(super) fn placed(form: KeyForm) -> Option<(KeyHash, u64)> {
    form.placer().map(|placer| (placer.hash(), placer.check_value()))
}

fn part(field: &mut FileDecoder<'_>) -> Result<Place> {
    Ok(Place { offset: field.varint()?, bytes: field.varint()? })
}
