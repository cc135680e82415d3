//! Tests of `retain`: reads before and after, on every small history and on random larger ones.

use super::*;
use crate::dice::Dice;
use crate::iter::RangeTombstone;
use crate::key::bytewise;
use crate::layout::KeySpan;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    None,
    Put(u8),
    Delete(u8),
    /// [start, end)
    Range(u8, u8),
}

/// Versions and tombstones in one place: a table, or a level, or all of them.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
struct Part {
    /// (key, LSN, is a put), in internal order.
    points: Vec<(u8, u64, bool)>,
    ranges: Vec<(u8, u8, u64)>,
}

impl Part {
    fn of(history: &[(u64, Op)]) -> Part {
        let mut part = Part::default();
        for &(lsn, op) in history {
            match op {
                Op::None => {}
                Op::Put(key) => part.points.push((key, lsn, true)),
                Op::Delete(key) => part.points.push((key, lsn, false)),
                Op::Range(start, end) => part.ranges.push((start, end, lsn)),
            }
        }
        part.order();
        part
    }

    fn order(&mut self) {
        self.points.sort_by_key(|&(key, lsn, _)| (key, u64::MAX - lsn));
    }

    fn join(parts: &[&Part]) -> Part {
        let mut all = Part::default();
        for part in parts {
            all.points.extend(&part.points);
            all.ranges.extend(&part.ranges);
        }
        all.order();
        all
    }

    /// What a read of `key` at `at` finds: the LSN of a put. By the definition, not by horizons.
    fn read(&self, key: u8, at: u64) -> Option<u64> {
        let (_, lsn, is_put) =
            *self.points.iter().filter(|&&(k, l, _)| k == key && l < at).max_by_key(|&&(_, l, _)| l)?;
        let hidden = self.ranges.iter().any(|&(s, e, t)| s <= key && key < e && lsn < t && t < at);
        (is_put && !hidden).then_some(lsn)
    }

    /// In two sets, as if of two tables; each holds every LSN.
    fn tombstones(&self) -> [Arc<Tombstones>; 2] {
        let list = self.ranges.iter();
        let list = list.map(|&(s, e, l)| RangeTombstone { start: vec![s], end: vec![e], lsn: Lsn(l) });
        let list: Vec<RangeTombstone> = list.collect();
        let (some, others) = list.split_at(list.len() / 2);
        [some, others].map(|part| Arc::new(Tombstones::of_all(&*bytewise(), part)))
    }

    fn spans(&self) -> KeySpans {
        let points = self.points.iter();
        let points = points.map(|&(k, ..)| KeySpan { start: vec![k], end: vec![k], end_exclusive: false });
        let ranges = self.ranges.iter();
        let ranges = ranges.map(|&(s, e, _)| KeySpan { start: vec![s], end: vec![e], end_exclusive: true });
        KeySpans::new(&*bytewise(), points.chain(ranges).collect())
    }

    /// What a job makes of this part, as outputs cut at `cuts`.
    fn compacted(&self, snapshots: &[u64], deeper: KeySpans, cuts: &[u8]) -> Vec<Part> {
        let snapshots = snapshots.iter().map(|&s| Lsn(s)).collect();
        let rules = Retention::new(bytewise(), snapshots, &self.tombstones(), deeper);
        let mut borders: Vec<Option<[u8; 1]>> = vec![None];
        borders.extend(cuts.iter().map(|&c| Some([c])));
        borders.push(None);
        let mut outputs = Vec::new();
        for pair in borders.windows(2) {
            let (start, end) = (pair[0].as_ref().map(|k| &k[..]), pair[1].as_ref().map(|k| &k[..]));
            let mut walk = rules.walk(start);
            let mut output = Part::default();
            for &(key, lsn, is_put) in &self.points {
                if start.is_some_and(|s| key < s[0]) || end.is_some_and(|e| key >= e[0]) {
                    continue;
                }
                let kind = if is_put { Kind::Put } else { Kind::Delete };
                if walk.judge(&[key], Lsn(lsn), kind) == Verdict::Keep {
                    output.points.push((key, lsn, is_put));
                }
            }
            let kept = rules.tombstones(start, end);
            output.ranges = kept.iter().map(|t| (t.start[0], t.end[0], t.lsn.0)).collect();
            for &(first, last, _) in &output.ranges {
                let inside = start.is_none_or(|s| s[0] <= first) && end.is_none_or(|e| last <= e[0]);
                assert!(inside, "[{first}, {last}) leaves {start:?}..{end:?}");
            }
            outputs.push(output);
        }
        outputs
    }
}

/// Asserts that every snapshot, and the present, read every key alike.
fn assert_same_reads(before: &Part, after: &Part, keys: u8, snapshots: &[u64], story: &dyn Fn() -> String) {
    for key in 0..keys {
        for &at in snapshots.iter().chain(&[u64::MAX]) {
            assert_eq!(after.read(key, at), before.read(key, at), "key {key} at {at}: {}", story());
        }
    }
}

/// Asserts that nothing is kept that no read needs.
fn assert_nothing_superfluous(kept: &Part, input: &Part, deeper: &KeySpans, snapshots: &[u64]) {
    let reads: Vec<u64> = snapshots.iter().copied().chain([u64::MAX]).collect();
    for &(key, lsn, is_put) in &kept.points {
        let read = reads.iter().any(|&at| {
            let newest =
                input.points.iter().filter(|&&(k, l, _)| k == key && l < at).map(|&(_, l, _)| l).max();
            newest == Some(lsn)
                && !input.ranges.iter().any(|&(s, e, t)| s <= key && key < e && lsn < t && t < at)
        });
        assert!(read, "no read sees {key}@{lsn} in {input:?}, snapshots {snapshots:?}");
        let needed = is_put
            || snapshots.iter().any(|&s| s <= lsn)
            || deeper.overlaps_range(&*bytewise(), &[key], &[key, 0]);
        assert!(needed, "the delete {key}@{lsn} hides nothing");
    }
    for &(start, end, lsn) in &kept.ranges {
        let needed = snapshots.iter().any(|&s| s <= lsn)
            || (start..end).any(|k| deeper.overlaps_range(&*bytewise(), &[k], &[k + 1]));
        assert!(needed, "the tombstone [{start}, {end})@{lsn} hides nothing");
        for &(s, e, other) in &kept.ranges {
            let together = s < end && start < e && other > lsn;
            assert!(!together || snapshots.iter().any(|&s| lsn < s && s <= other), "{lsn} and {other}");
        }
    }
}

/// Splits a history into what lies deeper, the input and what lies above, compacts, and compares.
fn check(
    history: &[(u64, Op)],
    deeper_end: usize,
    input_end: usize,
    snapshots: &[u64],
    cuts: &[u8],
    keys: u8,
) {
    let deeper = Part::of(&history[..deeper_end]);
    let input = Part::of(&history[deeper_end..input_end]);
    let above = Part::of(&history[input_end..]);
    let outputs = input.compacted(snapshots, deeper.spans(), cuts);
    let mut parts: Vec<&Part> = outputs.iter().collect();
    let kept = Part::join(&parts);
    parts.extend([&deeper, &above]);
    let story = || format!("{history:?} deeper {deeper_end} input {input_end} {snapshots:?} cuts {cuts:?}");
    assert_same_reads(&Part::of(history), &Part::join(&parts), keys, snapshots, &story);
    // Without the rest too: a later job may take the rest away.
    assert_same_reads(
        &Part::join(&[&deeper, &input]),
        &Part::join(&[&deeper, &kept]),
        keys,
        snapshots,
        &story,
    );
    assert_nothing_superfluous(&kept, &input, &deeper.spans(), snapshots);
}

#[test]
fn every_small_history_reads_the_same_after_as_before() {
    const OPS: [Op; 8] = [
        Op::None,
        Op::Put(0),
        Op::Put(1),
        Op::Delete(0),
        Op::Delete(1),
        Op::Range(0, 1),
        Op::Range(1, 2),
        Op::Range(0, 2),
    ];
    // LSNs 1 to 4; every subset of the bounds 2 to 4 (1 reads nothing, 5 reads what MAX does).
    for number in 0..OPS.len().pow(4) {
        let history: Vec<(u64, Op)> =
            (0..4).map(|i| (i as u64 + 1, OPS[number / OPS.len().pow(i) % OPS.len()])).collect();
        for subset in 0..8u64 {
            let snapshots: Vec<u64> =
                (0..3).filter(|bit| subset >> bit & 1 == 1).map(|bit| bit + 2).collect();
            for deeper_end in 0..2 {
                check(&history, deeper_end, 4, &snapshots, &[], 2);
            }
            check(&history, 2, 4, &snapshots, &[1], 2);
            check(&history, 1, 3, &snapshots, &[], 2);
        }
    }
}

fn random_op(dice: &mut Dice, keys: u8) -> Op {
    let key = dice.below(keys as u64) as u8;
    match dice.below(10) {
        0..=4 => Op::Put(key),
        5..=7 => Op::Delete(key),
        _ => Op::Range(key, key + 1 + dice.below((keys - key) as u64) as u8),
    }
}

#[test]
fn random_histories_read_the_same_after_as_before() {
    for seed in 0..6000 {
        let mut dice = Dice(seed);
        let keys = 1 + dice.below(6) as u8;
        let mut lsn = 1;
        let history: Vec<(u64, Op)> = (0..dice.below(30))
            .map(|_| {
                lsn += dice.below(3);
                (lsn, random_op(&mut dice, keys))
            })
            .collect();
        // Ops of one LSN are a batch: no key twice in it, point or range.
        let mut batch: Vec<(u64, Op)> = Vec::new();
        for (lsn, op) in history {
            if batch.last().is_none_or(|&(last, _)| last != lsn) || matches!(op, Op::Range(..)) {
                batch.push((lsn, op));
            } else if let Op::Put(key) | Op::Delete(key) = op {
                let clash = |o: &Op| matches!(*o, Op::Put(k) | Op::Delete(k) if k == key);
                if !batch.iter().any(|(l, o)| *l == lsn && clash(o)) {
                    batch.push((lsn, op));
                }
            }
        }
        let border = |dice: &mut Dice, from: usize| {
            let mut at = from + dice.below((batch.len() - from) as u64 + 1) as usize;
            while at > 0 && at < batch.len() && batch[at - 1].0 == batch[at].0 {
                at += 1;
            }
            at
        };
        let deeper_end = border(&mut dice, 0);
        let input_end = border(&mut dice, deeper_end);
        let mut snapshots: Vec<u64> = (0..dice.below(5)).map(|_| dice.below(lsn + 2)).collect();
        snapshots.sort();
        let cuts: Vec<u8> = (1..keys).filter(|_| dice.below(3) == 0).collect();
        check(&batch, deeper_end, input_end, &snapshots, &cuts, keys);
    }
}

/// Levels of parts, newest first, compacted at random while snapshots come and go.
#[test]
fn a_deleted_key_never_comes_back() {
    const KEYS: u8 = 5;
    const LEVELS: usize = 4;
    let mut dropped_tombstones = 0;
    for seed in 0..1500 {
        let mut dice = Dice(seed);
        let mut levels: Vec<Part> = vec![Part::default(); LEVELS];
        let mut history: Vec<(u64, Op)> = Vec::new();
        let mut snapshots: Vec<u64> = Vec::new();
        for _ in 0..40 {
            match dice.below(6) {
                0 | 1 => {
                    let lsn = history.len() as u64 + 1;
                    let op = random_op(&mut dice, KEYS);
                    history.push((lsn, op));
                    levels[0] = Part::join(&[&levels[0], &Part::of(&[(lsn, op)])]);
                }
                2 => snapshots.push(history.len() as u64 + 1),
                3 if !snapshots.is_empty() => {
                    let gone = dice.below(snapshots.len() as u64) as usize;
                    snapshots.remove(gone);
                }
                _ => {
                    let from = dice.below(LEVELS as u64 - 1) as usize;
                    let input = Part::join(&[&levels[from], &levels[from + 1]]);
                    let below: Vec<&Part> = levels[from + 2..].iter().collect();
                    let deeper = Part::join(&below).spans();
                    let cuts: Vec<u8> = (1..KEYS).filter(|_| dice.below(4) == 0).collect();
                    let outputs = input.compacted(&snapshots, deeper, &cuts);
                    levels[from] = Part::default();
                    levels[from + 1] = Part::join(&outputs.iter().collect::<Vec<_>>());
                    let deletes = |p: &Part| p.ranges.len() + p.points.iter().filter(|p| !p.2).count();
                    dropped_tombstones += deletes(&input).saturating_sub(deletes(&levels[from + 1]));
                }
            }
            let all = Part::join(&levels.iter().collect::<Vec<_>>());
            let story = || format!("seed {seed}: {history:?} in {levels:?}");
            assert_same_reads(&Part::of(&history), &all, KEYS, &snapshots, &story);
        }
    }
    assert!(dropped_tombstones > 5000, "the test must see tombstones go, but saw {dropped_tombstones}");
}

#[test]
fn a_part_that_is_hidden_whole_is_seen_by_no_read() {
    let mut hidden = 0;
    for seed in 0..4000 {
        let mut dice = Dice(seed);
        let keys = 2 + dice.below(4) as u8;
        let history: Vec<(u64, Op)> = (1..14).map(|lsn| (lsn, random_op(&mut dice, keys))).collect();
        let mut part = Part::of(&history);
        let snapshot = dice.below(15);
        let rules = Retention::new(bytewise(), vec![Lsn(snapshot)], &part.tombstones(), KeySpans::default());

        // The points of some keys and LSNs pose as a table.
        let (low, min_lsn) = (dice.below(keys as u64) as u8, 1 + dice.below(6));
        let (high, max_lsn) = (low + dice.below((keys - low) as u64) as u8, min_lsn + dice.below(6));
        if rules.hides(&[low], &[high], Lsn(min_lsn), Lsn(max_lsn)) {
            hidden += 1;
            let before = part.clone();
            part.points.retain(|&(k, l, _)| !(low..=high).contains(&k) || !(min_lsn..=max_lsn).contains(&l));
            // What they shadowed must stay hidden too.
            for key in low..=high {
                for at in [snapshot, u64::MAX] {
                    let (was, is) = (before.read(key, at), part.read(key, at));
                    assert_eq!(was, is, "seed {seed} key {key} at {at}");
                }
            }
        }
    }
    assert!(hidden > 100, "{hidden}");
}
