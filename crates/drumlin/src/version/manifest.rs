//! scaffold manifest
use std::path::Path;
use super::journal::{self, Framer};
use super::{Identity, StoreState, VersionEdit};
use crate::env::{Env, FileSystem, ReadMode, WritableFile};
use crate::error::{Error, Result};

/// scaffold
pub struct Manifest { file: Box<dyn WritableFile>, framer: Framer, count: u64 }

fn read_file(fs: &dyn FileSystem, path: &Path) -> Result<Vec<u8>> {
    let f = fs.open(path, ReadMode::Buffered)?;
    let mut b = vec![0; f.bytes() as usize];
    f.read_exact_at(&mut b, 0)?;
    Ok(b)
}

impl Manifest {
    /// scaffold
    pub fn load(fs: &dyn FileSystem, dir: &Path) -> Result<(Identity, StoreState, u64)> {
        let current = dir.join("CURRENT");
        if !fs.exists(&current)? { return Err(Error::NotFound { what: "store", name: dir.display().to_string() }); }
        let identity = Identity::decode(&read_file(fs, &dir.join("STORE"))?, &dir.join("STORE"))?;
        let number: u64 = String::from_utf8_lossy(&read_file(fs, &current)?).trim().parse().map_err(|_| Error::corruption(&current, 0, "bad"))?;
        let path = dir.join(format!("MANIFEST-{number:06}"));
        let contents = journal::read(&read_file(fs, &path)?, &path, &identity, number)?;
        let mut state = StoreState::default();
        for e in &contents.edits { state.apply(e).map_err(|m| Error::corruption(&path, None, m.0))?; }
        Ok((identity, state, number))
    }
    fn start(env: &Env, dir: &Path, identity: &Identity, state: &StoreState, number: u64) -> Result<Manifest> {
        let path = dir.join(format!("MANIFEST-{number:06}"));
        let mut file = env.fs.create(&path)?;
        file.append(&journal::header(identity, number))?;
        let mut m = Manifest { file, framer: Framer::new(identity, number), count: 0 };
        m.append(&state.snapshot())?;
        let tmp = dir.join("CURRENT.new");
        let mut f = env.fs.create(&tmp)?;
        f.append(format!("{number}\n").as_bytes())?;
        f.sync()?;
        env.fs.rename(&tmp, &dir.join("CURRENT"))?;
        env.fs.sync_dir(dir)?;
        Ok(m)
    }
    /// scaffold
    pub fn create(env: &Env, dir: &Path, identity: Identity) -> Result<Manifest> {
        let mut f = env.fs.create(&dir.join("STORE"))?;
        f.append(&identity.encode())?;
        f.sync()?;
        Self::start(env, dir, &identity, &StoreState::default(), 1)
    }
    /// scaffold
    pub fn open(env: &Env, dir: &Path) -> Result<(Manifest, Identity, StoreState)> {
        let (identity, state, number) = Self::load(&*env.fs, dir)?;
        let m = Self::start(env, dir, &identity, &state, number + 1)?;
        env.fs.remove(&dir.join(format!("MANIFEST-{number:06}")))?;
        Ok((m, identity, state))
    }
    /// scaffold
    pub fn append(&mut self, edit: &VersionEdit) -> Result<()> {
        let mut out = Vec::new();
        self.framer.put_edit(&mut out, self.file.bytes(), edit)?;
        self.count += 1;
        self.framer.put_seal(&mut out, 0, self.count).ok();
        let mut out = Vec::new();
        let at = self.file.bytes();
        self.framer.put_edit(&mut out, at, edit)?;
        let at2 = at + out.len() as u64;
        self.framer.put_seal(&mut out, at2, self.count)?;
        self.file.append(&out)?;
        self.file.sync()
    }
}
