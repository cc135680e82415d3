//! Histories made from a map that really does one operation at a time: valid by construction.
//!
//! Place: called by the tests of the checker. Each operation takes effect at a point of its own; its interval is drawn
//! around that point at random, mostly short, sometimes as long as a preempted client's. Recent snapshots show the
//! state of some earlier point.

use std::collections::VecDeque;

use super::dice::Dice;
use super::history::{ABSENT, Class, History, KEYS_MAX, Key, Op, Seen, Value};

/// What a history looks like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Operations.
    pub ops: usize,
    /// Clients.
    pub threads: u8,
    /// Keys, at most 64.
    pub keys: u8,
    /// Ticks between two points of effect; small means much overlap.
    pub spacing: u64,
}

/// Ticks that a usual interval reaches to each side of its point.
const REACH: u64 = 40;

/// A valid history.
pub fn valid(seed: u64, shape: Shape) -> History {
    let mut rng = Dice(seed);
    let mut state = [ABSENT; KEYS_MAX];
    let mut past: VecDeque<[Value; KEYS_MAX]> = VecDeque::from([state]);
    let mut free_at = vec![0u64; usize::from(shape.threads)];
    let mut fresh = 0;
    let mut now = 1000;
    let mut ops = Vec::with_capacity(shape.ops);
    while ops.len() < shape.ops {
        now += shape.spacing;
        let thread = rng.below(u64::from(shape.threads)) as usize;
        if free_at[thread] >= now {
            continue;
        }
        let reach =
            |rng: &mut Dice| if rng.below(100) == 0 { rng.below(REACH * 50) } else { rng.below(REACH) };
        let invoke = now.saturating_sub(reach(&mut rng)).max(free_at[thread]);
        let ret = now + reach(&mut rng);
        free_at[thread] = ret + 1;
        let mut op =
            Op { thread: thread as u8, class: Class::Write, invoke, ret, reads: vec![], writes: vec![] };
        step(&mut rng, shape.keys, &state, &past, &mut fresh, &mut op);
        for (key, value) in &op.writes {
            state[usize::from(*key)] = *value;
        }
        if past.len() == 20 {
            past.pop_front();
        }
        past.push_back(state);
        ops.push(op);
    }
    History::new(ops)
}

fn step(
    rng: &mut Dice,
    keys: u8,
    state: &[Value; KEYS_MAX],
    past: &VecDeque<[Value; KEYS_MAX]>,
    fresh: &mut Value,
    op: &mut Op,
) {
    let key = rng.below(u64::from(keys)) as Key;
    let held = state[usize::from(key)];
    let mut new = || {
        *fresh += 1;
        *fresh
    };
    let all =
        |state: &[Value; KEYS_MAX]| (0..keys).map(|k| (k, Seen::Exactly(state[usize::from(k)]))).collect();
    match rng.below(20) {
        0..5 => op.writes.push((key, new())),
        5 => op.writes.push((key, ABSENT)),
        6..12 => {
            op.class = Class::Get;
            op.reads.push((key, Seen::Exactly(held)));
        }
        12..15 => {
            op.reads.push((key, Seen::Exactly(held)));
            op.writes.push((key, new()));
        }
        // put_if_absent: says only whether somebody was there.
        15 if held != ABSENT => {
            op.class = Class::Get;
            op.reads.push((key, Seen::Present));
        }
        15 => {
            op.reads.push((key, Seen::Exactly(ABSENT)));
            op.writes.push((key, new()));
        }
        16..18 => {
            for _ in 0..2 + rng.below(3) {
                let key = rng.below(u64::from(keys)) as Key;
                if op.writes.iter().all(|(k, _)| *k != key) {
                    op.writes.push((key, if rng.below(8) == 0 { ABSENT } else { new() }));
                }
            }
        }
        18 => {
            op.class = Class::Snapshot;
            op.reads = all(state);
        }
        _ => {
            op.class = Class::Recent;
            op.reads = all(&past[rng.below(past.len() as u64) as usize]);
        }
    }
}
