//! `[distributed]`: how many processes a run has, and what happens when one fails.

use super::ConfigError;
use super::validate::Check;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;
use toml::Value;

/// How many processes `napmem train` starts on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Processes {
    /// One for each GPU that is visible, or a single one on the CPU.
    #[default]
    Auto,
    /// This many.
    Count(usize),
}

impl TryFrom<Value> for Processes {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match &value {
            Value::String(text) if text == "auto" => Ok(Self::Auto),
            Value::Integer(count) if *count >= 1 => Ok(Self::Count(usize::try_from(*count).unwrap_or(usize::MAX))),
            _ => Err(format!("must be \"auto\" or a number of at least 1, got {value}")),
        }
    }
}

impl From<Processes> for Value {
    fn from(processes: Processes) -> Self {
        match processes {
            Processes::Auto => Self::String("auto".to_owned()),
            Processes::Count(count) => Self::Integer(i64::try_from(count).unwrap_or(i64::MAX)),
        }
    }
}

/// `[distributed]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DistributedSection {
    /// Processes on this host; unused where torchrun, Slurm or the environment say which process this is.
    pub processes: Processes,
    /// Seconds that an operation between processes may take. A rank that waits longer for another ends the run; longer than any rank
    /// may be behind in a rollout.
    pub timeout_s: usize,
    /// Times that failed processes are started again from the last checkpoint; 0 never.
    pub max_restarts: usize,
    /// MiB of fp32 gradients that are summed together.
    pub bucket_mib: usize,
}

impl Default for DistributedSection {
    fn default() -> Self {
        Self { processes: Processes::Auto, timeout_s: 1800, max_restarts: 0, bucket_mib: 64 }
    }
}

impl DistributedSection {
    pub(super) fn check(&self, check: &Check) -> Result<(), ConfigError> {
        check.at_least("distributed.timeout_s", self.timeout_s, 1)?;
        check.at_least("distributed.bucket_mib", self.bucket_mib, 1)
    }

    /// Bound of an operation between processes.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s as u64)
    }

    /// Elements of a bucket of fp32 gradients.
    pub fn bucket_len(&self) -> i64 {
        i64::try_from(self.bucket_mib).unwrap_or(i64::MAX).saturating_mul(1 << 18)
    }

    /// Processes to start for a model on `device`.
    ///
    /// # Errors
    /// More than there are GPUs.
    pub fn num_processes(&self, device: super::Device, file: &Path) -> Result<usize, ConfigError> {
        let fault = |problem: String| ConfigError::Key {
            origin: file.display().to_string(),
            key: "distributed.processes".to_owned(),
            problem,
            line: None,
        };
        let num_gpus = match device.resolve()? {
            tch::Device::Cuda(_) => Some(usize::try_from(tch::Cuda::device_count()).unwrap_or(1)),
            _ => None,
        };
        match (self.processes, num_gpus) {
            (Processes::Auto, Some(_)) if matches!(device, super::Device::Cuda(_)) => Ok(1),
            (Processes::Auto, num_gpus) => Ok(num_gpus.unwrap_or(1).max(1)),
            (Processes::Count(count), Some(num_gpus)) if count > num_gpus => {
                Err(fault(format!("must not exceed the number of GPUs, {num_gpus}, got {count}")))
            }
            (Processes::Count(count), Some(_)) if count > 1 && matches!(device, super::Device::Cuda(_)) => {
                Err(fault(format!("must be 1 where `model.device` names one GPU, got {count}")))
            }
            (Processes::Count(count), _) => Ok(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Device;

    fn parse(text: &str) -> Result<DistributedSection, String> {
        toml::from_str(text).map_err(|e| e.message().to_owned())
    }

    #[test]
    fn processes_are_a_number_or_auto() {
        assert_eq!(parse("processes = \"auto\"").unwrap(), DistributedSection::default());
        assert_eq!(parse("processes = 3").unwrap().processes, Processes::Count(3));
        for (text, got) in [("processes = 0", "0"), ("processes = \"all\"", "\"all\""), ("processes = 1.5", "1.5")] {
            let expected = format!("must be \"auto\" or a number of at least 1, got {got}");
            assert_eq!(parse(text).unwrap_err(), expected);
        }
    }

    #[test]
    fn a_cpu_takes_as_many_as_asked() {
        let file = Path::new("c.toml");
        let section = |processes| DistributedSection { processes, ..DistributedSection::default() };
        assert_eq!(section(Processes::Auto).num_processes(Device::Cpu, file).unwrap(), 1);
        assert_eq!(section(Processes::Count(4)).num_processes(Device::Cpu, file).unwrap(), 4);
        assert_eq!(DistributedSection::default().bucket_len() * 4, 64 << 20);
    }
}
