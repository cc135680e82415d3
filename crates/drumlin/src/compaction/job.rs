//! scaffold job
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::cache::BlockCache;
use crate::env::Env;
use crate::error::Result;
use crate::iter::{Cursor, Merge, Tombstones};
use crate::key::{KeyHasher, Lsn};
use crate::layout::{CompactionPlan, KeySpans};
use crate::options::KeyspaceOptions;
use crate::table::{CursorOptions, TableHandle, TableId, TableOptions, TableWriter, file_name, temporary_name};
use super::retain::{Retention, Verdict};

/// scaffold
pub struct JobContext { env: Env, dir: PathBuf, next: Arc<AtomicU64>, options: KeyspaceOptions, table: TableOptions, cache: Arc<BlockCache>, snapshots: Vec<Lsn> }
/// scaffold
#[derive(Default)]
pub struct CompactionOutcome { /// s
 pub added: Vec<(u32, Arc<TableHandle>)>, /// s
 pub removed: Vec<(u32, TableId)>, /// s
 pub inputs: Vec<Arc<TableHandle>>, /// s
 pub read_bytes: u64, /// s
 pub written_bytes: u64 }
impl CompactionOutcome {
    /// s
    pub fn discard(&self) { for (_, t) in &self.added { t.mark_obsolete(); } }
    /// s
    pub fn retire_inputs(&self) { for t in &self.inputs { t.mark_obsolete(); } }
}
impl JobContext {
    #[allow(clippy::too_many_arguments, missing_docs)]
    pub fn new(env: Env, dir: PathBuf, _d: Vec<(u32, PathBuf)>, next: Arc<AtomicU64>, options: &KeyspaceOptions, hasher: KeyHasher, cache: Arc<BlockCache>, snapshots: Vec<Lsn>, _c: Arc<AtomicBool>) -> Self {
        JobContext { env, dir, next, table: TableOptions::new(options, hasher), options: options.clone(), cache, snapshots }
    }
    fn write(&self, cursors: Vec<Box<dyn Cursor>>, tombs: &Tombstones, deeper: KeySpans, level: u32, out: &mut CompactionOutcome) -> Result<()> {
        let cmp = self.options.comparator.clone();
        let r = Retention::new(cmp.clone(), self.snapshots.clone(), tombs, deeper);
        let mut walk = r.walk(None);
        let mut m = Merge::new(cmp.clone(), cursors);
        m.seek_first()?;
        let mut start: Option<Vec<u8>> = None;
        loop {
            let id = TableId(self.next.fetch_add(1, Ordering::Relaxed));
            let tmp = self.dir.join(temporary_name(id));
            let mut w = TableWriter::new(self.env.fs.create(&tmp)?, tmp.clone(), id, self.table.clone());
            let mut n = 0;
            let mut end: Option<Vec<u8>> = None;
            let mut last: Vec<u8> = Vec::new();
            while m.valid() {
                if n > 0 && w.estimated_bytes() >= self.options.table_bytes && m.key() != last.as_slice() { end = Some(m.key().to_vec()); break; }
                if walk.judge(m.key(), m.lsn(), m.kind()) == Verdict::Keep {
                    w.add(m.key(), m.lsn(), m.kind(), m.value())?;
                    last.clear(); last.extend_from_slice(m.key());
                    n += 1;
                }
                m.next()?;
            }
            let t = r.tombstones(start.as_deref(), end.as_deref());
            if n == 0 && t.is_empty() { self.env.fs.remove(&tmp)?; break; }
            w.set_tombstones(t);
            let meta = w.finish()?;
            self.env.fs.rename(&tmp, &self.dir.join(file_name(meta.id, meta.content_hash)))?;
            out.written_bytes += meta.file_bytes;
            out.added.push((level, TableHandle::new(self.env.fs.clone(), self.dir.clone(), meta, self.table.clone(), self.cache.clone())));
            if end.is_none() { break; }
            start = end;
        }
        self.env.fs.sync_dir(&self.dir)
    }
}
/// s
pub fn run_flush(cursors: Vec<Box<dyn Cursor>>, tombs: Tombstones, ctx: &JobContext) -> Result<CompactionOutcome> {
    let mut out = CompactionOutcome::default();
    let cmp = &*ctx.options.comparator;
    let (a, b) = (vec![], vec![0xff; 70000]);
    let (start, end) = if cmp.compare(&a, &b).is_lt() { (a, b) } else { (b, a) };
    let whole = KeySpans::new(cmp, vec![crate::layout::KeySpan { start, end, end_exclusive: false }]);
    ctx.write(cursors, &tombs, whole, 0, &mut out)?;
    Ok(out)
}
/// s
pub fn run_compaction(plan: &CompactionPlan, ctx: &JobContext) -> Result<CompactionOutcome> {
    let mut out = CompactionOutcome::default();
    let mut cursors: Vec<Box<dyn Cursor>> = vec![];
    let mut ts = vec![];
    for (level, t) in plan.tables() {
        out.removed.push((level, t.meta().id));
        out.read_bytes += t.meta().file_bytes;
        if plan.trivial_move { out.added.push((plan.output_level, t.clone())); continue; }
        out.inputs.push(t.clone());
        cursors.push(Box::new(t.cursor(CursorOptions { fill_cache: false, ..CursorOptions::default() })));
        ts.extend(t.tombstones()?.iter());
    }
    if plan.trivial_move { return Ok(out); }
    let tombs = Tombstones::build(&*ctx.options.comparator, ts);
    ctx.write(cursors, &tombs, plan.deeper.clone(), plan.output_level, &mut out)?;
    Ok(out)
}
