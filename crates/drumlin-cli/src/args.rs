//! The command line: what can be said, and the help that explains it.
//!
//! Place: parsed once by `main`, read by every command. What help says behind the options is in `help`.
//!
//! 1. Keys and values are bytes, so they are taken as `OsString`, never as text.
//! 2. A misuse that can be seen without opening a file is reported here, with exit code 2.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use drumlin::KeyspaceOptions;
use drumlin_bench::args::{Bench, Compress, Laid, LaidOut, Survives};
use drumlin_paper::args::Paper;

use crate::failure::{Failure, Result};
use crate::help;
use crate::keys::KeyForm;

/// The directory of the store when `--db` is not given.
const DB_DEFAULT: &str = "drumlin-db";
/// The directory of the tour's store when `--db` is not given.
const TOUR_DEFAULT: &str = "./drumlin-tour";
/// The keyspace when `--keyspace` is not given.
const KEYSPACE_DEFAULT: &str = "default";

/// A durable, concurrent, ordered key-value store.
#[derive(Debug, Parser)]
#[command(name = "drumlin", version, arg_required_else_help = true, after_help = help::PROGRAM)]
pub struct Args {
    /// Directory of the store [default: drumlin-db; for `tour`: ./drumlin-tour; for `bench`, `limits`, `paper`, `tune` and
    /// `simulate --real`: one that is removed again]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    db: Option<PathBuf>,

    /// Keyspace to work in [default: default; for `stats`, `shape`, `compact`: all]
    #[arg(long, global = true, value_name = "NAME")]
    keyspace: Option<String>,

    /// Print results as JSON
    #[arg(long, global = true)]
    pub json: bool,

    /// Show no progress bars (results and errors are always shown)
    #[arg(long, global = true)]
    pub quiet: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    /// The store's directory.
    pub fn db(&self) -> &Path {
        let default = match self.command {
            Command::Tour => TOUR_DEFAULT,
            _ => DB_DEFAULT,
        };
        self.db.as_deref().unwrap_or(Path::new(default))
    }

    /// The directory named on the command line, for commands that otherwise make one of their own.
    pub fn db_named(&self) -> Option<&Path> {
        self.db.as_deref()
    }

    /// The keyspace to work in.
    pub fn keyspace(&self) -> &str {
        self.keyspace.as_deref().unwrap_or(KEYSPACE_DEFAULT)
    }

    /// Refuses what cannot be said together, though each part can.
    pub fn check(&self) -> Result<()> {
        match &self.command {
            Command::Keyspaces
            | Command::Verify
            | Command::Inspect(_)
            | Command::Bench(_)
            | Command::Limits(_)
            | Command::Paper(_)
            | Command::Simulate(_)
            | Command::Tune(_)
            | Command::Tour
            | Command::Completions { .. }
                if self.keyspace.is_some() =>
            {
                let name = self.command.name();
                Err(Failure::Usage(format!(
                    "--keyspace does not go with {name}, which is not about one keyspace"
                )))
            }
            Command::Load(load)
                if load.no_header && matches!(load.format, InputFormat::Jsonl | InputFormat::Lines) =>
            {
                Err(Failure::Usage("--no-header is for tsv and csv: other formats have no header".into()))
            }
            _ => Ok(()),
        }
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
    #[command(after_help = help::LOAD)]
    Load(Load),
    /// Print the value of a key, and nothing else
    #[command(after_help = help::GET)]
    Get(Get),
    /// Set the value of a key
    #[command(after_help = help::PUT, alias = "set")]
    Put(Put),
    /// Remove a key
    #[command(after_help = help::DELETE, aliases = ["del", "rm"])]
    Delete(Delete),
    /// Set the value of a key if its value is the expected one (compare and swap)
    #[command(after_help = help::CAS)]
    Cas(Cas),
    /// Print the number of keys, of an interval too
    #[command(after_help = help::COUNT)]
    Count(Count),
    /// Estimate how many keys and bytes an interval holds, without reading it
    #[command(after_help = help::SIZE)]
    Size(Size),
    /// Print records, in the order of their keys if they have one
    #[command(after_help = help::SCAN)]
    Scan(Scan),
    /// Print the names of the keyspaces
    #[command(after_help = help::KEYSPACES)]
    Keyspaces,
    /// Print figures about the store: keyspaces, tables, log
    #[command(after_help = help::STATS)]
    Stats,
    /// Draw the tree: levels, tables and their sizes
    #[command(after_help = help::SHAPE)]
    Shape(Shape),
    /// Read every byte of the store and check every checksum
    #[command(after_help = help::VERIFY)]
    Verify,
    /// Take one file of a store apart: table, values, segment of the log, manifest
    #[command(subcommand, after_help = help::INSPECT)]
    Inspect(Inspect),
    /// Merge the tables of every level
    #[command(after_help = help::COMPACT)]
    Compact,
    /// Measure how fast the store is on this machine
    #[command(after_help = help::BENCH)]
    Bench(Box<Bench>),
    /// Measure what this machine can do at most
    #[command(after_help = help::LIMITS)]
    Limits(Limits),
    /// Measure the figures of the papers anew, and check what they claim
    #[command(after_help = help::PAPER)]
    Paper(Box<Paper>),
    /// Foretell what a layout of tables comes to, for billions of records, without a disk
    #[command(after_help = help::SIMULATE)]
    Simulate(Simulate),
    /// Find the options of a keyspace for a workload, by prediction and by trial
    #[command(after_help = help::TUNE)]
    Tune(Tune),
    /// Walk through the engine on real data, with checks, and leave the store to explore
    #[command(after_help = help::TOUR)]
    Tour,
    /// Print a completion script for a shell
    #[command(after_help = help::COMPLETIONS)]
    Completions {
        /// The shell
        shell: Shell,
    },
}

impl Command {
    /// Whether keys are given and printed in hexadecimal.
    pub fn takes_hex_keys(&self) -> bool {
        match self {
            Command::Get(get) => get.form.hex,
            Command::Put(put) => put.form.hex,
            Command::Delete(delete) => delete.form.hex,
            Command::Cas(cas) => cas.form.hex,
            Command::Count(count) => count.interval.form.hex,
            Command::Size(size) => size.interval.form.hex,
            Command::Scan(scan) => scan.interval.form.hex,
            Command::Inspect(inspect) => inspect.depth().form.hex,
            _ => false,
        }
    }

    /// Its name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Command::Load(_) => "load",
            Command::Get(_) => "get",
            Command::Put(_) => "put",
            Command::Delete(_) => "delete",
            Command::Cas(_) => "cas",
            Command::Count(_) => "count",
            Command::Size(_) => "size",
            Command::Scan(_) => "scan",
            Command::Keyspaces => "keyspaces",
            Command::Stats => "stats",
            Command::Shape(_) => "shape",
            Command::Verify => "verify",
            Command::Inspect(_) => "inspect",
            Command::Compact => "compact",
            Command::Bench(_) => "bench",
            Command::Limits(_) => "limits",
            Command::Paper(_) => "paper",
            Command::Simulate(_) => "simulate",
            Command::Tune(_) => "tune",
            Command::Tour => "tour",
            Command::Completions { .. } => "completions",
        }
    }
}

/// Arguments of `get`.
#[derive(Debug, clap::Args)]
pub struct Get {
    /// The key
    pub key: OsString,
    #[command(flatten)]
    pub form: KeyForm,
}

/// Arguments of `put`.
#[derive(Debug, clap::Args)]
pub struct Put {
    /// The key
    pub key: OsString,
    /// The value, or - for the bytes of standard input
    #[arg(allow_hyphen_values = true)]
    pub value: OsString,
    #[command(flatten)]
    pub form: KeyForm,
    #[command(flatten)]
    pub made: Made,
}

/// How a keyspace that is missing is made.
#[derive(Debug, Default, clap::Args)]
pub struct Made {
    /// The layout of its tables, if the keyspace is made now: trie is for many small records that need no order, and is for good
    /// [default: leveled]
    #[arg(long, value_enum)]
    pub layout: Option<Laid>,
}

impl Made {
    /// As the store takes it.
    pub fn options(&self) -> KeyspaceOptions {
        let Some(layout) = self.layout else { return KeyspaceOptions::default() };
        KeyspaceOptions { layout: layout.usual(), ..KeyspaceOptions::default() }
    }
}

/// Arguments of `delete`.
#[derive(Debug, clap::Args)]
pub struct Delete {
    /// The key
    pub key: OsString,
    #[command(flatten)]
    pub form: KeyForm,
}

/// Arguments of `load`.
#[derive(Debug, clap::Args)]
pub struct Load {
    /// The file to load, or - for standard input
    #[arg(value_hint = ValueHint::FilePath)]
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

    #[command(flatten)]
    pub made: Made,
}

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

impl InputFormat {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            InputFormat::Tsv => "tsv",
            InputFormat::Csv => "csv",
            InputFormat::Jsonl => "jsonl",
            InputFormat::Lines => "lines",
        }
    }
}

/// Arguments of `cas`.
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("expected").required(true)))]
pub struct Cas {
    /// The key
    pub key: OsString,
    /// The new value, or - for the bytes of standard input
    #[arg(allow_hyphen_values = true)]
    pub value: OsString,
    #[command(flatten)]
    pub form: KeyForm,
    /// Swap if this is the present value
    #[arg(long, value_name = "V", group = "expected", allow_hyphen_values = true)]
    pub expect: Option<OsString>,
    /// Swap if the key is absent
    #[arg(long, group = "expected")]
    pub absent: bool,
}

/// Arguments of `limits`.
#[derive(Debug, clap::Args)]
pub struct Limits {
    /// Measure these only
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Threads, for limits that depend on them: a number, or several with commas between; one thread is measured, too [default:
    /// as many as processors]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// How long each is measured
    #[arg(long, default_value_t = 0.5)]
    pub seconds: f64,
    /// Memory to measure in, and files, in MiB: far more than the processor's caches hold
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    pub size: usize,
}

/// Arguments of `simulate`.
#[derive(Debug, clap::Args)]
pub struct Simulate {
    /// Records to put
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000)]
    pub records: u64,
    /// Different keys [default: as many as records]
    #[arg(long, value_name = "N")]
    pub keys: Option<u64>,
    /// Bytes of a key
    #[arg(long, value_name = "BYTES", default_value_t = 16)]
    pub key_size: u64,
    /// Bytes of a value, as it is stored
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub value_size: u64,
    /// Keys come in order, not by chance
    #[arg(long)]
    pub ascending: bool,
    /// The store's memory, in MiB; a quarter of it is a memtable
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    pub memory: u64,
    /// How tables lie
    #[command(flatten)]
    pub laid: LaidOut,
    /// Tables at level 0 that start a merge (all but trie) [default: 4]
    #[arg(long, value_name = "N")]
    pub level0: Option<usize>,
    /// The target of level 1, in MiB (leveled) [default: 128]
    #[arg(long, value_name = "MIB")]
    pub level1: Option<u64>,
    /// Each level's target for each byte of the one above (leveled) [default: 10]
    #[arg(long, value_name = "N")]
    pub level_ratio: Option<u64>,
    /// Bytes after which a table is cut
    #[arg(long, value_name = "BYTES", default_value_t = 32 << 20)]
    pub table_size: u64,
    /// Bytes of a block
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    pub block_size: usize,
    /// Filter bits for a key
    #[arg(long, value_name = "BITS", default_value_t = 10.0)]
    pub bloom_bits: f64,
    /// Then fill a real store likewise, and show how far it is from what was foretold
    #[arg(long)]
    pub real: bool,
    /// Draw how it goes while puts go on into this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
}

impl Simulate {
    /// What is given and would change nothing.
    pub fn check(&self) -> Result<(), String> {
        self.laid.check()?;
        self.laid.check_levels(self.level0.is_some(), self.level1.is_some(), self.level_ratio.is_some())
    }
}

/// Arguments of `tune`.
#[derive(Debug, clap::Args)]
pub struct Tune {
    /// The workload: one that `drumlin bench --benchmarks list` names, or a file that describes it
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::FilePath)]
    pub workload: String,
    /// All memory of the store, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    pub memory: usize,
    /// Records
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub num: u64,
    /// Bytes of a key
    #[arg(long, alias = "key_size", value_name = "BYTES", default_value_t = 16)]
    pub key_size: usize,
    /// Bytes of a value
    #[arg(long, alias = "value_size", value_name = "BYTES", default_value_t = 100)]
    pub value_size: usize,
    /// To what values can be compressed, as a part of their bytes
    #[arg(long, alias = "compression_ratio", value_name = "PART", default_value_t = 0.5)]
    pub compression_ratio: f64,
    /// Clients [default: as many as processors]
    #[arg(long, value_name = "N")]
    pub threads: Option<u64>,
    /// What a write survives
    #[arg(long, value_enum, default_value = "process")]
    pub durability: Survives,
    /// How blocks are compressed
    #[arg(long, value_enum, default_value = "lz4")]
    pub compression: Compress,
    /// How long it may take, about, and longer where one store takes longer
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    pub minutes: f64,
    /// No order is needed: tries are candidates, too (not for workloads that scan)
    #[arg(long)]
    pub unordered: bool,
    /// Then measure a grid of 18 candidates (22 with --unordered) at full size, too, this long each, and the best of it again, to see how near to its best the choice is
    #[arg(long, value_name = "SECONDS")]
    pub grid: Option<f64>,
    /// Draw what reads cost beside what writes cost, of all candidates, into this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub seed: u64,
}

/// Arguments of `shape`.
#[derive(Debug, clap::Args)]
pub struct Shape {
    /// Draw a picture with each table into this file (- for standard output)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
}

/// What `inspect` takes apart.
#[derive(Debug, Subcommand)]
pub enum Inspect {
    /// A table: footer, properties, index, filter, range deletes, blocks
    #[command(after_help = help::INSPECT_TABLE)]
    Table {
        /// The file, NUMBER-HASH.tbl
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Show each block
        #[arg(long)]
        blocks: bool,
        #[command(flatten)]
        depth: Depth,
    },
    /// A file of values apart from their keys: its records
    #[command(after_help = help::INSPECT_VALUES)]
    Values {
        /// The file, NUMBER-HASH.val
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        #[command(flatten)]
        depth: Depth,
    },
    /// A segment of the log: header, records, marks, where it ends and why
    #[command(after_help = help::INSPECT_LOG)]
    Log {
        /// The file, log/NUMBER.log
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        #[command(flatten)]
        depth: Depth,
    },
    /// A manifest: its edits in order, and the state that they lead to
    #[command(after_help = help::INSPECT_MANIFEST)]
    Manifest {
        /// The file, MANIFEST-NUMBER
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        #[command(flatten)]
        depth: Depth,
    },
}

impl Inspect {
    /// How deep to go.
    pub fn depth(&self) -> &Depth {
        match self {
            Inspect::Table { depth, .. }
            | Inspect::Values { depth, .. }
            | Inspect::Log { depth, .. }
            | Inspect::Manifest { depth, .. } => depth,
        }
    }
}

/// How deep `inspect` goes.
#[derive(Debug, clap::Args)]
pub struct Depth {
    /// Show each record: of a table its versions, of a log its writes and marks, of a manifest's snapshot its tables
    #[arg(long)]
    pub records: bool,
    /// Show at most this many blocks and records
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    #[command(flatten)]
    pub form: KeyForm,
}

/// An interval of keys.
#[derive(Debug, clap::Args)]
pub struct Interval {
    /// First key, inclusive (also with --reverse)
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub from: Option<OsString>,
    /// End of the interval, exclusive (also with --reverse)
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub to: Option<OsString>,
    /// Only keys that begin so
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub prefix: Option<OsString>,
    #[command(flatten)]
    pub form: KeyForm,
}

impl Interval {
    /// True if no key is left out: then keys need no order.
    pub fn is_everything(&self) -> bool {
        self.from.is_none() && self.to.is_none() && self.prefix.is_none()
    }
}

/// Arguments of `count`.
#[derive(Debug, clap::Args)]
pub struct Count {
    #[command(flatten)]
    pub interval: Interval,
}

/// Arguments of `size`.
#[derive(Debug, clap::Args)]
pub struct Size {
    #[command(flatten)]
    pub interval: Interval,
}

/// Arguments of `scan`.
#[derive(Debug, clap::Args)]
pub struct Scan {
    #[command(flatten)]
    pub interval: Interval,
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
    fn every_command_knows_its_name_and_shows_an_example() {
        for command in Args::command().get_subcommands() {
            let name = command.get_name();
            let line = match name {
                "load" => &["load", "-", "--format", "lines"][..],
                "get" | "delete" => &[name, "k"],
                "put" => &["put", "k", "v"],
                "cas" => &["cas", "k", "--absent", "v"],
                "completions" => &["completions", "bash"],
                "inspect" => &["inspect", "table", "00000001-00.tbl"],
                "paper" => &["paper", "flodb"],
                "tune" => &["tune", "--workload", "ycsba"],
                _ => &[name],
            };
            assert_eq!(parse(line).unwrap().command.name(), name);
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Example") && help.contains("drumlin "), "{name}");
        }
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
        let Command::Put(put) = parse(&["put", "k", "-v"]).unwrap().command else { panic!() };
        assert_eq!(put.value, "-v");
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

    #[test]
    fn what_would_be_ignored_is_misuse() {
        for line in [
            &["--keyspace", "k", "keyspaces"][..],
            &["verify", "--keyspace", "k"],
            &["inspect", "table", "f", "--keyspace", "k"],
            &["tour", "--keyspace", "k"],
            &["completions", "bash", "--keyspace", "k"],
            &["bench", "--keyspace", "k"],
            &["limits", "--keyspace", "k"],
            &["load", "f", "--format", "lines", "--no-header"],
            &["load", "f", "--format", "jsonl", "--key", "id", "--no-header"],
        ] {
            assert!(matches!(parse(line).unwrap().check(), Err(Failure::Usage(_))), "{line:?}");
        }
        for line in [
            &["verify"][..],
            &["--keyspace", "k", "stats"],
            &["--keyspace", "k", "shape"],
            &["--keyspace", "k", "compact"],
            &["load", "f", "--format", "csv", "--key", "1", "--no-header"],
        ] {
            assert!(parse(line).unwrap().check().is_ok(), "{line:?}");
        }
    }

    #[test]
    fn formats_know_their_names() {
        for format in InputFormat::value_variants() {
            assert_eq!(format.to_possible_value().unwrap().get_name(), format.name());
        }
    }
}
