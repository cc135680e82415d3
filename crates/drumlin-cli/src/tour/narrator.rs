//! The tour's words, figures and checks.
//!
//! Place: every section speaks through here.
//!
//! 1. With `--json` the words are silent, and one object with the figures is printed at the end.
//! 2. If nobody listens any more (closed pipe), the tour goes on: its checks still decide the exit code.
//! 3. A failed check ends the tour; passed ones are counted.

use std::fmt::Display;

use crate::failure::{Failure, Result};
use crate::output::{self, Output};

/// Tells the tour.
pub struct Narrator {
    out: Option<Output>,
    json: bool,
    style: bool,
    sections: usize,
    checks: u64,
    figures: Vec<(&'static str, u64)>,
}

impl Narrator {
    /// Words for people, or with `json` only figures.
    pub fn new(json: bool) -> Self {
        Narrator {
            out: Some(Output::new()),
            json,
            style: output::stdout_takes_style(),
            sections: 0,
            checks: 0,
            figures: Vec::new(),
        }
    }

    /// The title of the whole.
    pub fn title(&mut self, text: &str) -> Result<()> {
        self.bold(text)
    }

    /// Begins a section.
    pub fn section(&mut self, text: &str) -> Result<()> {
        self.sections += 1;
        self.line("")?;
        self.bold(&format!("{}. {text}", self.sections))
    }

    /// Begins a part that is no section.
    pub fn heading(&mut self, text: &str) -> Result<()> {
        self.line("")?;
        self.bold(text)
    }

    /// One line of text.
    pub fn line(&mut self, text: impl Display) -> Result<()> {
        if self.json {
            return Ok(());
        }
        self.print(text)
    }

    /// Text of several lines, each moved to the right.
    pub fn block(&mut self, text: &str) -> Result<()> {
        for line in text.trim_end().lines() {
            if line.is_empty() { self.line("")? } else { self.line(format_args!("    {line}"))? }
        }
        Ok(())
    }

    /// A figure for the JSON object.
    pub fn figure(&mut self, name: &'static str, value: u64) {
        self.figures.push((name, value));
    }

    /// Counts a check that passed, or fails with what was wrong.
    pub fn check(&mut self, passed: bool, wrong: impl FnOnce() -> String) -> Result<()> {
        if !passed {
            return Err(Failure::Check(wrong()));
        }
        self.checks += 1;
        Ok(())
    }

    /// Checks passed so far.
    pub fn checks(&self) -> u64 {
        self.checks
    }

    /// Ends the tour: the JSON object, if wanted.
    pub fn finish(&mut self) -> Result<()> {
        if self.json {
            self.figure("checks", self.checks);
            let figures: Vec<String> =
                self.figures.iter().map(|(name, value)| format!(r#""{name}":{value}"#)).collect();
            self.print(format_args!("{{{}}}", figures.join(",")))?;
        }
        Ok(())
    }

    fn bold(&mut self, text: &str) -> Result<()> {
        if self.style { self.line(format_args!("\x1b[1m{text}\x1b[0m")) } else { self.line(text) }
    }

    fn print(&mut self, text: impl Display) -> Result<()> {
        let Some(out) = &mut self.out else { return Ok(()) };
        match out.line(text).and_then(|()| out.flush()) {
            Err(Failure::OutputClosed) => {
                self.out = None;
                Ok(())
            }
            printed => printed,
        }
    }
}
