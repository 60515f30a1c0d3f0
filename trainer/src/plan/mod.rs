//! What a run will need before it is started: bytes on each rank, time of a step, on GPUs that nobody has to own.
//!
//! Computed from the model's shape, the config and data sheets. Times are estimates under stated assumptions, not measurements.

mod fit;
mod gpu;
mod memory;
mod shape;
mod simulate;
mod work;

pub use fit::{Fit, fit};
pub use gpu::{GPUS, Gpu};
pub use memory::{MemoryEstimate, estimate, gibibytes};
pub use shape::{NAMES, ShapeError, check_weight_files, published};
pub use simulate::{Lengths, Simulated, simulate};
pub use work::{Assumptions, StepTime, TokenCost, step_time};
