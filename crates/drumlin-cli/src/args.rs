//! The command line: what can be said, and the help that explains it.
//!
//! Place: parsed once by `main`, read by every command.
//!
//! 1. Keys and values are bytes, so they are taken as `OsString`, never as text.
//! 2. A misuse that can be seen without opening a file is reported here, with exit code 2.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// The directory of the store when `--db` is not given.
const DB_DEFAULT: &str = "drumlin-db";
/// The directory of the tour's store when `--db` is not given.
const TOUR_DEFAULT: &str = "./drumlin-tour";
/// The keyspace when `--keyspace` is not given.
const KEYSPACE_DEFAULT: &str = "default";

/// A durable, concurrent, ordered key-value store.
#[derive(Debug, Parser)]
#[command(name = "drumlin", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Args {
    /// Directory of the store [default: drumlin-db; for `tour`: ./drumlin-tour]
    #[arg(long, global = true, value_name = "DIR")]
    db: Option<PathBuf>,

    /// Keyspace to work in [default: default]
    #[arg(long, global = true, value_name = "NAME")]
    keyspace: Option<String>,

    /// Print results as JSON
    #[arg(long, global = true)]
    pub json: bool,

    /// Show no progress (errors are always shown)
    #[arg(long, global = true)]
    pub quiet: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed, absent or not swapped; 2 wrong usage; \
3 stored bytes are wrong; 130 interrupted.";

impl Args {
    /// The store's directory.
    pub fn db(&self) -> &Path {
        let default = match self.command {
            Command::Tour => TOUR_DEFAULT,
            _ => DB_DEFAULT,
        };
        self.db.as_deref().unwrap_or(Path::new(default))
    }

    /// The keyspace to work in.
    pub fn keyspace(&self) -> &str {
        self.keyspace.as_deref().unwrap_or(KEYSPACE_DEFAULT)
    }

    /// The keyspace named on the command line, for commands that otherwise mean the whole store.
    pub fn keyspace_named(&self) -> Option<&str> {
        self.keyspace.as_deref()
    }
}

/// One command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load records from a file, in file order
    Load(Load),
    /// Print the value of a key, and nothing else
    Get {
        /// The key
        key: OsString,
    },
    /// Set the value of a key
    Put {
        /// The key
        key: OsString,
        /// The value
        #[arg(allow_hyphen_values = true)]
        value: OsString,
    },
    /// Remove a key
    Delete {
        /// The key
        key: OsString,
    },
    /// Set the value of a key if its value is the expected one (compare and swap)
    Cas(Cas),
    /// Print the number of keys
    Count,
    /// Print records in key order
    Scan(Scan),
    /// Print the names of the keyspaces
    Keyspaces,
    /// Print figures about the store: memory, log, tables, work done
    Stats,
    /// Draw the tree: levels, tables and their sizes
    Shape,
    /// Read every byte of the store and check every checksum
    Verify,
    /// Merge the tables of every level
    Compact,
    /// Walk through the engine on real data, with checks, and leave the store to explore
    Tour,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Arguments of `load`.
#[derive(Debug, clap::Args)]
#[command(after_help = LOAD_HELP)]
pub struct Load {
    /// The file to load, or - for standard input
    pub file: PathBuf,

    /// How the file is written
    #[arg(long, value_enum)]
    pub format: InputFormat,

    /// The column that becomes the key: a name of the header line, or a number from 1 (a name
    /// wins); in jsonl, a field of the object. Not used with lines
    #[arg(long, value_name = "COLUMN", required_if_eq_any([("format", "tsv"), ("format", "csv"), ("format", "jsonl")]))]
    pub key: Option<OsString>,

    /// The first line is a record, not the names of the columns (tsv and csv)
    #[arg(long)]
    pub no_header: bool,

    /// Skip bad lines and count them, instead of stopping at the first
    #[arg(long)]
    pub skip_bad: bool,
}

const LOAD_HELP: &str = "\
The value of a record is its whole line (in jsonl, the JSON object), byte for byte, without the line \
end. The first line of the file decides what a line end is: LF, or CR LF. In csv, a quoted field may \
span lines.

A line is bad if it is blank, if its key is empty or missing, or if it is malformed; so is a csv record with \
another number of fields than the header, or (with --no-header) than the first good record. The first bad line \
stops the load, unless --skip-bad is given; the records before it stay. A bad csv record is one bad line: the \
next line is read anew, so a stray quote costs no more than its own line.

A byte order mark at the beginning is dropped.

With --json, {\"durable\":N} lines tell while loading that the first N records survive a kill.";

/// How a file to load is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InputFormat {
    /// Fields apart by tabs; no quoting
    Tsv,
    /// Fields apart by commas; quoting as in RFC 4180
    Csv,
    /// One JSON object a line
    Jsonl,
    /// The line is the key, the value is empty
    Lines,
}

/// Arguments of `cas`.
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("expected").required(true)))]
pub struct Cas {
    /// The key
    pub key: OsString,
    /// The new value
    #[arg(allow_hyphen_values = true)]
    pub value: OsString,
    /// Swap if this is the present value
    #[arg(long, value_name = "V", group = "expected", allow_hyphen_values = true)]
    pub expect: Option<OsString>,
    /// Swap if the key is absent
    #[arg(long, group = "expected")]
    pub absent: bool,
}

/// Arguments of `scan`.
#[derive(Debug, clap::Args)]
pub struct Scan {
    /// First key, inclusive (also with --reverse)
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub from: Option<OsString>,
    /// End of the interval, exclusive (also with --reverse)
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub to: Option<OsString>,
    /// Only keys that begin so
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub prefix: Option<OsString>,
    /// At most this many records
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// From the largest key down
    #[arg(long)]
    pub reverse: bool,
    /// Keys without values
    #[arg(long)]
    pub keys_only: bool,
    /// How records are printed [default: raw; with --json: jsonl]
    #[arg(long, value_enum)]
    pub format: Option<OutputFormat>,
}

/// How records are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Key, tab, value, line end: the bytes as they are
    Raw,
    /// One JSON object a line; bytes that are not text as `key_hex` and `value_hex`
    Jsonl,
}

/// The bytes of an argument, exactly as given.
pub fn bytes(argument: &OsStr) -> &[u8] {
    argument.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    fn parse(line: &[&str]) -> Result<Args, ErrorKind> {
        Args::try_parse_from(std::iter::once("drumlin").chain(line.iter().copied())).map_err(|e| e.kind())
    }

    #[test]
    fn definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn global_options_stand_before_or_after_the_command() {
        for line in [
            &["--db", "d", "--keyspace", "k", "--json", "--quiet", "count"][..],
            &["count", "--db", "d", "--keyspace", "k", "--json", "--quiet"][..],
        ] {
            let args = parse(line).unwrap();
            assert_eq!(args.db(), Path::new("d"));
            assert_eq!(args.keyspace(), "k");
            assert!(args.json && args.quiet);
        }
    }

    #[test]
    fn tour_has_a_directory_of_its_own() {
        assert_eq!(parse(&["tour"]).unwrap().db(), Path::new("./drumlin-tour"));
        assert_ne!(parse(&["count"]).unwrap().db(), parse(&["tour"]).unwrap().db());
    }

    #[test]
    fn cas_takes_exactly_one_expectation() {
        assert!(parse(&["cas", "k", "--expect", "a", "b"]).is_ok());
        assert!(parse(&["cas", "k", "b", "--expect", "a"]).is_ok());
        assert!(parse(&["cas", "k", "--absent", "b"]).is_ok());
        assert_eq!(parse(&["cas", "k", "b"]).unwrap_err(), ErrorKind::MissingRequiredArgument);
        assert_eq!(
            parse(&["cas", "k", "--absent", "--expect", "a", "b"]).unwrap_err(),
            ErrorKind::ArgumentConflict
        );
    }

    #[test]
    fn values_may_begin_with_a_hyphen() {
        let Command::Put { value, .. } = parse(&["put", "k", "-v"]).unwrap().command else { panic!() };
        assert_eq!(value, "-v");
        let Command::Cas(cas) = parse(&["cas", "k", "--expect", "-1", "-2"]).unwrap().command else {
            panic!()
        };
        assert_eq!((cas.expect.unwrap(), cas.value), ("-1".into(), "-2".into()));
        let args = parse(&["put", "k", "v", "--json"]).unwrap();
        assert!(args.json);
    }

    #[test]
    fn load_needs_a_key_column_but_for_lines() {
        for format in ["tsv", "csv", "jsonl"] {
            assert_eq!(
                parse(&["load", "f", "--format", format]).unwrap_err(),
                ErrorKind::MissingRequiredArgument
            );
            assert!(parse(&["load", "-", "--format", format, "--key", "id"]).is_ok());
        }
        assert!(parse(&["load", "f", "--format", "lines"]).is_ok());
        assert!(parse(&["load", "f", "--format", "lines", "--key", "1"]).is_ok());
        assert_eq!(parse(&["load", "f", "--key", "1"]).unwrap_err(), ErrorKind::MissingRequiredArgument);
    }
}
