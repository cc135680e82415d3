//! Segments taken apart: every byte is shown as a record or as a gap, and only what no crash leaves is a problem.

use super::*;
use crate::log::inspect::{LogGap, LogGapKind, LogItem, LogRecord, LogRecordKind, LogReport, inspect};

const SMALL: usize = 4096;

enum Piece {
    Record(LogRecord),
    Gap(LogGap),
}

impl Piece {
    fn span(&self) -> (u64, u64) {
        match self {
            Piece::Record(record) => (record.lsn, record.lsn + record.bytes / 8),
            Piece::Gap(gap) => (gap.lsn, gap.end),
        }
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        match self {
            Piece::Record(LogRecord { kind: LogRecordKind::Write(entries, None), .. }) => {
                entries.iter().map(|entry| entry.key.clone()).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn segment(index: u64) -> std::path::PathBuf {
    dir().join(format::segment_name(index))
}

fn look(fs: &Arc<MemFs>, index: u64) -> (LogReport, Vec<Piece>) {
    let mut pieces = Vec::new();
    let report = inspect(&**fs, &segment(index), Some((SECRET, UUID)), &mut |item| {
        pieces.push(match item {
            LogItem::Record(record) => Piece::Record(record.clone()),
            LogItem::Gap(gap) => Piece::Gap(gap.clone()),
        });
    });
    (report.expect("a file"), pieces)
}

/// All pieces adjoin, from the first position to the end, which a record may pass.
fn tiles(report: &LogReport, pieces: &[Piece]) {
    let end = pieces.iter().fold(report.span.0, |end, piece| {
        let (start, behind) = piece.span();
        assert_eq!(start, end, "{report:?}");
        behind
    });
    assert!(end >= report.span.1.min(report.span.0 + (report.bytes - HEADER_PAGE as u64) / 8), "{report:?}");
}

fn gaps(pieces: &[Piece]) -> Vec<LogGapKind> {
    pieces
        .iter()
        .filter_map(|piece| if let Piece::Gap(gap) = piece { Some(gap.kind) } else { None })
        .collect()
}

#[test]
fn a_closed_log_is_shown_record_by_record_over_its_segments() {
    let (rig, fs) = Rig::new(SMALL);
    let mut written = Vec::new();
    for n in 0..40u64 {
        rig.put(&n.to_le_bytes(), &value(n, 300)).expect("room");
        written.push(n.to_le_bytes().to_vec());
    }
    rig.log.close(true).expect("closes");
    let (mut keys, mut ends) = (Vec::new(), Vec::new());
    for index in 1.. {
        if !fs.exists(&segment(index)).expect("asks") {
            break;
        }
        let (report, pieces) = look(&fs, index);
        assert_eq!((&report.problems, &report.unchecked), (&vec![], &vec![]), "segment {index}");
        tiles(&report, &pieces);
        keys.extend(pieces.iter().flat_map(Piece::keys));
        ends.push(report.end);
        // Only where one comes from the segment before does it begin with a gap.
        let earlier = gaps(&pieces).first() == Some(&LogGapKind::Earlier);
        assert!(index > 1 || !earlier);
    }
    assert_eq!(keys, written);
    assert!(ends.len() > 2 && ends.last().is_some_and(|end| end.contains("closed")), "{ends:?}");
    assert!(ends[0].contains("full"), "{ends:?}");
}

#[test]
fn what_a_dead_process_leaves_is_no_problem_and_every_changed_byte_of_a_record_is() {
    let (rig, fs) = Rig::new(SMALL);
    let written: Vec<(Lsn, Lsn)> = (0..5).map(|n| rig.put(b"key", &value(n, 60)).expect("room")).collect();
    let fs = fs.process_crash_clone();
    let (report, pieces) = look(&fs, 1);
    assert_eq!((&report.problems, report.writes), (&vec![], 5));
    assert_eq!(report.readable_to.map(|(lsn, _)| lsn), Some(written[4].1.0));
    assert_eq!(gaps(&pieces), [LogGapKind::Unwritten]);
    tiles(&report, &pieces);
    for (number, (lsn, end)) in written.iter().enumerate() {
        for byte in 0..(end.0 - lsn.0) * 8 {
            let place = HEADER_PAGE as u64 + lsn.0 % 512 * 8 + byte;
            fs.damage(segment(1), place, 0x41).expect("in bounds");
            let (report, pieces) = look(&fs, 1);
            let offset = HEADER_PAGE as u64 + lsn.0 % 512 * 8;
            assert_eq!(report.problems.len(), 1, "record {number}, byte {byte}: {report:?}");
            assert_eq!(report.problems[0].offset, Some(offset), "record {number}, byte {byte}");
            assert_eq!(report.writes, 4, "the others are shown");
            tiles(&report, &pieces);
            fs.damage(segment(1), place, 0x41).expect("in bounds");
        }
    }
}

#[test]
fn a_hole_below_a_mark_is_a_problem_and_one_above_is_none() {
    for marked in [false, true] {
        let (rig, fs) = Rig::new(SMALL);
        let first = rig.put(b"a", &value(1, 60)).expect("room");
        let (_, end) = rig.put(b"b", &value(2, 60)).expect("room");
        if marked {
            rig.log.sync_to(end).expect("syncs");
        }
        let fs = fs.process_crash_clone();
        // More than a byte, so that nothing but the mark tells.
        for byte in 0..40 {
            fs.damage(segment(1), HEADER_PAGE as u64 + first.0.0 % 512 * 8 + byte, 0x5a).expect("in bounds");
        }
        let (report, pieces) = look(&fs, 1);
        assert_eq!(report.problems.len(), usize::from(marked), "{report:?}");
        let begins = gaps(&pieces);
        assert_eq!(begins.first(), Some(&LogGapKind::Hole), "{report:?}");
        assert_eq!(report.writes, 1);
    }
}

#[test]
fn a_damaged_header_is_a_problem_and_the_records_behind_it_are_shown() {
    let (rig, fs) = Rig::new(SMALL);
    rig.put(b"a", &value(1, 60)).expect("room");
    let fs = fs.process_crash_clone();
    // Neither magic, nor the number, nor the size, nor the salt.
    for byte in [16u64, 60, 73, 85, 100, 125] {
        fs.damage(segment(1), byte, 1).expect("in bounds");
        let (report, _) = look(&fs, 1);
        assert!(
            !report.problems.is_empty() && report.problems[0].offset == Some(0),
            "byte {byte}: {report:?}"
        );
        assert_eq!(report.writes, 1, "byte {byte}");
        fs.damage(segment(1), byte, 1).expect("in bounds");
    }
    for byte in 0..HEADER_PAGE as u64 {
        fs.damage(segment(1), byte, 0x80).expect("in bounds");
        let found = inspect(&*fs, &segment(1), Some((SECRET, UUID)), &mut |_| {});
        assert!(found.is_ok_and(|report| byte >= 128 || !report.problems.is_empty()), "byte {byte}");
        fs.damage(segment(1), byte, 0x80).expect("in bounds");
    }
}

#[test]
fn where_a_later_session_cut_this_one_is_told() {
    let (rig, fs) = Rig::new(SMALL);
    let (_, end) = rig.put(b"a", &value(1, 60)).expect("room");
    let fs = fs.process_crash_clone();
    drop(rig);
    let (_rig, _) = Rig::open(fs.clone(), SMALL).expect("opens");
    let (report, _) = look(&fs, 1);
    assert_eq!(report.cut.map(|(lsn, _)| lsn), Some(end.0), "{report:?}");
}

#[test]
fn without_the_secret_only_the_header_is_shown_and_the_rest_is_unchecked() {
    let (rig, fs) = Rig::new(SMALL);
    rig.put(b"a", &value(1, 60)).expect("room");
    let report = inspect(&*fs, &segment(1), None, &mut |_| panic!("it cannot be known")).expect("a file");
    assert_eq!(report.header.map(|header| header.store), Some(UUID));
    assert_eq!((report.problems.len(), report.unchecked.len()), (0, 2));
}
