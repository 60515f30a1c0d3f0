//! Users and questions of a run: read or generated, split by user, ordered by seed.

use crate::config::{DataConfig, DataSource, EmbedderConfig, Part, TrainConfig};
use crate::engine::{BertEmbedder, QwenEmbedder};
use anyhow::Context;
use napmem_rollout::datasets::{DatasetError, Split, pyramids_dir, questions, questions_file, split_by_user};
use napmem_rollout::episode::EpisodeJob;
use napmem_rollout::generate::Embed;
use napmem_rollout::pyramid::{HashedNgramEmbedder, Pyramid};
use napmem_rollout::question::Question;
use napmem_rollout::world;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tch::{Device, Kind};

/// All users' memories and the questions about them, by part.
pub struct Dataset {
    pyramids: BTreeMap<String, Pyramid>,
    /// Learned from.
    pub train: Vec<Question>,
    /// Watched during a run.
    pub validation: Vec<Question>,
    /// Looked at by evaluations only.
    pub test: Vec<Question>,
}

impl Dataset {
    /// Reads the configured data; a sample world is first written into a folder of its own in `world_dir` unless it is there.
    pub fn open(config: &DataConfig, world_dir: &Path, device: Device) -> anyhow::Result<Self> {
        let (pyramids, questions_path) = locate(&config.source, world_dir)?;
        let embedder = open_embedder(&config.embedder, device)?;
        let users = user_folders(&pyramids)?;
        let questions = questions::read(&questions_path, &users)?;
        let loaded = users
            .par_iter()
            .map(|user| Ok((user.clone(), Pyramid::load(&pyramids.join(user), &embedder)?)))
            .collect::<anyhow::Result<BTreeMap<_, _>>>()?;
        let shares = [config.split.train, config.split.validation, config.split.test];
        let split = split_by_user(&users, shares, config.split.seed)?;
        Ok(Self {
            pyramids: loaded,
            train: Split::select(&questions, &split.train),
            validation: Split::select(&questions, &split.validation),
            test: Split::select(&questions, &split.test),
        })
    }

    /// The data of a training config, a generated world under `run_dir/data`.
    pub fn of_run(config: &TrainConfig, device: Device) -> anyhow::Result<Self> {
        Self::open(&config.data, &config.train.run_dir.join("data"), device)
    }

    /// Numbers of questions to train on, to validate on and to test on, without opening a pyramid or writing a world.
    pub fn count(config: &DataConfig) -> anyhow::Result<[usize; 3]> {
        let (users, questions) = match &config.source {
            DataSource::Files { pyramids, questions } => {
                let users = user_folders(pyramids)?;
                let questions = questions::read(questions, &users)?;
                (users, questions)
            }
            DataSource::World(section) => {
                let world = world::generate(section.seed, section.users);
                let users = world.iter().map(|user| user.user.clone()).collect();
                (users, world.into_iter().flat_map(|user| user.questions).collect())
            }
        };
        let shares = [config.split.train, config.split.validation, config.split.test];
        let split = split_by_user(&users, shares, config.split.seed)?;
        Ok([&split.train, &split.validation, &split.test].map(|part| Split::select(&questions, part).len()))
    }

    /// Questions of a part, in file order.
    pub fn part(&self, part: Part) -> Vec<Question> {
        match part {
            Part::Train => self.train.clone(),
            Part::Validation => self.validation.clone(),
            Part::Test => self.test.clone(),
            Part::All => [&self.train, &self.validation, &self.test].into_iter().flatten().cloned().collect(),
        }
    }

    /// The memory of the question's user.
    pub fn pyramid(&self, question: &Question) -> &Pyramid {
        &self.pyramids[&question.user]
    }

    /// A group: the question, its user's memory, and seeds of its attempts drawn from `stream`.
    pub fn job<'a>(
        &'a self,
        question: &'a Question,
        group_id: u64,
        stream: u64,
        num_attempts: usize,
    ) -> EpisodeJob<'a> {
        let environment = &self.pyramids[&question.user];
        let seeds = (0..num_attempts as u64).map(|attempt| mix(mix(stream, group_id), attempt)).collect();
        EpisodeJob { question, environment, group_id, seeds }
    }
}

/// Opens the embedder that a config names: fp32 on the CPU, bf16 elsewhere.
pub fn open_embedder(embedder: &EmbedderConfig, device: Device) -> anyhow::Result<Arc<dyn Embed>> {
    let kind = if device == Device::Cpu { Kind::Float } else { Kind::BFloat16 };
    Ok(match embedder {
        EmbedderConfig::Hashed => Arc::new(HashedNgramEmbedder::default()),
        EmbedderConfig::Qwen3 { dir, dimension } => Arc::new(QwenEmbedder::load(dir, *dimension, kind, device)?),
        EmbedderConfig::Bert { dir } => Arc::new(BertEmbedder::load(dir, kind, device)?),
    })
}

fn locate(source: &DataSource, world_dir: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    match source {
        DataSource::Files { pyramids, questions } => Ok((pyramids.clone(), questions.clone())),
        DataSource::World(section) => {
            let dir = world_dir.join(format!("world-{}-{}", section.seed, section.users));
            let questions = questions_file(&dir);
            if !questions.exists() {
                world::write(&dir, &world::generate(section.seed, section.users))
                    .with_context(|| format!("sample world in {}", dir.display()))?;
            }
            Ok((pyramids_dir(&dir), questions))
        }
    }
}

/// Users that have a folder in `dir`; none at all is an error.
pub fn user_folders(dir: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut users = BTreeSet::new();
    for entry in fs_err::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            users.insert(entry.file_name().to_string_lossy().into_owned());
        }
    }
    if users.is_empty() {
        return Err(DatasetError::Source { path: dir.to_owned(), message: "no user folders".to_owned() }.into());
    }
    Ok(users)
}

/// The order of `num_questions` questions in an epoch: a shuffle that depends on nothing but its arguments, so that a
/// resumed run needs no saved stream.
pub fn epoch_order(num_questions: usize, seed: u64, epoch: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..num_questions).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(mix(seed, epoch as u64)));
    order
}

/// Combines a seed with a number into a seed of an independent stream (SplitMix64's finaliser).
pub fn mix(seed: u64, number: u64) -> u64 {
    let mut z = seed ^ number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
