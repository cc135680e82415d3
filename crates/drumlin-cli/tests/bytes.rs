//! Keys that are no text, and values from standard input.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support;

use support::Store;

#[test]
fn hexadecimal_keys_are_the_same_to_every_command() {
    let store = Store::new();
    store.run(["put", "--hex", "00ff0a", "zero"]).ok();
    store.run(["put", "--hex", "6B", "text"]).ok();
    store.run(["cas", "--hex", "", "--absent", "empty"]).ok();
    assert_eq!(store.run(["get", "--hex", "00FF0a"]).ok(), b"zero");
    assert_eq!(store.run(["get", "k"]).ok(), b"text");
    assert_eq!(store.run(["get", "--hex", "6b", "--json"]).json()["key_hex"], "6b");
    assert_eq!(store.run(["scan", "--hex"]).text(), "\tempty\n00ff0a\tzero\n6b\ttext\n");
    assert_eq!(store.run(["scan", "--hex", "--keys-only", "--prefix", "00"]).text(), "00ff0a\n");
    assert_eq!(store.run(["scan", "--hex", "--keys-only", "--from", "01", "--to", "ff"]).text(), "6b\n");
    assert_eq!(
        store.run(["scan", "--hex", "--format", "jsonl", "--from", "01"]).text(),
        "{\"key_hex\":\"6b\",\"value\":\"text\"}\n"
    );
    store.run(["delete", "--hex", "00ff0a"]).ok();
    let said = store.run(["get", "--hex", "00ff0a"]).fails(1);
    assert!(said.err.contains("00ff0a"), "{said:?}");
    assert_eq!(store.run(["count"]).ok(), b"2\n");
}

#[test]
fn what_is_no_hexadecimal_is_misuse_and_makes_no_store() {
    let store = Store::new();
    for wrong in ["0", "xx", "0x00", "00 01"] {
        for args in [&["put", "--hex", wrong, "v"][..], &["cas", "--hex", wrong, "--absent", "v"]] {
            let said = store.run(args).fails(2);
            assert!(said.err.contains(wrong) && said.err.contains("two digits a byte"), "{said:?}");
        }
    }
    assert!(!store.path().exists());
    store.run(["put", "k", "v"]).ok();
    for args in [&["scan", "--hex", "--from", "g0"][..], &["get", "--hex", "g0"], &["delete", "--hex", "0"]] {
        store.run(args).fails(2);
    }
}

#[test]
fn a_hyphen_takes_the_value_from_standard_input() {
    let store = Store::new();
    let bytes: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
    store.feed(["put", "big", "-"], &bytes).ok();
    assert!(store.run(["get", "big"]).ok() == bytes);
    store.feed(["put", "empty", "-"], "").ok();
    assert_eq!(store.run(["get", "empty"]).ok(), b"");
    store.feed(["cas", "empty", "--expect", "", "-"], "a\0b\n").ok();
    assert_eq!(store.run(["get", "empty"]).ok(), b"a\0b\n");
    assert_eq!(store.run(["put", "k", "-x"]).ok(), b"");
    assert_eq!(store.run(["get", "k"]).ok(), b"-x");
}
