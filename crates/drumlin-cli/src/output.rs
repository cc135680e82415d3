//! Standard output for results, standard error for words to the user.
//!
//! Place: every command prints through here, and nowhere else.
//!
//! 1. Writes are buffered; a command ends with [`Output::finish`], so that no failed write is lost.
//! 2. A closed pipe becomes [`Failure::OutputClosed`], never a panic.
//! 3. If there is no standard output, whoever prints something fails.
//! 4. Writing to standard error never fails a command.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use crate::closed;
use crate::failure::{Failure, Result};

/// Buffered standard output.
pub struct Output {
    out: BufWriter<StdoutLock<'static>>,
}

impl Output {
    /// Takes standard output for this command.
    pub fn new() -> Self {
        Output { out: BufWriter::with_capacity(64 << 10, io::stdout().lock()) }
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        closed::check_output().map_err(Failure::output)?;
        self.out.write_all(bytes).map_err(Failure::output)
    }

    /// Writes text and a line end.
    pub fn line(&mut self, text: impl fmt::Display) -> Result<()> {
        closed::check_output().map_err(Failure::output)?;
        writeln!(self.out, "{text}").map_err(Failure::output)
    }

    /// Writes text of several lines, with one line end behind it.
    pub fn text(&mut self, text: &str) -> Result<()> {
        match text.trim_end() {
            "" => Ok(()),
            text => self.line(text),
        }
    }

    /// Hands everything written so far to the reader.
    pub fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(Failure::output)
    }

    /// Ends the output; errors of the last write are reported here.
    pub fn finish(mut self) -> Result<()> {
        self.flush()
    }
}

/// Tells the user something on standard error, marked with the program's name.
pub fn tell(text: &str) {
    // A closed standard error must not change what the command does.
    let _ = writeln!(io::stderr(), "drumlin: {text}");
}

/// Whether results may be drawn with bold and colour: a terminal, and `NO_COLOR` unset or empty.
pub fn stdout_takes_style() -> bool {
    io::stdout().is_terminal() && style_is_wanted()
}

/// Whether a terminal may be given bold and colour: `NO_COLOR` is unset or empty.
pub fn style_is_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A count of bytes for people: `12.5 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut scaled = count as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 1023.95 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

/// A count for people: `170,391`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 line`, `2 lines`.
pub fn plural(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

/// A word for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_spaces_are_quoted() {
        assert_eq!(quoted("./drumlin-tour"), "./drumlin-tour");
        assert_eq!(quoted("my store"), "'my store'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn figures_are_written_for_people() {
        assert_eq!(
            [0, 7, 999, 1000, 170_391, 1_000_000].map(count),
            ["0", "7", "999", "1,000", "170,391", "1,000,000"]
        );
        assert_eq!(
            [0, 1023, 1024, 13_144_586, (1 << 30) - 1, u64::MAX].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "12.5 MiB", "1.0 GiB", "16.0 EiB"]
        );
        assert_eq!(plural(1, "line"), "1 line");
        assert_eq!(plural(0, "line"), "0 lines");
    }
}
