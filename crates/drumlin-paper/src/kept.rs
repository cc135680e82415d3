//! Raw points in a file: what a picture and a verdict can be made of again.
//!
//! Place: written by the command line for each figure: first how it was measured, then a line for each point.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use drumlin_bench::engine::Result;
use drumlin_bench::machine::Machine;
use serde_json::json;

use crate::figure::Figure;
use crate::lab::Setting;
use crate::point::Point;

/// A file that is being written.
pub struct Kept {
    path: PathBuf,
    file: BufWriter<fs::File>,
}

impl Kept {
    /// Begins the file of a figure in `directory`, which is made if it is missing. What was kept of it before goes.
    pub fn begin(directory: &Path, figure: &Figure, setting: &Setting, machine: &Machine) -> Result<Kept> {
        let path = directory.join(format!("{}.jsonl", figure.file()));
        let told = |e: std::io::Error| format!("write {}: {e}", path.display());
        fs::create_dir_all(directory).map_err(told)?;
        let mut file = BufWriter::new(fs::File::create(&path).map_err(told)?);
        let head = json!({
            "paper": figure.paper, "figure": figure.number, "shows": figure.shows, "differs": figure.differs,
            "setting": setting, "machine": machine.to_json(), "version": env!("CARGO_PKG_VERSION"),
        });
        writeln!(file, "{head}").map_err(told)?;
        Ok(Kept { path, file })
    }

    /// Adds a point of a round.
    pub fn add(&mut self, round: u32, point: &Point) -> Result<()> {
        let told = |e: std::io::Error| format!("write {}: {e}", self.path.display());
        let mut line = json!(point);
        line["round"] = json!(round);
        writeln!(self.file, "{line}").map_err(told)?;
        // Whoever interrupts keeps what was measured.
        self.file.flush().map_err(told)?;
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
