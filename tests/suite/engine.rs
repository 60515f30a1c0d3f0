//! The sampling engine against plain forwards: what it returns is what the model says, whatever shares the batch.

use crate::support::fixture;
use napmem::engine::{Engine, EngineLimits};
use napmem::model::{Decoder, PackedLayout};
use napmem_rollout::generate::{
    AttemptKey, Generate, GenerateStats, NextAction, PromptGroup, SampledTurn, Sampling, TokenBudget, TurnEnd,
    TurnHandler,
};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;
use tch::{Device, Kind, Tensor};

/// fp32 log-probabilities by decode against one full forward.
const LOGPROB_TOLERANCE: f32 = 2e-5;
const STOP: u32 = 7;
const BUDGET: TokenBudget = TokenBudget { max_turn_tokens: 12, max_total_tokens: 80 };
const SAMPLING: Sampling = Sampling { temperature: 0.8, top_p: 1.0, top_k: 0 };

type Turns = BTreeMap<AttemptKey, Vec<SampledTurn>>;

/// Answers two turns of each attempt with an observation that depends on the attempt, then finishes.
struct Handler {
    turns: Mutex<Turns>,
    pause: Duration,
}

fn observation(key: AttemptKey, turn: usize) -> Vec<u32> {
    (0..(3 + key.attempt + 2 * turn) as u32).map(|i| 11 + (i * 5 + key.group as u32) % 60).collect()
}

impl TurnHandler for Handler {
    fn on_turn(&self, key: AttemptKey, turn: SampledTurn) -> NextAction {
        std::thread::sleep(self.pause * (key.attempt as u32 % 3));
        let is_full = turn.end == TurnEnd::TotalLimit;
        let mut turns = self.turns.lock().unwrap();
        let own = turns.entry(key).or_default();
        own.push(turn);
        if is_full || own.len() == 3 { NextAction::Finish } else { NextAction::Continue(observation(key, own.len())) }
    }
}

fn groups() -> Vec<PromptGroup> {
    let prompt = |n: u32| (0..n).map(|i| 8 + (i * 7 + n) % 80).collect();
    let group = |g: u64, n| PromptGroup { prompt_ids: prompt(n), seeds: (0..4).map(|a| 100 * g + a).collect() };
    vec![group(0, 20), group(1, 5), group(2, 33)]
}

fn run(decoder: &Decoder, groups: &[PromptGroup], limits: EngineLimits, pause_ms: u64) -> (Turns, GenerateStats) {
    let handler = Handler { turns: Mutex::default(), pause: Duration::from_millis(pause_ms) };
    let mut engine = Engine::new(decoder, vec![STOP], limits, 0);
    let stats = engine.generate(groups, &SAMPLING, &BUDGET, &handler).unwrap();
    (handler.turns.into_inner().unwrap(), stats)
}

fn load(model: &str) -> Decoder {
    Decoder::load(&fixture(model), Kind::Float, Device::Cpu).unwrap()
}

/// Every sampled token's log-probability by one forward over the whole sequence.
fn by_full_forward(decoder: &Decoder, prompt: &[u32], key: AttemptKey, turns: &[SampledTurn]) -> Vec<f32> {
    let (mut ids, mut at) = (prompt.to_vec(), Vec::new());
    for (i, turn) in turns.iter().enumerate() {
        at.extend((ids.len()..ids.len() + turn.token_ids.len()).map(|t| t as i64 - 1));
        ids.extend(&turn.token_ids);
        if i + 1 < turns.len() {
            ids.extend(observation(key, i + 1));
        }
    }
    let ids: Vec<i64> = ids.into_iter().map(i64::from).collect();
    let _guard = tch::no_grad_guard();
    let layout = PackedLayout::new(&[ids.len() as i64], Device::Cpu);
    let x = decoder.forward(&Tensor::from_slice(&ids), &layout, None, None);
    let logits = decoder.logits(&decoder.final_norm(&x)) / SAMPLING.temperature;
    let targets: Vec<i64> = at.iter().map(|&t| ids[t as usize + 1]).collect();
    let rows = logits.log_softmax(-1, Kind::Float).index_select(0, &Tensor::from_slice(&at));
    Vec::try_from(rows.gather(1, &Tensor::from_slice(&targets).unsqueeze(1), false).squeeze_dim(1)).unwrap()
}

#[test]
fn logprobs_equal_those_of_a_full_forward() {
    for model in ["qwen3_5_tiny", "dense_llama_tiny"] {
        let (decoder, groups) = (load(model), groups());
        let (turns, stats) = run(&decoder, &groups, EngineLimits::default(), 0);
        assert_eq!(turns.len(), 12, "{model}");
        assert_eq!(stats.num_prompt_tokens, 58, "a shared prompt counts once");
        for (key, turns) in &turns {
            let expected = by_full_forward(&decoder, &groups[key.group].prompt_ids, *key, turns);
            let found: Vec<f32> = turns.iter().flat_map(|t| t.logprobs.iter().copied()).collect();
            assert_eq!(expected.len(), found.len());
            for (e, f) in expected.iter().zip(&found) {
                assert!((e - f).abs() < LOGPROB_TOLERANCE, "{model} {key:?}: {e} against {f}");
            }
        }
    }
}

#[test]
fn the_same_seeds_give_the_same_bits_however_slow_tools_are() {
    let decoder = load("qwen3_5_tiny");
    let bits = |turns: &Turns| -> Vec<(AttemptKey, Vec<u32>, Vec<u32>)> {
        let flat = |(key, turns): (&AttemptKey, &Vec<SampledTurn>)| {
            let ids = turns.iter().flat_map(|t| t.token_ids.clone()).collect();
            (*key, ids, turns.iter().flat_map(|t| t.logprobs.iter().map(|p| p.to_bits())).collect())
        };
        turns.iter().map(flat).collect()
    };
    let (first, _) = run(&decoder, &groups(), EngineLimits::default(), 0);
    let (second, _) = run(&decoder, &groups(), EngineLimits::default(), 3);
    assert_eq!(bits(&first), bits(&second));
}

#[test]
fn waves_and_prefill_pieces_change_no_token() {
    let decoder = load("qwen3_5_tiny");
    let ids = |turns: Turns| -> Vec<Vec<u32>> {
        turns.into_values().map(|turns| turns.into_iter().flat_map(|t| t.token_ids).collect()).collect()
    };
    let (whole, _) = run(&decoder, &groups(), EngineLimits::default(), 0);
    let small = EngineLimits { max_live_sequences: 4, max_prefill_tokens: 24 };
    let (pieces, _) = run(&decoder, &groups(), small, 0);
    assert_eq!(ids(whole), ids(pieces));
}

#[test]
fn budgets_end_turns_and_too_long_prompts_are_refused() {
    let decoder = load("qwen3_5_tiny");
    let (turns, _) = run(&decoder, &groups(), EngineLimits::default(), 0);
    for (key, turns) in &turns {
        let mut total = groups()[key.group].prompt_ids.len();
        for (i, turn) in turns.iter().enumerate() {
            total += turn.token_ids.len();
            let stopped = turn.token_ids.last() == Some(&STOP);
            match turn.end {
                TurnEnd::StopToken => assert!(stopped),
                TurnEnd::TurnLimit => assert!(!stopped && turn.token_ids.len() == BUDGET.max_turn_tokens),
                TurnEnd::TotalLimit => assert!(!stopped && total == BUDGET.max_total_tokens),
            }
            assert!(turn.token_ids[..turn.token_ids.len() - 1].iter().all(|&id| id != STOP));
            total += observation(*key, i + 1).len();
        }
    }
    let handler = Handler { turns: Mutex::default(), pause: Duration::ZERO };
    let long = PromptGroup { prompt_ids: vec![9; 80], seeds: vec![1] };
    let mut engine = Engine::new(&decoder, vec![STOP], EngineLimits::default(), 0);
    let message = engine.generate(&[long], &SAMPLING, &BUDGET, &handler).unwrap_err().to_string();
    assert_eq!(message, "prompt of group 0 has 80 tokens; `max_total_tokens` = 80 leaves no room to answer");
}

/// A handler that dies must not leave the engine waiting.
#[test]
#[should_panic(expected = "the tool broke")]
fn a_panic_in_a_handler_reaches_the_caller() {
    struct Broken;
    impl TurnHandler for Broken {
        fn on_turn(&self, _: AttemptKey, _: SampledTurn) -> NextAction {
            panic!("the tool broke");
        }
    }
    let decoder = load("dense_llama_tiny");
    let mut engine = Engine::new(&decoder, vec![STOP], EngineLimits::default(), 0);
    let _ = engine.generate(&groups(), &SAMPLING, &BUDGET, &Broken);
}
