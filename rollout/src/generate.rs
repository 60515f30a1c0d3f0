//! The boundary between episodes and models: what the episode loop asks of a model, and nothing of how it is done.

use crate::chat::ChatMessage;
use napmem_reward::JudgeRule;
use serde_json::Value;
use std::error::Error;

/// Token id of the policy's vocabulary.
pub type TokenId = u32;

/// Which attempt at which group's question a sequence is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptKey {
    /// Position of the group in the slice handed to [`Generate::generate`].
    pub group: usize,
    /// Attempt within the group, from 0.
    pub attempt: usize,
}

/// One prompt that several attempts share: it is computed once and its state copied.
#[derive(Debug, Clone)]
pub struct PromptGroup {
    /// The rendered prompt.
    pub prompt_ids: Vec<TokenId>,
    /// One seed for each attempt's own random stream; its length is the number of attempts.
    pub seeds: Vec<u64>,
}

/// How tokens are drawn. Log-probabilities are those of the distribution that these settings leave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 is greedy (and its log-probabilities are those at temperature 1).
    pub temperature: f64,
    /// Keep the smallest set of tokens whose probability reaches this; 1 keeps all.
    pub top_p: f64,
    /// Keep this many most likely tokens; 0 keeps all.
    pub top_k: usize,
}

/// Token limits of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBudget {
    /// Tokens that the policy may write in one turn.
    pub max_turn_tokens: usize,
    /// Tokens of the whole sequence: prompt, completions and observations.
    pub max_total_tokens: usize,
}

/// Why the policy stopped writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEnd {
    /// It wrote a stop token, which is the last of the turn's ids.
    StopToken,
    /// It reached [`TokenBudget::max_turn_tokens`].
    TurnLimit,
    /// It reached [`TokenBudget::max_total_tokens`].
    TotalLimit,
}

/// What the policy wrote in one turn, as sampled: never decoded and encoded again.
#[derive(Debug, Clone)]
pub struct SampledTurn {
    /// The sampled ids, the stop token included.
    pub token_ids: Vec<TokenId>,
    /// ln p of each id under the sampled distribution; same length as `token_ids`.
    pub logprobs: Vec<f32>,
    /// Why the turn ended.
    pub end: TurnEnd,
}

/// What happens to a sequence after a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextAction {
    /// Append these ids (observation and next generation prompt) and go on sampling.
    Continue(Vec<TokenId>),
    /// The sequence is finished.
    Finish,
}

/// Answers each finished turn; called from worker threads while other sequences go on decoding.
///
/// A handler that is asked to continue past `max_total_tokens` must finish instead: the model refuses longer sequences.
pub trait TurnHandler: Sync {
    /// Takes a finished turn and says what follows. Calls for one attempt come in order, one at a time.
    fn on_turn(&self, key: AttemptKey, turn: SampledTurn) -> NextAction;

    /// What a group's prompt was rendered from, for models that take messages in place of ids; `None` where there are none.
    fn conversation(&self, _group: usize) -> Option<Conversation> {
        None
    }

    /// What the calls of the attempt's last turn returned, in their order, for the same models.
    fn observations(&self, _key: AttemptKey) -> Vec<String> {
        Vec::new()
    }
}

/// An episode's opening as messages.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    /// Rules and question.
    pub messages: Vec<ChatMessage>,
    /// The tools in OpenAI's function format.
    pub schemas: Vec<Value>,
    /// The chat template opens a thinking block.
    pub enable_thinking: bool,
}

/// Counts and times of one call of [`Generate::generate`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GenerateStats {
    /// Prompt tokens computed (a shared prompt counts once).
    pub num_prompt_tokens: usize,
    /// Tokens appended by handlers and computed.
    pub num_appended_tokens: usize,
    /// Tokens sampled.
    pub num_sampled_tokens: usize,
    /// Seconds in prefill of prompts and appended tokens.
    pub prefill_s: f64,
    /// Seconds in decode.
    pub decode_s: f64,
    /// Seconds spent waiting for handlers.
    pub wait_s: f64,
}

/// The error of a model behind one of the traits; what went wrong is in its message.
pub type ModelError = Box<dyn Error + Send + Sync>;

/// A policy that samples.
pub trait Generate {
    /// Runs every attempt of every group until its handler finishes it.
    fn generate(
        &mut self,
        groups: &[PromptGroup],
        sampling: &Sampling,
        budget: &TokenBudget,
        handler: &dyn TurnHandler,
    ) -> Result<GenerateStats, ModelError>;

    /// Number of updates that the weights have seen.
    fn policy_version(&self) -> u64;
}

/// What a text is to an embedder: queries may get an instruction, documents stay raw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextRole {
    /// A search query.
    Query,
    /// A text to be found.
    Document,
}

/// Turns texts into unit vectors.
pub trait Embed: Send + Sync {
    /// Length of each vector.
    fn dimension(&self) -> usize;

    /// Names the embedder and everything that changes its vectors; stored with an index and compared on load.
    fn identity(&self) -> String;

    /// One vector of L2 norm 1 (or all zeros for a text without features) for each text.
    fn embed(&self, texts: &[&str], role: TextRole) -> Result<Vec<Vec<f32>>, ModelError>;
}

/// An answer that a judge has to decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JudgeCase<'a> {
    /// What was asked.
    pub question: &'a str,
    /// What was answered.
    pub answer: &'a str,
    /// Right answers; any of them counts.
    pub gold: &'a [String],
    /// How they are compared.
    pub rule: JudgeRule,
}

/// Decides whether answers are right where no mechanical rule can.
pub trait Judge: Send + Sync {
    /// For each case, in their order: true when the answer is right by the case's rule.
    fn judge(&self, cases: &[JudgeCase]) -> Vec<Result<bool, ModelError>>;
}
