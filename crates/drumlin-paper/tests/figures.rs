//! Every figure is measured at a size at which it means nothing, and judged, kept and drawn.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use std::collections::HashSet;

use drumlin_bench::drive::Progress;
use drumlin_bench::machine::Machine;
use drumlin_paper::claim::Verdict;
use drumlin_paper::kept::Kept;
use drumlin_paper::lab::{Lab, Setting};
use drumlin_paper::point::{Curves, Point};
use drumlin_paper::{chart, figures, table};

fn setting() -> Setting {
    let (threads, sizes) = (vec![1, 4], vec![16]);
    Setting { scale: 1e-6, seconds: 0.02, rounds: 1, seed: 1, touch: 0, threads, sizes, cores: 2 }
}

#[test]
fn every_figure_is_measured_judged_kept_and_drawn() {
    let setting = setting();
    let scratch = tempfile::tempdir().expect("a directory");
    let watch = |_: &str, _: &str, _: u64, _: &Progress| {};
    let lab = Lab { setting: &setting, scratch: scratch.path(), peers: None, watch: &watch };
    let machine = Machine::here(scratch.path()).expect("it is known");
    let out = scratch.path().join("out");
    for figure in figures() {
        let mut kept = Kept::begin(&out, figure, &setting, &machine).expect("it is begun");
        let mut points = Vec::new();
        (figure.measure)(&lab, &mut |point: Point| {
            kept.add(1, &point)?;
            points.push(point);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{}: {error}", figure.file()));
        assert!(
            points.iter().all(|point| point.x > 0.0 && point.y >= 0.0 && point.y.is_finite()),
            "{}: {points:?}",
            figure.file()
        );
        let curves = Curves::of(&points);
        for claim in figure.claims {
            let verdict = claim.judge(&curves, setting.cores);
            let may_be_left = ["was measured", "took no part", "cores", "not measured with"];
            if let Verdict::NotJudged(why) = &verdict {
                assert!(may_be_left.iter().any(|part| why.contains(part)), "{}: {why}", figure.file());
            }
        }
        let table = table::table(figure, &curves);
        assert!(table.lines().next().is_some_and(|row| row.contains(figure.x.says)), "{table}");
        assert!(chart::svg(figure, &curves).contains("<polyline"));
        let text = std::fs::read_to_string(kept.path()).expect("it is kept");
        let mut lines = text.lines();
        assert!(lines.next().is_some_and(|head| head.contains(figure.number)));
        let read: Vec<Point> = lines.map(|line| serde_json::from_str(line).expect("a point")).collect();
        assert_eq!(read, points);
    }
    let kept = std::fs::read_dir(&out).expect("there").count();
    assert_eq!(kept, figures().count(), "each figure has a file of its own");
    assert_eq!(std::fs::read_dir(scratch.path()).expect("there").count(), 1, "stores are removed");
}

#[test]
fn every_figure_has_a_name_of_its_own() {
    let names: Vec<String> = figures().map(|figure| figure.file()).collect();
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
}
