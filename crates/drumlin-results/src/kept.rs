//! What is kept: the raw lines of each measurement, behind a head that says how they were made.
//!
//! Place: `run` writes, `figures` reads.
//!
//! 1. A measurement is a file of its name: a line of JSON with the head, then the lines as the program printed them, each with
//!    the number of its run (`"run"`).
//! 2. While it is measured, the file lies below the target directory, and a line `{"done":N}` ends each piece: what is behind
//!    the last of them was interrupted, and is measured again. The finished file takes its place in one step.
//! 3. The head names the commit that changed the measured code last; and, if there are changes that are in no commit, their
//!    hash.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use drumlin_bench::machine::Machine;
use serde_json::{Value, json};

use crate::measurements::{self, Measurement, Program};
use crate::{Result, found};

/// Where results go.
#[derive(Clone, Debug)]
pub struct Place {
    /// Raw lines and pictures.
    pub results: PathBuf,
    /// The page.
    pub page: PathBuf,
    /// The README with its region; none for results that do not count.
    pub readme: Option<PathBuf>,
    /// The page that tells which memory component and layout to take, with its region; likewise.
    pub choosing: Option<PathBuf>,
    /// What is not finished.
    pub unfinished: PathBuf,
}

impl Place {
    /// The tree's own.
    pub fn of(root: &Path) -> Place {
        let docs = root.join("docs");
        Place {
            results: docs.join("results"),
            page: docs.join("RESULTS.md"),
            readme: Some(root.join("README.md")),
            choosing: Some(docs.join("choosing.md")),
            unfinished: target(root).join("results"),
        }
    }

    /// Below the target directory.
    pub fn quick(root: &Path) -> Place {
        let base = target(root).join("results-quick");
        Place {
            results: base.join("results"),
            page: base.join("RESULTS.md"),
            readme: None,
            choosing: None,
            unfinished: base.join("unfinished"),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.results.join(format!("{name}.jsonl"))
    }

    /// Whether this is there already.
    pub fn has(&self, made: &Made) -> bool {
        self.read(made.name).is_ok_and(|kept| kept.is_some_and(|kept| kept.head == made.head))
    }

    /// A finished measurement; none if there is none.
    pub fn read(&self, name: &str) -> Result<Option<Kept>> {
        let path = self.file(name);
        match fs::read_to_string(&path) {
            Ok(text) => Kept::parse(&text).map(Some).map_err(|why| format!("{}: {why}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("read {}: {error}", path.display())),
        }
    }
}

/// Where cargo builds.
pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// What lines are made by.
#[derive(Clone, Debug)]
pub struct Made {
    /// The measurement.
    pub name: &'static str,
    /// Which run, and the arguments of one start of the program. A run is one start, or a few.
    pub pieces: Vec<(usize, Vec<String>)>,
    /// Rounds.
    pub rounds: u32,
    /// What an earlier measurement told that this one goes by.
    pub told: Vec<Value>,
    head: Value,
}

impl Made {
    /// How `measurement` is made now; with `found`, other engines have the settings that the kept figures found best.
    pub fn new(
        measurement: &'static Measurement,
        code: &str,
        machine: &Machine,
        quick: bool,
        found: bool,
        place: &Place,
    ) -> Result<Made> {
        let fill = |word: String| match word.strip_prefix('{').and_then(|word| word.strip_suffix('}')) {
            Some(what) => filled(what, place),
            None => Ok(word),
        };
        let run = |run: &&str| measurement.arguments(run, quick).into_iter().map(fill).collect();
        let runs: Vec<Vec<String>> = measurement.runs.iter().map(run).collect::<Result<_>>()?;
        let rounds = measurement.rounds(quick);
        let program = match measurement.program {
            Program::Bench => "drumlin bench",
            Program::Limits => "drumlin limits",
            Program::Peers => "drumlin-peers",
            Program::Simulate => "drumlin simulate",
            Program::Tune => "drumlin tune",
        };
        let quoted =
            |word: &String| if word.contains([' ', '!']) { format!("'{word}'") } else { word.clone() };
        let line = |words: &Vec<String>| words.iter().map(quoted).collect::<Vec<_>>().join(" ");
        // Of the bench, rounds of all runs are in turns; the peers' program takes its engines in turns itself.
        let more =
            if measurement.program == Program::Peers { format!(" --rounds {rounds}") } else { String::new() };
        let command = |words: &Vec<String>| format!("{program} {}{more}", line(words));
        let asked: Vec<String> = runs.iter().map(command).collect();
        let kept = if found { place.read(measurement.name)? } else { None };
        let kept = kept.filter(|kept| kept.head["machine"] == machine.to_json());
        let (mut pieces, mut told) = (Vec::new(), Vec::new());
        for (run, words) in runs.into_iter().enumerate() {
            if !measurement.is_for(measurement.runs[run], machine.cores) {
                continue;
            }
            let found = kept.as_ref().and_then(|kept| {
                Some((found::pieces(kept, run, &asked[run], &words)?, found::told(kept, run)))
            });
            match found {
                Some((several, lines)) => {
                    pieces.extend(several.into_iter().map(|words| (run, words)));
                    told.extend(lines);
                }
                None => pieces.push((run, words)),
            }
        }
        let mut head = json!({
            "measurement": measurement.name,
            "commit": code,
            "machine": machine.to_json(),
            "commands": pieces.iter().map(|(_, words)| command(words)).collect::<Vec<_>>(),
            "rounds": rounds,
        });
        if !told.is_empty() {
            head["asked"] = asked.into();
        }
        Ok(Made { name: measurement.name, pieces, rounds, told, head })
    }
}

/// What a finished measurement says: `80% of RocksDB in sustained`, a part of a median rate; `best of rocksdb in sustained`,
/// the setting that took part.
fn filled(what: &str, place: &Place) -> Result<String> {
    let words: Vec<&str> = what.split(' ').collect();
    let [part, "of", engine, "in", name] = words[..] else {
        return Err(format!("`{what}` is not understood"));
    };
    let kept = place.read(name)?.ok_or_else(|| format!("it needs the figures of `{name}` first"))?;
    if part == "best" {
        // An engine that has one setting tells of none.
        let told = kept.lines.iter().find(|line| line["engine"] == engine && line["best"].is_string());
        return Ok(format!("{engine}={}", told.and_then(|line| line["best"].as_str()).unwrap_or_default()));
    }
    let part: f64 = part.trim_end_matches('%').parse().map_err(|_| format!("`{part}` is no part"))?;
    let rows = crate::figures::rows(&kept);
    let row = rows.iter().find(|row| row.engine == engine);
    let row = row.ok_or_else(|| format!("{name} says nothing of {engine}"))?;
    Ok(format!("{:.0}", row.rate.median * part / 100.0))
}

/// The commit that changed the measured code last. Files of tests only, and pages, are no part of it.
pub fn code(root: &Path) -> String {
    const CODE: [&str; 13] = [
        "crates/drumlin",
        "crates/drumlin-bench",
        "crates/drumlin-cli/src",
        "crates/drumlin-tune/src",
        "peers",
        "Cargo.toml",
        "Cargo.lock",
        "rust-toolchain.toml",
        ".cargo",
        ":(exclude,glob)**/*.md",
        ":(exclude,glob)**/tests/**",
        ":(exclude,glob)**/tests.rs",
        ":(exclude,glob)**/*_tests.rs",
    ];
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").current_dir(root).args(arguments).arg("--").args(CODE).output().ok()?;
        output.status.success().then_some(output.stdout)
    };
    let commit = git(&["log", "-1", "--format=%H"]).unwrap_or_default();
    let commit = String::from_utf8_lossy(&commit).trim().to_string();
    let (status, changes) = (git(&["status", "--porcelain"]), git(&["diff", "HEAD"]));
    match (commit.is_empty(), status.zip(changes)) {
        (false, Some((status, _))) if status.is_empty() => commit,
        (false, Some(both)) => format!("{commit} with changes {:016x}", hash(&both)),
        _ => format!("no commit, at {}", now()),
    }
}

fn hash(what: &impl std::hash::Hash) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(what)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// A measurement's lines.
#[derive(Clone, Debug)]
pub struct Kept {
    /// How they were made.
    pub head: Value,
    /// When they were finished, in seconds since 1970.
    pub at: u64,
    /// The lines.
    pub lines: Vec<Value>,
}

impl Kept {
    /// Reads a finished file.
    pub fn parse(text: &str) -> Result<Kept> {
        let mut lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).map_err(|e| format!("a line is no JSON: {e}")));
        let mut head = lines.next().ok_or("it is empty")??;
        let at =
            head.as_object_mut().and_then(|head| head.remove("at")).and_then(|at| at.as_u64()).unwrap_or(0);
        Ok(Kept { head, at, lines: lines.collect::<Result<_>>()? })
    }
}

/// A measurement that goes on.
pub struct Unfinished {
    path: PathBuf,
    file: fs::File,
    made: Made,
    /// Pieces that are done.
    pub done: u64,
}

impl Unfinished {
    /// Goes on where an earlier one was interrupted, if that was made by the same; or begins.
    pub fn open(place: &Place, made: &Made, again: bool) -> Result<Unfinished> {
        let path = place.unfinished.join(format!("{}.jsonl", made.name));
        let told = |e: std::io::Error| format!("write {}: {e}", path.display());
        fs::create_dir_all(&place.unfinished).map_err(told)?;
        let old = fs::read_to_string(&path).unwrap_or_default();
        let (lines, done) = if again { (Vec::new(), 0) } else { finished(&old, &made.head) };
        let mut file = fs::File::create(&path).map_err(told)?;
        writeln!(file, "{}", made.head).map_err(told)?;
        lines.iter().try_for_each(|line| writeln!(file, "{line}")).map_err(told)?;
        Ok(Unfinished { path, file, made: made.clone(), done })
    }

    /// Adds a line.
    pub fn line(&mut self, line: &Value) -> Result<()> {
        writeln!(self.file, "{line}").map_err(|e| format!("write {}: {e}", self.path.display()))
    }

    /// A piece is done.
    pub fn piece(&mut self) -> Result<()> {
        self.done += 1;
        self.line(&json!({"done": self.done}))
    }

    /// All is done: what was written takes its place.
    pub fn finish(self, place: &Place) -> Result<()> {
        let told = |e: std::io::Error| format!("finish {}: {e}", self.path.display());
        let text = fs::read_to_string(&self.path).map_err(told)?;
        let mut head = self.made.head.clone();
        head["at"] = now().into();
        let mut whole = format!("{head}\n");
        for line in text.lines().skip(1).filter(|line| !line.starts_with(DONE)) {
            whole.push_str(line);
            whole.push('\n');
        }
        fs::create_dir_all(&place.results).map_err(told)?;
        fs::write(&self.path, whole).map_err(told)?;
        // The two may lie on different devices.
        let (to, beside) = (place.file(self.made.name), place.results.join(".new"));
        fs::copy(&self.path, &beside).and_then(|_| fs::rename(&beside, &to)).map_err(told)?;
        fs::remove_file(&self.path).map_err(told)
    }
}

/// How the end of a piece begins.
const DONE: &str = "{\"done\":";

/// The lines of an interrupted file up to the end of its last finished piece, and how many pieces those are.
fn finished(text: &str, head: &Value) -> (Vec<String>, u64) {
    let mut lines = text.lines();
    let found = lines.next().and_then(|line| serde_json::from_str::<Value>(line).ok());
    if found.as_ref() != Some(head) {
        return (Vec::new(), 0);
    }
    let all: Vec<String> = lines.map(String::from).collect();
    let end = all.iter().rposition(|line| line.starts_with(DONE)).map_or(0, |last| last + 1);
    let done = all[..end].iter().filter(|line| line.starts_with(DONE)).count() as u64;
    (all[..end].to_vec(), done)
}

/// All finished measurements, in the order of the table.
pub fn all(place: &Place) -> Result<Vec<(&'static Measurement, Kept)>> {
    let read = |measurement: &'static Measurement| {
        place.read(measurement.name).map(|kept| kept.map(|kept| (measurement, kept))).transpose()
    };
    measurements::all().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurements::named;

    fn place(directory: &Path) -> Place {
        Place {
            results: directory.join("results"),
            page: directory.join("page"),
            readme: None,
            choosing: None,
            unfinished: directory.join("unfinished"),
        }
    }

    fn made(name: &str, code: &str, place: &Place) -> Made {
        let machine = Machine::here(Path::new("/")).expect("this one");
        Made::new(named(name).expect("it is there"), code, &machine, false, false, place)
            .expect("it can be made")
    }

    #[test]
    fn what_was_interrupted_goes_on_after_its_last_piece() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = place(directory.path());
        let made = made("threads", "a", &place);
        let mut first = Unfinished::open(&place, &made, false).expect("it begins");
        first.line(&json!({"rate": 1})).and_then(|()| first.piece()).expect("written");
        first.line(&json!({"rate": 2})).expect("written");
        drop(first);
        assert!(!place.has(&made));
        let mut second = Unfinished::open(&place, &made, false).expect("it goes on");
        assert_eq!(second.done, 1);
        second.line(&json!({"rate": 3})).and_then(|()| second.piece()).expect("written");
        second.finish(&place).expect("it takes its place");
        assert!(place.has(&made));
        let kept = place.read("threads").expect("read").expect("there");
        assert_eq!(kept.lines, [json!({"rate": 1}), json!({"rate": 3})]);
        assert!(kept.at > 1_600_000_000);
    }

    #[test]
    fn files_of_tests_are_no_measured_code() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        let git = |words: &[&str]| {
            let name = ["-c", "user.name=name", "-c", "user.email=name@localhost"];
            let done =
                Command::new("git").current_dir(root).args(name).args(words).output().expect("git runs");
            assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        };
        let mut codes = Vec::new();
        git(&["init", "--quiet"]);
        for file in ["src/a.rs", "src/a_tests.rs", "src/b/tests.rs", "tests/c/d.rs", "src/tests_of_a.rs"] {
            let path = root.join("crates/drumlin").join(file);
            fs::create_dir_all(path.parent().expect("it has one"))
                .and_then(|()| fs::write(&path, ""))
                .expect("written");
            git(&["add", "."]);
            git(&["commit", "--quiet", "--message", file]);
            codes.push(code(root));
        }
        assert!(codes[..4].iter().all(|code| *code == codes[0]), "{codes:?}");
        assert_ne!(codes[4], codes[0]);
    }

    #[test]
    fn how_threads_scale_is_measured_up_to_the_cores_that_there_are() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = place(directory.path());
        let threads = |name: &str, cores: usize| {
            let machine = Machine { cores, ..Machine::here(Path::new("/")).expect("this one") };
            let measurement = named(name).expect("it is there");
            let made = Made::new(measurement, "a", &machine, false, false, &place).expect("it can be made");
            let of = |words: &Vec<String>| {
                let at = words.iter().position(|word| word == "--threads").expect("it is said");
                words[at + 1].clone()
            };
            made.pieces.iter().map(|(run, words)| (*run, of(words))).collect::<Vec<_>>()
        };
        let right = |all: &[&str]| all.iter().map(|n| n.to_string()).enumerate().collect::<Vec<_>>();
        assert_eq!(threads("two-tier-scaling", 2), right(&["1", "2"]));
        assert_eq!(threads("two-tier-scaling", 12), right(&["1", "2", "4", "8"]));
        assert_eq!(threads("threads", 2), right(&["2", "8"]), "more threads than cores are what it is about");
    }

    #[test]
    fn other_code_and_other_settings_are_measured_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = place(directory.path());
        let old = made("threads", "a", &place);
        let mut unfinished = Unfinished::open(&place, &old, false).expect("it begins");
        unfinished.line(&json!({"rate": 1})).and_then(|()| unfinished.piece()).expect("written");
        drop(unfinished);
        let new = made("threads", "b", &place);
        assert_eq!(Unfinished::open(&place, &new, false).expect("it begins").done, 0);
        let mut unfinished = Unfinished::open(&place, &new, false).expect("it begins");
        unfinished.piece().and_then(|()| unfinished.finish(&place)).expect("done");
        assert!(place.has(&new) && !place.has(&old));
        let mut quick = new.clone();
        quick.head["rounds"] = 1.into();
        assert!(!place.has(&quick));
    }

    #[test]
    fn what_was_measured_says_how_to_measure_more() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = place(directory.path());
        let rate = "80% of RocksDB in sustained";
        assert!(filled(rate, &place).expect_err("not there").contains("sustained"));
        let made = made("sustained", "a", &place);
        let mut unfinished = Unfinished::open(&place, &made, false).expect("it begins");
        for (engine, rate) in [("Drumlin", 9e5), ("RocksDB", 1e5), ("RocksDB", 3e5), ("RocksDB", 2e5)] {
            let line =
                json!({"run": 0, "engine": engine, "workload": "fillrandom", "threads": 2, "rate": rate});
            unfinished.line(&line).expect("written");
        }
        unfinished.line(&json!({"engine": "rocksdb", "best": "a, b", "run": 0})).expect("written");
        unfinished.finish(&place).expect("it takes its place");
        assert_eq!(filled(rate, &place), Ok("160000".into()));
        assert_eq!(filled("best of rocksdb in sustained", &place), Ok("rocksdb=a, b".into()));
        assert_eq!(filled("best of lmdb in sustained", &place), Ok("lmdb=".into()));
    }
}
