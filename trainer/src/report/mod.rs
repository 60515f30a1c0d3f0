//! `napmem report`: evaluations and training runs as one HTML page that needs nothing else.
//!
//! What a run's files hold is gathered here and written into the page as JSON; the page draws it with text nodes alone, so that
//! nothing that a policy or a memory said can become markup or script. Tables show the values of `eval.json` as they are.

mod gather;

use crate::eval::EvalResults;
use anyhow::Context;
use gather::{Curves, Set, curves};
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};

const PAGE: &str = include_str!("report.html");
const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");
const D3: &str = include_str!("../../assets/d3.min.js");
const PLOT: &str = include_str!("../../assets/plot.umd.min.js");

/// Trajectories that a page takes: more of them are left out, and the page says so.
pub const MAX_TRAJECTORIES: usize = 20_000;

/// An evaluation's results and where they are from.
#[derive(Serialize)]
struct Evaluation {
    name: String,
    results: EvalResults,
}

/// A training run's curves.
#[derive(Serialize)]
struct Training {
    name: String,
    curves: Curves,
}

/// Writes the page about `runs`: folders of evaluations (`eval --out`) and of training runs.
pub fn run(runs: &[PathBuf], out: &Path) -> anyhow::Result<()> {
    let (mut evaluations, mut trainings, mut sets) = (Vec::new(), Vec::new(), Vec::<Set>::new());
    for (dir, name) in runs.iter().zip(names(runs)) {
        let results = dir.join("eval.json");
        if results.is_file() {
            let text = fs_err::read_to_string(&results)?;
            let results: EvalResults = serde_json::from_str(&text).with_context(|| format!("{}", results.display()))?;
            sets.extend(gather::evaluation_sets(dir, &name, &results)?);
            evaluations.push(Evaluation { name, results });
        } else if dir.join("metrics.jsonl").is_file() {
            trainings.push(Training { name: name.clone(), curves: curves(&dir.join("metrics.jsonl"))? });
            sets.extend(gather::training_sets(dir, &name)?);
        } else {
            anyhow::bail!("{}: neither an evaluation (eval.json) nor a training run (metrics.jsonl)", dir.display());
        }
    }
    let page = render(&evaluations, &trainings, &sets)?;
    fs_err::write(out, page)?;
    crate::say!("{}", out.display());
    Ok(())
}

/// The folders' own names, or their paths where those are the same.
fn names(runs: &[PathBuf]) -> Vec<String> {
    let short =
        |dir: &PathBuf| dir.file_name().map_or(dir.display().to_string(), |name| name.to_string_lossy().into_owned());
    let is_unique = |name: &String| runs.iter().filter(|dir| short(dir) == *name).count() == 1;
    runs.iter().map(|dir| Some(short(dir)).filter(is_unique).unwrap_or_else(|| dir.display().to_string())).collect()
}

fn render(evaluations: &[Evaluation], trainings: &[Training], sets: &[Set]) -> anyhow::Result<String> {
    let (mut index, mut details) = (Vec::new(), Vec::new());
    let num_all: usize = sets.iter().map(|set| set.trajectories.len()).sum();
    for (place, set) in sets.iter().enumerate() {
        for trajectory in &set.trajectories {
            if index.len() < MAX_TRAJECTORIES {
                index.push(gather::index_line(place, set, trajectory));
                details.push(serde_json::to_string(&gather::detail(trajectory))?);
            }
        }
    }
    let labels: Vec<_> = sets.iter().map(|set| json!({"label": set.label})).collect();
    let meta = json!({
        "program": format!("napmem {} (commit {})", crate::config::version(), crate::config::commit()),
        "evaluations": evaluations, "trainings": trainings, "sets": labels, "index": index, "left_out": num_all - index.len(),
    });
    let mut page = String::new();
    let mut rest = PAGE;
    for (mark, text) in [
        ("/*STYLE*/", STYLE.to_owned()),
        ("/*META*/", safe(&meta.to_string())),
        ("/*DETAILS*/", safe(&details.join("\n"))),
        ("/*SCRIPT*/", SCRIPT.to_owned()),
        ("/*D3*/", D3.to_owned()),
        ("/*PLOT*/", PLOT.to_owned()),
    ] {
        let (before, after) = rest.split_once(mark).unwrap_or_else(|| panic!("the page has no {mark}"));
        page.push_str(before);
        page.push_str(&text);
        rest = after;
    }
    Ok(page + rest)
}

/// `</script>` and `<!--` inside a text would end the element or change how it is read; JSON allows the escape.
fn safe(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_said_becomes_markup() {
        let mut trajectory = gather::tests::example();
        let said = "</script><script>alert(1)</script><!-- /*META*/ /*SCRIPT*/";
        trajectory.question = said.to_owned();
        trajectory.turns[0].text = said.to_owned();
        let set = Set { label: "s".to_owned(), trajectories: vec![trajectory], latencies: Default::default() };
        let page = render(&[], &[], &[set]).unwrap();
        assert_eq!(page.matches("</script>").count(), PAGE.matches("</script>").count());
        assert!(!page.contains("<script>alert"));
        let start = page.find("id=\"details\">").unwrap() + "id=\"details\">".len();
        let end = start + page[start..].find("</script>").unwrap();
        let shown: serde_json::Value = serde_json::from_str(page[start..end].trim()).unwrap();
        assert_eq!((&shown["question"], &shown["turns"][0]["text"]), (&json!(said), &json!(said)));
        assert!(!page.contains("src=\"http") && !page.contains("href=\"http"), "the page asks for nothing");
    }

    #[test]
    fn names_are_short_where_they_can_be() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(names(&paths(&["runs/a", "runs/b"])), ["a", "b"]);
        assert_eq!(names(&paths(&["x/a", "y/a"])), ["x/a", "y/a"]);
    }
}
