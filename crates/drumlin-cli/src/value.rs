//! The value to store: an argument, or with `-` the bytes of standard input.
//!
//! Place: used by `put` and `cas`.
//!
//! 1. It is read whole, and its size checked, before a store is opened or made.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use drumlin::key::VALUE_BYTES_MAX;

use crate::failure::{Failure, Result};
use crate::input::Stream;
use crate::interrupt;
use crate::output;

/// The bytes of the value that was given.
pub fn read(given: &OsStr) -> Result<Cow<'_, [u8]>> {
    if given != "-" {
        return Ok(Cow::Borrowed(given.as_bytes()));
    }
    let mut value = Vec::new();
    let stream = Stream::standard_input();
    match stream.and_then(|input| input.take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut value)) {
        Err(error) => {
            interrupt::check()?;
            Err(Failure::file("read", Path::new("standard input"), error))
        }
        Ok(length) if length > VALUE_BYTES_MAX => Err(Failure::Input(format!(
            "standard input is longer than a value may be ({})",
            output::bytes(VALUE_BYTES_MAX as u64)
        ))),
        Ok(_) => Ok(Cow::Owned(value)),
    }
}
