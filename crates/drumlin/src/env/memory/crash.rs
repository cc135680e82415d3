//! Clones of the in-memory file system as after a crash.
//!
//! Place: `MemFs::crash_clone` and its relatives, called by crash tests, also from hooks and
//! beside running writers.
//!
//! A power loss asks about every change that no sync has covered, in this order:
//! 1. each pending change of a name, oldest first;
//! 2. of each file that then has a reachable name, in the order of the names: each page that
//!    differs from the medium's, ascending, and last its length, if the pages kept do not settle it.
//!
//! Invariants:
//! 1. All `Keep::No` gives exactly what was synced; all `Keep::Whole` exactly what is.
//! 2. The answers, not the way the pages came about, decide: mapped and appended pages are alike.
//! 3. In the clone everything is durable (power loss), or what was (crash of the process).

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::super::PAGE_BYTES;
use super::MemFs;
use super::content::{Content, page_bytes, same_page};
use super::inode::{FileState, Inode};
use super::names::{Change, NameMap, Names, Node, drop_unreachable};
use parking_lot::Mutex;

/// Bytes of a sector, the unit in which a device may reorder the parts of a torn page.
const SECTOR_BYTES: usize = PAGE_BYTES / 8;

/// Something that no sync has covered, about which a power loss decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageAt<'a> {
    /// The file or directory; for pages and lengths the name it has after the loss.
    pub path: &'a Path,
    /// What is unsynced of it.
    pub change: Unsynced<'a>,
}

/// The kinds of unsynced change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsynced<'a> {
    /// A page that differs from the one on the medium.
    Page {
        /// Its number, from 0.
        index: u64,
        /// True if the file is mapped now.
        mapped: bool,
    },
    /// The file's length, where the pages kept leave it open.
    Length {
        /// The length that the medium and the pages kept give.
        kept: u64,
        /// The length now.
        now: u64,
    },
    /// The name was made for a new file or directory.
    Created,
    /// The name was given to a file that had another.
    RenamedFrom(&'a Path),
    /// The name was removed.
    Removed,
}

/// What a power loss does with an unsynced change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// Lost.
    No,
    /// Kept.
    Whole,
    /// The first so many bytes of the page are kept, of the rest the medium's. A growing length
    /// grows by so many bytes at most. Names are kept whole.
    Torn(usize),
    /// Those eighths of the page are kept whose bit is set, from bit 0 for the first. For lengths
    /// and names: `Whole`, if any bit is set.
    Sectors(u8),
}

impl Keep {
    /// The answer for what has no parts.
    fn keeps_name(self) -> bool {
        !matches!(self, Keep::No | Keep::Sectors(0))
    }

    /// Mixes a page and counts the bytes up to the last one kept.
    fn mix(self, new: &[u8; PAGE_BYTES], old: &[u8; PAGE_BYTES]) -> ([u8; PAGE_BYTES], usize) {
        let mut page = *old;
        let mut end = 0;
        match self {
            Keep::No => {}
            Keep::Whole => {
                page = *new;
                end = PAGE_BYTES;
            }
            Keep::Torn(bytes) => {
                end = bytes.min(PAGE_BYTES);
                page[..end].copy_from_slice(&new[..end]);
            }
            Keep::Sectors(mask) => {
                for sector in (0..8).filter(|sector| mask >> sector & 1 == 1) {
                    let part = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
                    page[part.clone()].copy_from_slice(&new[part.clone()]);
                    end = part.end;
                }
            }
        }
        (page, end)
    }
}

/// Asked about every unsynced change.
type Judge<'a> = &'a mut dyn FnMut(PageAt<'_>) -> Keep;

/// A file as it was at the moment of the clone.
struct Frozen {
    state: FileState,
    mapped: bool,
}

/// Everything at one moment, with files known by the address of their inode.
struct FrozenWorld {
    names: Names,
    files: HashMap<*const Inode, Frozen>,
    capacity: Option<u64>,
    boot_id: [u8; 16],
}

impl MemFs {
    /// The file system after a power loss now, with a new boot id: what was synced, and of every
    /// unsynced change what `keep` says. The clone has this one's capacity, no hooks and no locks.
    pub fn crash_clone(&self, keep: &mut dyn FnMut(PageAt<'_>) -> Keep) -> Arc<MemFs> {
        let frozen = self.freeze();
        let mut names = frozen.names.durable;
        for change in &frozen.names.pending {
            let kind = match change {
                Change::Create { .. } => Unsynced::Created,
                Change::Rename { from, .. } => Unsynced::RenamedFrom(from),
                Change::Remove { .. } => Unsynced::Removed,
            };
            if keep(PageAt { path: change.path(), change: kind }).keeps_name() {
                change.apply(&mut names);
            }
        }
        drop_unreachable(&mut names);
        for (path, node) in &mut names {
            if let Node::File(inode) = node {
                let content = survive(path, &frozen.files[&Arc::as_ptr(inode)], keep);
                *node = Node::File(Arc::new(Inode::durable(content)));
            }
        }
        let boot_id = u128::from_le_bytes(frozen.boot_id).wrapping_add(1).to_le_bytes();
        MemFs::with(Names::all_durable(names), frozen.capacity, boot_id)
    }

    /// A power loss in which each unsynced change is kept with probability `keep`, and some pages
    /// are torn. 0 keeps what was synced, 1 keeps everything. The same seed on the same state
    /// gives the same clone.
    pub fn crash_clone_random(&self, seed: u64, keep: f64) -> Arc<MemFs> {
        let mut state = seed;
        let mut next = move || {
            // SplitMix64: a counter stepped by the golden ratio, then mixed.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = state;
            word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ word >> 31
        };
        // Half of the smaller share goes to torn pages, taken evenly from kept and lost.
        let torn = keep.min(1.0 - keep).max(0.0) / 2.0;
        self.crash_clone(&mut move |at| {
            let draw = (next() >> 11) as f64 / (1u64 << 53) as f64;
            let way = next();
            let is_page = matches!(at.change, Unsynced::Page { .. });
            if is_page && (draw - keep).abs() < torn {
                if way & 1 == 0 {
                    Keep::Torn((way >> 1) as usize % PAGE_BYTES)
                } else {
                    Keep::Sectors((way >> 1) as u8)
                }
            } else if draw < keep {
                Keep::Whole
            } else {
                Keep::No
            }
        })
    }

    /// The file system after a crash of the process now: everything written is there, synced or
    /// not as before, under the same boot id. The clone has this one's capacity, no hooks and no
    /// locks.
    pub fn process_crash_clone(&self) -> Arc<MemFs> {
        let frozen = self.freeze();
        let mut files: HashMap<*const Inode, Arc<Inode>> = HashMap::new();
        for (address, frozen) in frozen.files {
            files.insert(address, Arc::new(Inode { state: Mutex::new(frozen.state) }));
        }
        let moved = |node: Node| match node {
            Node::Dir => Node::Dir,
            Node::File(inode) => Node::File(files[&Arc::as_ptr(&inode)].clone()),
        };
        let move_map = |map: NameMap| map.into_iter().map(|(path, node)| (path, moved(node))).collect();
        let move_change = |change| match change {
            Change::Create { path, node } => Change::Create { path, node: moved(node) },
            Change::Rename { from, to, node } => Change::Rename { from, to, node: moved(node) },
            Change::Remove { path } => Change::Remove { path },
        };
        let names = Names {
            current: move_map(frozen.names.current),
            durable: move_map(frozen.names.durable),
            pending: frozen.names.pending.into_iter().map(move_change).collect(),
        };
        MemFs::with(names, frozen.capacity, frozen.boot_id)
    }

    /// Copies names, and of files the lists of pages, at one moment; mapped files from the last
    /// name to the first, for the reason that `FileState::pull` gives.
    fn freeze(&self) -> FrozenWorld {
        let world = self.shared.world.lock();
        let names = world.names.clone();
        let pending = names.pending.iter().filter_map(|change| match change {
            Change::Create { node, .. } | Change::Rename { node, .. } => Some(node),
            Change::Remove { .. } => None,
        });
        let mut files: HashMap<*const Inode, Frozen> = HashMap::new();
        for node in names.current.values().rev().chain(names.durable.values()).chain(pending) {
            if let Node::File(inode) = node {
                files.entry(Arc::as_ptr(inode)).or_insert_with(|| freeze_file(inode));
            }
        }
        FrozenWorld { files, capacity: world.capacity, boot_id: self.shared.boot_id, names }
    }
}

fn freeze_file(inode: &Inode) -> Frozen {
    let mut state = inode.state.lock();
    state.pull_all();
    let copy = FileState {
        current: state.current.clone(),
        durable: state.durable.clone(),
        lost: state.lost.clone(),
        ..FileState::default()
    };
    Frozen { state: copy, mapped: state.mapping.is_some() }
}

/// What a power loss leaves of a file.
fn survive(path: &Path, file: &Frozen, keep: Judge<'_>) -> Content {
    let FileState { current, durable, .. } = &file.state;
    let mut content = durable.clone();
    if current.is_same(durable) {
        return content;
    }
    for index in 0..current.pages() {
        let (new, old) = (current.page(index), durable.page(index));
        if same_page(new, old) {
            continue;
        }
        let change = Unsynced::Page { index: index as u64, mapped: file.mapped };
        let answer = keep(PageAt { path, change });
        let (page, kept) = answer.mix(page_bytes(new), page_bytes(old));
        if kept == 0 {
            continue;
        }
        // A kept page takes the file's length along, as far as the file reaches into the page.
        let start = (index * PAGE_BYTES) as u64;
        let end = (start + kept as u64).min(current.bytes());
        if end > content.bytes() {
            content.set_bytes(end);
        }
        content.set_page(index, Some(Arc::new(page)));
    }
    let (kept, now) = (content.bytes(), current.bytes());
    if kept != now {
        let length = match keep(PageAt { path, change: Unsynced::Length { kept, now } }) {
            Keep::No | Keep::Sectors(0) => kept,
            Keep::Torn(bytes) if now > kept => now.min(kept + bytes as u64),
            Keep::Torn(_) => kept,
            Keep::Whole | Keep::Sectors(_) => now,
        };
        content.set_bytes(length);
    }
    content
}
