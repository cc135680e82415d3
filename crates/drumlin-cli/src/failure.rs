//! What can go wrong in a command, and the exit code that says so.
//!
//! Place: returned by every command; turned into a message and an exit code by `main`.
//!
//! 1. Corruption exits 3, whichever command met it.
//! 2. Nothing is printed where the exit code says it all to the one who closed the pipe.

use std::io;
use std::path::{Path, PathBuf};

use drumlin::Error;

/// The result of a command.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// The store refused, or its bytes are wrong.
    Store(Error),
    /// A file that is not the store's could not be read.
    File {
        /// What was tried.
        op: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Standard output could not be written.
    Output(io::Error),
    /// Whoever read standard output has gone.
    OutputClosed,
    /// The work stopped half way, and the part done stays.
    Stopped {
        /// Why it stopped.
        cause: Box<Failure>,
        /// What is done and safe.
        safe: String,
    },
    /// The arguments make no sense together.
    Usage(String),
    /// The answer is no: absent, not swapped, bad input. The text says which.
    No(String),
    /// Stored bytes are wrong, and what and where has been printed already.
    Corrupt(String),
    /// A check of the tour failed.
    Check(String),
    /// Ctrl-C.
    Interrupted,
}

impl Failure {
    /// A failure to read a file of the user's.
    pub fn file(op: &'static str, path: &Path, source: io::Error) -> Self {
        Failure::File { op, path: path.to_path_buf(), source }
    }

    /// A failed write to standard output; a closed pipe is a case of its own.
    pub fn output(source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::Output(source),
        }
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::OutputClosed => 0,
            Failure::Stopped { cause, .. } => cause.exit_code(),
            Failure::Store(error) if error.is_corruption() => 3,
            Failure::Corrupt(_) => 3,
            Failure::Usage(_) => 2,
            Failure::Interrupted => 130,
            Failure::Store(_)
            | Failure::File { .. }
            | Failure::Output(_)
            | Failure::No(_)
            | Failure::Check(_) => 1,
        }
    }

    /// What to tell the user, if anything.
    pub fn message(&self) -> Option<String> {
        match self {
            Failure::OutputClosed => None,
            Failure::Stopped { cause, safe } => {
                let cause = cause.message().unwrap_or_else(|| "standard output was closed".into());
                Some(format!("{cause}; {safe}"))
            }
            Failure::Store(error) => Some(error.to_string()),
            Failure::File { op, path, source } => Some(format!("{op} {}: {source}", path.display())),
            Failure::Output(source) => Some(format!("write to standard output: {source}")),
            Failure::Check(text) => Some(format!("CHECK FAILED: {text}")),
            Failure::Interrupted => Some("interrupted".into()),
            Failure::Usage(text) | Failure::No(text) | Failure::Corrupt(text) => Some(text.clone()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Store(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corruption_exits_3_and_other_store_errors_1() {
        assert_eq!(Failure::from(Error::corruption("f", 4096, "bad checksum")).exit_code(), 3);
        let too_new = Error::Unsupported { path: "f".into(), why: "version 9".into() };
        assert_eq!(Failure::from(too_new).exit_code(), 1);
        assert_eq!(Failure::from(Error::NotFound { what: "store", name: "d".into() }).exit_code(), 1);
    }

    #[test]
    fn a_load_that_stopped_exits_as_its_cause_and_says_what_is_safe() {
        for (cause, code) in [
            (Failure::Interrupted, 130),
            (Failure::No("line 7: the key is empty".into()), 1),
            (Failure::from(Error::corruption("f", None, "rot")), 3),
        ] {
            let text = cause.message().unwrap();
            let stopped = Failure::Stopped { cause: Box::new(cause), safe: "5 records are durable".into() };
            assert_eq!(stopped.exit_code(), code);
            assert_eq!(stopped.message().unwrap(), format!("{text}; 5 records are durable"));
        }
    }

    #[test]
    fn a_closed_pipe_is_silent_and_a_full_device_is_not() {
        let closed = Failure::output(io::ErrorKind::BrokenPipe.into());
        assert_eq!((closed.exit_code(), closed.message()), (0, None));
        let full = Failure::output(io::ErrorKind::StorageFull.into());
        assert_eq!(full.exit_code(), 1);
        assert!(full.message().unwrap().contains("standard output"));
    }
}
