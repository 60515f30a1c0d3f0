//! From sections as typed to a config that can run: ranges, arithmetic between keys, files.

use super::sections::{
    DataSection, Dtype, ModelSection, OptimSection, RawSft, RawTrain, RewardPreset, RewardSection, RolloutSection,
    SplitSection, TrainSection, UpdateSection,
};
use super::{
    ConfigError, DataConfig, DataSource, EmbedderConfig, GrpoSection, JudgeConfig, RolloutConfig, SftConfig, Source,
    TrainConfig,
};
use crate::grpo::LossAggregation;
use crate::optim::WeightUpdate;
use napmem_reward::Rubric;
use napmem_rollout::generate::{Sampling, TokenBudget};
use std::fmt::Display;
use std::ops::{Bound, RangeBounds};
use std::path::Path;

type Checked<T = ()> = Result<T, ConfigError>;

/// Checks a training config.
pub fn train(source: &Source) -> Checked<TrainConfig> {
    let raw: RawTrain = source.parse()?;
    let check = Check { source };
    check.model(&raw.model)?;
    let rollout = check.rollout(&raw.rollout)?;
    check.grpo(&raw.grpo, &raw.rollout)?;
    check.optim(&raw.optim, &raw.model)?;
    check.update(&raw.update)?;
    check
        .at_least("update.micro_batch_tokens", raw.update.micro_batch_tokens, raw.rollout.max_total_tokens)
        .map_err(|e| with_reason(e, "`rollout.max_total_tokens`, or a long trajectory fits into no micro-batch"))?;
    check.run(&raw.train)?;
    raw.distributed.check(&check)?;
    let rubric = check.rubric(&raw.reward)?;
    let judge = raw.judge.as_ref().map(|judge| JudgeConfig::check(source, judge, Some(&raw.model))).transpose()?;
    Ok(TrainConfig {
        data: check.data(&raw.data)?,
        model: raw.model.clone(),
        rollout,
        rubric,
        judge,
        grpo: raw.grpo.clone(),
        optim: raw.optim.clone(),
        update: raw.update.clone(),
        train: raw.train.clone(),
        distributed: raw.distributed.clone(),
        file: source.file().to_owned(),
        raw,
    })
}

/// Checks a config of supervised fine-tuning.
pub fn sft(source: &Source) -> Checked<SftConfig> {
    let raw: RawSft = source.parse()?;
    let check = Check { source };
    check.model(&raw.model)?;
    check.optim(&raw.optim, &raw.model)?;
    check.update(&raw.update)?;
    check.run(&raw.train)?;
    if raw.train.validation_questions.is_some() {
        return Err(source.error("train.validation_questions", "has no meaning here: there are no questions"));
    }
    check.at_least("data.trajectories_per_step", raw.data.trajectories_per_step, 1)?;
    check.within("data.validation_fraction", raw.data.validation_fraction, 0.0..1.0)?;
    check.path("data.trajectories", &raw.data.trajectories, Path::is_file, "file")?;
    Ok(SftConfig {
        model: raw.model.clone(),
        trajectories: raw.data.trajectories.clone(),
        validation_fraction: raw.data.validation_fraction,
        trajectories_per_step: raw.data.trajectories_per_step,
        scored_tokens: raw.data.scored_tokens,
        max_trajectory_tokens: raw.data.max_trajectory_tokens,
        only_correct: raw.data.only_correct,
        optim: raw.optim.clone(),
        update: raw.update.clone(),
        train: raw.train.clone(),
        file: source.file().to_owned(),
        raw,
    })
}

fn with_reason(error: ConfigError, reason: &str) -> ConfigError {
    match error {
        ConfigError::Key { origin, key, problem, line } => {
            ConfigError::Key { origin, key, problem: format!("{problem} ({reason})"), line }
        }
        other => other,
    }
}

/// Checks that name the config's file and key.
pub(super) struct Check<'a> {
    pub(super) source: &'a Source,
}

impl Check<'_> {
    pub(super) fn model(&self, model: &ModelSection) -> Checked {
        self.model_at("model", model)
    }

    /// Checks a model section that stands at `section`.
    pub(super) fn model_at(&self, section: &str, model: &ModelSection) -> Checked {
        let key = &format!("{section}.path");
        self.path(key, &model.path, Path::is_dir, "folder")?;
        for name in ["config.json", "tokenizer.json"] {
            if !model.path.join(name).is_file() {
                let problem =
                    format!("must be a Hugging Face model folder, but {} has no {name}", model.path.display());
                return Err(self.source.error(key, problem));
            }
        }
        if !has_weights(&model.path) {
            let problem = format!("must hold *.safetensors weights, but {} has none", model.path.display());
            return Err(self.source.error(key, problem));
        }
        match model.threads {
            Some(threads) => self.at_least(&format!("{section}.threads"), threads, 1),
            None => Ok(()),
        }
    }

    fn rollout(&self, rollout: &RolloutSection) -> Checked<RolloutConfig> {
        self.at_least("rollout.group_size", rollout.group_size, 2)?;
        for (key, value) in [
            ("rollout.questions_per_step", rollout.questions_per_step),
            ("rollout.max_turns", rollout.max_turns),
            ("rollout.max_turn_tokens", rollout.max_turn_tokens),
            ("rollout.max_observation_tokens", rollout.max_observation_tokens),
        ] {
            self.at_least(key, value, 1)?;
        }
        self.within("rollout.temperature", rollout.temperature, Above(0.0))?;
        self.within("rollout.top_p", rollout.top_p, (Bound::Excluded(0.0), Bound::Included(1.0)))?;
        for (key, value) in [
            ("rollout.max_turn_tokens", rollout.max_turn_tokens),
            ("rollout.max_observation_tokens", rollout.max_observation_tokens),
        ] {
            if value >= rollout.max_total_tokens {
                let total = rollout.max_total_tokens;
                return Err(self
                    .source
                    .error(key, format!("must be below `rollout.max_total_tokens`, which is {total}, got {value}")));
            }
        }
        let system_prompt = match &rollout.system_prompt {
            None => None,
            Some(path) => {
                self.path("rollout.system_prompt", path, Path::is_file, "file")?;
                Some(fs_err::read_to_string(path)?)
            }
        };
        Ok(RolloutConfig {
            questions_per_step: rollout.questions_per_step,
            group_size: rollout.group_size,
            sampling: Sampling { temperature: rollout.temperature, top_p: rollout.top_p, top_k: rollout.top_k },
            budget: TokenBudget {
                max_turn_tokens: rollout.max_turn_tokens,
                max_total_tokens: rollout.max_total_tokens,
            },
            max_tool_steps: rollout.max_tool_steps,
            max_turns: rollout.max_turns,
            max_observation_tokens: rollout.max_observation_tokens,
            enable_thinking: rollout.enable_thinking,
            system_prompt,
        })
    }

    fn grpo(&self, grpo: &GrpoSection, rollout: &RolloutSection) -> Checked {
        self.within("grpo.clip_low", grpo.clip_low, 0.0..1.0)?;
        self.within("grpo.clip_high", grpo.clip_high, 0.0..f64::INFINITY)?;
        self.within("grpo.kl_coefficient", grpo.kl_coefficient, 0.0..f64::INFINITY)?;
        if let Some(bound) = grpo.dual_clip {
            self.within("grpo.dual_clip", bound, Above(1.0))?;
        }
        match (grpo.loss_aggregation, grpo.sequence_norm) {
            (LossAggregation::SeqMeanTokenSumNorm, None) => {
                let problem = "is missing; `grpo.loss_aggregation` \"seq-mean-token-sum-norm\" divides by it";
                return Err(self.source.error("grpo.sequence_norm", problem));
            }
            (LossAggregation::SeqMeanTokenSumNorm, Some(norm)) => {
                self.within("grpo.sequence_norm", norm, Above(0.0))?;
            }
            (_, Some(_)) => {
                let problem = "only goes with `grpo.loss_aggregation` \"seq-mean-token-sum-norm\"";
                return Err(self.source.error("grpo.sequence_norm", problem));
            }
            (_, None) => {}
        }
        self.at_least("grpo.updates_per_batch", grpo.updates_per_batch, 1)?;
        if !rollout.questions_per_step.is_multiple_of(grpo.updates_per_batch) {
            let problem = format!(
                "must divide `rollout.questions_per_step`, which is {}, so that each update has as many whole \
                 groups, got {}",
                rollout.questions_per_step, grpo.updates_per_batch
            );
            return Err(self.source.error("grpo.updates_per_batch", problem));
        }
        Ok(())
    }

    fn optim(&self, optim: &OptimSection, model: &ModelSection) -> Checked {
        self.within("optim.learning_rate", optim.learning_rate, Above(0.0))?;
        self.within("optim.beta1", optim.beta1, 0.0..1.0)?;
        self.within("optim.beta2", optim.beta2, 0.0..1.0)?;
        self.within("optim.epsilon", optim.epsilon, Above(0.0))?;
        self.within("optim.weight_decay", optim.weight_decay, 0.0..f64::INFINITY)?;
        self.within("optim.max_grad_norm", optim.max_grad_norm, Above(0.0))?;
        self.at_least("optim.max_skipped_steps", optim.max_skipped_steps, 1)?;
        if optim.weights == WeightUpdate::Bf16Stochastic && model.dtype != Dtype::Bfloat16 {
            let problem = "\"bf16-stochastic\" needs `model.dtype` \"bfloat16\", which is \"float32\"";
            return Err(self.source.error("optim.weights", problem));
        }
        Ok(())
    }

    fn update(&self, update: &UpdateSection) -> Checked {
        self.at_least("update.micro_batch_tokens", update.micro_batch_tokens, 1)?;
        self.at_least("update.head_chunk_tokens", update.head_chunk_tokens, 1)
    }

    fn run(&self, train: &TrainSection) -> Checked {
        if train.run_dir.as_os_str().is_empty() {
            return Err(self.source.error("train.run_dir", "is missing; it names the folder of the run"));
        }
        let options = [
            ("train.max_steps", train.max_steps),
            ("train.validation_questions", train.validation_questions),
            ("train.early_stop_patience", train.early_stop_patience),
        ];
        for (key, value) in options {
            self.at_least(key, value.unwrap_or(1), 1)?;
        }
        self.at_least("train.epochs", train.epochs, 1)?;
        self.at_least("train.keep_last", train.keep_last, 1)?;
        if train.early_stop_patience.is_some() && train.validation_every == 0 {
            let problem = "needs validation, but `train.validation_every` is 0 (never)";
            return Err(self.source.error("train.early_stop_patience", problem));
        }
        Ok(())
    }

    fn rubric(&self, reward: &RewardSection) -> Checked<Rubric> {
        let preset = match reward.preset {
            RewardPreset::Napmem => Rubric::NAPMEM,
            RewardPreset::Symmetric => Rubric::SYMMETRIC,
        };
        let score = |name: &str, given: Option<f64>, default: f64| -> Checked<f64> {
            match given {
                None => Ok(default),
                Some(value) => {
                    self.within(&format!("reward.{name}"), value, f64::MIN..=f64::MAX)?;
                    Ok(value)
                }
            }
        };
        Ok(Rubric {
            correct_with_memory: score("correct_with_memory", reward.correct_with_memory, preset.correct_with_memory)?,
            correct_without_memory: score(
                "correct_without_memory",
                reward.correct_without_memory,
                preset.correct_without_memory,
            )?,
            wrong_with_memory: score("wrong_with_memory", reward.wrong_with_memory, preset.wrong_with_memory)?,
            wrong_without_memory: score(
                "wrong_without_memory",
                reward.wrong_without_memory,
                preset.wrong_without_memory,
            )?,
            broken_format: score("broken_format", reward.broken_format, preset.broken_format)?,
        })
    }

    fn data(&self, data: &DataSection) -> Checked<DataConfig> {
        self.split(&data.split)?;
        let embedder = EmbedderConfig::of_config(self.source, &data.embedder, data.embedder_dimension)?;
        let source = match (&data.pyramids, &data.questions, data.world) {
            (None, None, Some(world)) => {
                self.at_least("data.world.users", world.users, 3)?;
                DataSource::World(world)
            }
            (Some(pyramids), Some(questions), None) => {
                self.path("data.pyramids", pyramids, Path::is_dir, "folder")?;
                self.path("data.questions", questions, Path::is_file, "file")?;
                DataSource::Files { pyramids: pyramids.clone(), questions: questions.clone() }
            }
            (_, _, Some(_)) => {
                return Err(self.source.error("data.world", "excludes `data.pyramids` and `data.questions`"));
            }
            (pyramids, _, None) => {
                let key = if pyramids.is_none() { "data.pyramids" } else { "data.questions" };
                let problem = "is missing; give `data.pyramids` and `data.questions`, or `data.world`";
                return Err(self.source.error(key, problem));
            }
        };
        Ok(DataConfig { source, embedder, split: data.split })
    }

    fn split(&self, split: &SplitSection) -> Checked {
        let shares = [
            ("data.split.train", split.train),
            ("data.split.validation", split.validation),
            ("data.split.test", split.test),
        ];
        for (key, value) in shares {
            self.within(key, value, 0.0..=1.0)?;
        }
        self.within("data.split.train", split.train, Above(0.0))?;
        let sum: f64 = shares.iter().map(|(_, value)| value).sum();
        // Shares are typed with a few decimals; anything larger than rounding is a mistake.
        if (sum - 1.0).abs() > 1e-9 {
            return Err(self.source.error("data.split", format!("must add up to 1, adds up to {sum}")));
        }
        Ok(())
    }

    pub(super) fn at_least(&self, key: &str, value: usize, least: usize) -> Checked {
        if value >= least {
            return Ok(());
        }
        Err(self.source.error(key, format!("must be at least {least}, got {value}")))
    }

    pub(super) fn within(&self, key: &str, value: f64, range: impl RangeBounds<f64>) -> Checked {
        if range.contains(&value) && value.is_finite() {
            return Ok(());
        }
        Err(self.source.error(key, format!("must be {}, got {value}", describe(&range))))
    }

    pub(super) fn path(&self, key: &str, path: &Path, is_there: fn(&Path) -> bool, kind: impl Display) -> Checked {
        path_problem(path, is_there, kind).map_or(Ok(()), |problem| Err(self.source.error(key, problem)))
    }
}

/// What is wrong with a path that must be there.
pub(super) fn path_problem(path: &Path, is_there: fn(&Path) -> bool, kind: impl Display) -> Option<String> {
    if path.as_os_str().is_empty() {
        return Some(format!("is missing; it names a {kind}"));
    }
    let problem = || format!("must be an existing {kind}, got `{}`{}", path.display(), relative_to(path));
    (!is_there(path)).then(problem)
}

/// Every finite number above this one.
struct Above(f64);

impl RangeBounds<f64> for Above {
    fn start_bound(&self) -> Bound<&f64> {
        Bound::Excluded(&self.0)
    }

    fn end_bound(&self) -> Bound<&f64> {
        Bound::Excluded(&f64::INFINITY)
    }
}

fn describe(range: &impl RangeBounds<f64>) -> String {
    let low = match range.start_bound() {
        Bound::Included(low) if *low > f64::MIN => Some(format!("at least {low}")),
        Bound::Excluded(low) => Some(format!("above {low}")),
        _ => None,
    };
    let high = match range.end_bound() {
        Bound::Included(high) if *high < f64::MAX => Some(format!("at most {high}")),
        Bound::Excluded(high) if high.is_finite() => Some(format!("below {high}")),
        _ => None,
    };
    match (low, high) {
        (Some(low), Some(high)) => format!("{low} and {high}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => "a finite number".to_owned(),
    }
}

fn relative_to(path: &Path) -> String {
    match std::env::current_dir() {
        Ok(folder) if path.is_relative() => format!(" (relative to {})", folder.display()),
        _ => String::new(),
    }
}

fn has_weights(folder: &Path) -> bool {
    let Ok(entries) = fs_err::read_dir(folder) else {
        return false;
    };
    entries.flatten().any(|entry| entry.path().extension().is_some_and(|ending| ending == "safetensors"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use tempfile::TempDir;

    /// A folder with a model, pyramids and questions that exist, and a config that uses them.
    struct Fixture {
        folder: TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            for name in ["model", "pyramids"] {
                fs_err::create_dir(folder.path().join(name)).unwrap();
            }
            for name in ["model/config.json", "model/tokenizer.json", "model/model.safetensors", "q.jsonl", "t.jsonl"] {
                fs_err::write(folder.path().join(name), "{}").unwrap();
            }
            Self { folder }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn source(&self, overrides: &[&str]) -> Source {
            let text = format!(
                "[model]\npath = {:?}\n[data]\npyramids = {:?}\nquestions = {:?}\n[train]\nrun_dir = \"runs/a\"\n",
                self.path("model"),
                self.path("pyramids"),
                self.path("q.jsonl")
            );
            let overrides: Vec<String> = overrides.iter().map(|&o| o.to_owned()).collect();
            Source::from_text(Path::new("c.toml"), text, &overrides).unwrap()
        }
    }

    #[test]
    fn defaults_are_the_papers_recipe() {
        let fixture = Fixture::new();
        let config = train(&fixture.source(&[])).unwrap();
        assert_eq!((config.rollout.questions_per_step, config.rollout.group_size), (8, 4));
        assert_eq!((config.rollout.max_tool_steps, config.rollout.max_turns), (4, 5));
        assert_eq!((config.optim.learning_rate, config.grpo.kl_coefficient), (1e-6, 0.001));
        assert_eq!((config.rubric, config.train.epochs), (Rubric::NAPMEM, 5));
        assert_eq!(config.data.split, SplitSection { train: 0.6, validation: 0.2, test: 0.2, seed: 0 });
    }

    #[test]
    fn resolved_config_gives_the_same_config() {
        let fixture = Fixture::new();
        let config = train(&fixture.source(&["reward.preset=symmetric", "grpo.dual_clip=3", "model.device=cuda:1"]));
        let config = config.unwrap();
        let text = config.to_toml();
        let again = train(&Source::from_text(Path::new("c.toml"), text, &[]).unwrap()).unwrap();
        assert_eq!(again, config);
    }

    #[test]
    fn steps_leave_out_a_rest_and_refuse_too_few_questions() {
        let fixture = Fixture::new();
        let config = train(&fixture.source(&["train.epochs=3", "train.max_steps=10"])).unwrap();
        assert_eq!(config.num_steps(20).unwrap(), 6);
        assert_eq!(config.num_steps(80).unwrap(), 10);
        assert_eq!(
            config.num_steps(7).unwrap_err().to_string(),
            "c.toml: `rollout.questions_per_step` must not exceed the number of training questions, 7, got 8"
        );
    }

    #[test]
    fn faults_are_named() {
        let fixture = Fixture::new();
        let cases: &[(&str, &str)] = &[
            ("rollout.group_size=1", "`rollout.group_size` must be at least 2, got 1"),
            ("rollout.temperature=0", "`rollout.temperature` must be above 0, got 0"),
            ("rollout.top_p=1.5", "`rollout.top_p` must be above 0 and at most 1, got 1.5"),
            (
                "rollout.max_turn_tokens=8192",
                "`rollout.max_turn_tokens` must be below `rollout.max_total_tokens`, which is 8192, got 8192",
            ),
            (
                "grpo.updates_per_batch=3",
                "`grpo.updates_per_batch` must divide `rollout.questions_per_step`, which is 8, so that each \
                 update has as many whole groups, got 3",
            ),
            (
                "update.micro_batch_tokens=100",
                "`update.micro_batch_tokens` must be at least 8192, got 100 (`rollout.max_total_tokens`, or a \
                 long trajectory fits into no micro-batch)",
            ),
            ("optim.learning_rate=nan", "`optim.learning_rate` must be above 0, got NaN"),
            ("optim.beta2=1", "`optim.beta2` must be at least 0 and below 1, got 1"),
            (
                "optim.weights=bf16-stochastic",
                "`optim.weights` \"bf16-stochastic\" needs `model.dtype` \"bfloat16\", which is \"float32\"",
            ),
            ("reward.broken_format=inf", "`reward.broken_format` must be a finite number, got inf"),
            (
                "grpo.loss_aggregation=seq-mean-token-sum-norm",
                "`grpo.sequence_norm` is missing; `grpo.loss_aggregation` \"seq-mean-token-sum-norm\" divides by it",
            ),
            ("data.split.train=0.7", "`data.split` must add up to 1, adds up to 1.0999999999999999"),
            ("model.path=/nowhere", "`model.path` must be an existing folder, got `/nowhere`"),
            ("data.embedder_dimension=64", "`data.embedder_dimension` only goes with a Qwen3-Embedding folder"),
            ("data.world={seed=1,users=9}", "`data.world` excludes `data.pyramids` and `data.questions`"),
            ("model.device=gpu", "`model.device` must be one of `auto`, `cpu`, `cuda`, `cuda:N`, got `gpu`"),
            ("train.epochs=0", "`train.epochs` must be at least 1, got 0"),
        ];
        for (set, expected) in cases {
            let message = train(&fixture.source(&[set])).unwrap_err().to_string();
            assert!(message.contains(expected), "{set}: {message}");
        }
    }

    #[test]
    fn model_folder_without_weights_is_refused() {
        let fixture = Fixture::new();
        fs_err::remove_file(fixture.path("model/model.safetensors")).unwrap();
        let message = train(&fixture.source(&[])).unwrap_err().to_string();
        assert!(message.contains("`model.path` must hold *.safetensors weights"), "{message}");
    }

    #[test]
    fn sft_config_refuses_keys_of_other_runs() {
        let fixture = Fixture::new();
        let text = format!(
            "[model]\npath = {:?}\n[data]\ntrajectories = {:?}\n[train]\nrun_dir = \"runs/s\"\n",
            fixture.path("model"),
            fixture.path("t.jsonl")
        );
        let load = |set: &[String]| sft(&Source::from_text(Path::new("s.toml"), text.clone(), set).unwrap());
        assert_eq!(load(&[]).unwrap().trajectories_per_step, 32);
        let message = load(&["grpo.clip_low=0.1".to_owned()]).unwrap_err().to_string();
        assert!(message.starts_with("--set grpo.clip_low=0.1: `grpo` is not a known key"), "{message}");
        let message = load(&["train.validation_questions=3".to_owned()]).unwrap_err().to_string();
        assert!(message.contains("`train.validation_questions` has no meaning here"), "{message}");
    }
}
