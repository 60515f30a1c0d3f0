//! How a failed command ends: the text of its error, and the exit code, decided by the outermost type of the error's
//! chain that is known here.

use crate::checkpoint::{CheckpointError, RunFolderError};
use crate::config::ConfigError;
use crate::distributed::DistributedError;
use crate::eval::Stopped;
use crate::interrupt::{INTERRUPTED_EXIT_CODE, Interrupted};
use crate::metrics::MetricsError;
use crate::model::ModelFault;
use crate::plan::ShapeError;
use napmem_rollout::answers::JudgingError;
use napmem_rollout::build::BuildError;
use napmem_rollout::chat::ChatError;
use napmem_rollout::datasets::DatasetError;
use napmem_rollout::pyramid::PyramidError;
use napmem_rollout::trajectory::TrajectoryError;
use napmem_rollout::world::WorldError;
use std::error::Error;

const CONFIG: u8 = 2;
const DATA: u8 = 3;
const MODEL: u8 = 4;
const RUNNING: u8 = 5;
const FILES: u8 = 6;

/// The process's exit code for an error.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    // A file error inside a model's error is a model's.
    error.chain().find_map(code_of).unwrap_or(RUNNING)
}

/// The error in one line: its own text, then each cause that the text before does not already give.
pub fn error_text(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Tells the user, or the launcher that started this process among others, how it failed.
pub fn tell(error: &anyhow::Error) {
    let is_consequence = error.chain().any(|cause| matches!(cause.downcast_ref(), Some(DistributedError::Peer { .. })));
    if !crate::distributed::report(exit_code(error), &error_text(error), is_consequence) {
        eprintln!("napmem: {}", error_text(error));
    }
}

fn code_of(error: &(dyn Error + 'static)) -> Option<u8> {
    if error.is::<Interrupted>() || error.is::<Stopped>() {
        return u8::try_from(INTERRUPTED_EXIT_CODE).ok();
    }
    match error.downcast_ref() {
        Some(DistributedError::RankFailed(failure)) => return Some(failure.code),
        Some(DistributedError::Environment { .. }) => return Some(CONFIG),
        Some(_) => return Some(RUNNING),
        None => {}
    }
    if error.is::<ConfigError>() {
        return Some(CONFIG);
    }
    if let Some(BuildError::Setting { .. } | BuildError::Prompt { .. }) = error.downcast_ref() {
        return Some(CONFIG);
    }
    if let Some(JudgingError::NoJudge { .. }) = error.downcast_ref() {
        return Some(CONFIG);
    }
    if let Some(BuildError::Model { .. }) = error.downcast_ref() {
        return Some(RUNNING);
    }
    let is_data = error.is::<PyramidError>()
        || error.is::<BuildError>()
        || error.is::<DatasetError>()
        || error.is::<TrajectoryError>()
        || error.is::<WorldError>();
    if is_data {
        return Some(DATA);
    }
    let is_model = error.is::<ModelFault>()
        || error.is::<ChatError>()
        || error.is::<ShapeError>()
        || error.is::<super::fetch::FetchError>();
    if is_model {
        return Some(MODEL);
    }
    if let Some(RunFolderError::NotEmpty(_)) = error.downcast_ref() {
        return Some(CONFIG);
    }
    let is_file = error.is::<CheckpointError>()
        || error.is::<RunFolderError>()
        || error.is::<MetricsError>()
        || error.is::<std::io::Error>();
    is_file.then_some(FILES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use std::io;

    #[test]
    fn causes_are_said_once() {
        let full = CheckpointError::Write { path: "c".into(), source: "disk full".into() };
        let error = Err::<(), _>(full).context("step 3").unwrap_err();
        let expected = "step 3: c: cannot write the checkpoint: disk full (earlier checkpoints are untouched)";
        assert_eq!(error_text(&error), expected);
    }

    #[test]
    fn kinds_of_failure_have_their_codes() {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let cases: [(anyhow::Error, u8); 8] = [
            (ConfigError::Read(missing()).into(), 2),
            (ShapeError::Read(missing()).into(), 4),
            (PyramidError::Io(missing()).into(), 3),
            (Err::<(), _>(ModelFault::Io(missing())).context("loading").unwrap_err(), 4),
            (anyhow::anyhow!("loss is not finite"), 5),
            (Err::<(), _>(missing()).context("while saving").unwrap_err(), 6),
            (RunFolderError::InUse("runs/a".into()).into(), 6),
            (Interrupted { step: 3 }.into(), 130),
        ];
        for (error, expected) in cases {
            assert_eq!(exit_code(&error), expected, "{error:#}");
        }
    }
}
