use std::path::PathBuf;

use trestle_sandbox::slot::NodeRuntime;

use crate::timing::Timing;

/// What a run process is started with. Nothing here is secret: arguments can be read by others.
#[derive(Debug, Clone)]
pub struct RunArgs {
    /// Number of the inherited socket that leads to the runner.
    pub slot_fd: i32,
    /// A private directory for everything that belongs to this process; the runner removes it.
    pub slot_dir: PathBuf,
    /// Starts this interpreter before there is a run.
    pub prestart: Option<NodeRuntime>,
    /// Shows the run in this file as it works; a relative name lies in `slot_dir` and goes away with it.
    pub run_log: Option<PathBuf>,
    /// Intervals and deadlines.
    pub timing: Timing,
}
