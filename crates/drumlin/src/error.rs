//! What can go wrong, sorted by what the caller can do about it.
//!
//! Place: of the lowest layer, beside `env` and `sync`, which use it too; every layer returns [`Result`]. Imports nothing
//! of this crate.
//! Errors are `Clone + Send + Sync + 'static`, so that one failure can be told to every waiter.
//! Each message names the thing (file, block, key) and what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of every fallible call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation. Retrying may help once its cause is gone.
    #[error("{op} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb phrase: "open", "sync".
        op: &'static str,
        /// The file or directory concerned.
        path: PathBuf,
        /// The system's own error.
        source: Arc<io::Error>,
    },
    /// Stored bytes are not what was written. The rest of the store stays readable; run `verify`.
    #[error("{0}")]
    Corruption(Corruption),
    /// The device is full. Nothing is lost; writes resume by themselves once space is free.
    #[error("no space left on the device for {}: {}", path.display(), way_out(shortage.as_ref()))]
    NoSpace {
        /// The file that could not grow.
        path: PathBuf,
        /// How much it lacks, where that is known.
        shortage: Option<Shortage>,
    },
    /// The store stopped taking writes after a failure that retrying cannot mend
    /// (a failed sync, a failed manifest write). Gets go on; what has to wait for writes in
    /// flight, such as a snapshot, may not. Reopen to write again.
    #[error("the store is read-only since an earlier failure: {why}; reopen it after mending the cause")]
    Poisoned {
        /// The first failure.
        why: String,
    },
    /// The store was opened read-only, and this operation writes.
    #[error("the store is open read-only: {op} needs a writable open")]
    ReadOnly {
        /// The refused operation.
        op: &'static str,
    },
    /// Another process (or another handle in this one) holds the store.
    #[error("the store at {} is in use by another process or handle: close it first", path.display())]
    Locked {
        /// The store's directory.
        path: PathBuf,
    },
    /// There is no store or keyspace of this name.
    #[error("{what} not found: {name}")]
    NotFound {
        /// "store" or "keyspace".
        what: &'static str,
        /// The name asked for.
        name: String,
    },
    /// Written by a newer version of Drumlin, or with a feature this build lacks.
    #[error("{} cannot be read by this build: {why}", path.display())]
    Unsupported {
        /// The file concerned.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// An argument or option is outside its limits; the message says which and what is allowed.
    #[error("{0}")]
    InvalidArgument(String),
    /// The operation needs an order of keys, which the keyspace does not have: its layout is
    /// [`Layout::Trie`](crate::Layout::Trie).
    #[error(
        "{op} needs an order of keys, which keyspace {keyspace} does not have: its layout is a trie; use `iter`, or a keyspace of another layout"
    )]
    NoOrder {
        /// The refused operation.
        op: &'static str,
        /// The keyspace.
        keyspace: String,
    },
    /// The snapshot was forgotten for longer than its expiry and has been released.
    #[error("the snapshot expired: take a new one, or raise `snapshot_expiry`")]
    SnapshotExpired,
    /// The store is closed, or the keyspace was dropped.
    #[error("{what} is closed")]
    Closed {
        /// "store" or "keyspace"; "the background job" if a compaction asked for was cut off by the store's close.
        what: &'static str,
    },
}

/// The message: it is what a program shows whose `main` returns an error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a device lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// What for.
    pub purpose: Purpose,
    /// Bytes that this takes, at most.
    pub needed: u64,
    /// Bytes that are free, if the system tells.
    pub free: Option<u64>,
}

/// What space is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To open the store for writing.
    Open,
    /// For the log to grow, and for the tables that it becomes.
    Grow,
}

fn way_out(shortage: Option<&Shortage>) -> String {
    let Some(&Shortage { purpose, needed, free }) = shortage else {
        return "free some, writes then resume by themselves".into();
    };
    let free = free.map_or_else(|| "not known".into(), |bytes| format!("{bytes} bytes"));
    match purpose {
        Purpose::Open => format!(
            "opening the store for writing needs up to {needed} bytes (free: {free}); free some, or open it read-only, \
             which needs none"
        ),
        Purpose::Grow => format!(
            "the log needs {needed} bytes to grow and to become tables (free: {free}); free some, writes then resume by \
             themselves"
        ),
    }
}

/// Where stored bytes are wrong, and how that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The file.
    pub path: PathBuf,
    /// Byte offset of the block, record or field in the file, if known.
    pub offset: Option<u64>,
    /// What was expected and what was found.
    pub what: String,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "corruption in {}", self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl Error {
    /// Wraps a system error; a full device becomes [`Error::NoSpace`].
    pub fn io(op: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::NoSpace { path, shortage: None }
            }
            _ => Error::Io { op, path, source: Arc::new(source) },
        }
    }

    /// Wrong bytes in `path` at `offset`.
    pub fn corruption(
        path: impl AsRef<Path>,
        offset: impl Into<Option<u64>>,
        what: impl Into<String>,
    ) -> Self {
        Error::Corruption(Corruption {
            path: path.as_ref().to_path_buf(),
            offset: offset.into(),
            what: what.into(),
        })
    }

    /// An argument outside its limits.
    pub fn invalid(what: impl Into<String>) -> Self {
        Error::InvalidArgument(what.into())
    }

    /// True for [`Error::Corruption`].
    pub fn is_corruption(&self) -> bool {
        matches!(self, Error::Corruption(_))
    }

    /// True if freeing space on the device mends it.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::NoSpace { .. })
    }

    /// True if the system said that the file or directory does not exist.
    pub fn is_missing_file(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}
