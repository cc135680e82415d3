//! Records of all sizes come back whole, in order, wherever they lie.

use super::*;
use proptest::prelude::*;
use std::sync::atomic::AtomicUsize;

const SMALL: usize = 4096;

/// Writes values of these sizes, closes, and compares what comes back.
fn round_trip(segment_bytes: usize, sizes: &[usize]) {
    let (rig, fs) = Rig::new(segment_bytes);
    let mut written = Vec::new();
    for (number, &bytes) in sizes.iter().enumerate() {
        let (key, value) = (number.to_le_bytes().to_vec(), value(number as u64, bytes));
        let (lsn, _) = rig.put(&key, &value).expect("room");
        written.push((lsn, vec![(1, Kind::Put, key, value)]));
    }
    rig.log.close(true).expect("a clean close");
    let recovered = scan_with(fs, segment_bytes, Mode::Recover).expect("a whole log");
    assert!(recovered.clean);
    assert_eq!(replay(&recovered, Lsn::ZERO).expect("a whole log"), written);
    let half = written.len() / 2;
    if let Some((from, _)) = written.get(half) {
        assert_eq!(replay(&recovered, *from).expect("a whole log"), written[half..]);
    }
}

#[test]
fn records_span_segments() {
    let sizes: Vec<_> = (0..300).map(|n| (n * 37) % 1500).collect();
    round_trip(SMALL, &sizes);
}

#[test]
fn a_record_may_exceed_many_segments() {
    round_trip(SMALL, &[10, 100_000, 0, 5000, 4096, 3, 300_000, 1]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn records_of_any_sizes_come_back(sizes in prop::collection::vec(0usize..9000, 0..40)) {
        round_trip(SMALL, &sizes);
    }
}

/// I2: who sees a segment open finds the generations that begin with it.
#[test]
fn a_border_is_announced_before_its_segment_opens() {
    let log: Arc<std::sync::OnceLock<std::sync::Weak<Log>>> = Arc::default();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (callback, borders) = (log.clone(), seen.clone());
    let on_border = move |border: Lsn| {
        if let Some(log) = callback.get().and_then(std::sync::Weak::upgrade) {
            // A look long enough for a segment that opens too early.
            std::thread::sleep(std::time::Duration::from_millis(5));
            let is_open = log.shared.table.lookup(border.0 / log.units_per_segment()).is_some();
            borders.lock().expect("no panic").push((border, is_open));
        }
    };
    let (rig, _) = Rig::open_with(MemFs::new(), SMALL, on_border).expect("a new log");
    let _ = log.set(Arc::downgrade(&rig.log));
    for i in 0..60u32 {
        rig.put(&i.to_be_bytes(), &[7; 500]).expect("room");
    }
    let seen = seen.lock().expect("no panic");
    assert!(seen.len() > 5, "{seen:?}");
    assert!(seen.iter().all(|(_, is_open)| !is_open), "{seen:?}");
}

#[test]
fn a_record_may_end_exactly_at_a_border_and_start_there() {
    // Head 16, entry head 5, key 8: a value of 4067 fills a segment of 4096 bytes to the unit.
    for slack in 0..40 {
        round_trip(SMALL, &[SMALL - 16 - 6 - 8 - slack, 8, SMALL - 16 - 6 - 8, 0, SMALL * 2 - 30 - slack]);
    }
}

#[test]
fn batches_come_back_as_one_lsn_with_everything_in_them() {
    let (rig, fs) = Rig::new(SMALL);
    let entries = [
        Entry { keyspace: 7, kind: Kind::Put, expected: None, key: b"a", value: b"1" },
        Entry { keyspace: 300, kind: Kind::Delete, expected: None, key: b"b", value: b"" },
        Entry { keyspace: 0, kind: Kind::RangeDelete, expected: None, key: b"c", value: b"d" },
        Entry { keyspace: 7, kind: Kind::Put, expected: Some(Lsn(77)), key: b"", value: b"" },
    ];
    let (lsn, _) = rig.write(&entries).expect("room");
    rig.log.close(true).expect("a clean close");
    let recovered = scan_with(fs, SMALL, Mode::Recover).expect("whole");
    let mut seen = Vec::new();
    recovered
        .replay(Lsn::ZERO, &mut |at, e| {
            seen.push((at, e.keyspace, e.kind, e.expected, e.key.to_vec(), e.value.to_vec()));
            Ok(())
        })
        .expect("whole");
    let wanted: Vec<_> = entries
        .iter()
        .map(|e| (lsn, e.keyspace, e.kind, e.expected, e.key.to_vec(), e.value.to_vec()))
        .collect();
    assert_eq!(seen, wanted);
}

#[test]
fn pads_are_skipped_and_say_nothing() {
    let (rig, fs) = Rig::new(SMALL);
    let mut written = Vec::new();
    for units in [1, 2, 3, 600, 1, 511] {
        let (lsn, _) = rig.put(b"k", &value(units, 20)).expect("room");
        written.push(lsn);
        let _room = rig.log.ensure_room(units).expect("room");
        let pad = rig.sequencer.begin(units);
        rig.log.write_pad(pad.lsn(), units).expect("open");
        pad.commit();
    }
    let _room = rig.log.ensure_room(512).expect("room");
    let pad = rig.sequencer.begin_to_border(512);
    rig.log.write_pad(pad.lsn(), pad.end().0 - pad.lsn().0).expect("open");
    pad.commit();
    assert_eq!(rig.sequencer.tail().0 % 512, 0);
    rig.log.close(true).expect("a clean close");
    let recovered = scan_with(fs, SMALL, Mode::Recover).expect("whole");
    let seen: Vec<_> = replay(&recovered, Lsn::ZERO).expect("whole").into_iter().map(|r| r.0).collect();
    assert_eq!(seen, written);
}

#[test]
fn records_of_many_threads_all_come_back_in_lsn_order() {
    let (rig, fs) = Rig::new(1 << 16);
    let mut written: Vec<(Lsn, u64)> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let rig = &rig;
                s.spawn(move || {
                    let mut mine = Vec::new();
                    for n in 0..3000u64 {
                        let number = thread << 32 | n;
                        let bytes = if n % 500 == 499 { 150_000 } else { (n % 120) as usize };
                        mine.push((
                            rig.put(&number.to_le_bytes(), &value(number, bytes)).expect("room").0,
                            number,
                        ));
                    }
                    mine
                })
            })
            .collect();
        threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect()
    });
    written.sort_unstable();
    rig.log.close(true).expect("a clean close");
    let recovered = scan_with(fs, 1 << 16, Mode::Recover).expect("whole");
    let seen = replay(&recovered, Lsn::ZERO).expect("whole");
    assert_eq!(seen.len(), written.len());
    for ((lsn, entries), (wanted, number)) in seen.iter().zip(&written) {
        let bytes =
            if number % (1 << 32) % 500 == 499 { 150_000 } else { (number % (1 << 32) % 120) as usize };
        assert_eq!(
            (lsn, &entries[0].2[..], &entries[0].3),
            (wanted, &number.to_le_bytes()[..], &value(*number, bytes))
        );
    }
}

#[test]
fn each_segment_is_announced_once_in_order_before_it_opens() {
    let fs = MemFs::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let announced = seen.clone();
    let (rig, recovered) = Rig::open_with(fs, SMALL, move |lsn| announced.lock().push(lsn.0)).expect("new");
    let first = recovered.next_segment;
    for n in 0..200u64 {
        let (_, end) = rig.put(&n.to_le_bytes(), &value(n, 300)).expect("room");
        let last = (end.0 - 1) / 512;
        let announced = seen.lock();
        assert!(last == first || announced.contains(&(last * 512)), "segment {last} opened unannounced");
    }
    rig.log.close(true).expect("a clean close");
    let seen = seen.lock();
    assert!(seen.len() > 10);
    assert_eq!(*seen, (1..=seen.len() as u64).map(|i| (first + i) * 512).collect::<Vec<_>>());
}

/// Two writers pass `ensure_room` and then draw; the one whose LSN lies beyond the open segments
/// holds its LSN and waits for the opener, which must not wait for it.
#[test]
fn a_writer_beyond_the_open_segments_waits_only_for_the_opener() {
    let (rig, fs) = Rig::new(SMALL);
    let value = value(1, 3000);
    for _ in 0..20 {
        let entries = [put(b"k", &value)];
        let record = RecordParts::new(&entries).expect("small");
        // No room asked for: the LSN may lie anywhere.
        let in_flight = rig.sequencer.begin(record.units());
        rig.log.write(in_flight.lsn(), &record).expect("the segment opens");
        in_flight.commit();
    }
    rig.log.close(true).expect("a clean close");
    let recovered = scan_with(fs, SMALL, Mode::Recover).expect("whole");
    assert_eq!(replay(&recovered, Lsn::ZERO).expect("whole").len(), 20);
}

#[test]
fn large_records_of_many_threads_get_room_without_waiting_on_each_other() {
    let (rig, _fs) = Rig::new(SMALL);
    let done = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for thread in 0..4u64 {
            let (rig, done) = (&rig, &done);
            s.spawn(move || {
                for n in 0..20 {
                    rig.put(&n.to_string().into_bytes(), &value(thread, 40_000)).expect("room");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), 80);
    rig.log.close(true).expect("a clean close");
}

#[test]
fn records_too_large_for_a_batch_are_refused_before_anything_is_drawn() {
    let big = vec![0; crate::key::VALUE_BYTES_MAX];
    let entries = [put(b"a", &big), put(b"b", &big), put(b"c", &big)];
    assert!(matches!(RecordParts::new(&entries), Err(Error::InvalidArgument(_))));
}
