//! The policy model: Qwen3.5's hybrid text decoder and its dense relatives (Qwen3, Llama), in one definition; beside it the
//! BERT encoder, which embeds texts and is never trained.
//!
//! One forward serves prefill, decode, scoring and training: a layer takes packed tokens and, when sampling, a cache. This
//! module knows nothing of rewards, episodes or losses.

mod attention;
mod bert;
mod bert_config;
mod cache;
mod config;
mod decoder;
mod delta_net;
mod error;
mod head;
mod init;
mod layer;
mod layout;
mod linear;
mod mimetic;
mod norm;
mod rope;
mod save;
mod weights;

pub use bert::{BertEncoder, BertLayer};
pub use bert_config::BertConfig;
pub use cache::{Cache, LayerCache};
pub use config::{AttentionConfig, DeltaNetConfig, LayerKind, ModelConfig, NormStyle, read_json};
pub use decoder::Decoder;
pub use delta_net::{chunked_delta_rule, recurrent_delta_rule};
pub use error::ModelFault;
pub use head::{HeadScores, score_chunk};
pub use init::init_model;
pub use layer::{DecoderLayer, Mixer};
pub use layout::PackedLayout;
pub use rope::Rotation;
pub use save::{save_model, write_tensors};
pub use weights::{Parameter, WeightFiles};
