//! `cargo x ci`: everything a change must pass, in the order that fails fastest.
//!
//! Place: called by `main` and, in parts around the README's test command, by `.ci/run`.
//!
//! Two passes of clippy: the libraries and binaries with every lint, so that the file system, the clock,
//! random numbers and threads stay inside `env`; then all targets without that one, since tests may use them.

use std::time::Instant;

use crate::process::{cargo, human, show};
use crate::{tidy, tree};

type Step = (&'static str, fn() -> Result<(), String>);

const STEPS: &[Step] = &[
    ("fmt", fmt),
    ("tidy", tidy::run),
    ("clippy", clippy),
    ("doc", doc),
    ("test", || show("test", &mut cargo(&tree::root(), &["test", "--workspace"]))),
    ("lazy", || other_defaults("lazy", &["sorted_memory", "lazy_layout"])),
    ("runs", || other_defaults("runs", &["runs_memory", "tiered_layout", "values_apart"])),
    ("loom", || loom(&[])),
    ("tour", tour),
];

/// Runs the steps named, or all of them; stops at the first that fails.
pub fn run(wanted: &[String]) -> Result<(), String> {
    if let Some(unknown) = wanted.iter().find(|w| STEPS.iter().all(|(name, _)| name != w)) {
        let names: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
        return Err(format!("ci: there is no step {unknown}; the steps are {}", names.join(", ")));
    }
    let started = Instant::now();
    let mut times = Vec::new();
    for (name, step) in STEPS.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| w == name))
    {
        println!("==> {name}");
        let began = Instant::now();
        step()?;
        println!("<== {name}: {}", human(began.elapsed()));
        times.push(format!("{name} {}", human(began.elapsed())));
    }
    println!("ci: all passed in {} ({})", human(started.elapsed()), times.join(", "));
    Ok(())
}

fn fmt() -> Result<(), String> {
    let root = tree::root();
    show("fmt", &mut cargo(&root, &["fmt", "--all", "--", "--check"]))?;
    // Of the peers' workspace this much is looked at, and its style: nobody compiles C++ for a change of the store.
    show(
        "fmt of the peers",
        &mut cargo(&root, &["fmt", "--manifest-path", "peers/Cargo.toml", "--", "--check"]),
    )
}

fn clippy() -> Result<(), String> {
    let root = tree::root();
    let strict = ["clippy", "--workspace", "--lib", "--bins", "--", "-D", "warnings"];
    show("clippy", &mut cargo(&root, &strict))?;
    let all = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    let tests_may = ["-A", "clippy::disallowed_methods", "-A", "clippy::disallowed_types"];
    show("clippy of the tests", cargo(&root, &all).args(tests_may))
}

fn doc() -> Result<(), String> {
    let arguments = ["doc", "--workspace", "--no-deps", "--document-private-items"];
    show("doc", cargo(&tree::root(), &arguments).env("RUSTDOCFLAGS", "-D warnings"))
}

/// The model-checked tests.
pub fn loom(arguments: &[String]) -> Result<(), String> {
    let filter = arguments.first().map_or("loom_", String::as_str);
    flagged("loom", &["loom"], &["test", "-p", "drumlin", "--release", "--lib", filter])
}

/// The tests of stores, on other defaults. What lies below a store knows of none, as do models that call no code, and is tested once.
fn other_defaults(name: &str, flags: &[&str]) -> Result<(), String> {
    flagged(name, flags, &["test", "-p", "drumlin", "--lib", "db::"])?;
    let tests = tests_that_call("drumlin::")?;
    let mut arguments = vec!["test", "-p", "drumlin"];
    tests.iter().for_each(|test| arguments.extend(["--test", test]));
    flagged(name, flags, &arguments)
}

/// The names of those integration tests of the store in whose text that stands.
fn tests_that_call(what: &str) -> Result<Vec<String>, String> {
    let directory = tree::root().join("crates/drumlin/tests");
    let failed = |e| format!("{}: {e}", directory.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_test = path.extension().is_some_and(|extension| extension == "rs");
        if is_test && std::fs::read_to_string(&path).map_err(failed)?.contains(what) {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort_unstable();
    match names.is_empty() {
        true => Err(format!("no test in {} says {what}", directory.display())),
        false => Ok(names),
    }
}

/// What cargo is told, with `--cfg` and flags for the compiler, in a target directory of its own: a flag rebuilds everything.
fn flagged(name: &str, flags: &[&str], arguments: &[&str]) -> Result<(), String> {
    let usual = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut command = cargo(&tree::root(), arguments);
    let flags: String = flags.iter().map(|flag| format!(" --cfg {flag}")).collect();
    command.env("RUSTFLAGS", format!("{usual}{flags}").trim_start());
    show(name, command.env("CARGO_TARGET_DIR", tree::target().join(name)))
}

/// The main job on real data, in a fresh directory that is removed when it went well.
fn tour() -> Result<(), String> {
    let store = tree::target().join("ci-tour");
    if store.exists() {
        std::fs::remove_dir_all(&store).map_err(|e| format!("tour: remove {}: {e}", store.display()))?;
    }
    let mut command = cargo(&tree::root(), &["run", "--release", "-p", "drumlin-cli", "--"]);
    show("tour", command.arg("--db").arg(&store).arg("tour"))?;
    std::fs::remove_dir_all(&store).map_err(|e| format!("tour: it left no store at {}: {e}", store.display()))
}
