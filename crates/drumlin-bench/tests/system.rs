//! What went through files is what the system counts: alone in its process, of which the system counts all that is written.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod runs;

#[test]
fn what_went_through_files_is_what_the_system_counts() {
    let line = &runs::lines(&["--benchmarks", "fillrandom", "--num", "300000", "--memory", "16"])[0];
    let counted = line.write_amplification.expect("counted") * line.user_bytes as f64;
    // The system counts pages, and none of a file system in memory.
    let Some(device) = line.device_written.filter(|bytes| *bytes > 0) else { return };
    let times = device as f64 / counted;
    assert!((0.9..1.5).contains(&times), "{times}: {line:?}");
}
