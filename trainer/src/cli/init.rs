//! `napmem init`: random weights of a given shape.

use crate::config::Dtype;
use crate::model::init_model;
use anyhow::{Context, bail};
use clap::Args;
use std::path::PathBuf;

/// What a model folder has besides its weights.
const COMPANIONS: [&str; 5] =
    ["config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"];

/// Write a model folder with random weights
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Folder with config.json, tokenizer.json and the chat template
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Number format of the weights: float32 or bfloat16
    #[arg(long, default_value_t = Dtype::Float32)]
    dtype: Dtype,
    /// Seed of the weights
    #[arg(long, default_value_t = 0)]
    seed: u32,
    /// Start with weights that copy repeated text (mimetic initialization); for small models that are trained from nothing
    #[arg(long)]
    mimetic: bool,
}

/// Copies what is not weights and writes random weights.
pub fn run(args: &InitArgs) -> anyhow::Result<()> {
    if args.out.join("config.json").exists() && args.out != args.from {
        bail!("{}: there is a model already; remove it, or give another --out", args.out.display());
    }
    fs_err::create_dir_all(&args.out)?;
    for name in COMPANIONS {
        let file = args.from.join(name);
        if file.is_file() && args.out != args.from {
            fs_err::copy(&file, args.out.join(name))?;
        }
    }
    init_model(&args.out, args.dtype.kind(), i64::from(args.seed), args.mimetic)
        .with_context(|| format!("random weights in {}", args.out.display()))?;
    crate::say!("{}", args.out.display());
    Ok(())
}
