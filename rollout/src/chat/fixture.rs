//! A small tokenizer and template of Qwen3.5's format for tests: one token a byte, few merges.

use super::ChatFormat;
use serde_json::{Map, Value, json};
use std::path::Path;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

/// Special tokens in the order of their ids, which follow the vocabulary of bytes and merges.
pub const SPECIALS: [&str; 9] = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
];

const MERGES: [(&str, &str); 5] = [("Ċ", "Ċ"), ("t", "h"), ("th", "e"), ("Ġ", "the"), ("<", "|")];

/// Like Qwen's, this takes line breaks together whatever follows them: cutting a text after them changes no ids.
const SPLIT: &str = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

pub const TEMPLATE: &str = r"{%- if tools %}
    {{- '<|im_start|>system\n<tools>' }}
    {%- for tool in tools %}{{ '\n' + (tool | tojson) }}{% endfor %}
    {{- '\n</tools>\nCall: <tool_call>\n<function=f>\n</function>\n</tool_call>' }}
    {%- if messages[0].role == 'system' %}{{ '\n\n' + messages[0].content | trim }}{% endif %}
    {{- '<|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content | trim + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- set content = message.content | trim %}
    {%- if message.role == 'user' %}
        {{- '<|im_start|>user\n' + content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n<think>\n' + (message.reasoning_content or '') | trim + '\n</think>\n\n' + content }}
        {%- for call in message.tool_calls or [] %}
            {{- ('\n\n' if loop.first and content else '' if loop.first else '\n') + '<tool_call>\n<function=' + call.function.name + '>\n' }}
            {%- for name, value in call.function.arguments | items %}
                {{- '<parameter=' + name + '>\n' + (value | tojson if value is mapping or value is sequence else value | string) + '\n</parameter>\n' }}
            {%- endfor %}
            {{- '</function>\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
        {{- '\n<tool_response>\n' + content + '\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n<think>\n' + ('\n</think>\n\n' if enable_thinking is false else '') }}
{%- endif %}";

/// `tokenizer.json` with these special tokens.
pub fn tokenizer_json(specials: &[&str]) -> Value {
    let mut alphabet: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    alphabet.sort_unstable();
    let merged = MERGES.iter().map(|(a, b)| format!("{a}{b}"));
    let tokens = alphabet.iter().map(char::to_string).chain(merged);
    let vocab: Map<String, Value> = tokens.enumerate().map(|(id, token)| (token, json!(id))).collect();
    let first_special = vocab.len();
    let added: Vec<Value> = specials
        .iter()
        .enumerate()
        .map(|(i, content)| {
            json!({"id": first_special + i, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": content.contains('|')})
        })
        .collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
    let split = json!({"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": false});
    let pre_tokenizer = json!({"type": "Sequence", "pretokenizers": [split, byte_level]});
    let merges: Vec<Value> = MERGES.iter().map(|(a, b)| json!([a, b])).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": {"type": "NFC"},
        "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                  "vocab": vocab, "merges": merges},
    })
}

/// Writes tokenizer and template.
pub fn write(dir: &Path) {
    let tokenizer = serde_json::to_vec(&tokenizer_json(&SPECIALS)).expect("serialisable");
    fs_err::write(dir.join("tokenizer.json"), tokenizer).expect("scratch folder");
    fs_err::write(dir.join("chat_template.jinja"), TEMPLATE).expect("scratch folder");
}

/// The chat format of these files.
pub fn load() -> ChatFormat {
    let dir = tempfile::tempdir().expect("scratch folder");
    write(dir.path());
    ChatFormat::load(dir.path()).expect("the fixture is valid")
}
