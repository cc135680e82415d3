//! The commit protocol: who writes when, and what is complete.
//!
//! Place: below `log` and `db`. `log` reserves and marks through the [`Sequencer`]; `db` puts
//! the steps together into writes, batches, read-modify-writes and snapshots.
//!
//! The nouns:
//! - [`Sequencer`]: draws LSNs (log positions), knows the completed prefix P and the gate.
//! - `Slots`: one word per writing thread: what it has in flight.
//! - [`Stripes`]: the key locks. A key's LSN is drawn and its version published under its lock.
//! - `Snapshots`: the registered read points, and the one word that writers look at.
//!
//! Invariants (numbers as in docs/ARCHITECTURE.md; each is tested where it is named):
//! - **I1 Order.** Per key: lock order = LSN order = publish order. (`stripes`, `db::write`)
//! - **I4 Snapshots.** S is registered before its wait and given out once every LSN < S is
//!   installed; while a linearizable snapshot waits, no LSN ≥ S becomes visible. (`snapshots`)
//! - **P.** Every LSN below `completed()` is installed or a no-op, and P never falls. (`sequencer`)
//!
//! Waits go strictly down in LSN: a thread between its lower bound and IDLE waits only for smaller
//! LSNs (the gate) or for its own log segment to open, whose opener waits for nobody here. So there
//! is no cycle.
//!
//! Origin: cLSM §3.1-§3.3 (timestamps, Active set, snapshot choice), with its faults mended as
//! docs/papers/clsm.md tells.

mod sequencer;
mod slots;
mod snapshots;
mod stripes;

#[cfg(all(test, loom))]
mod loom_tests;

pub use sequencer::{InFlight, Sequencer};
pub use snapshots::Registration;
pub use stripes::Stripes;
