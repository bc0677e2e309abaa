//! The socket to the runner: one assignment in, reports out, and its end as the sign that the runner is
//! gone.

use std::io;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use trestle_sandbox::slot::{Assignment, SlotCommand, SlotOutcome, SlotReader, SlotReport, SlotWriter};

use crate::abort::{Abort, AbortReason};

/// The way to the runner. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Reports {
    queue: mpsc::UnboundedSender<SlotReport>,
}

impl Reports {
    /// Reports something. The runner may be gone; whoever watches the other direction finds out.
    pub(crate) fn send(&self, report: SlotReport) {
        let _ = self.queue.send(report);
    }
}

/// Writes reports in their order.
#[derive(Debug)]
pub(crate) struct ReportWriter {
    reports: Reports,
    task: JoinHandle<()>,
}

impl ReportWriter {
    pub(crate) fn start(mut writer: SlotWriter) -> Self {
        let (queue, mut waiting) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            while let Some(report) = waiting.recv().await {
                let is_last = matches!(report, SlotReport::Exited { .. });
                if writer.send(&report).await.is_err() || is_last {
                    return;
                }
            }
        });
        Self { reports: Reports { queue }, task }
    }

    pub(crate) fn reports(&self) -> Reports {
        self.reports.clone()
    }

    /// Tells how the run ended and waits until everything is written.
    pub(crate) async fn finish(self, outcome: SlotOutcome) {
        self.reports.send(SlotReport::Exited { outcome });
        let _ = self.task.await;
    }
}

/// Waits for the assignment; `None` when the runner is gone or does not need this process any more.
pub(crate) async fn assignment(reader: &mut SlotReader) -> io::Result<Option<Assignment>> {
    match reader.next::<SlotCommand>().await? {
        Some(SlotCommand::Assign(assignment)) => Ok(Some(*assignment)),
        None => Ok(None),
    }
}

/// Ends the run when the runner is gone.
pub(crate) async fn watch_runner(mut reader: SlotReader, abort: Abort) {
    loop {
        match reader.next::<SlotCommand>().await {
            Ok(Some(_)) => tracing::warn!("a second assignment was ignored"),
            Ok(None) | Err(_) => {
                abort.request(AbortReason::RunnerGone);
                return;
            }
        }
    }
}
