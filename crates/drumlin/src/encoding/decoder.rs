//! A decoder: takes bytes apart from the front.
//!
//! Place: of [`super`]; see there for what holds. Who calls it turns [`Malformed`] into an error that says where.
//! Tests: below.

use super::{Malformed, get_varint};

/// Bytes being read, from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// A decoder of all of `bytes`.
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { rest: bytes }
    }

    /// What is left, without taking it.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// True if nothing is left.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `count` bytes.
    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// The next 4 bytes.
    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next 8 bytes.
    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// A varint, in its shortest form or not.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let mut bytes = 0;
        let value = get_varint(self.rest, &mut bytes)?;
        self.rest = &self.rest[bytes..];
        Ok(value)
    }

    /// A varint that counts bytes in memory.
    #[inline]
    pub(crate) fn length(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.varint()?).map_err(|_| Malformed)
    }

    /// A length and as many bytes.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.length()?;
        self.take(length)
    }
}

/// The little-endian u64 at `offset`, if it is there.
#[inline]
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::encoding::{put_bytes, put_varint};

    #[test]
    fn what_was_written_comes_back_in_order() {
        let mut out = vec![7];
        out.extend(0xdead_beefu32.to_le_bytes());
        out.extend(0x0123_4567_89ab_cdefu64.to_le_bytes());
        put_varint(&mut out, 300);
        put_bytes(&mut out, b"key");
        out.extend(*b"rest");
        let mut decoder = Decoder::new(&out);
        assert_eq!(decoder.array(), Ok([7]));
        assert_eq!(decoder.u32(), Ok(0xdead_beef));
        assert_eq!(decoder.u64(), Ok(0x0123_4567_89ab_cdef));
        assert_eq!(decoder.varint(), Ok(300));
        assert_eq!(decoder.bytes(), Ok(&b"key"[..]));
        assert_eq!(decoder.array(), Ok(*b"re"));
        assert_eq!(decoder.take(3), Err(Malformed), "two are left, and stay");
        assert_eq!(decoder.rest(), b"st");
    }

    #[test]
    fn a_word_is_found_only_where_all_of_it_lies() {
        let bytes: Vec<u8> = (0..12).collect();
        assert_eq!(u64_at(&bytes, 4), Some(0x0b0a_0908_0706_0504));
        for offset in [5, 12, 13, usize::MAX] {
            assert_eq!(u64_at(&bytes, offset), None, "{offset}");
        }
    }

    #[test]
    fn lengths_beyond_the_end_are_refused() {
        assert_eq!(Decoder::new(&[5, 1, 2]).bytes(), Err(Malformed));
        let mut longest = Vec::new();
        put_varint(&mut longest, u64::MAX);
        longest.push(7);
        assert_eq!(Decoder::new(&longest).bytes(), Err(Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            steps in prop::collection::vec(0..7, 0..32),
        ) {
            let mut decoder = Decoder::new(&bytes);
            for step in steps {
                let before = decoder.rest().len();
                let taken = match step {
                    0 => decoder.array::<1>().is_ok(),
                    1 => decoder.u32().is_ok(),
                    2 => decoder.u64().is_ok(),
                    3 => decoder.varint().is_ok(),
                    4 => decoder.length().is_ok(),
                    5 => decoder.bytes().is_ok(),
                    _ => decoder.take(9).is_ok(),
                };
                prop_assert_eq!(decoder.rest(), &bytes[bytes.len() - decoder.rest().len()..]);
                prop_assert!(!taken || decoder.rest().len() < before);
            }
        }
    }
}
