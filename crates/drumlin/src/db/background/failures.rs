//! What failed in the background, and when it may be tried again.
//!
//! Place: part of the queue's state, under its lock; told of every job's end; asked before a job is taken, by writers
//! that are stopped, by whoever asked for work by hand, by `stats` and by `close`.
//!
//! Invariants:
//! 1. What failed hurts only itself: a flush holds back flushes of its keyspace, a compaction those that would read one
//!    of its inputs or write between its outputs. Everything else goes on.
//! 2. What failed is tried again after a while, twice as long each time up to a bound, and forgotten when it is done.
//! 3. The first corruption and the latest failure are kept for good, done since or not.
//! 4. A job that was cancelled, or whose keyspace was dropped, has not failed.
//!
//! Concurrency: a value under its owner's lock. Tests: below, `db::tests::starving`.

use std::time::Duration;

use crate::error::Error;
use crate::layout::{CompactionPlan, Running};
use crate::version::KeyspaceId;

/// How long what failed waits before it is tried again; twice as long each time.
const RETRY_FIRST: Duration = Duration::from_millis(200);
/// The longest wait of a flush: writers wait for it.
const RETRY_LAST_URGENT: Duration = Duration::from_secs(2);
/// The longest wait of anything else: a compaction that does not fit on the device writes until it is full each time.
const RETRY_LAST: Duration = Duration::from_secs(60);

/// What was to be done.
#[derive(Clone, Copy)]
pub(crate) enum Work<'a> {
    /// The oldest frozen generations of a keyspace.
    Flush,
    /// This.
    Compaction(&'a CompactionPlan),
}

/// A failure of background work, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct JobFailure {
    /// The keyspace it worked on.
    pub keyspace: String,
    /// `flush` or `compaction`.
    pub job: &'static str,
    /// What went wrong; for a corruption, with file and block.
    pub message: String,
    /// How many failures of this kind there were since the store was opened, this one included.
    pub count: u64,
}

/// Something that failed and was not done since.
struct Failure {
    keyspace: KeyspaceId,
    /// What a compaction read and wrote; `None`: a flush. No handles: a table that is replaced meanwhile can go.
    claim: Option<Running>,
    error: Error,
    /// Its number among all failures.
    number: u64,
    times: u32,
    not_before: Duration,
}

impl Failure {
    fn is(&self, keyspace: KeyspaceId, work: Work<'_>) -> bool {
        self.keyspace == keyspace
            && match (&self.claim, work) {
                (None, Work::Flush) => true,
                (Some(claim), Work::Compaction(plan)) => claim.shares(plan),
                _ => false,
            }
    }

    fn is_flush(&self) -> bool {
        self.claim.is_none()
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Failures {
    open: Vec<Failure>,
    /// Failures since open.
    count: u64,
    /// Of these, corruptions.
    corruptions: u64,
    first_corruption: Option<(JobFailure, Error)>,
    latest: Option<JobFailure>,
}

impl Failures {
    /// Notes that `work` failed at `now`.
    pub fn fail(
        &mut self,
        (keyspace, name): (KeyspaceId, &str),
        work: Work<'_>,
        error: &Error,
        now: Duration,
    ) {
        if matches!(error, Error::Closed { .. }) {
            return;
        }
        let before = self.open.iter().position(|f| f.is(keyspace, work)).map(|at| self.open.swap_remove(at));
        let times = before.map_or(1, |f| f.times + 1);
        self.count += 1;
        let claim = match work {
            Work::Flush => None,
            Work::Compaction(plan) => {
                let mut claim = Running::new();
                claim.begin(plan);
                Some(claim)
            }
        };
        let wait = back_off(claim.is_none(), times);
        self.tell(name, if claim.is_none() { "flush" } else { "compaction" }, error);
        self.open.push(Failure {
            keyspace,
            claim,
            error: error.clone(),
            number: self.count,
            times,
            not_before: now + wait,
        });
    }

    /// Notes a corruption that a compaction has met, and that held it up in nothing.
    pub fn met(&mut self, keyspace: &str, error: &Error) {
        self.count += 1;
        self.tell(keyspace, "compaction", error);
    }

    /// Keeps what the latest failure was, and the first corruption.
    fn tell(&mut self, keyspace: &str, job: &'static str, error: &Error) {
        let told =
            JobFailure { keyspace: keyspace.to_string(), job, message: error.to_string(), count: self.count };
        if error.is_corruption() {
            self.corruptions += 1;
            self.first_corruption.get_or_insert_with(|| (told.clone(), error.clone()));
        }
        self.latest = Some(told);
    }

    /// Notes that `work` was done.
    pub fn succeed(&mut self, keyspace: KeyspaceId, work: Work<'_>) {
        self.open.retain(|f| !f.is(keyspace, work));
    }

    /// Forgets what failed in keyspaces that are gone.
    pub fn keep_only(&mut self, lives: impl Fn(KeyspaceId) -> bool) {
        self.open.retain(|f| lives(f.keyspace));
    }

    /// True unless a flush of the keyspace failed and must wait.
    pub fn may_flush(&self, keyspace: KeyspaceId, now: Duration) -> bool {
        !self.open.iter().any(|f| f.keyspace == keyspace && f.is_flush() && f.not_before > now)
    }

    /// What must not be planned in the keyspace: what runs, and what failed and must wait.
    pub fn held(&self, keyspace: KeyspaceId, running: &Running, now: Duration) -> Running {
        let mut held = running.clone();
        let waiting = self.open.iter().filter(|f| f.keyspace == keyspace && f.not_before > now);
        waiting.filter_map(|f| f.claim.as_ref()).for_each(|claim| held.extend(claim));
        held
    }

    /// How long until something that failed may be tried again.
    pub fn next_due(&self, now: Duration) -> Option<Duration> {
        self.open.iter().filter(|f| f.not_before > now).map(|f| f.not_before - now).min()
    }

    /// Everything that failed in these keyspaces may be tried now.
    pub fn retry_now(&mut self, keyspace: impl Fn(KeyspaceId) -> bool) {
        self.open.iter_mut().filter(|f| keyspace(f.keyspace)).for_each(|f| f.not_before = Duration::ZERO);
    }

    /// Why flushes of the keyspace fail, if they do.
    pub fn of_flush(&self, keyspace: KeyspaceId) -> Option<&Error> {
        self.open.iter().find(|f| f.is_flush() && f.keyspace == keyspace).map(|f| &f.error)
    }

    /// Why some flush fails, if one does.
    pub fn of_any_flush(&self) -> Option<&Error> {
        self.open.iter().find(|f| f.is_flush()).map(|f| &f.error)
    }

    /// Failures so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// What failed after the first `count` failures and was not done since.
    pub fn since(&self, count: u64) -> impl Iterator<Item = (KeyspaceId, bool, &Error)> {
        self.open.iter().filter(move |f| f.number > count).map(|f| (f.keyspace, f.is_flush(), &f.error))
    }

    /// The first corruption met, with how many there were.
    pub fn first_corruption(&self) -> Option<JobFailure> {
        let (told, _) = self.first_corruption.as_ref()?;
        Some(JobFailure { count: self.corruptions, ..told.clone() })
    }

    /// The latest failure, with how many there were.
    pub fn latest(&self) -> Option<JobFailure> {
        self.latest.clone()
    }

    /// What whoever closes the store must hear: the first corruption; else what failed and was not done since, unless it
    /// was for want of space: writers hear of that, and it mends itself.
    pub fn verdict(&self) -> Option<Error> {
        let corruption = self.first_corruption.as_ref().map(|(_, error)| error);
        let undone = self.open.iter().filter(|f| !f.error.is_no_space()).max_by_key(|f| f.number);
        corruption.or_else(|| undone.map(|f| &f.error)).cloned()
    }
}

fn back_off(is_urgent: bool, times: u32) -> Duration {
    let last = if is_urgent { RETRY_LAST_URGENT } else { RETRY_LAST };
    RETRY_FIRST.saturating_mul(1 << (times - 1).min(20)).min(last)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::cache::BlockCache;
    use crate::env::MemFs;
    use crate::key::KeyHasher;
    use crate::layout::{KeySpan, Reason};
    use crate::options::KeyspaceOptions;
    use crate::table::{Shelf, TableHandle, TableMeta, TableOptions};

    const A: (KeyspaceId, &str) = (KeyspaceId(1), "a");
    const B: (KeyspaceId, &str) = (KeyspaceId(2), "b");

    fn error(what: &str) -> Error {
        Error::io("read", what, std::io::ErrorKind::Other.into())
    }

    fn plan() -> CompactionPlan {
        CompactionPlan {
            input_level: 0,
            output_level: 1,
            inputs: Vec::new(),
            span: KeySpan { start: Vec::new(), end: Vec::new(), end_exclusive: false },
            bottom: true,
            deeper: Arc::default(),
            below: Box::default(),
            pile: Box::default(),
            borders: Box::default(),
            cuts: Vec::new(),
            collected: Arc::default(),
            trivial_move: false,
            reason: Reason::Manual,
        }
    }

    fn failed_flush() -> Failures {
        let mut failures = Failures::default();
        failures.fail(A, Work::Flush, &error("x"), Duration::ZERO);
        failures
    }

    #[test]
    fn what_failed_waits_twice_as_long_each_time_up_to_a_bound_and_is_forgotten_when_done() {
        let mut failures = Failures::default();
        let mut now = Duration::from_secs(1000);
        let mut waits = Vec::new();
        for _ in 0..12 {
            assert!(failures.may_flush(A.0, now));
            failures.fail(A, Work::Flush, &error("x"), now);
            assert!(!failures.may_flush(A.0, now), "not at once");
            assert!(failures.may_flush(B.0, now), "another keyspace's may");
            let wait = failures.next_due(now).expect("one waits");
            waits.push(wait);
            now += wait;
        }
        assert_eq!(waits[0], RETRY_FIRST);
        assert!(waits.windows(2).all(|w| w[1] == (w[0] * 2).min(RETRY_LAST_URGENT)), "{waits:?}");
        failures.succeed(A.0, Work::Flush);
        assert!(failures.may_flush(A.0, now) && failures.next_due(now).is_none());
        assert!(failures.verdict().is_none(), "it was done");
        assert_eq!(failures.latest().expect("but is kept").count, 12);
    }

    #[test]
    fn a_stopped_writer_hears_of_flushes_only() {
        let mut failures = failed_flush();
        assert!(failures.of_any_flush().is_some() && failures.of_flush(B.0).is_none());
        failures.succeed(A.0, Work::Flush);
        assert!(failures.of_any_flush().is_none(), "only while it fails");
        failures.fail(A, Work::Compaction(&plan()), &Error::corruption("t", 7, "rot"), Duration::ZERO);
        assert!(failures.of_any_flush().is_none());
        assert!(failures.may_flush(A.0, Duration::ZERO), "nor is its flush held back");
    }

    /// Regression: a merge that did not fit on the device wrote until that was full every two seconds.
    #[test]
    fn a_compaction_that_does_not_fit_waits_long() {
        let full = Error::io("write", "x", std::io::ErrorKind::StorageFull.into());
        assert!(full.is_no_space());
        let shelf = Shelf::new(MemFs::new(), Arc::new(BlockCache::new(0)));
        let options = TableOptions::new(&KeyspaceOptions::default(), KeyHasher::new(1));
        let table = TableHandle::new(&shelf, "/tables".into(), TableMeta::default(), options);
        let plan = CompactionPlan { inputs: vec![(0, vec![table])], ..plan() };
        let mut failures = Failures::default();
        let mut now = Duration::from_secs(1000);
        for _ in 0..12 {
            failures.fail(A, Work::Compaction(&plan), &full, now);
            now += failures.next_due(now).expect("it waits");
        }
        failures.fail(A, Work::Compaction(&plan), &full, now);
        assert_eq!(failures.next_due(now), Some(RETRY_LAST));
    }

    #[test]
    fn the_first_corruption_is_kept_and_what_failed_after_it_does_not_hide_it() {
        let mut failures = failed_flush();
        failures.fail(A, Work::Flush, &Error::Closed { what: "the background job" }, Duration::ZERO);
        assert_eq!(failures.count(), 1, "a cancelled job did not fail");
        for block in [7, 8] {
            failures.fail(B, Work::Flush, &Error::corruption("t", block, "rot"), Duration::ZERO);
        }
        failures.succeed(B.0, Work::Flush);
        failures.fail(A, Work::Flush, &error("y"), Duration::ZERO);
        let first = failures.first_corruption().expect("kept");
        assert!(first.message.contains("byte 7") && first.keyspace == "b" && first.count == 2, "{first:?}");
        assert!(failures.verdict().is_some_and(|e| e.is_corruption()));
        assert!(failures.latest().expect("kept").message.contains('y'));
    }

    #[test]
    fn of_a_keyspace_that_is_gone_nothing_is_owed() {
        let mut failures = failed_flush();
        failures.keep_only(|id| id != A.0);
        assert!(failures.of_any_flush().is_none() && failures.verdict().is_none());
    }
}
