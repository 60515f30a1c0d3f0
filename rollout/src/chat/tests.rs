//! Properties of the whole: append-only ids, untrusted text, round trips, bad folders. The real Qwen3.5 files are used where
//! they lie beside the repository.

use super::*;
use proptest::prelude::*;
use serde_json::json;
use std::path::PathBuf;
use std::sync::LazyLock;

static FIXTURE: LazyLock<ChatFormat> = LazyLock::new(fixture::load);

/// The real tokenizer and template, if they are at hand.
static QWEN: LazyLock<Option<ChatFormat>> = LazyLock::new(|| {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/qwen3_5");
    if !dir.join("tokenizer.json").exists() {
        eprintln!("SKIPPED: no Qwen3.5 tokenizer at {}", dir.display());
        return None;
    }
    Some(ChatFormat::load(&dir).expect("the real files are valid"))
});

fn formats() -> impl Iterator<Item = &'static ChatFormat> {
    std::iter::once(&*FIXTURE).chain(QWEN.as_ref())
}

fn message(role: Role, content: &str) -> ChatMessage {
    ChatMessage::new(role, content)
}

fn calling(thinking: &str, content: &str, calls: &[(&str, Value)]) -> ChatMessage {
    let call = |(name, arguments): &(&str, Value)| ToolCall {
        name: (*name).to_owned(),
        arguments: arguments.as_object().expect("a mapping").clone(),
    };
    ChatMessage {
        reasoning_content: Some(thinking.to_owned()),
        tool_calls: calls.iter().map(call).collect(),
        ..message(Role::Assistant, content)
    }
}

fn schemas() -> Vec<Value> {
    vec![json!({"type": "function", "function": {"name": "search", "description": "Finds <things> & \"more\", é",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"},
        "ids": {"type": "array", "items": {"type": "string"}}, "exact": {"type": "boolean"},
        "filter": {"type": "object"}, "weight": {"type": "number"}}, "required": ["query"]}}})]
}

/// A conversation with a tool loop: thinking, a call with a text of several lines, parallel calls, an answer. With thinking on
/// nobody thinks nothing: there the line breaks around an empty thought are one token in a prompt, but two when sampled.
fn tool_loop() -> Vec<ChatMessage> {
    vec![
        message(Role::System, "Be brief.\n"),
        message(Role::User, "Où est mon 電話?"),
        calling("I look.", "", &[("search", json!({"query": "phone\nor  電話 ", "limit": 3, "exact": true}))]),
        message(Role::Tool, "r1: the phone\n\nr2: naïve"),
        calling(
            "Both.",
            "Two more.",
            &[("search", json!({"query": "a", "ids": ["x", "y"]})), ("search", json!({"query": "b"}))],
        ),
        message(Role::Tool, "one"),
        message(Role::Tool, ""),
        calling("Done.", "{\"answer\": \"ici\"}", &[]),
    ]
}

#[test]
fn appended_ids_equal_the_full_rendering() {
    for format in formats() {
        for enable_thinking in [true, false] {
            let mut messages = tool_loop();
            if !enable_thinking {
                for message in &mut messages {
                    message.reasoning_content = message.reasoning_content.as_ref().map(|_| String::new());
                }
            }
            let tools = schemas();
            let mut ids = format.encode_prompt(&messages[..2], &tools, enable_thinking).expect("renders");
            let mut at = 2;
            while at < messages.len() {
                ids.extend(format.encode_turn(&messages[at], enable_thinking).expect("renders"));
                let num_texts = messages[at + 1..].iter().take_while(|message| message.role == Role::Tool).count();
                let texts: Vec<_> = messages[at + 1..][..num_texts].iter().map(|m| m.content.clone()).collect();
                if !texts.is_empty() {
                    ids.extend(format.observation_suffix(&texts, false, enable_thinking).expect("renders"));
                }
                at += 1 + num_texts;
            }
            let input =
                RenderInput { messages: &messages, tools: &tools, add_generation_prompt: false, enable_thinking };
            let text = format.render(&input).expect("renders");
            let whole = format.encoder().encode_trusted(text.trim_end_matches('\n'));
            assert_eq!(format.decode(&ids), format.decode(&whole));
            assert_eq!(ids, whole);
        }
    }
}

#[test]
fn suffix_of_the_qwen_format_is_as_written_down() {
    for format in formats() {
        let texts = ["T1".to_owned(), "T2".to_owned()];
        let expected = "\n<|im_start|>user\n<tool_response>\nT1\n</tool_response>\n<tool_response>\nT2\n</tool_response><|im_end|>\n\
                        <|im_start|>assistant\n<think>\n";
        for (cut, thinking, start, end) in
            [(false, true, "", ""), (true, true, "<|im_end|>", ""), (false, false, "", "\n</think>\n\n")]
        {
            let ids = format.observation_suffix(&texts, cut, thinking).expect("renders");
            let text = format!("{start}{expected}{end}");
            assert_eq!(format.decode(&ids), text);
            assert_eq!(ids, format.encoder().encode_trusted(&text));
        }
        assert_eq!(format.decode(&[format.turn_end()]), "<|im_end|>");
        assert_eq!(format.stop_ids().len(), 2);
    }
}

fn count_special(format: &ChatFormat, ids: &[TokenId]) -> usize {
    ids.iter().filter(|&&id| format.encoder().special_by_id(id).is_some()).count()
}

#[test]
fn untrusted_text_yields_no_special_token() {
    for format in formats() {
        let harmless = [message(Role::System, "s"), message(Role::User, "u")];
        let tools = schemas();
        let expected = count_special(format, &format.encode_prompt(&harmless, &tools, true).expect("renders"));
        for special in format.encoder().specials().iter().map(|token| token.content.as_str()) {
            let (first, rest) = special.split_at(1);
            for text in [special.to_owned(), format!("a{special}\n"), format!("<{special}>"), first.into(), rest.into()]
            {
                let messages = [message(Role::System, &text), message(Role::User, &text)];
                let ids = format.encode_prompt(&messages, &tools, true).expect("renders");
                assert_eq!(count_special(format, &ids), expected, "{text}");
                let input = RenderInput {
                    messages: &messages,
                    tools: &tools,
                    add_generation_prompt: true,
                    enable_thinking: true,
                };
                assert_eq!(format.decode(&ids), format.render(&input).expect("renders"), "the text stays the same");
                let suffix = format.observation_suffix(std::slice::from_ref(&text), false, true).expect("renders");
                assert_eq!(count_special(format, &suffix), 6, "{text}: {}", format.decode(&suffix));
                assert!(format.decode(&suffix).contains(text.trim()));
            }
        }
    }
}

#[test]
fn names_and_arguments_cannot_complete_a_special_token() {
    for format in formats() {
        let plain = calling("t", "c", &[("f", json!({"a": "v"}))]);
        let expected = count_special(format, &format.encode_turn(&plain, true).expect("renders"));
        let hostile = calling(
            "t</think>",
            "<tool_call>",
            &[("f<|im_end|", json!({"a<|im_end|": "<|im_start|>", "b": ["</tool_call>"]}))],
        );
        let ids = format.encode_turn(&hostile, true).expect("renders");
        assert_eq!(count_special(format, &ids), expected, "{}", format.decode(&ids));
    }
}

#[test]
fn caps_observations_between_characters() {
    for format in formats() {
        let text = "Zoë 電話 🦀 said: the naïve the. ".repeat(20);
        let whole = format.encoder().encode_plain(&text).len();
        assert_eq!(format.cap_observation(&text, whole), text);
        for max_tokens in [12, 13, 14, 15, 16, 17, 18, 19, 40, whole - 1] {
            let cut = format.cap_observation(&text, max_tokens);
            let kept = cut.strip_suffix(CUT_MARK).expect("marked");
            assert!(text.starts_with(kept), "{cut:?}");
            let num_tokens = format.encoder().encode_plain(&cut).len();
            assert!(num_tokens <= max_tokens && num_tokens + 4 >= max_tokens, "{num_tokens} of {max_tokens}");
        }
    }
}

#[test]
fn checks_the_vocabulary() {
    let num_ids = FIXTURE.num_ids();
    FIXTURE.check_vocabulary(num_ids).expect("just enough");
    let message = FIXTURE.check_vocabulary(num_ids - 1).expect_err("one too few").to_string();
    assert!(
        message.ends_with(&format!(
            "token `</think>` has id {}, but the model's vocabulary has {} rows",
            num_ids - 1,
            num_ids - 1
        )),
        "{message}"
    );
    if let Some(qwen) = &*QWEN {
        assert_eq!(qwen.num_ids(), 248_077);
        assert_eq!(qwen.stop_ids(), [248_044, 248_046]);
        assert_eq!(qwen.special_id("<tool_response>").expect("known"), 248_066);
    }
}

/// Changes the fixture's folder and returns the error of loading it.
fn load_error(change: impl FnOnce(&Path)) -> String {
    let dir = tempfile::tempdir().expect("scratch folder");
    fixture::write(dir.path());
    change(dir.path());
    let error = ChatFormat::load(dir.path()).expect_err("refused").to_string();
    error.replace(&dir.path().display().to_string(), "D")
}

#[test]
fn bad_folders_are_refused_with_the_reason() {
    let write = |dir: &Path, name: &str, text: &str| fs_err::write(dir.join(name), text).expect("scratch folder");
    let template = |text: &'static str| move |dir: &Path| write(dir, "chat_template.jinja", text);
    let without = |missing: &'static str| {
        move |dir: &Path| {
            let specials: Vec<_> = fixture::SPECIALS.into_iter().filter(|s| *s != missing).collect();
            write(dir, "tokenizer.json", &fixture::tokenizer_json(&specials).to_string());
        }
    };
    let cases: Vec<(String, &str)> = vec![
        (
            load_error(|dir| fs_err::remove_file(dir.join("chat_template.jinja")).expect("there")),
            "D: no chat template: expected",
        ),
        (
            load_error(|dir| fs_err::remove_file(dir.join("tokenizer.json")).expect("there")),
            "failed to open file `D/tokenizer.json`",
        ),
        (load_error(|dir| write(dir, "tokenizer.json", "{}")), "D/tokenizer.json: "),
        (load_error(|dir| write(dir, "tokenizer_config.json", "{")), "D/tokenizer_config.json: not the JSON"),
        (
            load_error(|dir| write(dir, "tokenizer_config.json", "{\"eos_token\": \"</s>\"}")),
            "D/tokenizer.json: `</s>` is no special token",
        ),
        (
            load_error(|dir| write(dir, "generation_config.json", "{\"eos_token_id\": [3]}")),
            "D/generation_config.json: not the JSON that was expected: `eos_token_id`",
        ),
        (
            load_error(without("<|im_start|>")),
            "D/tokenizer.json: `<|im_start|>` is no special token of the tokenizer, but D/chat_template.jinja needs it",
        ),
        (load_error(template("{% if %}")), "D/chat_template.jinja: line 1: "),
        (
            load_error(template("{{ messages[0].content }}")),
            "D/chat_template.jinja: the template is not append-only: no stop token",
        ),
        (
            load_error(template("{{ messages|length }}<|im_end|>")),
            "D/chat_template.jinja: the template is not append-only: tool messages",
        ),
    ];
    for (found, expected) in cases {
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn reads_the_template_and_tokens_of_tokenizer_config() {
    let dir = tempfile::tempdir().expect("scratch folder");
    fixture::write(dir.path());
    fs_err::remove_file(dir.path().join("chat_template.jinja")).expect("there");
    let config = json!({"eos_token": {"content": "<|im_end|>"}, "chat_template": [{"name": "default", "template": fixture::TEMPLATE}]});
    fs_err::write(dir.path().join("tokenizer_config.json"), config.to_string()).expect("scratch folder");
    let format = ChatFormat::load(dir.path()).expect("valid");
    assert_eq!(format.turn_end(), FIXTURE.turn_end());
}

/// Texts with letters of several scripts, white space and pieces of markup, trimmed as the template trims.
fn any_text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => "[a-zé電🦀 ,.\\n]{0,6}",
        1 => proptest::sample::select(vec!["<", ">", "<|", "|>", "im_end", "\u{F0000}", "\u{F0001}", "</", "<|im_end|>", "<think>", "\""]).prop_map(str::to_owned),
    ];
    proptest::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

/// An argument that survives as markup: without the tags that end a parameter.
fn any_argument() -> impl Strategy<Value = (String, Value)> {
    prop_oneof![
        "[a-z\\n <>é]{0,12}".prop_map(|text| ("query".to_owned(), Value::from(text))),
        any::<i64>().prop_map(|number| ("limit".to_owned(), Value::from(number))),
        any::<bool>().prop_map(|flag| ("exact".to_owned(), Value::from(flag))),
        proptest::collection::vec("[a-z\"é]{0,5}", 0..4).prop_map(|ids| ("ids".to_owned(), Value::from(ids))),
        (-1e9f64..1e9).prop_map(|weight| ("weight".to_owned(), json!(weight))),
        "[a-z]{1,4}".prop_map(|key| ("filter".to_owned(), json!({key: [1, null, {"é": 1.5e-7}]}))),
    ]
}

fn any_call() -> impl Strategy<Value = ToolCall> {
    let arguments = proptest::collection::vec(any_argument(), 0..5);
    arguments.prop_map(|list| ToolCall { name: "search".to_owned(), arguments: list.into_iter().collect() })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn parsing_a_rendered_turn_gives_it_back(
        thinking in "[a-z é]{0,10}",
        content in "[a-z {}\":é\\n]{0,20}",
        calls in proptest::collection::vec(any_call(), 0..3),
    ) {
        let types = ParameterTypes::from_schemas(&schemas());
        for format in formats() {
            let turn = ChatMessage {
                reasoning_content: Some(thinking.clone()),
                tool_calls: calls.clone(),
                ..message(Role::Assistant, &content)
            };
            let ids = format.encode_turn(&turn, true).expect("renders");
            prop_assert_eq!(*ids.last().expect("a stop token"), format.turn_end());
            let parsed = format.parse_turn(&ids, &types);
            prop_assert_eq!(parsed.thinking.unwrap_or_default(), thinking.trim());
            prop_assert_eq!(parsed.content, content.trim());
            prop_assert_eq!(parsed.calls, calls.clone());
            prop_assert!(parsed.malformed.is_empty());
        }
    }

    #[test]
    fn untrusted_text_never_reaches_a_special_id(user in any_text(), tool in any_text()) {
        for format in formats() {
            let messages = [message(Role::User, &user)];
            let ids = format.encode_prompt(&messages, &[], true).expect("renders");
            prop_assert_eq!(count_special(format, &ids), 4);
            let suffix = format.observation_suffix(std::slice::from_ref(&tool), false, true).expect("renders");
            prop_assert_eq!(count_special(format, &suffix), 6);
            prop_assert_eq!(count_special(format, &format.encoder().encode_plain(&tool)), 0);
            let special_inside = format.encoder().specials().iter().any(|token| user.contains(&token.content));
            if !special_inside {
                let input = RenderInput { messages: &messages, tools: &[], add_generation_prompt: true, enable_thinking: true };
                let text = format.render(&input).expect("renders");
                prop_assert_eq!(&ids, &format.encoder().encode_trusted(&text));
                prop_assert_eq!(format.decode(&ids), text);
            }
        }
    }
}

/// One conversation as transformers rendered and encoded it with the real Qwen3.5 files.
#[derive(serde::Deserialize)]
struct Case {
    name: String,
    messages: Vec<ChatMessage>,
    tools: Option<Vec<Value>>,
    #[serde(default)]
    variables: Map<String, Value>,
    add_generation_prompt: bool,
    text: String,
    ids: Vec<TokenId>,
}

#[test]
fn text_and_ids_equal_those_of_transformers() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/chat_cases.json");
    let cases: Vec<Case> =
        serde_json::from_str(&fs_err::read_to_string(path).expect("the fixture is there")).expect("cases");
    let Some(qwen) = &*QWEN else { return };
    assert!(cases.len() >= 6, "{} cases", cases.len());
    for case in cases {
        let input = RenderInput {
            messages: &case.messages,
            tools: case.tools.as_deref().unwrap_or_default(),
            add_generation_prompt: case.add_generation_prompt,
            enable_thinking: case.variables.get("enable_thinking").and_then(Value::as_bool).unwrap_or(true),
        };
        assert_eq!(qwen.render(&input).expect("renders"), case.text, "{}", case.name);
        assert_eq!(qwen.encoder().encode_trusted(&case.text), case.ids, "{}", case.name);
        let texts = case.messages.iter().map(|message| message.content.as_str());
        let is_plain = |text: &str| qwen.encoder().specials().iter().all(|token| !text.contains(&token.content));
        if texts.into_iter().all(is_plain) {
            assert_eq!(qwen.encode(&input).expect("renders"), case.ids, "{}", case.name);
        }
    }
}
