//! Progress bars, on standard error, only for someone who watches.
//!
//! Place: used by the commands that may take a while.
//!
//! 1. Nothing is drawn unless standard error is a terminal and `--quiet` is not given.
//! 2. A bar is as wide as the terminal leaves it room, so that it stays on one line.
//! 3. A bar is gone when its command ends, however it ends, so that errors stand on a line of their own.

use std::borrow::Cow;
use std::io::{self, IsTerminal};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use drumlin_bench::drive::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::interrupt;

/// How often a bar that is followed moves, and Ctrl-C is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Draws bars, or nothing.
#[derive(Clone, Copy)]
pub struct Watcher {
    shown: bool,
}

impl Watcher {
    /// Bars are shown on a terminal, unless `quiet`.
    pub fn new(quiet: bool) -> Self {
        Watcher { shown: !quiet && io::stderr().is_terminal() }
    }

    /// A bar over a known number of bytes.
    pub fn bytes(self, what: &'static str, total: u64) -> Bar {
        self.bar(what, Some(total), "{prefix:>9} [{wide_bar}] {bytes}/{total_bytes}, {eta} left {msg}")
    }

    /// A bar over a known number of records.
    pub fn records(self, what: &'static str, total: u64) -> Bar {
        self.bar(what, Some(total), "{prefix:>9} [{wide_bar}] {human_pos}/{human_len} records, {eta} left")
    }

    /// A bar over a known number of operations.
    pub fn operations(self, what: String, total: u64) -> Bar {
        self.bar(what, Some(total), "{prefix:>20} [{wide_bar}] {human_pos}/{human_len}, {eta} left")
    }

    /// A counter of things whose number is not known beforehand.
    pub fn counter(self, what: &'static str) -> Bar {
        let bar = self.bar(what, None, "{prefix:>9} {spinner} {human_pos} {msg} ({elapsed})");
        bar.0.enable_steady_tick(Duration::from_millis(200));
        bar
    }

    /// Shows how far something is until it is over, of so many operations if that is known; asks it to stop on Ctrl-C.
    pub fn follow(self, what: String, total: Option<u64>, progress: &Progress) {
        let bar = match total {
            Some(total) => self.operations(what, total),
            None => {
                let bar = self.counter("operations");
                bar.say(what);
                bar
            }
        };
        while !progress.over.load(Ordering::Acquire) {
            bar.at(progress.done.load(Ordering::Relaxed));
            progress.stop.store(interrupt::asked(), Ordering::Relaxed);
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Does some work, which is followed.
    pub fn followed<T>(self, what: String, total: Option<u64>, work: impl FnOnce(&Progress) -> T) -> T {
        Progress::followed(|progress| self.follow(what, total, progress), work)
    }

    fn bar(self, what: impl Into<Cow<'static, str>>, total: Option<u64>, template: &str) -> Bar {
        let target = if self.shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(total, target);
        let style = ProgressStyle::with_template(template).expect("the templates above are well formed");
        bar.set_style(style.progress_chars("=> "));
        bar.set_prefix(what);
        Bar(bar)
    }
}

/// A running bar; it disappears when dropped.
pub struct Bar(ProgressBar);

impl Bar {
    /// Sets how far the work is.
    pub fn at(&self, position: u64) {
        self.0.set_position(position);
    }

    /// Sets the total, where it becomes known late.
    pub fn total(&self, total: u64) {
        self.0.set_length(total);
    }

    /// Sets the words behind the figures.
    pub fn say(&self, text: String) {
        self.0.set_message(text);
    }

    /// Prints something on standard error, above the bar.
    pub fn aside(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
