//! A figure: what is measured for it, what it is drawn over, and what the paper says of it.
//!
//! Place: the tables `flodb` and `clsm` are made of them.

use drumlin_bench::engine::Result;

use crate::claim::Claim;
use crate::lab::Lab;
use crate::point::Point;

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from zero.
    Linear,
    /// Each step twice as far.
    Log2,
    /// Each step ten times as far.
    Log10,
}

/// An axis.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// What is told along it, with its unit.
    pub says: &'static str,
    /// How it is divided.
    pub scale: Scale,
}

/// Threads, doubled from one to the next.
pub(crate) const THREADS: Axis = Axis { says: "threads", scale: Scale::Log2 };
/// Memory components.
pub(crate) const SIZE: Axis = Axis { says: "memory component, MiB", scale: Scale::Log2 };
/// Rates of operations.
pub(crate) const RATE: Axis = Axis { says: "operations a second", scale: Scale::Linear };
/// Rates of keys that were put or met by scans.
pub(crate) const KEYS: Axis = Axis { says: "keys a second", scale: Scale::Linear };

/// Told of each point as it is measured.
pub type Tell<'a> = dyn FnMut(Point) -> Result<()> + 'a;

/// See the module.
#[derive(Debug)]
pub struct Figure {
    /// The paper's name on the command line.
    pub paper: &'static str,
    /// Its number there.
    pub number: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// What is not as it was there, beside the machine and the size of the data.
    pub differs: &'static str,
    /// Across.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Measures one round of it.
    pub measure: fn(&Lab<'_>, &mut Tell<'_>) -> Result<()>,
    /// What the paper says of it.
    pub claims: &'static [Claim],
}

impl Figure {
    /// What its files are called.
    pub fn file(&self) -> String {
        format!("{}-{}", self.paper, self.number)
    }
}
