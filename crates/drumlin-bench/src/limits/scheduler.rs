//! How late a thread wakes that slept, beside threads that compute: no store that works in the background answers sooner.
//!
//! Place: named in the table of `limits`; what open loops are to be set beside.
//!
//! As many threads as there are clients sleep and wake at a fixed pace, as the clients of an open loop do, and as many
//! again compute for half of the time, as flushes and merges do. Nothing waits for anything but a processor. The worst
//! needs more time than other limits to be met: see [`TIMES`].

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Ground;
use crate::drive;
use crate::engine::Result;
use crate::keys::mix;
use crate::latency::{Latency, Percentiles};

/// Between two times that a thread is to wake: that of the open loop that it stands beside, 180 thousand a second by two.
const PACE: Duration = Duration::from_micros(11);
/// A thread that computes does so for as long, and then sleeps for as long.
const BURST: Duration = Duration::from_millis(300);
/// So many times as long as other limits it is measured.
const TIMES: u32 = 10;

/// Nanoseconds that 999 of a thousand are late, at most.
pub(super) fn wake_late(ground: &Ground, threads: usize) -> Result<f64> {
    Ok(once(ground, threads).p999_ns as f64)
}

/// Of the latest of these.
pub(super) fn wake_latest(ground: &Ground, threads: usize) -> Result<f64> {
    Ok(once(ground, threads).max_ns as f64)
}

/// Both are of one time.
fn once(ground: &Ground, threads: usize) -> Percentiles {
    *ground.lateness.get_or_init(|| lateness(ground.time * TIMES, threads))
}

fn lateness(time: Duration, threads: usize) -> Percentiles {
    let over = AtomicBool::new(false);
    let mut late = Latency::default();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| compute(&over));
        }
        let sleepers: Vec<_> = (0..threads).map(|_| scope.spawn(|| sleep(time))).collect();
        for sleeper in sleepers {
            late.join(&sleeper.join().expect("a limit's panic is its own"));
        }
        over.store(true, Ordering::Relaxed);
    });
    late.percentiles()
}

/// Wakes at its pace for so long, and notes how late.
fn sleep(time: Duration) -> Latency {
    drive::wake_exactly();
    let mut late = Latency::default();
    let began = Instant::now();
    for due in (1..).map(|n| PACE * n).take_while(|&due| due < time) {
        drive::wait_until(began + due);
        late.note(began.elapsed().saturating_sub(due));
    }
    late
}

/// Half of the time, until it is over.
fn compute(over: &AtomicBool) {
    let mut word = 0;
    while !over.load(Ordering::Relaxed) {
        let burst = Instant::now();
        while burst.elapsed() < BURST && !over.load(Ordering::Relaxed) {
            (0..1000).for_each(|_| word = mix(black_box(word)));
        }
        std::thread::sleep(BURST);
    }
}
