//! What a turn has streamed so far, kept so that several readers can follow it from its start.

/// Which kind of frame a piece of text goes out in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Reasoning,
}

/// The text of the current attempt. Pieces of one kind that stand together are one span, so a reader that is behind gets them in one frame.
#[derive(Debug, Default)]
pub(super) struct TurnLog {
    epoch: u64,
    text: String,
    spans: Vec<(Kind, usize)>,
}

/// Where a reader is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Position {
    epoch: u64,
    offset: usize,
}

/// What a reader has not seen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread<'a> {
    /// What it saw of an earlier attempt is void.
    Reset,
    /// The next text.
    Piece(Kind, &'a str),
}

impl TurnLog {
    pub(super) fn push(&mut self, kind: Kind, piece: &str) {
        self.text.push_str(piece);
        let end = self.text.len();
        match self.spans.last_mut() {
            Some((last, last_end)) if *last == kind => *last_end = end,
            _ => self.spans.push((kind, end)),
        }
    }

    /// A new attempt begins; all text is void.
    pub(super) fn restart(&mut self) {
        self.epoch += 1;
        self.text.clear();
        self.spans.clear();
    }

    /// What follows `position`, which moves behind it.
    pub(super) fn next(&self, position: &mut Position) -> Option<Unread<'_>> {
        if position.epoch != self.epoch {
            let seen = position.offset > 0;
            *position = Position { epoch: self.epoch, offset: 0 };
            if seen {
                return Some(Unread::Reset);
            }
        }
        let span = self.spans.partition_point(|(_, end)| *end <= position.offset);
        let (kind, end) = *self.spans.get(span)?;
        let piece = &self.text[position.offset..end];
        position.offset = end;
        Some(Unread::Piece(kind, piece))
    }

    /// Lets go of text that the only reader has seen. `position` stays right, also for telling that something was seen.
    pub(super) fn forget(&mut self, position: &Position) {
        if position.epoch == self.epoch
            && position.offset == self.text.len()
            && self.text.len() > FORGET_ABOVE
        {
            self.text.clear();
            self.spans.clear();
            // One byte that was seen: a later attempt must still be announced.
            self.text.push(' ');
            self.spans.push((Kind::Text, 1));
        }
    }

    /// The position behind what was forgotten.
    pub(super) fn after_forgetting(&self, position: Position) -> Position {
        Position { offset: position.offset.min(self.text.len()), ..position }
    }
}

/// Text below this size is not worth letting go of.
const FORGET_ABOVE: usize = 16 * 1024;

/// A delta as a frame, written straight from the text.
pub(super) fn frame(kind: Kind, text: &str) -> Vec<u8> {
    let mut line = Vec::with_capacity(text.len() + 32);
    line.extend_from_slice(match kind {
        Kind::Text => b"{\"t\":\"delta\",\"text\":".as_slice(),
        Kind::Reasoning => b"{\"t\":\"reasoning\",\"text\":".as_slice(),
    });
    // Neither a string's JSON form nor writing to memory can fail.
    let _ = serde_json::to_writer(&mut line, text);
    line.extend_from_slice(b"}\n");
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use trestle_contract::inference::InferenceFrame;

    use super::*;

    fn read_all(log: &TurnLog, position: &mut Position) -> Vec<(Kind, String)> {
        let mut pieces = Vec::new();
        while let Some(unread) = log.next(position) {
            match unread {
                Unread::Piece(kind, text) => pieces.push((kind, text.to_owned())),
                Unread::Reset => pieces.clear(),
            }
        }
        pieces
    }

    #[test]
    fn a_reader_that_is_behind_gets_pieces_of_one_kind_together() {
        let mut log = TurnLog::default();
        let mut quick = Position::default();
        for (kind, piece) in [
            (Kind::Reasoning, "a"),
            (Kind::Reasoning, "b"),
            (Kind::Text, "c"),
            (Kind::Text, "d"),
            (Kind::Reasoning, "e"),
        ] {
            log.push(kind, piece);
            assert_eq!(log.next(&mut quick), Some(Unread::Piece(kind, piece)));
            assert_eq!(log.next(&mut quick), None);
        }
        let late = read_all(&log, &mut Position::default());
        assert_eq!(
            late,
            [
                (Kind::Reasoning, "ab".to_owned()),
                (Kind::Text, "cd".to_owned()),
                (Kind::Reasoning, "e".to_owned())
            ]
        );
    }

    #[test]
    fn a_restart_is_told_to_those_who_saw_something_and_to_no_one_else() {
        let mut log = TurnLog::default();
        log.push(Kind::Text, "void");
        let (mut saw, mut fresh) = (Position::default(), Position::default());
        assert!(log.next(&mut saw).is_some());
        log.restart();
        log.push(Kind::Text, "new");
        assert_eq!(log.next(&mut saw), Some(Unread::Reset));
        assert_eq!(log.next(&mut saw), Some(Unread::Piece(Kind::Text, "new")));
        assert_eq!(log.next(&mut fresh), Some(Unread::Piece(Kind::Text, "new")));
    }

    #[test]
    fn forgotten_text_is_neither_repeated_nor_missed() {
        let mut log = TurnLog::default();
        let mut position = Position::default();
        let big = "x".repeat(FORGET_ABOVE + 1);
        for piece in [big.as_str(), "tail", "more"] {
            log.push(Kind::Text, piece);
            assert_eq!(log.next(&mut position), Some(Unread::Piece(Kind::Text, piece)));
            log.forget(&position);
            position = log.after_forgetting(position);
        }
        assert!(log.text.len() < FORGET_ABOVE);
        log.restart();
        assert_eq!(log.next(&mut position), Some(Unread::Reset));
    }

    proptest! {
        #[test]
        fn a_frame_is_what_the_contract_writes(text in "\\PC{0,20}|[\\x00-\\x7f]{0,20}") {
            prop_assert_eq!(frame(Kind::Text, &text), InferenceFrame::Delta { text: text.clone() }.to_line().into_bytes());
            prop_assert_eq!(frame(Kind::Reasoning, &text), InferenceFrame::Reasoning { text: text.clone() }.to_line().into_bytes());
        }
    }
}
