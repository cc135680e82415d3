//! Records that no mark judges: one changed byte is damage, what a crash leaves is none.

use super::*;
use crate::env::{Keep, Unsynced};

const SMALL: usize = 4096;

fn at(lsn: Lsn) -> u64 {
    HEADER_PAGE as u64 + lsn.0 % 512 * 8
}

/// A log of a dead process: records of these sizes, none of them synced.
fn unsynced(sizes: &[usize]) -> (Arc<MemFs>, Vec<(Lsn, Lsn)>) {
    let (rig, fs) = Rig::new(SMALL);
    let put = |(n, bytes): (u64, &usize)| rig.put(&n.to_le_bytes(), &value(n, *bytes)).expect("room");
    let written = (0..).zip(sizes).map(put).collect();
    (fs.process_crash_clone(), written)
}

/// Regression: a byte that changed after the process had died passed for a write that it had not
/// finished: an acknowledged record was gone, and nobody was told.
#[test]
fn every_changed_byte_of_a_record_is_damage_in_the_same_boot() {
    // Within a sector, over several, and over two segments.
    let (fs, written) = unsynced(&[60, 300, 2600, 3000, 60]);
    for (number, &(lsn, end)) in written.iter().enumerate() {
        let bytes = (end.0 - lsn.0) * 8;
        let step = if bytes < 500 { 1 } else { 61 };
        for byte in (0..bytes).step_by(step) {
            let unit = Lsn(lsn.0 + byte / 8);
            let path = dir().join(format::segment_name(unit.0 / 512));
            let place = at(unit) + byte % 8;
            // Of a long record single bits are tried.
            let mask = if bytes < 500 && byte % 2 == 0 { 0xa5 } else { 1 << (byte % 8) };
            fs.damage(&path, place, mask).expect("in bounds");
            match scan_with(fs.clone(), SMALL, Mode::Recover) {
                Err(Error::Corruption(found)) => {
                    assert_eq!(found.offset, Some(at(lsn)), "{number}, byte {byte}: {found}");
                    assert!(found.what.contains(&format!("byte {byte} of it")), "{number}: {found}");
                }
                other => panic!("record {number}, byte {byte}: {other:?}"),
            }
            fs.damage(&path, place, mask).expect("in bounds");
        }
    }
    let whole = scan_with(fs, SMALL, Mode::Recover).expect("as before");
    assert_eq!(replay(&whole, Lsn::ZERO).expect("whole").len(), written.len());
}

#[test]
fn a_changed_byte_within_a_sector_is_damage_after_a_power_loss_too() {
    let (fs, written) = unsynced(&[60, 60, 60]);
    let fs = fs.crash_clone(&mut |_| Keep::Whole);
    // Behind the last one there is nothing whole that would vouch for the sector.
    for (number, (lsn, end)) in written.into_iter().enumerate() {
        for byte in 0..(end.0 - lsn.0) * 8 {
            fs.damage(dir().join(format::segment_name(1)), at(lsn) + byte, 0x81).expect("in bounds");
            let seen = scan_with(fs.clone(), SMALL, Mode::Recover);
            assert_eq!(seen.is_err_and(|e| e.is_corruption()), number < 2, "byte {byte} of record {number}");
            fs.damage(dir().join(format::segment_name(1)), at(lsn) + byte, 0x81).expect("in bounds");
        }
    }
}

/// Regression: records of little but zeros, of which a torn page had lost one byte, were taken for damaged.
#[test]
fn a_record_torn_anywhere_by_a_power_loss_is_no_damage() {
    let (rig, fs) = Rig::new(SMALL);
    let mut sparse = [0; 40];
    (sparse[0], sparse[20], sparse[30]) = (1, 1, 0x80);
    for _ in 0..6 {
        rig.put(b"k", &sparse).expect("room");
    }
    for kept in 0..600 {
        let torn = fs.crash_clone(&mut |change| match change.change {
            Unsynced::Page { index: 1, .. } => Keep::Torn(kept),
            _ => Keep::Whole,
        });
        let recovered = scan_with(torn, SMALL, Mode::Recover).unwrap_or_else(|e| panic!("{kept} kept: {e}"));
        assert_eq!(recovered.dropped_writes, 0, "{kept} kept");
    }
    // A sector in the middle of a record is lost, and all that it held was one bit.
    let (rig, fs) = Rig::new(SMALL);
    let mut sparse = [0; 1200];
    sparse[700] = 1;
    rig.put(b"k", &sparse).expect("room");
    rig.put(b"k", b"whole").expect("room");
    let torn = fs.crash_clone(&mut |change| match change.change {
        Unsynced::Page { index: 1, .. } => Keep::Sectors(!0b10),
        _ => Keep::Whole,
    });
    let recovered = scan_with(torn, SMALL, Mode::Recover).expect("a torn tail");
    assert_eq!(recovered.dropped_writes, 1);
}

/// The last sector of a record is lost, and all that it held of it was one byte.
#[test]
fn a_record_that_lost_one_byte_with_its_sector_is_torn_and_no_damage() {
    let (rig, fs) = Rig::new(SMALL);
    let (lsn, end) = rig.put(b"k", &[9; 490]).expect("room");
    let (_, after) = rig.put(b"k", &[9; 10]).expect("room");
    let path = dir().join(format::segment_name(1));
    let bytes = fs.contents(&path).expect("there");
    let last = at(lsn) as usize + 512;
    assert_eq!((bytes[last..last + 8].to_vec(), at(end)), (vec![9, 0, 0, 0, 0, 0, 0, 0], last as u64 + 8));
    let torn = fs.crash_clone(&mut |change| match change.change {
        Unsynced::Page { index: 1, .. } => Keep::Sectors(1),
        _ => Keep::Whole,
    });
    let recovered = scan_with(torn, SMALL, Mode::Recover).expect("a torn tail");
    assert_eq!((recovered.end, recovered.torn.map(|hole| hole.start)), (lsn, Some(lsn)));
    assert_eq!(recovered.dropped_writes, 0);
    // The same, but only the sector with the rest is lost: what was behind is seen, and not taken.
    let torn = fs.crash_clone(&mut |change| match change.change {
        Unsynced::Page { index: 1, .. } => Keep::Sectors(!1),
        _ => Keep::Whole,
    });
    let recovered = scan_with(torn, SMALL, Mode::Recover).expect("a torn tail");
    assert_eq!((recovered.end, recovered.dropped_writes), (lsn, 1));
    assert_eq!(recovered.dropped_bytes, (after.0 - end.0) * 8);
}
