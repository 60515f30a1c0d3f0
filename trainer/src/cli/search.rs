//! `napmem search`: what the search tools would find, with both ranks of every hit.

use super::pyramid_folder::{embedder, open};
use clap::{Args, ValueEnum};
use napmem_rollout::pyramid::{Pyramid, SEARCH_LIMIT, SearchHit};
use serde::Serialize;
use std::path::PathBuf;

/// Search a user's records or messages as the policy's tools do
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// Folder of one user
    dir: PathBuf,
    /// What to look for
    query: String,
    /// Level to search; both when absent
    #[arg(long, value_enum)]
    level: Option<Level>,
    /// Hits of each level
    #[arg(long, default_value_t = SEARCH_LIMIT)]
    limit: usize,
    /// Print JSON, one hit a line
    #[arg(long)]
    json: bool,
}

/// A level that can be searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Records,
    Conversations,
}

#[derive(Serialize)]
struct Hit<'a> {
    level: Level,
    id: &'a str,
    score: f64,
    lexical_rank: Option<usize>,
    dense_rank: Option<usize>,
    time: &'a str,
    text: &'a str,
}

/// Searches and prints.
pub fn run(args: &SearchArgs) -> anyhow::Result<()> {
    let pyramid = open(&args.dir, &embedder())?;
    for level in [Level::Records, Level::Conversations] {
        if args.level.is_some_and(|only| only != level) {
            continue;
        }
        let hits = match level {
            Level::Records => pyramid.search_records(&args.query, args.limit)?,
            Level::Conversations => pyramid.search_messages(&args.query, args.limit)?,
        };
        let hits: Vec<Hit> = hits.iter().map(|hit| describe(&pyramid, level, hit)).collect();
        print(&hits, level, args.json)?;
    }
    Ok(())
}

fn describe<'a>(pyramid: &'a Pyramid, level: Level, hit: &'a SearchHit) -> Hit<'a> {
    let (time, text) = match level {
        Level::Records => pyramid.record(&hit.id).map(|record| (&record.updated, &record.text)),
        Level::Conversations => pyramid.message(&hit.id).map(|message| (&message.time, &message.content)),
    }
    .unwrap_or_else(|| panic!("search found `{}`, which the pyramid does not have", hit.id));
    let SearchHit { id, score, lexical_rank, dense_rank } = hit;
    Hit { level, id, score: *score, lexical_rank: *lexical_rank, dense_rank: *dense_rank, time, text }
}

fn print(hits: &[Hit], level: Level, json: bool) -> serde_json::Result<()> {
    if json {
        for hit in hits {
            crate::say!("{}", serde_json::to_string(hit)?);
        }
        return Ok(());
    }
    crate::say!("{}", if level == Level::Records { "records" } else { "conversations" });
    let rank = |rank: Option<usize>| rank.map_or("-".to_owned(), |rank| rank.to_string());
    for hit in hits {
        let ranks = format!("keyword {:>2}, vector {:>2}", rank(hit.lexical_rank), rank(hit.dense_rank));
        crate::say!("  {:.4} ({ranks})  {}  {}  {}", hit.score, hit.id, hit.time, hit.text);
    }
    if hits.is_empty() {
        crate::say!("  nothing found");
    }
    Ok(())
}
