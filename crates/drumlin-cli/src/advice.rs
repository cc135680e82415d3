//! What to do about a failure, in a few words.
//!
//! Place: `report` puts it behind the message of each failure.
//!
//! 1. Advice is what the user can do now; where it is a command, it can be run as it stands.

use std::io::ErrorKind;
use std::path::Path;

use drumlin::Error;

use crate::args::{Args, Command};
use crate::failure::Failure;
use crate::output::{bytes, quoted};

/// What to do about `failure`; `None` where its message has said it, or nothing can be done.
pub fn advice(failure: &Failure, args: &Args) -> Option<String> {
    let db = || quoted(&args.db().display().to_string());
    Some(match failure {
        Failure::Stopped { cause, .. } => match (&**cause, advice(cause, args)) {
            (Failure::Input(_), _) => "mend the line, or pass over bad lines with --skip-bad".into(),
            (Failure::Interrupted, _) => "load the input again to have the rest".into(),
            (_, advice) => return advice,
        },
        Failure::AtClose { closing, .. } => return advice(closing, args),
        Failure::Store(error) => return store(error, args, &db()),
        Failure::File { source, .. } => return Some(file(source.kind())?.into()),
        Failure::Output(_) => "the answer was not printed whole".into(),
        Failure::Usage(_) => format!("see `drumlin {} --help`", args.command.name()),
        Failure::Corrupt(_) => "restore these files from a copy; what is not named is sound".into(),
        Failure::Check(_) => "this is a bug of Drumlin's: please report it".into(),
        Failure::Absent(_) => {
            let hex = if args.command.takes_hex_keys() { " --hex" } else { "" };
            let (db, keyspace) = (db(), quoted(args.keyspace()));
            format!("`drumlin --db {db} --keyspace {keyspace} scan{hex}` shows what is there")
        }
        Failure::OutputClosed
        | Failure::NotSwapped(_)
        | Failure::Input(_)
        | Failure::Refused(_)
        | Failure::Interrupted => return None,
    })
}

fn store(error: &Error, args: &Args, db: &str) -> Option<String> {
    Some(match error {
        Error::Locked { .. } => "wait until that process has ended, or end it, then try again".into(),
        Error::NotFound { what: "store", .. } => format!(
            "a store is a directory that `put` or `load` makes: name yours with --db DIR, or make one: \
             drumlin --db {db} put KEY VALUE"
        ),
        Error::NotFound { what: "keyspace", .. } => format!(
            "`drumlin --db {db} keyspaces` lists those there are, --keyspace NAME chooses one, and `put` and \
             `load` make new ones"
        ),
        Error::Corruption(_) => format!(
            "`drumlin --db {db} verify` names every place that is wrong; restore these files from a copy"
        ),
        Error::Unsupported { .. } => {
            "open it with the version of Drumlin that wrote it, or a newer one".into()
        }
        Error::Io { .. } if is_plain_file(args.db()) => {
            format!("{db} is a file, and a store is a directory: name another place with --db DIR")
        }
        Error::Io { source, .. }
            if source.kind() == ErrorKind::IsADirectory && matches!(args.command, Command::Inspect(_)) =>
        {
            "name one of its files".into()
        }
        Error::Io { source, .. } => file(source.kind())?.into(),
        Error::NoSpace { path, shortage: None } => room(path)?,
        _ => return None,
    })
}

/// How much room there is.
fn room(path: &Path) -> Option<String> {
    let directory = path.ancestors().skip(1).find(|ancestor| ancestor.is_dir())?;
    let found = rustix::fs::statvfs(directory).ok()?;
    let free = bytes(found.f_bavail.saturating_mul(found.f_frsize));
    Some(format!("{free} are free there"))
}

fn is_plain_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_dir())
}

fn file(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::NotFound => Some("check the path"),
        ErrorKind::PermissionDenied => Some("change its permissions, or run as a user who has them"),
        ErrorKind::IsADirectory => Some("name a file, or - for standard input"),
        ErrorKind::FileTooLarge => Some("raise the limit on the size of files (`ulimit -f`)"),
        ErrorKind::ReadOnlyFilesystem => Some("choose a place that can be written, with --db DIR"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn a_full_device_is_told_with_what_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let args = Args::try_parse_from(["drumlin", "put", "k", "v"]).unwrap();
        // The file, and the directory that it was to be in, are not there.
        let full = Error::NoSpace { path: dir.path().join("log").join("0000000001.log"), shortage: None };
        let advice = advice(&Failure::Store(full), &args).unwrap();
        assert!(advice.contains("iB are free there"), "{advice}");
    }
}
