//! `cargo x planted`: plants one bug at a time in a copy of the tree and expects its test to fail.
//!
//! Place: called by `main`; `tidy` asks it whether the bugs still fit the code. A bug is a file
//! `planted/NAME.toml`, read by `bug`.
//!
//! Per bug: one substitution; the test must *build* (a bug that does not compile shows nothing), then *fail*
//! with the named test, or die, or, if the bug says so, hang. Before that, its test command passes on the tree without a
//! bug (a test that fails anyway catches nothing).
//! One worker for each core has a copy of the tree in `target/planted-N`, so builds between bugs are incremental and the
//! working tree is never touched; it takes all bugs of one test command together.

mod bug;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::process::{End, cargo, human, watch};
use crate::tree;
use bug::Bug;

const BUILD_LIMIT: Duration = Duration::from_secs(1200);
const TEST_LIMIT: Duration = Duration::from_secs(600);
/// For a bug that hangs, at least: longer than its test takes on a busy machine.
const HANG_LIMIT: Duration = Duration::from_secs(30);

/// Plants the named bugs, or all.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let root = tree::root();
    let mut bugs = all(&root)?;
    let known = ["--list", "--no-baseline"];
    if let Some(unknown) = arguments.iter().find(|a| a.starts_with("--") && !known.contains(&a.as_str())) {
        return Err(format!(
            "planted: {unknown} is not known; usage: cargo x planted [{}] [NAME]...",
            known.join("] [")
        ));
    }
    let flag = |name: &str| arguments.iter().any(|a| a == name);
    let names: Vec<&String> = arguments.iter().filter(|a| !a.starts_with("--")).collect();
    if let Some(unknown) = names.iter().find(|n| !bugs.iter().any(|b| b.name == n.as_str())) {
        return Err(format!("planted: no bug named {unknown}; `cargo x planted --list` lists them"));
    }
    bugs.retain(|b| names.is_empty() || names.contains(&&b.name));
    if flag("--list") {
        for bug in &bugs {
            println!("{:36} {}", bug.name, bug.story);
        }
        println!("{} bugs", bugs.len());
        return Ok(());
    }
    let stale = stale(&root)?;
    if let Some((path, what)) = stale.first() {
        return Err(format!("planted: {}: {what}", path.display()));
    }
    let mut groups: BTreeMap<(bool, &[String]), Vec<&Bug>> = BTreeMap::new();
    for bug in &bugs {
        groups.entry((bug.loom, &bug.test)).or_default().push(bug);
    }
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(groups.len());
    let copies = (0..workers).map(|number| Copy::make(&root, number)).collect::<Result<Vec<_>, _>>()?;
    // From the back: the model checker's first, which take longest.
    let queue = Mutex::new(groups.into_values().collect::<Vec<_>>());
    let next = || queue.lock().expect("no worker panics with it").pop();
    let survivors = Mutex::new(Vec::new());
    println!("{:36} {:10} {:>8}  caught by", "bug", "outcome", "time");
    std::thread::scope(|scope| {
        let work = |copy: &Copy| {
            while let Some(group) = next() {
                let usual = if flag("--no-baseline") { Ok(HANG_LIMIT / 5) } else { baseline(copy, group[0]) };
                // What fails anyway catches nothing, and the others are tried all the same.
                if let Err(why) = &usual {
                    println!("{why}");
                }
                for bug in group {
                    let is_caught = usual.as_ref().is_ok_and(|usual| judged(copy, bug, *usual));
                    if !is_caught {
                        survivors.lock().expect("no worker panics with it").push(bug.name.clone());
                    }
                }
            }
        };
        let workers: Vec<_> = copies.iter().map(|copy| scope.spawn(move || work(copy))).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "planted: a worker panicked".to_string()))
    })?;
    let survivors = survivors.into_inner().expect("no worker panics with it");
    println!("planted: {} of {} bugs caught", bugs.len() - survivors.len(), bugs.len());
    if survivors.is_empty() { Ok(()) } else { Err(format!("planted: not caught: {}", survivors.join(", "))) }
}

/// Plants one bug and prints what became of it. True if it was caught. `usual` is how long its test takes without it.
fn judged(copy: &Copy, bug: &Bug, usual: Duration) -> bool {
    let began = Instant::now();
    let outcome = plant(copy, bug, if bug.hangs { HANG_LIMIT.max(usual * 5) } else { TEST_LIMIT });
    let took = human(began.elapsed());
    let (word, what) = match &outcome {
        Ok(caught_by) => ("caught", caught_by),
        Err(why) => ("SURVIVED", why),
    };
    println!("{:36} {word:10} {took:>8}  {what}", bug.name);
    outcome.is_ok()
}

/// (file, what is wrong) for every bug that no longer fits the code.
pub fn stale(root: &Path) -> Result<Vec<(PathBuf, String)>, String> {
    let mut found = Vec::new();
    for bug in all(root)? {
        let path = PathBuf::from(format!("planted/{}.toml", bug.name));
        let text = match tree::read(&root.join(&bug.file)) {
            Ok(text) => text,
            Err(why) => {
                found.push((path, why));
                continue;
            }
        };
        match text.matches(&bug.find).count() {
            1 => {}
            n => found
                .push((path.clone(), format!("its `find` text occurs {n} times in {}, not once", bug.file))),
        }
        if bug.find == bug.replace {
            found.push((path.clone(), "`replace` changes nothing".into()));
        }
        let function = bug.caught_by.rsplit("::").next().unwrap_or_default();
        let declared = tree::files(root)?.iter().any(|f| {
            f.extension().is_some_and(|e| e == "rs")
                && tree::read(&root.join(f)).is_ok_and(|t| t.contains(&format!("fn {function}(")))
        });
        if !declared {
            found.push((path, format!("its test `{}` does not exist", bug.caught_by)));
        }
    }
    Ok(found)
}

fn all(root: &Path) -> Result<Vec<Bug>, String> {
    let dir = root.join("planted");
    let mut bugs = Vec::new();
    let mut names: Vec<PathBuf> = tree::files(&dir)?;
    names.retain(|n| n.extension().is_some_and(|e| e == "toml"));
    for name in names {
        let stem = name.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
        bugs.push(
            Bug::parse(stem, &tree::read(&dir.join(&name))?)
                .map_err(|e| format!("planted/{stem}.toml: {e}"))?,
        );
    }
    Ok(bugs)
}

/// The copy of the tree that bugs are planted in.
struct Copy {
    tree: PathBuf,
    target: PathBuf,
}

impl Copy {
    fn make(root: &Path, number: usize) -> Result<Self, String> {
        let base = tree::target().join(format!("planted-{number}"));
        let copy = Self { tree: base.join("tree"), target: base.join("target") };
        let files = tree::files(root)?;
        for file in &files {
            let from = root.join(file);
            let bytes = std::fs::read(&from).map_err(|e| format!("read {}: {e}", from.display()))?;
            tree::write_if_changed(&copy.tree.join(file), &bytes)?;
        }
        for extra in tree::files(&copy.tree)?.iter().filter(|f| files.binary_search(f).is_err()) {
            let path = copy.tree.join(extra);
            std::fs::remove_file(&path).map_err(|e| format!("remove {}: {e}", path.display()))?;
        }
        Ok(copy)
    }

    fn cargo(&self, bug: &Bug, extra: &[&str]) -> std::process::Command {
        let mut arguments: Vec<&str> = vec!["test"];
        arguments.extend(bug.test.iter().map(String::as_str));
        arguments.extend(extra);
        let mut command = cargo(&self.tree, &arguments);
        let target = if bug.loom { self.target.join("loom") } else { self.target.clone() };
        command.env("CARGO_TARGET_DIR", target).env("CARGO_TERM_COLOR", "never");
        // A hundred builds that differ in a line each, and that nobody debugs.
        command.envs([("CARGO_PROFILE_TEST_DEBUG", "false"), ("CARGO_PROFILE_RELEASE_DEBUG", "false")]);
        command.env("CARGO_PROFILE_RELEASE_INCREMENTAL", "true");
        if bug.loom {
            command.env("RUSTFLAGS", "--cfg loom");
        }
        command
    }
}

/// The bug's test passes while no bug is planted. Returns how long it took.
fn baseline(copy: &Copy, bug: &Bug) -> Result<Duration, String> {
    let built = watch(&mut copy.cargo(bug, &["--no-run"]), BUILD_LIMIT)?;
    let tested = watch(&mut copy.cargo(bug, &[]), BUILD_LIMIT)?;
    if !matches!((&built.end, &tested.end), (End::Code(0), End::Code(0))) {
        let output = last_lines(&tested.output, 60);
        return Err(format!("planted: without any bug, the test of {} fails:\n{output}", bug.name));
    }
    if ran(&tested.output) == 0 {
        return Err(format!("planted: the test command of {} runs no test", bug.name));
    }
    println!("without a bug: cargo test {} passes ({})", bug.test.join(" "), human(tested.took));
    Ok(tested.took)
}

/// Plants one bug, runs its test, takes it out again. Says which test caught it.
fn plant(copy: &Copy, bug: &Bug, limit: Duration) -> Result<String, String> {
    let path = copy.tree.join(&bug.file);
    let sound = tree::read(&path)?;
    tree::write_if_changed(&path, sound.replacen(&bug.find, &bug.replace, 1).as_bytes())?;
    let outcome = judge(copy, bug, limit);
    tree::write_if_changed(&path, sound.as_bytes())?;
    outcome
}

fn judge(copy: &Copy, bug: &Bug, limit: Duration) -> Result<String, String> {
    let built = watch(&mut copy.cargo(bug, &["--no-run"]), BUILD_LIMIT)?;
    if !matches!(built.end, End::Code(0)) {
        return Err(format!("it does not build:\n{}", last_lines(&built.output, 20)));
    }
    let tested = watch(&mut copy.cargo(bug, &[]), limit)?;
    let failed: Vec<&str> = failed_tests(&tested.output);
    let named = failed.iter().any(|t| t.ends_with(&bug.caught_by));
    match tested.end {
        End::Timeout if bug.hangs => Ok(format!("{} (hung for {})", bug.caught_by, human(tested.took))),
        End::Timeout => Err(format!("undecided: `{}` ran past {}", bug.caught_by, human(limit))),
        End::Code(0) => Err(format!("`{}` passes", bug.caught_by)),
        _ if named => Ok(failed.join(", ")),
        _ if !failed.is_empty() => Err(format!("not `{}` failed but {}", bug.caught_by, failed.join(", "))),
        // The test process died before it could name the test: an abort, a signal, a stack overflow.
        _ if tested.output.contains("running ") => Ok(format!("{} (the process died)", bug.caught_by)),
        _ => Err(format!("cargo failed before any test:\n{}", last_lines(&tested.output, 20))),
    }
}

/// The tests that the harness lists as failed, in lines `test NAME ... FAILED` and below `failures:`.
fn failed_tests(output: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    let mut listing = false;
    for line in output.lines() {
        listing = line == "failures:" || (listing && (line.starts_with("    ") || line.is_empty()));
        let name = line.trim();
        if listing && line.starts_with("    ") && !name.contains(' ') {
            found.push(name);
        } else if let Some(rest) = line.strip_prefix("test ").filter(|_| line.ends_with("FAILED")) {
            found.extend(rest.split_whitespace().next());
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// How many tests ran, by the `test result` lines.
fn ran(output: &str) -> u64 {
    let passed = |l: &str| l.strip_prefix("test result: ok. ")?.split(' ').next()?.parse::<u64>().ok();
    output.lines().filter_map(passed).sum()
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_read_from_the_harness_output() {
        let output = "running 3 tests\ntest a::b ... ok\ntest a::c ... FAILED\ntest a::d ... noise\n\n\
                      failures:\n\n---- a::c stdout ----\n    deep text here\n\nfailures:\n    a::c\n    a::d\n\n\
                      test result: FAILED. 1 passed; 2 failed";
        assert_eq!(failed_tests(output), ["a::c", "a::d"]);
    }

    #[test]
    fn tests_that_ran_are_counted_over_all_binaries() {
        assert_eq!(ran("test result: ok. 3 passed; 0 failed\nx\ntest result: ok. 0 passed; 0 failed"), 3);
    }
}
