//! A span of keys: what a table may hold, what a plan touches, what lies below it.
//!
//! Place: `layout` compares tables by their spans; `compaction::retain` asks whether a key lies in
//! the spans of deeper levels. Calls nothing but the comparator.
//!
//! Invariants:
//! 1. Spans made by [`KeySpans::new`] are sorted by start and neither overlap nor touch.
//!
//! Concurrency: values. Tests: below, and through every test of `layout` and `retain`.

use std::cmp::Ordering;

use crate::key::Comparator;

/// The keys from `start` to `end`; `end` itself belongs to it unless `end_exclusive`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpan {
    /// First key.
    pub start: Vec<u8>,
    /// Last key, or the first key after it.
    pub end: Vec<u8>,
    /// True if `end` is the first key after the span (the end of a range tombstone).
    pub end_exclusive: bool,
}

impl KeySpan {
    /// True if every key of the span comes before `key`.
    pub fn is_before(&self, comparator: &dyn Comparator, key: &[u8]) -> bool {
        match comparator.compare(&self.end, key) {
            Ordering::Less => true,
            Ordering::Equal => self.end_exclusive,
            Ordering::Greater => false,
        }
    }

    /// True if `key` belongs to the span.
    pub fn contains(&self, comparator: &dyn Comparator, key: &[u8]) -> bool {
        comparator.compare(&self.start, key) != Ordering::Greater && !self.is_before(comparator, key)
    }

    /// True if some key belongs to both.
    pub fn overlaps(&self, comparator: &dyn Comparator, other: &KeySpan) -> bool {
        !self.is_before(comparator, &other.start) && !other.is_before(comparator, &self.start)
    }

    /// True if every key of `other` belongs to this span.
    #[cfg(test)]
    pub fn covers(&self, comparator: &dyn Comparator, other: &KeySpan) -> bool {
        comparator.compare(&self.start, &other.start) != Ordering::Greater
            && compare_ends(comparator, self, other) != Ordering::Less
    }

    /// Grows the span to the smallest that holds `other` too.
    pub fn extend(&mut self, comparator: &dyn Comparator, other: &KeySpan) {
        if comparator.compare(&other.start, &self.start) == Ordering::Less {
            self.start.clone_from(&other.start);
        }
        if compare_ends(comparator, self, other) == Ordering::Less {
            self.end.clone_from(&other.end);
            self.end_exclusive = other.end_exclusive;
        }
    }
}

/// Orders two spans by where they end.
fn compare_ends(comparator: &dyn Comparator, a: &KeySpan, b: &KeySpan) -> Ordering {
    comparator.compare(&a.end, &b.end).then_with(|| b.end_exclusive.cmp(&a.end_exclusive))
}

/// Disjoint spans in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySpans {
    spans: Vec<KeySpan>,
    /// True for every key there is; `spans` is empty then.
    everything: bool,
}

impl KeySpans {
    /// Every key there is.
    pub const EVERYTHING: KeySpans = KeySpans { spans: Vec::new(), everything: true };

    /// Joins spans that overlap or touch. O(n log n).
    pub fn new(comparator: &dyn Comparator, mut spans: Vec<KeySpan>) -> KeySpans {
        spans.sort_by(|a, b| comparator.compare(&a.start, &b.start));
        let mut joined: Vec<KeySpan> = Vec::with_capacity(spans.len());
        for span in spans {
            match joined.last_mut() {
                Some(last) if comparator.compare(&span.start, &last.end) != Ordering::Greater => {
                    last.extend(comparator, &span);
                }
                _ => joined.push(span),
            }
        }
        KeySpans { spans: joined, everything: false }
    }

    /// True if no key belongs to them.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty() && !self.everything
    }

    /// True if some key of [start, end) belongs to one of them. O(log n).
    pub fn overlaps_range(&self, comparator: &dyn Comparator, start: &[u8], end: &[u8]) -> bool {
        let span = self.spans.get(self.first_from(comparator, start));
        self.everything || span.is_some_and(|s| comparator.compare(&s.start, end) == Ordering::Less)
    }

    /// The number of the first span that does not end before `key`, for [`KeySpans::contains_next`].
    pub fn first_from(&self, comparator: &dyn Comparator, key: &[u8]) -> usize {
        self.spans.partition_point(|span| span.is_before(comparator, key))
    }

    /// True if `key` belongs to one of them. `at` is from `first_from` for this key or a smaller one, and is
    /// moved on to the first span that does not end before `key`.
    pub fn contains_next(&self, comparator: &dyn Comparator, at: &mut usize, key: &[u8]) -> bool {
        while self.spans.get(*at).is_some_and(|span| span.is_before(comparator, key)) {
            *at += 1;
        }
        self.everything || self.spans.get(*at).is_some_and(|span| span.contains(comparator, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Bytewise;

    fn span(start: u8, end: u8, end_exclusive: bool) -> KeySpan {
        KeySpan { start: vec![start], end: vec![end], end_exclusive }
    }

    fn all_spans() -> Vec<KeySpan> {
        let pairs = (0..5u8).flat_map(|s| (s..5).map(move |e| (s, e)));
        pairs.flat_map(|(s, e)| [span(s, e, false), span(s, e + 1, true)]).collect()
    }

    /// Keys k stand for the point k, which belongs to [s, e] or [s, e).
    fn holds(span: &KeySpan, key: u8) -> bool {
        span.start[0] <= key && if span.end_exclusive { key < span.end[0] } else { key <= span.end[0] }
    }

    #[test]
    fn overlap_and_containment_agree_with_single_keys() {
        for a in all_spans() {
            for key in 0..7 {
                assert_eq!(a.contains(&Bytewise, &[key]), holds(&a, key), "{a:?} {key}");
            }
            for b in all_spans() {
                let shared = (0..7).any(|k| holds(&a, k) && holds(&b, k));
                assert_eq!(a.overlaps(&Bytewise, &b), shared, "{a:?} {b:?}");
                let mut hull = a.clone();
                hull.extend(&Bytewise, &b);
                assert!(hull.covers(&Bytewise, &a) && hull.covers(&Bytewise, &b), "{a:?} {b:?}");
                if a.covers(&Bytewise, &b) {
                    assert!((0..7).all(|k| !holds(&b, k) || holds(&a, k)), "{a:?} {b:?}");
                    assert_eq!(hull, a);
                }
            }
        }
    }

    #[test]
    fn joined_spans_hold_the_same_keys_and_do_not_touch() {
        let spans = all_spans();
        for i in 0..spans.len() {
            for j in 0..spans.len() {
                let parts =
                    vec![spans[i].clone(), spans[j].clone(), spans[(i * 7 + j) % spans.len()].clone()];
                let joined = KeySpans::new(&Bytewise, parts.clone());
                for key in 0..7u8 {
                    let expected = parts.iter().any(|p| holds(p, key));
                    assert_eq!(joined.spans.iter().any(|p| holds(p, key)), expected);
                    assert_eq!(joined.contains_next(&Bytewise, &mut 0, &[key]), expected);
                    assert_eq!(
                        joined.overlaps_range(&Bytewise, &[key], &[key, 0]),
                        expected,
                        "{joined:?} {key}"
                    );
                }
                for pair in joined.spans.windows(2) {
                    assert!(pair[0].end < pair[1].start);
                }
            }
        }
    }
}
