//! Damage: every flipped byte, cut and missing file of a closed log is found, or harmless.

use super::*;
use crate::env::MemFs;
use std::path::PathBuf;

const SMALL: usize = 4096;

/// Two sessions, closed cleanly and not flushed, with all kinds of records; recycled once, so that
/// stale bytes lie about.
fn closed_log() -> (Arc<MemFs>, Vec<Replayed>) {
    let (rig, fs) = Rig::new(SMALL);
    for n in 0..60u64 {
        rig.put(&n.to_le_bytes(), &value(n, 150)).expect("room");
    }
    rig.log.recycle_below(rig.sequencer.tail()).expect("no fault");
    for n in 0..30u64 {
        rig.put(&n.to_le_bytes(), &value(n, 100 + n as usize)).expect("room");
        if n % 7 == 0 {
            rig.log.sync_to(rig.sequencer.tail()).expect("no fault");
            let pad = rig.sequencer.begin(n + 1);
            rig.log.write_pad(pad.lsn(), n + 1).expect("open");
            pad.commit();
        }
    }
    rig.put(b"spanning", &value(5, 5000)).expect("room");
    rig.log.close(true).expect("no fault");
    drop(rig);
    let (rig, recovered) = Rig::open(fs.clone(), SMALL).expect("clean");
    assert!(recovered.clean);
    for n in 0..10u64 {
        rig.put(&n.to_le_bytes(), &value(n, 60)).expect("room");
    }
    rig.log.close(true).expect("no fault");
    drop(rig);
    let recovered = scan_with(fs.clone(), SMALL, Mode::Recover).expect("whole");
    assert_eq!((recovered.sessions.len(), recovered.clean), (2, true));
    assert!(recovered.segments.len() >= 5);
    let records = replay(&recovered, Lsn::ZERO).expect("whole");
    assert!(records.len() > 40);
    (fs, records)
}

/// Opens the damaged log both ways. True if the damage was found.
fn is_found(fs: &Arc<MemFs>, damaged: &Path, records: &[Replayed], what: &str) -> bool {
    let inspected = scan_with(fs.clone(), SMALL, Mode::Inspect).expect("inspecting collects");
    let result = scan_with(fs.clone(), SMALL, Mode::Recover).and_then(|r| replay(&r, Lsn::ZERO));
    match result {
        Ok(seen) => {
            assert_eq!(seen, records, "{what} changes what is recovered, and nobody says so");
            assert!(inspected.problems.is_empty(), "{what}");
            false
        }
        Err(Error::Corruption(c)) => {
            assert!(inspected.problems.contains(&c), "{what}: {c} against {:?}", inspected.problems);
            assert!(c.path.starts_with(dir()), "{what}: {c}");
            // A record that spans segments is named by its start, in an earlier file.
            let spans = c.path.as_path() < damaged && c.offset.is_some_and(|o| o > HEADER_PAGE as u64);
            if c.path == damaged || spans {
                return true;
            }
            // What points elsewhere misses what the damaged file told: a floor, a segment.
            assert!(c.what.contains("missing") || c.what.contains("floor"), "{what}: {c}");
            true
        }
        Err(other) => panic!("{what}: {other}"),
    }
}

#[test]
fn every_flipped_byte_of_a_closed_log_is_found_or_harmless() {
    let (fs, records) = closed_log();
    let used = scan_with(fs.clone(), SMALL, Mode::Recover).expect("whole");
    let (mut found, mut harmless) = (0u64, 0u64);
    for file in fs.files() {
        let bytes = fs.contents(&file).expect("it is there").len() as u64;
        let index = format::parse_segment_name(file.file_name().and_then(|n| n.to_str()).expect("a name"));
        let segment = used.segments.iter().find(|s| Some(s.index) == index).expect("only segments are left");
        for offset in 0..bytes {
            let mask = if offset % 3 == 0 { 0xff } else { 1 << (offset % 8) };
            fs.damage(&file, offset, mask).expect("in bounds");
            let what = format!("byte {offset} of {}", file.display());
            let seen = is_found(&fs, &file, &records, &what);
            if offset < format::HEADER_BYTES as u64 && segment.session_first.is_some() {
                assert!(seen, "{what} is in the header and is not found");
            }
            *(if seen { &mut found } else { &mut harmless }) += 1;
            fs.damage(&file, offset, mask).expect("in bounds");
        }
    }
    // Pads, close records, what lies behind them and the unused parts of header pages are harmless.
    assert!(found > 11_000, "{found} found, {harmless} harmless");
}

#[test]
fn every_flipped_bit_of_a_record_below_a_mark_is_found_where_it_is() {
    let (rig, fs) = Rig::new(SMALL);
    let (lsn, end) = rig.put(b"key", &value(1, 90)).expect("room");
    rig.put(b"key", &value(2, 30)).expect("room");
    rig.log.close(true).expect("no fault");
    drop(rig);
    let file = fs.files()[0].clone();
    let at = |lsn: Lsn| HEADER_PAGE as u64 + lsn.0 % 512 * 8;
    for offset in at(lsn)..at(end) {
        for bit in 0..8 {
            fs.damage(&file, offset, 1 << bit).expect("in bounds");
            match scan_with(fs.clone(), SMALL, Mode::Recover) {
                Err(Error::Corruption(c)) => assert_eq!((&c.path, c.offset), (&file, Some(at(lsn))), "{c}"),
                other => panic!("byte {offset}, bit {bit}: {other:?}"),
            }
            fs.damage(&file, offset, 1 << bit).expect("in bounds");
        }
    }
}

#[test]
fn every_cut_and_every_missing_file_of_a_closed_log_is_found_or_harmless() {
    let (fs, records) = closed_log();
    let files: Vec<PathBuf> = fs.files();
    let last = files.last().cloned().expect("segments");
    let mut found = 0;
    for file in &files {
        let bytes = fs.contents(file).expect("it is there");
        for cut in (0..bytes.len()).step_by(8).chain([1, 127, 4095, 4097]) {
            fs.set_contents(file, &bytes[..cut]).expect("set");
            found += u64::from(is_found(&fs, file, &records, &format!("{} cut to {cut}", file.display())));
        }
        fs.remove(file).expect("it is there");
        let what = format!("{} removed", file.display());
        if *file == last {
            // The one case that the log alone cannot see: the newest session is gone without a
            // trace. The manifest knows that it had begun.
            let recovered = scan_with(fs.clone(), SMALL, Mode::Recover);
            assert!(recovered.is_err() || recovered.is_ok_and(|r| r.sessions.len() == 1), "{what}");
        } else {
            assert!(is_found(&fs, file, &records, &what), "{what}");
        }
        fs.set_contents(file, &bytes).expect("set");
    }
    assert!(found > 2000, "{found}");
}

#[test]
fn swapped_segments_are_found() {
    let (fs, records) = closed_log();
    let files = fs.files();
    for pair in files.windows(2) {
        let (a, b) = (fs.contents(&pair[0]).expect("there"), fs.contents(&pair[1]).expect("there"));
        fs.set_contents(&pair[0], &b).expect("set");
        fs.set_contents(&pair[1], &a).expect("set");
        let seen = scan_with(fs.clone(), SMALL, Mode::Recover);
        assert!(seen.is_err_and(|e| e.is_corruption()));
        fs.set_contents(&pair[0], &a).expect("set");
        fs.set_contents(&pair[1], &b).expect("set");
    }
    let recovered = scan_with(fs, SMALL, Mode::Recover).expect("as before");
    assert_eq!(replay(&recovered, Lsn::ZERO).expect("whole"), records);
}

/// A whole record, with good checksums, put back from an older copy of the log: only the mark's
/// digest can tell. (Here: two records of one length change places with older versions of them.)
#[test]
fn a_record_replaced_by_another_whole_one_is_found_by_the_mark() {
    let write = |value: &[u8]| {
        let (rig, fs) = Rig::new(SMALL);
        let first = rig.put(b"key", value).expect("room");
        rig.put(b"other", b"1").expect("room");
        rig.log.sync_to(rig.sequencer.tail()).expect("no fault");
        rig.log.close(true).expect("no fault");
        (first, rig.log.shared.header, fs)
    };
    let ((lsn, end), header, fs) = write(b"new");
    let file = fs.files()[0].clone();
    let mut bytes = fs.contents(&file).expect("there");
    // What the session could have written there: the same place, keys and length.
    let keys = Keys::new(SECRET, header.salt);
    let mut body = vec![1, Kind::Put as u8, 0, 3, 3];
    body.extend_from_slice(b"keyold");
    let (word, seed) = format::Word::new(format::RecordKind::Write, body.len() as u32).encode(&keys, lsn.0);
    body.resize((end.0 - lsn.0) as usize * 8 - 16, 0);
    let at = HEADER_PAGE + (lsn.0 % 512) as usize * 8;
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    bytes[at + 8..at + 16].copy_from_slice(&Keys::checksum(seed, &body).to_le_bytes());
    bytes[at + 16..at + 16 + body.len()].copy_from_slice(&body);
    fs.set_contents(&file, &bytes).expect("set");
    let seen = scan_with(fs, SMALL, Mode::Recover);
    assert!(matches!(&seen, Err(Error::Corruption(c)) if c.what.contains("counted")), "{seen:?}");
}

#[test]
fn what_a_newer_version_wrote_is_refused_as_unsupported() {
    let (fs, _) = closed_log();
    let file = fs.files().last().cloned().expect("segments");
    let bytes = fs.contents(&file).expect("there");
    // A header of version 2 with a good checksum.
    let mut newer = bytes.clone();
    newer[8] = 2;
    let checksum = twox_hash::XxHash3_64::oneshot_with_seed(SECRET, &newer[..format::HEADER_BYTES - 8]);
    newer[format::HEADER_BYTES - 8..format::HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    fs.set_contents(&file, &newer).expect("set");
    assert!(matches!(scan_with(fs.clone(), SMALL, Mode::Recover), Err(Error::Unsupported { .. })));
    // A record of an unknown kind with a good checksum, where a record is due.
    let header = FileHeader::decode(&bytes, SECRET).expect("good");
    let keys = Keys::new(SECRET, header.salt);
    for (kind, refused) in [(9u8, true), (0x90, false)] {
        let mut newer = bytes.clone();
        let word = format::Word { body_bytes: 0, kind, flags: 0 };
        let (raw, seed) = word.encode(&keys, header.session_first.0);
        newer[HEADER_PAGE..HEADER_PAGE + 8].copy_from_slice(&raw.to_le_bytes());
        newer[HEADER_PAGE + 8..HEADER_PAGE + 16].copy_from_slice(&Keys::checksum(seed, &[]).to_le_bytes());
        fs.set_contents(&file, &newer).expect("set");
        let seen = scan_with(fs.clone(), SMALL, Mode::Recover);
        assert_eq!(matches!(seen, Err(Error::Unsupported { .. })), refused, "kind {kind}: {seen:?}");
    }
}

#[test]
fn another_stores_log_is_refused() {
    let (fs, _) = closed_log();
    let fs: Arc<dyn FileSystem> = fs;
    let reaches = Lsn::ZERO;
    let options =
        ScanOptions { secret: SECRET, uuid: [1; 16], segment_bytes: SMALL, reaches, mode: Mode::Recover };
    assert!(scan(&fs, dir(), options).is_err_and(|e| e.is_corruption()));
    let options = ScanOptions { secret: 1, uuid: UUID, ..options };
    assert!(scan(&fs, dir(), options).is_err_and(|e| e.is_corruption()));
    let options = ScanOptions { secret: SECRET, segment_bytes: 2 * SMALL, ..options };
    assert!(scan(&fs, dir(), options).is_err_and(|e| e.is_corruption()));
}
