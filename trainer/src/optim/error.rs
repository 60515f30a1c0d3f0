//! What can be wrong with a step, a parameter or a saved state.

use std::fmt;
use tch::Kind;
use thiserror::Error;

/// Why a step changed nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum SkipReason {
    /// The batch's loss was NaN or infinite.
    NonFiniteLoss(f64),
    /// A gradient held a NaN or an infinity; the first such parameter in order.
    NonFiniteGradient {
        /// Its name.
        parameter: String,
    },
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NonFiniteLoss(loss) => write!(f, "the loss is {loss}"),
            Self::NonFiniteGradient { parameter } => write!(f, "the gradient of `{parameter}` is not finite"),
        }
    }
}

/// An optimizer that cannot be made, cannot go on, or cannot take a saved state.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum OptimError {
    /// A weight type without an update rule.
    #[error("parameter `{name}`: weights must be Float or BFloat16, got {kind:?}")]
    Kind {
        /// The parameter.
        name: String,
        /// Its type.
        kind: Kind,
    },
    /// Too many skipped steps in a row.
    #[error("{in_row} steps in a row were skipped (allowed: {limit}); in the last, {reason}")]
    TooManySkips {
        /// Skipped steps, this one included.
        in_row: usize,
        /// Skipped steps in a row that are tolerated.
        limit: usize,
        /// Why the last one was skipped.
        reason: SkipReason,
    },
    /// A saved state lacks a tensor.
    #[error("optimizer state: tensor `{0}` is missing")]
    Missing(String),
    /// A saved state has a tensor that this optimizer does not.
    #[error("optimizer state: tensor `{0}` belongs to no parameter of this model")]
    Unknown(String),
    /// A saved tensor does not fit.
    #[error("optimizer state: tensor `{name}` must be {expected}, got {found}")]
    Misfit {
        /// The tensor.
        name: String,
        /// Type and shape that it must have.
        expected: String,
        /// Type and shape that it has.
        found: String,
    },
    /// A saved tensor cannot be read.
    #[error("optimizer state: {0}")]
    Unreadable(String),
    /// The masters are not those of the model's weights.
    #[error(
        "optimizer state: `{name}` does not round to the model's weights: state and weights are of different steps"
    )]
    OtherWeights {
        /// The master tensor.
        name: String,
    },
}
