//! The shape of a keyspace's tree, table by table.
//!
//! Place: `Keyspace::levels`. Tests: tests/sizes.rs, the command's.

use crossbeam_epoch as epoch;

use crate::layout;
use crate::table::inspect::TableInfo;

use super::keyspace::KeyspaceState;

/// One level of a keyspace, table by table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LevelInfo {
    /// Its tables: at level 0 newest first, below in the order of their keys.
    pub tables: Vec<TableInfo>,
    /// Bytes that it may hold before it is merged into the next; 0 where tables or runs count: at level 0, and in tiers.
    pub target_bytes: u64,
    /// Tables that it may hold before it is merged; 0 below level 0, where bytes count.
    pub target_tables: usize,
    /// What it holds by what it may hold, in a tier the runs of the tier: from 1 on a merge is due, unless no deeper level has
    /// anything.
    pub score: f64,
}

pub(crate) fn levels(keyspace: &KeyspaceState) -> Vec<LevelInfo> {
    let levels = keyspace.current.load(&epoch::pin()).levels.clone();
    let options = keyspace.options();
    let info = |level: usize| {
        let (target_bytes, score) = layout::pressure_of(&levels, &options, level);
        LevelInfo {
            tables: levels.level(level).iter().map(|table| TableInfo::of(table.meta())).collect(),
            target_bytes,
            target_tables: if level == 0 { options.level0_trigger() } else { 0 },
            score,
        }
    };
    (0..levels.depth()).map(info).collect()
}
