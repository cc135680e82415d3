//! The table of cities, built into the program, and what it says by itself.
//!
//! Place: the reference that every answer of the store is compared with.
//!
//! 1. Rows are in byte order of their key, as the store's are.
//!
//! Origin: `data/README.md` at the root of the repository (GeoNames, CC BY 4.0).

use std::io::{Cursor, Read};
use std::ops::Range;
use std::sync::Arc;

use flate2::read::GzDecoder;

use crate::failure::{Failure, Result};

const PACKED: &[u8] = include_bytes!("../../../../data/cities.tsv.gz");
/// Places of the columns that are used.
const NAME: usize = 1;
const LATITUDE: usize = 4;
const LONGITUDE: usize = 5;
const POPULATION: usize = 6;
const TIME_ZONE: usize = 7;

/// The unpacked table.
pub struct Cities {
    table: Arc<[u8]>,
    rows: Vec<Row>,
}

/// Where a row is in the table.
struct Row {
    line: Range<usize>,
    key_bytes: usize,
}

/// One city as people read it.
pub struct City<'a> {
    /// Its name.
    pub name: &'a str,
    /// Degrees north.
    pub latitude: &'a str,
    /// Degrees east.
    pub longitude: &'a str,
    /// Inhabitants.
    pub population: u64,
    /// IANA name.
    pub time_zone: &'a str,
}

impl Cities {
    /// Unpacks the table and finds its rows.
    pub fn unpack() -> Result<Cities> {
        let mut table = Vec::with_capacity(14 << 20);
        GzDecoder::new(PACKED)
            .read_to_end(&mut table)
            .map_err(|e| Failure::Check(format!("the table built into this program does not unpack: {e}")))?;
        Ok(Cities::from_table(table))
    }

    /// Finds the rows of a table with a header.
    pub fn from_table(table: Vec<u8>) -> Cities {
        let mut rows = Vec::new();
        let mut start = memchr::memchr(b'\n', &table).map_or(table.len(), |end| end + 1);
        while let Some(length) = memchr::memchr(b'\n', &table[start..]) {
            let line = start..start + length;
            let key_bytes = memchr::memchr(b'\t', &table[line.clone()]).unwrap_or(length);
            rows.push(Row { line, key_bytes });
            start += length + 1;
        }
        Cities { table: table.into(), rows }
    }

    /// The table as a file to load.
    pub fn file(&self) -> Box<dyn Read> {
        Box::new(Cursor::new(Arc::clone(&self.table)))
    }

    /// The table's bytes, header included.
    pub fn table(&self) -> &[u8] {
        &self.table
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Byte offset of a row in the table.
    pub fn offset(&self, row: usize) -> usize {
        self.rows[row].line.start
    }

    /// Key of a row.
    pub fn key(&self, row: usize) -> &[u8] {
        let row = &self.rows[row];
        &self.table[row.line.start..row.line.start + row.key_bytes]
    }

    /// The whole line of a row.
    pub fn line(&self, row: usize) -> &[u8] {
        &self.table[self.rows[row].line.clone()]
    }

    /// Inhabitants of a row's city.
    pub fn population(&self, row: usize) -> u64 {
        city(self.line(row)).map_or(0, |city| city.population)
    }

    /// Inhabitants of all rows together.
    pub fn world(&self) -> u64 {
        (0..self.len()).map(|row| self.population(row)).sum()
    }

    /// The row of a key.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let row = self.rows.partition_point(|row| self.table[row.line.start..][..row.key_bytes] < *key);
        (row < self.len() && self.key(row) == key).then_some(row)
    }

    /// The rows with a key from `from` on and before `to`.
    pub fn between(&self, from: &[u8], to: &[u8]) -> Range<usize> {
        let place = |key: &[u8]| {
            self.rows.partition_point(|row| self.table[row.line.start..][..row.key_bytes] < *key)
        };
        place(from)..place(to).max(place(from))
    }

    /// The rows whose key begins with `prefix`.
    pub fn with_prefix(&self, prefix: &[u8]) -> Range<usize> {
        let start = self.between(b"", prefix).end;
        let count = (start..self.len()).take_while(|row| self.key(*row).starts_with(prefix)).count();
        start..start + count
    }
}

/// Reads a line of the table.
pub fn city(line: &[u8]) -> Option<City<'_>> {
    let text = std::str::from_utf8(line).ok()?;
    let mut fields = [""; 8];
    let mut count = 0;
    for field in text.split('\t') {
        *fields.get_mut(count)? = field;
        count += 1;
    }
    (count == fields.len()).then_some(())?;
    Some(City {
        name: fields[NAME],
        latitude: fields[LATITUDE],
        longitude: fields[LONGITUDE],
        population: fields[POPULATION].parse().ok()?,
        time_zone: fields[TIME_ZONE],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_what_its_readme_says() {
        let cities = Cities::unpack().unwrap();
        assert_eq!(cities.len(), 170_391);
        assert_eq!(cities.table().len(), 13_144_586);
        assert!((1..cities.len()).all(|row| cities.key(row - 1) < cities.key(row)));
        assert!((0..cities.len()).all(|row| city(cities.line(row)).is_some()));
        assert_eq!(cities.with_prefix(b"DE/").len(), 7626);
        let berlin = cities.find(b"DE/Berlin/2950159").unwrap();
        assert_eq!(cities.population(berlin), 3_426_354);
        assert_eq!(cities.find(b"DE/Berlin/"), None);
        assert_eq!(cities.between(b"DE/", b"DE0"), cities.with_prefix(b"DE/"));
    }
}
