//! The learning rate of each step.

use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// Course of the learning rate after warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// Stays.
    #[default]
    Constant,
    /// Falls on a line to 0 at the end.
    Linear,
    /// Falls on half a cosine to 0 at the end.
    Cosine,
}

/// A schedule with its numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearningRate {
    /// The rate after warm-up.
    pub peak: f64,
    /// What follows warm-up.
    pub schedule: Schedule,
    /// Steps below the peak at the start.
    pub warmup_steps: u64,
    /// Steps of the whole run, warm-up included; where a falling rate reaches 0.
    pub total_steps: u64,
}

impl LearningRate {
    /// Rate of the update after `num_done` updates.
    ///
    /// Warm-up rises by equal amounts from the first update on, whose rate is not 0: an update of rate 0 would waste its
    /// rollouts.
    pub fn at(&self, num_done: u64) -> f64 {
        if num_done < self.warmup_steps {
            return self.peak * (num_done + 1) as f64 / (self.warmup_steps + 1) as f64;
        }
        let falling_steps = self.total_steps.saturating_sub(self.warmup_steps).max(1);
        let progress = ((num_done - self.warmup_steps) as f64 / falling_steps as f64).min(1.0);
        self.peak
            * match self.schedule {
                Schedule::Constant => 1.0,
                Schedule::Linear => 1.0 - progress,
                Schedule::Cosine => 0.5 * (1.0 + (PI * progress).cos()),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_by_hand() {
        let rate = |schedule, warmup_steps, total_steps, step| {
            LearningRate { peak: 8.0, schedule, warmup_steps, total_steps }.at(step)
        };
        let cases = [
            (Schedule::Constant, 0, 10, 0, 8.0),
            (Schedule::Constant, 3, 10, 0, 2.0),
            (Schedule::Constant, 3, 10, 2, 6.0),
            (Schedule::Constant, 3, 10, 3, 8.0),
            (Schedule::Constant, 3, 10, 99, 8.0),
            (Schedule::Linear, 2, 10, 2, 8.0),
            (Schedule::Linear, 2, 10, 6, 4.0),
            (Schedule::Linear, 2, 10, 9, 1.0),
            (Schedule::Linear, 2, 10, 12, 0.0),
            (Schedule::Cosine, 2, 10, 2, 8.0),
            (Schedule::Cosine, 2, 10, 6, 4.0),
            (Schedule::Cosine, 2, 10, 10, 0.0),
            (Schedule::Linear, 5, 5, 5, 8.0),
        ];
        for (schedule, warmup, total, step, expected) in cases {
            let got = rate(schedule, warmup, total, step);
            assert!((got - expected).abs() < 1e-12, "{schedule:?} {warmup}/{total} at {step}: {got}");
        }
    }
}
