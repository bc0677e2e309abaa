use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use trestle_contract::RunId;
use trestle_contract::event::{EventBody, EventFrame, StandardStream};
use trestle_domain::{ManualClock, Redactor};

use super::*;

fn emitter(directory: &std::path::Path, last: u64) -> Emitter {
    let run = RunId::new("01RUN").unwrap();
    Emitter::new(&run, last, Arc::new(ManualClock::new(1_000)), Redactor::default(), directory.into())
}

async fn flushed(emitter: &Emitter, within_ms: u64) -> bool {
    tokio::time::timeout(Duration::from_millis(within_ms), emitter.flushed()).await.is_ok()
}

fn line(text: &str) -> EventBody {
    EventBody::ProgramOutput { stream: StandardStream::Stdout, text: text.into() }
}

fn status(status: u16) -> ControlError {
    ControlError::Status { operation: "telemetry", status, body: None }
}

/// A server that answers as scripted, then well, and remembers what it stored.
#[derive(Default)]
struct Server {
    answers: Mutex<VecDeque<Result<(), ControlError>>>,
    /// Stores the frames although the answer is an error, as when the answer is lost.
    stores_failed: bool,
    refuses: Option<&'static str>,
    requests: Mutex<Vec<Vec<String>>>,
    stored: Mutex<Vec<String>>,
}

impl Server {
    async fn post(&self, frames: Vec<String>) -> Result<(), ControlError> {
        self.requests.lock().unwrap().push(frames.clone());
        if self.refuses.is_some_and(|text| frames.iter().any(|frame| frame.contains(text))) {
            return Err(status(413));
        }
        let answer = self.answers.lock().unwrap().pop_front().unwrap_or(Ok(()));
        if answer.is_ok() || self.stores_failed {
            let mut stored = self.stored.lock().unwrap();
            for frame in frames {
                if !stored.contains(&frame) {
                    stored.push(frame);
                }
            }
        }
        answer
    }

    fn cursors(&self) -> Vec<u64> {
        let stored = self.stored.lock().unwrap();
        stored.iter().map(|frame| EventFrame::parse_batch_element(frame).unwrap().0.cursor.get()).collect()
    }
}

async fn delivering<T>(
    emitter: &Emitter,
    abort: &Abort,
    server: &Server,
    work: impl Future<Output = T>,
) -> T {
    let sender = TelemetrySender::new(emitter.clone(), abort.clone(), &Timing::scaled(50));
    tokio::select! {
        () = sender.run(|frames| server.post(frames)) => panic!("the sender stopped"),
        result = work => result,
    }
}

#[tokio::test]
async fn a_lost_answer_is_repeated_with_the_same_cursors_and_order_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let emitter = emitter(directory.path(), 2_000_004);
    let unreachable = || Err(ControlError::Unreachable { operation: "telemetry", message: "reset".into() });
    let server = Server {
        answers: Mutex::new(
            [unreachable(), Err(status(503)), Ok(()), Err(status(429)), Err(status(500))].into(),
        ),
        stores_failed: true,
        ..Server::default()
    };
    delivering(&emitter, &Abort::default(), &server, async {
        for number in 0..100 {
            emitter.emit(line(&number.to_string()));
            if number % 30 == 0 {
                tokio::task::yield_now().await;
            }
        }
        assert!(flushed(&emitter, 10_000).await);
    })
    .await;
    let expected: Vec<u64> = (1..=100).map(|seq| 3_000_000 + seq).collect();
    assert_eq!(server.cursors(), expected);
}

#[tokio::test]
async fn a_flush_waits_for_a_batch_in_flight() {
    let directory = tempfile::tempdir().unwrap();
    let emitter = emitter(directory.path(), 0);
    let gate = tokio::sync::Semaphore::new(0);
    let stored = Mutex::new(0);
    let sender = TelemetrySender::new(emitter.clone(), Abort::default(), &Timing::scaled(50));
    let post = |frames: Vec<String>| {
        let (gate, stored) = (&gate, &stored);
        async move {
            gate.acquire().await.unwrap().forget();
            *stored.lock().unwrap() += frames.len();
            Ok(())
        }
    };
    emitter.emit(line("a"));
    tokio::select! {
        () = sender.run(post) => panic!("the sender stopped"),
        () = async {
            assert!(!flushed(&emitter, 20).await);
            gate.add_permits(5);
            assert!(flushed(&emitter, 5_000).await);
            assert_eq!(*stored.lock().unwrap(), 1);
        } => {}
    }
}

#[tokio::test]
async fn one_frame_that_is_refused_takes_no_other_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let emitter = emitter(directory.path(), 0);
    let server = Server { refuses: Some("poison"), ..Server::default() };
    delivering(&emitter, &Abort::default(), &server, async {
        for number in 0..40 {
            emitter.emit(line(&if number == 23 { "poison".to_owned() } else { number.to_string() }));
        }
        assert!(flushed(&emitter, 10_000).await);
    })
    .await;
    assert_eq!(server.cursors(), (1..=40).filter(|cursor| *cursor != 24).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_displaced_process_stops_sending_and_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let emitter = emitter(directory.path(), 0);
    let abort = Abort::default();
    let server = Server { answers: Mutex::new([Err(status(409))].into()), ..Server::default() };
    emitter.emit(line("a"));
    TelemetrySender::new(emitter.clone(), abort.clone(), &Timing::scaled(50))
        .run(|frames| server.post(frames))
        .await;
    assert_eq!(abort.reason(), Some(AbortReason::LeaseLost));
    emitter.emit(line("b"));
    assert!(flushed(&emitter, 1_000).await, "nothing waits any more");
    assert_eq!(server.requests.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn deltas_of_a_turn_are_merged_and_their_text_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let emitter = emitter(directory.path(), 0);
    let server = Server::default();
    delivering(&emitter, &Abort::default(), &server, async {
        emitter.emit_for(
            "turn-1",
            EventBody::TurnStarted { agent_id: "agent-1".try_into().unwrap(), agent_name: None },
        );
        for _ in 0..1_000 {
            emitter.emit_for("turn-1", EventBody::TextDelta { block_id: "text-1".into(), text: "é".into() });
        }
        assert!(flushed(&emitter, 10_000).await);
    })
    .await;
    let stored = server.stored.lock().unwrap().clone();
    assert!(stored.len() < 20, "{} frames", stored.len());
    let (mut text, mut cursors) = (String::new(), Vec::new());
    for frame in &stored {
        let (frame, event) = EventFrame::parse_batch_element(frame).unwrap();
        cursors.push(frame.cursor.get());
        if let EventBody::TextDelta { text: part, .. } = event.body {
            text.push_str(&part);
        }
    }
    assert_eq!(text, "é".repeat(1_000));
    assert_eq!(cursors[0], 1_000_001);
}

#[tokio::test]
async fn producers_wait_while_too_much_is_undelivered_and_go_on_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let emitter = emitter(directory.path(), 0);
    let large = "x".repeat(8 * 1024 * 1024);
    for _ in 0..8 {
        emitter.emit(line(&large));
    }
    assert!(tokio::time::timeout(Duration::from_millis(20), emitter.room()).await.is_err());
    let server = Server::default();
    delivering(&emitter, &Abort::default(), &server, emitter.room()).await;
    delivering(&emitter, &Abort::default(), &server, async { assert!(flushed(&emitter, 20_000).await) })
        .await;
    assert_eq!(server.cursors().len(), 8);
}

fn output(call: &str, text: &str) -> EventBody {
    EventBody::ToolOutputDelta {
        tool_call_id: call.into(),
        stream: StandardStream::Stdout,
        text: text.into(),
    }
}

#[tokio::test]
async fn a_block_that_is_full_goes_on_in_the_next_one_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let emitter = emitter(directory.path(), 0);
    let server = Server::default();
    let turn = EventBody::TurnStarted { agent_id: "agent-1".try_into().unwrap(), agent_name: None };
    delivering(&emitter, &Abort::default(), &server, async {
        emitter.emit_for("turn-1", turn);
        // With the start of the turn, all but five places of its block.
        emitter.skip(999_993);
        for number in 0..40 {
            // Two calls in turn: none can be merged with the one before.
            emitter.emit_for("turn-1", output(&format!("call-{}", number % 2), &number.to_string()));
        }
        assert!(flushed(&emitter, 10_000).await);
    })
    .await;
    let mut expected = vec![1_000_001];
    expected.extend(1_999_995..=1_999_999);
    expected.extend(2_000_001..=2_000_035);
    assert_eq!(server.cursors(), expected);
}

#[tokio::test]
async fn one_million_two_hundred_thousand_deltas_of_one_block_arrive_whole_and_in_order() {
    const DELTAS: usize = 1_200_000;
    let directory = tempfile::tempdir().unwrap();
    let emitter = emitter(directory.path(), 0);
    let server = Server::default();
    delivering(&emitter, &Abort::default(), &server, async {
        for number in 0..DELTAS {
            emitter.emit_for("turn-1", output("call", ["a", "b", "c", "d", "e", "f", "g"][number % 7]));
            if number % 1_000 == 0 {
                emitter.room().await;
                tokio::task::yield_now().await;
            }
        }
        assert!(flushed(&emitter, 60_000).await);
    })
    .await;
    let cursors = server.cursors();
    assert!(cursors.is_sorted_by(|one, next| one < next));
    let stored = server.stored.lock().unwrap();
    let text: String = stored
        .iter()
        .map(|frame| match EventFrame::parse_batch_element(frame).unwrap().1.body {
            EventBody::ToolOutputDelta { text, .. } => text,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(text.len(), DELTAS);
    assert!(text.bytes().enumerate().all(|(at, byte)| byte == b"abcdefg"[at % 7]));
}

#[tokio::test]
async fn a_wall_clock_that_is_set_back_does_not_set_events_back() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(trestle_testkit::clock::LyingClock::new(ManualClock::new(1_000_000)));
    let run = RunId::new("01RUN").unwrap();
    let emitter = Emitter::new(&run, 0, clock.clone(), Redactor::default(), directory.path().into());
    let server = Server::default();
    delivering(&emitter, &Abort::default(), &server, async {
        for jump in [0, -300_000, 600_000, -300_000] {
            clock.jump(jump);
            emitter.emit(line("x"));
        }
        assert!(flushed(&emitter, 10_000).await);
    })
    .await;
    let stored = server.stored.lock().unwrap();
    let times: Vec<u64> = stored
        .iter()
        .map(|frame| EventFrame::parse_batch_element(frame).unwrap().1.envelope.t.get())
        .collect();
    assert_eq!(times, [1_000_000, 1_000_000, 1_300_000, 1_300_000]);
}

#[tokio::test]
async fn a_machine_whose_clock_is_behind_does_not_stamp_before_the_control_plane() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::default();
    let mut times = Vec::new();
    for server_ms in [1_500, 400] {
        let emitter = emitter(directory.path(), 0);
        emitter.catch_up_with(server_ms);
        delivering(&emitter, &Abort::default(), &server, async {
            emitter.emit(line(&server_ms.to_string()));
            assert!(flushed(&emitter, 10_000).await);
        })
        .await;
        let stored = server.stored.lock().unwrap();
        times.push(EventFrame::parse_batch_element(stored.last().unwrap()).unwrap().1.envelope.t.get());
    }
    assert_eq!(times, [1_500, 1_000], "a clock that is ahead stays as it is");
}
