//! Which process of how many this is, as torchrun, Slurm or a person by hand says in the environment.

use super::DistributedError;
use std::env;

/// Port of rank 0 where nobody names one.
const DEFAULT_PORT: u16 = 29500;

/// A process among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// This process, from 0.
    pub rank: usize,
    /// Number of processes.
    pub size: usize,
    /// This process among those of its host: its GPU.
    pub local_rank: usize,
    /// Host of rank 0.
    pub host: String,
    /// Port where the ranks meet.
    pub port: u16,
    /// Somebody else listens there already (torchrun's agent), and its store outlives this attempt.
    pub has_agent_store: bool,
    /// Attempt of a launcher that restarts: the ranks of different attempts never meet.
    pub attempt: u32,
}

impl Place {
    /// What the environment says; `None` where it speaks of no other processes.
    ///
    /// # Errors
    /// A variable that is missing beside the others, or that is not what it must be.
    pub fn from_environment() -> Result<Option<Self>, DistributedError> {
        Self::from_variables(&|name| env::var(name).ok())
    }

    fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, DistributedError> {
        let named = if variable("WORLD_SIZE").is_some() {
            ["RANK", "WORLD_SIZE", "LOCAL_RANK"]
        } else if variable("SLURM_STEP_NUM_TASKS").is_some() {
            // Set by srun for its tasks, and not in a batch script that runs once beside them.
            ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"]
        } else {
            return Ok(None);
        };
        let number = |name: &str| -> Result<usize, DistributedError> {
            let text = variable(name).ok_or_else(|| fault(name, format!("is missing beside {}", named[1])))?;
            text.parse().map_err(|_| fault(name, format!("must be a whole number, got `{text}`")))
        };
        let (rank, size) = (number(named[0])?, number(named[1])?);
        if rank >= size {
            return Err(fault(named[0], format!("must be below {} = {size}, got {rank}", named[1])));
        }
        let host = match variable("MASTER_ADDR") {
            Some(host) => host,
            None => first_host(&variable("SLURM_STEP_NODELIST").or_else(|| variable("SLURM_JOB_NODELIST")))
                .ok_or_else(|| fault("MASTER_ADDR", "is missing; it names the host of rank 0".to_owned()))?,
        };
        let port = match variable("MASTER_PORT") {
            None => DEFAULT_PORT,
            Some(text) => {
                text.parse().map_err(|_| fault("MASTER_PORT", format!("must be a port, 1 to 65535, got `{text}`")))?
            }
        };
        let attempt = variable("TORCHELASTIC_RESTART_COUNT").and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(Some(Self {
            rank,
            size,
            local_rank: number(named[2])?,
            host,
            port,
            has_agent_store: variable("TORCHELASTIC_USE_AGENT_STORE").as_deref() == Some("True"),
            attempt,
        }))
    }
}

fn fault(name: &str, problem: String) -> DistributedError {
    DistributedError::Environment { name: name.to_owned(), problem }
}

/// The first host of a Slurm list such as `gpu[07-09,12],login1`.
fn first_host(list: &Option<String>) -> Option<String> {
    let list = list.as_deref()?;
    let end = list.find([',', '[']).unwrap_or(list.len());
    let name = &list[..end];
    let host = match list[end..].strip_prefix('[') {
        Some(numbers) => format!("{name}{}", numbers.split(['-', ',', ']']).next()?),
        None => name.to_owned(),
    };
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(variables: &[(&str, &str)]) -> Result<Option<Place>, String> {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Place::from_variables(&find).map_err(|e| e.to_string())
    }

    #[test]
    fn torchrun_slurm_and_hand_are_understood() {
        assert_eq!(place(&[]), Ok(None));
        assert_eq!(place(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]), Ok(None), "a batch script");
        let by_hand = [("RANK", "3"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1"), ("MASTER_ADDR", "a")];
        let expected = Place {
            rank: 3,
            size: 4,
            local_rank: 1,
            host: "a".to_owned(),
            port: 29500,
            has_agent_store: false,
            attempt: 0,
        };
        assert_eq!(place(&by_hand), Ok(Some(expected.clone())));
        let torchrun = [("MASTER_PORT", "77"), ("TORCHELASTIC_USE_AGENT_STORE", "True")];
        let torchrun = [&by_hand[..], &torchrun, &[("TORCHELASTIC_RESTART_COUNT", "2")]].concat();
        let found = place(&torchrun).unwrap().unwrap();
        assert_eq!(found, Place { port: 77, has_agent_store: true, attempt: 2, ..expected.clone() });
        for (list, host) in [("gpu[07-09,12],login1", "gpu07"), ("n3,n4", "n3"), ("n3", "n3"), ("b[4,6]", "b4")] {
            let slurm = [("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_LOCALID", "1")];
            let found = place(&[&slurm[..], &[("SLURM_JOB_NODELIST", list)]].concat()).unwrap().unwrap();
            assert_eq!(found, Place { host: host.to_owned(), ..expected.clone() });
        }
    }

    #[test]
    fn faults_name_the_variable() {
        let cases: [(&[(&str, &str)], &str); 5] = [
            (&[("WORLD_SIZE", "2")], "environment variable RANK is missing beside WORLD_SIZE"),
            (&[("WORLD_SIZE", "2"), ("RANK", "x")], "environment variable RANK must be a whole number, got `x`"),
            (&[("WORLD_SIZE", "2"), ("RANK", "2")], "environment variable RANK must be below WORLD_SIZE = 2, got 2"),
            (
                &[("WORLD_SIZE", "2"), ("RANK", "1")],
                "environment variable MASTER_ADDR is missing; it names the host of rank 0",
            ),
            (
                &[("WORLD_SIZE", "2"), ("RANK", "1"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "70000")],
                "environment variable MASTER_PORT must be a port, 1 to 65535, got `70000`",
            ),
        ];
        for (variables, expected) in cases {
            assert_eq!(place(variables).unwrap_err(), expected);
        }
    }
}
