use super::*;
use crate::pyramid::fixtures::{data, pyramid};
use proptest::prelude::*;
use serde_json::json;

fn ids(outcome: &ToolOutcome) -> Vec<&str> {
    outcome.returned.iter().map(|item| item.id.as_str()).collect()
}

#[test]
fn observations_word_for_word() {
    let galaxy = "[r1] 2024-02-20 event: Bought a Samsung Galaxy S22. (sources: m3)";
    let city = "[r3] 2024-03-01 fact: Lives in Oslo. (sources: m2, m6)";
    let arrived = "2024-02-25T12:00 s-2024-02-25 user: The Dell finally arrived.";
    let cases = [
        ("get_records", json!({"record_ids": ["r1"]}), 2, galaxy.to_owned()),
        ("get_records", json!({"record_ids": ["r3"]}), 2, format!("{city}\n  until 2024-03-01: Lives in Bergen.")),
        ("get_record", json!({"record_id": "r1"}), 2, galaxy.to_owned()),
        ("get_conversations", json!({"message_ids": ["m5"]}), 1, format!("[m5] {arrived}\nIt is light.")),
        ("get_conversation", json!({"message_ids": "[\"m5\"]"}), 1, format!("[m5] {arrived}\nIt is light.")),
        ("get_records", json!({"record_ids": "r1, r9"}), 2, format!("{galaxy}\nnot found: r9")),
        ("read_file", json!({"name": "devices.md"}), 3, data().tracks[0].render().trim().to_owned()),
        ("read_files", json!({"file": " profile.md "}), 4, data().profile.text.trim().to_owned()),
    ];
    for (name, arguments, level, expected) in cases {
        let outcome = call(&pyramid(), name, &arguments);
        assert_eq!(outcome.observation, expected, "{name} {arguments}");
        assert!(outcome.valid && outcome.level == Some(level), "{outcome:?}");
        assert!(Tool::parse(&outcome.tool).is_some_and(|tool| tool.name() == outcome.tool), "{}", outcome.tool);
    }
}

#[test]
fn searches_show_one_line_an_item() {
    let outcome = call(&pyramid(), "search_conversations", &json!({"query": "Dell arrived"}));
    let lines: Vec<&str> = outcome.observation.lines().collect();
    assert_eq!(lines[0], "[m5] 2024-02-25T12:00 s-2024-02-25 user: The Dell finally arrived. It is light.");
    assert_eq!((outcome.level, lines.len()), (Some(1), outcome.returned.len()));
    assert!(ids(&outcome).contains(&"m1") && outcome.returned.len() <= SEARCH_LIMIT);

    let outcome = call(&pyramid(), "search_record", &json!({"query": "laptop"}));
    assert_eq!(outcome.returned[0], ReturnedItem { id: "r2".to_owned(), sources: data().records[1].sources.clone() });
    let outcome = call(&pyramid(), "search_records", &json!({"query": "!?"}));
    assert!(outcome.valid && outcome.returned.is_empty(), "{outcome:?}");
    assert_eq!(outcome.observation, "no record matches; try other words or search_conversations");
}

#[test]
fn returned_items_carry_what_they_rest_on() {
    let track = call(&pyramid(), "read_file", &json!({"name": "devices.md"}));
    assert_eq!((ids(&track), &track.returned[0].sources), (vec!["devices.md"], &data().tracks[0].evidence));
    let profile = call(&pyramid(), "read_file", &json!({"name": "profile.md"}));
    assert_eq!(profile.returned[0].sources, ["devices.md"]);
}

/// Each call with the beginning of what the policy sees.
fn check_errors(cases: &[(&str, Value, &str)]) {
    for (name, arguments, expected) in cases {
        let outcome = call(&pyramid(), name, arguments);
        assert!(outcome.observation.starts_with(expected), "{} / {expected}", outcome.observation);
        assert!(!outcome.valid && outcome.level.is_none() && outcome.returned.is_empty(), "{outcome:?}");
    }
}

#[test]
fn bad_queries_are_observations() {
    let long = "x".repeat(1001);
    check_errors(&[
        ("delete_all", json!({}), "Error: no such tool. Tools: search_conversations, get_conversations, "),
        ("search_records", json!({}), "Error: argument `query` is missing"),
        ("search_records", json!({"query": " "}), "Error: argument `query` is empty"),
        ("search_records", json!({"query": ["x"]}), "Error: argument `query` must be a string"),
        ("search_records", json!({ "query": long }), "Error: argument `query` has more than 1000"),
        ("search_records", json!("x"), "Error: arguments must be an object with `query`"),
    ]);
}

#[test]
fn bad_ids_are_observations() {
    let many: Vec<String> = (0..21).map(|n| format!("m{n}")).collect();
    check_errors(&[
        ("get_records", json!({"record_ids": ["r9"]}), "Error: no record r9. search_records shows ids"),
        ("get_records", json!({"record_ids": ["m1"]}), "Error: no record m1. "),
        ("get_records", json!({"record_ids": []}), "Error: argument `record_ids` is empty"),
        ("get_records", json!({"record_ids": [["r1"]]}), "Error: argument `record_ids` must be a list"),
        ("get_conversations", json!({"message_ids": many}), "Error: argument `message_ids` has 21 ids, at most 20"),
        ("get_conversations", json!({"message_ids": "a b c d"}), "Error: no message a, b, c, …. "),
    ]);
}

#[test]
fn read_file_reads_only_what_the_pyramid_names() {
    let names = [
        "../ann/profile.md",
        "./profile.md",
        "/etc/passwd",
        "tracks/devices.md",
        "devices.md/",
        "devices",
        "devices.md\0",
        "..",
        "C:\\profile.md",
        "ｄevices.md",
        "devices\u{2024}md",
        "profile.md\u{200b}",
        "conversations.jsonl",
        "%2e%2e%2fprofile.md",
    ];
    for name in names {
        let outcome = call(&pyramid(), "read_file", &json!({ "name": name }));
        assert_eq!(outcome.observation, "Error: no such file. Files: profile.md, devices.md", "{name:?}");
        assert!(!outcome.valid);
    }
}

#[test]
fn schemas_name_every_tool_and_its_argument() {
    let schemas = tool_schemas();
    let names: Vec<&str> = schemas.iter().filter_map(|schema| schema["function"]["name"].as_str()).collect();
    assert_eq!(names, Tool::ALL.map(Tool::name));
    for schema in &schemas {
        let parameters = &schema["function"]["parameters"];
        let required = parameters["required"][0].as_str().expect("one argument is required");
        assert!(parameters["properties"][required]["type"].is_string(), "{schema}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(json!("r1")),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let keys = prop_oneof![Just("query"), Just("message_ids"), Just("record_ids"), Just("name"), Just("x")];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keys, inner), 0..4)
                .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_call_gives_a_non_empty_observation(name in prop_oneof![
        any::<String>(), prop::sample::select(Tool::ALL.map(Tool::name).to_vec()).prop_map(str::to_owned)
    ], arguments in any_json()) {
        let outcome = call(&pyramid(), &name, &arguments);
        prop_assert!(!outcome.observation.is_empty());
        prop_assert_eq!(outcome.valid, outcome.level.is_some());
    }
}
