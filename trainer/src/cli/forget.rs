//! `napmem forget`: takes messages out of a pyramid, and all that comes from them alone.

use super::COMMAND_LINE;
use crate::config::{Device, Embedder, EmbedderConfig};
use crate::data::open_embedder;
use clap::{ArgGroup, Args};
use napmem_rollout::build::{Selection, forget};
use std::path::PathBuf;

/// Remove messages and everything derived only from them, and prove that nothing is left
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("selection").required(true).args(["messages", "session", "before"])))]
pub struct ForgetArgs {
    /// Folder of one user, made by napmem build
    dir: PathBuf,
    /// Ids of messages, separated by commas
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    messages: Vec<String>,
    /// Id of a session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// All messages before this day
    #[arg(long, value_name = "YYYY-MM-DD")]
    before: Option<String>,
    /// hashed, or a folder of Qwen3-Embedding or MiniLM: the one that the pyramid was built with
    #[arg(long, default_value = "hashed")]
    embedder: String,
    /// Leading dimensions of Qwen3-Embedding's vectors, if the pyramid was built with fewer than all
    #[arg(long, value_name = "N")]
    embedder_dimension: Option<usize>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Removes and reports.
pub fn run(args: &ForgetArgs) -> anyhow::Result<()> {
    let selection = match (&args.session, &args.before) {
        (Some(session), _) => Selection::Session(session.clone()),
        (None, Some(day)) => Selection::Before(day.clone()),
        (None, None) => Selection::Messages(args.messages.clone()),
    };
    let embedder = Embedder::from(args.embedder.clone());
    let embedder = EmbedderConfig::of_origin(COMMAND_LINE, &embedder, args.embedder_dimension)?;
    let embedder = open_embedder(&embedder, Device::default().resolve()?)?;
    let report = forget(&args.dir, &selection, &embedder)?;
    if args.json {
        crate::say!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(());
    }
    crate::say!(
        "{} messages removed; records: {} removed, {} changed; tracks: {} removed, {} retold; profile {}",
        report.num_messages,
        report.num_records_removed,
        report.num_records_changed,
        report.num_tracks_removed,
        report.num_tracks_rebuilt,
        if report.is_profile_changed { "changed" } else { "as it was" }
    );
    crate::say!(
        "searched {} files and both indexes for {} texts: none is left",
        report.num_files_searched,
        report.num_texts_gone
    );
    if !report.said_elsewhere.is_empty() {
        crate::say!("also said in messages that stay, so still to be found: {}", report.said_elsewhere.join(", "));
    }
    Ok(())
}
