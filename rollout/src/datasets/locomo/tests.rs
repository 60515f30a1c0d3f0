use super::*;
use crate::datasets::users;
use crate::pyramid::fixtures::embedder;
use crate::pyramid::{Pyramid, PyramidData};
use serde_json::{Value, json};

/// One conversation with one of each trap.
fn sample() -> Value {
    json!({
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann", "speaker_b": "Bo",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": "I ran a race.\n"},
                {"speaker": "Bo", "dia_id": "D1:2", "text": "Look!", "blip_caption": "a photo of a lake", "img_url": ["u"]},
            ],
            "session_2_date_time": "12:10 am on 2 July, 2023",
            "session_2": [{"speaker": "Ann", "dia_id": "D2:1", "text": "I adopted a cat."}],
            "session_3_date_time": "2:00 pm on 9 July, 2023",
        },
        "observation": {
            "session_1_observation": {
                "Ann": [["Ann ran a race.", "D1:1"]],
                "Bo": [["Bo was at a lake.", ["D1:2", "D1:1"]], ["Bo sings.", "D7:7"]],
            },
            "session_2_observation": {"Ann": [["Ann has a cat.", "D2:1, D1:1"]]},
        },
        "event_summary": {
            "events_session_1": {"Ann": ["Ann runs a charity race."], "Bo": [], "date": "8 May, 2023"},
            "events_session_2": {"Ann": [], "Bo": ["Bo moves out."], "date": "2 July, 2023"},
        },
        "session_summary": {"session_1_summary": "Ann told Bo of a race. Bo showed a lake."},
        "qa": [
            {"question": "When did Ann run?", "answer": 2023, "category": 2, "evidence": ["D1:1"]},
            {"question": "What has Ann?", "answer": "a cat", "category": 1, "evidence": ["D2:1; D:1:1", "D9:9"]},
            {"question": "What does Bo play?", "adversarial_answer": "chess", "category": 5, "evidence": []},
            {"question": "Is it Bo's?", "answer": "No", "adversarial_answer": "Yes", "category": 5, "evidence": ["D2:1"]},
            {"question": "What?", "category": 4, "evidence": ["D2:1"]},
        ],
    })
}

fn import_value(value: &Value) -> (tempfile::TempDir, Result<ImportReport, DatasetError>) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("locomo.json");
    fs::write(&file, value.to_string()).unwrap();
    let report = import(&file, &dir.path().join("out"));
    (dir, report)
}

#[test]
fn traps_are_counted() {
    let (_dir, report) = import_value(&json!([sample()]));
    let report = report.unwrap();
    let expected = ImportReport {
        num_users: 1,
        num_messages: 3,
        num_records: 3,
        num_tracks: 3,
        num_questions: 4,
        num_adversarial: 2,
        num_adversarial_without_answer: 1,
        num_adversarial_with_answer: 1,
        num_number_answers: 1,
        num_unanswered: 1,
        num_evidence_normalized: 2,
        num_evidence_unresolved: 1,
        num_questions_without_evidence: 1,
        num_dates_without_session: 1,
        num_observations_without_source: 1,
        num_events_without_track: 1,
        warnings: vec![
            "conv-1: 1 session dates without a session, skipped".to_owned(),
            "conv-1: observation R1:3 names no message, left out: Bo sings.".to_owned(),
            "conv-1: 1 events of Bo have no record, left out".to_owned(),
            "conv-1: question conv-1-q002: evidence `D9:9` names no message, kept".to_owned(),
            "conv-1: question conv-1-q005 has no answer, left out: What?".to_owned(),
        ],
    };
    assert_eq!(report, expected);
    assert!(report.to_string().contains("1 answers are numbers"), "{report}");
}

#[test]
fn levels_are_what_was_annotated() {
    let (dir, report) = import_value(&json!([sample()]));
    report.unwrap();
    let out = dir.path().join("out");
    let data = PyramidData::read(&pyramids_dir(&out).join("conv-1")).unwrap();
    let lake = &data.messages[1];
    assert_eq!((lake.role.as_str(), lake.speaker.as_deref()), ("assistant", Some("Bo")));
    assert_eq!((lake.content.as_str(), lake.time.as_str()), ("Look! [image: a photo of a lake]", "2023-05-08T13:56"));
    assert_eq!(data.messages[0].content, "I ran a race.");
    assert_eq!((data.messages[2].time.as_str(), data.messages[2].session_id.as_str()), ("2023-07-02T00:10", "s2"));
    assert_eq!((data.records[1].id.as_str(), data.records[1].text.as_str()), ("R1:2", "Bo was at a lake."));
    assert_eq!(data.records[2].sources, ["D2:1", "D1:1"]);
    let names: Vec<&str> = data.tracks.iter().map(|track| track.name.as_str()).collect();
    assert_eq!(names, ["ann-2023-05.md", "ann-2023-07.md", "bo-2023-05.md"]);
    assert_eq!(data.tracks[0].summary, "Ann runs a charity race.");
    assert_eq!(data.tracks[0].narrative, "2023-05-08: Ann runs a charity race. Ann told Bo of a race.");
    assert_eq!(data.tracks[2].evidence, ["R1:2"]);
    assert!(data.profile.text.starts_with("# Ann\n- May 2023: Ann runs a charity race.\n- July 2023: Ann has a cat."));

    let known = users(&out).unwrap();
    let asked = questions::read(&questions_file(&out), &known).unwrap();
    assert_eq!(asked[0].gold, ["2023"]);
    assert_eq!(asked[1].evidence, ["D2:1", "D1:1", "D9:9"]);
    assert_eq!((asked[2].gold.len(), asked[2].category.as_str()), (0, "adversarial"));
    assert_eq!(asked[3].gold, ["No"]);
    Pyramid::load(&pyramids_dir(&out).join("conv-1"), &embedder()).unwrap();
}

#[test]
fn importing_twice_changes_nothing() {
    let (dir, first) = import_value(&json!([sample()]));
    let again = import(&dir.path().join("locomo.json"), &dir.path().join("out"));
    assert_eq!(again.unwrap(), first.unwrap());
}

#[test]
fn many_months_share_tracks() {
    let mut long = sample();
    for number in 4..30 {
        let (month, year) = (["January", "June"][number % 2], 2023 + number / 2);
        let id = format!("D{number}:1");
        long["conversation"][format!("session_{number}_date_time")] = json!(format!("1:00 pm on 3 {month}, {year}"));
        long["conversation"][format!("session_{number}")] = json!([{"speaker": "Bo", "dia_id": id, "text": "Hi."}]);
        long["observation"][format!("session_{number}_observation")] =
            json!({"Bo": [["Bo says hi.", id]], "Ann": [["Ann heard it.", id]]});
    }
    let (dir, report) = import_value(&json!([long]));
    let num_tracks = report.unwrap().num_tracks;
    assert!((10..=20).contains(&num_tracks), "{num_tracks}");
    Pyramid::load(&dir.path().join("out/pyramids/conv-1"), &embedder()).unwrap();
}

#[test]
fn bad_files_say_where_and_write_nothing() {
    type Break = fn(&mut Value);
    let cases: [(Break, &str); 7] = [
        (|v| *v = json!({}), "locomo.json: "),
        (|v| v[0]["sample_id"] = json!("../x"), "`sample_id` must be letters"),
        (
            |v| v[0]["conversation"]["session_1_date_time"] = json!("May"),
            "`conversation.session_1_date_time`: must be like",
        ),
        (|v| v[0]["conversation"]["session_1"][0]["speaker"] = json!("Cy"), "message `D1:1`: speaker `Cy`"),
        (
            |v| v[0]["conversation"]["session_1"] = json!([{}]),
            "sample `conv-1`: `conversation.session_1`: missing field",
        ),
        (|v| v[0]["qa"][0]["category"] = json!(6), "question conv-1-q001: `category` must be 1 to 5, got 6"),
        (|v| v[0]["qa"][0]["answer"] = json!([1]), "`answer` must be a string or a number, got [1]"),
    ];
    for (breaks, expected) in cases {
        let mut value = json!([sample()]);
        breaks(&mut value);
        let (dir, report) = import_value(&value);
        let error = report.expect_err(expected).to_string();
        assert!(error.contains(expected) && error.contains("locomo.json"), "{error} / {expected}");
        assert!(!dir.path().join("out").exists(), "{expected}");
    }
}
