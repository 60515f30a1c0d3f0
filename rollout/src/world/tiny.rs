//! The files of the tiny checkpoint beside its weights: tokenizer, chat template, model and generation configuration.
//!
//! The tokenizer is a byte-level BPE like Qwen's, trained on rendered text of the sample world. It departs in two things. Up to
//! four digits, dates and times of day stay whole, because every line of an observation pays for them. And a word is the
//! same tokens after a quotation mark or at a line's start as after a space: copying ` Oslo` to `"Oslo`
//! takes a table of two spellings for each word otherwise, which a million parameters do not learn by the way.

use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::Path;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::decoders::sequence::Sequence as DecoderSequence;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::normalizers::replace::{Replace, ReplacePattern};
use tokenizers::normalizers::{NFC, NormalizerWrapper, Sequence as NormalizerSequence};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer};

/// Rows of the tiny model's embedding; the tokenizer has at most as many tokens.
pub const VOCAB_SIZE: usize = 3072;

/// The chat template: Qwen3.5's format with one short line for each tool.
pub const CHAT_TEMPLATE: &str = include_str!("chat_template.jinja");

/// What the tiny model is told; short, because every attempt pays for it. The reason comes first: it quotes where the answer
/// stands, and copying a phrase and then picking a word of it is easier than picking the word out of everything shown.
pub const SYSTEM_PROMPT: &str =
    r#"Answer from the user's memory. Do not guess. Form: {"reason": "...", "answer": "..."}"#;

/// Qwen's special tokens and whether decoders may skip them.
const SPECIAL_TOKENS: [(&str, bool); 9] = [
    ("<|endoftext|>", true),
    ("<|im_start|>", true),
    ("<|im_end|>", true),
    ("<tool_call>", false),
    ("</tool_call>", false),
    ("<tool_response>", false),
    ("</tool_response>", false),
    ("<think>", false),
    ("</think>", false),
];

/// Qwen's cut of text into words, but for dates, times of day and numbers (the second to fourth and the
/// sixth line), and for the word joiner of [`JOINT`].
const WORD_PATTERN: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    r"| ?\p{N}{4}-\p{N}{2}-\p{N}{2}",
    r"|T\p{N}{2}:\p{N}{2}",
    r"|\p{N}{2}:\p{N}{2}",
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
    r"|\p{N}{1,4}",
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*\x{2060}?",
    r"|\s*[\r\n]+\x{2060}?|\s+(?!\S)|\s+",
);

/// What the normalizer puts between a word and the mark it follows without a space, and the decoder takes away: a word joiner
/// and a space. A text that has this very pair loses it.
const JOINT: &str = "\u{2060} ";

/// Where a word follows without a space, and what stands before it.
const JOINED: [(&str, &str); 2] = [(r#""(?=\p{L})"#, "\""), (r"\n(?=\p{L})", "\n")];

/// Why the tiny checkpoint's files could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TinyError {
    /// A file or folder; the message names it.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The tokenizer library's own message.
    #[error("training the tokenizer: {0}")]
    Tokenizer(#[from] tokenizers::Error),
}

/// Trains the tokenizer on rendered conversations; special tokens in them are left out of the training.
///
/// # Errors
/// When the tokenizer library refuses the pattern or the training.
pub fn train_tokenizer(texts: &[String]) -> Result<Tokenizer, TinyError> {
    let byte_level = ByteLevel::new(false, false, false);
    let split = Split::new(SplitPattern::Regex(WORD_PATTERN.to_owned()), SplitDelimiterBehavior::Isolated, false)?;
    let words = Sequence::new(vec![PreTokenizerWrapper::Split(split), PreTokenizerWrapper::ByteLevel(byte_level)]);
    let mut normalizers: Vec<NormalizerWrapper> = vec![NFC.into()];
    for (pattern, before) in JOINED {
        normalizers.push(Replace::new(ReplacePattern::Regex(pattern.to_owned()), format!("{before}{JOINT}"))?.into());
    }
    let decoders: Vec<DecoderWrapper> = vec![byte_level.into(), Replace::new(JOINT, "")?.into()];
    let mut tokenizer = Tokenizer::new(BPE::default());
    tokenizer
        .with_normalizer(Some(NormalizerSequence::new(normalizers)))
        .with_pre_tokenizer(Some(words))
        .with_post_processor(Some(byte_level))
        .with_decoder(Some(DecoderSequence::new(decoders)));
    let trainer = BpeTrainer::builder()
        .vocab_size(VOCAB_SIZE - SPECIAL_TOKENS.len())
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect::<HashSet<char>>())
        .show_progress(false)
        .build();
    let pieces: Vec<&str> = texts.iter().flat_map(|text| without_special_tokens(text)).collect();
    tokenizer.train(&mut TrainerWrapper::BpeTrainer(trainer), pieces.into_iter())?;
    let specials = SPECIAL_TOKENS.map(|(content, special)| AddedToken::from(content, special).normalized(false));
    tokenizer.add_tokens(&specials);
    Ok(tokenizer)
}

/// The text between special tokens.
fn without_special_tokens(text: &str) -> Vec<&str> {
    SPECIAL_TOKENS.iter().fold(vec![text], |pieces, (token, _)| {
        pieces.into_iter().flat_map(|piece| piece.split(token)).filter(|piece| !piece.is_empty()).collect()
    })
}

/// Writes `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja`, `config.json`, `generation_config.json` and
/// `system_prompt.txt`.
///
/// # Errors
/// When the folder or a file cannot be written.
pub fn write_files(dir: &Path, tokenizer: &Tokenizer) -> Result<(), TinyError> {
    fs_err::create_dir_all(dir)?;
    fs_err::write(dir.join("tokenizer.json"), tokenizer.to_string(true)? + "\n")?;
    fs_err::write(dir.join("chat_template.jinja"), CHAT_TEMPLATE)?;
    fs_err::write(dir.join("system_prompt.txt"), format!("{SYSTEM_PROMPT}\n"))?;
    let id = |token: &str| tokenizer.token_to_id(token).expect("training added the special tokens");
    let [pad, end] = ["<|endoftext|>", "<|im_end|>"].map(id);
    for (name, value) in [
        ("tokenizer_config.json", tokenizer_config()),
        ("config.json", model_config(pad, end)),
        ("generation_config.json", json!({ "eos_token_id": [end, pad], "pad_token_id": pad })),
    ] {
        fs_err::write(dir.join(name), format!("{value:#}\n"))?;
    }
    Ok(())
}

fn tokenizer_config() -> Value {
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": false,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 4096,
    })
}

/// The smallest shape with both kinds of layer that learns to copy: about a million parameters.
fn model_config(pad_id: u32, end_id: u32) -> Value {
    json!({
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "attention_bias": false,
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "linear_conv_kernel_dim": 4,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "rms_norm_eps": 1e-6,
        "initializer_range": 0.06,
        "max_position_embeddings": 4096,
        "rope_parameters": { "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25 },
        "tie_word_embeddings": true,
        "use_cache": true,
        "eos_token_id": end_id,
        "pad_token_id": pad_id,
        "dtype": "float32",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{ChatFormat, ChatMessage, Role};
    use crate::tools::tool_schemas;

    fn trained() -> Tokenizer {
        let text = "<|im_start|>user\nOn March 14, 2024 ( 2024-03-14T10:31) Anna walked the dog Biscuit.<|im_end|>\n";
        train_tokenizer(&vec![text.to_owned(); 3]).expect("trained")
    }

    #[test]
    fn numbers_and_words_are_single_tokens_and_text_survives() {
        let tokenizer = trained();
        for (text, num) in [("2024", 1), (" Biscuit", 1), ("<|im_end|>", 1), ("14", 1), (" 2024-03-14", 1)] {
            assert_eq!(tokenizer.encode(text, false).expect("encoded").len(), num, "{text}");
        }
        let text = "naïve Übung 漢字 \u{1f642}\n\t 20245";
        let ids = tokenizer.encode(text, false).expect("encoded");
        assert_eq!(tokenizer.decode(ids.get_ids(), false).expect("decoded"), text);
        assert!(tokenizer.get_vocab_size(true) <= VOCAB_SIZE);
    }

    #[test]
    fn a_word_is_the_same_token_after_a_space_a_quotation_mark_and_a_line_end() {
        let text = "<parameter=query>\nAnna Biscuit\n</parameter>\n{\"answer\": \"Biscuit\", \"reason\": \"walked\"}\n";
        let tokenizer = train_tokenizer(&vec![format!("{text}See Anna and Biscuit."); 3]).expect("trained");
        let ids = |text: &str| tokenizer.encode(text, false).expect("encoded").get_ids().to_vec();
        let (anna, biscuit) = (ids(" Anna"), ids(" Biscuit"));
        assert_eq!((anna.len(), biscuit.len()), (1, 1));
        for (text, id) in [
            ("<parameter=query>\nAnna Biscuit", anna[0]),
            ("Anna\nBiscuit", biscuit[0]),
            ("{\"answer\": \"Biscuit\"", biscuit[0]),
        ] {
            assert!(ids(text).contains(&id), "{text}");
            assert_eq!(tokenizer.decode(&ids(text), false).expect("decoded"), text);
        }
    }

    #[test]
    fn training_is_deterministic() {
        let [one, other] = [trained(), trained()].map(|tokenizer| tokenizer.to_string(false).expect("JSON"));
        assert_eq!(one, other);
    }

    #[test]
    fn special_tokens_are_left_out() {
        assert_eq!(without_special_tokens("<think>\n\n</think>\n\nhi<|im_end|>"), ["\n\n", "\n\nhi"]);
    }

    #[test]
    fn writes_every_file() {
        let dir = tempfile::tempdir().expect("a scratch folder");
        write_files(dir.path(), &trained()).expect("written");
        for name in [
            "tokenizer.json",
            "tokenizer_config.json",
            "chat_template.jinja",
            "config.json",
            "generation_config.json",
            "system_prompt.txt",
        ] {
            assert!(dir.path().join(name).exists(), "{name}");
        }
        assert!(Tokenizer::from_file(dir.path().join("tokenizer.json")).is_ok());
    }

    #[test]
    fn the_chat_format_takes_the_files() {
        let dir = tempfile::tempdir().expect("a scratch folder");
        write_files(dir.path(), &trained()).expect("written");
        let format = ChatFormat::load(dir.path()).expect("a complete format");
        format.check_vocabulary(VOCAB_SIZE).expect("rows for every id");
        let prompt = |thinking| {
            let messages = [ChatMessage::new(Role::System, "Rules."), ChatMessage::new(Role::User, "Who?")];
            format.decode(&format.encode_prompt(&messages, &tool_schemas(), thinking).expect("rendered"))
        };
        let expected = "<|im_start|>system\n# Tools\nsearch_conversations(query)\nget_conversations(message_ids)\n\
                        search_records(query)\nget_records(record_ids)\nread_file(name)\n\nRules.<|im_end|>\n\
                        <|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n<think>\n";
        assert_eq!(prompt(true), expected);
        assert_eq!(prompt(false), format!("{expected}\n</think>\n\n"));
    }
}
