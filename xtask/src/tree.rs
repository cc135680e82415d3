//! The repository as files: where it is, where builds go, what belongs to it.
//!
//! Place: used by every command. Nothing here writes, except `write_if_changed`.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository: the parent of this crate, or of the copy it was started in.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies one level below the root").to_path_buf()
}

/// Where cargo puts what it builds.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Every file of the tree, relative to `root`, sorted; build outputs and version control left out.
pub fn files(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(dir) = open.pop() {
        let at = root.join(&dir);
        for entry in fs::read_dir(&at).map_err(|e| format!("list {}: {e}", at.display()))? {
            let entry = entry.map_err(|e| format!("list {}: {e}", at.display()))?;
            let name = entry.file_name();
            let kind = entry.file_type().map_err(|e| format!("inspect {}: {e}", entry.path().display()))?;
            let path = dir.join(&name);
            if kind.is_dir() {
                if !matches!(name.to_str(), Some("target" | ".git" | "drumlin-tour")) {
                    open.push(path);
                }
            } else if kind.is_file() && name != ".git" {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Reads a text file; the error names it.
pub fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("read {}: {e}", path.display()))
}

/// Writes a file unless it holds exactly these bytes already, so that cargo sees real changes only.
pub fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(|e| format!("create {}: {e}", dir.display()))?;
    }
    fs::write(path, bytes).map_err(|e| format!("write {}: {e}", path.display()))
}
