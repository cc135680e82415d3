//! Tests of the leveled policy, on a store of lists.

use super::*;
use crate::dice::Dice;
use crate::layout::lists::{Sim, expect_plan, small_key};
use crate::layout::pick;
use crate::table::TableId;

#[test]
fn every_read_stays_right_while_jobs_of_all_levels_run_side_by_side() {
    const KEYS: u64 = 60;
    let (mut most_jobs, mut moves, mut deepest) = (0, 0, 0);
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let mut sim = Sim::new(3 + dice.below(4) as usize, 2, 2 + dice.below(2));
        for step in 0..700 {
            sim.happen(&mut dice, KEYS, &format!("seed {seed} step {step}"));
        }
        (most_jobs, moves) = (most_jobs.max(sim.most_jobs), moves + sim.moves);
        deepest = deepest.max(sim.deepest);
        sim.wind_up(KEYS, &format!("seed {seed}"));
        let shape = sim.shape();
        assert!(shape.iter().rev().skip_while(|&&n| n == 0).skip(1).all(|&n| n == 0), "one level: {shape:?}");
    }
    assert!(most_jobs >= 3 && moves > 50 && deepest >= 3, "{most_jobs} {moves} {deepest}");
}

#[test]
fn a_sequential_load_is_moved_and_never_rewritten() {
    let mut sim = Sim::new(50, 4, 4);
    for number in 0..20_000u64 {
        sim.feed(number.to_be_bytes().to_vec(), true, 50);
    }
    assert_eq!(sim.written_entries, 0, "{:?}", sim.shape());
    assert!(sim.levels.depth() >= 4);
}

#[test]
fn a_random_load_is_rewritten_no_more_than_the_levels_explain() {
    let mut sim = Sim::new(250, 4, 4);
    let mut dice = Dice(1);
    for _ in 0..150_000 {
        sim.feed(dice.below(100_000).to_be_bytes().to_vec(), true, 250);
    }
    let amplification = sim.written_entries as f64 / sim.flushed_entries as f64;
    // Levels of 1000, 4000, 16000 and 64000 entries: at most (ratio + 1) a level.
    assert!(amplification < 14.0, "{amplification:.1} {:?}", sim.shape());
    assert!(sim.shape()[1..].iter().filter(|&&tables| tables > 0).count() >= 4, "{:?}", sim.shape());
}

#[test]
fn deleted_ranges_give_their_space_back_without_being_asked() {
    let mut sim = Sim::new(50, 4, 4);
    let mut dice = Dice(2);
    for _ in 0..10_000u64 {
        sim.feed(dice.below(5000).to_be_bytes().to_vec(), true, 50);
    }
    let full: u64 = bytes_of(sim.levels.tables());
    sim.delete_range(1000u64.to_be_bytes().to_vec(), 4000u64.to_be_bytes().to_vec());
    sim.flush();
    sim.settle();
    // The tombstone waits at level 0 until that is compacted; a few more flushes see to it.
    for number in 0..150u64 {
        sim.feed(number.to_be_bytes().to_vec(), true, 50);
    }
    let left: u64 = bytes_of(sim.levels.tables());
    assert!(left * 2 < full, "{left} of {full} bytes are left: {:?}", sim.shape());
    sim.check_reads((0..5000u64).step_by(7).map(|n| n.to_be_bytes().to_vec()), "after the deletion");
}

#[test]
fn tombstones_that_a_snapshot_holds_are_rewritten_once_it_is_gone() {
    let mut sim = Sim::new(10, 4, 4);
    (0..8).for_each(|n| sim.write(small_key(n), true));
    sim.flush();
    sim.snapshots.push(sim.lsn + 1);
    (0..8).for_each(|n| sim.write(small_key(n), false));
    sim.flush();
    sim.compact_manually(None, None);
    sim.settle();
    let deletes = |sim: &Sim| sim.levels.tables().map(|t| t.meta().deletes).sum::<u64>();
    assert_eq!(deletes(&sim), 8, "the snapshot still needs the puts, and the present the deletes");
    sim.check_reads((0..8).map(small_key), "held");
    sim.snapshots.clear();
    sim.settle();
    assert!(sim.levels.depth() == 0, "{:?}", sim.shape());
}

#[test]
fn nothing_slips_into_a_gap_that_a_running_job_may_write_over() {
    let mut sim = Sim::new(100, 4, 4);
    sim.place(2, &[14, 16]);
    sim.place(1, &[10, 15]);
    sim.place(1, &[30, 31]);
    // Both tables of level 1 in one job: the second brings nothing more of level 2 along.
    let plan = expect_plan(sim.manual(10, 11));
    assert_eq!(plan.inputs[0].1.len(), 2, "{plan}");
    sim.begin(plan);
    // Meanwhile a table comes into the gap of level 1, which nothing of level 2 covers.
    sim.place(1, &[20, 21]);
    assert!(
        matches!(sim.manual(20, 22), ManualPick::Busy),
        "the running job will write one table over the gap"
    );
    sim.finish(0);
    assert_eq!(sim.levels.level(2).len(), 1);
    let plan = expect_plan(sim.manual(20, 22));
    sim.begin(plan);
    sim.finish(0);
    sim.check_reads((0..40).map(small_key), "done");
}

#[test]
fn a_busy_neighbour_is_left_out_of_a_plan() {
    let mut sim = Sim::new(100, 4, 4);
    sim.place(2, &[14, 16]);
    sim.place(2, &[50]);
    sim.place(1, &[10, 15]);
    sim.place(1, &[30, 31]);
    let moved = expect_plan(sim.manual(30, 31));
    assert!(moved.trivial_move && moved.inputs[0].1.len() == 1, "{moved}");
    sim.begin(moved);
    let plan = expect_plan(sim.manual(10, 11));
    assert_eq!(plan.inputs[0].1.len(), 1, "{plan}");
}

#[test]
fn disjoint_parts_of_level_0_are_compacted_side_by_side_and_others_are_not() {
    let mut sim = Sim::new(100, 4, 4);
    let old = sim.place(0, &[1, 5]);
    sim.place(0, &[20, 25]);
    let new = sim.place(0, &[3, 9]);
    let first = expect_plan(sim.manual(1, 2));
    let taken: Vec<TableId> = first.tables().map(|(_, table)| table.meta().id).collect();
    assert_eq!(taken, [new, old], "newest first, and the old one not without the new");
    sim.begin(first);
    let second = expect_plan(sim.manual(20, 30));
    sim.begin(second);
    sim.place(0, &[4, 6]);
    assert!(matches!(sim.manual(4, 5), ManualPick::Busy), "newer versions must not arrive first");
    sim.finish(1);
    sim.finish(0);
    sim.begin(expect_plan(sim.manual(4, 5)));
    sim.finish(0);
    sim.check_reads((0..30).map(small_key), "done");
}

#[test]
fn a_plan_prints_what_it_does() {
    let mut sim = Sim::new(10, 4, 4);
    for round in 0..3 {
        (0..10).for_each(|n| sim.write(small_key(n + round), true));
        sim.flush();
    }
    let plan = pick(&sim.levels, &sim.options, &sim.running, Lsn::MAX).unwrap();
    assert_eq!(plan.to_string(), "merge L0{3 2 1} -> L1, 3000 bytes, bottom (3 tables at level 0)");
}
