//! Geometry: which segment an LSN lies in, and where in its file.
//!
//! Place: asked by all that reads the log's files; writers, who ask for every record, shift and mask instead
//! (`super::Hot`). Knows neither files nor bytes.
//!
//! Segment i holds the LSNs `[i * units, (i + 1) * units)`, eight bytes each, behind the header page of its file.
//! Tests: below.

use super::format::HEADER_PAGE;
use crate::key::Lsn;

/// The shape of a log's segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Geometry {
    /// LSNs per segment.
    units: u64,
}

impl Geometry {
    /// Of segments with so many bytes of data.
    pub(super) fn new(segment_bytes: usize) -> Geometry {
        Geometry { units: (segment_bytes as u64 / Lsn::UNIT_BYTES).max(1) }
    }

    /// LSNs per segment.
    pub(super) fn units(self) -> u64 {
        self.units
    }

    /// The segment that holds `lsn`.
    pub(super) fn segment_of(self, lsn: Lsn) -> u64 {
        lsn.0 / self.units
    }

    /// The first LSN of a segment, and the end of the one before.
    pub(super) fn first_lsn(self, segment: u64) -> Lsn {
        Lsn(segment * self.units)
    }

    /// The first segment that holds nothing below `lsn`.
    pub(super) fn segment_from(self, lsn: Lsn) -> u64 {
        lsn.0.div_ceil(self.units)
    }

    /// Bytes of a segment's data.
    pub(super) fn data_bytes(self) -> u64 {
        self.units * Lsn::UNIT_BYTES
    }

    /// Bytes of a segment's whole file.
    pub(super) fn file_bytes(self) -> u64 {
        HEADER_PAGE as u64 + self.data_bytes()
    }

    /// Where in its segment's data `lsn` lies.
    pub(super) fn data_offset(self, lsn: Lsn) -> usize {
        (lsn.0 % self.units * Lsn::UNIT_BYTES) as usize
    }

    /// Where in its segment's file `lsn` lies.
    pub(super) fn file_offset(self, lsn: Lsn) -> u64 {
        (HEADER_PAGE + self.data_offset(lsn)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lsn_lies_within_its_segment_and_borders_begin_one() {
        let geometry = Geometry::new(64);
        assert_eq!((geometry.units(), geometry.data_bytes()), (8, 64));
        for lsn in (0..40).map(Lsn) {
            let segment = geometry.segment_of(lsn);
            let (first, end) = (geometry.first_lsn(segment), geometry.first_lsn(segment + 1));
            assert!(first <= lsn && lsn < end);
            assert_eq!(geometry.data_offset(lsn) as u64, (lsn.0 - first.0) * 8);
            assert!(geometry.file_offset(lsn) + 8 <= geometry.file_bytes());
            assert_eq!(geometry.segment_from(lsn), if lsn == first { segment } else { segment + 1 });
        }
    }
}
