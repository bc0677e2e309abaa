//! The parked polls of one pool. Every step costs the same however many there are: a change of the
//! queue looks at the heads of a few lines, not at ten thousand polls.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tokio::sync::oneshot;
use trestle_contract::ids::RunnerId;

use crate::dispatch::Delivery;

/// A poll that arrives.
pub(crate) struct Parked {
    pub(crate) runner: RunnerId,
    pub(crate) labels: Vec<String>,
    pub(crate) deliver: oneshot::Sender<Delivery>,
}

/// The polls of one runner, oldest first, and its place in the line of its labels.
struct Place {
    ticket: u64,
    labels: Vec<String>,
    polls: Vec<oneshot::Sender<Delivery>>,
}

/// Where one looks on in a line, or the few runners that alone are asked about.
pub(crate) enum Line {
    /// Everybody with these labels, from the runner with this ticket on.
    Whole { labels: Vec<String>, from: u64 },
    /// Only these.
    These(VecDeque<RunnerId>),
}

/// Parked polls by runner, and their runners in one line for each set of labels, in order of arrival.
#[derive(Default)]
pub(crate) struct Polls {
    places: HashMap<RunnerId, Place>,
    lines: HashMap<Vec<String>, BTreeMap<u64, RunnerId>>,
    tickets: u64,
}

impl Polls {
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds a poll. A runner that has one already keeps its place.
    pub(crate) fn park(&mut self, parked: Parked) {
        // Runners that went away are dropped now and then, so that their number stays below that of the
        // live ones.
        if self.places.len().is_power_of_two() {
            self.sweep();
        }
        let Parked { runner, labels, deliver } = parked;
        // Labels never change while a poll is parked, but a runner may enrol again between two.
        if self.places.get(&runner).is_some_and(|place| place.labels != labels) {
            let moved = self.remove(&runner);
            self.place(&runner, labels).polls.extend(moved);
        } else if !self.places.contains_key(&runner) {
            self.place(&runner, labels);
        }
        if let Some(place) = self.places.get_mut(&runner) {
            place.polls.retain(|poll| !poll.is_closed());
            place.polls.push(deliver);
        }
    }

    fn place(&mut self, runner: &RunnerId, labels: Vec<String>) -> &mut Place {
        self.tickets += 1;
        let ticket = self.tickets;
        self.lines.entry(labels.clone()).or_default().insert(ticket, runner.clone());
        self.places.entry(runner.clone()).or_insert(Place { ticket, labels, polls: Vec::new() })
    }

    /// Takes all polls of a runner away.
    pub(crate) fn remove(&mut self, runner: &RunnerId) -> Vec<oneshot::Sender<Delivery>> {
        let Some(place) = self.places.remove(runner) else { return Vec::new() };
        if let Some(line) = self.lines.get_mut(&place.labels) {
            line.remove(&place.ticket);
            if line.is_empty() {
                self.lines.remove(&place.labels);
            }
        }
        place.polls
    }

    /// Takes everything away.
    pub(crate) fn remove_all(&mut self) -> Vec<oneshot::Sender<Delivery>> {
        self.lines.clear();
        std::mem::take(&mut self.places).into_values().flat_map(|place| place.polls).collect()
    }

    /// Takes the newest poll of a runner; with its last one the runner leaves the line.
    pub(crate) fn take_newest(&mut self, runner: &RunnerId) -> Option<oneshot::Sender<Delivery>> {
        let place = self.places.get_mut(runner)?;
        let newest = place.polls.pop();
        if place.polls.is_empty() {
            self.remove(runner);
        }
        newest
    }

    /// All lines from their heads.
    pub(crate) fn lines(&self) -> Vec<Line> {
        self.lines.keys().map(|labels| Line::Whole { labels: labels.clone(), from: 0 }).collect()
    }

    /// These runners alone, by their labels, each once.
    pub(crate) fn lines_of(&self, runners: &[RunnerId]) -> Vec<Line> {
        let mut found: HashMap<&[String], BTreeMap<u64, &RunnerId>> = HashMap::new();
        for runner in runners {
            if let Some(place) = self.places.get(runner) {
                found.entry(&place.labels).or_default().insert(place.ticket, runner);
            }
        }
        found.into_values().map(|line| Line::These(line.into_values().cloned().collect())).collect()
    }

    /// The next runners of a line, at most so many. Those whose polls went away leave it.
    pub(crate) fn next_of(&mut self, line: &mut Line, most: usize) -> Vec<RunnerId> {
        let mut next = Vec::new();
        while next.len() < most {
            let runner = match line {
                Line::These(runners) => runners.pop_front(),
                Line::Whole { labels, from } => {
                    self.lines.get(labels.as_slice()).and_then(|line| line.range(*from..).next()).map(
                        |(ticket, runner)| {
                            *from = ticket + 1;
                            runner.clone()
                        },
                    )
                }
            };
            let Some(runner) = runner else { break };
            if self.waits(&runner) {
                next.push(runner);
            } else {
                self.remove(&runner);
            }
        }
        next
    }

    fn waits(&self, runner: &RunnerId) -> bool {
        self.places.get(runner).is_some_and(|place| place.polls.iter().any(|poll| !poll.is_closed()))
    }

    fn sweep(&mut self) {
        let gone: Vec<RunnerId> = self.places.keys().filter(|runner| !self.waits(runner)).cloned().collect();
        for runner in gone {
            self.remove(&runner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner(name: &str) -> RunnerId {
        RunnerId::new(name).unwrap()
    }

    fn park(polls: &mut Polls, name: &str, labels: &[&str]) -> oneshot::Receiver<Delivery> {
        let (deliver, delivered) = oneshot::channel();
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        polls.park(Parked { runner: runner(name), labels, deliver });
        delivered
    }

    fn all(polls: &mut Polls, most: usize) -> Vec<Vec<String>> {
        let mut lines = polls.lines();
        let mut found: Vec<Vec<String>> = lines
            .iter_mut()
            .map(|line| polls.next_of(line, most).iter().map(|id| id.as_str().to_owned()).collect())
            .collect();
        found.sort();
        found
    }

    #[test]
    fn runners_stand_in_one_line_for_each_set_of_labels_in_order_of_arrival() {
        let mut polls = Polls::default();
        let _kept = [
            park(&mut polls, "b", &[]),
            park(&mut polls, "a", &[]),
            park(&mut polls, "c", &["gpu"]),
            park(&mut polls, "b", &[]),
        ];
        assert_eq!(all(&mut polls, 4), [vec!["b", "a"], vec!["c"]]);
        let mut line = polls.lines_of(&[runner("a"), runner("b"), runner("a"), runner("x")]).remove(0);
        assert_eq!(polls.next_of(&mut line, 1), [runner("b")]);
        assert_eq!(polls.next_of(&mut line, 9), [runner("a")]);
        assert!(polls.next_of(&mut line, 9).is_empty());
    }

    #[test]
    fn a_line_goes_on_where_it_stopped_also_when_those_before_have_left() {
        let mut polls = Polls::default();
        let _kept: Vec<_> = ["a", "b", "c", "d"].iter().map(|name| park(&mut polls, name, &[])).collect();
        let mut line = polls.lines().remove(0);
        assert_eq!(polls.next_of(&mut line, 2), [runner("a"), runner("b")]);
        polls.remove(&runner("a"));
        polls.remove(&runner("c"));
        assert_eq!(polls.next_of(&mut line, 2), [runner("d")]);
    }

    #[test]
    fn polls_that_went_away_are_passed_over_and_forgotten() {
        let mut polls = Polls::default();
        let gone = park(&mut polls, "gone", &[]);
        let older = park(&mut polls, "twice", &[]);
        let _newer = park(&mut polls, "twice", &[]);
        drop((gone, older));
        assert_eq!(all(&mut polls, 4), [vec!["twice"]]);
        assert_eq!(polls.places.len(), 1);
        assert!(polls.take_newest(&runner("twice")).is_some_and(|poll| !poll.is_closed()));
        for n in 0..40 {
            drop(park(&mut polls, &format!("r{n}"), &[]));
        }
        assert!(polls.places.len() <= 33, "{}", polls.places.len());
    }

    #[test]
    fn a_runner_whose_labels_changed_stands_in_the_other_line_with_all_its_polls() {
        let mut polls = Polls::default();
        let _first = park(&mut polls, "a", &[]);
        let _second = park(&mut polls, "a", &["gpu"]);
        assert_eq!(all(&mut polls, 4), [vec!["a"]]);
        assert_eq!(polls.lines.len(), 1);
        assert_eq!(polls.remove(&runner("a")).len(), 2);
        assert!(polls.is_empty() && polls.lines.is_empty());
    }
}
