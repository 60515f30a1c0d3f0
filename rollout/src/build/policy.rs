//! A chat-completions endpoint as the policy of an episode: the same loop, the same tools, another sampler.
//!
//! The endpoint sees messages and tool schemas. What it writes is brought into the form of a local chat format, whose tokenizer counts
//! it and whose parser reads it, so that limits, observations and trajectories are those of every other policy. What such a
//! trajectory cannot have is log-probabilities (they are 0) and the endpoint's own token ids: it can be read, scored and imitated, but
//! GRPO has no use for it. A random stream's seed is sent along; whether it is kept to is the endpoint's affair.

use super::endpoint::ChatEndpoint;
use super::wire::{PolicyCall, PolicyReply, policy_body, read_policy};
use crate::chat::{ChatFormat, ChatMessage, Role, ToolCall};
use crate::generate::{
    AttemptKey, Conversation, Generate, GenerateStats, ModelError, NextAction, PromptGroup, SampledTurn, Sampling,
    TokenBudget, TokenId, TurnEnd, TurnHandler,
};
use rayon::prelude::*;
use serde_json::{Map, Value, json};
use std::time::Instant;

/// An endpoint and the chat format that its turns are kept in.
pub struct EndpointPolicy<'a> {
    endpoint: &'a ChatEndpoint,
    chat: &'a ChatFormat,
}

/// What all attempts of a call share.
struct Scene<'a> {
    policy: &'a EndpointPolicy<'a>,
    sampling: &'a Sampling,
    budget: &'a TokenBudget,
    handler: &'a dyn TurnHandler,
}

impl<'a> EndpointPolicy<'a> {
    /// `chat` is that of the episodes.
    pub fn new(endpoint: &'a ChatEndpoint, chat: &'a ChatFormat) -> Self {
        Self { endpoint, chat }
    }
}

impl Generate for EndpointPolicy<'_> {
    fn generate(
        &mut self,
        groups: &[PromptGroup],
        sampling: &Sampling,
        budget: &TokenBudget,
        handler: &dyn TurnHandler,
    ) -> Result<GenerateStats, ModelError> {
        let began = Instant::now();
        let scene = Scene { policy: self, sampling, budget, handler };
        let attempts: Vec<(AttemptKey, u64)> = groups
            .iter()
            .enumerate()
            .flat_map(|(group, prompt)| {
                prompt.seeds.iter().enumerate().map(move |(attempt, &seed)| (AttemptKey { group, attempt }, seed))
            })
            .collect();
        let run = |&(key, seed): &(AttemptKey, u64)| scene.attempt(key, seed, groups[key.group].prompt_ids.len());
        let counts = self.endpoint.threads().install(|| attempts.par_iter().map(run).collect::<Result<Vec<_>, _>>())?;
        Ok(GenerateStats {
            num_prompt_tokens: groups.iter().map(|group| group.prompt_ids.len()).sum(),
            num_sampled_tokens: counts.iter().sum(),
            decode_s: began.elapsed().as_secs_f64(),
            ..GenerateStats::default()
        })
    }

    fn policy_version(&self) -> u64 {
        0
    }
}

impl Scene<'_> {
    /// One attempt to its end; returns the tokens that it wrote, by the local tokenizer.
    fn attempt(&self, key: AttemptKey, seed: u64, num_prompt_tokens: usize) -> Result<usize, ModelError> {
        let Conversation { messages, schemas, enable_thinking } =
            self.handler.conversation(key.group).ok_or("an endpoint needs episodes that have messages")?;
        let mut messages: Vec<Value> =
            messages.iter().map(|message| json!({"role": message.role, "content": message.content})).collect();
        let (mut num_tokens, mut num_sampled) = (num_prompt_tokens, 0);
        loop {
            let room = self.budget.max_total_tokens - num_tokens;
            let max_tokens = self.budget.max_turn_tokens.min(room);
            let endpoint = self.policy.endpoint;
            let body = policy_body(endpoint.model(), &messages, &schemas, max_tokens, self.sampling, seed);
            let reply = endpoint.post(&body.to_string(), &read_policy)?.value;
            let turn = self.turn(&reply, enable_thinking, room)?;
            num_tokens += turn.token_ids.len();
            num_sampled += turn.token_ids.len();
            match self.handler.on_turn(key, turn) {
                NextAction::Finish => return Ok(num_sampled),
                NextAction::Continue(ids) => num_tokens += ids.len(),
            }
            messages.extend(said(&reply, &self.handler.observations(key)));
        }
    }

    /// A reply as a turn of the local format, cut where the whole sequence has no more room.
    fn turn(&self, reply: &PolicyReply, enable_thinking: bool, room: usize) -> Result<SampledTurn, ModelError> {
        let chat = self.policy.chat;
        let mut message = ChatMessage::new(Role::Assistant, reply.content.as_str());
        message.reasoning_content = reply.reasoning.clone().filter(|_| enable_thinking);
        for call in &reply.calls {
            match call.parsed() {
                Some(arguments) => message.tool_calls.push(ToolCall { name: call.name.clone(), arguments }),
                // What is no JSON object is shown to the parser as it came, which then says what is wrong with it.
                None => message.content.push_str(&format!("\n<tool_call>{}</tool_call>", call.arguments)),
            }
        }
        let mut token_ids: Vec<TokenId> = chat.encode_turn(&message, enable_thinking)?;
        let mut end = TurnEnd::StopToken;
        if reply.was_cut {
            token_ids.pop();
            end = TurnEnd::TurnLimit;
        }
        if token_ids.len() >= room {
            token_ids.truncate(room);
            end = TurnEnd::TotalLimit;
        }
        Ok(SampledTurn { logprobs: vec![0.0; token_ids.len()], token_ids, end })
    }
}

/// What the conversation goes on with: the reply as it came, and what its calls returned.
fn said(reply: &PolicyReply, observations: &[String]) -> Vec<Value> {
    let calls: Vec<Value> = reply.calls.iter().map(PolicyCall::to_json).collect();
    let mut assistant = json!({"role": "assistant", "content": reply.content});
    // Calls that the endpoint wrote as text are in the observations, too, but have no ids to answer to.
    if calls.len() != observations.len() {
        let text: Vec<String> = observations.iter().map(|text| format!("Tool result:\n{text}")).collect();
        return vec![assistant, json!({"role": "user", "content": text.join("\n\n")})];
    }
    assistant["tool_calls"] = calls.into();
    let results = reply.calls.iter().zip(observations);
    let results = results.map(|(call, text)| json!({"role": "tool", "tool_call_id": call.id, "content": text}));
    std::iter::once(assistant).chain(results).collect()
}

impl PolicyCall {
    fn parsed(&self) -> Option<Map<String, Value>> {
        match serde_json::from_str(&self.arguments) {
            Ok(Value::Object(arguments)) => Some(arguments),
            _ if self.arguments.trim().is_empty() => Some(Map::new()),
            _ => None,
        }
    }

    fn to_json(&self) -> Value {
        let function = json!({"name": self.name, "arguments": self.arguments});
        json!({"id": self.id, "type": "function", "function": function})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(message: &Value, finish: &str) -> PolicyReply {
        let answer = json!({"choices": [{"message": message, "finish_reason": finish}]});
        read_policy(&answer.to_string()).expect("a chat completion")
    }

    #[test]
    fn answers_are_read_as_turns() {
        let call = |id: Value, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}});
        let found = reply(
            &json!({"content": null, "tool_calls": [call(json!("a"), "{\"n\": 1}"), call(Value::Null, "")]}),
            "tool_calls",
        );
        assert_eq!((found.content.as_str(), found.calls.len(), found.was_cut), ("", 2, false));
        assert_eq!(found.calls[0].parsed(), json!({"n": 1}).as_object().cloned());
        assert_eq!((found.calls[1].id.as_str(), found.calls[1].parsed()), ("call_1", Some(Map::new())));
        let cut = reply(&json!({"content": "so", "reasoning_content": " "}), "length");
        assert!(cut.was_cut && cut.reasoning.is_none() && cut.calls.is_empty());
        for bad in ["[1]", "{\"n\": "] {
            let call = PolicyCall { id: "a".into(), name: "look".into(), arguments: bad.into() };
            assert_eq!(call.parsed(), None, "{bad}");
        }
        for (bad, says) in [("{}", "not a chat completion"), ("{\"choices\": []}", "has no choices")] {
            let error = read_policy(bad).expect_err(says);
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn the_conversation_goes_on_by_ids_or_in_words() {
        let call = json!({"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}});
        let structured = reply(&json!({"content": null, "tool_calls": [call]}), "tool_calls");
        let said_by = |reply: &PolicyReply, observations: &[&str]| {
            said(reply, &observations.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
        };
        let messages = said_by(&structured, &["[r1] Oslo"]);
        assert_eq!(messages[0]["tool_calls"], json!([call]));
        assert_eq!(messages[1], json!({"role": "tool", "tool_call_id": "a", "content": "[r1] Oslo"}));
        let written = reply(&json!({"content": "<tool_call>look</tool_call>"}), "stop");
        let messages = said_by(&written, &["Error: x"]);
        assert!(messages[0].get("tool_calls").is_none());
        assert_eq!(messages[1], json!({"role": "user", "content": "Tool result:\nError: x"}));
    }
}
