//! How a command's end is told: the message on standard error, as text or as JSON, and the exit code.
//!
//! Place: called by `main` at the end, by the handler of Ctrl-C, and where the arguments do not parse.
//!
//! 1. A message is `drumlin: ` and what went wrong, then what to do.
//! 2. With `--json` it is one object on one line instead: `{"error":...,"kind":...}`, and `"durable":N` if a load
//!    stopped half way.
//! 3. What is no failure is a note; with `--json` `{"note":...}`, and `"line":N` if it is about a line of an input.
//! 4. Help and version are answers: on standard output, exit code 0, and 1 if they cannot be written. Help that nobody asked for, since
//!    a command is missing, is misuse and goes to standard error, but it is no message.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::advice;
use crate::args::Args;
use crate::escape;
use crate::failure::Failure;
use crate::output::{self, Output};

/// What the user should know although the command goes on.
pub struct Note {
    text: String,
    line: Option<u64>,
}

impl Note {
    /// A note about nothing that has a number.
    pub fn new(text: String) -> Self {
        Note { text, line: None }
    }

    /// A note about a line of an input.
    pub fn of_line(line: u64, text: String) -> Self {
        Note { text, line: Some(line) }
    }
}

/// Tells a note.
pub fn note(note: &Note, json: bool) {
    if !json {
        return output::tell(&note.text);
    }
    let mut line = br#"{"note":"#.to_vec();
    escape::push_string(&mut line, &note.text);
    if let Some(number) = note.line {
        line.extend_from_slice(format!(r#","line":{number}"#).as_bytes());
    }
    line.extend_from_slice(b"}\n");
    // A closed standard error changes nothing.
    let _ = io::stderr().write_all(&line);
}

/// Tells the failure of a command, and gives its exit code.
pub fn failed(failure: &Failure, args: &Args) -> ExitCode {
    if let Some(message) = failure.message() {
        let message = match advice::advice(failure, args) {
            Some(advice) => format!("{message}; {advice}"),
            None => message,
        };
        if args.json {
            tell_json(&message, failure);
        } else {
            output::tell(&message);
        }
    }
    ExitCode::from(failure.exit_code())
}

/// Tells that the arguments do not parse, or gives the help that was asked for.
pub fn unparsed(error: &clap::Error) -> ExitCode {
    let styled = error.render();
    if !error.use_stderr() {
        let text = if output::stdout_takes_style() { styled.ansi().to_string() } else { styled.to_string() };
        let mut out = Output::new();
        return match out.bytes(text.as_bytes()).and_then(|()| out.finish()) {
            Ok(()) | Err(Failure::OutputClosed) => ExitCode::SUCCESS,
            Err(failure) => {
                output::tell(&failure.message().unwrap_or_default());
                ExitCode::from(failure.exit_code())
            }
        };
    }
    let plain = in_words(&styled.to_string());
    let text = plain.strip_prefix("error: ").unwrap_or(&plain);
    let failure = Failure::Usage(text.trim_end().into());
    if std::env::args_os().any(|arg| arg == OsStr::new("--json")) {
        let first = text.split("\n\n").next().unwrap_or(text);
        let words: Vec<&str> = first.split_whitespace().collect();
        tell_json(&words.join(" "), &failure);
    } else if io::stderr().is_terminal() && output::style_is_wanted() {
        let text = in_words(&styled.ansi().to_string()).replacen("error:", "drumlin:", 1);
        // A closed standard error changes nothing.
        let _ = io::stderr().write_all(text.as_bytes());
    } else if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = io::stderr().write_all(text.as_bytes());
    } else {
        output::tell(text.trim_end());
    }
    ExitCode::from(failure.exit_code())
}

/// What the standard library says of numbers, as a user would.
fn in_words(text: &str) -> String {
    text.replace("invalid digit found in string", "it is not a whole number")
        .replace("invalid float literal", "it is not a number")
        .replace("cannot parse integer from empty string", "there is no number")
        .replace("number too large to fit in target type", "it is too large")
}

fn tell_json(message: &str, failure: &Failure) {
    let mut line = br#"{"error":"#.to_vec();
    escape::push_string(&mut line, message);
    line.extend_from_slice(format!(r#","kind":"{}""#, failure.kind()).as_bytes());
    if let Some(durable) = failure.durable() {
        line.extend_from_slice(format!(r#","durable":{durable}"#).as_bytes());
    }
    line.extend_from_slice(b"}\n");
    // A closed standard error changes nothing.
    let _ = io::stderr().write_all(&line);
}
