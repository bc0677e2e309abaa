//! The run process alone, as the tests of this crate start it: `--slot-fd N --slot-dir DIR`, then
//! optionally `--prestart NODE VERSION`, `--run-log FILE` and `--time-scale DIVISOR`.

use std::process::ExitCode;

use trestle_runtime::{RunArgs, Timing};
use trestle_sandbox::slot::NodeRuntime;

fn main() -> ExitCode {
    match arguments(std::env::args().skip(1)) {
        Some(arguments) => trestle_runtime::run(arguments),
        None => ExitCode::from(2),
    }
}

fn arguments(mut words: impl Iterator<Item = String>) -> Option<RunArgs> {
    let mut slot_fd = None;
    let mut slot_dir = None;
    let mut prestart = None;
    let mut timing = Timing::default();
    let mut run_log = None;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--slot-fd" => slot_fd = Some(words.next()?.parse().ok()?),
            "--slot-dir" => slot_dir = Some(words.next()?.into()),
            "--prestart" => {
                prestart = Some(NodeRuntime { path: words.next()?.into(), version: words.next()? })
            }
            "--run-log" => run_log = Some(words.next()?.into()),
            "--time-scale" => timing = Timing::scaled(words.next()?.parse().ok()?),
            _ => return None,
        }
    }
    Some(RunArgs { slot_fd: slot_fd?, slot_dir: slot_dir?, prestart, run_log, timing })
}
