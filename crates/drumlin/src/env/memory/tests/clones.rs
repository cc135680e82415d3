//! Clones beside running writers, clones from hooks, random clones.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// The words of a file.
fn words(fs: &MemFs, path: &str) -> Vec<u64> {
    let bytes = fs.contents(path).unwrap();
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn a_clone_is_apart_from_its_original() {
    let fs = with_dir();
    write_durably(&fs, "db/a", b"both");
    let mut file = fs.create(Path::new("db/b")).unwrap();
    file.append(b"1").unwrap();
    let clones = [fs.process_crash_clone(), fs.crash_clone(&mut keep_all)];
    file.append(b"2").unwrap();
    fs.remove(Path::new("db/a")).unwrap();
    for (clone, byte) in clones.iter().zip([7, 8]) {
        write(clone, "db/c", &[byte]);
        clone.damage("db/a", 0, 0xff).unwrap();
        assert_eq!(clone.contents("db/b").unwrap(), b"1");
    }
    assert_eq!(fs.files(), paths(&["db/b"]));
    assert_eq!(
        (clones[0].contents("db/c").unwrap(), clones[1].contents("db/c").unwrap()),
        (vec![7], vec![8])
    );
}

#[test]
fn mapped_stores_of_many_threads_reach_a_clone() {
    const THREADS: usize = 4;
    let fs = with_dir();
    let region = fs.map_log(Path::new("db/log"), 2 * PAGE_BYTES).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let region = &*region;
            scope.spawn(move || {
                for index in (thread..region.bytes() / 8).step_by(THREADS) {
                    store_word(region, index, index as u64 + 1);
                }
            });
        }
    });
    let all: Vec<u64> = (1..=2 * PAGE_BYTES as u64 / 8).collect();
    assert_eq!(words(&fs.process_crash_clone(), "db/log"), all);
    assert_eq!(words(&fs.crash_clone(&mut keep_all), "db/log"), all);
}

/// A log is written upwards: whatever a killed process leaves, a word is there only if every word
/// below it is, in this segment and in those before.
#[test]
fn a_clone_beside_a_writer_has_the_cause_of_whatever_it_has() {
    const WORDS: usize = 3 * PAGE_BYTES / 8;
    let fs = with_dir();
    let segments: Vec<_> =
        (1..=3).map(|n| fs.map_log(Path::new(&format!("db/{n}")), WORDS * 8).unwrap()).collect();
    let done = AtomicBool::new(false);
    let mut partial = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut word = 0;
            while !done.load(Ordering::Acquire) {
                word += 1;
                for index in 0..segments.len() * WORDS {
                    store_word(&*segments[index / WORDS], index % WORDS, word);
                }
            }
        });
        let mut falls = None;
        for _ in 0..100_000 {
            let clone = fs.process_crash_clone();
            let seen: Vec<u64> =
                ["db/1", "db/2", "db/3"].iter().flat_map(|name| words(&clone, name)).collect();
            falls = seen.windows(2).position(|pair| pair[0] < pair[1]);
            partial += u64::from(seen.first() != seen.last());
            if falls.is_some() || partial > 5000 {
                break;
            }
        }
        // Before any assertion, or a failure would wait for the writer for ever.
        done.store(true, Ordering::Release);
        assert_eq!(falls, None, "a store above without the one below it");
    });
    assert!(partial > 0, "no clone fell between two stores; the test shows nothing");
}

/// The story of every crash test: a file is renamed into place, and a clone at any call finds the
/// old one or the new one whole.
#[test]
fn a_hook_can_clone_at_every_call() {
    let fs = with_dir();
    write_durably(&fs, "db/CURRENT", b"old");
    let clones = Arc::new(Mutex::new(Vec::new()));
    let (kept, watched) = (clones.clone(), Arc::downgrade(&fs));
    fs.set_hook(Some(Box::new(move |call| {
        let fs = watched.upgrade().unwrap();
        for seed in 0..20 {
            kept.lock().unwrap().push((call.operation, fs.crash_clone_random(seed, 0.5)));
        }
    })));
    let replace = |syncs: bool| {
        let mut file = fs.create(Path::new("db/tmp")).unwrap();
        file.append(b"new").unwrap();
        if syncs {
            file.sync().unwrap();
        }
        fs.rename(Path::new("db/tmp"), Path::new("db/CURRENT")).unwrap();
        fs.sync_dir(Path::new("db")).unwrap();
    };
    replace(true);
    let seen: BTreeSet<Vec<u8>> =
        clones.lock().unwrap().drain(..).map(|(_, clone)| clone.contents("db/CURRENT").unwrap()).collect();
    assert_eq!(seen, BTreeSet::from([b"old".to_vec(), b"new".to_vec()]));
    // Without the sync of the file an empty one is found sooner or later.
    replace(false);
    let found_empty =
        clones.lock().unwrap().iter().any(|(_, clone)| clone.contents("db/CURRENT").unwrap() == b"");
    assert!(found_empty);
}

#[test]
fn random_clones_repeat_by_seed_and_reach_every_outcome() {
    let fs = with_dir();
    write_durably(&fs, "db/a", &[1; 2 * PAGE_BYTES]);
    write_durably(&fs, "db/gone", b"");
    write(&fs, "db/a", &[2; 2 * PAGE_BYTES]);
    fs.remove(Path::new("db/gone")).unwrap();
    let outcome = |seed, keep| {
        let clone = fs.crash_clone_random(seed, keep);
        (clone.contents("db/a").unwrap(), clone.files().len())
    };
    let mut whole_pages = BTreeSet::new();
    let mut torn = 0;
    for seed in 0..200 {
        let (bytes, names) = outcome(seed, 0.5);
        assert_eq!((&bytes, names), (&outcome(seed, 0.5).0, outcome(seed, 0.5).1), "seed {seed}");
        assert!(bytes.iter().all(|b| *b == 1 || *b == 2));
        if bytes.chunks(PAGE_BYTES).all(|page| page.iter().all(|b| *b == page[0])) {
            whole_pages.insert((bytes[0], bytes[PAGE_BYTES], names));
        } else {
            torn += 1;
        }
        assert_eq!(outcome(seed, 0.0), (vec![1; 2 * PAGE_BYTES], 2));
        assert_eq!(outcome(seed, 1.0), (vec![2; 2 * PAGE_BYTES], 1));
    }
    assert_eq!(whole_pages.len(), 8, "{whole_pages:?}");
    assert!((40..180).contains(&torn), "{torn}");
}

#[test]
fn boot_ids_change_with_a_power_loss_only() {
    let fs = MemFs::new();
    let lost = fs.crash_clone(&mut lose_all);
    assert_eq!(fs.boot_id(), fs.process_crash_clone().boot_id());
    assert_ne!(fs.boot_id(), lost.boot_id());
    assert_ne!(lost.boot_id(), lost.crash_clone(&mut lose_all).boot_id());
}
