//! Names of the in-memory file system: those now, those on the medium, and the changes between.
//!
//! Place: held by `memory::World`.
//!
//! Invariants:
//! 1. `current` = `durable` with every change of `pending` applied in order.
//! 2. Any subset of `pending`, in order, gives a possible state after a power loss. A rename is
//!    kept whole or not at all, and a file never ends with two names.
//! 3. A change leaves `pending` when the directory of the name it makes or removes is synced; the
//!    other changes stay, in order.
//!
//! A directory is a name like any other: until its parent is synced, a power loss may take it
//! with all that is in it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::super::parent;
use super::inode::Inode;

/// What a name stands for.
#[derive(Clone)]
pub(super) enum Node {
    Dir,
    File(Arc<Inode>),
}

impl Node {
    pub(super) fn is_same_file(&self, other: &Node) -> bool {
        matches!((self, other), (Node::File(a), Node::File(b)) if Arc::ptr_eq(a, b))
    }
}

/// Names in order; the entries of a directory follow it.
pub(super) type NameMap = BTreeMap<PathBuf, Node>;

/// A change that no sync has covered yet.
#[derive(Clone)]
pub(super) enum Change {
    Create { path: PathBuf, node: Node },
    Rename { from: PathBuf, to: PathBuf, node: Node },
    Remove { path: PathBuf },
}

impl Change {
    /// The name it makes or removes.
    pub(super) fn path(&self) -> &Path {
        match self {
            Change::Create { path, .. } | Change::Remove { path } | Change::Rename { to: path, .. } => path,
        }
    }

    /// Carries it out on a map of names.
    pub(super) fn apply(&self, names: &mut NameMap) {
        match self {
            Change::Create { path, node } => {
                names.insert(path.clone(), node.clone());
            }
            Change::Rename { to, node, .. } => {
                names.retain(|_, other| !other.is_same_file(node));
                names.insert(to.clone(), node.clone());
            }
            Change::Remove { path } => {
                names.remove(path);
            }
        }
    }
}

/// All names.
#[derive(Clone)]
pub(super) struct Names {
    pub(super) current: NameMap,
    pub(super) durable: NameMap,
    pub(super) pending: Vec<Change>,
}

impl Names {
    /// The roots only: "/" and the empty path, above relative names.
    pub(super) fn new() -> Names {
        let roots: NameMap = ["/", ""].map(|root| (PathBuf::from(root), Node::Dir)).into();
        Names { current: roots.clone(), durable: roots, pending: Vec::new() }
    }

    /// Names that are all durable.
    pub(super) fn all_durable(names: NameMap) -> Names {
        Names { current: names.clone(), durable: names, pending: Vec::new() }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.pending.push(change);
    }

    pub(super) fn file(&self, path: &Path) -> Result<Arc<Inode>, ErrorKind> {
        match self.current.get(path) {
            Some(Node::File(inode)) => Ok(inode.clone()),
            Some(Node::Dir) => Err(ErrorKind::IsADirectory),
            None => Err(self.missing(path)),
        }
    }

    /// Why a path leads nowhere.
    fn missing(&self, path: &Path) -> ErrorKind {
        let is_file = |above: &Path| matches!(self.current.get(above), Some(Node::File(_)));
        if path.ancestors().any(is_file) { ErrorKind::NotADirectory } else { ErrorKind::NotFound }
    }

    pub(super) fn need_dir(&self, path: &Path) -> Result<(), ErrorKind> {
        match self.current.get(path) {
            Some(Node::Dir) => Ok(()),
            Some(Node::File(_)) => Err(ErrorKind::NotADirectory),
            None => Err(self.missing(path)),
        }
    }

    /// The file of this name, made if there is none; the flag says that it was.
    pub(super) fn file_or_new(&mut self, path: &Path) -> Result<(Arc<Inode>, bool), ErrorKind> {
        match self.file(path) {
            Err(ErrorKind::NotFound) => {}
            found => return Ok((found?, false)),
        }
        self.need_dir(parent(path))?;
        let inode = Arc::new(Inode::default());
        self.change(Change::Create { path: path.to_path_buf(), node: Node::File(inode.clone()) });
        Ok((inode, true))
    }

    pub(super) fn create_dir_all(&mut self, path: &Path) -> Result<(), ErrorKind> {
        let mut missing = Vec::new();
        for dir in path.ancestors() {
            match self.need_dir(dir) {
                Ok(()) => break,
                Err(ErrorKind::NotFound) => missing.push(dir),
                Err(kind) => return Err(kind),
            }
        }
        for dir in missing.into_iter().rev() {
            self.change(Change::Create { path: dir.to_path_buf(), node: Node::Dir });
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<(), ErrorKind> {
        self.need_dir(parent(from))?;
        self.need_dir(parent(to))?;
        let inode = self.file(from)?;
        if self.need_dir(to).is_ok() {
            return Err(ErrorKind::IsADirectory);
        }
        if from != to {
            let (from, to) = (from.to_path_buf(), to.to_path_buf());
            self.change(Change::Rename { from, to, node: Node::File(inode) });
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> Result<(), ErrorKind> {
        self.file(path)?;
        self.change(Change::Remove { path: path.to_path_buf() });
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) -> Result<(), ErrorKind> {
        self.need_dir(dir)?;
        let durable = &mut self.durable;
        self.pending.retain(|change| {
            let covered = parent(change.path()) == dir;
            if covered {
                change.apply(durable);
            }
            !covered
        });
        Ok(())
    }

    /// Puts a file under a name, durably, with the directories above it.
    pub(super) fn put_durable(&mut self, path: &Path, node: Node) -> Result<(), ErrorKind> {
        self.need_dir(parent(path))?;
        if self.need_dir(path).is_ok() {
            return Err(ErrorKind::IsADirectory);
        }
        self.change(Change::Create { path: path.to_path_buf(), node });
        for dir in path.ancestors().skip(1) {
            self.sync_dir(dir)?;
        }
        Ok(())
    }

    /// The entries of a directory, by name.
    pub(super) fn entries<'a>(&'a self, dir: &'a Path) -> impl Iterator<Item = (&'a Path, &'a Node)> {
        let below =
            self.current.range(dir.to_path_buf()..).take_while(move |(path, _)| path.starts_with(dir));
        below
            .map(|(path, node)| (path.as_path(), node))
            .filter(move |(path, _)| *path != dir && parent(path) == dir)
    }
}

/// Drops every name whose directory is not there.
pub(super) fn drop_unreachable(names: &mut NameMap) {
    let mut kept = NameMap::new();
    // A directory sorts before what is in it.
    for (path, node) in std::mem::take(names) {
        let is_root = path.parent().is_none();
        if is_root || matches!(kept.get(parent(&path)), Some(Node::Dir)) {
            kept.insert(path, node);
        }
    }
    *names = kept;
}

/// One spelling for every path: no ".", no "..", no doubled or trailing slash.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}
