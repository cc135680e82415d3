//! How the program behaves as a process: misuse, pipes, terminals, help.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use support::{Said, Store, drumlin, seen, terminal};

fn loaded(count: usize) -> Store {
    let store = Store::new();
    let text: String = (0..count).map(|i| format!("line-{i:06}\n")).collect();
    store.feed(["load", "-", "--format", "lines"], text).ok();
    store
}

#[test]
fn misuse_exits_2_and_help_exits_0() {
    for args in
        [&["nonsense"][..], &["get"], &["get", "a", "b"], &["count", "--nonsense"], &["completions", "x"]]
    {
        Said::from(drumlin(args).output().unwrap()).fails(2);
    }
    for args in [&["--help"][..], &["--version"], &["load", "--help"]] {
        assert!(!Said::from(drumlin(args).output().unwrap()).ok().is_empty());
    }
    // Without a command it helps, and does not complain.
    let said = Said::from(drumlin([""; 0]).output().unwrap());
    assert!(said.code == Some(2) && said.out.is_empty(), "{said:?}");
    assert!(said.err.contains("Usage: drumlin") && !said.err.contains("drumlin: "), "{said:?}");
}

#[test]
fn numbers_that_are_none_are_told_in_words() {
    for (number, why) in [
        ("ten", "it is not a whole number"),
        ("1e3", "it is not a whole number"),
        ("", "there is no number"),
        ("99999999999999999999", "it is too large"),
    ] {
        let said = Said::from(drumlin(["bench", "--num", number]).output().unwrap()).fails(2);
        assert!(said.err.contains("--num") && said.err.contains(why), "{said:?}");
    }
}

#[test]
fn every_command_is_in_the_help() {
    let help = Said::from(drumlin(["--help"]).output().unwrap());
    for command in [
        "load",
        "get",
        "put",
        "delete",
        "cas",
        "count",
        "scan",
        "keyspaces",
        "stats",
        "shape",
        "verify",
        "compact",
        "tour",
        "completions",
    ] {
        assert!(help.text().lines().any(|line| line.trim_start().starts_with(command)), "{command}");
    }
}

#[test]
fn completions_are_scripts() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = Said::from(drumlin(["completions", shell]).output().unwrap()).ok();
        assert!(String::from_utf8(script).unwrap().contains("keyspaces"), "{shell}");
    }
}

/// What bash offers behind these words, the last of them begun.
fn offered_by_bash(words: &[&str]) -> Option<String> {
    let script = r#"
        eval "$("$PROGRAM" completions bash)" || exit 9
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
        spec=$(complete -p drumlin) || exit 9
        [[ $spec =~ -F\ ([^ ]+) ]] || exit 9
        "${BASH_REMATCH[1]}" drumlin "${@: -1}" "${@: -2:1}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script, "bash"]).args(words).env("PROGRAM", env!("CARGO_BIN_EXE_drumlin"));
    let Ok(output) = bash.output() else { return None };
    Some(String::from_utf8(Said::from(output).ok()).unwrap())
}

#[test]
fn bash_completes_commands_options_and_their_values() {
    let Some(commands) = offered_by_bash(&["drumlin", "s"]) else { return };
    assert_eq!(commands.lines().collect::<Vec<_>>(), ["size", "scan", "stats", "shape", "simulate"]);
    let of = |words: &[&str]| offered_by_bash(words).unwrap();
    assert!(of(&["drumlin", "put", "--h"]).lines().any(|word| word == "--hex"));
    assert!(of(&["drumlin", "load", "--format", "j"]).lines().eq(["jsonl"]));
    assert!(of(&["drumlin", "completions", "f"]).lines().eq(["fish"]));
}

#[test]
fn every_help_shows_an_example() {
    let help = Said::from(drumlin(["--help"]).output().unwrap());
    let commands =
        help.text().lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let names: Vec<&str> = commands.filter_map(|l| l.split_whitespace().next()).collect();
    assert!(names.len() >= 14, "{names:?}");
    for name in names.into_iter().filter(|name| *name != "help") {
        let help = Said::from(drumlin([name, "--help"]).output().unwrap());
        assert!(help.text().contains("Example"), "{name}: {help:?}");
        assert!(help.text().lines().next() != Some("How keys are given and printed"), "{name}");
    }
}

#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let store = loaded(50_000);
    for args in [&["scan"][..], &["scan", "--reverse", "--format", "jsonl"]] {
        let mut child = store.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert!(line.contains("line-"));
        drop(out);
        let said = Said::from(child.wait_with_output().unwrap());
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    }
    for args in [&["--help"][..], &["completions", "bash"]] {
        let mut child = drumlin(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let said = Said::from(child.wait_with_output().unwrap());
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    }
}

#[test]
fn a_load_goes_on_when_nobody_reads_its_progress() {
    let store = Store::new();
    let text: String = (0..50_000).map(|i| format!("line-{i:06}\n")).collect();
    let file = store.file("lines", text);
    let mut command = store.command(["--json", "load"]);
    command.arg(file).args(["--format", "lines"]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(store.run(["count"]).ok(), b"50000\n");
}

#[test]
fn a_full_device_behind_standard_output_is_an_error() {
    let Ok(full) = File::options().write(true).open("/dev/full") else { return };
    let store = loaded(10);
    for args in [&["scan"][..], &["count"], &["get", "line-000001", "--json"]] {
        let mut command = store.command(args);
        let said = Said::from(command.stdout(full.try_clone().unwrap()).output().unwrap()).fails(1);
        assert!(said.err.contains("standard output"), "{said:?}");
    }
}

#[test]
fn progress_is_for_a_terminal_that_did_not_ask_for_quiet() {
    for (quiet, shown) in [(false, true), (true, false)] {
        let store = Store::new();
        let text: String = (0..20_000).map(|i| format!("line-{i:06}\n")).collect();
        let file = store.file("lines", text);
        let (master, slave) = terminal();
        let mut command = store.command(["load"]);
        command
            .arg(file)
            .args(["--format", "lines"])
            .env("TERM", "xterm")
            .stdout(Stdio::piped())
            .stderr(slave);
        if quiet {
            command.arg("--quiet");
        }
        let mut child = command.spawn().unwrap();
        drop(command);
        let reader = std::thread::spawn(|| seen(master));
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let drawn = reader.join().unwrap();
        assert_eq!(drawn.contains("loading"), shown, "{drawn:?}");
    }
}

#[test]
fn quiet_hides_no_error() {
    let store = loaded(10);
    let said = store.run(["--quiet", "get", "absent"]).fails(1);
    assert!(said.err.contains("absent"));
    let said = store.feed(["--quiet", "load", "-", "--format", "lines"], "a\n\n").fails(1);
    assert!(said.err.contains("line 2"));
}

#[test]
fn no_color_is_heard() {
    for (variable, coloured) in [("UNRELATED", true), ("NO_COLOR", false)] {
        let (master, slave) = terminal();
        let mut command = drumlin(["--help"]);
        command.env("TERM", "xterm").env_remove("NO_COLOR").env(variable, "1").stdout(slave);
        let mut child = command.spawn().unwrap();
        drop(command);
        let reader = std::thread::spawn(|| seen(master));
        child.wait().unwrap();
        let drawn = reader.join().unwrap();
        assert!(drawn.contains("keyspaces"));
        assert_eq!(drawn.contains('\x1b'), coloured, "{variable}: {drawn:?}");
    }
}

#[test]
fn a_keyspace_is_never_ignored() {
    let store = loaded(10);
    store.run(["--keyspace", "b", "put", "k", "v"]).ok();
    for command in ["keyspaces", "verify", "tour"] {
        let said = store.run([command, "--keyspace", "b"]).fails(2);
        assert!(said.err.contains(&format!("--keyspace does not go with {command}")), "{said:?}");
        assert_eq!(store.run(["--json", command, "--keyspace", "b"]).fails(2).error().0, "usage");
    }
    for command in ["stats", "shape"] {
        let said = store.run([command, "--keyspace", "b"]);
        assert!(said.text().contains("1 version") && !said.text().contains("default"), "{said:?}");
        let figures = store.run(["--json", command, "--keyspace", "b"]).json();
        assert_eq!(figures["keyspaces"].as_array().unwrap().len(), 1, "{figures}");
        assert_eq!(figures["keyspaces"][0]["name"], "b");
        store.run([command, "--keyspace", "absent"]).fails(1);
    }
}

/// The program on a store, started by a shell that does something first and gives it these ends.
fn by_shell(store: &Store, before: &str, args: &str) -> Said {
    let script = format!("{before} exec \"$PROGRAM\" --db \"$DB\" {args}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("PROGRAM", env!("CARGO_BIN_EXE_drumlin")).env("DB", store.path());
    Said::from(shell.stdin(Stdio::null()).output().unwrap())
}

#[test]
fn a_closed_standard_stream_is_an_error_to_those_who_need_it() {
    let store = loaded(10);
    for args in ["count", "scan", "get line-000001 --json", "verify", "put k v --json", "--help", "stats"] {
        let said = by_shell(&store, "", &format!("{args} >&-")).fails(1);
        assert!(said.err.contains("standard output: it is closed"), "{args}: {said:?}");
    }
    let before = store.run(["scan"]).ok();
    for args in ["put a -", "cas a --absent -", "load - --format lines"] {
        let said = by_shell(&store, "", &format!("{args} <&-")).fails(1);
        assert!(said.err.contains("standard input: it is closed"), "{args}: {said:?}");
    }
    assert_eq!(store.run(["scan"]).ok(), before);
    // Who needs neither, and who was given /dev/null on purpose, whatever it was opened for.
    for args in [
        "put a b >&- <&-",
        "count >/dev/null",
        "count <>/dev/null >&0",
        "put c - </dev/null",
        "put c - <>/dev/null",
    ] {
        let said = by_shell(&store, "", args);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{args}");
    }
    assert_eq!(store.run(["get", "c"]).ok(), b"");
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_what_it_leaves_is_a_store() {
    let store = Store::new();
    let said = by_shell(&store, "ulimit -f 100;", "put k v").fails(1);
    assert!(said.err.contains("File too large") && said.err.contains("ulimit -f"), "{said:?}");
    // The directory was begun, and the next who writes finishes it.
    assert!(store.path().join("STORE").exists());
    store.run(["put", "k", "v"]).ok();
    assert_eq!(store.run(["get", "k"]).ok(), b"v");
    store.run(["verify"]).ok();
}

#[test]
fn a_bar_keeps_to_one_line_and_writes_counts_for_people() {
    const COLUMNS: u16 = 60;
    let store = Store::new();
    let file = store.file("lines", (0..400_000).map(|i| format!("line-{i:06}\n")).collect::<String>());
    let (master, slave) = terminal();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&slave, size).unwrap();
    let mut command = store.command(["load"]);
    command.arg(file).args(["--format", "lines"]).env("TERM", "xterm").stdout(Stdio::piped()).stderr(slave);
    let mut child = command.spawn().unwrap();
    drop(command);
    let reader = std::thread::spawn(|| seen(master));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let drawn = reader.join().unwrap();
    let bars: Vec<&str> = drawn.split(['\r', '\n']).filter(|line| line.contains("loading")).collect();
    assert!(bars.iter().any(|bar| bar.contains("] ") && bar.contains(",000 record")), "{bars:?}");
    for bar in bars {
        let plain = bar.replace("\x1b[2K", "").replace("\x1b[1A", "");
        assert!(
            !plain.contains('\x1b') && plain.trim_end().chars().count() <= usize::from(COLUMNS),
            "{bar:?}"
        );
    }
}
