//! Random weights for a configuration: the start of a model that is trained from nothing, or a stand-in of a given shape.

use super::config::ModelConfig;
use super::error::ModelFault;
use super::mimetic::imitate;
use super::save::write_parameters;
use super::weights::{Parameter, kind_of, shapes};
use std::path::Path;
use tch::{Device, Kind, Tensor};

/// Range of the DeltaNet's first time steps.
const TIME_STEPS: (f64, f64) = (0.001, 0.1);

/// Writes random weights for `dir/config.json` into `dir` in dtype `kind`.
///
/// Matrices are normal with the configuration's `initializer_range` (0.02 when absent); norms start neutral. The decay starts
/// as in Mamba-2 and Gated DeltaNet (arXiv 2412.06464, reference code): rates uniform in 0 to 16, time steps log-uniform in
/// 0.001 to 0.1 through the inverse of softplus. With the time step of 1.3 that a `dt_bias` of 1 means, a state would forget
/// everything within a token and the layer could not learn to remember. `copies` asks for [`mimetic`](super::mimetic) weights.
pub fn init_model(dir: &Path, kind: Kind, seed: i64, copies: bool) -> Result<ModelConfig, ModelFault> {
    let config = ModelConfig::load(dir)?;
    let text = config.json.get("text_config").unwrap_or(&config.json);
    let range = text.get("initializer_range").and_then(serde_json::Value::as_f64).unwrap_or(0.02);
    tch::manual_seed(seed);
    let parameters: Vec<Parameter> = shapes(&config)
        .into_iter()
        .map(|(name, shape)| {
            let tensor = initial(&name, &shape, &config, range);
            Parameter { name, tensor }
        })
        .collect();
    if copies {
        imitate(&parameters, &config, range)?;
    }
    let parameters: Vec<Parameter> = parameters
        .into_iter()
        .map(|Parameter { name, tensor }| Parameter { tensor: tensor.to_kind(kind_of(&name, kind)), name })
        .collect();
    write_parameters(&parameters, None, dir)?;
    Ok(config)
}

fn initial(name: &str, shape: &[i64], config: &ModelConfig, range: f64) -> Tensor {
    let options = (Kind::Float, Device::Cpu);
    let centred = config.norm_style == super::config::NormStyle::OnePlusWeight;
    if name.ends_with("A_log") {
        (Tensor::rand(shape, options).clamp_min(1e-3) * 16.0).log()
    } else if name.ends_with("dt_bias") {
        let (shortest, longest) = TIME_STEPS;
        let step = (Tensor::rand(shape, options) * (longest / shortest).ln() + shortest.ln()).exp();
        &step + (-step.neg().expm1()).log()
    } else if name.ends_with("linear_attn.norm.weight") {
        Tensor::ones(shape, options)
    } else if name.ends_with("norm.weight") {
        if centred { Tensor::zeros(shape, options) } else { Tensor::ones(shape, options) }
    } else {
        Tensor::randn(shape, options) * range
    }
}
