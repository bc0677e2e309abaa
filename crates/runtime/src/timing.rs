use std::time::Duration;

use trestle_domain::CancelTimeline;

/// Every interval and deadline of a run process. Tests run at a fraction of the real times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// Deadline of one attempt of a control call, headers and body.
    pub request: Duration,
    /// Deadline of one attempt to renew the lease; several may be under way.
    pub renew: Duration,
    /// Deadline of one attempt to move a program or an artifact.
    pub bulk: Duration,
    /// Deadline of one attempt to connect.
    pub connect: Duration,
    /// Waits between the attempts of a control call, before jitter.
    pub retry_waits: Vec<Duration>,
    /// Longest wait that a `Retry-After` may ask for.
    pub retry_after_limit: Duration,
    /// Longest silence on an inference stream before it counts as broken.
    pub inference_idle: Duration,
    /// Longest silence of a provider that is called directly: it sends no signs of life.
    pub direct_idle: Duration,
    /// How long the server may hold `GET cancel` open; it answers at once when a cancel arrives.
    pub cancel_hold: Duration,
    /// Pause between two polls for a cancel when the server does not hold the request.
    pub cancel_poll: Duration,
    /// How long the server may hold `GET children/{id}` open.
    pub child_hold: Duration,
    /// Pause between two polls of a child when the server does not hold the request.
    pub child_poll: Duration,
    /// Pause between two credit polls.
    pub credit_poll: Duration,
    /// Pause between two usage reports.
    pub usage: Duration,
    /// Longest time a frame waits for company before it is sent.
    pub telemetry_window: Duration,
    /// Time a frame waits for company when nothing else is on its way.
    pub telemetry_idle: Duration,
    /// Longest wait for the delivery of late frames after finalize.
    pub telemetry_flush: Duration,
    /// Longest wait for the delivery of all frames before finalize, for a run that was cancelled. Other
    /// runs wait as long as the lease.
    pub telemetry_flush_aborted: Duration,
    /// Deltas of one block that arrive within this time become one frame.
    pub delta_window: Duration,
    /// How a cancelled program is ended.
    pub cancel: CancelTimeline,
    /// Longest time that a program may take to answer a tool call.
    pub tool_answer: Duration,
    /// Grace between TERM and KILL of a shell command whose time is over.
    pub shell_grace: Duration,
    /// Time for the rest of a pipe after the process that wrote it is gone.
    pub pipe_drain: Duration,
    /// Time for the interpreter to exit by itself after its result was accepted.
    pub program_exit: Duration,
    /// Pause between two looks at the compute budget while the program runs.
    pub budget_check: Duration,
    /// Longest pause between two attempts of finalize.
    pub finalize_backoff: Duration,
    /// How often the lease deadline is compared with the clock that runs while the machine sleeps.
    pub fence_check: Duration,
    /// Smallest safety margin before the end of the lease.
    pub fence_margin: Duration,
    /// Deadline of everything that happens after the runner is gone.
    pub runner_gone: Duration,
    /// Time for the release of a run on `SIGTERM`, after the program is gone.
    pub release: Duration,
    /// Time after which a run counts as settled: what only its start needed is given back.
    pub settled: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        let millis = Duration::from_millis;
        Self {
            request: seconds(30),
            renew: seconds(10),
            bulk: seconds(300),
            connect: seconds(10),
            retry_waits: trestle_domain::CONTROL_DELAYS_MS.map(Duration::from_millis).to_vec(),
            retry_after_limit: seconds(30),
            inference_idle: seconds(90),
            direct_idle: seconds(300),
            cancel_hold: seconds(25),
            cancel_poll: seconds(1),
            child_hold: seconds(20),
            child_poll: seconds(2),
            credit_poll: seconds(60),
            usage: seconds(60),
            telemetry_window: millis(200),
            telemetry_idle: millis(10),
            telemetry_flush: seconds(10),
            telemetry_flush_aborted: millis(500),
            delta_window: millis(50),
            cancel: CancelTimeline::default(),
            tool_answer: seconds(3_600),
            shell_grace: seconds(5),
            pipe_drain: seconds(1),
            program_exit: seconds(2),
            budget_check: seconds(1),
            finalize_backoff: seconds(10),
            fence_check: millis(500),
            fence_margin: seconds(5),
            runner_gone: millis(1_500),
            release: seconds(2),
            settled: millis(500),
        }
    }
}

impl Timing {
    /// All times divided by `divisor`, for tests; request deadlines keep a floor of half a second, so
    /// that a busy machine does not decide.
    #[must_use]
    pub fn scaled(divisor: u32) -> Self {
        let divisor = divisor.max(1);
        let real = Self::default();
        let cut = |time: Duration| time / divisor;
        let deadline = |time: Duration| (time / divisor).max(Duration::from_millis(500)).min(time);
        Self {
            request: deadline(real.request),
            renew: deadline(real.renew),
            // Bytes take the time that they take on a busy machine.
            bulk: cut(real.bulk).max(Duration::from_secs(60)).min(real.bulk),
            connect: deadline(real.connect),
            retry_waits: real.retry_waits.iter().map(|wait| *wait / divisor).collect(),
            retry_after_limit: cut(real.retry_after_limit),
            inference_idle: deadline(real.inference_idle),
            direct_idle: deadline(real.direct_idle),
            cancel_hold: cut(real.cancel_hold),
            cancel_poll: cut(real.cancel_poll),
            child_hold: cut(real.child_hold),
            child_poll: cut(real.child_poll),
            credit_poll: cut(real.credit_poll),
            usage: cut(real.usage),
            telemetry_window: cut(real.telemetry_window),
            telemetry_idle: cut(real.telemetry_idle),
            telemetry_flush: deadline(real.telemetry_flush),
            telemetry_flush_aborted: cut(real.telemetry_flush_aborted),
            delta_window: cut(real.delta_window),
            cancel: real.cancel.scaled(i64::from(divisor)),
            tool_answer: cut(real.tool_answer),
            shell_grace: cut(real.shell_grace),
            pipe_drain: deadline(real.pipe_drain),
            // A busy machine must not decide whether a program was through with printing.
            program_exit: real.program_exit,
            budget_check: cut(real.budget_check),
            finalize_backoff: cut(real.finalize_backoff),
            fence_check: cut(real.fence_check).max(Duration::from_millis(1)),
            fence_margin: cut(real.fence_margin),
            runner_gone: deadline(real.runner_gone),
            release: deadline(real.release),
            settled: cut(real.settled),
        }
    }
}
