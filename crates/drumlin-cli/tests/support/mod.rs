//! Runs the program on a store of its own and keeps what it said.
#![allow(dead_code)] // Each test file uses its part.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A directory for one store, removed at the end.
pub struct Store {
    dir: tempfile::TempDir,
}

/// Text of so many records: a key, a tab, a number.
pub fn lines(count: usize) -> String {
    (0..count).map(|i| format!("line-{i:06}\t{}\n", i * 7919 % 1000)).collect()
}

/// What a run said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: Vec<u8>,
    pub err: String,
}

impl Said {
    /// Standard output as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    /// Asserts success and gives standard output.
    #[track_caller]
    pub fn ok(self) -> Vec<u8> {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// Standard output as one JSON object on one line.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.text().lines().count(), 1, "{self:?}");
        serde_json::from_slice(&self.out).unwrap()
    }

    /// The error of a run with `--json`: its kind, and the object.
    #[track_caller]
    pub fn error(&self) -> (String, serde_json::Value) {
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        let error: serde_json::Value = serde_json::from_str(&self.err).unwrap();
        assert!(error["error"].as_str().is_some_and(|text| !text.is_empty()), "{self:?}");
        (error["kind"].as_str().unwrap().to_string(), error)
    }

    /// Asserts an exit code, with something said about it on standard error and no panic.
    #[track_caller]
    pub fn fails(self, code: i32) -> Said {
        assert_eq!(self.code, Some(code), "{self:?}");
        let told = self.err.starts_with("drumlin: ") || self.err.starts_with("{\"error\":");
        assert!(told && self.err.ends_with('\n'), "{self:?}");
        assert!(!self.err.is_empty() && !self.err.contains("panicked"), "{self:?}");
        self
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        Said {
            code: output.status.code(),
            out: output.stdout,
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The program with arguments.
pub fn drumlin<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drumlin"));
    command.args(args).stdin(Stdio::null());
    command
}

impl Store {
    pub fn new() -> Store {
        Store { dir: tempfile::tempdir().unwrap() }
    }

    /// A closed store of so many records.
    pub fn loaded(count: usize) -> Store {
        let store = Store::new();
        store.feed(["load", "-", "--format", "tsv", "--key", "1", "--no-header"], lines(count)).ok();
        store
    }

    /// The store's directory; it does not exist before the first write.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// A file beside the store.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The program on this store.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = drumlin([OsStr::new("--db"), self.path().as_os_str()]);
        command.args(args);
        command
    }

    /// Runs the program on this store to its end.
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Said {
        self.command(args).output().unwrap().into()
    }

    /// Starts the program on this store; the test has all its ends.
    pub fn start<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Child {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs the program on this store with something on its standard input.
    pub fn feed<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>, input: impl AsRef<[u8]>) -> Said {
        let mut child = self.start(args);
        let mut stdin = child.stdin.take().unwrap();
        let input = input.as_ref().to_vec();
        let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let said = child.wait_with_output().unwrap().into();
        feeder.join().unwrap();
        said
    }

    /// Starts `load -` of lines, which waits for more until it is killed or its input ends.
    pub fn loading(&self) -> Loading {
        let mut child = self
            .command(["--json", "load", "-", "--format", "lines"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.split(b'\n') {
                if sender.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        Loading { child, stdin, lines }
    }

    /// Leaves the store as a killed process leaves it, holding exactly these lines as keys.
    pub fn load_and_kill(&self, lines: &[&str]) {
        let mut loading = self.loading();
        loading.give(&(lines.join("\n") + "\n"));
        loading.promised(lines.len() as u64);
        loading.kill();
    }

    /// Every file below the store, with its bytes.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(&self.path(), &mut files);
        files
    }

    /// Flips one bit in the middle of the largest file whose name ends so, and gives its name.
    pub fn rot(&self, ending: &str) -> Option<String> {
        let files = self.files();
        let (path, bytes) = files
            .iter()
            .filter(|(p, _)| p.to_string_lossy().ends_with(ending))
            .max_by_key(|(_, b)| b.len())?;
        let mut bytes = bytes.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        fs::write(path, bytes).unwrap();
        Some(path.file_name().unwrap().to_string_lossy().into_owned())
    }
}

fn collect(dir: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.insert(path.clone(), b"directory".to_vec());
            collect(&path, files);
        } else {
            let bytes = fs::read(&path).unwrap();
            files.insert(path, bytes);
        }
    }
}

/// How long a test waits for a line before it says that none comes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `load -`.
pub struct Loading {
    pub child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<Vec<u8>>,
}

impl Loading {
    /// Gives it input.
    pub fn give(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Takes its input pipe, to be fed by another thread.
    pub fn take_stdin(&mut self) -> ChildStdin {
        self.stdin.take().unwrap()
    }

    /// Reads the next promise; `None` at the end of its output.
    pub fn promise(&mut self) -> Option<u64> {
        let line = match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => String::from_utf8(line).unwrap(),
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no promise within {PATIENCE:?}"),
        };
        let digits = line.strip_prefix("{\"durable\":").and_then(|l| l.strip_suffix("}"));
        Some(digits.and_then(|d| d.parse().ok()).unwrap_or_else(|| panic!("not a promise: {line:?}")))
    }

    /// Reads promises until they reach `records`, which they must do exactly.
    #[track_caller]
    pub fn promised(&mut self, records: u64) {
        let mut promised = 0;
        while promised < records {
            promised = self.promise().expect("it must not end by itself");
        }
        assert_eq!(promised, records, "a promise for what was never given");
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A terminal: what is written to the second end can be read from the first.
pub fn terminal() -> (fs::File, OwnedFd) {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    (fs::File::from(master), slave)
}

/// All that was written to a terminal whose other end is closed.
pub fn seen(master: fs::File) -> String {
    let mut bytes = Vec::new();
    // Linux answers EIO when the other end is closed.
    let _ = BufReader::new(master).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}
