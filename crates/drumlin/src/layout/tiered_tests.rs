//! Tests of the tiered policies, on a store of lists.

use super::*;
use crate::dice::Dice;
use crate::key::{Bytewise, KeyHash, Lsn};
use crate::layout::lists::{Sim, small_key};
use crate::layout::plan::span_of;
use crate::layout::policy::Inputs;
use crate::layout::{debt_bytes, pick};

const LAYOUTS: [Layout; 5] = [
    Layout::Leveled,
    Layout::Tiered { runs: 2, merged_percent: 100 },
    Layout::Tiered { runs: 3, merged_percent: 60 },
    Layout::LazyLeveled { runs: 3, upper_percent: 50 },
    Layout::LazyLeveled { runs: 2, upper_percent: 200 },
];

const TRIES: [Layout; 2] = [
    Layout::Trie { levels: 3, runs: 2, hash: KeyHash::Sip },
    Layout::Trie { levels: 2, runs: 3, hash: KeyHash::Sip },
];

/// A store of tables of so many entries, with this layout.
fn sim(entries_per_table: usize, layout: Layout) -> Sim {
    let mut sim = Sim::new(entries_per_table, 2, 3);
    sim.options.layout = layout;
    sim
}

#[test]
fn every_read_stays_right_under_every_layout() {
    const KEYS: u64 = 60;
    for layout in LAYOUTS.into_iter().chain(TRIES) {
        let (mut most_jobs, mut moves) = (0, 0);
        for seed in 0..15 {
            let mut dice = Dice(seed);
            let mut sim = sim(3 + dice.below(4) as usize, layout);
            for step in 0..700 {
                sim.happen(&mut dice, KEYS, &format!("{layout:?} seed {seed} step {step}"));
            }
            (most_jobs, moves) = (most_jobs.max(sim.most_jobs), moves + sim.moves);
            sim.wind_up(KEYS, &format!("{layout:?} seed {seed}"));
        }
        // In a trie hardly anything is ever moved.
        let least = if TRIES.contains(&layout) { 0 } else { 20 };
        assert!(most_jobs >= 2 && moves > least, "{layout:?}: {most_jobs} {moves}");
    }
}

#[test]
fn every_read_stays_right_while_the_layout_changes() {
    const KEYS: u64 = 60;
    for seed in 0..50 {
        let mut dice = Dice(1000 + seed);
        let mut sim = sim(3 + dice.below(4) as usize, dice.pick(&LAYOUTS));
        for step in 0..900 {
            if dice.below(100) == 0 {
                sim.options.layout = dice.pick(&LAYOUTS);
            }
            sim.happen(&mut dice, KEYS, &format!("seed {seed} step {step}"));
        }
        sim.wind_up(KEYS, &format!("seed {seed}"));
    }
}

/// Puts of random keys, flushed by `entries`, settled after each.
fn load(sim: &mut Sim, keys: u64, puts: u64, entries: usize) {
    let mut dice = Dice(7);
    for _ in 0..puts {
        sim.feed(dice.below(keys).to_be_bytes().to_vec(), true, entries);
    }
}

fn entries(sim: &Sim) -> u64 {
    sim.levels.tables().map(|table| table.meta().entries).sum()
}

#[test]
fn a_sequential_load_is_moved_and_never_rewritten() {
    for layout in [Layout::TIERED, Layout::LAZY_LEVELED] {
        let mut sim = sim(50, layout);
        for number in 0..20_000u64 {
            sim.feed(number.to_be_bytes().to_vec(), true, 50);
        }
        assert_eq!(sim.written_entries, 0, "{layout:?}: {:?}", sim.shape());
    }
}

#[test]
fn tiers_write_every_entry_once_each() {
    let layout = Layout::Tiered { runs: 4, merged_percent: 100 };
    let mut sim = sim(250, layout);
    load(&mut sim, u64::MAX, 150_000, 250);
    let amplification = sim.written_entries as f64 / sim.flushed_entries as f64;
    let tiers = Tiers::of(&sim.options).expect("it has tiers");
    let runs = |tier| tiers.levels(tier).filter(|&level| !sim.levels.level(level).is_empty()).count();
    let used = (1..=tiers.count()).filter(|&tier| runs(tier) > 0).max().expect("it is in tiers");
    assert!(
        used >= 4 && (2.0..=used as f64).contains(&amplification),
        "{amplification:.2} {:?}",
        sim.shape()
    );
    assert!((1..=used).all(|tier| runs(tier) <= 4), "{:?}", sim.shape());
}

#[test]
fn lazy_leveled_keeps_to_its_space_and_writes_less_than_leveled() {
    let written = |layout: Layout, bound: f64| {
        let mut sim = sim(250, layout);
        // Every key is written ten times.
        load(&mut sim, 20_000, 200_000, 250);
        let most = 20_000.0 * bound + 4.0 * 250.0;
        assert!(entries(&sim) as f64 <= most, "{layout:?}: {} of {most}: {:?}", entries(&sim), sim.shape());
        sim.written_entries as f64 / sim.flushed_entries as f64
    };
    let leveled = written(Layout::Leveled, 2.2);
    let lazy = written(Layout::LAZY_LEVELED, 1.5);
    let lazier = written(Layout::LazyLeveled { runs: 8, upper_percent: 100 }, 2.0);
    assert!(lazy < leveled / 1.5 && lazier < lazy, "{leveled:.2} {lazy:.2} {lazier:.2}");
}

#[test]
fn few_deletes_of_much_give_the_space_back() {
    let mut sim = sim(50, Layout::LAZY_LEVELED);
    load(&mut sim, 5000, 10_000, 50);
    sim.compact_manually(None, None);
    let full = entries(&sim);
    sim.delete_range(1000u64.to_be_bytes().to_vec(), 4000u64.to_be_bytes().to_vec());
    for number in 0..200u64 {
        sim.feed(number.to_be_bytes().to_vec(), true, 10);
    }
    let (left, shape) = (entries(&sim), sim.shape());
    assert!(left * 2 < full, "{left} of {full} entries are left of a range: {shape:?}");
    for number in 0..1000u64 {
        sim.feed(number.to_be_bytes().to_vec(), false, 50);
    }
    let (rest, shape) = (entries(&sim), sim.shape());
    assert!(rest + 500 < left, "{rest} of {left} entries are left: {shape:?}");
    sim.check_reads((0..5000u64).step_by(7).map(|n| n.to_be_bytes().to_vec()), "after the deletion");
}

#[test]
fn another_layout_takes_over_what_it_finds() {
    const KEYS: u64 = 6_000;
    for first in LAYOUTS {
        let mut found = sim(100, first);
        load(&mut found, KEYS, 3 * KEYS, 100);
        for second in LAYOUTS {
            let mut sim = found.clone();
            sim.options.layout = second;
            load(&mut sim, KEYS, 3 * KEYS, 100);
            sim.check_reads((0..KEYS).step_by(31).map(|n| n.to_be_bytes().to_vec()), "changed");
            let over = |key: u64| {
                let key = key.to_be_bytes();
                sim.levels.tables().filter(|table| table.meta().covers(&Bytewise, &key)).count()
            };
            let (found, most) = ((0..KEYS).step_by(31).map(over).max(), 14);
            assert!(found <= Some(most), "{first:?} to {second:?}: {found:?} {:?}", sim.shape());
            if second == Layout::Leveled {
                assert!(sim.levels.depth() <= 8, "{first:?} to {second:?}: {:?}", sim.shape());
            }
            assert_eq!(debt_bytes(&sim.levels, &sim.options, Lsn::MAX), 0);
        }
    }
}

#[test]
fn newer_runs_do_not_pass_older_ones_that_are_being_merged() {
    let mut sim = sim(100, Layout::Tiered { runs: 2, merged_percent: 100 });
    // Two runs of tier 1, which begin to be merged into tier 2; two newer ones come meanwhile.
    let first = Tiers::of(&sim.options).expect("it has tiers").levels(1).start as u32;
    let level = |at: u32| first + at;
    sim.place(level(3), &[1, 5]);
    sim.place(level(2), &[2, 6]);
    let plan = pick(&sim.levels, &sim.options, &sim.running, crate::key::Lsn::MAX).expect("two runs are due");
    assert_eq!(plan.inputs.len(), 2, "{plan}");
    sim.begin(plan);
    sim.place(level(1), &[1, 3]);
    sim.place(level(0), &[1, 4]);
    let plan = pick(&sim.levels, &sim.options, &sim.running, crate::key::Lsn::MAX);
    assert!(plan.is_none(), "{plan:?}");
    sim.finish(0);
    sim.settle();
    sim.check_reads((0..10).map(small_key), "done");
}

#[test]
fn a_component_is_all_that_overlaps_and_nothing_else() {
    let mut sim = sim(100, Layout::TIERED);
    sim.place(1, &[1, 3]);
    sim.place(2, &[3, 5]);
    sim.place(2, &[7, 8]);
    sim.place(4, &[5]);
    sim.place(9, &[6]);
    let policy = Policy {
        levels: &sim.levels,
        options: &sim.options,
        running: &sim.running,
        oldest_snapshot: crate::key::Lsn::MAX,
    };
    let spans: Vec<(usize, Vec<u32>)> = policy
        .components(1..LAST + 1)
        .iter()
        .map(|component| {
            (component.tables().count(), component.inputs.iter().map(|(level, _)| *level).collect())
        })
        .collect();
    assert_eq!(spans, [(3, vec![1, 2, 4]), (1, vec![9]), (1, vec![2])]);
    assert!(policy.components(5..9).is_empty());
    let whole = policy.components(1..3);
    assert!(whole[0].span.contains(&Bytewise, &small_key(4)) && whole.len() == 2);
}

#[test]
fn no_plan_takes_tables_past_others_or_past_a_job() {
    let mut sim = sim(100, Layout::TIERED);
    sim.place(6, &[2, 7]);
    sim.place(5, &[20, 21]);
    sim.place(3, &[3]);
    sim.place(1, &[1, 5]);
    let tables = |level: usize| (level as u32, sim.levels.level(level).to_vec());
    let policy = Policy {
        levels: &sim.levels,
        options: &sim.options,
        running: &sim.running,
        oldest_snapshot: crate::key::Lsn::MAX,
    };
    let plan = |inputs: Inputs, output| policy.plan_of(inputs, output, Reason::Manual);
    assert!(plan(vec![tables(1)], 2).is_some_and(|plan| plan.trivial_move));
    assert!(plan(vec![tables(1)], 4).is_none(), "level 3 stays between");
    assert!(plan(vec![tables(1), tables(3)], 4).is_some());
    assert!(plan(vec![tables(1), tables(3)], 7).is_none(), "level 6 stays between");
    assert!(
        plan(vec![tables(1), tables(3), tables(6)], 9).is_some_and(|plan| plan.bottom && !plan.trivial_move)
    );
    assert!(plan(vec![tables(6)], 2).is_none(), "upwards past level 3");
    assert!(plan(vec![tables(3), tables(6)], 2).is_some());
    // A job that writes to level 4 within the span.
    let mut running = sim.running.clone();
    running.begin(&plan(vec![tables(3)], 4).expect("nothing is between"));
    let policy = Policy { running: &running, ..policy };
    assert!(policy.plan_of(vec![tables(1)], 2, Reason::Manual).is_some());
    assert!(policy.plan_of(vec![tables(5)], 9, Reason::Manual).is_some(), "other keys");
    assert!(policy.plan_of(vec![tables(6)], 9, Reason::Manual).is_some(), "deeper than what it writes");
    let past = vec![tables(1), tables(6)];
    assert!(policy.plan_of(past, 7, Reason::Manual).is_none());
}

#[test]
fn merges_stay_small_where_the_last_run_is_large() {
    for layout in [Layout::TIERED, Layout::LAZY_LEVELED, Layout::LazyLeveled { runs: 3, upper_percent: 50 }] {
        let mut sim = sim(250, layout);
        load(&mut sim, 100_000, 60_000, 1000);
        sim.compact_manually(None, None);
        let last = sim.levels.depth() - 1;
        let tables = sim.levels.level(last).len();
        assert!(tables > 100, "{layout:?}: {:?}", sim.shape());
        sim.largest_job = 0;
        load(&mut sim, 100_000, 60_000, 1000);
        // What level 0 brings is as large as four memtables; the rest goes by what lies above a few tables.
        let most = sim.largest_job / sim.options.table_bytes;
        assert!(most <= 4 * 4 + 4, "{layout:?}: a job of {most} tables: {:?}", sim.shape());
    }
}

/// The trie's tier of a level, and the container that a table lies in, by the first bits of its keys.
fn container(tiers: Tiers, level: usize, meta: &TableMeta) -> (usize, u64, u64) {
    let tier = tiers.of_level(level);
    let of = |key: &[u8]| if tier == 0 { 0 } else { key_prefix(key) >> (64 - 3 * tier) };
    (tier, of(&meta.smallest), of(&meta.largest))
}

/// Puts of random places, flushed by `entries`, settled after each.
fn load_trie(sim: &mut Sim, keys: u64, puts: u64, entries: usize) {
    let mut dice = Dice(7);
    for _ in 0..puts {
        let number = dice.below(keys);
        sim.feed(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec(), true, entries);
    }
}

#[test]
fn tables_of_a_trie_lie_within_containers_and_are_written_once_a_level() {
    let layout = Layout::Trie { levels: 3, runs: 4, hash: KeyHash::Sip };
    let mut sim = sim(1 << 40, layout);
    load_trie(&mut sim, u64::MAX, 60_000, 250);
    let tiers = Tiers::of(&sim.options).expect("it has tiers");
    let mut piles = std::collections::BTreeMap::new();
    for level in 0..sim.levels.depth() {
        for table in sim.levels.level(level) {
            let (tier, first, last) = container(tiers, level, table.meta());
            assert_eq!(first, last, "level {level}: a table of two containers");
            *piles.entry((tier, first)).or_insert(0usize) += 1;
        }
    }
    let deepest = piles.keys().map(|(tier, _)| *tier).max();
    assert_eq!(deepest, Some(2), "{:?}", sim.shape());
    let high = |(pile, tables): (&(usize, u64), &usize)| pile.0 < 2 && *tables >= 4;
    assert!(!piles.iter().any(high), "a pile of four or more is left: {piles:?}");
    let amplification = sim.written_entries as f64 / sim.flushed_entries as f64;
    assert!((1.5..=2.0).contains(&amplification), "{amplification:.2} {:?}", sim.shape());
}

#[test]
fn a_trie_keeps_to_its_space_however_often_keys_are_overwritten_or_deleted() {
    const KEYS: u64 = 10_000;
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
    for levels in [2, 3, 5] {
        let mut sim = sim(1 << 40, Layout::Trie { levels, runs: 4, hash: KeyHash::Sip });
        load_trie(&mut sim, KEYS, 10 * KEYS, 500);
        // What is live twice, and what lies in piles that have something below: 4 flushes, and 4 of them for each tier.
        let most = 2 * KEYS + 4 * 500 * u64::from(levels);
        assert!(entries(&sim) <= most, "{levels} levels: {} {:?}", entries(&sim), sim.shape());
        (0..KEYS).for_each(|n| sim.feed(key(n), false, 500));
        sim.check_reads((0..KEYS).step_by(37).map(key), "deleted");
        println!(
            "{levels} levels: {} entries of deletes and what they hide: {:?}",
            entries(&sim),
            sim.shape()
        );
        assert!(entries(&sim) <= most, "{levels} levels: {} {:?}", entries(&sim), sim.shape());
    }
}

#[test]
fn a_trie_compacts_by_hand_into_one_run_of_containers() {
    let mut sim = sim(1 << 40, Layout::Trie { levels: 4, runs: 4, hash: KeyHash::Sip });
    load_trie(&mut sim, 5000, 30_000, 500);
    let there = sim.model.len() as u64;
    sim.compact_manually(None, None);
    assert_eq!(entries(&sim), there);
    let tiers = Tiers::of(&sim.options).expect("it has tiers");
    for level in 0..sim.levels.depth() {
        for table in sim.levels.level(level) {
            let (_, first, last) = container(tiers, level, table.meta());
            assert_eq!(first, last, "level {level}: a table of two containers");
        }
    }
}

/// Regression: the last tier was merged for its garbage only, and once a container had all of its levels, nothing left level 0 any
/// more.
#[test]
fn the_last_tier_of_a_trie_never_runs_out_of_levels() {
    let mut sim = sim(1 << 40, Layout::Trie { levels: 2, runs: 2, hash: KeyHash::Sip });
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
    let mut most = 0;
    for n in 0..20_000 {
        sim.feed(key(n), true, 16);
        most = most.max(sim.levels.level(0).len());
    }
    assert!(most <= 2, "{most} tables at level 0: {:?}", sim.shape());
    let amplification = sim.written_entries as f64 / sim.flushed_entries as f64;
    println!("written {amplification:.2} times");
    assert!(amplification < 8.0, "{amplification}");
    sim.check_reads((0..20_000).step_by(501).map(key), "unique keys");
}

/// Regression: with another number of runs a level is of another tier, whose containers are smaller. What was merged then lay in
/// several of them.
#[test]
fn the_number_of_runs_of_a_trie_may_change_and_what_is_merged_keeps_within_containers() {
    for (before, after) in [(8, 2), (2, 8), (4, 3)] {
        let trie = |runs| Layout::Trie { levels: 4, runs, hash: KeyHash::Sip };
        let mut sim = sim(1 << 40, trie(before));
        load_trie(&mut sim, 1000, 10_000, 62);
        let old = sim.contents.keys().max().copied().expect("tables");
        sim.options.layout = trie(after);
        load_trie(&mut sim, 1000, 20_000, 62);
        let tiers = Tiers::of(&sim.options).expect("it has tiers");
        for level in 0..sim.levels.depth() {
            for table in sim.levels.level(level).iter().filter(|table| table.meta().id > old) {
                let (_, first, last) = container(tiers, level, table.meta());
                assert_eq!(first, last, "{before} to {after}, level {level}: a table of two containers");
            }
        }
        let keys =
            (0..1000).step_by(37).map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec());
        sim.check_reads(keys, "after the change");
        sim.compact_manually(None, None);
        assert_eq!(entries(&sim), sim.model.len() as u64);
    }
}

/// Regression: what a snapshot had kept in the deepest run stayed there for good.
#[test]
fn versions_that_no_snapshot_needs_any_more_go() {
    for layout in LAYOUTS.into_iter().chain(TRIES) {
        let mut sim = sim(100, layout);
        for round in 0..3 {
            if round == 1 {
                sim.snapshots.push(sim.lsn + 1);
            }
            for n in 0..1000u64 {
                sim.feed(n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec(), true, 100);
            }
        }
        sim.compact_manually(None, None);
        assert_eq!(entries(&sim), 2000, "{layout:?}: one for the snapshot");
        sim.snapshots.clear();
        sim.settle();
        let left = entries(&sim);
        assert!(left <= 1500, "{layout:?}: {left} {:?}", sim.shape());
        sim.compact_manually(None, None);
        assert_eq!(entries(&sim), 1000, "{layout:?}");
    }
}

/// Regression: a run that has tombstones to lose was written anew to be moved, and level 0 waited for it.
#[test]
fn room_is_made_by_moves() {
    let mut sim = sim(1 << 40, Layout::Tiered { runs: 2, merged_percent: 100 });
    sim.options.table_bytes = 1;
    let tiers = Tiers::of(&sim.options).expect("it has tiers");
    for level in tiers.levels(1).rev().skip(1) {
        let keys: Vec<u64> = (0..20).collect();
        sim.place(level as u32, &keys);
    }
    let policy = Policy {
        levels: &sim.levels,
        options: &sim.options,
        running: &sim.running,
        oldest_snapshot: Lsn::MAX,
    };
    let span = policy.components(1..5).pop().expect("one").span;
    let plan = make_room(&policy, tiers, 1, &span).expect("the deepest level is free");
    assert!(plan.trivial_move && plan.reason == Reason::Room, "{plan:?}");
}

/// A trie of `levels` levels.
fn trie(levels: u8) -> Layout {
    Layout::Trie { levels, runs: 8, hash: KeyHash::Sip }
}

/// A table of a trie with keys of these places.
fn at_places(sim: &mut Sim, level: usize, places: &[u64]) {
    sim.place_keys(level as u32, places.iter().map(|place| place.to_be_bytes().to_vec()));
}

/// Regression: what a snapshot needs was taken for garbage, and each run that came had all of its pile written anew: 14 times as much as
/// was put here, 54 times with five times the keys.
#[test]
fn a_held_snapshot_does_not_have_a_pile_merged_for_each_run() {
    const KEYS: u64 = 20_000;
    let mut dice = Dice(3);
    let mut spread = || dice.0.wrapping_add(dice.below(u64::MAX)).to_be_bytes().to_vec();
    let keys: Vec<Vec<u8>> = (0..KEYS).map(|_| spread()).collect();
    let mut sim = sim(1 << 40, trie(2));
    keys.iter().for_each(|key| sim.feed(key.clone(), true, 500));
    sim.snapshots.push(sim.lsn + 1);
    keys.iter().for_each(|key| sim.feed(key.clone(), false, 500));
    let (written, flushed) = (sim.written_entries, sim.flushed_entries);
    for _ in 0..KEYS {
        sim.feed(spread(), true, 500);
    }
    let times = (sim.written_entries - written) as f64 / (sim.flushed_entries - flushed) as f64;
    assert!(times < 3.0, "each was written {times:.1} times");
    // What is overwritten above the snapshot is garbage all the same.
    for _ in 0..6 {
        keys.iter().for_each(|key| sim.feed(key.clone(), true, 500));
    }
    assert!(entries(&sim) < 10 * KEYS, "{} entries of {KEYS} keys, twice", entries(&sim));
    sim.snapshots.clear();
    sim.compact_manually(None, None);
    assert_eq!(entries(&sim), 2 * KEYS);
}

/// Regression: each look for work compared the samples of all piles anew, 0.3 s with 33 thousand tables, with the scheduler's lock held.
#[test]
fn garbage_is_reckoned_once_for_each_pile() {
    let mut sim = sim(1 << 40, trie(3));
    load(&mut sim, 1 << 40, 20_000, 200);
    let look = |sim: &Sim| {
        let _ = pick(&sim.levels, &sim.options, &sim.running, Lsn::MAX);
        let _ = debt_bytes(&sim.levels, &sim.options, Lsn::MAX);
        sim.levels.numbers_kept()
    };
    let kept = look(&sim);
    assert!(kept > 1, "there are piles: {:?}", sim.shape());
    assert_eq!(look(&sim), kept);
    at_places(&mut sim, 0, &[1, 2, 3]);
    assert_eq!(look(&sim), kept, "no pile was changed");
}

/// Regression: the claims of a merge with a border for each container were given back one by one, each searched for among all: 135 s for a
/// trie of eight levels, with the scheduler's lock held.
#[test]
fn a_merge_of_many_containers_onto_one_level_is_one_claim() {
    let mut sim = sim(1 << 40, trie(8));
    let tiers = Tiers::of(&sim.options).expect("it has tiers");
    at_places(&mut sim, tiers.levels(1).end - 1, &[1000, (1 << 61) - 1000]);
    at_places(&mut sim, tiers.levels(7).end - 1, &[500, 2000]);
    let picked = crate::layout::pick_manual(&sim.levels, &sim.options, &sim.running, Lsn::MAX, None, None);
    let ManualPick::Plan(plan) = picked else { panic!("two runs are merged") };
    assert_eq!(plan.borders.len(), (1 << 18) - 1, "a container of the last tier begins at each");
    assert_eq!(plan.landings(), [(plan.output_level, plan.span.clone())]);
    let other = sim.levels.level(plan.output_level as usize)[0].meta();
    sim.running.begin(&plan);
    assert!(sim.running.writes(&Bytewise, plan.output_level, &span_of(other)));
    sim.running.end(&plan);
    assert!(sim.running.is_empty());
}

/// Regression: a table that was written anew where it lies, for its values, lost the filters of what lies under it.
#[test]
fn a_table_that_is_rewritten_in_its_pile_is_given_what_lies_under_it() {
    let mut sim = sim(1 << 40, trie(3));
    for level in [14, 15, 16, 17] {
        at_places(&mut sim, level, &[level as u64, 1 << 40]);
    }
    let policy = Policy {
        levels: &sim.levels,
        options: &sim.options,
        running: &sim.running,
        oldest_snapshot: Lsn::MAX,
    };
    let plan = policy.rewrite(14, 0, Reason::Values(0.5)).expect("it is free");
    let under: Vec<_> = [15, 16].map(|level| policy.tables(level)[0].meta().id).to_vec();
    assert_eq!(plan.pile.iter().map(|table| table.meta().id).collect::<Vec<_>>(), under, "of its tier");
}
