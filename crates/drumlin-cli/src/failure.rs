//! What can go wrong in a command, and the exit code that says so.
//!
//! Place: returned by every command; `report` turns it into words, with the help of `advice`.
//!
//! 1. Corruption exits 3, whichever command met it.
//! 2. Nothing is printed where the exit code says it all to the one who closed the pipe.
//! 3. The kind is one word that programs may rely on; it is as stable as the exit code.

use std::io;
use std::path::{Path, PathBuf};

use drumlin::Error;

use crate::output;

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
    /// A load stopped half way, and what it had loaded stays.
    Stopped {
        /// Why it stopped.
        cause: Box<Failure>,
        /// Records that are safe.
        durable: u64,
    },
    /// The store turned out worse when it was closed than what the command had failed of.
    AtClose {
        /// What closing said.
        closing: Box<Failure>,
        /// The command's own failure.
        own: Box<Failure>,
    },
    /// The arguments make no sense, alone or together.
    Usage(String),
    /// The key is not there.
    Absent(String),
    /// The value was not the expected one.
    NotSwapped(String),
    /// What was to be loaded or put is none.
    Input(String),
    /// Something is in the way that the user has to decide about.
    Refused(String),
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

    /// What an engine under measurement said.
    pub fn of_engine(error: drumlin_bench::engine::Error) -> Self {
        match error.downcast::<Error>() {
            Ok(error) => Failure::Store(*error),
            Err(other) => Failure::Refused(other.to_string()),
        }
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
            Failure::AtClose { closing, .. } => closing.exit_code(),
            Failure::Store(error) if error.is_corruption() => 3,
            Failure::Corrupt(_) => 3,
            Failure::Usage(_) => 2,
            Failure::Interrupted => 130,
            Failure::Store(_)
            | Failure::File { .. }
            | Failure::Output(_)
            | Failure::Absent(_)
            | Failure::NotSwapped(_)
            | Failure::Input(_)
            | Failure::Refused(_)
            | Failure::Check(_) => 1,
        }
    }

    /// What went wrong, in one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Failure::Store(Error::Corruption(_)) | Failure::Corrupt(_) => "corruption",
            Failure::Store(Error::Locked { .. }) => "locked",
            Failure::Store(Error::NotFound { what: "store", .. }) => "no_store",
            Failure::Store(Error::NotFound { what: "keyspace", .. }) => "no_keyspace",
            Failure::Store(Error::NotFound { .. }) => "not_found",
            Failure::Store(Error::NoSpace { .. }) => "no_space",
            Failure::Store(Error::Unsupported { .. }) => "unsupported",
            Failure::Store(Error::InvalidArgument(_)) => "invalid",
            Failure::Store(Error::NoOrder { .. }) => "no_order",
            Failure::Store(Error::Io { .. }) | Failure::File { .. } => "io",
            Failure::Store(_) => "store",
            Failure::Output(_) | Failure::OutputClosed => "output",
            Failure::Stopped { cause, .. } => cause.kind(),
            Failure::AtClose { closing, .. } => closing.kind(),
            Failure::Usage(_) => "usage",
            Failure::Absent(_) => "absent",
            Failure::NotSwapped(_) => "not_swapped",
            Failure::Input(_) => "input",
            Failure::Refused(_) => "refused",
            Failure::Check(_) => "check",
            Failure::Interrupted => "interrupted",
        }
    }

    /// Records that are safe, if a load stopped half way.
    pub fn durable(&self) -> Option<u64> {
        match self {
            Failure::Stopped { durable, .. } => Some(*durable),
            Failure::AtClose { own, .. } => own.durable(),
            _ => None,
        }
    }

    /// What to tell the user, if anything.
    pub fn message(&self) -> Option<String> {
        match self {
            Failure::OutputClosed => None,
            Failure::Stopped { cause, durable } => {
                let cause = cause.message().unwrap_or_else(|| "standard output was closed".into());
                let verb = if *durable == 1 { "is" } else { "are" };
                Some(format!("{cause}; {} {verb} durable", output::plural(*durable, "record")))
            }
            Failure::AtClose { closing, own } => {
                let both = [closing.message(), own.message()];
                Some(both.into_iter().flatten().collect::<Vec<_>>().join("; "))
            }
            Failure::Store(Error::Locked { path }) => {
                Some(format!("the store at {} is in use by another process", path.display()))
            }
            Failure::Store(Error::NotFound { what: "store", name }) => {
                Some(format!("there is no store at {name}"))
            }
            Failure::Store(Error::NotFound { what, name }) => Some(format!("there is no {what} {name}")),
            Failure::Store(error) => Some(error.to_string()),
            Failure::File { op, path, source } => Some(format!("{op} {}: {source}", path.display())),
            Failure::Output(source) => Some(format!("write to standard output: {source}")),
            Failure::Check(text) => Some(format!("CHECK FAILED: {text}")),
            Failure::Interrupted => Some("interrupted".into()),
            Failure::Usage(text)
            | Failure::Absent(text)
            | Failure::NotSwapped(text)
            | Failure::Input(text)
            | Failure::Refused(text)
            | Failure::Corrupt(text) => Some(text.clone()),
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
            (Failure::Input("line 7: the key is empty".into()), 1),
            (Failure::from(Error::corruption("f", None, "rot")), 3),
        ] {
            let (text, kind) = (cause.message().unwrap(), cause.kind());
            let stopped = Failure::Stopped { cause: Box::new(cause), durable: 5 };
            assert_eq!((stopped.exit_code(), stopped.kind()), (code, kind));
            assert_eq!(stopped.message().unwrap(), format!("{text}; 5 records are durable"));
        }
        let stopped = Failure::Stopped { cause: Box::new(Failure::Interrupted), durable: 2 };
        let rot = Failure::from(Error::corruption("f", None, "rot"));
        let both = Failure::AtClose { closing: Box::new(rot), own: Box::new(stopped) };
        assert_eq!((both.exit_code(), both.kind(), both.durable()), (3, "corruption", Some(2)));
        assert_eq!(both.message().unwrap(), "corruption in f: rot; interrupted; 2 records are durable");
        let one = Failure::Stopped { cause: Box::new(Failure::Interrupted), durable: 1 };
        assert_eq!(one.message().unwrap(), "interrupted; 1 record is durable");
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
