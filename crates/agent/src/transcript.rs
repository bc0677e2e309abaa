use trestle_contract::inference::{ChatMessage, Content, ContentPart, ToolCallRequest, ToolResultMessage};
use trestle_domain::Redactor;

/// How many of the newest tool results keep their images.
const IMAGES_KEPT: usize = 3;
const DROPPED_IMAGE: &str =
    "[an older image was dropped to save space; take a new screenshot if it is needed]";

/// The conversation of a leaf. It holds no secret that was known when it was last read.
pub(crate) struct Transcript {
    messages: Vec<ChatMessage>,
    redactor: Redactor,
    /// How many secrets the messages were cleaned of.
    cleaned_of: usize,
}

impl Transcript {
    pub(crate) fn new(redactor: Redactor) -> Self {
        let cleaned_of = redactor.len();
        Self { messages: Vec::new(), redactor, cleaned_of }
    }

    pub(crate) fn push(&mut self, mut message: ChatMessage) {
        clean(&mut message, &self.redactor);
        self.messages.push(message);
    }

    /// The messages for the next model call. Secrets that became known since they were
    /// written are replaced too.
    pub(crate) fn messages(&mut self) -> &[ChatMessage] {
        let known = self.redactor.len();
        if known != self.cleaned_of {
            for message in &mut self.messages {
                clean(message, &self.redactor);
            }
            self.cleaned_of = known;
        }
        &self.messages
    }

    /// Replaces the images in all but the newest three tool results that hold one.
    pub(crate) fn drop_stale_images(&mut self) {
        let results = self.messages.iter_mut().rev().filter_map(|message| match message {
            ChatMessage::ToolResults { results } => Some(results.iter_mut().rev()),
            ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
        });
        let with_images = results.flatten().filter(|result| has_image(result));
        for result in with_images.skip(IMAGES_KEPT) {
            let Content::Parts(parts) = &mut result.content else { continue };
            for part in parts.iter_mut().filter(|part| is_image(part)) {
                *part = ContentPart::Text { text: DROPPED_IMAGE.to_owned() };
            }
        }
    }
}

fn has_image(result: &ToolResultMessage) -> bool {
    matches!(&result.content, Content::Parts(parts) if parts.iter().any(is_image))
}

fn is_image(part: &ContentPart) -> bool {
    matches!(part, ContentPart::File { file } if file.mime_type.starts_with("image/"))
}

fn clean(message: &mut ChatMessage, redactor: &Redactor) {
    match message {
        ChatMessage::User { content } => clean_content(content, redactor),
        ChatMessage::Assistant { text, tool_calls } => {
            *text = redactor.redact_str(text);
            for call in tool_calls {
                clean_call(call, redactor);
            }
        }
        ChatMessage::ToolResults { results } => {
            for result in results {
                clean_content(&mut result.content, redactor);
            }
        }
    }
}

fn clean_content(content: &mut Content, redactor: &Redactor) {
    match content {
        Content::Text(text) => *text = redactor.redact_str(text),
        Content::Parts(parts) => {
            for part in parts {
                match part {
                    ContentPart::Text { text } => *text = redactor.redact_str(text),
                    // Bytes and addresses of files would be broken by a replacement.
                    ContentPart::File { file } => {
                        file.filename = file.filename.take().map(|name| redactor.redact_str(&name));
                    }
                }
            }
        }
    }
}

fn clean_call(call: &mut ToolCallRequest, redactor: &Redactor) {
    let input = std::mem::take(&mut call.input);
    if let serde_json::Value::Object(input) = redactor.redact_value(&serde_json::Value::Object(input)) {
        call.input = input;
    }
    call.invalid_input = call.invalid_input.take().map(|text| redactor.redact_str(&text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use trestle_contract::inference::FileSource;
    use trestle_domain::Placeholder;

    fn image(mime_type: &str) -> ContentPart {
        let data = Some("aGk=".to_owned());
        ContentPart::File {
            file: FileSource { mime_type: mime_type.to_owned(), data, url: None, filename: None },
        }
    }

    fn results(parts: Vec<Vec<ContentPart>>) -> ChatMessage {
        let results = parts.into_iter().enumerate().map(|(index, parts)| ToolResultMessage {
            id: format!("c{index}"),
            content: Content::Parts(parts),
            is_error: false,
        });
        ChatMessage::ToolResults { results: results.collect() }
    }

    fn images_left(message: &ChatMessage) -> Vec<usize> {
        let ChatMessage::ToolResults { results } = message else { return Vec::new() };
        results
            .iter()
            .map(|result| match &result.content {
                Content::Parts(parts) => parts.iter().filter(|part| is_image(part)).count(),
                Content::Text(_) => 0,
            })
            .collect()
    }

    #[test]
    fn the_newest_three_results_keep_their_images() {
        let mut transcript = Transcript::new(Redactor::default());
        transcript.push(ChatMessage::User { content: Content::Parts(vec![image("image/png")]) });
        transcript.push(results(vec![
            vec![image("image/png"), image("image/png")],
            vec![image("application/pdf")],
        ]));
        transcript.push(results(vec![vec![image("image/jpeg")], vec![image("image/png")]]));
        transcript.push(results(vec![vec![image("image/png")]]));
        for _ in 0..2 {
            transcript.drop_stale_images();
            let messages = transcript.messages();
            assert_eq!(
                messages.iter().map(images_left).collect::<Vec<_>>(),
                [vec![], vec![0, 0], vec![1, 1], vec![1]]
            );
            assert!(
                matches!(&messages[0], ChatMessage::User { content: Content::Parts(parts) } if is_image(&parts[0]))
            );
        }
        let ChatMessage::ToolResults { results } = &transcript.messages()[1] else { panic!() };
        assert_eq!(results[0].content.text(), DROPPED_IMAGE.repeat(2));
        assert!(matches!(&results[1].content, Content::Parts(parts) if parts == &[image("application/pdf")]));
    }

    #[test]
    fn secrets_leave_the_conversation_also_when_they_become_known_later() {
        let redactor = Redactor::new(Placeholder::Labelled);
        let mut transcript = Transcript::new(redactor.clone());
        transcript.push(ChatMessage::User { content: "user hunter22".into() });
        let call = ToolCallRequest {
            id: "c1".to_owned(),
            name: "t".to_owned(),
            input: json!({ "a": ["hunter22"] }).as_object().unwrap().clone(),
            invalid_input: Some("hunter22".to_owned()),
        };
        transcript.push(ChatMessage::Assistant { text: "said hunter22".to_owned(), tool_calls: vec![call] });
        transcript.push(results(vec![vec![ContentPart::Text { text: "got hunter22".to_owned() }]]));
        redactor.add("KEY", "hunter22");
        let text = serde_json::to_string(transcript.messages()).unwrap();
        assert!(!text.contains("hunter22"), "{text}");
        assert_eq!(text.matches("[redacted:KEY]").count(), 5);
    }
}
