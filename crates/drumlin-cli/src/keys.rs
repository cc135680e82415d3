//! Keys as they are given on the command line and printed again: bytes, or hexadecimal digits with `--hex`.
//!
//! Place: part of the arguments of every command that takes or prints keys.
//!
//! 1. What is printed with `--hex` can be given with `--hex`, and is the same key.
//! 2. A key that no store can hold is refused here, before a store is made.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use drumlin::key::KEY_BYTES_MAX;

use crate::escape;
use crate::failure::{Failure, Result};
use crate::output;

/// How keys are given and printed.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct KeyForm {
    /// Keys are given and printed in hexadecimal, two digits a byte: 00ff for the bytes 0 and 255
    #[arg(long)]
    pub hex: bool,
}

impl KeyForm {
    /// The key that was given.
    pub fn key(self, given: &OsStr) -> Result<Vec<u8>> {
        let key = self.bound(given)?;
        if key.len() > KEY_BYTES_MAX {
            let (has, may) = (output::count(key.len() as u64), output::plural(KEY_BYTES_MAX as u64, "byte"));
            return Err(Failure::Input(format!("the key has {has} bytes, but may have no more than {may}")));
        }
        Ok(key)
    }

    /// As [`KeyForm::key`], where it only bounds a scan: then it may be longer than any key.
    pub fn bound(self, given: &OsStr) -> Result<Vec<u8>> {
        if !self.hex {
            return Ok(given.as_bytes().to_vec());
        }
        unhex(given.as_bytes()).ok_or_else(|| {
            let given = escape::shortened(given.as_bytes());
            Failure::Usage(format!(
                "with --hex a key is hexadecimal, two digits a byte, as in 00ff: {given} is not"
            ))
        })
    }

    /// The key for a message.
    pub fn readable(self, key: &[u8]) -> String {
        let mut raw = Vec::new();
        self.push_raw(&mut raw, key);
        escape::shortened(&raw)
    }

    /// Appends the key as raw output has it.
    pub fn push_raw(self, out: &mut Vec<u8>, key: &[u8]) {
        if self.hex {
            escape::push_hex(out, key);
        } else {
            out.extend_from_slice(key);
        }
    }

    /// Appends a record as a JSON object; with `--hex` the key is `key_hex`, whatever its bytes.
    pub fn push_record(self, out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
        out.push(b'{');
        self.push_key(out, key);
        if let Some(value) = value {
            out.push(b',');
            escape::push_member(out, "value", value);
        }
        out.push(b'}');
    }

    /// Appends the member of a JSON object that is the key.
    pub fn push_key(self, out: &mut Vec<u8>, key: &[u8]) {
        if self.hex {
            escape::push_hex_member(out, "key", key);
        } else {
            escape::push_member(out, "key", key);
        }
    }
}

fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some((digit(*high)? * 16 + digit(*low)?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_printed_in_hexadecimal_can_be_given_again() {
        let form = KeyForm { hex: true };
        for key in [&b""[..], b"\0", b"a\nb", b"\xff\0\x7f"] {
            let mut printed = Vec::new();
            form.push_raw(&mut printed, key);
            assert_eq!(form.key(OsStr::from_bytes(&printed)).unwrap(), key);
            assert_eq!(form.key(OsStr::from_bytes(&printed.to_ascii_uppercase())).unwrap(), key);
        }
        for wrong in ["0", "0g", "0x00", "00 ff", "\u{ff10}0"] {
            assert!(matches!(form.key(OsStr::new(wrong)), Err(Failure::Usage(_))), "{wrong}");
        }
        assert_eq!(KeyForm { hex: false }.key(OsStr::new("0g")).unwrap(), b"0g");
    }

    #[test]
    fn a_key_no_store_can_hold_is_refused() {
        let long = "k".repeat(KEY_BYTES_MAX + 1);
        let plain = KeyForm { hex: false };
        assert!(matches!(plain.key(OsStr::new(&long)), Err(Failure::Input(_))));
        assert!(plain.key(OsStr::new(&long[1..])).is_ok() && plain.bound(OsStr::new(&long)).is_ok());
    }
}
