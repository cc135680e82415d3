//! Variable-length integers: LEB128, unsigned, low seven bits first.
//!
//! Place: of [`super`]; see there for what holds. Tests: below.

use super::Malformed;

/// Bytes of the longest varint.
const VARINT_BYTES_MAX: usize = 10;

/// Bytes of an encoded varint.
#[inline]
pub(crate) fn varint_bytes(value: u64) -> usize {
    ((63 - (value | 1).leading_zeros()) / 7 + 1) as usize
}

/// Appends `value`.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes `value` at `at`, where there must be room; the position behind it.
#[inline(always)]
pub(crate) fn write_varint(bytes: &mut [u8], mut at: usize, mut value: u64) -> usize {
    while value >= 0x80 {
        bytes[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    bytes[at] = value as u8;
    at + 1
}

/// Reads the varint at `*at` and moves `*at` behind it.
#[inline]
pub(crate) fn get_varint(bytes: &[u8], at: &mut usize) -> Result<u64, Malformed> {
    if let Some(word) = bytes.get(*at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*word);
        let stops = !word & 0x8080_8080_8080_8080;
        if stops != 0 {
            let last_bit = stops.trailing_zeros();
            *at += (last_bit as usize >> 3) + 1;
            return Ok(gather(word & (u64::MAX >> (63 - last_bit))));
        }
    }
    get_varint_bytewise(bytes, at)
}

/// Squeezes the continuation bits out of up to eight groups of seven bits.
#[inline]
fn gather(word: u64) -> u64 {
    let word = word & 0x7f7f_7f7f_7f7f_7f7f;
    let word = (word & 0x007f_007f_007f_007f) | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let word = (word & 0x0000_3fff_0000_3fff) | (word & 0x3fff_0000_3fff_0000) >> 2;
    (word & 0x0fff_ffff) | (word & 0x0fff_ffff_0000_0000) >> 4
}

#[cold]
fn get_varint_bytewise(bytes: &[u8], at: &mut usize) -> Result<u64, Malformed> {
    let mut value = 0u64;
    let rest = bytes.get(*at..).ok_or(Malformed)?;
    for (n, &byte) in rest.iter().take(VARINT_BYTES_MAX).enumerate() {
        let group = u64::from(byte & 0x7f);
        if n == VARINT_BYTES_MAX - 1 && group > 1 {
            return Err(Malformed);
        }
        value |= group << (7 * n);
        if byte & 0x80 == 0 {
            *at += n + 1;
            return Ok(value);
        }
    }
    Err(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_comes_back_whatever_follows() {
        let mut numbers = vec![0, 1, u64::MAX];
        for bit in 0..64 {
            numbers.extend([1u64 << bit, (1u64 << bit) - 1, (1u64 << bit) | 0x55]);
        }
        for number in numbers {
            for tail in 0..12 {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, number);
                let length = bytes.len();
                assert_eq!(varint_bytes(number), length);
                bytes.resize(length + tail, 0xff);
                let mut written = bytes.clone();
                written[..length].fill(0);
                assert_eq!(write_varint(&mut written, 0, number), length);
                assert_eq!(written, bytes, "both writers agree");
                let mut at = 0;
                assert_eq!(get_varint(&bytes, &mut at), Ok(number), "{tail} bytes follow");
                assert_eq!(at, length);
            }
        }
    }

    #[test]
    fn unfinished_and_oversized_numbers_are_refused() {
        for length in 0..VARINT_BYTES_MAX {
            assert_eq!(get_varint(&vec![0x80; length], &mut 0), Err(Malformed));
        }
        let mut big = vec![0xff; 9];
        big.push(2);
        assert_eq!(get_varint(&big, &mut 0), Err(Malformed), "65 bits");
        assert_eq!(get_varint(&[0x80; 20], &mut 0), Err(Malformed), "no end");
        assert_eq!(get_varint(&[1], &mut 5), Err(Malformed), "behind the end");
    }
}
