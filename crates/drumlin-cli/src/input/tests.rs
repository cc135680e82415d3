//! Every format's lines become the right keys and values, and bad lines are told by number.

use super::*;
use crate::args::InputFormat as Kind;
use crate::args::InputFormat::{Csv, Jsonl, Lines, Tsv};

/// Line, key and value; or line and what is wrong.
type One = Result<(u64, Vec<u8>, Vec<u8>), (u64, String)>;
type Found = Vec<One>;

const BLANK: &str = "the line is blank";

/// Gives one byte a read, so that every line is met in pieces.
struct Dribble(Vec<u8>);

impl Read for Dribble {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.pop().map_or(0, |byte| {
            out[0] = byte;
            1
        }))
    }
}

fn begin(text: &[u8], kind: Kind, key: &str, no_header: bool) -> Result<Records, Unusable> {
    Records::begin(Box::new(io::Cursor::new(text.to_vec())), kind, key.as_bytes(), no_header)
}

fn all(mut records: Records) -> Found {
    let mut found = Vec::new();
    while let Some(next) = records.next().unwrap() {
        found.push(match next {
            Ok(record) => Ok((record.line, record.key.into_owned(), record.value.to_vec())),
            Err(bad) => Err((bad.line, bad.why)),
        });
    }
    found
}

fn load(text: &[u8], kind: Kind, key: &str, no_header: bool) -> Found {
    let whole = all(begin(text, kind, key, no_header).unwrap());
    let dribble = Box::new(Dribble(text.iter().rev().copied().collect()));
    let pieces = all(Records::begin(dribble, kind, key.as_bytes(), no_header).unwrap());
    assert_eq!(whole, pieces, "the same records however the input arrives");
    whole
}

fn good(line: u64, key: &[u8], value: &[u8]) -> One {
    Ok((line, key.to_vec(), value.to_vec()))
}

fn bad(line: u64, why: &str) -> One {
    Err((line, why.to_string()))
}

#[test]
fn tsv_takes_the_key_by_name_or_number_and_the_line_as_it_is() {
    let text = b"id\tname\n1\t \"x\" \n2\t\xff\0\r\n3\t";
    let records = [good(2, b"1", b"1\t \"x\" "), good(3, b"2", b"2\t\xff\0\r"), good(4, b"3", b"3\t")];
    assert_eq!(load(text, Tsv, "id", false), records);
    assert_eq!(load(text, Tsv, "1", false), records);
    let by_name = load(text, Tsv, "name", false);
    assert_eq!(by_name[1], good(3, b"\xff\0\r", b"2\t\xff\0\r"));
    assert_eq!(by_name[2], bad(4, "the key is empty"));
    assert_eq!(load(text, Tsv, "1", true)[0], good(1, b"id", b"id\tname"));
}

#[test]
fn a_header_name_wins_over_a_number() {
    let text = b"2\t1\na\tb\n";
    assert_eq!(load(text, Tsv, "1", false), [good(2, b"b", b"a\tb")]);
    assert_eq!(load(b"2,1\na,b\n", Csv, "1", false), [good(2, b"b", b"a,b")]);
    assert_eq!(load(text, Tsv, "1", true)[1], good(2, b"a", b"a\tb"));
}

#[test]
fn lines_are_keys_without_values() {
    assert_eq!(
        load(b"b\na\tx\n\xff \nlast", Lines, "", false),
        [good(1, b"b", b""), good(2, b"a\tx", b""), good(3, b"\xff ", b""), good(4, b"last", b"")]
    );
    assert_eq!(load(b"", Lines, "", false), []);
}

#[test]
fn bad_lines_have_numbers_and_the_rest_goes_on() {
    assert_eq!(
        load(b"id\tv\n\tx\n\nb\ty\nc\n", Tsv, "id", false),
        [bad(2, "the key is empty"), bad(3, BLANK), good(4, b"b", b"b\ty"), good(5, b"c", b"c"),]
    );
    assert_eq!(
        load(b"id\tv\na\n\nb\ty\n", Tsv, "v", false),
        [bad(2, "there is no column 2: the line has 1 field"), bad(3, BLANK), good(4, b"y", b"b\ty")]
    );
    assert_eq!(
        load(b"a\n\nb\n\n", Lines, "", false),
        [good(1, b"a", b""), bad(2, BLANK), good(3, b"b", b""), bad(4, BLANK)]
    );
    assert_eq!(
        load(b"v,id\n,x\n\n\"\",\"\"\ny\n,z\n", Csv, "id", false),
        [
            good(2, b"x", b",x"),
            bad(3, BLANK),
            bad(4, "the key is empty"),
            bad(5, "the record has 1 field, but the header has 2"),
            good(6, b"z", b",z"),
        ]
    );
    assert_eq!(load(b"id\n\nx\n", Csv, "id", false), [bad(2, BLANK), good(3, b"x", b"x")]);
    assert_eq!(load(b"{\"id\":1}\n\n", Jsonl, "id", false)[1], bad(2, BLANK));
}

#[test]
fn csv_unquotes_the_key_and_keeps_the_line() {
    let text = b"id,name\n\"a,b\",\"say \"\"hi\"\"\"\n\"two\nlines\",x\nplain \"quote\",y\n\"\xff\",z";
    assert_eq!(
        load(text, Csv, "id", false),
        [
            good(2, b"a,b", b"\"a,b\",\"say \"\"hi\"\"\""),
            good(3, b"two\nlines", b"\"two\nlines\",x"),
            good(5, b"plain \"quote\"", b"plain \"quote\",y"),
            good(6, b"\xff", b"\"\xff\",z"),
        ]
    );
    assert_eq!(load(text, Csv, "name", false)[0], good(2, b"say \"hi\"", b"\"a,b\",\"say \"\"hi\"\"\""));
    assert_eq!(
        load(b"\"i\"\"d\",\"multi\nline\"\na,b\n", Csv, "multi\nline", false),
        [good(3, b"b", b"a,b")]
    );
}

#[test]
fn csv_grows_for_many_and_long_fields() {
    let wide: Vec<String> = (0..5000).map(|i| format!("{i:07}")).collect();
    let line = wide.join(",");
    let found = load(line.as_bytes(), Csv, "5000", true);
    assert_eq!(found, [good(1, b"0004999", line.as_bytes())]);
    let long = format!("\"{}\",k", "x\"\"\n".repeat(3000));
    assert_eq!(load(long.as_bytes(), Csv, "2", true), [good(1, b"k", long.as_bytes())]);
}

#[test]
fn a_stray_quote_costs_its_line_and_the_lines_after_it_are_read_anew() {
    for end in ["\n", ""] {
        // It never ends.
        let text = format!("id,v\na,1\n\"b,2\nc,3{end}");
        assert_eq!(
            load(text.as_bytes(), Csv, "id", false),
            [good(2, b"a", b"a,1"), bad(3, "a quoted field never ends"), good(4, b"c", b"c,3")]
        );
        // It ends at the next quote, which makes no sense there.
        let text = format!("id,v\n\"a,1\nb,2\n\"c\",3\nd,4{end}");
        assert_eq!(
            load(text.as_bytes(), Csv, "id", false),
            [
                bad(2, "there is text behind the closing quote of a field"),
                good(3, b"b", b"b,2"),
                good(4, b"c", b"\"c\",3"),
                good(5, b"d", b"d,4")
            ]
        );
        // It ends at the next quote, and only the number of fields tells.
        let text = format!("id,v\na,1,\"\nb,2\n,\"\"\nd,4{end}");
        let found = load(text.as_bytes(), Csv, "id", false);
        assert_eq!(found[0], bad(2, "the record has 3 fields or more, but the header has 2"));
        assert_eq!(found[1], good(3, b"b", b"b,2"));
        assert_eq!(found.last(), Some(&good(5, b"d", b"d,4")));
    }
    assert!(matches!(begin(b"\"id,v\na,1\n", Csv, "id", false), Err(Unusable::Column(_))));
}

#[test]
fn csv_records_have_as_many_fields_as_the_header_or_the_first_good_record() {
    assert_eq!(
        load(b"id,v\na\nb,1\nc,1,2\n\"d\n\",1,2\n", Csv, "1", false)[..4],
        [
            bad(2, "the record has 1 field, but the header has 2"),
            good(3, b"b", b"b,1"),
            bad(4, "the record has 3 fields, but the header has 2"),
            bad(5, "the record has 3 fields, but the header has 2"),
        ]
    );
    assert_eq!(
        load(b"a\"b,\"\na,1\nb,2,3\nc,3\n", Csv, "1", true)[1..],
        [
            good(2, b"a", b"a,1"),
            bad(3, "the record has 3 fields, but that of line 2 has 2"),
            good(4, b"c", b"c,3")
        ]
    );
}

#[test]
fn a_record_that_may_go_on_in_the_next_line_may_have_to_wait() {
    let mut records = begin(b"id,v\na,1\n\"b\n\",2\n\"c\",3\n", Csv, "id", false).unwrap();
    let mut waits = Vec::new();
    loop {
        waits.push(records.may_wait());
        if records.next().unwrap().is_none() {
            break;
        }
    }
    assert_eq!(waits, [false, true, false, true]);
}

#[test]
fn windows_line_ends_are_no_part_of_key_or_value() {
    assert_eq!(
        load(b"v\tid\r\n1\ta\r\n2\tb", Tsv, "id", false),
        [good(2, b"a", b"1\ta"), good(3, b"b", b"2\tb")]
    );
    assert_eq!(
        load(b"a\r\nb\r\r\nc\n", Lines, "", false),
        [good(1, b"a", b""), good(2, b"b\r", b""), good(3, b"c", b"")]
    );
    assert_eq!(
        load(b"v,id\r\n1,a\r\n2,\"b\"\r\n\"3\r\n\",\"c\r\n\"\r\n4,d", Csv, "id", false),
        [
            good(2, b"a", b"1,a"),
            good(3, b"b", b"2,\"b\""),
            good(4, b"c\r\n", b"\"3\r\n\",\"c\r\n\""),
            good(7, b"d", b"4,d"),
        ]
    );
    assert_eq!(load(b"id\r\n\r\nx\r\n", Csv, "id", false), [bad(2, BLANK), good(3, b"x", b"x")]);
    assert_eq!(load(b"{\"id\":1}\r\n", Jsonl, "id", false), [good(1, b"1", b"{\"id\":1}")]);
}

#[test]
fn a_carriage_return_is_a_byte_where_lines_end_in_line_feeds() {
    assert_eq!(load(b"a\nb\r\n", Lines, "", false), [good(1, b"a", b""), good(2, b"b\r", b"")]);
    assert_eq!(load(b"id\na\r\n", Tsv, "id", false), [good(2, b"a\r", b"a\r")]);
}

#[test]
fn jsonl_keeps_the_object_as_written() {
    assert_eq!(
        load(
            b"{\"id\": \"a\",  \"x\":1.0}\n{\"id\":2}\n{}\nnonsense\n[1]\n\n {\"id\":\"e\"} ",
            Jsonl,
            "id",
            true
        )
        .into_iter()
        .map(|found| found.map_err(|(line, _)| (line, String::new())))
        .collect::<Vec<_>>(),
        [
            good(1, b"a", b"{\"id\": \"a\",  \"x\":1.0}"),
            good(2, b"2", b"{\"id\":2}"),
            bad(3, ""),
            bad(4, ""),
            bad(5, ""),
            bad(6, ""),
            good(7, b"e", b" {\"id\":\"e\"} "),
        ]
    );
}

#[test]
fn a_byte_order_mark_hides_no_column() {
    let mark = |text: &str| [BYTE_ORDER_MARK, text.as_bytes()].concat();
    assert_eq!(load(&mark("id\tv\na\t1\n"), Tsv, "id", false), [good(2, b"a", b"a\t1")]);
    assert_eq!(load(&mark("id,v\na,1\n"), Csv, "id", false), [good(2, b"a", b"a,1")]);
    assert_eq!(load(&mark("\"i,d\",v\r\na,1\r\n"), Csv, "i,d", false), [good(2, b"a", b"a,1")]);
    assert_eq!(load(&mark("{\"id\":1}\n"), Jsonl, "id", false), [good(1, b"1", b"{\"id\":1}")]);
}

#[test]
fn a_byte_order_mark_is_part_of_no_first_record() {
    let mark = |text: &str| [BYTE_ORDER_MARK, text.as_bytes()].concat();
    assert_eq!(load(&mark("a\nb"), Lines, "", false), [good(1, b"a", b""), good(2, b"b", b"")]);
    assert_eq!(load(&mark("a\t1\n"), Tsv, "1", true), [good(1, b"a", b"a\t1")]);
    assert_eq!(load(&mark("\"a\",1\n"), Csv, "1", true), [good(1, b"a", b"\"a\",1")]);
    assert_eq!(load(&mark("\r\nb\r\n"), Lines, "", false), [bad(1, BLANK), good(2, b"b", b"")]);
    assert_eq!(load(&mark(""), Lines, "", false), []);
    // Only the first one is a mark.
    let twice = mark(std::str::from_utf8(BYTE_ORDER_MARK).unwrap());
    assert_eq!(load(&twice, Lines, "", false), [good(1, BYTE_ORDER_MARK, b"")]);
    let later = [b"a\n", &mark("b")[..]].concat();
    assert_eq!(load(&later, Lines, "", false)[1], good(2, &mark("b"), b""));
}

#[test]
fn a_column_that_cannot_be_is_refused_at_once() {
    let Err(Unusable::Column(text)) = begin(b"id\tname\n1\t2\n", Tsv, "nam", false) else { panic!() };
    assert!(text.contains("nam") && text.contains("id, name"), "{text}");
    for beyond in ["0", "3", "18446744073709551616", "-1", ""] {
        for (text, kind) in [(&b"id,name\n"[..], Csv), (b"id\tname\n1\t2\t3\n", Tsv)] {
            let Err(Unusable::Column(text)) = begin(text, kind, beyond, false) else { panic!("{beyond}") };
            assert!(text.contains("the header has 2 columns: id, name"), "{text}");
        }
    }
    assert!(matches!(begin(b"a\tb\n", Tsv, "a", true), Err(Unusable::Usage(_))));
    assert!(matches!(begin(b"a\tb\n", Tsv, "0", true), Err(Unusable::Usage(_))));
    assert_eq!(load(b"id\n", Tsv, "id", false), []);
}

#[test]
fn an_empty_input_has_no_header_and_that_is_said() {
    for (text, kind, key) in [("", Tsv, "id"), ("", Csv, "1"), ("\u{feff}", Csv, "id")] {
        let Err(Unusable::Column(why)) = begin(text.as_bytes(), kind, key, false) else { panic!("{text:?}") };
        assert!(why.contains(key) && why.contains("no header line"), "{why}");
        assert_eq!(load(text.as_bytes(), kind, "1", true), []);
    }
}

#[test]
fn a_column_whose_name_the_header_has_twice_is_chosen_by_number() {
    for (text, kind) in [("id,v,id\na,b,c\n", Csv), ("id\tv\tid\na\tb\tc\n", Tsv)] {
        let Err(Unusable::Column(why)) = begin(text.as_bytes(), kind, "id", false) else { panic!() };
        assert!(why.contains("columns 1 and 3 are both named id"), "{why}");
        for (key, found) in [("1", "a"), ("3", "c"), ("v", "b")] {
            assert_eq!(load(text.as_bytes(), kind, key, false)[0].as_ref().unwrap().1, found.as_bytes());
        }
    }
}

#[test]
fn what_gzip_has_packed_is_known_by_its_first_bytes() {
    let packed = &include_bytes!("../../../../data/cities.tsv.gz")[..];
    for (kind, no_header) in [(Tsv, false), (Csv, true), (Jsonl, false), (Lines, false)] {
        assert!(matches!(begin(packed, kind, "1", no_header), Err(Unusable::Gzip)));
    }
    let other = b"\x1f\x8bkey\n";
    assert_eq!(load(other, Lines, "", false), [good(1, &other[..5], b"")]);
}

#[test]
fn keys_beyond_the_limit_are_bad_lines() {
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    let text = format!("{long}\n{}\n", &long[1..]);
    let found = all(begin(text.as_bytes(), Lines, "", false).unwrap());
    assert_eq!(found[0], bad(1, "the key has 65537 bytes, but may have 65536"));
    assert_eq!(found[1], good(2, &long.as_bytes()[1..], b""));
}

#[test]
fn the_shipped_table_loads_whole() {
    let mut table = Vec::new();
    let packed = &include_bytes!("../../../../data/cities.tsv.gz")[..];
    flate2::read::GzDecoder::new(packed).read_to_end(&mut table).unwrap();
    let mut records = begin(&table, Tsv, "id", false).unwrap();
    let mut rebuilt = b"id\tname\tcountry\tadmin1\tlat\tlon\tpopulation\ttimezone\n".to_vec();
    let mut count = 0;
    while let Some(next) = records.next().unwrap() {
        let record = next.unwrap();
        assert!(record.value.starts_with(&record.key) && record.value[record.key.len()] == b'\t');
        rebuilt.extend_from_slice(record.value);
        rebuilt.push(b'\n');
        count += 1;
    }
    assert_eq!(count, 170_391);
    assert!(rebuilt == table, "the values and the header are the file, byte for byte");
    assert_eq!(records.taken(), table.len() as u64);
}
