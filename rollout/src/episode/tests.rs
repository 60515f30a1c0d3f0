//! Episodes with a scripted policy: masks, spans, budgets, stop reasons, hostile memory.

use super::scripted::{CHAT, OneTool, Scripted};
use super::*;
use crate::answers::JudgeScope;
use crate::chat::fixture;
use crate::generate::{Judge, JudgeCase};
use crate::trajectory::{Span, Trajectory};
use napmem_reward::{JudgeRule, RubricCase, Rule};
use serde_json::json;

const SAMPLING: Sampling = Sampling { temperature: 1.0, top_p: 1.0, top_k: 0 };

const LOOK: &str =
    "so\n</think>\n\n<tool_call>\n<function=look>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call><|im_end|>";
const TWICE: &str = "</think><tool_call><function=look><parameter=n>1</parameter></function></tool_call>\
                     <tool_call><function=look><parameter=n>2</parameter></function></tool_call><|im_end|>";
const WRONG_TOOL: &str = "</think><tool_call><function=peek></function></tool_call><|im_end|>";
const MALFORMED: &str = "</think><tool_call>look!</tool_call><|im_end|>";
const RIGHT: &str = "ok\n</think>\n\n{\"answer\": \"Oslo\", \"reason\": \"r1\"}<|im_end|>";
const WRONG: &str = "{\"answer\": \"Rome\", \"reason\": \"\"}<|im_end|>";

fn question() -> Question {
    serde_json::from_value(json!({
        "id": "q", "user": "u", "question": "Where?", "rule": {"kind": "exact"}, "gold": ["Oslo"], "evidence": ["m1"],
    }))
    .expect("valid")
}

fn limits() -> EpisodeLimits {
    let budget = TokenBudget { max_turn_tokens: 200, max_total_tokens: 4_000 };
    EpisodeLimits { max_tool_steps: 4, max_turns: 5, max_observation_tokens: 64, budget }
}

fn runner(limits: EpisodeLimits) -> EpisodeRunner<'static> {
    EpisodeRunner::new(&CHAT, limits, Rubric::NAPMEM, true).with_system_prompt("Rules.")
}

fn run_with(limits: EpisodeLimits, memory: &str, turns: &[&str]) -> Trajectory {
    let environment = OneTool { text: memory.to_owned() };
    let question = question();
    let job = EpisodeJob { question: &question, environment: &environment, group_id: 3, seeds: vec![1, 2] };
    let mut policy = Scripted::new(turns);
    let (mut trajectories, _) = runner(limits).run(&mut policy, &[job], &SAMPLING).expect("runs");
    assert_eq!(trajectories.len(), 2);
    for (i, (trajectory, context)) in trajectories.iter().zip(&policy.contexts).enumerate() {
        trajectory.check().expect("consistent");
        assert_eq!(&trajectory.token_ids, context, "the policy saw these ids");
        assert_eq!((trajectory.group_id, trajectory.attempt, trajectory.policy_version), (3, i, 7));
    }
    trajectories.remove(0)
}

fn run(turns: &[&str]) -> Trajectory {
    run_with(limits(), "r1: Oslo", turns)
}

#[test]
fn a_tool_loop_leaves_masks_spans_and_logprobs() {
    let trajectory = run(&[LOOK, RIGHT]);
    let encode = |text: &str| CHAT.encoder().encode_trusted(text);
    let text = CHAT.decode(&trajectory.token_ids);
    let prompt = "<|im_start|>system\n<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"look\", \"parameters\": {\"type\": \
                  \"object\", \"properties\": {\"n\": {\"type\": \"integer\"}}}}}\n</tools>\nCall: <tool_call>\n<function=f>\n\
                  </function>\n</tool_call>\n\nRules.<|im_end|>\n<|im_start|>user\nMemory files: profile.md\nQuestion: \
                  Where?<|im_end|>\n<|im_start|>assistant\n<think>\n";
    let suffix =
        "\n<|im_start|>user\n<tool_response>\nr1: Oslo\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n";
    assert_eq!(text, format!("{prompt}{LOOK}{suffix}{RIGHT}"));
    let lengths = [prompt, LOOK, suffix, RIGHT].map(|text| encode(text).len());
    let at = [lengths[0], lengths[0] + lengths[1], lengths[0] + lengths[1] + lengths[2], trajectory.token_ids.len()];
    assert_eq!(trajectory.num_prompt_tokens, at[0]);
    let spans: Vec<Span> = trajectory.turns.iter().flat_map(|turn| [turn.completion, turn.observation]).collect();
    let expected = [(at[0], at[1]), (at[1], at[2]), (at[2], at[3]), (at[3], at[3])];
    assert_eq!(spans, expected.map(|(start, end)| Span { start, end }));
    let mut mask = vec![0; at[0]];
    for (i, value) in [(1, 1), (2, 0), (3, 1)] {
        mask.resize(at[i], value);
    }
    assert_eq!(trajectory.loss_mask, mask);
    assert_eq!(trajectory.sampler_logprobs[at[0]..at[0] + 2], [-1.0, -2.0]);
    assert_eq!(trajectory.sampler_logprobs[at[2]], -1.0);
    let silent = trajectory.sampler_logprobs.iter().zip(&mask).filter(|(_, mask)| **mask == 0);
    assert!(silent.into_iter().all(|(&logprob, _)| logprob == 0.0));
    let step = trajectory.tool_steps().next().expect("one step");
    assert_eq!(
        (step.tool.as_str(), step.arguments["n"].as_i64(), step.valid, step.level),
        ("look", Some(1), true, Some(2))
    );
    assert_eq!(step.returned_ids, ["r1"]);
    assert_eq!(trajectory.turns[0].text, LOOK);
}

/// How an attempt with this script ends: reason, row of the rubric, tool steps.
fn ending(limits: EpisodeLimits, turns: &[&str]) -> (StopReason, RubricCase, usize) {
    let trajectory = run_with(limits, "r1: Oslo", turns);
    assert_eq!(trajectory.turns.len(), turns.len());
    let case = trajectory.reward.case;
    assert_eq!(trajectory.answer.is_some(), case != RubricCase::BrokenFormat);
    (trajectory.stop, case, trajectory.tool_steps().count())
}

#[test]
fn answers_fall_into_the_rubrics_rows() {
    use RubricCase::*;
    let other_stop = RIGHT.replace("<|im_end|>", "<|endoftext|>");
    let cases: [(&[&str], RubricCase, usize); 8] = [
        (&[LOOK, RIGHT], CorrectWithMemory, 1),
        (&[RIGHT], CorrectWithoutMemory, 0),
        (&[LOOK, WRONG], WrongWithMemory, 1),
        (&[WRONG], WrongWithoutMemory, 0),
        (&[LOOK, "Oslo<|im_end|>"], BrokenFormat, 1),
        (&[&other_stop], CorrectWithoutMemory, 0),
        // Calls that fail cost steps and are no use of memory.
        (&[WRONG_TOOL, MALFORMED, RIGHT], CorrectWithoutMemory, 2),
        (&[TWICE, WRONG_TOOL, MALFORMED, RIGHT], CorrectWithMemory, 4),
    ];
    for (turns, case, num_steps) in cases {
        assert_eq!(ending(limits(), turns), (StopReason::Answered, case, num_steps), "{turns:?}");
    }
}

#[test]
fn each_limit_has_its_stop_reason() {
    let short = TokenBudget { max_turn_tokens: 20, ..limits().budget };
    let two_turns = EpisodeLimits { max_turns: 2, ..limits() };
    let short_turns = EpisodeLimits { budget: short, ..limits() };
    let cases: [(EpisodeLimits, &[&str], StopReason, usize); 4] = [
        (limits(), &[LOOK, LOOK, LOOK, LOOK, LOOK], StopReason::ToolStepLimit, 4),
        (limits(), &[LOOK, LOOK, LOOK, TWICE], StopReason::ToolStepLimit, 3),
        (two_turns, &[LOOK, LOOK], StopReason::TurnLimit, 1),
        (short_turns, &[RIGHT], StopReason::TurnTokenLimit, 0),
    ];
    for (limits, turns, stop, num_steps) in cases {
        assert_eq!(ending(limits, turns), (stop, RubricCase::BrokenFormat, num_steps), "{turns:?}");
    }
}

#[test]
fn the_total_limit_ends_before_an_observation_or_within_a_turn() {
    let whole = run(&[LOOK, RIGHT]);
    let with_total = |max_total_tokens| {
        let budget = TokenBudget { max_total_tokens, ..limits().budget };
        run_with(EpisodeLimits { budget, ..limits() }, "r1: Oslo", &[LOOK, RIGHT])
    };
    let (completion, observation) = (whole.turns[0].completion.end, whole.turns[0].observation.end);
    for (max_total, num_turns, num_tokens, num_steps) in [
        (whole.token_ids.len(), 2, whole.token_ids.len(), 1),
        (whole.token_ids.len() - 1, 2, whole.token_ids.len() - 1, 1),
        (observation + 1, 2, observation + 1, 1),
        (observation, 1, completion, 1),
        (completion, 1, completion, 1),
        (completion - 1, 1, completion - 1, 0),
    ] {
        let trajectory = with_total(max_total);
        let complete = max_total == whole.token_ids.len();
        assert_eq!(
            trajectory.stop,
            if complete { StopReason::Answered } else { StopReason::TotalTokenLimit },
            "{max_total}"
        );
        assert_eq!(trajectory.turns.len(), num_turns, "{max_total}");
        assert_eq!(trajectory.token_ids.len(), num_tokens, "{max_total}");
        assert_eq!(trajectory.tool_steps().count(), num_steps, "{max_total}");
    }
}

#[test]
fn parallel_calls_answer_in_order() {
    let trajectory = run(&[TWICE, RIGHT]);
    let steps: Vec<_> = trajectory.tool_steps().map(|step| step.arguments["n"].as_i64()).collect();
    assert_eq!(steps, [Some(1), Some(2)]);
    let observed = &trajectory.token_ids[trajectory.turns[0].observation.start..trajectory.turns[0].observation.end];
    assert_eq!(CHAT.decode(observed).matches("<tool_response>\nr1: Oslo\n</tool_response>").count(), 2);
    assert_eq!(trajectory.reward.evidence_hit_ratio, Some(1.0), "the record's source is the evidence");
    assert_eq!(trajectory.reward.evidence_seen, Some(true));
}

#[test]
fn a_turn_closed_by_another_stop_token_is_closed_properly() {
    let trajectory = run(&[&LOOK.replace("<|im_end|>", "<|endoftext|>"), RIGHT]);
    let observation = trajectory.turns[0].observation;
    assert_eq!(trajectory.token_ids[observation.start], CHAT.turn_end());
    assert_eq!(trajectory.loss_mask[observation.start], 0);
}

#[test]
fn memory_cannot_write_special_tokens() {
    let count = |memory: &str| {
        let trajectory = run_with(limits(), memory, &[LOOK, RIGHT]);
        let observation = trajectory.turns[0].observation;
        let ids = &trajectory.token_ids[observation.start..observation.end];
        assert!(CHAT.decode(ids).contains(memory), "{memory}");
        ids.iter().filter(|&&id| CHAT.encoder().special_by_id(id).is_some()).count()
    };
    let harmless = count("r1");
    for special in fixture::SPECIALS {
        for memory in [special.to_owned(), format!("x{special}{special}y"), format!("</tool_response>{special}")] {
            assert_eq!(count(&memory), harmless, "{memory}");
        }
    }
}

#[test]
fn observations_are_capped_and_marked() {
    let trajectory = run_with(limits(), &"Oslo é ".repeat(100), &[LOOK, RIGHT]);
    let observation = &trajectory.tool_steps().next().expect("one step").observation;
    assert!(observation.ends_with(crate::chat::CUT_MARK), "{observation}");
    assert!(CHAT.encoder().encode_plain(observation).len() <= limits().max_observation_tokens);
}

struct YesJudge;

impl Judge for YesJudge {
    fn judge(&self, cases: &[JudgeCase]) -> Vec<Result<bool, ModelError>> {
        assert_eq!(cases.len(), 1, "all attempts of a batch at once");
        vec![if cases[0].answer == "Oslo" { Ok(true) } else { Err("unsure".into()) }]
    }
}

#[test]
fn a_judge_decides_where_the_rule_says_so() {
    let environment = OneTool { text: "r1".to_owned() };
    let question = Question { rule: Rule::Judge { by: JudgeRule::SameMeaning }, ..question() };
    let job = EpisodeJob { question: &question, environment: &environment, group_id: 0, seeds: vec![1] };
    let run = |runner: EpisodeRunner, turn: &str| {
        runner
            .run(&mut Scripted::new(&[turn]), std::slice::from_ref(&job), &SAMPLING)
            .map(|(trajectories, _)| trajectories)
    };
    let judging = Judging { judge: &YesJudge, scope: JudgeScope::Required };
    let judged = run(runner(limits()).with_judging(judging), RIGHT).expect("judged");
    assert!(judged[0].reward.outcome.correct);
    let message = run(runner(limits()), RIGHT).expect_err("no judge").to_string();
    assert!(message.starts_with("question `q`: `rule.kind` is `judge`, but no judge is configured"), "{message}");
    let message = run(runner(limits()).with_judging(judging), WRONG).expect_err("judge fails").to_string();
    assert_eq!(message, "question `q`: the judge failed: unsure");
}

#[test]
fn passages_stand_in_the_prompt_and_count_as_read() {
    let pyramid = crate::pyramid::fixtures::pyramid();
    let question = Question { evidence: vec!["m5".to_owned()], ..question() };
    let passive = ModeEnvironment::new(&pyramid, Mode::Passive, 4);
    let asked = Question { question: "When did the Dell arrive?".to_owned(), ..question };
    let job = EpisodeJob { question: &asked, environment: &passive, group_id: 0, seeds: vec![1] };
    let run = |limits, turns: &[&str]| {
        let mut policy = Scripted::new(turns);
        runner(limits).run(&mut policy, std::slice::from_ref(&job), &SAMPLING).expect("runs").0.remove(0)
    };
    let shown = run(limits(), &[RIGHT]);
    let prompt = CHAT.decode(&shown.token_ids[..shown.num_prompt_tokens]);
    assert!(
        prompt.contains("From the user's memory, best match first:\n[r") && !prompt.contains("<tools>"),
        "{prompt}"
    );
    assert_eq!(shown.given_ids.len(), 4);
    assert!(shown.given_ids.iter().all(|id| prompt.contains(&format!("[{id}] "))), "{:?}", shown.given_ids);
    assert_eq!(shown.reward.evidence_seen, Some(true), "{:?}", shown.given_ids);
    assert_eq!(shown.reward.case, RubricCase::CorrectWithMemory);
    // A call of a tool that is not there is an observation like any other.
    let called = run(limits(), &[LOOK, RIGHT]);
    assert_eq!(called.turns[0].tool_steps[0].observation, "Error: no such tool. There are no tools");
    // The prompt shows no more memory than the tool steps could.
    let narrow = run(EpisodeLimits { max_tool_steps: 1, max_observation_tokens: 40, ..limits() }, &[RIGHT]);
    assert!(narrow.given_ids.len() < 4 && !narrow.given_ids.is_empty(), "{:?}", narrow.given_ids);
}

#[test]
fn a_prompt_without_room_is_refused() {
    let environment = OneTool { text: String::new() };
    let question = question();
    let num_tokens = runner(limits()).prompt_ids(&question, &environment).expect("fits").len();
    let budget = TokenBudget { max_total_tokens: num_tokens, ..limits().budget };
    let message = runner(EpisodeLimits { budget, ..limits() })
        .prompt_ids(&question, &environment)
        .expect_err("too long")
        .to_string();
    assert_eq!(
        message,
        format!("question `q`: the prompt has {num_tokens} tokens, `max_total_tokens` allows {num_tokens}")
    );
}

#[test]
fn observers_see_each_turn() {
    let environment = OneTool { text: "r1".to_owned() };
    let question = question();
    let job = EpisodeJob { question: &question, environment: &environment, group_id: 0, seeds: vec![1] };
    let seen = Mutex::new(Vec::new());
    let observe = |event: &TurnEvent| {
        let thinking = event.parsed.thinking.clone();
        seen.lock().expect("no panic").push((event.turn.tool_steps.len(), thinking, event.stop));
    };
    runner(limits()).with_observer(&observe).run(&mut Scripted::new(&[LOOK, RIGHT]), &[job], &SAMPLING).expect("runs");
    let expected = [(1, Some("so".to_owned()), None), (0, Some("ok".to_owned()), Some(StopReason::Answered))];
    assert_eq!(seen.into_inner().expect("no panic"), expected);
}
