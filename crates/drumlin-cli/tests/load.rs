//! `load`: every format, every kind of bad line, and what is left when it stops.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support;

use support::Store;

const TSV: &str = "id\tname\n1\tone\n2\ttwo \n3\tthree\n";

#[test]
fn load_creates_store_and_keyspace_and_keeps_lines_as_they_are() {
    let store = Store::new();
    let file = store.file("t.tsv", b"id\tname\n1\t \xff\"one\"\n2\ttwo");
    store
        .command(["--keyspace", "cities", "load"])
        .arg(&file)
        .args(["--format", "tsv", "--key", "id"])
        .output()
        .unwrap();
    assert_eq!(store.run(["--keyspace", "cities", "get", "1"]).ok(), b"1\t \xff\"one\"");
    assert_eq!(store.run(["--keyspace", "cities", "get", "2"]).ok(), b"2\ttwo");
    assert_eq!(store.run(["--keyspace", "cities", "count"]).ok(), b"2\n");
}

#[test]
fn the_key_column_is_a_name_or_a_number() {
    for (key, stored) in [("id", "1"), ("1", "1"), ("name", "one"), ("2", "one")] {
        let store = Store::new();
        store.feed(["load", "-", "--format", "tsv", "--key", key], TSV).ok();
        assert_eq!(store.run(["get", stored]).ok(), b"1\tone");
        assert_eq!(store.run(["count"]).ok(), b"3\n");
    }
}

#[test]
fn a_header_name_wins_over_a_number() {
    let store = Store::new();
    store.feed(["load", "-", "--format", "tsv", "--key", "1"], "2\t1\nx\ty\n").ok();
    assert_eq!(store.run(["get", "y"]).ok(), b"x\ty");
}

#[test]
fn without_a_header_the_first_line_is_a_record() {
    let store = Store::new();
    store.feed(["load", "-", "--format", "tsv", "--key", "1", "--no-header"], TSV).ok();
    assert_eq!(store.run(["get", "id"]).ok(), b"id\tname");
    assert_eq!(store.run(["count"]).ok(), b"4\n");
    store.feed(["load", "-", "--format", "tsv", "--key", "id", "--no-header"], TSV).fails(2);
}

#[test]
fn csv_keys_are_unquoted_and_records_may_span_lines() {
    let store = Store::new();
    let text = "id,text\n\"a,1\",\"x\ny\"\n\"say \"\"b\"\"\",z\n";
    store.feed(["load", "-", "--format", "csv", "--key", "id"], text).ok();
    assert_eq!(store.run(["get", "a,1"]).ok(), b"\"a,1\",\"x\ny\"");
    assert_eq!(store.run(["get", "say \"b\""]).ok(), b"\"say \"\"b\"\"\",z");
}

#[test]
fn jsonl_keeps_the_object_and_lines_have_no_value() {
    let store = Store::new();
    let text = "{\"id\": 7,  \"x\": [1, 2]}\n{\"x\":0,\"id\":\"\\u00e9\"}\n";
    store.feed(["load", "-", "--format", "jsonl", "--key", "id"], text).ok();
    assert_eq!(store.run(["get", "7"]).ok(), b"{\"id\": 7,  \"x\": [1, 2]}");
    assert_eq!(store.run(["get", "\u{e9}"]).ok(), b"{\"x\":0,\"id\":\"\\u00e9\"}");
    let store = Store::new();
    store.feed(["load", "-", "--format", "lines"], "b c\na\n").ok();
    assert_eq!(store.run(["scan"]).ok(), b"a\t\nb c\t\n");
}

#[test]
fn the_last_of_equal_keys_stays() {
    let store = Store::new();
    store.feed(["load", "-", "--format", "tsv", "--key", "1", "--no-header"], "k\told\nk\tnew\n").ok();
    assert_eq!(store.run(["get", "k"]).ok(), b"k\tnew");
    assert_eq!(store.run(["count"]).ok(), b"1\n");
}

/// Format, text, number of the bad line, records before it, all good records.
const BAD: [(&str, &str, u32, u32, u32); 13] = [
    ("tsv", "id\tname\n1\tone\n\tempty\n3\tthree\n", 3, 1, 2),
    ("tsv", "name\tid\none\t1\ntwo\nthree\t3\n", 3, 1, 2),
    ("csv", "id,name\n1,one\n2,two\n\n4,four\n", 4, 2, 3),
    ("csv", "id,name\n1,\"one\nmore\"\n\"2,never ends\n3,three\n", 4, 1, 2),
    ("csv", "id,name\n1,one\n2,\"two\n3,three\n\"4\",four\n5,five\n", 3, 1, 4),
    ("csv", "id,name\n1,\"one\"!\n2,two\n", 2, 0, 1),
    ("csv", "id,name\n1,one,more\n2,two\n", 2, 0, 1),
    ("tsv", "id\tname\n1\tone\n\n3\tthree\n", 3, 1, 2),
    ("jsonl", "{\"id\":1}\n\n{\"id\":3}\n", 2, 1, 2),
    ("csv", "id,name\r\n1,one\r\n\r\n3,three\r\n", 3, 1, 2),
    ("jsonl", "{\"id\":1}\n{\"id\":\n{\"id\":3}\n", 2, 1, 2),
    ("jsonl", "{\"no\":1}\n{\"id\":2}\n", 1, 0, 1),
    ("lines", "a\nb\n\nc\n", 3, 2, 3),
];

#[test]
fn a_bad_line_stops_the_load_with_its_number_and_what_is_durable() {
    for (format, text, line, before, _) in BAD {
        let store = Store::new();
        let said = store.feed(["load", "-", "--format", format, "--key", "id"], text).fails(1);
        assert!(said.err.contains(&format!("line {line}:")), "{said:?}");
        let verb = if before == 1 { "record is" } else { "records are" };
        assert!(said.err.contains(&format!("; {before} {verb} durable")), "{said:?}");
        assert_eq!(store.run(["count"]).text(), format!("{before}\n"));
    }
}

#[test]
fn skip_bad_counts_bad_lines_and_goes_on() {
    for (format, text, line, _, good) in BAD {
        let store = Store::new();
        let said =
            store.feed(["--quiet", "load", "-", "--format", format, "--key", "id", "--skip-bad"], text);
        assert!(said.err.contains(&format!("line {line}:")), "{said:?}");
        assert!(said.err.contains("1 bad line skipped"), "{said:?}");
        said.ok();
        assert_eq!(store.run(["count"]).text(), format!("{good}\n"));
    }
}

#[test]
fn many_bad_lines_are_counted_without_a_flood() {
    let store = Store::new();
    let text = "\n".repeat(5000) + "good\n";
    let said = store.feed(["load", "-", "--format", "lines", "--skip-bad"], text);
    assert!(said.err.contains("5,000 bad lines skipped") && said.err.lines().count() < 20, "{said:?}");
    said.ok();
    assert_eq!(store.run(["get", "good"]).ok(), b"");
}

#[test]
fn a_key_beyond_the_limit_is_a_bad_line() {
    let store = Store::new();
    let text = format!("a\n{}\nb\n", "k".repeat(64 * 1024 + 1));
    let said = store.feed(["load", "-", "--format", "lines"], &text).fails(1);
    assert!(said.err.contains("line 2:"), "{said:?}");
    store.feed(["load", "-", "--format", "lines", "--skip-bad"], &text).ok();
    assert_eq!(store.run(["count"]).ok(), b"2\n");
}

#[test]
fn what_cannot_be_begun_makes_no_store() {
    let store = Store::new();
    let said = store.feed(["load", "-", "--format", "tsv", "--key", "population"], TSV).fails(1);
    assert!(said.err.contains("population") && said.err.contains("id, name"), "{said:?}");
    store.run(["load", "/no/such/file", "--format", "lines"]).fails(1);
    store.run(["load", "-", "--format", "xml", "--key", "id"]).fails(2);
    store.run(["load", "-", "--format", "tsv"]).fails(2);
    store.run(["load", "-", "--key", "id"]).fails(2);
    assert!(!store.path().exists());
}

#[test]
fn a_stray_quote_swallows_no_line_behind_its_own() {
    let store = Store::new();
    let mut text = String::from("id,name\n");
    (0..300).for_each(|i| {
        text.push_str(&match i {
            7 => format!("{i},\"stray\n"),
            _ if i % 10 == 0 => format!("{i},\"quoted, {i}\"\n"),
            _ => format!("{i},plain {i}\n"),
        });
    });
    let said = store.feed(["load", "-", "--format", "csv", "--key", "id", "--skip-bad"], &text);
    assert!(said.err.contains("line 9:") && said.err.contains("1 bad line skipped"), "{said:?}");
    said.ok();
    assert_eq!(store.run(["count"]).ok(), b"299\n");
    store.run(["get", "7"]).fails(1);
    assert_eq!(store.run(["get", "10"]).ok(), b"10,\"quoted, 10\"");
}

#[test]
fn a_wrong_number_of_csv_fields_is_named_with_what_was_expected() {
    let store = Store::new();
    let said = store.feed(["load", "-", "--format", "csv", "--key", "id"], "id,name\n1,one\n2\n").fails(1);
    assert!(said.err.contains("line 3: the record has 1 field, but the header has 2"), "{said:?}");
}

#[test]
fn a_blank_line_is_called_so_in_every_format() {
    for (format, text) in [
        ("tsv", "id\tv\n1\t2\n\n"),
        ("csv", "id,v\n1,2\n\n"),
        ("jsonl", "{\"id\":1}\n{\"id\":2}\n\n"),
        ("lines", "a\nb\n\n"),
    ] {
        let store = Store::new();
        let said = store.feed(["load", "-", "--format", format, "--key", "id"], text).fails(1);
        assert!(said.err.contains("line 3: the line is blank"), "{format}: {said:?}");
    }
}

#[test]
fn a_byte_order_mark_is_part_of_no_key() {
    for (args, text) in [
        (&["--format", "lines"][..], "\u{feff}k\n"),
        (&["--format", "tsv", "--key", "1", "--no-header"], "\u{feff}k\tv\n"),
        (&["--format", "csv", "--key", "1", "--no-header"], "\u{feff}k,v\n"),
        (&["--format", "csv", "--key", "id"], "\u{feff}id,v\nk,v\n"),
        (&["--format", "tsv", "--key", "id"], "\u{feff}id\tv\nk\tv\n"),
        (&["--format", "jsonl", "--key", "id"], "\u{feff}{\"id\":\"k\"}\n"),
    ] {
        let store = Store::new();
        store.feed(["load", "-"].iter().chain(args), text).ok();
        assert_eq!(store.run(["scan", "--keys-only"]).ok(), b"k\n", "{args:?}");
    }
}

#[test]
fn a_column_beyond_the_header_is_refused_before_a_store_is_made() {
    let store = Store::new();
    for key in ["0", "3", "99", "nam", "18446744073709551616"] {
        for (format, text) in [("tsv", TSV), ("csv", "id,name\n1,2\n")] {
            let said = store.feed(["load", "-", "--format", format, "--key", key], text).fails(1);
            assert!(said.err.contains("2 columns: id, name"), "{said:?}");
            assert!(!store.path().exists(), "{key} made a store");
        }
    }
}

#[test]
fn an_empty_file_loads_nothing() {
    let store = Store::new();
    let args = ["--json", "load", "-", "--format", "tsv", "--key"];
    let said = store.feed(args.iter().chain(&["id"]), "").fails(1);
    assert!(said.err.contains("no header line") && !store.path().exists(), "{said:?}");
    let said = store.feed(args.iter().chain(&["1", "--no-header"]), "");
    assert_eq!(said.ok(), b"{\"durable\":0}\n");
    assert_eq!(store.run(["count"]).ok(), b"0\n");
}

#[test]
fn json_ends_with_the_number_of_records_however_the_load_ends() {
    let store = Store::new();
    let last = |said: &support::Said| said.text().lines().last().map(str::to_string);
    let said = store.feed(["--json", "load", "-", "--format", "tsv", "--key", "id"], TSV);
    assert_eq!(last(&said).as_deref(), Some("{\"durable\":3}"));
    said.ok();
    let said = store.feed(["--json", "load", "-", "--format", "lines"], "a\nb\n\nc\n").fails(1);
    assert_eq!(last(&said).as_deref(), Some("{\"durable\":2}"));
    let said = store.feed(["--json", "load", "-", "--format", "lines", "--skip-bad"], "a\nb\n\nc\n");
    assert_eq!(last(&said).as_deref(), Some("{\"durable\":3,\"skipped\":1}"));
    said.ok();
}

#[test]
fn what_could_be_meant_in_two_ways_is_refused() {
    let store = Store::new();
    let text = "id,v,id\n1,2,3\n";
    let said = store.feed(["load", "-", "--format", "csv", "--key", "id"], text).fails(1);
    assert!(said.err.contains("columns 1 and 3 are both named id"), "{said:?}");
    assert!(!store.path().exists());
    store.feed(["load", "-", "--format", "csv", "--key", "3"], text).ok();
    assert_eq!(store.run(["scan", "--keys-only"]).ok(), b"3\n");
    let text = "{\"id\":1}\n{\"id\":\"first\",\"id\":\"last\"}\n";
    let said = store.feed(["load", "-", "--format", "jsonl", "--key", "id"], text).fails(1);
    assert!(said.err.contains("line 2: the object has the field id more than once"), "{said:?}");
    for format in [&["lines"][..], &["jsonl", "--key", "id"]] {
        let args = ["load", "-", "--no-header", "--format"];
        let said = store.feed(args.iter().chain(format), "a\n").fails(2);
        assert!(said.err.contains("--no-header is for tsv and csv"), "{said:?}");
    }
}

#[test]
fn what_gzip_has_packed_is_refused_with_a_command_that_loads_it() {
    let store = Store::new();
    let packed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/cities.tsv.gz");
    let args = ["--keyspace", "c", "load", packed, "--format", "tsv", "--key", "id", "--skip-bad"];
    let said = store.run(args).fails(1);
    assert!(!store.path().exists());
    let command = said.err.split_once("unpack it on the way: ").expect("it says how").1;
    let command = command.replace("drumlin --db", &format!("{} --db", env!("CARGO_BIN_EXE_drumlin")));
    let piped = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
    support::Said::from(piped).ok();
    assert_eq!(store.run(["--keyspace", "c", "count"]).ok(), b"170391\n");
}

#[test]
fn help_tells_what_a_line_end_is() {
    let mixed = |text: &str| -> Vec<u8> {
        let store = Store::new();
        store.feed(["load", "-", "--format", "lines"], text).ok();
        store.run(["scan", "--keys-only", "--hex"]).ok()
    };
    assert_eq!(mixed("a\r\nb\nc\r\n"), b"61\n62\n63\n", "either, where the first line ends in CR LF");
    assert_eq!(mixed("a\nb\r\n"), b"61\n620d\n", "a CR is a byte, where the first line has none");
    let help = support::Said::from(support::drumlin(["load", "--help"]).output().unwrap());
    let help: Vec<&str> = help.text().split_whitespace().collect();
    let help = help.join(" ");
    assert!(help.contains("a CR before the LF is dropped from every line that has one"), "{help}");
}
