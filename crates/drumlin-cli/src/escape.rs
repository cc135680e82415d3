//! Bytes as JSON, without loss.
//!
//! Place: used by every command that prints keys or values with `--json` or `--format jsonl`.
//!
//! 1. Bytes that are UTF-8 are a JSON string under the plain name: `"key":"DE/Berlin"`.
//! 2. Other bytes are lowercase hexadecimal under the name with `_hex`: `"key_hex":"ff00"`. A string with
//!    replacement characters would lose bytes, and lone surrogates are refused by strict parsers.
//! 3. A line never holds a raw line end, whatever the bytes.

use crate::output;

/// Appends `"NAME":"text"`, or `"NAME_hex":"…"` for bytes that are not UTF-8.
pub fn push_member(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            out.extend_from_slice(b"\":");
            push_string(out, text);
        }
        Err(_) => push_hex_value(out, bytes),
    }
}

/// Appends `"NAME_hex":"…"`, whatever the bytes.
pub fn push_hex_member(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    push_hex_value(out, bytes);
}

fn push_hex_value(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(b"_hex\":\"");
    push_hex(out, bytes);
    out.push(b'"');
}

/// Appends bytes as lowercase hexadecimal digits.
pub fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        out.push(HEX[usize::from(byte >> 4)]);
        out.push(HEX[usize::from(byte & 15)]);
    }
}

/// Appends `text` as a JSON string with its quotes.
pub fn push_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a string is always JSON, and a Vec always takes bytes");
}

/// Bytes for a message to a person: text as it is, other bytes as `\xNN`.
pub fn readable(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
        }
        for byte in chunk.invalid() {
            text.push_str("\\x");
            text.push(char::from(HEX[usize::from(byte >> 4)]));
            text.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    text
}

/// As [`readable`], cut short where it would fill the screen.
pub fn shortened(bytes: &[u8]) -> String {
    const SHOWN: usize = 200;
    match bytes.get(..SHOWN) {
        Some(beginning) => {
            format!("{}... ({})", readable(beginning), output::plural(bytes.len() as u64, "byte"))
        }
        None => readable(bytes),
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyForm;
    use serde_json::Value;

    fn record(key: &[u8], value: &[u8]) -> (Vec<u8>, Value) {
        let mut out = Vec::new();
        KeyForm { hex: false }.push_record(&mut out, key, Some(value));
        let parsed = serde_json::from_slice(&out).unwrap();
        (out, parsed)
    }

    fn back(object: &Value, name: &str) -> Vec<u8> {
        match object.get(name) {
            Some(text) => text.as_str().unwrap().as_bytes().to_vec(),
            None => {
                let hex = object[format!("{name}_hex")].as_str().unwrap();
                (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
            }
        }
    }

    #[test]
    fn every_byte_string_comes_back_from_its_json() {
        let mut cases: Vec<Vec<u8>> =
            vec![b"".to_vec(), "Kyōto \"\\ \u{2028}\u{0}".into(), vec![0xff, 0, 10]];
        cases.extend((0..=255u8).map(|b| vec![b'a', b]));
        cases.push("é".as_bytes()[..1].to_vec());
        for key in &cases {
            for value in [&cases[0], &cases[1], &cases[2]] {
                let (line, object) = record(key, value);
                assert_eq!((&back(&object, "key"), &back(&object, "value")), (key, value));
                assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
            }
        }
    }

    #[test]
    fn text_keeps_the_plain_name_and_other_bytes_get_hex() {
        assert_eq!(record(b"a", b"\xff\x0a").0, br#"{"key":"a","value_hex":"ff0a"}"#);
        let mut out = Vec::new();
        KeyForm { hex: false }.push_record(&mut out, b"a\tb", None);
        assert_eq!(out, br#"{"key":"a\tb"}"#);
    }

    #[test]
    fn messages_hold_no_control_bytes() {
        assert_eq!(readable(b"a\x1b[31m\xff\n\xc3\xa9"), "a\\u{1b}[31m\\xff\\n\u{e9}");
    }
}
