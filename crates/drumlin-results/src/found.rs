//! Settings of other engines that the grid of an earlier measurement found.
//!
//! Place: `kept` takes them where they are asked for, so that figures of changed code need not try all settings of engines that
//! did not change.
//!
//! 1. Only of a run that was asked for by the same words: those that concern Drumlin alone may differ.
//! 2. Workloads with the same settings stay one piece; Drumlin goes through its own settings again.
//! 3. What the earlier grid said is kept with the new figures, with the commit that it was made by (`"from"`).

use serde_json::Value;

use crate::kept::Kept;

/// Words with a value behind them that do not change what other engines do.
const OURS: [&str; 3] = ["--touch", "--component", "--rounds"];

/// What other engines are asked to do by the command of a run.
fn asked(command: &str) -> Vec<&str> {
    let mut words = command.split(' ').filter(|word| !word.is_empty());
    // The program's name has changed once.
    words.next();
    let mut asked = Vec::new();
    while let Some(word) = words.next() {
        if OURS.contains(&word) {
            words.next();
        } else {
            asked.push(word);
        }
    }
    asked
}

/// The arguments of the pieces that make up run number `run`, whose command is `command`; none if the kept ones do not tell.
pub fn pieces(kept: &Kept, run: usize, command: &str, words: &[String]) -> Option<Vec<Vec<String>>> {
    let before = [&kept.head["asked"], &kept.head["commands"]].into_iter().find_map(|all| all.get(run))?;
    if asked(before.as_str()?) != asked(command) {
        return None;
    }
    let behind = |name: &str| words.iter().position(|word| word == name).map(|at| at + 1);
    let engines = words.get(behind("--engines")?)?.split(',').filter(|engine| *engine != "drumlin");
    let at = behind("--benchmarks")?;
    let mut groups: Vec<(Vec<&str>, Vec<String>)> = Vec::new();
    for workload in words.get(at)?.split(',') {
        let best = |engine: &str| {
            let told = kept.lines.iter().find(|line| {
                line["run"] == run
                    && line["engine"] == engine
                    && line["workload"] == workload
                    && line["best"].is_string()
            });
            told.and_then(|line| line["best"].as_str()).map(|best| format!("{engine}={best}"))
        };
        let settings: Vec<String> = engines.clone().filter_map(best).collect();
        match groups.iter_mut().find(|(_, others)| *others == settings) {
            Some((workloads, _)) => workloads.push(workload),
            None => groups.push((vec![workload], settings)),
        }
    }
    if groups.iter().all(|(_, settings)| settings.is_empty()) {
        return None;
    }
    let piece = |(workloads, settings): (Vec<&str>, Vec<String>)| {
        let mut words = words.to_vec();
        words[at] = workloads.join(",");
        words.extend(settings.into_iter().flat_map(|setting| ["--setting".to_string(), setting]));
        words
    };
    Some(groups.into_iter().map(piece).collect())
}

/// What the grid of run number `run` said of other engines.
pub fn told(kept: &Kept, run: usize) -> impl Iterator<Item = Value> {
    let others = |line: &&Value| {
        let ours = line["engine"].as_str().is_some_and(|engine| engine.eq_ignore_ascii_case("drumlin"));
        !ours && (line["grid"] == true || line["best"].is_string())
    };
    kept.lines.iter().filter(move |line| line["run"] == run).filter(others).map(|line| {
        let mut line = line.clone();
        if line["from"].is_null() {
            line["from"] = kept.head["commit"].clone();
        }
        line
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kept(command: &str) -> Kept {
        let best = |engine: &str, workload: &str, best: &str| json!({"run": 0, "engine": engine, "workload": workload, "best": best});
        Kept {
            head: json!({"commit": "old", "commands": [command]}),
            at: 0,
            lines: vec![
                json!({"run": 0, "engine": "RocksDB", "workload": "a", "grid": true, "rate": 1.0}),
                json!({"run": 0, "engine": "Drumlin", "workload": "a", "grid": true, "rate": 1.0}),
                json!({"run": 0, "engine": "RocksDB", "workload": "a", "rate": 1.0}),
                best("drumlin", "a", "flushed"),
                best("rocksdb", "a", "x, y"),
                best("rocksdb", "b", "z"),
                best("rocksdb", "c", "x, y"),
            ],
        }
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(String::from).collect()
    }

    #[test]
    fn workloads_with_the_same_settings_stay_together() {
        let kept = kept("peers --engines drumlin,rocksdb,lmdb --benchmarks a,b,c --component sorted");
        let now = "--engines drumlin,rocksdb,lmdb --benchmarks a,b,c --touch 7";
        let pieces =
            pieces(&kept, 0, &format!("drumlin-peers {now} --rounds 5"), &words(now)).expect("the same run");
        let [first, second] = &pieces[..] else { panic!("{pieces:?}") };
        assert_eq!(first[..6], words("--engines drumlin,rocksdb,lmdb --benchmarks a,c --touch 7")[..]);
        assert_eq!(first[6..], ["--setting".to_string(), "rocksdb=x, y".to_string()]);
        assert_eq!((second[3].as_str(), second[7].as_str()), ("b", "rocksdb=z"));
        let told: Vec<Value> = told(&kept, 0).collect();
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told.iter().all(|line| line["from"] == "old"));
    }

    #[test]
    fn another_run_tells_nothing() {
        let kept = kept("peers --engines drumlin,rocksdb --benchmarks a --num 10");
        for now in [
            "--engines drumlin,rocksdb --benchmarks a --num 11",
            "--engines drumlin,lmdb --benchmarks a --num 10",
        ] {
            assert_eq!(pieces(&kept, 0, &format!("peers {now}"), &words(now)), None, "{now}");
        }
        let now = "--engines drumlin,rocksdb --benchmarks a --num 10";
        assert!(pieces(&kept, 0, &format!("peers {now}"), &words(now)).is_some());
        assert_eq!(pieces(&kept, 1, &format!("peers {now}"), &words(now)), None);
    }
}
