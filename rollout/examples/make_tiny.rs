//! Makes the tiny checkpoint's files beside its weights: trains the tokenizer on the sample world and writes it with the
//! template and the configurations.
//!
//! `make_tiny DIR SEED NUM_USERS`

use napmem_rollout::world::{corpus, generate, tiny};
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, seed, num_users] = &arguments[..] else {
        return Err("usage: make_tiny DIR SEED NUM_USERS".into());
    };
    let seed = seed.parse().map_err(|_| format!("SEED must be a whole number, got {seed:?}"))?;
    let num_users = num_users.parse().map_err(|_| format!("NUM_USERS must be a whole number, got {num_users:?}"))?;
    let tokenizer = tiny::train_tokenizer(&corpus(&generate(seed, num_users))?)?;
    tiny::write_files(Path::new(dir), &tokenizer)?;
    println!("{dir}: {} tokens", tokenizer.get_vocab_size(true));
    Ok(())
}
