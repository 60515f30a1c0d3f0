//! Makes what the tiny checkpoint needs beside its weights.
//!
//! `make_tiny files DIR SEED NUM_USERS` trains the tokenizer on the sample world and writes it with the template and the
//! configurations. `make_tiny drills DIR SEED NUM_USERS NUM_DRILLS OUT` writes reading drills in that tokenizer and template.

use napmem_rollout::chat::ChatFormat;
use napmem_rollout::trajectory::write_jsonl;
use napmem_rollout::world::drills::drills;
use napmem_rollout::world::{corpus, generate, tiny};
use std::error::Error;
use std::path::Path;

const USAGE: &str =
    "usage: make_tiny files DIR SEED NUM_USERS\n       make_tiny drills DIR SEED NUM_USERS NUM_DRILLS OUT";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["files", dir, seed, num_users] => {
            let users = generate(number("SEED", seed)?, number("NUM_USERS", num_users)? as usize);
            let tokenizer = tiny::train_tokenizer(&corpus(&users)?)?;
            tiny::write_files(Path::new(dir), &tokenizer)?;
            println!("{dir}: {} tokens", tokenizer.get_vocab_size(true));
        }
        ["drills", dir, seed, num_users, num_drills, out] => {
            let seed = number("SEED", seed)?;
            let users = generate(seed, number("NUM_USERS", num_users)?.max(1) as usize);
            let made =
                drills(&ChatFormat::load(Path::new(dir))?, &users, number("NUM_DRILLS", num_drills)? as usize, seed)?;
            write_jsonl(Path::new(out), &made)?;
            println!("{out}: {} drills", made.len());
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn number(name: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{name} must be a whole number, got {text:?}"))
}
