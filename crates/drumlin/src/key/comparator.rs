//! The order of user keys: bytewise by default, custom by name.
//!
//! Place: given at keyspace creation; its name is stored in the manifest and checked at open.
//! Concurrency: shared by every thread; implementations are pure functions.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A total order on user keys.
///
/// It must be a pure function: the order decides where keys are stored, so one that changes
/// between runs loses keys. Keys that compare equal are the same key and must be the same bytes.
pub trait Comparator: Send + Sync + 'static {
    /// Stored with the keyspace and checked at open. Change it when the order changes.
    fn name(&self) -> &str;
    /// Compares two user keys.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;
    /// True only for the plain order of bytes: allows prefix tricks and `prefix` queries.
    fn is_bytewise(&self) -> bool {
        false
    }
}

/// A shared comparator.
pub type ComparatorRef = Arc<dyn Comparator>;

impl fmt::Debug for dyn Comparator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Comparator({})", self.name())
    }
}

/// The order of bytes, as `memcmp`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bytewise;

/// The name of the default comparator.
pub const BYTEWISE: &str = "drumlin.bytewise";

impl Comparator for Bytewise {
    fn name(&self) -> &str {
        BYTEWISE
    }
    #[inline]
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
    fn is_bytewise(&self) -> bool {
        true
    }
}

/// The default comparator.
pub fn bytewise() -> ComparatorRef {
    Arc::new(Bytewise)
}
