//! What a hostile user finds: places that are no store, limits, odd bytes, devices that are full.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support;

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;

use support::{Said, Store, drumlin};

#[test]
fn what_is_no_store_is_told_with_what_a_store_is_and_left_as_it_is() {
    let store = Store::new();
    let file = store.file("a file", "not a store");
    for command in [&["get", "k"][..], &["put", "k", "v"], &["stats"], &["verify"], &["compact"]] {
        let said =
            Said::from(drumlin(["--db", file.to_str().unwrap()].iter().chain(command)).output().unwrap());
        let said = said.fails(1);
        assert!(said.err.contains("is a file, and a store is a directory"), "{said:?}");
        let said = match command[0] {
            "put" => continue,
            _ => store.run(command).fails(1),
        };
        assert!(said.err.contains("there is no store at") && said.err.contains(" put KEY VALUE"), "{said:?}");
    }
    assert_eq!(std::fs::read(file).unwrap(), b"not a store");
    assert!(!store.path().exists());
}

#[test]
fn an_input_that_cannot_be_read_makes_no_store() {
    let store = Store::new();
    for (input, part) in [("/no/such/file", "check the path"), ("/", "irectory")] {
        let said = store.run(["load", input, "--format", "lines"]).fails(1);
        assert!(said.err.contains(input) && said.err.contains(part), "{said:?}");
    }
    assert!(!store.path().exists());
}

#[test]
fn a_key_or_keyspace_that_cannot_be_makes_no_store() {
    let store = Store::new();
    let long = "k".repeat(64 * 1024 + 1);
    let longer = "k".repeat(100_000);
    for key in [&long, &longer] {
        for args in [&["put", key, "v"][..], &["cas", key, "--absent", "v"], &["get", key], &["delete", key]]
        {
            let said = store.run(args).fails(1);
            assert!(said.err.contains("65,536") && said.err.len() < 500, "{}", said.err.len());
        }
    }
    for name in ["", "a\nb", &"n".repeat(256)] {
        store.run(["--keyspace", name, "put", "k", "v"]).fails(1);
        store.feed(["--keyspace", name, "load", "-", "--format", "lines"], "a\n").fails(1);
    }
    assert!(!store.path().exists());
    store.run(["put", &long[1..], "v"]).ok();
    let said = store.run(["get", &long[2..]]).fails(1);
    assert!(said.err.len() < 700, "a message is no place for 64 KiB");
    assert_eq!(store.run(["scan", "--from", &longer]).ok(), b"");
    assert_eq!(store.run(["scan", "--prefix", &longer]).ok(), b"");
}

#[test]
fn the_empty_key_is_a_key() {
    let store = Store::new();
    store.run(["put", "", "v"]).ok();
    store.run(["put", "k", ""]).ok();
    assert_eq!(store.run(["get", ""]).ok(), b"v");
    assert_eq!(store.run(["scan"]).ok(), b"\tv\nk\t\n");
    store.run(["delete", ""]).ok();
    store.run(["get", ""]).fails(1);
}

#[test]
fn intervals_that_hold_nothing_and_prefixes_of_the_largest_byte_are_no_failure() {
    let store = Store::new();
    let last = OsStr::from_bytes(b"\xff\xff\xff");
    store.run([OsStr::new("put"), last, OsStr::new("v")]).ok();
    store.run(["put", "a", "w"]).ok();
    for args in
        [&["--limit", "0"][..], &["--from", "z", "--to", "a"], &["--from", "a", "--to", "a", "--reverse"]]
    {
        assert_eq!(store.run(["scan"].iter().chain(args)).ok(), b"", "{args:?}");
    }
    for prefix in ["ff", "ffff", "ffffff"] {
        for direction in [&[][..], &["--reverse"]] {
            let args = ["scan", "--hex", "--prefix", prefix];
            assert_eq!(store.run(args.iter().chain(direction)).ok(), b"ffffff\tv\n", "{prefix}");
        }
    }
    assert_eq!(store.run(["scan", "--hex", "--prefix", "ffffffff"]).ok(), b"");
    assert_eq!(
        store.run(["scan", "--keys-only", "--limit", "18446744073709551615", "--to", "b"]).ok(),
        b"a\n"
    );
    for limit in ["18446744073709551616", "-1", "1e3", ""] {
        store.run(["scan", "--limit", limit]).fails(2);
    }
}

#[test]
fn arguments_that_are_no_text_are_keys_or_misuse_and_never_a_panic() {
    let store = Store::new();
    let odd = OsStr::from_bytes(b"a\xff");
    store.run([OsStr::new("put"), odd, odd]).ok();
    assert_eq!(store.run([OsStr::new("get"), odd]).ok(), odd.as_bytes());
    let said = store.run([OsStr::new("delete"), odd, odd]).fails(2);
    assert!(!said.err.contains("panicked"));
    store.run([OsStr::new("--keyspace"), odd, OsStr::new("count")]).fails(2);
    store.run([OsStr::new("load"), odd, OsStr::new("--format"), OsStr::new("lines")]).fails(1);
    store.run([odd]).fails(2);
    let said = store.run([OsStr::new("get"), OsStr::from_bytes(b"\x1b[31m\xfe")]).fails(1);
    assert!(!said.err.contains('\x1b'), "a message gives the terminal no orders: {said:?}");
}

#[test]
fn a_full_device_is_an_error_of_every_command_that_prints() {
    let Ok(full) = File::options().write(true).open("/dev/full") else { return };
    let store = Store::loaded(10);
    for args in [
        &["scan"][..],
        &["count"],
        &["keyspaces"],
        &["stats"],
        &["shape"],
        &["verify"],
        &["compact"],
        &["--json", "stats"],
        &["--help"],
        &["--version"],
        &["load", "--help"],
        &["completions", "bash"],
        &["--json", "put", "k", "v"],
    ] {
        let said = store.command(args).stdout(full.try_clone().unwrap()).output().unwrap();
        let said = Said::from(said).fails(1);
        assert!(said.err.contains("standard output"), "{args:?}: {said:?}");
    }
}

#[test]
fn a_store_in_use_says_what_to_do() {
    let store = Store::new();
    let mut loading = store.loading();
    loading.give("a\n");
    loading.promised(1);
    for args in [&["put", "k", "v"][..], &["get", "a"], &["compact"], &["verify"], &["stats"]] {
        let said = store.run(args).fails(1);
        assert!(said.err.contains("in use by another process; wait until"), "{args:?}: {said:?}");
    }
    loading.kill();
    assert_eq!(store.run(["count"]).ok(), b"1\n");
}

#[test]
fn readers_run_beside_each_other() {
    let store = Store::loaded(50_000);
    let mut scan = store.start(["scan"]);
    let mut first = [0; 1];
    std::io::Read::read_exact(scan.stdout.as_mut().unwrap(), &mut first).unwrap();
    // It holds the store until its output is read.
    assert_eq!(store.run(["count"]).ok(), b"50000\n");
    let said = store.run(["put", "k", "v"]).fails(1);
    assert!(said.err.contains("in use by another process"), "{said:?}");
    Said::from(scan.wait_with_output().unwrap()).ok();
    store.run(["put", "k", "v"]).ok();
}
