//! Sampling and embedding on top of the policy model: implements the traits of `napmem_rollout::generate`.

mod embed;
mod generate;
mod sampler;

pub use embed::{BertEmbedder, QwenEmbedder};
pub use generate::{Engine, EngineError, EngineLimits};
pub use sampler::{Draw, sample};
