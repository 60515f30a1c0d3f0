//! Conversations of the sample world as the tiny model will see them: what its tokenizer is trained on.

use super::lexicon::phrase_with;
use super::mechanical::{NO_EVIDENCE, Place, answer_json};
use super::{SampleUser, tiny};
use crate::chat::{ChatError, ChatMessage, ChatTemplate, RenderInput, Role};
use crate::episode::{Environment, opening};
use crate::generate::Embed;
use crate::pyramid::{HashedNgramEmbedder, Pyramid, PyramidError};
use crate::question::Question;
use rayon::prelude::*;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;

/// Why the conversations could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// A pyramid cannot be indexed.
    #[error(transparent)]
    Pyramid(#[from] PyramidError),
    /// The tiny template refuses a conversation.
    #[error(transparent)]
    Chat(#[from] ChatError),
}

/// One conversation for each question: every place is looked at, then the right answer is given.
///
/// # Errors
/// When a user's pyramid is unsound or the template refuses a conversation.
pub fn corpus(users: &[SampleUser]) -> Result<Vec<String>, CorpusError> {
    let template = ChatTemplate::new(PathBuf::from("chat_template.jinja"), tiny::CHAT_TEMPLATE.to_owned(), vec![])?;
    let embedder: Arc<dyn Embed> = Arc::new(HashedNgramEmbedder::default());
    let conversations = users.par_iter().map(|user| {
        let pyramid = Pyramid::from_data(&user.user, user.pyramid.clone(), &embedder)?;
        user.questions
            .iter()
            .map(|question| {
                let messages = conversation(&pyramid, question);
                let input = RenderInput {
                    messages: &messages,
                    tools: &pyramid.schemas(),
                    add_generation_prompt: false,
                    enable_thinking: false,
                };
                Ok(template.render(&input)?)
            })
            .collect::<Result<Vec<String>, CorpusError>>()
    });
    Ok(conversations.collect::<Result<Vec<_>, _>>()?.concat())
}

fn conversation(pyramid: &Pyramid, question: &Question) -> Vec<ChatMessage> {
    let mut messages = opening(tiny::SYSTEM_PROMPT, 4, question, pyramid, "");
    for place in Place::all() {
        let call = place.call(&question.question);
        let outcome = pyramid.call(&call.name, &Value::Object(call.arguments.clone()));
        let gold = question.gold.first().map_or("", String::as_str);
        let reason = phrase_with(&outcome.observation, gold).unwrap_or(NO_EVIDENCE);
        let answer = ChatMessage::new(Role::Assistant, answer_json(reason, gold));
        let mut turn = ChatMessage::new(Role::Assistant, "");
        turn.tool_calls = vec![call];
        messages.extend([turn, ChatMessage::new(Role::Tool, outcome.observation), answer]);
    }
    messages
}
