//! Starting cargo and watching it: steps with times, captured output, a time limit that kills the whole group.
//!
//! Place: used by `ci`, `soak` and `planted`.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A cargo command in `dir`, by the cargo that runs us.
pub fn cargo(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(dir).args(arguments);
    // What `cargo x` was itself built with must not leak into what it builds.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|n| n.starts_with("CARGO_PKG_") || n == "CARGO_MANIFEST_DIR") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command with its output shown. An error names the step.
pub fn show(step: &str, command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|e| format!("{step}: cannot start: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{step}: failed ({status})")) }
}

/// How a watched command ended.
pub enum End {
    /// It exited with this code.
    Code(i32),
    /// A signal ended it.
    Signal,
    /// It ran past its limit and was killed.
    Timeout,
}

/// What a watched command said and how it ended.
pub struct Watched {
    /// How it ended.
    pub end: End,
    /// Its standard output and error.
    pub output: String,
    /// How long it ran.
    pub took: Duration,
}

/// Runs a command in a process group of its own, captures what it says, and kills the group at the limit.
pub fn watch(command: &mut Command, limit: Duration) -> Result<Watched, String> {
    let started = Instant::now();
    let mut child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start: {e}"))?;
    let (done, ended) = mpsc::channel();
    let readers: Vec<_> = [
        child.stdout.take().map(|s| Box::new(s) as Box<dyn Read + Send>),
        child.stderr.take().map(|s| Box::new(s) as Box<dyn Read + Send>),
    ]
    .into_iter()
    .flatten()
    .map(|mut stream| {
        let done = done.clone();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // A pipe that breaks ends the capture, nothing else.
            let _ = stream.read_to_end(&mut bytes);
            drop(done);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    })
    .collect();
    drop(done);
    // Both pipes close when the group has ended; nothing is ever sent.
    let timed_out = matches!(ended.recv_timeout(limit), Err::<(), _>(mpsc::RecvTimeoutError::Timeout));
    if timed_out {
        Command::new("kill")
            .args(["-KILL", "--", &format!("-{}", child.id())])
            .status()
            .map_err(|e| format!("cannot kill a command that ran past its limit: {e}"))?;
    }
    let status = child.wait().map_err(|e| format!("cannot wait: {e}"))?;
    let output = readers.into_iter().map(|r| r.join().unwrap_or_default()).collect();
    let end = match status.code() {
        _ if timed_out => End::Timeout,
        Some(code) => End::Code(code),
        None => End::Signal,
    };
    Ok(Watched { end, output, took: started.elapsed() })
}

/// A duration for people: 0.4 s, 12 s, 3 min 20 s.
pub fn human(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..120 => format!("{seconds} s"),
        _ => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_past_its_limit_is_killed_with_its_children() {
        let started = Instant::now();
        let watched = watch(
            Command::new("sh").args(["-c", "echo before; sleep 60 & sleep 60"]),
            Duration::from_millis(300),
        );
        let watched = watched.expect("sh starts");
        assert!(matches!(watched.end, End::Timeout));
        assert_eq!(watched.output, "before\n");
        assert!(started.elapsed() < Duration::from_secs(20), "the background child held the pipe");
    }

    #[test]
    fn exit_codes_and_signals_are_told_apart() {
        let code = |script: &str| watch(Command::new("sh").args(["-c", script]), Duration::from_secs(20));
        assert!(matches!(code("exit 7").expect("sh starts").end, End::Code(7)));
        assert!(matches!(code("kill -KILL $$").expect("sh starts").end, End::Signal));
    }
}
