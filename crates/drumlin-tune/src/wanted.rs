//! What is wanted: a workload, how large it is, and what memory it may have.
//!
//! Place: made from the command line; a workload is one of the bench's by its name, or is read from a file.
//!
//! A file is JSON:
//! ```json
//! {"mix": {"put": 0.3, "get": 0.6, "get absent": 0.05, "scan": 0.05}, "keys": "zipfian", "scan": 20, "begins": "full"}
//! ```
//! `mix` gives shares, which need not add up to one, by the names that the bench's reports have; `keys` is `uniform` (which it is
//! if nothing is said), `zipfian`, `latest` or `sequence`; `scan` is how many records a scan reads, 10 if nothing is said; `begins`
//! is `full` (if nothing is said), `half` or `empty`.

use std::collections::BTreeMap;
use std::path::Path;

use drumlin::Compression;
use drumlin_bench::keys::Choice;
use drumlin_bench::store::Settings;
use drumlin_bench::workload::{Begins, Kind, Length, Workload};
use serde::Deserialize;

/// See the module.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What is done.
    pub workload: &'static Workload,
    /// Records that there are.
    pub records: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// To what a value could be compressed, as a part of its bytes.
    pub compression_ratio: f64,
    /// Clients.
    pub threads: u64,
    /// Processors that clients and background share.
    pub processors: usize,
    /// All that is not tuned: memory, durability, compression, threads.
    pub fixed: Settings,
    /// Order is not needed: tries are among the candidates.
    pub unordered: bool,
    /// Seed of all random numbers.
    pub seed: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    mix: BTreeMap<String, f64>,
    #[serde(default)]
    keys: Keys,
    #[serde(default = "scan_length")]
    scan: usize,
    #[serde(default)]
    begins: From,
}

fn scan_length() -> usize {
    SCAN_LENGTH
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum Keys {
    #[default]
    Uniform,
    Zipfian,
    Latest,
    Sequence,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum From {
    Empty,
    Half,
    #[default]
    Full,
}

/// Kinds of operations that a workload in a file may have.
const KINDS: [Kind; 8] = [
    Kind::Put,
    Kind::Insert,
    Kind::Get,
    Kind::GetAbsent,
    Kind::Scan,
    Kind::Update,
    Kind::PutIfAbsent,
    Kind::Delete,
];

/// The name of one that was read from a file.
const GIVEN: &str = "given";

/// Records that a scan reads if nothing is said.
pub const SCAN_LENGTH: usize = 10;

/// What is wrong with doing this workload without an order, if anything.
pub fn check_unordered(workload: &Workload) -> Result<(), String> {
    let scans = |(kind, share): &&(Kind, f64)| *share > 0.0 && kind.needs_order();
    let Some((kind, _)) = workload.mix.iter().find(scans) else { return Ok(()) };
    Err(format!(
        "the workload {} has operations that need an order ({}): --unordered is for those that get and put single keys",
        workload.name,
        kind.name()
    ))
}

/// The workload of this name, or of the file at this path; or what is wrong with it.
pub fn workload(name: &str) -> Result<&'static Workload, String> {
    if let Some(workload) = Workload::named(name) {
        return match workload.opens {
            Some(_) => Err(format!("{name} only opens a store: there is nothing to tune")),
            None if workload.is_of_device() => {
                Err(format!("{name} reads past the store: there is nothing to tune"))
            }
            None => Ok(workload),
        };
    }
    let text = std::fs::read_to_string(Path::new(name)).map_err(|error| {
        format!(
            "{name} is no workload (`drumlin bench --benchmarks list` names them), and cannot be read as a file: {error}"
        )
    })?;
    parsed(&text).map_err(|why| format!("{name}: {why}"))
}

fn parsed(text: &str) -> Result<&'static Workload, String> {
    let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let all: f64 = file.mix.values().sum();
    if !(all > 0.0 && file.mix.values().all(|share| *share >= 0.0)) {
        return Err("the shares of `mix` must be positive".into());
    }
    let mut mix = Vec::new();
    for (name, share) in &file.mix {
        let kind = KINDS.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let names: Vec<&str> = KINDS.iter().map(|kind| kind.name()).collect();
            format!("`mix` has \"{name}\", but may have {}", names.join(", "))
        })?;
        mix.push((kind, share / all));
    }
    // One a process, for as long as it runs.
    Ok(Box::leak(Box::new(Workload {
        name: GIVEN,
        what: "as its file says",
        begins: match file.begins {
            From::Empty => Begins::Empty,
            From::Half => Begins::Half,
            From::Full => Begins::Full,
        },
        keys: match file.keys {
            Keys::Uniform => Choice::Uniform,
            Keys::Zipfian => Choice::Zipfian(0.99),
            Keys::Latest => Choice::Latest(0.99),
            Keys::Sequence => Choice::Sequence,
        },
        mix: Box::leak(mix.into_boxed_slice()),
        beside_writer: false,
        scans: Length::Exactly(file.scan),
        opens: None,
    })))
}

impl Wanted {
    /// The same, so many times as large, memory too.
    pub fn scaled(&self, by: f64) -> Wanted {
        let mut scaled = self.clone();
        scaled.records = ((self.records as f64 * by) as u64).max(1000);
        scaled.fixed.memory_bytes =
            ((self.fixed.memory_bytes as f64 * by) as usize).max(drumlin::Options::MEMORY_BYTES_MIN);
        scaled
    }

    /// True if the workload was read from a file: the bench does not know it.
    pub fn is_given(&self) -> bool {
        self.workload.name == GIVEN
    }

    /// Bytes of all records.
    pub fn bytes(&self) -> f64 {
        self.records as f64 * (self.key_bytes + self.value_bytes) as f64
    }

    /// Bytes of a value in a table.
    pub fn stored_value_bytes(&self) -> u64 {
        match self.fixed.compression {
            Compression::None => self.value_bytes as u64,
            _ => (self.value_bytes as f64 * self.compression_ratio).ceil() as u64,
        }
    }

    /// The share of operations that are one of these.
    pub fn share(&self, of: impl Fn(Kind) -> bool) -> f64 {
        self.workload.mix.iter().filter(|(kind, _)| of(*kind)).map(|(_, share)| share).sum()
    }

    /// Records that a scan reads, in the mean.
    pub fn scan_length(&self) -> f64 {
        match self.workload.scans {
            Length::Asked => SCAN_LENGTH as f64,
            Length::Exactly(length) => length as f64,
            Length::Between(least, most) => (least + most) as f64 / 2.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scans_needs_an_order() {
        let check =
            |workload: Result<&'static Workload, String>| check_unordered(workload.expect("it is known"));
        for name in ["ycsba", "fillseq", "multireadrandom", "putifabsent", "deleterandom"] {
            assert_eq!(check(workload(name)), Ok(()));
        }
        for name in ["ycsbe", "seekrandom", "mixgraph", "readseq", "readreverse"] {
            assert!(check(workload(name)).is_err_and(|why| why.contains(name)), "{name}");
        }
        let given = |scans: &str| parsed(&format!(r#"{{"mix": {{"get": 1, "scan": {scans}}}}}"#));
        assert!(check(given("0.01")).is_err_and(|why| why.contains("(scan)")));
        assert_eq!(check(given("0")), Ok(()));
    }

    #[test]
    fn a_workload_is_known_by_its_name_or_read() {
        assert_eq!(workload("ycsba").map(|w| w.name), Ok("ycsba"));
        for name in ["open", "readdevice"] {
            assert!(workload(name).is_err_and(|why| why.contains("nothing to tune")));
        }
        assert!(workload("no such").is_err_and(|why| why.contains("no workload")));
        let given = parsed(r#"{"mix": {"put": 3, "get absent": 1}, "keys": "latest", "begins": "half"}"#)
            .expect("it is well");
        assert_eq!(given.mix, [(Kind::GetAbsent, 0.25), (Kind::Put, 0.75)]);
        assert_eq!((given.keys, given.begins), (Choice::Latest(0.99), Begins::Half));
        for (text, word) in [
            (r#"{"mix": {}}"#, "positive"),
            (r#"{"mix": {"put": -1, "get": 2}}"#, "positive"),
            (r#"{"mix": {"putt": 1}}"#, "put if absent"),
            (r#"{"mix": {"put": 1}, "key": "uniform"}"#, "key"),
            ("", "EOF"),
        ] {
            let why = parsed(text).map(|w| w.name).expect_err("it is wrong");
            assert!(why.contains(word), "{text}: {why}");
        }
    }
}
