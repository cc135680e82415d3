//! The key of a JSON object on one line.
//!
//! Place: below `input`; the parsing itself is the crate `serde_json`.
//!
//! 1. The whole line is checked: it must be UTF-8 and hold exactly one JSON object.
//! 2. A string is a key by its characters, unescaped; a number or boolean by its letters, as written.
//! 3. An object that has the field twice has no key: readers disagree on which one counts.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The key in `line`, found under `name`; else why there is none.
pub fn key(line: &[u8], name: &[u8]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(line).map_err(|e| format!("not UTF-8 at byte {}", e.valid_up_to() + 1))?;
    let malformed =
        |e: serde_json::Error| format!("malformed JSON: {e}").replace(" at line 1 column ", " at column ");
    let mut parser = serde_json::Deserializer::from_str(text);
    let found = parser.deserialize_map(Member { name }).map_err(malformed)?;
    parser.end().map_err(malformed)?;
    let value = match found[..] {
        [value] => value,
        [] => return Err(format!("the object has no field {}", crate::escape::readable(name))),
        _ => {
            return Err(format!("the object has the field {} more than once", crate::escape::readable(name)));
        }
    };
    let raw = value.get();
    match raw.as_bytes().first() {
        Some(b'"') => serde_json::from_str(raw).map(String::into_bytes).map_err(malformed),
        Some(b'{') => Err("the key is an object".into()),
        Some(b'[') => Err("the key is an array".into()),
        Some(b'n') => Err("the key is null".into()),
        _ => Ok(raw.as_bytes().to_vec()),
    }
}

/// Finds the members of one name in an object and passes over the others.
struct Member<'n> {
    name: &'n [u8],
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(wanted) = map.next_key_seed(IsName { name: self.name })? {
            if wanted {
                found.push(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Whether a member's name is the wanted one.
struct IsName<'n> {
    name: &'n [u8],
}

impl<'de> DeserializeSeed<'de> for IsName<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for IsName<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(text.as_bytes() == self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_keys_unescaped_and_numbers_as_written() {
        for (line, expected) in [
            (r#"{"id":"a"}"#, "a"),
            (r#" { "x" : [{"id":1}] , "id" : "K\u0079\u014dto\t" } "#, "Kyōto\t"),
            (r#"{"\u0069d":"escaped name"}"#, "escaped name"),
            (r#"{"id":1.50e+3}"#, "1.50e+3"),
            (r#"{"id":12345678901234567890123}"#, "12345678901234567890123"),
            (r#"{"id":-0}"#, "-0"),
            (r#"{"id":true}"#, "true"),
            (r#"{"id":""}"#, ""),
        ] {
            assert_eq!(key(line.as_bytes(), b"id").as_deref(), Ok(expected.as_bytes()), "{line}");
        }
    }

    #[test]
    fn what_is_not_one_object_with_a_plain_key_is_bad() {
        for (line, why) in [
            ("", "malformed"),
            ("[]", "expected a JSON object"),
            ("\"id\"", "expected a JSON object"),
            (r#"{"id":"a"} x"#, "trailing"),
            (r#"{"id":"a"}{"id":"b"}"#, "trailing"),
            (r#"{"id":"a""#, "malformed"),
            (r#"{"id":"a","b":}"#, "malformed"),
            (r#"{"id":"a","b":"\x"}"#, "malformed"),
            (r#"{"id":"\ud800"}"#, "malformed"),
            (r#"{"id":01}"#, "malformed"),
            (r#"{"ID":"a"}"#, "no field id"),
            (r#"{"a":{"id":"nested"}}"#, "no field id"),
            (r#"{"id":null}"#, "null"),
            (r#"{"id":"first","id":"last"}"#, "field id more than once"),
            (r#"{"id":1,"x":0,"\u0069d":1}"#, "field id more than once"),
            (r#"{"id":{}}"#, "object"),
            (r#"{"id":[1]}"#, "array"),
        ] {
            let found = key(line.as_bytes(), b"id");
            assert!(found.as_ref().is_err_and(|e| e.contains(why)), "{line}: {found:?}");
        }
        assert_eq!(key(b"{\"id\":\"\xff\"}", b"id"), Err("not UTF-8 at byte 8".into()));
    }

    #[test]
    fn deep_nesting_is_no_stack_overflow() {
        let line = format!(r#"{{"a":{}{},"id":"k"}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(key(line.as_bytes(), b"id").as_deref(), Ok(&b"k"[..]));
    }
}
