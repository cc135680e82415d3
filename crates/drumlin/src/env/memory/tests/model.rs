//! Random calls against a plain model that copies every byte: sharing of pages and the folding
//! of mapped memory must never show.

use std::collections::BTreeMap;

use super::*;
use crate::dice::Dice;
use crate::env::LogRegion;

/// A file of the model.
#[derive(Clone, Default)]
struct Plain {
    now: Vec<u8>,
    durable: Vec<u8>,
}

/// The model: what is, and what is on the medium. One directory.
#[derive(Clone, Default)]
struct Model {
    files: Vec<Plain>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
}

impl Model {
    fn now(&self) -> BTreeMap<String, Vec<u8>> {
        self.names.iter().map(|(name, file)| (name.clone(), self.files[*file].now.clone())).collect()
    }

    fn durable(&self) -> BTreeMap<String, Vec<u8>> {
        self.durable_names
            .iter()
            .map(|(name, file)| (name.clone(), self.files[*file].durable.clone()))
            .collect()
    }
}

fn all(fs: &MemFs) -> BTreeMap<String, Vec<u8>> {
    let files = fs.files().into_iter();
    files.map(|path| (path.to_str().unwrap().to_owned(), fs.contents(&path).unwrap())).collect()
}

/// One random history. Returns the number of calls that did something, by kind.
fn run(seed: u64) -> [u64; 8] {
    const LOG_BYTES: usize = 3 * PAGE_BYTES - 7;
    let mut random = Dice(seed);
    let mut fs = with_dir();
    let mut model = Model::default();
    let mut writers: BTreeMap<usize, Box<dyn crate::env::WritableFile>> = BTreeMap::new();
    let mut regions: BTreeMap<usize, Arc<dyn LogRegion>> = BTreeMap::new();
    let mut done = [0; 8];
    for step in 0..300 {
        let name = format!("db/{}", random.below(4));
        let path = Path::new(&name);
        let file = model.names.get(&name).copied();
        let fill = 1 + (step % 250) as u8;
        let kind = random.below(8) as usize;
        let did = match kind {
            0 => {
                // A mapped file is not created over: on a system that would be the end of its users.
                let is_mapped = file.is_some_and(|file| regions.contains_key(&file));
                if !is_mapped {
                    let writer = fs.create(path).unwrap();
                    let file = file.unwrap_or_else(|| {
                        model.files.push(Plain::default());
                        model.files.len() - 1
                    });
                    model.files[file].now.clear();
                    model.names.insert(name.clone(), file);
                    writers.insert(file, writer);
                }
                !is_mapped
            }
            1 => match writers.iter_mut().nth(random.below(4) as usize) {
                Some((file, writer)) if !regions.contains_key(file) => {
                    let bytes = vec![fill; random.below(6000) as usize];
                    writer.append(&bytes).unwrap();
                    model.files[*file].now.extend(bytes);
                    true
                }
                _ => false,
            },
            2 => match writers.iter_mut().nth(random.below(4) as usize) {
                Some((file, writer)) => {
                    writer.sync().unwrap();
                    let file = &mut model.files[*file];
                    file.durable = file.now.clone();
                    true
                }
                None => false,
            },
            3 => {
                if random.below(2) == 0 {
                    fs.sync_dir(Path::new("db")).unwrap();
                    model.durable_names = model.names.clone();
                } else if let Some(file) = file {
                    fs.remove(path).unwrap();
                    model.names.remove(&name);
                    writers.remove(&file);
                    regions.remove(&file);
                }
                true
            }
            4 => {
                let to = format!("db/{}", random.below(4));
                if let Some(file) = file {
                    fs.rename(path, Path::new(&to)).unwrap();
                    model.names.remove(&name);
                    model.names.insert(to, file);
                }
                file.is_some()
            }
            5 => {
                let file = file.unwrap_or_else(|| {
                    model.files.push(Plain::default());
                    model.files.len() - 1
                });
                model.names.insert(name.clone(), file);
                regions.insert(file, fs.map_log(path, LOG_BYTES).unwrap());
                model.files[file].now.resize(LOG_BYTES, 0);
                true
            }
            6 => match regions.iter().nth(random.below(4) as usize) {
                Some((file, region)) => {
                    let plain = &mut model.files[*file];
                    let start = random.below(LOG_BYTES as u64) as usize;
                    let end = (start + random.below(5000) as usize).min(LOG_BYTES);
                    if random.below(3) == 0 {
                        region.sync(start..end).unwrap();
                        plain.durable.resize(LOG_BYTES, 0);
                        let pages =
                            start / PAGE_BYTES * PAGE_BYTES..end.next_multiple_of(PAGE_BYTES).min(LOG_BYTES);
                        plain.durable[pages.clone()].copy_from_slice(&plain.now[pages]);
                    } else {
                        store(&**region, start, &vec![fill; end - start]);
                        plain.now[start..end].fill(fill);
                    }
                    true
                }
                None => false,
            },
            _ => {
                let crashes = random.below(3);
                if crashes == 0 {
                    // Go on in the clone, without the handles of the crashed process.
                    writers.clear();
                    regions.clear();
                    fs = fs.process_crash_clone();
                } else if crashes == 1 && !regions.is_empty() {
                    let file = *regions.keys().next().unwrap();
                    regions.remove(&file);
                }
                true
            }
        };
        done[kind] += u64::from(did);
        if step % 10 == 0 {
            assert_eq!(all(&fs), model.now(), "seed {seed} step {step}");
            assert_eq!(all(&fs.process_crash_clone()), model.now(), "seed {seed} step {step}");
            assert_eq!(all(&fs.crash_clone(&mut keep_all)), model.now(), "seed {seed} step {step}");
            assert_eq!(all(&fs.crash_clone(&mut lose_all)), model.durable(), "seed {seed} step {step}");
        }
    }
    done
}

#[test]
fn random_histories_agree_with_a_model_that_copies() {
    let mut done = [0; 8];
    for seed in 0..60 {
        for (total, part) in done.iter_mut().zip(run(seed)) {
            *total += part;
        }
    }
    assert!(done.iter().all(|count| *count > 300), "{done:?}");
}
